"""What follows from a diagnosis: the judge's profile, and which strategy to use with it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from random import Random
from statistics import fmean
from typing import TypeAlias

from caps.building import make_strategy
from caps.core.judge_profile import JudgeProfile
from caps.core.play import Strategy
from caps.core.types import Case
from caps.evidence.domains import domain_named
from caps.judging.profiles import profile_fields
from caps.judging.simulated import JudgeModel
from caps.registry import STRATEGIES
from caps.statistics.estimates import wilson
from caps.statistics.judge_measures import LEVELS, TOLERANCE, JudgeMeasures, measure, profile_of, usable
from caps.statistics.observations import at
from caps.studies.diagnosis import DiagnosisRun, Subject, fitted
from caps.studies.simulation import LabelledPool, Record, Task, simulate

# Which strategy a measured judge is good for: each played against a synthetic judge fitted to it.


CONTESTS = 400
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
    (BASELINE, {"dialect": "verdicts"}),  # what was measured are verdicts, not ratings
)


_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a strategy would come to with this judge on such pools; simulated unless it asks nothing."""

    strategy: str
    settings: Mapping[str, str] = field(default_factory=dict)
    profiled: bool = False
    pass_at_1: float
    interval: tuple[float, float] = (0.0, 1.0)  # of what the simulation cannot know, being finite
    tokens: float
    calls: Mapping[str, float]
    pair_accuracy: float | None  # over all its games between a right and a wrong one: the paper's measure

    @property
    def judged(self) -> bool:
        """Whether it asks the judge at all."""
        return self.tokens > 0


def expectations(
    pools: Sequence[LabelledPool],
    model: JudgeModel,
    profile: JudgeProfile,
    *,
    seed: int,
    scale: Mapping[str, float] | None = None,
    contests: int = CONTESTS,
    report: Callable[[int], object] = abs,
) -> list[Expected]:
    """Play every strategy considered; `scale` is measured tokens a call over estimated ones, by level."""
    named: dict[_Key, Strategy] = {
        (name, tuple(settings.items())): make_strategy(name, settings) for name, settings in CONSIDERED
    }
    informed: dict[_Key, Strategy] = {(name, ()): made for name, made in _informed(profile)}
    strategies = {**named, **informed}
    keys = {str(place): key for place, key in enumerate(strategies)}
    task = Task({place: strategies[key] for place, key in keys.items()}, model, seed)
    records = simulate(repeated(pools, contests, seed), task, report=report)
    return [
        _expected(
            keys[place][0],
            dict(keys[place][1]),
            records[place],
            scale or {},
            profiled=keys[place] in informed,
        )
        for place in keys
    ]


def repeated(pools: Sequence[LabelledPool], contests: int, seed: int) -> list[LabelledPool]:
    """So many pools: a random part of many, or few of them over and over, judged afresh each time."""
    if len(pools) > contests:
        return Random(f"advice {seed}").sample(list(pools), contests)
    rounds = ceil(contests / len(pools))
    many = [pool for _ in range(rounds) for pool in pools]
    return [replace(pool, number=number) for number, pool in enumerate(many)]


def advise(options: Sequence[Expected], *, usable: bool, tested: bool) -> Expected:
    """The cheapest close to the best; of those that ask nothing where the judge is not usable."""
    if not usable:
        silent = [one for one in options if not one.judged]
        best = max(silent, key=lambda one: (one.pass_at_1, one.strategy == "majority"))
        return replace(best, strategy="tests-first", settings={}) if tested else best
    best = max(options, key=lambda one: one.pass_at_1)
    close = [one for one in options if one.pass_at_1 >= best.pass_at_1 - TOLERANCE]
    return min(close, key=lambda one: (one.tokens, -one.pass_at_1))


def has_tests(cases: Iterable[Case | None]) -> bool:
    """Whether these are programs with public tests, which tell more than a judge at chance."""
    found = [case for case in cases if case is not None]
    return bool(found) and all(
        domain_named(case.domain).python_programs and case.extra.get("tests") for case in found
    )


def _informed(profile: JudgeProfile) -> list[tuple[str, Strategy]]:
    """Every strategy that reckons with a judge profile."""
    return [
        (name, make_strategy(name, profile=profile))
        for name in STRATEGIES.table
        if profile_fields(make_strategy(name))
    ]


def _expected(
    name: str, settings: Mapping[str, str], record: Record, scale: Mapping[str, float], *, profiled: bool
) -> Expected:
    problems = max(1, record.problems)
    games = sum(record.told_apart.values())
    return Expected(
        strategy=name,
        settings=settings,
        profiled=profiled,
        pass_at_1=record.right / problems,
        interval=wilson(record.right, problems),
        tokens=sum(tokens * scale.get(level, 1.0) for level, tokens in record.tokens.items()) / problems,
        calls={level: count / problems for level, count in record.calls.items()},
        pair_accuracy=sum(record.told_right.values()) / games if games else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """Figures, the profile they make (with the fields that are only assumed), and the strategies compared."""

    measured: JudgeMeasures
    profile: JudgeProfile
    assumed: tuple[str, ...]
    model: JudgeModel
    options: tuple[Expected, ...]
    chosen: Expected


def measured_of(asked: DiagnosisRun) -> JudgeMeasures:
    """The figures of a run."""
    return measure(asked.looks, probabilities=asked.confidence == "logprobs")


def conclude(
    asked: DiagnosisRun,
    found: Sequence[Subject],
    *,
    seed: int,
    contests: int = CONTESTS,
    report: Callable[[int], object] = abs,
) -> Conclusion:
    """Work everything out; the contests are simulated on all labelled cases, told apart or not."""
    measured = measured_of(asked)
    profile, assumed = profile_of(asked.looks, measured)
    model = fitted(measured)
    options = expectations(
        [one.pool for one in found if one.pool.correct],
        model,
        profile,
        seed=seed,
        scale=_scale(asked, found),
        contests=contests,
        report=report,
    )
    chosen = advise(
        options, usable=usable(measured.levels["E2"].bounds), tested=has_tests(one.case for one in found)
    )
    return Conclusion(
        measured=measured,
        profile=profile,
        assumed=assumed,
        model=model,
        options=tuple(options),
        chosen=chosen,
    )


def _scale(asked: DiagnosisRun, found: Sequence[Subject]) -> dict[str, float]:
    """Tokens the server counted, against our estimate from characters, by level."""
    overhead = {one.pool.number: one.pool.overhead for one in found}
    scale = {}
    for level in LEVELS:
        looks = at(asked.looks, level)
        reckoned = fmean(overhead[look.case] + sum(look.sizes) for look in looks)
        scale[str(level)] = fmean(look.tokens for look in looks) / reckoned
    return scale
