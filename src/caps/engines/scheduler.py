"""The scheduler of a live run: cases being prepared, cases with open asks, cases that are finished."""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from caps.core.errors import CapsError, InputError
from caps.core.types import Case
from caps.engines.base import CaseRun, Outcome
from caps.judging.base import Judge, Ruling

MOST_WAITING = 4096
MOST_LOOKING = 16  # cases being looked into at once; whoever looks bounds its own processes

_Entry = tuple[int, int, int, int, CaseRun]


class Scheduler:
    """Lets cases in as they are needed, hands out what to ask, and lets those go who are done.

    Cases that `looks` names wait until someone has looked into them; the others are opened at once.

    It never lets in so many that the first who is not done would hold up more than `MOST_WAITING`.
    """

    def __init__(
        self,
        source: Iterator[Case | InputError],
        opened: Callable[[int, Case], CaseRun],
        judge: Judge,
        *,
        looks: Callable[[Case], bool],
    ) -> None:
        self._source: Iterator[Case | InputError] | None = source
        self._opened, self._judge, self._looks = opened, judge, looks
        self._arrived: deque[tuple[int, Case]] = deque()  # not looked into yet
        self._looking = 0
        self._ready: list[_Entry] = []
        self._done: list[Outcome] = []
        self._entered = 0
        self._ahead: set[int] = set()  # who left before someone who came earlier
        self._first = 0  # who has not left, or is next to come
        self._shut = False

    @property
    def empty(self) -> bool:
        """Whether everyone has come and gone."""
        return self._source is None and self._first == self._entered

    def admit(self, wanted: int) -> bool:
        """Let a case in if there are fewer than `wanted` asks to choose from; false if not.

        One at a time: making it ready takes a while, and replies to the others should not wait for many.
        """
        if self._source is None or len(self._ready) >= wanted:
            return False
        if self._entered - self._first >= MOST_WAITING or self._looking >= MOST_LOOKING:
            return False
        case = self._read()
        if case is not None:
            self._enter(self._entered, case)
            self._entered += 1
        return case is not None

    def next_arrival(self) -> tuple[int, Case] | None:
        """The case to look into next."""
        return self._arrived.popleft() if self._arrived else None

    def looked_into(self, number: int, case: Case, ready: CaseRun | Exception) -> None:
        """Let a case in that was looked into and prepared; one that could not be fails."""
        self._looking -= 1
        if isinstance(ready, CaseRun):
            self._queue(ready)
            return
        words = str(ready) if isinstance(ready, CapsError) else f"{type(ready).__name__}: {ready}"
        self._done.append(Outcome(number, case.id, failure=words))

    def shut(self) -> None:
        """Have nothing more to ask."""
        self._shut = True

    def next_ask(self) -> tuple[CaseRun, int] | None:
        """The ask to send next."""
        while self._ready and not self._shut:
            *_, place, play = heappop(self._ready)
            if play.outcome.failure is None:
                return play, place
        return None

    def tell(self, play: CaseRun, place: int, ruling: Ruling | Exception) -> None:
        """Pass a ruling on, and queue what the contest asks next; a judge that broke fails the case."""
        if play.outcome.failure is not None:
            return
        if isinstance(ruling, Exception):
            play.outcome.failure = f"{type(ruling).__name__}: {ruling}"
            self._done.append(play.outcome)
        elif play.tell(place, ruling):
            self._queue(play)
        elif following := play.follow():
            self._push(play, following)

    def leave(self) -> list[Outcome]:
        """Those who are done."""
        done, self._done = self._done, []
        self._ahead.update(outcome.number for outcome in done)
        while self._first in self._ahead:
            self._ahead.remove(self._first)
            self._first += 1
        return done

    def _read(self) -> Case | InputError | None:
        """The next case; a source that breaks off ends with the reason as its last."""
        if self._source is None:
            return None
        try:
            case = next(self._source, None)
        except InputError as error:
            case, self._source = error, None
        if case is None:
            self._source = None
        return case

    def _enter(self, number: int, case: Case | InputError) -> None:
        if isinstance(case, InputError):
            self._done.append(Outcome(number, "", failure=str(case)))
        elif self._looks(case):
            self._looking += 1
            self._arrived.append((number, case))
        else:
            self._open(number, case)

    def _open(self, number: int, case: Case) -> None:
        try:
            self._queue(self._opened(number, case))
        except CapsError as error:
            self._done.append(Outcome(number, case.id, failure=str(error)))

    def _queue(self, play: CaseRun) -> None:
        round_ = play.round
        if round_ is None:
            self._done.append(play.outcome)
            return
        self._push(play, play.begin(self._judge))

    def _push(self, play: CaseRun, places: list[int]) -> None:
        round_, depth = play.round, play.depth
        for place in places if round_ is not None else []:
            first = round_.asks[place].entrants[0]  # type: ignore[union-attr]
            # Unique up to the place, so that the heap never compares two plays.
            heappush(self._ready, (-depth, play.outcome.number, first, place, play))
