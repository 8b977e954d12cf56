"""Advice from a diagnosis: the judge's profile, and the strategy to use with it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from math import sqrt
from random import Random
from statistics import fmean, variance

from caps.core.judge_profile import JudgeProfile
from caps.core.play import Strategy
from caps.core.types import Case
from caps.evidence.domains import domain_named
from caps.grading.test_suites import public_tests
from caps.judging.profiles import profile_fields
from caps.judging.simulated import JudgeModel
from caps.registry import STRATEGIES
from caps.runs.outcomes import recovered_share
from caps.session.parts import make_strategy
from caps.statistics.estimates import student
from caps.statistics.judge_measures import (
    LEVELS,
    TOLERANCE,
    JudgeMeasures,
    fit_profile,
    is_usable,
    measure,
    profile_warnings,
)
from caps.statistics.observations import at_level
from caps.studies.diagnosis import DiagnosisRun, Subject, cautious, fitted
from caps.studies.play import simulate
from caps.studies.results import Result
from caps.studies.simulation import LabelledPool

CONTESTS = 400
LEAST_STEP = 0.03  # change of accuracy by which the sensitivity of a forecast is measured
SHIFTED = 2  # one in this many contests is repeated with a better and with a worse judge
BASELINE = "v1-infer"
CONSIDERED: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("vanilla", {}),
    ("majority", {}),
    ("caps-r", {}),
    ("caps-plus", {}),
    ("caps-plus", {"finalists": "2"}),
    ("caps-plus", {"dedup": "off"}),
    ("caps-plus", {"order": "both"}),
    ("all-e2", {}),
    ("knockout", {}),
    ("sprint", {}),
    (BASELINE, {"dialect": "verdicts"}),  # the diagnosis measured verdicts, not ratings
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Expected accuracy and cost of a strategy with this judge; simulated if it asks one."""

    strategy: str
    settings: Mapping[str, str] = field(default_factory=dict)
    profiled: bool = False
    pass_at_1: float
    interval: tuple[float, float] = (0.0, 1.0)  # 90 % prediction interval for as many new cases
    tokens: float
    calls: Mapping[str, float]
    pair_accuracy: float | None  # over its comparisons of a right with a wrong candidate, as in the paper
    recovery: float | None = None  # share of the possible gain over a random candidate that is reached

    @property
    def judged(self) -> bool:
        """Whether it asks the judge at all."""
        return self.tokens > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """Uncertainty of a judge's accuracy: its standard error, and the cases on which it was measured."""

    accuracy: float = 0.0
    cases: int = 1


CERTAIN = Uncertainty()


def expectations(
    pools: Sequence[LabelledPool],
    model: JudgeModel,
    profile: JudgeProfile,
    *,
    seed: int,
    scale: Mapping[str, float] | None = None,
    contests: int = CONTESTS,
    uncertainty: Uncertainty = CERTAIN,
    report: Callable[[int], object] = abs,
) -> list[Expected]:
    """Simulate all considered strategies; `scale` is the ratio of measured to estimated tokens per level."""
    named = {_label(name, settings): (name, settings) for name, settings in CONSIDERED}
    strategies = {label: make_strategy(name, settings) for label, (name, settings) in named.items()}
    informed = _informed(profile)
    found = forecast(
        pools,
        {**strategies, **informed},
        model,
        seed=seed,
        contests=contests,
        uncertainty=uncertainty,
        report=report,
    )
    random = fmean(sum(pool.correct) / len(pool.correct) for pool in pools)
    possible = fmean(any(pool.correct) for pool in pools)
    options = []
    for label, (results, interval) in found.items():
        name, settings = named.get(label, (label, {}))
        right = fmean(result.right for result in results)
        games = sum(sum(result.apart) for result in results)
        by_level = {str(level): at for at, level in enumerate(LEVELS)}
        tokens = (
            (scale or {}).get(level, 1.0) * fmean(result.tokens[at] for result in results)
            for level, at in by_level.items()
        )
        options.append(
            Expected(
                strategy=name,
                settings=settings,
                profiled=label in informed,
                pass_at_1=right,
                interval=interval,
                tokens=sum(tokens),
                calls={
                    level: fmean(result.calls[at] for result in results) for level, at in by_level.items()
                },
                pair_accuracy=sum(sum(result.apart_right) for result in results) / games if games else None,
                recovery=recovered_share(right, random, possible),
            )
        )
    return options


