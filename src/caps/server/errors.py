"""Errors as clients expect them: a status, and the error object of the API of OpenAI or Anthropic.

A message says what the client can change. It never contains addresses, keys or tracebacks.
"""

from collections.abc import Mapping
from typing import Any

from caps.core.errors import CapsError, ModelError, UserError

_CLIENT_ERRORS = {  # faults of the request: the upstream's own message is passed on
    "unknown-model": (404, "model_not_found"),
    "too-long": (400, "context_length_exceeded"),
    "refused": (400, "upstream_refused"),
    "missing-feature": (400, "upstream_missing_feature"),
}
_UPSTREAM_ERRORS = {
    "access": (502, "the model server rejected the key of this gateway: its operator must set another one"),
    "unreachable": (502, "the model server cannot be reached"),
    "busy": (503, "the model server is overloaded: try again later"),
    "timeout": (504, "the model server did not reply in time"),
    "server": (502, "the model server failed on every attempt"),
    "garbled": (502, "the reply of the model server is not a chat completion"),
    "unreadable": (
        502,
        'the replies of the judge cannot be read, so no answer was chosen: send "caps": {"keep_going": true} '
        "to get the answer of the votes, marked as provisional; the operator of this gateway should choose "
        "another judge",
    ),
}


class ApiError(Exception):
    """An error that is sent to the client: a status, a message, and headers such as Retry-After."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        retry_after: int | None = None,
        close_connection: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.headers = {
            **(headers or {}),
            **({} if retry_after is None else {"retry-after": str(retry_after)}),
            **({"connection": "close"} if close_connection else {}),
        }

    def body(self) -> dict[str, Any]:
        """The error object of the OpenAI API."""
        error = {"message": str(self), "type": self.error_type, "param": self.param, "code": self.code}
        return {"error": error}

    @property
    def error_type(self) -> str:
        """The type of the error, as the OpenAI API names it."""
        types = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error"}
        if self.code.startswith("upstream") and self.status >= 500:
            return "upstream_error"
        return types.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_error(error: ApiError, run: str | None = None) -> dict[str, Any]:
    """The error object of the API of Anthropic; `run` is the id of the request."""
    kind = _ANTHROPIC_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    row = {"type": kind, "message": str(error), "code": error.code, "param": error.param}
    return {"type": "error", "error": row, **({} if run is None else {"request_id": run})}


def to_api_error(error: BaseException, address: str) -> ApiError:
    """Any exception as an error for the client; `address` of the upstream is removed from its message."""
    if isinstance(error, ApiError):
        return error
    return _caps_error(error, address) if isinstance(error, CapsError) else internal_error()


def _caps_error(error: CapsError, address: str) -> ApiError:
    if isinstance(error, UserError):
        return ApiError(400, str(error), code="invalid_value", param="caps")
    if not isinstance(error, ModelError):
        return internal_error()
    if error.cause in _CLIENT_ERRORS:
        status, code = _CLIENT_ERRORS[error.cause]
        message = str(error).replace(address, "the model server") if address else str(error)
        return ApiError(status, message, code=code, param="model" if status == 404 else None)
    status, message = _UPSTREAM_ERRORS.get(error.cause, (502, "the model server failed"))
    return ApiError(status, message, code=f"upstream_{error.cause}", retry_after=5 if status == 503 else None)


def internal_error() -> ApiError:
    """The error for a fault of this server, without details."""
    return ApiError(
        500,
        "this server failed; its log has the details under the id in x-caps-run-id",
        code="internal_error",
    )


def invalid_value(param: str, problem: str) -> ApiError:
    """The error for a field of the body with a wrong value."""
    return ApiError(400, f"{param}: {problem}", code="invalid_value", param=param)
