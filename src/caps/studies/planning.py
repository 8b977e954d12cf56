"""Forecasts: strategies are rehearsed on cases against an assumed judge, and what they ask is counted.

A rehearsal plays the contest with the pairings of the run, so the first round is exact. The assumed judge is
the one that the strategy reckons with (its judge profile, else an average judge), and which answers are right
is drawn anew each time: a shared answer is the likelier the more candidates give it. The mean is over all
rehearsals, the range that of nine in ten: of a case, and, added up rehearsal by rehearsal, of a whole run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from math import ceil, floor
from operator import add
from random import Random
from statistics import fmean
from typing import Any, NamedTuple
from zlib import crc32

from caps.core.errors import InputError
from caps.core.judge_profile import JudgeProfile
from caps.core.play import Strategy
from caps.core.text import CHARACTERS_PER_TOKEN
from caps.core.types import Ask, Case, Entrant, Level
from caps.judging.base import PreparedCase
from caps.judging.llm import JudgeSettings
from caps.judging.preparation import CasePreparation, PromptSizes
from caps.judging.simulated import NORMAL, JudgeModel, SimulatedJudge, judge_of
from caps.session.parts import make_prepare
from caps.statistics.estimates import Range
from caps.strategies.belief import Evidence, accuracy
from caps.strategies.dedup import clusters
from caps.strategies.posterior import EFFORTS, Posterior
from caps.studies.play import Played, play_contest
from caps.workers.child_python import map_in_processes

BASELINE = "v1-infer"
CHUNK = 8
PER_CHARACTER = 1 / CHARACTERS_PER_TOKEN
REHEARSALS = 20
NOTHING = (0,) * REHEARSALS
SOLVE_RATES = (0.6, 0.6)  # of problems whose answers are programs or texts: a beta distribution, wide
EFFORT_JUDGES = (0.6, 0.7, 0.8, 0.9, 0.95)
EFFORT_CONTESTS = 100  # for each effort and judge: a few seconds
SURELY = 0.99  # the assumed judge is neither better than this nor worse than its complement

#: What forecasts assume and where they miss, printed with them; `benchmarks/forecasts.py` measures it.
ASSUMED = (
    "an average judge, right in 75 % of comparisons (--judge-profile describes yours); one that ties often "
    "or never says HIGH makes posterior and sprint ask up to a third more"
)


def assumed_judge(strategy: Strategy) -> JudgeModel:
    """The judge that a strategy reckons with: its judge profile, or that of an average judge."""
    profile = strategy if isinstance(strategy, JudgeProfile) else JudgeProfile()
    partial, full = (accuracy(profile, level) for level in (Level.PARTIAL, Level.FULL))
    pull = None if profile.first_slot == 0.5 else NORMAL.inv_cdf(_inside(profile.first_slot))
    return JudgeModel(accuracy=_inside(full), accuracy_partial=_inside(partial), position_bias=pull)


def _inside(share: float) -> float:
    return min(SURELY, max(1 - SURELY, share))


def assumed_labels(entrants: Sequence[Entrant], rng: Random) -> list[bool]:
    """Draw which candidates are right, as far as is known without labels.

    Of answers that are compared by value at most one is right, with the probabilities that `posterior`
    assumes. Of programs and texts any number is right, and all of a cluster together.
    """
    groups = clusters(entrants)
    if all(entrant.answer == "value" for entrant in entrants):
        prior = Evidence()
        weights = [len(group) ** prior.votes for group in groups]
        (right,) = rng.choices([*groups, []], [*weights, prior.nobody**prior.votes])
        chosen = [right]
    else:
        rate = rng.betavariate(*SOLVE_RATES)
        chosen = [group for group in groups if rng.random() < rate]
    ids = {entrant.id for group in chosen for entrant in group}
    return [entrant.id in ids for entrant in entrants]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a strategy asks in each rehearsal, of a case or of several together; tokens are those of prompts.

    `rounds` is the sum of the mean numbers of rounds, `depth` the most of them. `refused` counts cases that
    the strategy cannot play, and `why` says so of the first.
    """

    cases: int = 0
    first_stage: int = 0
    partial_calls: tuple[int, ...] = NOTHING
    full_calls: tuple[int, ...] = NOTHING
    prompt_tokens: tuple[int, ...] = NOTHING
    rounds: float = 0.0
    depth: int = 0
    baseline: float = 0.0
    refused: int = 0
    why: str = ""

    def __add__(self, other: "Forecast") -> "Forecast":
        return Forecast(
            self.cases + other.cases,
            self.first_stage + other.first_stage,
            tuple(map(add, self.partial_calls, other.partial_calls)),
            tuple(map(add, self.full_calls, other.full_calls)),
            tuple(map(add, self.prompt_tokens, other.prompt_tokens)),
            self.rounds + other.rounds,
            max(self.depth, other.depth),
            self.baseline + other.baseline,
            self.refused + other.refused,
            self.why or other.why,
        )

    @property
    def mean(self) -> float:
        """Mean tokens."""
        return fmean(self.prompt_tokens)

    @property
    def partial(self) -> float:
        """Mean calls on partial views."""
        return fmean(self.partial_calls)

    @property
    def full(self) -> float:
        """Mean calls on full views."""
        return fmean(self.full_calls)

    @property
    def calls(self) -> Range:
        """Calls at both levels."""
        return Range.of(list(map(add, self.partial_calls, self.full_calls)))

    @property
    def tokens(self) -> Range:
        """Tokens of all prompts."""
        return Range.of(self.prompt_tokens)

    def as_line(self) -> dict[str, Any]:
        """Return the forecast as plain data, the same in a plan, a dry run and the server."""
        return {
            "cases": self.cases,
            "calls": {"E1": whole(self.partial), "E2": whole(self.full)},
            "calls_total": _range_line(self.calls),
            "depth": {"mean": whole(self.rounds / self.cases) if self.cases else None, "most": self.depth},
            "first_stage_tokens": self.first_stage,
            "tokens": _range_line(self.tokens),
            "token_share": round(self.mean / self.baseline, 4) if self.baseline else None,
        }


