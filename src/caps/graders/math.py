"""Final answers of mathematics against the right one: exactly where that is cheap, else by algebra."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TypeAlias
from weakref import WeakValueDictionary

from caps.core.domains import Resources
from caps.core.errors import InputError, MissingExtraError
from caps.core.types import Candidate, Case
from caps.graders.answer_forms import candidate_answer, settle
from caps.graders.answers import LONGEST, same_answer
from caps.graders.base import Grade
from caps.graders.latex import bare, tidy
from caps.graders.worker_pool import NoReplyError, Workers

RULES = 1
SECONDS = 5.0
MEMORY = 1 << 30
CASE_SECONDS = 30.0  # of algebra on the answers of one case, all its pairs together
CASE_PAIRS = 1_000
KNOWN = 4096  # pairs decided last: a run over a million problems meets many more
_SHOWN = 60
_SIGNS = {"=": True, "/": False}

Cheap: TypeAlias = Sequence[str]
"""For each answer a sign for each earlier one: `=` the same, `/` different, `?` not to be told cheaply."""


@dataclass(slots=True)
class AlgebraBudget:
    """What is left of the algebra that one case may ask for, and until when."""

    seconds: float
    pairs: int
    until: float | None = None

    @property
    def late(self) -> bool:
        """Whether its time has come."""
        return self.until is not None and asyncio.get_running_loop().time() >= self.until

    @property
    def ended(self) -> bool:
        """Whether no further pair may be compared."""
        return self.late or self.seconds <= 0 or self.pairs <= 0

    def spend(self, seconds: float) -> None:
        """Take off the time one pair took."""
        self.seconds -= seconds


class MathGrader:
    """Grades against `answer` of a case: a text, a number, or a list of answers that are all right.

    Without math-verify, what only algebra could tell is undecided, and says what to install.
    """

    def __init__(
        self,
        *,
        workers: int = 2,
        seconds: float = SECONDS,
        memory: int = MEMORY,
        case_seconds: float = CASE_SECONDS,
        case_pairs: int = CASE_PAIRS,
    ) -> None:
        self._seconds, self._case_seconds, self._case_pairs = seconds, case_seconds, case_pairs
        self._library = _installed()
        self._workers = Workers(
            "caps.graders.algebra:serve", (seconds, memory), count=workers, seconds=seconds
        )
        self._known: dict[tuple[str, str], tuple[bool | None, str]] = {}
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    @property
    def version(self) -> str:
        """The rules, the library behind them, and the limit within which it must decide."""
        return f"math-{RULES}/math-verify-{self._library or 'none'}/{self._seconds:g}s"

    async def grade(self, case: Case, candidate: Candidate) -> Grade:
        """Right when the candidate's answer equals any accepted one; wrong without an answer."""
        accepted = accepted_answers(case)
        answer = candidate_answer(candidate)
        if answer is None or not tidy(answer[:LONGEST]):
            return Grade(correct=False, reason="no answer")
        verdicts = [await self._compare(gold, answer) for gold in accepted]
        if any(equal for equal, _ in verdicts):
            return Grade(correct=True)
        compared = f"{_shown(answer)} against {' or '.join(_shown(gold) for gold in accepted)}"
        doubts = [why for equal, why in verdicts if equal is None]
        if doubts:
            return Grade(correct=None, reason="undecided", detail=f"{compared}: {doubts[0]}")
        return Grade(correct=False, reason="different", detail=compared)

    async def equal(self, a: str, b: str) -> bool | None:
        """Whether two answers are the same one; None where that cannot be told within the limit."""
        return (await self._compare(a, b))[0]

    async def classes(
        self, answers: Sequence[str | None], *, known: Cheap | None = None, until: float | None = None
    ) -> list[int | None]:
        """Sort answers into classes: for each the place of the first one equal to it; None for None.

        An answer is compared with the first of each class only, cheaply with all before algebra with any;
        `known` is what `compare_cheaply` said of them. Algebra ends at `until`, a time of the loop's clock,
        and is bounded for all pairs together. What is undecided counts as different.
        """
        found: list[int | None] = []
        firsts: list[tuple[int, str]] = []
        left = AlgebraBudget(self._case_seconds, self._case_pairs, until)
        for place, answer in enumerate(answers):
            home = None if answer is None else await self._home(place, answer, firsts, known, left)
            if answer is not None and home is None:
                firsts.append((place, answer))
                home = place
            found.append(home)
        return found

    async def close(self) -> None:
        """End the workers."""
        await self._workers.close()

    async def _home(
        self,
        own: int,
        answer: str,
        firsts: Sequence[tuple[int, str]],
        known: Cheap | None,
        left: AlgebraBudget,
    ) -> int | None:
        unsure = []
        for place, first in firsts:
            equal = same_answer(answer, first) if known is None else _SIGNS.get(known[own][place])
            if equal:
                return place
            if equal is None:
                unsure.append((place, first))
        for place, first in unsure:
            if left.ended:
                return None
            if (await self._by_algebra(answer, first, left))[0]:
                return place
        return None

    async def _compare(self, a: str, b: str) -> tuple[bool | None, str]:
        cheap = same_answer(a, b)
        return (
            (cheap, "")
            if cheap is not None
            else await self._by_algebra(a, b, AlgebraBudget(self._seconds, 1))
        )

    async def _by_algebra(self, a: str, b: str, left: AlgebraBudget) -> tuple[bool | None, str]:
        """Whether two answers are the same that cannot be told apart cheaply."""
        if max(len(a), len(b)) > LONGEST:
            return None, f"an answer of {max(len(a), len(b)):,} characters is too long to compare"
        if not self._library:
            return None, str(MissingExtraError("math-verify", "bench", "algebra"))
        pair = (min(a, b), max(a, b))
        lock = self._locks.setdefault(pair, asyncio.Lock())  # lives as long as someone waits for it
        async with lock:
            known = self._known.get(pair) or await self._ask(pair, left)
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]
        return known

    async def _ask(self, pair: tuple[str, str], left: AlgebraBudget) -> tuple[bool | None, str]:
        """Ask a worker, for as long as the case may; only what had all of its time is remembered."""
        left.pairs -= 1
        seconds = min(self._seconds, max(0.001, left.seconds))
        try:
            reply = await self._workers.ask(pair, seconds=seconds, until=left.until, took=left.spend)
        except NoReplyError as error:
            known: tuple[bool | None, str] = (None, str(error))
            if seconds < self._seconds or left.late:
                return known
        else:
            known = (reply["equal"], reply.get("why", ""))
        self._known[pair] = known
        return known


