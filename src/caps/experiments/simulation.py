"""Strategies against the synthetic judge: how often they are right, and what they ask for it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from statistics import fmean
from typing import Any

from caps.core.contest import Contest
from caps.core.play import Strategy
from caps.core.types import Answer, Ask, Level, Pairing, Verdict
from caps.costs.closed_form import ViewSizes
from caps.diagnostics.intervals import wilson
from caps.experiments.pools import LabelledPool
from caps.judges.simulated import JudgeModel, SimulatedJudge

LEVELS = (Level.PARTIAL, Level.FULL)
CHUNK = 64


@dataclass(frozen=True, slots=True)
class Task:
    """All that a worker needs to know beside the pools."""

    strategies: Mapping[str, Strategy]
    judge: JudgeModel
    seed: int


@dataclass(slots=True)
class Record:
    """Sums over problems of one strategy; whole numbers and halves, so they add up alike in any order."""

    problems: int = 0
    right: int = 0
    mixed: int = 0
    mixed_right: int = 0
    depth: int = 0
    rescued: int = 0
    calls: dict[str, int] = field(default_factory=lambda: {str(level): 0 for level in LEVELS})
    tokens: dict[str, int] = field(default_factory=lambda: {str(level): 0 for level in LEVELS})
    told_apart: dict[str, int] = field(default_factory=lambda: {str(level): 0 for level in LEVELS})
    told_right: dict[str, float] = field(default_factory=lambda: {str(level): 0.0 for level in LEVELS})

    def add(self, other: "Record") -> None:
        """Add another record's sums to this one's."""
        for name in ("problems", "right", "mixed", "mixed_right", "depth", "rescued"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("calls", "tokens", "told_apart", "told_right"):
            sums = getattr(self, name)
            for level, value in getattr(other, name).items():
                sums[level] += value


def simulate(
    pools: Sequence[LabelledPool],
    task: Task,
    *,
    processes: int = 1,
    report: Callable[[int], object] = abs,
) -> dict[str, Record]:
    """Play every strategy on every pool; `report` hears how many more pools are done."""
    chunks = [pools[start : start + CHUNK] for start in range(0, len(pools), CHUNK)]
    totals = {name: Record() for name in task.strategies}
    for chunk, part in zip(chunks, _results(chunks, task, processes), strict=True):
        for name, record in part.items():
            totals[name].add(record)
        report(len(chunk))
    return totals


def summarise(record: Record, reference: Record | None) -> dict[str, Any]:
    """Turn sums into the figures people read; shares are of 1, `token_share` is against the reference."""
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
            level: record.told_right[level] / pairs if pairs else None
            for level, pairs in record.told_apart.items()
        },
    }


def _results(
    chunks: Sequence[Sequence[LabelledPool]], task: Task, processes: int
) -> Iterator[dict[str, Record]]:
    if processes <= 1:
        yield from (_play_chunk(chunk, task) for chunk in chunks)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as workers:
        yield from workers.map(_play_chunk, chunks, [task] * len(chunks))


def _play_chunk(chunk: Sequence[LabelledPool], task: Task) -> dict[str, Record]:
    totals = {name: Record() for name in task.strategies}
    for pool in chunk:
        judge = SimulatedJudge(task.judge, pool.entrants, pool.correct, seed=task.seed, case=pool.number)
        for name, strategy in task.strategies.items():
            totals[name].add(_play(pool, strategy, judge, task))
    return totals


def _play(pool: LabelledPool, strategy: Strategy, judge: SimulatedJudge, task: Task) -> Record:
    contest = Contest(strategy, pool.entrants, seed=f"{task.seed}/{pool.number}")
    while round_ := contest.pending:
        contest.answer([judge.answer(ask) for ask in round_.asks])
    label = {entrant.id: right for entrant, right in zip(pool.entrants, pool.correct, strict=True)}
    sizes = {entrant.id: entrant.sizes for entrant in pool.entrants}
    right, mixed = label[contest.selection.winner], 0 < sum(pool.correct) < len(pool.correct)
    record = Record(
        problems=1,
        right=int(right),
        mixed=int(mixed),
        mixed_right=int(mixed and right),
        depth=len(contest.transcript),
        rescued=int(bool(contest.selection.rescued)),
    )
    for turn in contest.transcript:
        for ask, answer in zip(turn.round.asks, turn.answers, strict=True):
            level = str(ask.level)
            record.calls[level] += 1
            record.tokens[level] += pool.overhead + sum(sizes[one][ask.level] for one in ask.entrants)
            _tell_apart(record, ask, answer, label)
    return record


def _tell_apart(record: Record, ask: Ask, answer: Answer, label: Mapping[int, bool]) -> None:
    """Count a game between a right and a wrong candidate; a tie is half right."""
    if isinstance(ask, Pairing) and isinstance(answer, Verdict) and label[ask.a] != label[ask.b]:
        level = str(ask.level)
        record.told_apart[level] += 1
        record.told_right[level] += answer.outcome if label[ask.a] else 1 - answer.outcome


def view_sizes(pools: Sequence[LabelledPool]) -> ViewSizes:
    """Mean sizes of views and prompts over all candidates of these pools."""
    sizes = [entrant.sizes for pool in pools for entrant in pool.entrants]
    return ViewSizes(
        partial=fmean(size[Level.PARTIAL] for size in sizes),
        full=fmean(size[Level.FULL] for size in sizes),
        overhead=fmean(pool.overhead for pool in pools),
    )
