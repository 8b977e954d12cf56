"""Graders of answers: final answers are compared by exact rules where possible, else by algebra."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TypeAlias
from weakref import WeakValueDictionary

from caps.core.domains import Grade, Resources
from caps.core.errors import InputError, MissingExtraError
from caps.core.text import short_repr
from caps.core.types import BY_CLOCK, Candidate, Case
from caps.evidence.anatomy import final_answer
from caps.evidence.signatures import canonical, general_answer
from caps.grading.answer_forms import candidate_answer, extract_answer
from caps.grading.answers import ALGEBRA, EXACT, MAX_CHARS, Decision, decide, same_answer
from caps.grading.notation import normalize, without_spaces
from caps.workers.pool import ClockError, DeadlineError, NoReplyError, Workers

RULES = 4
SECONDS = 5.0  # of processor time for one pair
MEMORY = 1 << 30
CASE_SECONDS = 30.0  # of processor time for all pairs of one case
CASE_PAIRS = 1_000
CACHE_SIZE = 4096  # most recent pairs: a run over a million problems has many more
EXACT_ONLY = f"compared by exact rules only: {MissingExtraError('math-verify', 'bench', 'algebra')}"
_SHOWN = 60
_SIGNS = {True: "=", False: "/", None: "?"}

Comparisons: TypeAlias = Sequence[str]
"""For each answer one sign per earlier answer: `=` equal, `/` different, `?` undecided by the exact rules."""


@dataclass(slots=True)
class AlgebraBudget:
    """The remaining algebra budget of one case, in processor time and pairs, and its deadline.

    `note` says why a pair is undecided that could be decided elsewhere: on a machine that is less busy, or
    with math-verify.
    """

    seconds: float
    pairs: int
    until: float | None = None
    note: str = ""

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self.until is not None and asyncio.get_running_loop().time() >= self.until

    @property
    def exhausted(self) -> bool:
        """Whether no further pair may be compared."""
        return self.expired or self.seconds <= 0 or self.pairs <= 0


class MathGrader:
    """Grades against `answer` of a case: a text, a number, or a list of accepted answers.

    Without math-verify, pairs that need algebra are undecided, and the reason says what to install.
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
            "caps.grading.algebra:serve", (seconds, memory), count=workers, seconds=seconds
        )
        self._decided: dict[tuple[str, str], Decision] = {}
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    @property
    def version(self) -> str:
        """Version of the rules and of math-verify, and the time limit."""
        return f"math-{RULES}/math-verify-{self._library or 'none'}/{self._seconds:g}s"

    async def grade(self, case: Case, candidate: Candidate) -> Grade:
        """Correct if the candidate's answer equals an accepted one; wrong without an answer."""
        accepted = accepted_answers(case)
        answer = candidate_answer(candidate)
        if answer is None or not normalize(answer[:MAX_CHARS]):
            return Grade(correct=False, reason="no answer")
        decisions = [await self.decide(gold, answer) for gold in accepted]
        for gold, decision in zip(accepted, decisions, strict=True):
            if decision.equal:
                compared = f"{short_repr(answer, _SHOWN)} against {short_repr(gold, _SHOWN)}"
                return Grade(correct=True, detail=compared, decided_by=decision.layer)
        listed = " or ".join(short_repr(gold, _SHOWN) for gold in accepted)
        compared = f"{short_repr(answer, _SHOWN)} against {listed}"
        doubts = [decision.why for decision in decisions if decision.equal is None]
        if doubts:
            return Grade(correct=None, reason="undecided", detail=f"{compared}: {doubts[0]}")
        layer = ALGEBRA if any(decision.layer == ALGEBRA for decision in decisions) else EXACT
        return Grade(correct=False, reason="different", detail=compared, decided_by=layer)

    async def equal(self, a: str, b: str) -> bool | None:
        """Whether two answers are equal; None if undecided within the time limit."""
        return (await self.decide(a, b)).equal

    async def decide(self, a: str, b: str) -> Decision:
        """Whether two answers are equal, and the layer that decided it."""
        exact = decide(a, b)
        if exact.equal is not None:
            return exact
        return await self._by_algebra(a, b, AlgebraBudget(self._seconds, 1))

    def case_budget(self, until: float | None = None) -> AlgebraBudget:
        """The algebra budget of a case that ends at `until` on the loop's clock."""
        return AlgebraBudget(self._case_seconds, self._case_pairs, until)

    async def classes(
        self,
        answers: Sequence[str | None],
        *,
        comparisons: Comparisons | None = None,
        budget: AlgebraBudget | None = None,
    ) -> list[int | None]:
        """Group equal answers: for each answer the index of the first one equal to it; None for None.

        `comparisons` is the result of `compare_exactly`; algebra compares what it left open, with one budget
        for all pairs. An undecided pair counts as different.
        """
        classes: list[int | None] = []
        budget = budget or self.case_budget()
        for place, signs in enumerate(comparisons or compare_exactly(answers)):
            if answers[place] is None:
                classes.append(None)
            elif "=" in signs:
                classes.append(classes[signs.index("=")])
            else:
                undecided = [first for first, sign in enumerate(signs) if sign == "?"]
                firsts = [first for first in undecided if classes[first] == first]
                classes.append(await self._find_class(answers, place, firsts, budget))
        return classes

    async def close(self) -> None:
        """Stop the workers."""
        await self._workers.close()

    async def _find_class(
        self, answers: Sequence[str | None], place: int, firsts: Sequence[int], budget: AlgebraBudget
    ) -> int:
        """The first of the class that algebra puts an answer into: one of `firsts`, or the answer itself."""
        for first in firsts:
            if budget.exhausted:
                break
            if (await self._by_algebra(answers[place] or "", answers[first] or "", budget)).equal:
                return first
        return place

    async def _by_algebra(self, a: str, b: str, budget: AlgebraBudget) -> Decision:
        """Compare two answers that the exact rules cannot decide."""
        if max(len(a), len(b)) > MAX_CHARS:
            return Decision(
                None, why=f"an answer of {max(len(a), len(b)):,} characters is too long to compare"
            )
        if not self._library:
            budget.note = EXACT_ONLY
            return Decision(None, why=EXACT_ONLY)
        pair = (min(a, b), max(a, b))
        lock = self._locks.setdefault(pair, asyncio.Lock())  # freed when no task uses it
        async with lock:
            decision = self._decided.get(pair) or await self._ask_worker(pair, budget)
        if len(self._decided) > CACHE_SIZE:
            del self._decided[next(iter(self._decided))]
        return decision

    async def _ask_worker(self, pair: tuple[str, str], budget: AlgebraBudget) -> Decision:
        """Ask a worker within the budget of the case; what the clock ended is asked again next time."""
        budget.pairs -= 1
        try:
            reply = await self._workers.ask(pair, until=budget.until)
        except NoReplyError as error:
            budget.seconds -= self._seconds
            if isinstance(error, ClockError):
                budget.note = BY_CLOCK
            decision = Decision(None, why=str(error))
            if isinstance(error, ClockError | DeadlineError):
                return decision
        else:
            budget.seconds -= reply.pop("seconds")
            decision = Decision(**reply)
        self._decided[pair] = decision
        return decision


