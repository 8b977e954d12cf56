"""What went wrong with one request, whether asking again may help, and words that say what to do; pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
from caps.models.retries import retry_after
from caps.models.wire import printable

_TRANSIENT = {408, 409, 425, 429}
_STRAINED = {408, 429, 503, 504, 529}
_UNKNOWN_MODEL = re.compile(
    r"model\b.*(not? (exist|found|available)|does ?n.t exist)|(unknown|invalid|not a valid) model",
    re.I | re.S,
)
_TOO_LONG = re.compile(
    r"context.?(length|size|window)|too many (input )?tokens|too long|(reduce|exceeds?) the .*(length|limit)",
    re.I | re.S,
)
_QUOTED = 3000  # characters of what a server said that are looked at
_QUOTA = re.compile(r"insufficient.?(quota|balance|credit)|billing", re.I)


@dataclass(frozen=True, slots=True)
class Fault:
    """One failed request.

    `retry`: asking again may help. `seen`: the server may have seen, and billed, it. `strained`: it asks for
    less pressure. `loading`: it is starting. `renamed`: it wants `max_completion_tokens` for `max_tokens`.
    """

    error: ModelError
    retry: bool = True
    seen: bool = True
    strained: bool = False
    loading: bool = False
    renamed: bool = False
    wait: float | None = None


def unreachable(address: str, reason: str) -> Fault:
    """Nobody took the connection: nothing was sent."""
    return Fault(
        UnreachableError(f"nobody answers at {address} ({reason}): is the server up, is the base URL right?"),
        seen=False,
    )


def broken_off(address: str, reason: str) -> Fault:
    """The connection broke before the whole reply was there."""
    return Fault(BrokenServerError(f"{address} broke off before its reply was complete ({reason})"))


def timed_out(address: str, seconds: float) -> Fault:
    """No reply in time; the server may still be working on it."""
    words = f"no reply from {address} within {seconds:g} s: raise the read timeout, or ask for fewer tokens"
    return Fault(TimedOutError(words), strained=True)


def garbled(address: str, reason: str) -> Fault:
    """A reply came that is none."""
    return Fault(GarbledError(f"{address} sent what is not a chat completion: {reason}"))


def oversized(address: str, limit: int) -> Fault:
    """A reply beyond the limit: the server would send as much again, and may bill it again."""
    words = f"{address} sent a reply of more than {limit:,} bytes, of which the rest was not read: lower "
    return Fault(GarbledError(f"{words}max_tokens, or ask for fewer log-probabilities"), retry=False)


def refused(
    status: int, reply: Any, headers: Mapping[str, str], *, address: str, model: str, now: float
) -> Fault:
    """An error status, or an error object in a reply that claimed to be fine."""
    said, code, param = _said(reply)
    quote = f" (it says: {said})" if said else ""
    told = f"{code} {said}"
    if status == 429 and _QUOTA.search(told):
        status = 402
    if status in _TRANSIENT or status >= 500:
        return _transient(status, told, quote, address=address, wait=retry_after(headers, now))
    renamed = status == 400 and param in {"max_tokens", ""} and "max_completion_tokens" in said
    return Fault(_final(status, told, quote, address=address, model=model), retry=False, renamed=renamed)


def _transient(status: int, told: str, quote: str, *, address: str, wait: float | None) -> Fault:
    strained = status in _STRAINED
    if wait is not None:
        quote += f"; it asks to wait {wait:g} s"
    loading = status == 503 and "loading" in told.lower()
    if loading:
        words = f"{address} is still loading its model{quote}: run again when it is up"
    elif status == 429:
        words = f"{address} takes no more requests for now{quote}: lower the connections, or run again later"
    else:
        words = f"{address} failed with status {status}{quote}: see its log, or run again later"
    error = BusyError(words, wait=wait) if strained else BrokenServerError(words, wait=wait)
    return Fault(error, strained=strained and not loading, loading=loading, wait=wait)


def _final(status: int, told: str, quote: str, *, address: str, model: str) -> ModelError:
    if status in {401, 403}:
        return AccessError(f"{address} refused the API key, status {status}{quote}: give one it accepts")
    if status == 402:
        return AccessError(f"{address} wants to be paid{quote}: top up the account, or use another")
    if status == 413 or _TOO_LONG.search(told):
        return TooLongError(
            f"prompt and max_tokens do not fit the context of {model!r}{quote}: shorten the evidence, lower "
            "max_tokens, or use a model with a longer context"
        )
    if _UNKNOWN_MODEL.search(told):
        return UnknownModelError(f"{address} serves no model {model!r}{quote}")
    if status in {404, 405} or 300 <= status < 400:
        return UnreachableError(
            f"there are no chat completions at {address}, status {status}{quote}: is the base URL right? "
            "It often ends in /v1"
        )
    return RefusedError(
        f"{address} refused the request, status {status}{quote}: change what it names (`extra` sets any "
        "field of the body, and null there leaves one out)"
    )


def _said(reply: Any) -> tuple[str, str, str]:
    """Message, code and parameter of an error in any of its usual shapes; a body without JSON is quoted."""
    if isinstance(reply, bytes):
        reply = reply.decode("utf-8", "replace")
    if isinstance(reply, dict):
        error = reply.get("error", reply)
        if isinstance(error, dict):
            said = error.get("message") or error.get("detail") or ""
            code = f"{_short(error.get('code') or '')} {_short(error.get('type') or '')}".strip()
            return _short(said), code, _short(error.get("param") or "")
        reply = error
    return _short(reply or ""), "", ""


def _short(said: object) -> str:
    """The beginning of what a server said, as it can be printed: it may hold anything, terminal codes too."""
    try:
        words = str(said)
    except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
        return "what cannot be shown"
    words = " ".join(printable(words, _QUOTED).split())
    return words if len(words) <= 300 else words[:300] + " …"
