"""The scheduler of a live run: cases to prepare, asks to send, finished outcomes."""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from caps.core.errors import CapsError, InputError
from caps.core.types import Case
from caps.engines.base import CaseRun, Outcome, unreadable_case
from caps.judging.base import Judge, Ruling

MAX_WAITING = 4096
MAX_PREPARING = 16  # cases prepared at once; finders limit their own processes

_Entry = tuple[int, int, int, int, CaseRun]


class Scheduler:
    """Admits cases on demand, orders their asks and collects finished outcomes.

    A case for which `prepares` is true waits until it was prepared elsewhere; others are opened at once.
    At most `MAX_WAITING` cases are admitted from the first unfinished one on.

    While more cases follow, later rounds go first, so that cases finish. After the last one, earlier rounds
    go first: the case with the most rounds ahead of it would otherwise end the run alone, with calls to
    spare. With `finish_first` later rounds go first to the end.

    A `trial` comes before all that: first rounds go first, so that a judge whose replies cannot be read is
    found out with few calls. It lasts until `end_trial` or the last case.
    """

    def __init__(
        self,
        source: Iterator[Case | InputError],
        open_case: Callable[[int, Case], CaseRun],
        judge: Judge,
        *,
        prepares: Callable[[Case], bool],
        finish_first: bool = False,
        trial: bool = False,
    ) -> None:
        self._source: Iterator[Case | InputError] | None = source
        self._finish_first, self._trial = finish_first, trial
        self._sign = (
            1 if trial else -1
        )  # of a round's depth in the order of the asks: -1 is later rounds first
        self._open_case, self._judge, self._prepares = open_case, judge, prepares
        self._unprepared: deque[tuple[int, Case]] = deque()
        self._preparing = 0
        self._ready: list[_Entry] = []
        self._finished: list[Outcome] = []
        self._admitted = 0
        self._finished_early: set[int] = set()  # numbers above the first unfinished case
        self._first_unfinished = 0
        self._closed = False

    @property
    def empty(self) -> bool:
        """Whether all cases were admitted and handed out."""
        return self._source is None and self._first_unfinished == self._admitted

    def admit(self, wanted: int) -> bool:
        """Admit one case if fewer than `wanted` asks are ready; false otherwise.

        Only one: preparing a case takes a while, and replies to other cases should not wait for several.
        """
        ready = sum(entry[0] == 0 for entry in self._ready) if self._trial else len(self._ready)
        if self._source is None or ready >= wanted:
            return False
        if self._admitted - self._first_unfinished >= MAX_WAITING or self._preparing >= MAX_PREPARING:
            return False
        try:
            case = next(self._source, None)
        except InputError as error:  # a source that breaks off ends with the reason as its last item
            case = error
            self._end_source()
        if case is None:
            self._end_source()
            return False
        self._enter(self._admitted, case)
        self._admitted += 1
        return True

    def next_unprepared(self) -> tuple[int, Case] | None:
        """The case to prepare next."""
        return self._unprepared.popleft() if self._unprepared else None

    def add_prepared(self, number: int, case: Case, result: CaseRun | Exception) -> None:
        """Queue a case that was prepared; a failed preparation fails the case."""
        self._preparing -= 1
        if isinstance(result, CaseRun):
            self._queue(result)
            return
        failure = str(result) if isinstance(result, CapsError) else f"{type(result).__name__}: {result}"
        self._finished.append(Outcome(number, case.id, failure=failure, error=result))

    def end_trial(self) -> None:
        """Let later rounds go first from now on; a trial that is over stays so."""
        if self._trial:
            self._trial = False
            self._reorder(-1)

    def close(self) -> None:
        """Hand out no more asks."""
        self._closed = True

    def next_ask(self) -> tuple[CaseRun, int] | None:
        """The ask to send next."""
        while self._ready and not self._closed:
            *_, index, case_run = heappop(self._ready)
            if case_run.outcome.failure is None:
                return case_run, index
        return None

    def record_ruling(self, case_run: CaseRun, index: int, ruling: Ruling | Exception) -> None:
        """Record a ruling and queue what the contest asks next; an exception fails the case."""
        if case_run.outcome.failure is not None:
            return
        if isinstance(ruling, Exception):
            case_run.outcome.failure = f"{type(ruling).__name__}: {ruling}"
            case_run.outcome.error = ruling
            self._finished.append(case_run.outcome)
        elif case_run.record_ruling(index, ruling):
            self._queue(case_run)
        elif following := case_run.next_asks():
            self._push(case_run, following)

    def take_finished(self) -> list[Outcome]:
        """Hand out the outcomes that finished since the last call."""
        finished, self._finished = self._finished, []
        self._finished_early.update(outcome.number for outcome in finished)
        while self._first_unfinished in self._finished_early:
            self._finished_early.remove(self._first_unfinished)
            self._first_unfinished += 1
        return finished

    def _end_source(self) -> None:
        """Note that no more cases follow, and order the asks that are ready accordingly."""
        self._source, self._trial = None, False
        self._reorder(-1 if self._finish_first else 1)

    def _reorder(self, sign: int) -> None:
        """Order the asks that are ready by rounds: the earlier first, or with -1 the later."""
        if sign != self._sign:
            self._sign = sign
            self._ready = [
                (-depth, number, first, index, run) for depth, number, first, index, run in self._ready
            ]
            heapify(self._ready)

    def _enter(self, number: int, case: Case | InputError) -> None:
        if isinstance(case, InputError):
            self._finished.append(unreadable_case(number, case))
        elif self._prepares(case):
            self._preparing += 1
            self._unprepared.append((number, case))
        else:
            try:
                self._queue(self._open_case(number, case))
            except CapsError as error:
                self._finished.append(Outcome(number, case.id, failure=str(error)))

    def _queue(self, case_run: CaseRun) -> None:
        if case_run.round is None:
            self._finished.append(case_run.outcome)
        else:
            self._push(case_run, case_run.start_round(self._judge))

    def _push(self, case_run: CaseRun, indices: list[int]) -> None:
        for index in indices:
            first = case_run.ask_at(index).entrants[0]
            # Unique up to the index, so that the heap never compares two case runs.
            heappush(
                self._ready, (self._sign * case_run.depth, case_run.outcome.number, first, index, case_run)
            )