def make_grader(resources: Resources) -> MathGrader:  # noqa: ARG001
    """What compares answers by algebra."""
    return MathGrader()


def compare_cheaply(answers: Sequence[str | None]) -> Cheap:
    """Compare each answer with every earlier one that is the first of its kind, as far as that is cheap."""
    known: list[str] = []
    firsts: list[tuple[int, str]] = []
    for own, answer in enumerate(answers):
        signs = ["?"] * own
        if answer is not None:
            for place, first in firsts:
                same = same_answer(answer, first)
                signs[place] = "?" if same is None else "=" if same else "/"
            if "=" not in signs:
                firsts.append((own, answer))
        known.append("".join(signs))
    return known


def accepted_answers(case: Case) -> list[str]:
    """The gold answers of a case, or `InputError` naming the field."""
    given = case.extra.get("answer")
    if given is None:
        raise InputError("answer: is missing; the right answer is wanted, a text, a number or a list of them")
    several = given if isinstance(given, list | tuple) else [given]
    if not several:
        raise InputError("answer: is an empty list; at least one right answer is wanted")
    return [_gold(one) for one in several]


def _gold(given: object) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise InputError(f"answer: must be a text, a number or a list of them, not {type(given).__name__}")
    try:
        gold = settle(given if isinstance(given, str) else repr(given))
    except ValueError:
        raise InputError("answer: has more digits than can be read") from None
    if not bare(tidy(gold[:LONGEST])) or gold in ("inf", "-inf", "nan"):
        raise InputError(f"answer: {_shown(str(given))} cannot be read as an answer")
    if len(gold) > LONGEST:
        raise InputError(
            f"answer: {len(gold):,} characters are too long for one; at most {LONGEST:,} are read"
        )
    return gold


def _shown(answer: str) -> str:
    return repr(answer if len(answer) <= _SHOWN else answer[: _SHOWN - 1] + "…")


def _installed() -> str | None:
    try:
        return version("math-verify")
    except PackageNotFoundError:
        return None
