"""Diagnosis of a judge: choose pairs and have them judged until its quality is known."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from statistics import NormalDist, fmean

from caps.core.errors import InputError
from caps.core.judge_profile import JudgeProfile
from caps.core.play import Play, compare
from caps.core.settings import check_settings, setting
from caps.core.text import estimate_tokens
from caps.core.types import Case, Entrant, Level, Pairing, Selection, Verdict
from caps.engines.base import Outcome, PerCase, in_order
from caps.judging.base import Ruling
from caps.judging.preparation import CasePreparation
from caps.judging.simulated import JudgeModel, SimulatedJudge
from caps.session.resolve import Resolved
from caps.session.session import open_session
from caps.statistics.estimates import Estimate, find_crossing
from caps.statistics.judge_measures import (
    LEVELS,
    PRECISION,
    JudgeMeasures,
    LevelMeasures,
    StopRule,
    fit_profile,
)
from caps.statistics.observations import Observation, complete
from caps.studies.simulation import INSTRUCTION_TOKENS, LabelledPool, PoolModel, generated_pools

OBSERVATIONS_PER_PAIR = 4
PAIRS_OF_A_CASE = 2  # more where there are too few cases
ALL_PAIRS = 0.001  # a precision that no diagnosis reaches


@dataclass(frozen=True, slots=True)
class ProbePair:
    """Two candidates of a case; if labels are known, `one` is right and `other` wrong."""

    one: int
    other: int


@dataclass(frozen=True, slots=True)
class ProbePairs:
    """A strategy that asks about given pairs in one round and makes no choice."""

    pairs: tuple[ProbePair, ...]

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:  # noqa: ARG002
        """Ask about the pairs; the ranking is the order of sampling."""
        order = tuple(entrant.id for entrant in entrants)
        yield from compare("diagnosis", asks_of(self.pairs), ranking=order)
        return Selection(order[0], order)


def asks_of(pairs: Iterable[ProbePair]) -> list[Pairing]:
    """Both levels and both orders of each pair; which order comes first alternates."""
    asks = []
    for index, pair in enumerate(pairs):
        orders = [(pair.one, pair.other), (pair.other, pair.one)]
        for a, b in orders if index % 2 == 0 else reversed(orders):
            asks += [Pairing(a, b, Level.PARTIAL), Pairing(a, b, Level.FULL)]
    return asks


def distinguished(correct: Mapping[int, bool | None], count: int, rng: Random) -> tuple[ProbePair, ...]:
    """Up to `count` pairs of a right and a wrong candidate.

    They form a ladder: neighbours share one candidate, pairs further apart none. This shows whether errors
    belong to a candidate.
    """
    right = [one for one, label in correct.items() if label is True]
    wrong = [one for one, label in correct.items() if label is False]
    rng.shuffle(right)
    rng.shuffle(wrong)
    if not right or not wrong:
        return ()
    return tuple(_first(count, _ladder(right, wrong, rng)))


def _ladder(right: Sequence[int], wrong: Sequence[int], rng: Random) -> Iterator[ProbePair]:
    for rung in range(2 * max(len(right), len(wrong))):
        yield ProbePair(right[rung // 2 % len(right)], wrong[(rung + 1) // 2 % len(wrong)])
    rest = [ProbePair(a, b) for a in right for b in wrong]
    rng.shuffle(rest)
    yield from rest


def _first(count: int, pairs: Iterable[ProbePair]) -> list[ProbePair]:
    found: dict[ProbePair, None] = {}
    for pair in pairs:
        if len(found) == count:
            break
        found[pair] = None
    return list(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many pairs to ask about, and when to stop."""

    pairs: int = setting(200, "pairs at most; each is asked at E1 and E2, in both orders", least=1)
    precision: float = setting(
        PRECISION, "half-width of the 90 % interval of accuracy at which it stops", least=ALL_PAIRS, most=1
    )
    seed: int = setting(1234, "same seed, same pairs")

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, slots=True)
class Subject:
    """A case in a diagnosis: its labelled entrants, its labels and its pairs."""

    pool: LabelledPool
    case: Case | None
    labels: Mapping[int, bool | None]
    probe_pairs: tuple[ProbePair, ...] = ()


