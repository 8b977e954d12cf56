"""What goes wrong, in the words and statuses that clients of the OpenAI API expect.

A client learns what it can mend; addresses, keys and traces stay here.
"""

from collections.abc import Mapping
from typing import Any

from caps.core.errors import CapsError, ModelError, UserError

_CLIENT_ERRORS = {  # the upstream's own words help: the client's request is at fault
    "unknown-model": (404, "model_not_found"),
    "too-long": (400, "context_length_exceeded"),
    "refused": (400, "upstream_refused"),
    "missing-feature": (400, "upstream_missing_feature"),
}
_UPSTREAM_ERRORS = {
    "access": (502, "the model server refused the key of this gateway: whoever runs it must give another"),
    "unreachable": (502, "the model server cannot be reached"),
    "busy": (503, "the model server takes no more requests for now: try again later"),
    "timeout": (504, "the model server did not reply in time"),
    "server": (502, "the model server failed, after every try"),
    "garbled": (502, "the model server sent what is not a chat completion"),
}


class ApiError(Exception):
    """A request that gets an error object for an answer."""

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
        """The error object."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}

    @property
    def kind(self) -> str:
        """Whose fault it is, as the OpenAI API names it."""
        named = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error"}
        if self.code.startswith("upstream") and self.status >= 500:
            return "upstream_error"
        return named.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")


def to_api_error(error: BaseException, address: str) -> ApiError:
    """What a client is told of an error, whatever it is."""
    if isinstance(error, ApiError):
        return error
    return _caps_error(error, address) if isinstance(error, CapsError) else internal_error()


def _caps_error(error: CapsError, address: str = "") -> ApiError:
    """An error of ours as an error object; the upstream's `address` is not told."""
    if isinstance(error, UserError):
        return ApiError(400, str(error), code="invalid_value", param="caps")
    if not isinstance(error, ModelError):
        return internal_error()
    if error.cause in _CLIENT_ERRORS:
        status, code = _CLIENT_ERRORS[error.cause]
        words = str(error).replace(address, "the model server") if address else str(error)
        return ApiError(status, words, code=code, param="model" if status == 404 else None)
    status, words = _UPSTREAM_ERRORS.get(error.cause, (502, "the model server failed"))
    return ApiError(status, words, code=f"upstream_{error.cause}", retry_after=5 if status == 503 else None)


def internal_error() -> ApiError:
    """What a client is told of a fault of ours."""
    return ApiError(500, "this server failed; its log says more under the run id", code="internal_error")


def invalid_value(param: str, words: str) -> ApiError:
    """A field of a body that cannot be taken as it is."""
    return ApiError(400, f"{param}: {words}", code="invalid_value", param=param)
