"""One server of a fleet: what it has to do, and whether it may be given more.

It is up; or it rests, because it asked for it, and is given nothing while what it has goes on; or it is out,
until a look at it goes well.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from caps.core.errors import (
    AccessError,
    BusyError,
    ModelError,
    RefusedError,
    TooLongError,
    UnknownModelError,
    UnreachableError,
)

if TYPE_CHECKING:
    from caps.models.http import HttpModel

GONE = (UnreachableError, AccessError, UnknownModelError)
OUR_FAULT = (TooLongError, RefusedError)


@dataclass(frozen=True, slots=True)
class Care:
    """How a server that fails is treated.

    So many failures in a row (`streak`) take it out; one that cannot be reached is out at once. It is looked
    at after `first` seconds, then after pauses that double up to `longest`, each look of at most `look`
    seconds; once back it has at most `trial` calls until one went well. A busy one rests as long as it asks,
    or from `rest` seconds on, doubling up to `longest`; who asks for more than `obey` seconds is out so long.
    """

    streak: int = 3
    trial: int = 4
    first: float = 1.0
    longest: float = 60.0
    look: float = 5.0
    rest: float = 0.5
    obey: float = 120.0


@dataclass(frozen=True, slots=True)
class Record:
    """What became of a server in a run; `problem` is why it is out, or was last."""

    address: str
    weight: float
    calls: int
    failed: int
    outs: int
    seconds_out: float
    out: bool
    problem: str


class Server:
    """A model at its address with its load and health; it is told what happens, and when."""

    def __init__(self, model: "HttpModel", weight: float, care: Care, *, lines_up: bool) -> None:
        self.model, self.weight = model, weight
        self.load = 0
        self.known = False  # whether it ever answered
        self.error: ModelError | None = None
        self._care, self._lines_up = care, lines_up
        self._calls = self._failed = self._streak = self._outs = self._rests = self._looks = 0
        self._seconds_out = 0.0
        self._out_since: float | None = None
        self._rests_until = self._asked = 0.0
        self._on_trial = False

    @property
    def out(self) -> bool:
        """Whether it is given nothing until a look at it goes well."""
        return self._out_since is not None

    @property
    def limit(self) -> int:
        """How many calls it may have now; none while it is out."""
        if self.out:
            return 0
        most = self.model.connections
        return min(most, self._care.trial) if self._on_trial else most

    @property
    def pause(self) -> float:
        """Seconds until the next look at it."""
        own = min(self._care.longest, self._care.first * 2.0 ** min(self._looks, 60))
        return max(own, self._asked)

    def awake(self, now: float) -> bool:
        """Whether it takes calls at all."""
        return not self.out and now >= self._rests_until

    def open(self, now: float) -> bool:
        """Whether it can begin with one more call at once."""
        return self.awake(now) and self.load < self.limit

    def lines_up(self, now: float) -> bool:
        """Whether one call may wait at its gate: a gate that finds its own limit grows only if some wait."""
        return self._lines_up and not self._on_trial and self.awake(now) and self.load == self.limit

    def served(self) -> None:
        """A call went well."""
        self._calls += 1
        self._streak = self._rests = self._looks = 0
        self._on_trial = False
        self.known = True

    def failed(self, error: ModelError, now: float) -> float | None:
        """A call failed: seconds it rests now, if it does; it may be `out` after this."""
        if isinstance(error, OUR_FAULT):
            self.known = True
            return None
        self._failed += 1
        self.known = self.known or error.attempts > 0
        if self.out:
            return None  # others told so before
        self.error = error
        if isinstance(error, BusyError):
            return self._rest(error.wait, now)
        self._streak += 1
        if isinstance(error, GONE) or self._on_trial or self._streak >= self._care.streak:
            self._leave(now)
        return None

    def missed(self) -> None:
        """A look at it went wrong."""
        self._looks += 1

    def returned(self, now: float) -> float:
        """A look at it went well: it is up, on trial; the seconds it was out."""
        away = 0.0 if self._out_since is None else now - self._out_since
        self._seconds_out += away
        self._out_since = None
        self._streak, self._asked, self._on_trial = 0, 0.0, True
        self._looks += 1  # the next pause is longer, unless a call goes well
        return away

    def record(self, now: float) -> Record:
        """What became of it so far."""
        since = 0.0 if self._out_since is None else now - self._out_since
        problem = str(self.error) if self.error is not None and self._outs else ""
        return Record(
            self.model.address, self.weight, self._calls, self._failed, self._outs,
            self._seconds_out + since, self.out, problem,
        )  # fmt: skip

    def _rest(self, asked: float | None, now: float) -> float | None:
        if asked is not None and asked > self._care.obey:
            self._asked = asked
            self._leave(now)
            return None
        fresh = now >= self._rests_until  # of many that were sent away at once, one speaks for all
        self._rests += fresh
        own = min(self._care.longest, self._care.rest * 2.0 ** min(self._rests - 1, 60))
        until = now + (own if asked is None else asked)
        if not fresh and (asked is None or until <= self._rests_until):
            return None
        self._rests_until = until
        return until - now

    def _leave(self, now: float) -> None:
        self._out_since = now
        self._outs += 1