@dataclass(slots=True)
class DiagnosisRun:
    """The outcome of a run; `observations` are of completely judged pairs, until the figures were settled."""

    observations: list[Observation] = field(default_factory=list)
    confidence: str = "verbal"
    beyond: int = 0  # observations that arrived after the figures were settled
    unanswered: int = 0
    failures: list[str] = field(default_factory=list)
    ended: str | None = None  # budget or time


def subjects(cases: Iterable[Case | InputError], prepare: CasePreparation) -> Iterator[Subject]:
    """Prepare cases; a pool has only the labelled candidates, or all if none is labelled."""
    for number, case in enumerate(cases):
        if isinstance(case, InputError):
            raise case
        entrants = prepare(case).evidence.entrants
        labels = {one.id: case.candidates[one.id].correct for one in entrants}
        known = tuple(one for one in entrants if labels[one.id] is not None)
        overhead = INSTRUCTION_TOKENS + estimate_tokens(case.problem.text)
        correct = tuple(bool(labels[one.id]) for one in known)
        yield Subject(LabelledPool(number, known or entrants, correct, overhead), case, labels)


def of_pools(pools: Iterable[LabelledPool]) -> Iterator[Subject]:
    """Subjects of generated pools, which have no texts."""
    for pool in pools:
        pairs = zip(pool.entrants, pool.correct, strict=True)
        yield Subject(pool, None, {one.id: right for one, right in pairs})


def schedule(found: Sequence[Subject], plan: Plan) -> list[Subject]:
    """Cases in random order, each with its pairs, up to the number of pairs in the plan."""
    found = [_with_pairs(subject, plan) for subject in found]
    found = [subject for subject in found if subject.probe_pairs]
    Random(f"diagnosis {plan.seed}").shuffle(found)
    most = max((len(subject.probe_pairs) for subject in found), default=0)
    share = min(PAIRS_OF_A_CASE, most)
    while share < most and sum(min(share, len(subject.probe_pairs)) for subject in found) < plan.pairs:
        share += 1
    chosen, left = [], plan.pairs
    for subject in found:
        probe_pairs = subject.probe_pairs[: min(share, left)]
        left -= len(probe_pairs)
        if probe_pairs:
            chosen.append(replace(subject, probe_pairs=probe_pairs))
    return chosen


def has_labels(found: Iterable[Subject]) -> bool:
    """Whether any candidate carries a label."""
    return any(subject.pool.correct for subject in found)


def explain_no_pairs(found: Sequence[Subject]) -> str:
    """Why there is no pair to ask about, and what to do."""
    labels = [label for subject in found for label in subject.labels.values() if label is not None]
    if not has_labels(found):
        return (
            "no candidate carries a label (candidates[].correct: true or false), and no case has an answer "
            "that half of the candidates give beside one that a single candidate gives, or a program that "
            "passes all public tests beside one that fails: label some candidates, or run the public tests "
            "of programs with caps grade"
        )
    kind = "right" if all(labels) else "wrong" if not any(labels) else "right, or all wrong, within each case"
    return (
        f"all labelled candidates are {kind}: there is no pair of a right and a wrong one, so nothing can "
        "be learnt about the judge here; add cases with both right and wrong candidates"
    )


async def ask(
    resolved: Resolved, scheduled: Sequence[Subject], plan: Plan, *, watch: Callable[[Ruling], object] = id,
    advance: Callable[[int], object] = id,
) -> DiagnosisRun:  # fmt: skip
    """Have the judge of a run judge the pairs; `advance` is called with the number of pairs just finished."""
    asked, rule = DiagnosisRun(), StopRule(plan.precision)

    def source() -> Iterator[Case]:
        for subject in scheduled:
            if rule.settled:
                return
            assert subject.case is not None  # noqa: S101
            yield subject.case

    async with open_session(resolved) as ready:
        asked.confidence = ready.confidence
        ready.engine.watch = watch
        strategies = PerCase([ProbePairs(subject.probe_pairs) for subject in scheduled])
        async for outcome in in_order(ready.run(source(), strategies)):
            subject = scheduled[outcome.number]
            if outcome.failure is not None:
                asked.failures.append(f"case {outcome.name!r}: {outcome.failure}")
            observations = complete(list(_observations(subject, outcome, asked)), OBSERVATIONS_PER_PAIR)
            _add_case(asked, rule, observations)
            advance(len(subject.probe_pairs))
    return asked


