"""Diagnosis of a judge: pairs are chosen and judged until its quality is settled."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
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
from caps.engines.base import Outcome, PerCase, Prepare, in_order
from caps.judging.base import Ruling
from caps.judging.simulated import JudgeModel, SimulatedJudge
from caps.runner import Runner
from caps.statistics.judge_measures import LEVELS, JudgeMeasures, StopRule, measure, profile_of
from caps.statistics.observations import Observation, by_case, complete
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

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:  # noqa: ARG002
        """Ask; the order that stands is the order of sampling."""
        order = tuple(entrant.id for entrant in entrants)
        yield from compare("diagnosis", asks_of(self.pairs), ranking=order)
        return Selection(order[0], order)


def asks_of(pairs: Iterable[ProbePair]) -> list[Pairing]:
    """Both levels and both orders of each pair; who sits in A first takes turns."""
    asks = []
    for place, pair in enumerate(pairs):
        level_models = [(pair.one, pair.other), (pair.other, pair.one)]
        for a, b in level_models if place % 2 == 0 else reversed(level_models):
            asks += [Pairing(a, b, Level.PARTIAL), Pairing(a, b, Level.FULL)]
    return asks


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

    pairs: int = setting(100, "pairs at most; each is asked at E1 and E2, in both orders", least=1)
    per_case: int = setting(3, "pairs of a case, more where there are too few cases", least=1)
    stop: bool = setting(True, "stop as soon as both levels have their answer")  # noqa: FBT003
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
    asked, rule = DiagnosisRun(), StopRule()

    def source() -> Iterator[Case]:
        for subject in scheduled:
            if plan.stop and rule.settled:
                return
            assert subject.case is not None  # noqa: S101
            yield subject.case

    async with runner.session() as ready:
        asked.confidence = ready.confidence
        ready.engine.watch = watch
        strategies = PerCase([ProbePairs(subject.probe_pairs) for subject in scheduled])
        async for outcome in in_order(ready.run(source(), strategies)):
            subject = scheduled[outcome.number]
            if outcome.failure is not None:
                asked.failures.append(f"case {outcome.name!r}: {outcome.failure}")
            _take(asked, rule, plan, complete(list(_looks(subject, outcome, asked)), LOOKS_A_PAIR))
            advance(len(subject.probe_pairs))
    return asked


def simulate(scheduled: Sequence[Subject], plan: Plan, model: JudgeModel) -> DiagnosisRun:
    """Have the pairs judged by the synthetic judge."""
    asked, rule = DiagnosisRun(), StopRule()
    for subject in scheduled:
        if plan.stop and rule.settled:
            break
        pool = subject.pool
        judge = SimulatedJudge(model, pool.entrants, pool.correct, seed=plan.seed, case=pool.number)
        looks = []
        for pairing in asks_of(subject.probe_pairs):
            verdict = judge.answer(pairing)
            assert isinstance(verdict, Verdict)  # noqa: S101
            looks.append(_look(subject, pairing, verdict))
        _take(asked, rule, plan, looks)
    return asked


def _with_duels(subject: Subject, plan: Plan) -> Subject:
    entrants, rng = subject.pool.entrants, Random(f"pairs {plan.seed} {subject.pool.number}")
    everyone = len(entrants) ** 2
    if plan.proxy:
        answers = {one.id: one.signature or one.id for one in entrants}
        return replace(subject, probe_pairs=different(answers, everyone, rng))
    return replace(subject, probe_pairs=distinguished(subject.labels, everyone, rng))


def _take(asked: DiagnosisRun, rule: StopRule, plan: Plan, looks: list[Observation]) -> None:
    """Add the looks of one more case; once it was settled they change nothing, so a rerun ends alike."""
    if plan.stop and rule.settled:
        asked.beyond += len(looks)
        return
    asked.looks += looks
    asked.cases += len(by_case(looks))
    if not plan.proxy:
        rule.hear(looks)


def _looks(subject: Subject, outcome: Outcome, asked: DiagnosisRun) -> Iterator[Observation]:
    for judged in outcome.judged:
        pairing, ruling = judged.ask, judged.ruling
        if ruling.unanswered is not None:
            asked.unanswered += 1
            asked.ended = ruling.unanswered if ruling.unanswered in ("budget", "time") else asked.ended
        if isinstance(pairing, Pairing) and isinstance(ruling.answer, Verdict):
            first = ruling.attempts[0].usage.prompt if ruling.attempts else 0
            look = _look(subject, pairing, ruling.answer)
            yield replace(
                look, malformed=ruling.malformed is not None, attempts=len(ruling.attempts), tokens=first
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


# The synthetic judge that errs like a measured one, so that contests with it can be played for nothing.


NORMAL = NormalDist()
WIDEST = 4.0


def fitted(measured: JudgeMeasures) -> JudgeModel:
    """Accuracy at both levels, the pull of slot A, ties, confidence and lasting errors, as measured.

    The pull and the two bands are one number for both levels, what was not measured is as the model has it.
    """
    at_partial, at_full = measured.levels["E1"], measured.levels["E2"]
    model = JudgeModel(
        accuracy=_inside(at_full.accuracy.value), accuracy_partial=_inside(at_partial.accuracy.value)
    )
    if measured.first_slot is not None:
        model = replace(model, position_bias=NORMAL.inv_cdf(_inside(measured.first_slot.value)))
    found = measured.repeats
    if found.own is not None:
        lasting = found.own + (found.shared or 0.0)
        share = (found.shared or 0.0) / lasting if lasting else 0.0
        model = replace(model, noise=1 - lasting, shared_bias=share)
    ties = [one.ties.value for one in (at_partial, at_full) if one.ties]
    sure = [one.confidence.sure.value for one in (at_partial, at_full) if one.confidence.sure]
    if ties:
        band = _rising(lambda width: _within(replace(model, tie_band=width), width), fmean(ties))
        model = replace(model, tie_band=band)
    if sure:
        unsure = _decided(model) * (1 - fmean(sure)) + _within(model, model.tie_band)
        model = replace(model, high_band=_rising(lambda width: _within(model, width), unsure))
    return model


def _decided(model: JudgeModel) -> float:
    return 1 - _within(model, model.tie_band)


def _within(model: JudgeModel, width: float) -> float:
    """Share of comparisons whose difference is smaller than a width, over both levels and orders."""
    centres = [model.gap(Level(level)) + side * model.position_bias for level in LEVELS for side in (1, -1)]
    return fmean(NORMAL.cdf(width - centre) - NORMAL.cdf(-width - centre) for centre in centres)


def _rising(function: Callable[[float], float], wanted: float) -> float:
    """Where a rising function takes a value, from 0 to the widest band."""
    low, high = 0.0, WIDEST
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < wanted else (low, middle)
    return (low + high) / 2


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