def rehearse(
    strategy: Strategy,
    entrants: Sequence[Entrant],
    tokens_of: Callable[[Ask], float],
    *,
    seed: str,
    baseline: float = 0.0,
) -> Forecast:
    """Play a contest `REHEARSALS` times and count what it asks."""
    rows = []
    for played, _ in _rehearsals(strategy, assumed_judge(strategy), entrants, tokens_of, seed, REHEARSALS):
        partial = sum(item.ask.level == Level.PARTIAL for item in played.answered)
        full = sum(item.ask.level == Level.FULL for item in played.answered)
        tokens = [ceil(item.tokens) for item in played.answered]
        rows.append((partial, full, sum(tokens), played.rounds))
    first = sum(tokens[: played.first_round])
    partial_calls, full_calls, read, rounds = zip(*rows, strict=True)
    return Forecast(1, first, partial_calls, full_calls, read, fmean(rounds), max(rounds), baseline)


def _rehearsals(  # noqa: PLR0917
    strategy: Strategy, judge: JudgeModel, entrants: Sequence[Entrant], tokens_of: Callable[[Ask], float],
    seed: str, count: int,
) -> Iterator[tuple[Played, bool]]:  # fmt: skip
    """Contests with assumed labels, and whether each choice is right."""
    number = crc32(seed.encode())
    for rehearsal in range(count):
        labels = assumed_labels(entrants, Random(f"{rehearsal}/{seed}"))
        simulated = SimulatedJudge(judge, entrants, labels, seed=rehearsal, case=number)
        played = play_contest(strategy, entrants, simulated.answer, tokens_of, seed=seed)
        right = {entrant.id for entrant, label in zip(entrants, labels, strict=True) if label}
        yield played, played.selection.winner in right


class RehearsedPool(NamedTuple):
    """The candidates of a problem, the tokens of an ask about them, and those that V1-Infer reads."""

    name: str
    entrants: Sequence[Entrant]
    tokens_of: Callable[[Ask], float]
    baseline: float


class EffortFigures(NamedTuple):
    """What `posterior` costs, and how often it is right, with an effort and a judge; SIMULATED."""

    judge: float
    effort: str
    right: float
    calls: float
    token_share: float


def compare_efforts(strategy: Posterior, pools: Sequence[RehearsedPool], seed: int) -> list[EffortFigures]:
    """Rehearse every effort against judges of known accuracy, `EFFORT_CONTESTS` times in all."""
    each = ceil(EFFORT_CONTESTS / len(pools))
    baseline = fmean(pool.baseline for pool in pools)
    figures = []
    for accuracy_, effort in product(EFFORT_JUDGES, EFFORTS):
        player, judge = replace(strategy, effort=effort), judge_of(accuracy_)
        played = [
            contest
            for pool in pools
            for contest in _rehearsals(
                player, judge, pool.entrants, pool.tokens_of, f"{seed}/{pool.name}", each
            )
        ]
        tokens = fmean(sum(item.tokens for item in contest.answered) for contest, _ in played)
        figures.append(
            EffortFigures(
                judge=accuracy_,
                effort=effort,
                right=fmean(right for _, right in played),
                calls=fmean(len(contest.answered) for contest, _ in played),
                token_share=tokens / baseline,
            )
        )
    return figures


