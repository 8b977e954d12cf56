"""A calibration: what a judge, and a vote, is worth is fitted on the first cases, and frozen for all."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from caps.core.errors import SettingError
from caps.core.judging import JudgeProfile
from caps.core.settings import override, settings_of
from caps.core.types import Case, Entrant, Pairing, Verdict
from caps.costs.ledger import Ledger
from caps.diagnostics.ballots import strengths
from caps.diagnostics.learnt import LEAST_CASES, Learnt, learn
from caps.engines.base import ENDED, Engine, Outcome, PerCase, in_order
from caps.experiments.probes import Probe, ballot_of, weigh_looks
from caps.judges.profiles import NAMES, profile_fields, with_profile
from caps.strategies.posterior import Posterior

T = TypeVar("T")
STRENGTHS = ("votes", "nobody")


@dataclass(frozen=True, slots=True)
class Probed:
    """A case with the answers to its probe."""

    probe: Probe
    entrants: Sequence[Entrant]
    asked: Sequence[tuple[Pairing, Verdict]]
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What came of it: the judge's profile, the worth of votes where labels show it, and what it took."""

    learnt: Learnt
    strengths: Mapping[str, float] = field(default_factory=dict)
    labelled: int = 0
    ledger: Ledger = field(default_factory=Ledger)

    def inform(self, strategy: T, name: str, changes: Mapping[str, str]) -> T:
        """The strategy with all that was learnt and that it has a field for; what a user set stays so."""
        informed = with_profile(strategy, self.learnt.profile, name)
        known = {field: x for field, x in self.strengths.items() if field in settings_of(strategy)}
        wiser: T = replace(cast(Any, informed), **known)
        return override(wiser, changes)


def believer_of(strategy: object, name: str) -> Posterior:
    """Who weighs the answers of a case before anyone is asked, with what a strategy assumes of the judge."""
    shared = profile_fields(strategy)
    if not shared:
        raise SettingError(
            f"strategy {name!r} does not use a judge profile, so --calibrate has nothing to fit for it: "
            "leave it out, or choose --strategy posterior"
        )
    if isinstance(strategy, Posterior):
        return strategy
    return Posterior(**{field: getattr(strategy, field) for field in shared})


def probe_of(case: Case, believer: Posterior) -> Probe:
    """What is asked of a case."""
    return Probe(believer, tuple(one.correct for one in case.candidates))


async def calibrate(
    engine: Engine,
    cases: Sequence[Case],
    believer: Posterior,
    *,
    seed: int,
    fixed: Collection[str] = (),
    advance: Callable[[], object] = lambda: None,
) -> Calibration:
    """Have the probes of some cases answered and learn from them; without all answers, nothing is learnt."""
    probes = [probe_of(case, believer) for case in cases]
    ledger, probed = Ledger(), list[Probed]()
    async for outcome in in_order(engine.run(cases, PerCase(probes), seed=seed)):
        ledger.add(outcome.ledger)
        if outcome.bout is not None and outcome.failure is None:
            entrants = outcome.bout.described.entrants
            probed.append(Probed(probes[outcome.number], entrants, _asked(outcome), outcome.number))
        advance()
    found = replace(conclude(probed, believer, fixed=fixed), ledger=ledger)
    ended = next((cause for cause in ENDED if ledger.unanswered[cause]), None)
    if ended is None:
        return found
    silent = replace(
        found.learnt,
        profile=_assumed(believer),
        assumed=tuple(sorted(NAMES)),
        silent=f"the {ended} ended before all its questions were answered",
    )
    return replace(found, learnt=silent, strengths={})


def conclude(probed: Sequence[Probed], believer: Posterior, *, fixed: Collection[str] = ()) -> Calibration:
    """Fit what votes are worth, where labels tell and nobody fixed it; then the judge."""
    ballots = [ballot for one in probed if (ballot := ballot_of(one.probe, one.entrants)) is not None]
    found: dict[str, float] = {}
    if len(ballots) >= LEAST_CASES and not set(fixed) & set(STRENGTHS):
        fitted = strengths(ballots, believer.votes, believer.nobody)
        found = {name: round(x, 4) for name, x in zip(STRENGTHS, fitted, strict=True)}
    wiser: Posterior = replace(cast(Any, believer), **found)
    weighed = [
        look
        for one in probed
        for look in weigh_looks(replace(one.probe, believer=wiser), one.entrants, one.asked, one.number)
    ]
    labelled = sum(any(label is not None for label in one.probe.labels) for one in probed)
    return Calibration(learnt=learn(weighed, _assumed(believer)), strengths=found, labelled=labelled)


def _assumed(believer: Posterior) -> JudgeProfile:
    return JudgeProfile(**{name: getattr(believer, name) for name in NAMES})


def _asked(outcome: Outcome) -> list[tuple[Pairing, Verdict]]:
    return [
        (judged.ask, judged.ruling.answer)
        for judged in outcome.judged
        if isinstance(judged.ask, Pairing) and isinstance(judged.ruling.answer, Verdict)
    ]
