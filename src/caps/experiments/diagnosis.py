"""A diagnosis: choose pairs, and have them judged until it is settled what the judge is worth."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from caps.core.counting import estimate_tokens
from caps.core.errors import InputError
from caps.core.settings import check_settings, setting
from caps.core.types import Case, Entrant, Pairing, Verdict
from caps.diagnostics.looks import Look, by_case, complete
from caps.diagnostics.measured import StopRule
from caps.engines.base import Outcome, PerCase, Prepare, in_order
from caps.experiments.duels import LOOKS_A_PAIR, Duel, Duels, asks_of, different, told_apart
from caps.experiments.pools import INSTRUCTION_TOKENS, LabelledPool
from caps.judges.base import Ruling
from caps.judges.simulated import JudgeModel, SimulatedJudge
from caps.runner import Runner


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
    duels: tuple[Duel, ...] = ()


@dataclass(slots=True)
class Asked:
    """What came of a run; `looks` holds pairs answered in full, up to where it was settled."""

    looks: list[Look] = field(default_factory=list)
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
        entrants = prepare(case).described.entrants
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
    found = [subject for subject in found if subject.duels]
    Random(f"diagnosis {plan.seed}").shuffle(found)
    most = max((len(subject.duels) for subject in found), default=0)
    share = min(plan.per_case, most)
    while share < most and sum(min(share, len(subject.duels)) for subject in found) < plan.pairs:
        share += 1
    chosen, left = [], plan.pairs
    for subject in found:
        duels = subject.duels[: min(share, left)]
        left -= len(duels)
        if duels:
            chosen.append(replace(subject, duels=duels))
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
) -> Asked:  # fmt: skip
    """Have the pairs judged by the judge of a runner; `advance` hears how many more pairs are done."""
    asked, rule = Asked(), StopRule()

    def source() -> Iterator[Case]:
        for subject in scheduled:
            if plan.stop and rule.settled:
                return
            assert subject.case is not None  # noqa: S101
            yield subject.case

    async with runner.session() as ready:
        asked.confidence = ready.confidence
        ready.engine.watch = watch
        strategies = PerCase([Duels(subject.duels) for subject in scheduled])
        async for outcome in in_order(ready.run(source(), strategies)):
            subject = scheduled[outcome.number]
            if outcome.failure is not None:
                asked.failures.append(f"case {outcome.name!r}: {outcome.failure}")
            _take(asked, rule, plan, complete(list(_looks(subject, outcome, asked)), LOOKS_A_PAIR))
            advance(len(subject.duels))
    return asked


def simulate(scheduled: Sequence[Subject], plan: Plan, model: JudgeModel) -> Asked:
    """Have the pairs judged by the synthetic judge."""
    asked, rule = Asked(), StopRule()
    for subject in scheduled:
        if plan.stop and rule.settled:
            break
        pool = subject.pool
        judge = SimulatedJudge(model, pool.entrants, pool.correct, seed=plan.seed, case=pool.number)
        looks = []
        for pairing in asks_of(subject.duels):
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
        return replace(subject, duels=different(answers, everyone, rng))
    return replace(subject, duels=told_apart(subject.labels, everyone, rng))


def _take(asked: Asked, rule: StopRule, plan: Plan, looks: list[Look]) -> None:
    """Add the looks of one more case; once it was settled they change nothing, so a rerun ends alike."""
    if plan.stop and rule.settled:
        asked.beyond += len(looks)
        return
    asked.looks += looks
    asked.cases += len(by_case(looks))
    if not plan.proxy:
        rule.hear(looks)


def _looks(subject: Subject, outcome: Outcome, asked: Asked) -> Iterator[Look]:
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


def _look(subject: Subject, pairing: Pairing, verdict: Verdict) -> Look:
    first = Duel(pairing.a, pairing.b) in subject.duels
    duel = Duel(pairing.a, pairing.b) if first else Duel(pairing.b, pairing.a)
    by_id: dict[int, Entrant] = {one.id: one for one in subject.pool.entrants}
    one, other = by_id[duel.one], by_id[duel.other]
    sizes = one.sizes[pairing.level], other.sizes[pairing.level]
    return Look(
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