def forecast(
    pools: Sequence[LabelledPool],
    strategies: Mapping[str, Strategy],
    model: JudgeModel,
    *,
    seed: int,
    contests: int = CONTESTS,
    uncertainty: Uncertainty = CERTAIN,
    report: Callable[[int], object] = abs,
) -> dict[str, tuple[list[Result], tuple[float, float]]]:
    """Simulate contests with a fitted judge; the 90 % prediction interval of the share that is right.

    The interval has three sources: the error of the measured accuracy (its effect is found by changing it
    and repeating the contests), the sampling of the pools, and the sampling of as many new cases. Candidates
    are shuffled, so that an order with right ones first gives no advantage.
    """
    many = shuffled(repeated(pools, contests, seed), seed)
    results = simulate(many, strategies, model, seed=seed, report=report)
    step = max(LEAST_STEP, uncertainty.accuracy)
    fewer = many[: max(1, len(many) // SHIFTED)]
    moved = [simulate(fewer, strategies, _shifted(model, sign * step), seed=seed) for sign in (1, -1)]
    found = {}
    for label in strategies:
        outcomes = [result.right for result in results[label]]
        share = fmean(outcomes)
        better, worse = (fmean(result.right for result in results_moved[label]) for results_moved in moved)
        by_judge = ((better - worse) / (2 * step) * uncertainty.accuracy) ** 2
        by_pools = _variance_of_mean(outcomes, min(len(pools), contests))
        by_luck = (share * (1 - share) + 0.25 / len(many)) / len(pools)
        half = student(max(1, uncertainty.cases - 1), 0.9) * sqrt(by_judge + by_pools + by_luck)
        found[label] = results[label], (max(0.0, share - half), min(1.0, share + half))
    return found


def _shifted(model: JudgeModel, change: float) -> JudgeModel:
    """The judge with its accuracy changed at both levels."""
    return replace(
        model,
        accuracy=min(0.995, max(0.02, model.accuracy + change)),
        accuracy_partial=min(0.995, max(0.02, model.accuracy_partial + change)),
    )


def _variance_of_mean(outcomes: Sequence[bool], pools: int) -> float:
    """Variance of the mean over pools; each pool recurs every `pools` contests."""
    means = [sum(own) / len(own) for place in range(pools) if (own := outcomes[place::pools])]
    return variance(means) / len(means) if len(means) > 1 else 0.25


def repeated(pools: Sequence[LabelledPool], contests: int, seed: int) -> list[LabelledPool]:
    """`contests` pools: a random sample, or repetitions with new judge errors if there are too few."""
    if len(pools) > contests:
        return Random(f"advice {seed}").sample(list(pools), contests)
    many = islice(cycle(pools), contests)
    return [replace(pool, number=number) for number, pool in enumerate(many)]


def shuffled(pools: Iterable[LabelledPool], seed: int) -> list[LabelledPool]:
    """The pools with their candidates in random order, renumbered."""
    found = []
    for pool in pools:
        both = list(zip(pool.entrants, pool.correct, strict=True))
        Random(f"shuffle {seed} {pool.number}").shuffle(both)
        entrants = tuple(replace(one, id=place) for place, (one, _) in enumerate(both))
        found.append(replace(pool, entrants=entrants, correct=tuple(right for _, right in both)))
    return found


def advise(options: Sequence[Expected], *, usable: bool, tested: bool) -> Expected:
    """The cheapest strategy close to the best; one without a judge if the judge is not usable."""
    if not usable:
        silent = [one for one in options if not one.judged]
        best = max(silent, key=lambda one: (one.pass_at_1, one.strategy == "majority"))
        return replace(best, strategy="tests-first", settings={}) if tested else best
    best = max(options, key=lambda one: one.pass_at_1)
    close = [one for one in options if one.pass_at_1 >= best.pass_at_1 - TOLERANCE]
    return min(close, key=lambda one: (one.tokens, -one.pass_at_1))


def has_tests(cases: Iterable[Case | None]) -> bool:
    """Whether these are programs with public tests, which are better than a judge at chance."""
    found = [case for case in cases if case is not None]
    return bool(found) and all(
        domain_named(case.domain).python_programs and public_tests(case.extra) for case in found
    )


def _label(name: str, settings: Mapping[str, str]) -> str:
    return " ".join([name, *(f"{field}={value}" for field, value in settings.items())])


def _informed(profile: JudgeProfile) -> dict[str, Strategy]:
    """All strategies that use a judge profile."""
    return {
        name: make_strategy(name, profile=profile)
        for name in STRATEGIES.table
        if profile_fields(make_strategy(name))
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a diagnosis shows of a judge: its figures, and its profile with the names of assumed fields."""

    measured: JudgeMeasures
    profile: JudgeProfile
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion(Findings):
    """The same with the judge that was fitted to the figures, and the strategies compared."""

    model: JudgeModel
    options: tuple[Expected, ...]
    chosen: Expected


def findings_of(run: DiagnosisRun) -> Findings:
    """Compute figures and profile."""
    measured = measure(run.observations, probabilities=run.confidence == "logprobs")
    profile, assumed = fit_profile(run.observations, JudgeProfile())
    return Findings(
        measured=measured, profile=profile, assumed=assumed, warnings=tuple(profile_warnings(measured))
    )


def conclude(
    run: DiagnosisRun,
    subjects: Sequence[Subject],
    *,
    seed: int,
    contests: int = CONTESTS,
    report: Callable[[int], object] = abs,
) -> Conclusion:
    """Compute figures, profile and advice; contests are simulated on all labelled cases."""
    found = findings_of(run)
    model = fitted(found.measured)
    options = expectations(
        [subject.pool for subject in subjects if subject.pool.correct],
        model,
        found.profile,
        seed=seed,
        scale=_scale(run, subjects),
        contests=contests,
        uncertainty=uncertainty_of(found.measured),
        report=report,
    )
    tested = has_tests(subject.case for subject in subjects)
    chosen = advise(options, usable=is_usable(found.measured), tested=tested)
    return Conclusion(
        measured=found.measured, profile=found.profile, assumed=found.assumed, warnings=found.warnings,
        model=model, options=tuple(options), chosen=chosen,
    )  # fmt: skip


def uncertainty_of(measured: JudgeMeasures) -> Uncertainty:
    """The standard error of the accuracy at full views."""
    found = measured.levels["E2"].accuracy
    error = (found.high - found.low) / (2 * student(max(1, found.cases - 1)))
    error = max(error, math.sqrt((share := cautious(found)) * (1 - share) / (2 * found.cases)))
    return Uncertainty(accuracy=error, cases=found.cases)


def _scale(asked: DiagnosisRun, found: Sequence[Subject]) -> dict[str, float]:
    """Ratio of the tokens the server counted to the estimate from characters, by level."""
    overhead = {one.pool.number: one.pool.overhead for one in found}
    scale = {}
    for level in LEVELS:
        observations = at_level(asked.observations, level)
        estimated = fmean(overhead[obs.case] + sum(obs.sizes) for obs in observations)
        scale[str(level)] = fmean(obs.tokens for obs in observations) / estimated
    return scale