def simulate(scheduled: Sequence[Subject], plan: Plan, model: JudgeModel) -> DiagnosisRun:
    """Have a simulated judge judge the pairs."""
    asked, rule = DiagnosisRun(), StopRule(plan.precision)
    for subject in scheduled:
        if rule.settled:
            break
        pool = subject.pool
        judge = SimulatedJudge(model, pool.entrants, pool.correct, seed=plan.seed, case=pool.number)
        answers = [(ask, judge.answer(ask)) for ask in asks_of(subject.probe_pairs)]
        observations = [
            _observation(subject, ask, answer) for ask, answer in answers if isinstance(answer, Verdict)
        ]
        _add_case(asked, rule, observations)
    return asked


def _with_pairs(subject: Subject, plan: Plan) -> Subject:
    entrants, rng = subject.pool.entrants, Random(f"pairs {plan.seed} {subject.pool.number}")
    return replace(subject, probe_pairs=distinguished(subject.labels, len(entrants) ** 2, rng))


def _add_case(asked: DiagnosisRun, rule: StopRule, observations: list[Observation]) -> None:
    """Add the observations of one case; ignored once settled, so that a rerun gives the same figures."""
    if rule.settled:
        asked.beyond += len(observations)
        return
    asked.observations += observations
    rule.add(observations)


def _observations(subject: Subject, outcome: Outcome, asked: DiagnosisRun) -> Iterator[Observation]:
    for judged in outcome.judged:
        pairing, ruling = judged.ask, judged.ruling
        if ruling.unanswered is not None:
            asked.unanswered += 1
            asked.ended = ruling.unanswered if ruling.unanswered in ("budget", "time") else asked.ended
        if isinstance(pairing, Pairing) and isinstance(ruling.answer, Verdict):
            first = ruling.attempts[0].usage.prompt if ruling.attempts else 0
            written = sum(attempt.usage.output for attempt in ruling.attempts)
            obs = _observation(subject, pairing, ruling.answer)
            yield replace(
                obs,
                malformed=ruling.malformed is not None,
                tokens=first,
                output=written,
            )


def _observation(subject: Subject, pairing: Pairing, verdict: Verdict) -> Observation:
    first = ProbePair(pairing.a, pairing.b) in subject.probe_pairs
    pair = ProbePair(pairing.a, pairing.b) if first else ProbePair(pairing.b, pairing.a)
    by_id: dict[int, Entrant] = {one.id: one for one in subject.pool.entrants}
    one, other = by_id[pair.one], by_id[pair.other]
    sizes = one.sizes[pairing.level], other.sizes[pairing.level]
    return Observation(
        case=subject.pool.number,
        one=pair.one,
        other=pair.other,
        level=pairing.level,
        first=first,
        verdict=verdict if first else verdict.swapped(),
        sizes=sizes,
        tokens=subject.pool.overhead + sum(sizes),
    )


# A simulated judge fitted to the measured one


NORMAL = NormalDist()
WIDEST = 4.0


def fitted(measured: JudgeMeasures) -> JudgeModel:
    """A model with the measured accuracy and pull at each level, ties and confidence.

    Both levels share the two bands. Fields that were not measured keep their defaults.
    """
    at_partial, at_full = measured.levels["E1"], measured.levels["E2"]
    model = JudgeModel(accuracy=cautious(at_full.accuracy), accuracy_partial=cautious(at_partial.accuracy))
    model = replace(
        model,
        position_bias=_pull(at_full, model, Level.FULL),
        position_bias_partial=_pull(at_partial, model, Level.PARTIAL),
    )
    ties = [one.ties.value for one in (at_partial, at_full) if one.ties]
    if ties:
        band = find_crossing(
            lambda width: _within(replace(model, tie_band=width), width), fmean(ties), 0, WIDEST
        )
        model = replace(model, tie_band=band)
    return _with_confidence(model, [at_partial, at_full])


