"""Authentication: API keys, host names, and requests whose framing cannot be trusted.

Invariants:

* A key is compared in constant time, read from the Authorization header only (of clients of Anthropic's API
  also from `x-api-key`), and never written anywhere.
* A request with two lengths is rejected and its connection closed, before its headers are used for anything.
"""

import hmac
from collections.abc import Sequence
from hashlib import sha256

from caps.server.errors import ApiError
from caps.server.http import ASGIApp, Headers, Receive, Scope, Send, is_anthropic
from caps.server.middleware import RequestContext

HEALTH_PATH, LIVE_PATH, READY_PATH = "/health", "/live", "/ready"
OPEN_PATHS = (HEALTH_PATH, LIVE_PATH, READY_PATH, "/", "/docs")  # the pages hold no data


class AuthMiddleware:
    """Rejects requests without a known key. Without keys, rejects requests for a host name not in `hosts`.

    `OPEN_PATHS` are open to all; their handlers show clients without a key the status only.
    """

    def __init__(
        self, app: ASGIApp, *, keys: Sequence[str] = (), hosts: frozenset[str] = frozenset()
    ) -> None:
        self.app, self.hosts = app, hosts
        self._digests = [sha256(key.encode()).digest() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then pass it on."""
        if scope["type"] == "http":
            self._check(scope)
        await self.app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        _check_framing(scope, headers)
        context = RequestContext.of(scope)
        anthropic = is_anthropic(scope)
        x_api_key = f"Bearer {headers['x-api-key']}" if anthropic and "x-api-key" in headers else ""
        context.authenticated = self._is_known(headers.get("authorization", "")) or self._is_known(x_api_key)
        if not context.authenticated and scope["path"] not in OPEN_PATHS:
            way = "x-api-key: <key>" if anthropic else "Authorization: Bearer <key>"
            message = f"the API key is missing or wrong: send {way}"
            raise ApiError(401, message, code="invalid_api_key")
        # A web page can make a browser send requests to this machine, but not under this machine's own name.
        if self.hosts and _host_name(headers.get("host", "")) not in self.hosts:
            raise ApiError(
                403,
                "the Host header names another server: use localhost or the address that caps serve prints",
                code="wrong_host",
            )

    def _is_known(self, authorization: str) -> bool:
        scheme, _, key = authorization.partition(" ")
        digest = sha256(
            key.strip().encode()
        ).digest()  # digests have one length, so the time reveals no length
        matches = [hmac.compare_digest(digest, expected) for expected in self._digests]
        return not self._digests or (any(matches) and scheme.lower() == "bearer")


def _check_framing(scope: Scope, headers: Headers) -> None:
    """Reject a body whose end a proxy might see elsewhere: a request could be smuggled in behind it."""
    chunked, sized = "transfer-encoding" in headers, "content-length" in headers
    if chunked and (sized or scope.get("http_version") == "1.0"):
        message = (
            "the length of the body is ambiguous: send Content-Length or, in HTTP/1.1, Transfer-Encoding"
        )
        raise ApiError(400, message, code="ambiguous_length", close_connection=True)


def _host_name(host: str) -> str:
    """The Host header without the port."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return name.lower()