def forecast_case(
    prepared: PreparedCase,
    strategy: Strategy,
    templates: Mapping[str, str],
    *,
    seed: int,
    per_character: float = PER_CHARACTER,
    sizes: PromptSizes | None = None,
) -> Forecast:
    """Forecast what a run with this seed asks about a case; pass `sizes` to measure a case only once."""
    measured = sizes or PromptSizes(prepared, templates)
    return rehearse(
        strategy,
        prepared.evidence.entrants,
        lambda ask: measured.size(ask) * per_character,
        seed=f"{seed}/{prepared.case.id}",
        baseline=measured.v1_infer() * per_character,
    )


def distinct_entrants(n: int) -> list[Entrant]:
    """Entrants that all differ: the most expensive pool of its size."""
    return [Entrant(i, signature=f"#{i}", features={"score": 0.0}, signature_kind="open") for i in range(n)]


def _range_line(counts: Range) -> dict[str, float]:
    """A range of counts, rounded outwards."""
    return {"mean": whole(counts.mean), "low": floor(counts.low), "high": ceil(counts.high)}


def whole(value: float) -> float:
    """A whole number stays one in JSON."""
    return int(value) if value == int(value) else round(value, 3)


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """Settings that a worker process needs besides the cases."""

    strategies: Sequence[Strategy]
    templates: Mapping[str, str]
    profile: str | None
    views: Mapping[str, str]
    seed: int
    per_character: float = PER_CHARACTER
    context: int | None = None


def plan_cases(
    cases: Iterable[Case],
    settings: PlanSettings,
    *,
    processes: int = 1,
    report: Callable[[int], object] = abs,
) -> list[Forecast]:
    """Forecast every strategy on every case; `report` is called with the number of cases just finished."""
    distinct: list[Strategy] = []
    for strategy in settings.strategies:
        if strategy not in distinct:
            distinct.append(strategy)
    totals = [Forecast() for _ in distinct]
    forecast_chunk = partial(_forecast_chunk, replace(settings, strategies=distinct))
    for chunk in map_in_processes(forecast_chunk, _chunks(cases), processes=processes):
        for forecasts in chunk:
            totals = list(map(add, totals, forecasts))
        report(len(chunk))
    return [totals[distinct.index(strategy)] for strategy in settings.strategies]


def pools_of(cases: Iterable[Case], settings: PlanSettings) -> list[RehearsedPool]:
    """Cases with more than one candidate as pools, measured by their rendered prompts."""
    prepare = _prepare_of(settings)
    pools = []
    for prepared in map(prepare, cases):
        entrants = prepared.evidence.entrants
        if len(entrants) > 1:
            sizes = PromptSizes(prepared, settings.templates)
            baseline = sizes.v1_infer() * settings.per_character
            pools.append(
                RehearsedPool(prepared.case.id, entrants, partial(_tokens_of, sizes, settings), baseline)
            )
    return pools


def _tokens_of(sizes: PromptSizes, settings: PlanSettings, ask: Ask) -> float:
    return sizes.size(ask) * settings.per_character


def _chunks(cases: Iterable[Case]) -> Iterator[Sequence[Case]]:
    source = iter(cases)
    while chunk := list(islice(source, CHUNK)):
        yield chunk


def _forecast_chunk(settings: PlanSettings, chunk: Sequence[Case]) -> list[list[Forecast]]:
    prepare = _prepare_of(settings)
    return [_forecast_all(prepare(case), settings) for case in chunk]


def _prepare_of(settings: PlanSettings) -> CasePreparation:
    reply = JudgeSettings().max_tokens
    return make_prepare(settings.profile, settings.views, context=settings.context, reply=reply)


def _forecast_all(prepared: PreparedCase, settings: PlanSettings) -> list[Forecast]:
    sizes = PromptSizes(prepared, settings.templates)

    def forecast(strategy: Strategy) -> Forecast:
        try:
            return forecast_case(
                prepared,
                strategy,
                settings.templates,
                seed=settings.seed,
                per_character=settings.per_character,
                sizes=sizes,
            )
        except InputError as error:
            return Forecast(refused=1, why=f"case {prepared.case.id!r}: {error}")

    return [forecast(strategy) for strategy in settings.strategies]
