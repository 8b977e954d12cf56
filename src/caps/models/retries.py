"""How long to wait before asking again; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from random import Random


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


class Tries:
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
