"""Diagnosis of a judge: pairs are chosen and judged until its quality is settled."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from statistics import NormalDist, fmean

from caps.core.errors import InputError
from caps.core.judge_profile import JudgeProfile
from caps.core.play import Play, compare, rate
from caps.core.settings import check_settings, setting
from caps.core.text import estimate_tokens
from caps.core.types import Answer, Ask, Case, Entrant, Level, Pairing, Rating, Selection, Solo, Verdict
from caps.engines.base import Outcome, PerCase, Prepare, in_order
from caps.judging.base import Ruling
from caps.judging.simulated import JudgeModel, SimulatedJudge
from caps.runner import Runner
from caps.statistics.estimates import Estimate, crossing
from caps.statistics.judge_measures import (
    LEVELS,
    PRECISION,
    JudgeMeasures,
    LevelMeasures,
    StopRule,
    measure,
    profile_of,
)
from caps.statistics.observations import Observation, Rated, by_case, complete
from caps.studies.simulation import INSTRUCTION_TOKENS, LabelledPool, PoolModel, generated_pools

# Which pairs a diagnosis asks about: spread over cases, seeded, each at both levels and in both orders.


LOOKS_A_PAIR = 4


@dataclass(frozen=True, slots=True)
class ProbePair:
    """Two candidates of a case; where labels are known, `one` is right and `other` wrong."""

    one: int
    other: int


@dataclass(frozen=True, slots=True)
class ProbePairs:
    """A strategy that asks about given pairs, all in one round, and chooses nothing."""

    pairs: tuple[ProbePair, ...]
    ratings: bool = False

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:  # noqa: ARG002
        """Ask; the order that stands is the order of sampling."""
        order = tuple(entrant.id for entrant in entrants)
        yield from compare("diagnosis", asks_of(self.pairs), ranking=order)
        yield from rate("ratings", solos_of(self.pairs) if self.ratings else [], ranking=order)
        return Selection(order[0], order)


def asks_of(pairs: Iterable[ProbePair]) -> list[Pairing]:
    """Both levels and both orders of each pair; who sits in A first takes turns."""
    asks = []
    for place, pair in enumerate(pairs):
        level_models = [(pair.one, pair.other), (pair.other, pair.one)]
        for a, b in level_models if place % 2 == 0 else reversed(level_models):
            asks += [Pairing(a, b, Level.PARTIAL), Pairing(a, b, Level.FULL)]
    return asks


def solos_of(pairs: Iterable[ProbePair]) -> list[Solo]:
    """A rating at E2 of everyone in these pairs."""
    everyone = dict.fromkeys(one for pair in pairs for one in (pair.one, pair.other))
    return [Solo(one, Level.FULL) for one in everyone]


def distinguished(correct: Mapping[int, bool | None], count: int, rng: Random) -> tuple[ProbePair, ...]:
    """Up to `count` pairs of a right and a wrong candidate.

    They form a ladder: neighbours share one candidate, the next but one none, so that it shows whether errors
    stay with a candidate.
    """
    right = [one for one, label in correct.items() if label is True]
    wrong = [one for one, label in correct.items() if label is False]
    rng.shuffle(right)
    rng.shuffle(wrong)
    if not right or not wrong:
        return ()
    return tuple(_first(count, _ladder(right, wrong, rng)))


def different(answers: Mapping[int, Hashable], count: int, rng: Random) -> tuple[ProbePair, ...]:
    """Up to `count` pairs of candidates with different answers, for want of labels."""
    everyone = [ProbePair(a, b) for a in answers for b in answers if a < b and answers[a] != answers[b]]
    rng.shuffle(everyone)
    return tuple(everyone[:count])


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
    """How much is asked at most."""

    pairs: int = setting(200, "pairs at most; each is asked at E1 and E2, in both orders", least=1)
    per_case: int = setting(2, "pairs of a case, more where there are too few cases", least=1)
    stop: bool = setting(True, "stop as soon as both levels and the forecast are settled")  # noqa: FBT003
    precision: float = setting(
        PRECISION, "half of the 90 % interval of accuracy at which a forecast is settled", least=0.001, most=1
    )
    ratings: bool = setting(False, "also rate every candidate of these pairs")  # noqa: FBT003
    proxy: bool = setting(False, "without labels: agreement of E1 with E2")  # noqa: FBT003
    seed: int = setting(1234, "same seed, same pairs")

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, slots=True)
class Subject:
    """A case as a diagnosis sees it: its entrants, those of them whose label is known, and its pairs."""

    pool: LabelledPool
    case: Case | None
    labels: Mapping[int, bool | None]
    probe_pairs: tuple[ProbePair, ...] = ()


@dataclass(slots=True)
class DiagnosisRun:
    """What came of a run; `looks` holds pairs answered in full, up to where it was settled."""

    looks: list[Observation] = field(default_factory=list)
    rated: list[Rated] = field(default_factory=list)
    confidence: str = "verbal"
    cases: int = 0
    beyond: int = 0  # looks that came in after it was settled
    unanswered: int = 0
    failures: list[str] = field(default_factory=list)
    ended: str | None = None  # budget or time


def subjects(cases: Iterable[Case | InputError], prepare: Prepare) -> Iterator[Subject]:
    """Make cases ready; only candidates with a label enter the pool, unless none has one."""
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
    """Made-up pools, which have no texts."""
    for pool in pools:
        pairs = zip(pool.entrants, pool.correct, strict=True)
        yield Subject(pool, None, {one.id: right for one, right in pairs})


def schedule(found: Sequence[Subject], plan: Plan) -> list[Subject]:
    """Cases in random order, each with its pairs, as many in all as the plan allows."""
    found = [_with_duels(subject, plan) for subject in found]
    found = [subject for subject in found if subject.probe_pairs]
    Random(f"diagnosis {plan.seed}").shuffle(found)
    most = max((len(subject.probe_pairs) for subject in found), default=0)
    share = min(plan.per_case, most)
    while share < most and sum(min(share, len(subject.probe_pairs)) for subject in found) < plan.pairs:
        share += 1
    chosen, left = [], plan.pairs
    for subject in found:
        probe_pairs = subject.probe_pairs[: min(share, left)]
        left -= len(probe_pairs)
        if probe_pairs:
            chosen.append(replace(subject, probe_pairs=probe_pairs))
    return chosen


def explain_nothing(found: Sequence[Subject], plan: Plan) -> str:
    """Why there is no pair to ask about, and the way out."""
    if plan.proxy:
        return "no case has two candidates with different answers: nothing can be compared"
    labels = [label for subject in found for label in subject.labels.values() if label is not None]
    if not labels:
        return (
            "no candidate carries a label (candidates[].correct: true or false; public tests alone give "
            "none), so nobody knows which verdicts are right: label some, or give --proxy for the agreement "
            "of E1 with E2, which is no accuracy"
        )
    kind = "right" if all(labels) else "wrong" if not any(labels) else "right, or all wrong, within each case"
    return (
        f"all labelled candidates are {kind}: there is no pair that the truth tells apart, so nothing can be "
        "learnt about the judge here; add cases with both right and wrong candidates"
    )


async def ask(
    runner: Runner, scheduled: Sequence[Subject], plan: Plan, *, watch: Callable[[Ruling], object] = id,
    advance: Callable[[int], object] = id,
) -> DiagnosisRun:  # fmt: skip
    """Have the pairs judged by the judge of a runner; `advance` hears how many more pairs are done."""
    asked, rule = DiagnosisRun(), StopRule(plan.precision)

    def source() -> Iterator[Case]:
        for subject in scheduled:
            if plan.stop and rule.settled:
                return
            assert subject.case is not None  # noqa: S101
            yield subject.case

    async with runner.session() as ready:
        asked.confidence = ready.confidence
        ready.engine.watch = watch
        strategies = PerCase([ProbePairs(subject.probe_pairs, plan.ratings) for subject in scheduled])
        async for outcome in in_order(ready.run(source(), strategies)):
            subject = scheduled[outcome.number]
            if outcome.failure is not None:
                asked.failures.append(f"case {outcome.name!r}: {outcome.failure}")
            looks = complete(list(_looks(subject, outcome, asked)), LOOKS_A_PAIR)
            answers = ((judged.ask, judged.ruling.answer) for judged in outcome.judged)
            _take(asked, rule, plan, looks, _rated(subject, answers))
            advance(len(subject.probe_pairs))
    return asked


def simulate(scheduled: Sequence[Subject], plan: Plan, model: JudgeModel) -> DiagnosisRun:
    """Have the pairs judged by the simulated judge."""
    judges = {
        pool.number: SimulatedJudge(model, pool.entrants, pool.correct, seed=plan.seed, case=pool.number)
        for pool in (subject.pool for subject in scheduled)
    }
    return watched(scheduled, plan, lambda pool, ask: judges[pool.number].answer(ask))


def watched(
    scheduled: Sequence[Subject], plan: Plan, answer: Callable[[LabelledPool, Ask], Answer]
) -> DiagnosisRun:
    """Have the pairs judged by a function of the pool and the ask."""
    asked, rule = DiagnosisRun(), StopRule(plan.precision)
    for subject in scheduled:
        if plan.stop and rule.settled:
            break
        asks: list[Ask] = [
            *asks_of(subject.probe_pairs),
            *(solos_of(subject.probe_pairs) if plan.ratings else ()),
        ]
        answers = [(ask, answer(subject.pool, ask)) for ask in asks]
        looks = [
            _look(subject, one, found)
            for one, found in answers
            if isinstance(one, Pairing) and isinstance(found, Verdict)
        ]
        _take(asked, rule, plan, complete(looks, LOOKS_A_PAIR), _rated(subject, answers))
    return asked


def _with_duels(subject: Subject, plan: Plan) -> Subject:
    entrants, rng = subject.pool.entrants, Random(f"pairs {plan.seed} {subject.pool.number}")
    everyone = len(entrants) ** 2
    if plan.proxy:
        answers = {one.id: one.signature or one.id for one in entrants}
        return replace(subject, probe_pairs=different(answers, everyone, rng))
    return replace(subject, probe_pairs=distinguished(subject.labels, everyone, rng))


def _take(
    asked: DiagnosisRun, rule: StopRule, plan: Plan, looks: list[Observation], rated: Iterable[Rated]
) -> None:
    """Add the looks of one more case; once it was settled they change nothing, so a rerun ends alike."""
    if plan.stop and rule.settled:
        asked.beyond += len(looks)
        return
    asked.looks += looks
    asked.rated += rated
    asked.cases += len(by_case(looks))
    if not plan.proxy:
        rule.hear(looks)


def _rated(subject: Subject, answers: Iterable[tuple[Ask, Answer]]) -> list[Rated]:
    """Ratings of both candidates of each pair, where both are there."""
    rating = {
        ask.entrant: answer.value
        for ask, answer in answers
        if isinstance(ask, Solo) and isinstance(answer, Rating)
    }
    return [
        Rated(subject.pool.number, rating[duel.one], rating[duel.other])
        for duel in subject.probe_pairs
        if duel.one in rating and duel.other in rating
    ]


def _looks(subject: Subject, outcome: Outcome, asked: DiagnosisRun) -> Iterator[Observation]:
    for judged in outcome.judged:
        pairing, ruling = judged.ask, judged.ruling
        if ruling.unanswered is not None:
            asked.unanswered += 1
            asked.ended = ruling.unanswered if ruling.unanswered in ("budget", "time") else asked.ended
        if isinstance(pairing, Pairing) and isinstance(ruling.answer, Verdict):
            first = ruling.attempts[0].usage.prompt if ruling.attempts else 0
            written = sum(attempt.usage.output for attempt in ruling.attempts)
            look = _look(subject, pairing, ruling.answer)
            yield replace(
                look,
                malformed=ruling.malformed is not None,
                attempts=len(ruling.attempts),
                tokens=first,
                output=written,
            )


def _look(subject: Subject, pairing: Pairing, verdict: Verdict) -> Observation:
    first = ProbePair(pairing.a, pairing.b) in subject.probe_pairs
    duel = ProbePair(pairing.a, pairing.b) if first else ProbePair(pairing.b, pairing.a)
    by_id: dict[int, Entrant] = {one.id: one for one in subject.pool.entrants}
    one, other = by_id[duel.one], by_id[duel.other]
    sizes = one.sizes[pairing.level], other.sizes[pairing.level]
    return Observation(
        case=subject.pool.number,
        one=duel.one,
        other=duel.other,
        level=pairing.level,
        first=first,
        verdict=verdict if first else verdict.swapped(),
        sizes=sizes,
        clusters=(one.signature or one.id, other.signature or other.id),
        tokens=subject.pool.overhead + sum(sizes),
    )


# The simulated judge that errs like a measured one, so that contests with it can be played for nothing.


NORMAL = NormalDist()
WIDEST = 4.0
MOST_SLOT = 0.8  # of the variance


def fitted(measured: JudgeMeasures) -> JudgeModel:
    """Accuracy and pull at each level, ties, confidence, and what lasts, as measured.

    The two bands are one number for both levels; what was not measured is as the model has it.
    """
    at_partial, at_full = measured.levels["E1"], measured.levels["E2"]
    model = JudgeModel(accuracy=cautious(at_full.accuracy), accuracy_partial=cautious(at_partial.accuracy))
    model = _with_repeats(model, measured)
    model = replace(
        model,
        position_bias=_pull(at_full, model, Level.FULL),
        position_bias_partial=_pull(at_partial, model, Level.PARTIAL),
    )
    ties = [one.ties.value for one in (at_partial, at_full) if one.ties]
    if ties:
        band = crossing(lambda width: _within(replace(model, tie_band=width), width), fmean(ties), 0, WIDEST)
        model = replace(model, tie_band=band)
    return _with_confidence(model, [at_partial, at_full])


def cautious(found: Estimate) -> float:
    """An accuracy with one case more that is right and one that is wrong: few cases prove little."""
    return _inside((found.value * found.cases + 1) / (found.cases + 2))


def _with_repeats(model: JudgeModel, measured: JudgeMeasures) -> JudgeModel:
    found = measured.repeats
    slot = min(MOST_SLOT, found.slot)
    whole = 1 / (1 - slot)  # measured shares are of all variance, those of the model of all but the slot's
    if found.lasting is not None:
        lasting, hardness = min(1.0, found.lasting * whole), min(1.0, found.hardness * whole)
        noise = min(model.noise, 1 - lasting)
        of_candidates = (found.own or 0.0) + (found.shared or 0.0)
        model = replace(
            model,
            noise=noise,
            order_noise=max(0.0, 1 - lasting - noise),
            hardness=min(hardness, lasting),
            pull_spread=math.sqrt(slot * whole),
            shared_bias=(found.shared or 0.0) / of_candidates if of_candidates else 0.0,
        )
    if found.carried is not None:
        kept = (1 - model.noise + model.pull_spread**2) / model.spread**2
        model = replace(model, carried=min(1.0, found.carried / kept))
    return model


def _pull(at_level: LevelMeasures, model: JudgeModel, level: Level) -> float:
    """The pull that was measured, in standard deviations of the model; the usual one if none was."""
    found = at_level.first_slot
    if found is None:
        return model.pull(level)
    return NORMAL.inv_cdf(_inside(found.value)) * model.spread


def _with_confidence(model: JudgeModel, levels: list[LevelMeasures]) -> JudgeModel:
    """The band and the noise at which as many verdicts are HIGH, and these as right, as was measured."""
    known = [one.confidence for one in levels if one.confidence.sure is not None]
    if not known:
        return model
    share = fmean(one.sure.value for one in known if one.sure is not None)
    split = [one for one in known if one.high is not None and one.low is not None]
    if split:
        wanted = fmean(one.high.value - one.low.value for one in split if one.high and one.low)
        # The noisier the judge's sense of a difference, the closer HIGH and LOW verdicts are.
        noise = crossing(
            lambda noise: -_confidence(_banded(replace(model, confidence_noise=noise), share))[1],
            -wanted,
            0.0,
            WIDEST,
            width=0.05,
        )
        model = replace(model, confidence_noise=noise)
    return _banded(model, share)


def _banded(model: JudgeModel, share: float) -> JudgeModel:
    """The model with a band at which this share of decided verdicts is HIGH."""

    def unsure(width: float) -> float:
        return 1 - _confidence(replace(model, high_band=width))[0]

    return replace(model, high_band=crossing(unsure, 1 - share, 0.0, WIDEST, width=0.01))


def _confidence(model: JudgeModel, steps: int = 60) -> tuple[float, float]:
    """Share of decided verdicts at E2 that are HIGH, and by how much more often these are right."""
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
    """Share of comparisons whose difference is smaller than a width, over both levels and orders."""
    wide = model.spread
    centres = [model.gap(level) + side * model.pull(level) for level in LEVELS for side in (1, -1)]
    return fmean(NORMAL.cdf((width - c) / wide) - NORMAL.cdf((-width - c) / wide) for c in centres)


def _inside(share: float) -> float:
    """A share the model takes: certainty is never measured."""
    return min(0.99, max(0.02, share))


# What a synthetic judge is worth, measured the way a real one is: from pairs it has judged.


PROBLEMS, PAIRS = 200, 800
SEED = 90210  # of problems that nobody is measured on


@lru_cache(maxsize=64)
def estimated(model: JudgeModel, *, pairs: int = PAIRS, seed: int = SEED) -> JudgeProfile:
    """The profile `caps diagnose` would save, from pairs of made-up problems; a function of its arguments."""
    pools = generated_pools(PoolModel(kind="math", solve_rate=0.45), PROBLEMS, seed)
    plan = Plan(pairs=pairs, stop=False, seed=seed)
    looks = simulate(schedule(list(of_pools(pools)), plan), plan, model).looks
    profile, _ = profile_of(looks, measure(looks, probabilities=False))
    return profile
