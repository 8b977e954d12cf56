"""Failed requests: the error for the user, whether a retry may help, and how long to wait."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from random import Random
from typing import Any

import aiohttp

from caps.core.errors import (
    AccessError,
    BrokenServerError,
    BusyError,
    GarbledError,
    ModelError,
    RefusedError,
    TimedOutError,
    TooLongError,
    UnknownModelError,
    UnreachableError,
)
from caps.core.text import shortened_line
from caps.models.wire import OversizedReplyError


@dataclass(frozen=True, slots=True)
class Retries:
    """Retry policy: exponential backoff with full jitter, in seconds.

    The bound of a wait doubles from `first` to `longest`. A call gives up if the server asks to wait for more
    than `max_retry_after`. A server that is loading its model is polled for `loading` seconds, uncounted. A
    call is retried `most` times, or `most_unknown` times at an address that never answered.
    """

    most: int = 5
    first: float = 0.5
    longest: float = 30.0
    max_retry_after: float = 120.0
    loading: float = 300.0
    most_unknown: int = 1

    def bound(self, number: int) -> float:
        """The longest wait before a retry, of which `number` came before."""
        return min(self.longest, self.first * 2.0 ** min(number, 60))


class Attempts:
    """The attempts of one call: after each failure, how long to wait for the next one, if any."""

    LOADING_POLL = 1.0

    def __init__(self, retries: Retries, rng: Random) -> None:
        self._retries, self._rng = retries, rng
        self._failures = 0
        self._loading_since: float | None = None

    def pause(self, *, loading: bool, known: bool, asked: float | None, now: float) -> float | None:
        """Seconds to wait, or None to give up; `known`: the address answered before; `asked`: Retry-After."""
        retries = self._retries
        if loading:
            self._loading_since = now if self._loading_since is None else self._loading_since
            if now - self._loading_since < retries.loading:
                return self.LOADING_POLL if asked is None else min(asked, self.LOADING_POLL)
        self._failures += 1
        if self._failures > (retries.most if known else min(retries.most, retries.most_unknown)):
            return None
        if asked is not None and asked > retries.max_retry_after:
            return None
        jitter = self._rng.uniform(0, retries.bound(self._failures - 1))
        # Jitter on top of the requested wait: otherwise all rejected calls would return at the same time.
        return jitter if asked is None else asked + min(jitter, 1.0)

    def pause_after(self, fault: "Fault", *, known: bool) -> float | None:
        """Seconds to wait after a failed request; None if it is not to be sent again."""
        if not fault.retry:
            return None
        return self.pause(loading=fault.loading, known=known, asked=fault.wait, now=time.monotonic())


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds a server asks to wait: `retry-after-ms`, or `Retry-After` as seconds or as a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("Retry-After")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        date = parsedate_to_datetime(value)
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, OverflowError, TypeError, IndexError):  # not a date
        return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


_TRANSIENT = {408, 409, 425, 429}
_OVERLOADED = {408, 429, 503, 504, 529}
_UNKNOWN_MODEL = re.compile(
    r"model\b.*(not? (exist|found|available)|does ?n.t exist)|(unknown|invalid|not a valid) model",
    re.I | re.S,
)
_TOO_LONG = re.compile(
    r"context.?(length|size|window)|too many (input )?tokens|too long|(reduce|exceeds?) the .*(length|limit)",
    re.I | re.S,
)
_QUOTED = 300  # characters of a server's message
_QUOTA = re.compile(r"insufficient.?(quota|balance|credit)|billing", re.I)


@dataclass(frozen=True, slots=True)
class Fault:
    """One failed request.

    `retry`: a retry may help. `seen`: the server may have received and billed it. `overloaded`: it needs
    fewer requests. `loading`: it is starting. `renamed`: it wants `max_completion_tokens`, not `max_tokens`.
    """

    error: ModelError
    retry: bool = True
    seen: bool = True
    overloaded: bool = False
    loading: bool = False
    renamed: bool = False
    wait: float | None = None


#: What is raised if no whole reply arrives; `no_reply` says why.
NO_REPLY = (aiohttp.ClientError, OSError, TimeoutError, OversizedReplyError)


def no_reply(error: Exception, address: str, seconds: float | None, *, chat: bool = True) -> Fault:
    """Why no whole reply arrived; `seconds` is the read timeout that the user can set."""
    if isinstance(error, OversizedReplyError):
        return oversized(address, error.limit, chat=chat)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return unreachable(address, str(error) or type(error).__name__)
    if not isinstance(error, TimeoutError):
        return broken_off(address, type(error).__name__)
    return broken_off(address, "no reply in time") if seconds is None else timed_out(address, seconds)


def unreachable(address: str, reason: str) -> Fault:
    """No connection was accepted: nothing was sent."""
    return Fault(
        UnreachableError(
            f"no server answers at {address} ({reason}): is the server up, is the base URL right?"
        ),
        seen=False,
    )


def broken_off(address: str, reason: str) -> Fault:
    """The connection closed before the reply was complete."""
    return Fault(
        BrokenServerError(f"{address} closed the connection before its reply was complete ({reason})")
    )


def timed_out(address: str, seconds: float) -> Fault:
    """No reply in time; the server may still be working on it."""
    message = f"no reply from {address} within {seconds:g} s: raise the read timeout, or ask for fewer tokens"
    return Fault(TimedOutError(message), overloaded=True)


def garbled(address: str, reason: str, *, path: str = "") -> Fault:
    """The reply is not a chat completion, or not one that is expected at another path."""
    expected = f"a reply of {_path(path)}" if path else "a chat completion"
    return Fault(GarbledError(f"{address} did not send {expected}: {reason}"))


def oversized(address: str, limit: int, *, chat: bool = True) -> Fault:
    """A reply beyond the limit; a retry would return as much again, and may be billed again."""
    message = f"the reply of {address} has more than {limit:,} bytes; the rest was not read"
    hint = ": lower max_tokens, or ask for fewer log-probabilities" if chat else ""
    return Fault(GarbledError(f"{message}{hint}"), retry=False)


def refused(
    status: int, reply: Any, headers: Mapping[str, str], *, address: str, model: str, now: float,
    path: str = "",
) -> Fault:  # fmt: skip
    """An error status, or an error object in a reply that claimed to be fine; `path` if it is no chat."""
    message, code, param = _parse_error(reply)
    quote = f" (it says: {message})" if message else ""
    details = f"{code} {message}"
    if status == 429 and _QUOTA.search(details):
        status = 402
    if status in _TRANSIENT or not 100 <= status < 500:  # also what is no status of HTTP
        return _transient(status, details, quote, address=address, wait=retry_after(headers, now))
    renamed = status == 400 and param in {"max_tokens", ""} and "max_completion_tokens" in message
    if path and status in {404, 405} and not _UNKNOWN_MODEL.search(details):
        return Fault(
            UnreachableError(
                f"there is no {_path(path)} at {address}, status {status}{quote}: is the base URL right, and "
                "does this server have that API? See --reward-api"
            ),
            retry=False,
        )
    return Fault(_final(status, details, quote, address=address, model=model), retry=False, renamed=renamed)


def _path(path: str) -> str:
    return f"/{path.removeprefix('/')}"


def _transient(status: int, details: str, quote: str, *, address: str, wait: float | None) -> Fault:
    overloaded = status in _OVERLOADED
    if wait is not None:
        quote += f"; it asks to wait {wait:g} s"
    loading = status == 503 and "loading" in details.lower()
    if loading:
        message = f"{address} is still loading its model{quote}: run again when it is up"
    elif status == 429:
        message = (
            f"{address} accepts no more requests for now{quote}: lower max_connections, or run again later"
        )
    else:
        message = f"{address} failed with status {status}{quote}: see its log, or run again later"
    error = BusyError(message, wait=wait) if overloaded else BrokenServerError(message, wait=wait)
    return Fault(error, overloaded=overloaded and not loading, loading=loading, wait=wait)


def _final(status: int, details: str, quote: str, *, address: str, model: str) -> ModelError:
    if status in {401, 403}:
        return AccessError(
            f"{address} refused the API key, status {status}{quote}: set CAPS_API_KEY to a valid key, or "
            "CAPS_JUDGE_API_KEY for a judge on a server of its own"
        )
    if status == 402:
        return AccessError(f"{address} requires payment{quote}: top up the account, or use another one")
    if status == 413 or _TOO_LONG.search(details):
        return TooLongError(
            f"prompt and max_tokens do not fit the context of {model!r}{quote}: shorten the evidence, lower "
            "max_tokens, or use a model with a longer context"
        )
    if _UNKNOWN_MODEL.search(details):
        return UnknownModelError(f"{address} serves no model {model!r}{quote}")
    if status in {404, 405} or 300 <= status < 400:
        return UnreachableError(
            f"there are no chat completions at {address}, status {status}{quote}: is the base URL right? "
            "It often ends in /v1"
        )
    return RefusedError(
        f"{address} refused the request, status {status}{quote}: change the field that it names "
        "(`extra` sets any field of the body; null leaves a field out)"
    )


def _parse_error(reply: Any) -> tuple[str, str, str]:
    """Message, code and parameter of an error in any common format; a body without JSON is the message."""
    if isinstance(reply, bytes):
        reply = reply.decode("utf-8", "replace")
    if isinstance(reply, dict):
        error = reply.get("error", reply)
        if isinstance(error, dict):
            message = error.get("message") or error.get("detail") or ""
            code = f"{_short(error.get('code') or '')} {_short(error.get('type') or '')}".strip()
            return _short(message), code, _short(error.get("param") or "")
        reply = error
    return _short(reply or ""), "", ""


def _short(value: object) -> str:
    """The printable beginning of a server's message, which may contain anything, also terminal codes."""
    try:
        text = str(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
        return "a message that cannot be shown"
    return shortened_line(text, _QUOTED)