def make_grader(resources: Resources) -> MathGrader:  # noqa: ARG001
    """Make the grader that compares answers by value."""
    return MathGrader()


def compare_exactly(answers: Sequence[str | None]) -> Comparisons:
    """Compare each answer with the first of every earlier class, by the exact rules only."""
    comparisons: list[str] = []
    firsts: list[tuple[int, str]] = []
    for place, answer in enumerate(answers):
        signs = ["?"] * place
        if answer is not None:
            for index, first in firsts:
                signs[index] = _SIGNS[same_answer(answer, first)]
            if "=" not in signs:
                firsts.append((place, answer))
        comparisons.append("".join(signs))
    return comparisons


def accepted_answers(case: Case) -> list[str]:
    """The accepted answers of a case, or `InputError` naming the field."""
    value = case.extra.get("answer")
    if value is None:
        raise InputError("answer: is missing; give the correct answer: a text, a number or a list of them")
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise InputError("answer: is an empty list; give at least one correct answer")
    return [_gold(gold) for gold in values]


def _gold(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"answer: must be a text, a number or a list of them, not {type(value).__name__}")
    try:
        gold = extract_answer(value if isinstance(value, str) else repr(value))
    except ValueError:
        raise InputError("answer: has more digits than can be read") from None
    if not without_spaces(normalize(gold[:MAX_CHARS])) or gold in ("inf", "-inf", "nan"):
        raise InputError(f"answer: {short_repr(str(value), _SHOWN)} cannot be read as an answer")
    if len(gold) > MAX_CHARS:
        raise InputError(
            f"answer: {len(gold):,} characters are too long for one; at most {MAX_CHARS:,} are read"
        )
    return gold


def _installed() -> str | None:
    try:
        return version("math-verify")
    except PackageNotFoundError:
        return None


# --- Replies in free text: JSON is compared as a whole, other replies by the answer they state ---


@dataclass(frozen=True, slots=True)
class ReplyGrader:
    """Grades against `answer` of a case: a JSON object, or what `MathGrader` takes.

    A reply that neither equals the answer nor announces its own is undecided: prose may be right in other
    words.
    """

    answers: MathGrader = field(default_factory=MathGrader)

    @property
    def version(self) -> str:
        """The version of the rules, here and for single answers."""
        return f"replies-1 {self.answers.version}"

    async def grade(self, case: Case, candidate: Candidate) -> Grade:
        """Correct if the JSON of the reply, or the answer it states, equals that of the case."""
        answer = case.extra.get("answer")
        expected = answer if isinstance(answer, str) else json.dumps(answer)
        if expected.lstrip().startswith("{") and canonical(expected) is not None:
            is_equal = general_answer(candidate) == general_answer(Candidate(expected))
            return Grade(correct=is_equal, reason="" if is_equal else "different", decided_by="exact")
        grade = await self.answers.grade(case, candidate)
        if grade.correct is False and final_answer(candidate) is None:
            return Grade(correct=None, reason="no answer stated", detail=grade.detail)
        return grade

    async def close(self) -> None:
        """Stop the processes that compare answers."""
        await self.answers.close()


def make_reply_grader(resources: Resources) -> ReplyGrader:  # noqa: ARG001
    """Make the grader of replies."""
    return ReplyGrader()
