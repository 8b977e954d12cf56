"""Playing contests on labelled pools and measuring them; every study, live or simulated, does so here."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from caps.core.contest import Contest
from caps.core.play import Strategy
from caps.core.standings import EPSILON
from caps.core.text import CHARACTERS_PER_TOKEN
from caps.core.types import Answer, Ask, Entrant, Level, Pairing, Selection, Unanswered, Verdict
from caps.judging.simulated import JudgeModel, SimulatedJudge
from caps.strategies.caps import Caps
from caps.strategies.dedup import clusters
from caps.studies.results import Result, Unit, digest
from caps.studies.simulation import LabelledPool
from caps.workers.child_python import map_in_processes

LEVELS = (Level.PARTIAL, Level.FULL)
CHUNK = 32  # pools of a task
WORTH_PROCESSES = 1500  # contests; with fewer, starting a second process takes longer than it saves


@dataclass(frozen=True, slots=True)
class Step:
    """A method with a seed, and the digest of everything but the case that its results depend on."""

    method: str
    strategy: Strategy
    seed: int
    made_of: str = ""

    def made_of_case(self, case: str | None) -> str:
        """The digest of a result, given that of its case; generated cases need none."""
        return self.made_of if case is None else digest(self.made_of, case)

    def unit(self, name: str, case: str | None) -> Unit:
        """The key of a result, given the name and the digest of its case."""
        return self.method, self.seed, name, self.made_of_case(case)


class AnsweredAsk(NamedTuple):
    """An ask, its answer, and its prompt tokens in all attempts and in the first."""

    ask: Ask
    answer: Answer
    tokens: float
    first: float


class Played(NamedTuple):
    """A finished contest: its choice, what was asked, in how many rounds, and how much of it in the first."""

    selection: Selection
    answered: Sequence[AnsweredAsk]
    rounds: int
    first_round: int


def play_contest(
    strategy: Strategy,
    entrants: Sequence[Entrant],
    answer: Callable[[Ask], Answer],
    tokens_of: Callable[[Ask], float],
    *,
    seed: str,
) -> Played:
    """Play a contest against a judge that answers at once."""
    contest = Contest(strategy, entrants, seed=seed).play(answer)
    answered = []
    for turn in contest.transcript:
        for ask, reply in zip(turn.round.asks, turn.answers, strict=True):
            tokens = tokens_of(ask)
            answered.append(AnsweredAsk(ask, reply, tokens, tokens))
    first_round = len(contest.transcript[0].round.asks) if contest.transcript else 0
    return Played(contest.selection, answered, len(contest.transcript), first_round)


# Simulated contests, in several processes if worthwhile


@dataclass(frozen=True, slots=True)
class Task:
    """Some pools of a suite, the steps to play on them, and the judge; its seed is the same for every step.

    Like a model at temperature 0, the judge answers alike whatever the seed of a step.
    """

    pools: tuple[LabelledPool, ...]
    steps: tuple[Step, ...]
    judge: JudgeModel
    seed: int
    suite: str = ""


def play_task(task: Task) -> tuple[Task, list[Result]]:
    """Play every step on every pool; the results depend only on the task."""
    results = []
    for pool in task.pools:
        judge = SimulatedJudge(task.judge, pool.entrants, pool.correct, seed=task.seed, case=pool.number)
        for step in task.steps:
            seed = f"{step.seed}/{pool.name}"
            played = play_contest(step.strategy, pool.entrants, judge.answer, pool.tokens, seed=seed)
            result = measure(step, pool, played)
            results.append(replace(result, v1_characters=CHARACTERS_PER_TOKEN * pool.v1_infer))
    return task, results


def simulate(
    pools: Sequence[LabelledPool],
    strategies: Mapping[str, Strategy],
    judge: JudgeModel,
    *,
    seed: int,
    processes: int = 1,
    report: Callable[[int], object] = abs,
) -> dict[str, list[Result]]:
    """Play every strategy on every pool; `report` is called with the number of pools just finished."""
    steps = tuple(Step(name, strategy, seed) for name, strategy in strategies.items())
    tasks = (Task(chunk, steps, judge, seed) for chunk in chunks_of(pools))
    results: dict[str, list[Result]] = {name: [] for name in strategies}
    for task, played in map_in_processes(play_task, tasks, processes=processes):
        for result in played:
            results[result.method].append(result)
        report(len(task.pools))
    return results


def chunks_of(pools: Sequence[LabelledPool]) -> Iterator[tuple[LabelledPool, ...]]:
    """Pools in the portions that a worker process gets."""
    for start in range(0, len(pools), CHUNK):
        yield tuple(pools[start : start + CHUNK])


# Measurement of a finished contest


def measure(step: Step, pool: LabelledPool, played: Played, *, malformed: int = 0) -> Result:
    """Measure a selection."""
    selection, answered = played.selection, played.answered
    label = {entrant.id: right for entrant, right in zip(pool.entrants, pool.correct, strict=True)}
    by_level = [[item for item in answered if item.ask.level == level] for level in LEVELS]
    games = [[item for item in items if isinstance(item.ask, Pairing)] for items in by_level]
    outcomes = [_outcomes(items, label) for items in games]
    grades = dict(zip(label, pool.grades, strict=True)) if pool.grades else {}
    return Result(
        method=step.method,
        seed=step.seed,
        case=pool.name,
        made_of=step.made_of_case(pool.digest),
        n=len(pool.entrants),
        rights=sum(pool.correct),
        first=pool.correct[0],
        clusters=len(clusters(pool.entrants)),
        winner=selection.winner,
        right=label[selection.winner],
        rescued=len(selection.rescued),
        depth=played.rounds,
        calls=(len(by_level[0]), len(by_level[1])),
        tokens=_sums([item.tokens for item in items] for items in by_level),
        pairs=_sums([item.first > 0 for item in items] for items in games),
        pair_tokens=_sums([item.first for item in items] for items in games),
        apart=(len(outcomes[0]), len(outcomes[1])),
        apart_right=(sum(outcomes[0]), sum(outcomes[1])),
        malformed=malformed,
        unanswered=sum(isinstance(item.answer, Unanswered) for item in answered),
        difficulty=pool.difficulty,
        sure=selection.facts.get("probability"),
        narrow=_narrow(step.strategy, selection),
        rescued_wins=selection.winner in selection.rescued,
        grade=grades.get(selection.winner),
        mean_grade=fmean(pool.grades) if pool.grades else None,
        best_grade=max(pool.grades) if pool.grades else None,
    )


def _narrow(strategy: Strategy, selection: Selection) -> bool | None:
    """Whether the first rescued candidate had lost by no more than delta; None without a rescue."""
    gap = selection.facts.get("rescue_gap")
    if gap is None or not selection.rescued or not isinstance(strategy, Caps):
        return None
    return gap <= strategy.rescue_margin + EPSILON


def _sums(by_level: Iterable[Iterable[float]]) -> tuple[int, int]:
    partial, full = (int(sum(values)) for values in by_level)
    return partial, full


def _outcomes(games: Iterable[AnsweredAsk], label: Mapping[int, bool]) -> list[float]:
    """1, ½ or 0 for each verdict on a right and a wrong candidate that was correct, a tie or wrong."""
    outcomes = []
    for ask, answer, *_ in games:
        if isinstance(ask, Pairing) and isinstance(answer, Verdict) and label[ask.a] != label[ask.b]:
            outcomes.append(answer.outcome if label[ask.a] else 1 - answer.outcome)
    return outcomes
