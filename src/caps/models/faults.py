"""What went wrong with a request, whether a retry may help, and what to tell the user."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from random import Random
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
from caps.models.wire import printable

# How long to wait before asking again; pure.


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how patiently a failed call is tried again.

    Waits are drawn with full jitter below a bound that doubles from `first` to `longest`. A server that asks
    for more than `obey` seconds is not waited for. One that says it is loading is polled for `loading`
    seconds, uncounted. An address that never answered is tried `strangers` times more, not `most`.
    """

    most: int = 5
    first: float = 0.5
    longest: float = 30.0
    obey: float = 120.0
    loading: float = 300.0
    strangers: int = 1


class Attempts:
    """The tries of one call: after each failure, how long to wait for the next, or that it is the last."""

    LOADING_POLL = 1.0

    def __init__(self, retries: Retries, rng: Random) -> None:
        self._retries, self._rng = retries, rng
        self._failures = 0
        self._loading_since: float | None = None

    def pause(self, *, loading: bool, known: bool, asked: float | None, now: float) -> float | None:
        """Seconds to wait, or None to give up; `known`: the address answered before, `asked`: its wish."""
        retries = self._retries
        if loading:
            self._loading_since = now if self._loading_since is None else self._loading_since
            if now - self._loading_since < retries.loading:
                return self.LOADING_POLL if asked is None else min(asked, self.LOADING_POLL)
        self._failures += 1
        if self._failures > (retries.most if known else min(retries.most, retries.strangers)):
            return None
        if asked is not None and asked > retries.obey:
            return None
        bound = min(retries.longest, retries.first * 2.0 ** min(self._failures - 1, 60))
        jitter = self._rng.uniform(0, bound)
        # What the server asks for, and a little: all who were sent away would else come back at once.
        return jitter if asked is None else asked + min(jitter, 1.0)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds a server asks to wait: `retry-after-ms`, or `Retry-After` as seconds or as a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    word = headers.get("Retry-After")
    seconds = _number(word)
    if seconds is not None or word is None:
        return seconds
    try:
        date = parsedate_to_datetime(word)
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, OverflowError, TypeError, IndexError):  # of what is no date
        return None


def _number(word: str | None) -> float | None:
    try:
        value = float(word) if word is not None else -1.0
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


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


# Requests of batches that failed: how often, for which cause, and which of them are given up.
#
# * Refused for good (too long for the context): asking again would not help, so it is given up at once.
# * Failed on the way (a server's error, garbage): it goes into the next file, at most `tries` times in all.
# * Never run (expired, cancelled), or refused for the account or the model: not its fault, not counted.


EVERYONE = (AccessError, UnknownModelError)  # what would fail every other request too


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed item: its request, an id of its own, and why; if it `counts` as a try, if it is `final`."""

    key: str
    item: str
    cause: str
    said: str
    counts: bool
    final: bool

    @classmethod
    def of(cls, key: str, item: str, fault: Fault) -> "Failure":
        """What a fault means for the request."""
        excused = not fault.seen or fault.renamed or isinstance(fault.error, EVERYONE)
        return cls(key, item, fault.error.cause, str(fault.error), not excused, not (excused or fault.retry))


class Failures:
    """All failures of a run; the same item told twice counts once."""

    def __init__(self, tries: int, known: Iterable[Failure] = ()) -> None:
        self._tries = tries
        self._items: dict[str, dict[str, Failure]] = {}
        for failure in known:
            self.add(failure)

    def add(self, failure: Failure) -> bool:
        """Take note of a failure; false where it is known."""
        items = self._items.setdefault(failure.key, {})
        new = failure.item not in items
        items.setdefault(failure.item, failure)
        return new

    def returned(self, key: str) -> int:
        """How many failed items of a request have come back."""
        return len(self._items.get(key, ()))

    def given_up(self, key: str) -> ModelError | None:
        """Why a request is not asked any more, if it is not."""
        counted = [one for one in self._items.get(key, {}).values() if one.counts]
        if not counted or not (counted[-1].final or len(counted) >= self._tries):
            return None
        error = ModelError(counted[-1].said, attempts=len(counted))
        error.cause = counted[-1].cause
        return error
