"""Simulation of strategies against a simulated or recorded judge: accuracy and cost."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean
from typing import Any

from caps.core.contest import Contest
from caps.core.errors import InputError
from caps.core.play import Strategy
from caps.core.settings import check_settings, setting
from caps.core.text import estimate_tokens
from caps.core.types import Answer, AnswerKind, Ask, Case, Entrant, Level, Pairing, Verdict, shown_size
from caps.costs.closed_form import ViewSizes, v1_infer_tokens
from caps.evidence.entrants import describe
from caps.evidence.profiles import profile_for
from caps.judging.recorded import Found, RecordedJudge, counts_of
from caps.judging.simulated import JudgeModel, SimulatedJudge
from caps.statistics.estimates import wilson
from caps.workers.child_python import process_pool

INSTRUCTION_TOKENS = 250


@dataclass(frozen=True, slots=True)
class LabelledPool:
    """Entrants of a problem with their labels."""

    number: int
    entrants: tuple[Entrant, ...]
    correct: tuple[bool, ...]
    overhead: int
    case: Case | None = None  # where a recorded judge answers

    def tokens(self, ask: Ask) -> int:
        """Tokens of the prompt of an ask."""
        return self.overhead + shown_size({one.id: one for one in self.entrants}, ask)

    @property
    def v1_infer(self) -> float:
        """Tokens that V1-Infer reads."""
        return v1_infer_tokens([entrant.sizes[Level.FULL] for entrant in self.entrants], self.overhead)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolModel:
    """A model of candidate pools: solve rates are Beta distributed, so that some problems are extreme.

    Math: right candidates share one answer, wrong ones join a wrong answer with odds proportional to its
    size. Code: nearly every program is its own cluster.
    """

    n: int = setting(16, "candidates a problem", least=1)
    kind: str = setting("code", "how answers cluster", choices=("code", "math"))
    solve_rate: float = setting(0.4, "mean share of right candidates", least=0.01, most=0.99)
    spread: float = setting(1.5, "concentration of solve rates; small is extreme", least=0.01)
    new_wrong: float = setting(3.0, "math: weight of a new wrong answer against joining one", least=0.01)
    duplicates: float = setting(
        0.03, "code: chance to repeat an earlier program of the same label", least=0, most=1
    )
    partial_tokens: int = setting(250, "tokens of a partial view", least=0)
    full_tokens: int = setting(4000, "tokens of a full view", least=0)
    overhead: int = setting(500, "tokens of a prompt without its views", least=0)

    def __post_init__(self) -> None:
        check_settings(self)

    def pool(self, number: int, seed: int) -> LabelledPool:
        """Generate the pool of one problem; it depends only on its number and the seed."""
        rng = Random(f"pool {seed} {number}")
        rate = rng.betavariate(self.solve_rate * self.spread, (1 - self.solve_rate) * self.spread)
        correct = tuple(rng.random() < rate for _ in range(self.n))
        names: list[str] = []
        for index, right in enumerate(correct):
            names.append(self._name(index, names, correct, rng, right=right))
        sizes = (0, self.partial_tokens, self.full_tokens)
        kind: AnswerKind = "value" if self.kind == "math" else "open"
        entrants = tuple(
            Entrant(i, name, sizes, {"score": 0.0}, signature_kind=kind) for i, name in enumerate(names)
        )
        return LabelledPool(number, entrants, correct, self.overhead)

    def _name(
        self, index: int, names: list[str], correct: tuple[bool, ...], rng: Random, *, right: bool
    ) -> str:
        alike = [name for name, label in zip(names, correct, strict=False) if label == right]
        if self.kind == "math":
            if right:
                return "right"
            new = rng.random() * (self.new_wrong + len(alike)) < self.new_wrong
            return f"wrong {index}" if new or not alike else rng.choice(alike)
        return rng.choice(alike) if alike and rng.random() < self.duplicates else f"program {index}"


def generated_pools(model: PoolModel, count: int, seed: int) -> list[LabelledPool]:
    """Generate `count` pools."""
    return [model.pool(number, seed) for number in range(count)]


def labelled(
    cases: Iterable[Case | InputError], *, n: int | None, whole: bool = False
) -> Iterator[LabelledPool]:
    """Pools of the first `n` candidates of labelled cases; `InputError` for a candidate without a label.

    `whole` pools keep their cases, which a recorded judge needs.
    """
    for number, case in enumerate(cases):
        if isinstance(case, InputError):
            raise case
        labels = [candidate.correct for candidate in case.candidates]
        if any(label is None for label in labels):
            missing = labels.index(None)
            raise InputError(
                f"case {case.id!r}: candidates[{missing}].correct: is missing; a simulation needs labels, "
                "and public tests alone give none"
            )
        pool = replace(case, candidates=case.candidates[:n])
        evidence = describe(pool, profile_for(case.domain), estimate_tokens)
        overhead = INSTRUCTION_TOKENS + estimate_tokens(case.problem.text)
        yield LabelledPool(
            number,
            evidence.entrants,
            tuple(bool(label) for label in labels)[:n],
            overhead,
            pool if whole else None,
        )


LEVELS = (Level.PARTIAL, Level.FULL)
CHUNK = 64


@dataclass(frozen=True, slots=True)
class Task:
    """Settings that a worker process needs besides the pools."""

    strategies: Mapping[str, Strategy]
    judge: JudgeModel | RecordedJudge
    seed: int


@dataclass(slots=True)
class Record:
    """Sums over problems for one strategy; independent of the number of processes."""

    problems: int = 0
    right: int = 0
    mixed: int = 0
    mixed_right: int = 0
    depth: int = 0
    rescued: int = 0
    outcomes: list[bool] = field(default_factory=list)  # of single contests, in order
    calls: dict[str, int] = field(default_factory=lambda: {str(level): 0 for level in LEVELS})
    tokens: dict[str, int] = field(default_factory=lambda: {str(level): 0 for level in LEVELS})
    # Comparisons of a right with a wrong candidate, and how many of them were correct; a tie counts half.
    judged_pairs: dict[str, int] = field(default_factory=lambda: {str(level): 0 for level in LEVELS})
    correct_pairs: dict[str, float] = field(default_factory=lambda: {str(level): 0.0 for level in LEVELS})
    substituted: Counter[str] = field(default_factory=Counter)
    silent: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Record") -> None:
        """Add another record's sums to this one's."""
        for name in ("problems", "right", "mixed", "mixed_right", "depth", "rescued"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.outcomes += other.outcomes
        for name in ("calls", "tokens", "judged_pairs", "correct_pairs"):
            sums = getattr(self, name)
            for level, value in getattr(other, name).items():
                sums[level] += value
        self.substituted.update(other.substituted)
        self.silent.update(other.silent)


def simulate(
    pools: Sequence[LabelledPool],
    task: Task,
    *,
    processes: int = 1,
    report: Callable[[int], object] = abs,
) -> dict[str, Record]:
    """Play every strategy on every pool; `report` is called with the number of pools just finished."""
    chunks = [pools[start : start + CHUNK] for start in range(0, len(pools), CHUNK)]
    totals = {name: Record() for name in task.strategies}
    for chunk, part in zip(chunks, _results(chunks, task, processes), strict=True):
        for name, record in part.items():
            totals[name].add(record)
        report(len(chunk))
    return totals


def summarise(record: Record, reference: Record | None) -> dict[str, Any]:
    """Turn sums into reported figures; shares are of 1, `token_share` is relative to the reference."""
    problems = max(record.problems, 1)
    tokens = sum(record.tokens.values())
    against = sum(reference.tokens.values()) if reference else 0
    return {
        "problems": record.problems,
        "pass_at_1": record.right / problems,
        "pass_at_1_interval": wilson(record.right, record.problems),
        "mixed_problems": record.mixed,
        "mixed_pass_at_1": record.mixed_right / record.mixed if record.mixed else None,
        "mixed_interval": wilson(record.mixed_right, record.mixed) if record.mixed else None,
        "calls": {level: count / problems for level, count in record.calls.items()},
        "tokens": {level: count / problems for level, count in record.tokens.items()},
        "token_share": tokens / against if against else None,
        "depth": record.depth / problems,
        "rescue_rate": record.rescued / problems,
        "pair_accuracy": {
            level: record.correct_pairs[level] / pairs if pairs else None
            for level, pairs in record.judged_pairs.items()
        },
    }


def _results(
    chunks: Sequence[Sequence[LabelledPool]], task: Task, processes: int
) -> Iterator[dict[str, Record]]:
    if processes <= 1:
        yield from (_play_chunk(chunk, task) for chunk in chunks)
        return
    with process_pool(processes) as workers:
        yield from workers.map(_play_chunk, chunks, [task] * len(chunks))


def _play_chunk(chunk: Sequence[LabelledPool], task: Task) -> dict[str, Record]:
    totals = {name: Record() for name in task.strategies}
    for pool in chunk:
        judge = _judge(task, pool)
        for name, strategy in task.strategies.items():
            totals[name].add(_play(pool, strategy, judge, task))
    return totals


def _judge(task: Task, pool: LabelledPool) -> Callable[[Ask], Found]:
    if isinstance(task.judge, JudgeModel):
        judge = SimulatedJudge(task.judge, pool.entrants, pool.correct, seed=task.seed, case=pool.number)
        return lambda ask: Found(judge.answer(ask))
    recorded, case = task.judge, pool.case
    assert case is not None  # noqa: S101
    return lambda ask: recorded.answer(case, ask)


def _play(pool: LabelledPool, strategy: Strategy, judge: Callable[[Ask], Found], task: Task) -> Record:
    name = pool.number if pool.case is None else pool.case.id
    found: list[Found] = []

    def answer_ask(ask: Ask) -> Answer:
        found.append(judge(ask))
        return found[-1].answer

    contest = Contest(strategy, pool.entrants, seed=f"{task.seed}/{name}").play(answer_ask)
    label = {entrant.id: right for entrant, right in zip(pool.entrants, pool.correct, strict=True)}
    right, mixed = label[contest.selection.winner], 0 < sum(pool.correct) < len(pool.correct)
    record = Record(
        problems=1,
        right=int(right),
        outcomes=[right],
        mixed=int(mixed),
        mixed_right=int(mixed and right),
        depth=len(contest.transcript),
        rescued=int(bool(contest.selection.rescued)),
    )
    record.substituted, record.silent = counts_of(found)
    for turn in contest.transcript:
        for ask, answer in zip(turn.round.asks, turn.answers, strict=True):
            level = str(ask.level)
            record.calls[level] += 1
            record.tokens[level] += pool.tokens(ask)
            if isinstance(ask, Pairing) and isinstance(answer, Verdict) and label[ask.a] != label[ask.b]:
                record.judged_pairs[level] += 1
                record.correct_pairs[level] += answer.outcome if label[ask.a] else 1 - answer.outcome
    return record


def view_sizes(pools: Sequence[LabelledPool]) -> ViewSizes:
    """Mean sizes of views and prompts over all candidates of some pools."""
    sizes = [entrant.sizes for pool in pools for entrant in pool.entrants]
    return ViewSizes(
        partial=fmean(size[Level.PARTIAL] for size in sizes),
        full=fmean(size[Level.FULL] for size in sizes),
        overhead=fmean(pool.overhead for pool in pools),
    )