def cautious(found: Estimate) -> float:
    """An accuracy with one right and one wrong case added (Laplace smoothing)."""
    return _inside((found.value * found.cases + 1) / (found.cases + 2))


def _pull(at_level: LevelMeasures, model: JudgeModel, level: Level) -> float:
    """The measured pull, in standard deviations of the model; the default if it was not measured."""
    found = at_level.first_slot
    if found is None:
        return model.pull(level)
    return NORMAL.inv_cdf(_inside(found.value)) * model.spread


def _with_confidence(model: JudgeModel, levels: list[LevelMeasures]) -> JudgeModel:
    """The model with the band and the noise that give the measured share and accuracy of HIGH verdicts."""
    known = [one.confidence for one in levels if one.confidence.sure is not None]
    if not known:
        return model
    share = fmean(one.sure.value for one in known if one.sure is not None)
    split = [one for one in known if one.high is not None and one.low is not None]
    if split:
        wanted = fmean(one.high.value - one.low.value for one in split if one.high and one.low)
        # The noisier the confidence, the smaller the difference between HIGH and LOW verdicts.
        noise = find_crossing(
            lambda noise: -_confidence(_banded(replace(model, confidence_noise=noise), share))[1],
            -wanted,
            0.0,
            WIDEST,
            width=0.05,
        )
        model = replace(model, confidence_noise=noise)
    return _banded(model, share)


def _banded(model: JudgeModel, share: float) -> JudgeModel:
    """The model with the band at which this share of decided verdicts is HIGH."""

    def unsure(width: float) -> float:
        return 1 - _confidence(replace(model, high_band=width))[0]

    return replace(model, high_band=find_crossing(unsure, 1 - share, 0.0, WIDEST, width=0.01))


def _confidence(model: JudgeModel, steps: int = 60) -> tuple[float, float]:
    """Share of decided verdicts at E2 that are HIGH, and their accuracy minus that of LOW ones."""
    gap, noise = model.gap(Level.FULL), max(model.confidence_noise, 1e-6)
    high = high_right = low = low_right = 0.0
    for side in (1, -1):
        centre = (gap + side * model.pull(Level.FULL)) / model.spread
        for step in range(steps):
            z = NORMAL.inv_cdf((step + 0.5) / steps)
            lean = model.spread * (centre + z)
            if abs(lean) < model.tie_band:
                continue
            sure = NORMAL.cdf((abs(lean) - model.high_band) / noise)
            high, low = high + sure, low + 1 - sure
            if lean > 0:
                high_right, low_right = high_right + sure, low_right + 1 - sure
    difference = (high_right / high if high else 1.0) - (low_right / low if low else 0.0)
    return high / (high + low) if high + low else 0.0, difference


def _within(model: JudgeModel, width: float) -> float:
    """Share of comparisons with a difference below a width, over both levels and orders."""
    wide = model.spread
    centres = [model.gap(level) + side * model.pull(level) for level in LEVELS for side in (1, -1)]
    return fmean(NORMAL.cdf((width - c) / wide) - NORMAL.cdf((-width - c) / wide) for c in centres)


def _inside(share: float) -> float:
    """A share within the limits of the model: certainty is never measured."""
    return min(0.99, max(0.02, share))


PROBLEMS, PAIRS = 200, 800
SEED = 90210  # of problems that no measurement uses


@lru_cache(maxsize=64)
def estimated(model: JudgeModel, *, pairs: int = PAIRS, seed: int = SEED) -> JudgeProfile:
    """The profile that `caps diagnose` would save for a simulated judge, from pairs of generated problems."""
    pools = generated_pools(PoolModel(kind="math", solve_rate=0.45), PROBLEMS, seed)
    plan = Plan(pairs=pairs, precision=ALL_PAIRS, seed=seed)
    observations = simulate(schedule(list(of_pools(pools)), plan), plan, model).observations
    profile, _ = fit_profile(observations, JudgeProfile())
    return profile
