"""Calibration: the judge and the votes are fitted on the first cases of a run, then frozen."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar, cast

from caps.core.errors import SettingError
from caps.core.judge_profile import JudgeProfile
from caps.core.play import Play, compare
from caps.core.settings import override, settings_of
from caps.core.types import Case, Entrant, Level, Pairing, Selection, Verdict
from caps.costs.ledger import Ledger
from caps.engines.base import Engine, Outcome, PerCase, in_order
from caps.judging.base import EXHAUSTED
from caps.judging.profiles import NAMES, profile_fields, with_profile
from caps.statistics.judge_measures import Learned, learn
from caps.statistics.observations import (
    Ballot,
    Observation,
    Strengths,
    fit_strengths,
)
from caps.strategies.belief import (
    OPEN_VOTES,
    count_votes,
    deviations,
    shortfalls,
    surer_in_pool_of,
    votes_for,
)
from caps.strategies.dedup import clusters, middling
from caps.strategies.posterior import Posterior, beliefs

# The questions of a calibration: a few pairs of a right and a wrong candidate per case
#
# They are chosen before any reply and asked at both levels, the first of them in both orders. This shows how
# often the judge is right, and how far slot A pulls.


LEVELS = (Level.PARTIAL, Level.FULL)
STAGE = "calibration"


@dataclass(frozen=True, slots=True)
class Probe:
    """A strategy that asks the questions of a calibration about a case in one round and makes no choice.

    `labels` says of each candidate whether it is right, where that is known.
    """

    believer: Posterior
    labels: tuple[bool | None, ...]

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Ask; members are drawn as `posterior` draws them, so that it finds its first questions answered."""
        luck = {one.id: rng.random() for one in entrants}
        pairs = _pairs(self._answers(entrants, luck), flip=rng.random() < 0.5)
        order = tuple(one.id for one in entrants)
        asks = [Pairing(a, b, level) for a, b in pairs for level in LEVELS]
        yield from compare(STAGE, asks, ranking=order)
        return Selection(order[0], order)

    def _answers(self, entrants: Sequence[Entrant], luck: Mapping[int, float]) -> list[list[int]]:
        """Right members of an answer, then wrong ones of others, likeliest first; nothing without both."""
        odds = beliefs(self.believer, entrants, ())[0]
        members = [middling(group, luck) for group in clusters(entrants)]
        members.sort(key=lambda ids: (-round(odds[ids[0]], 9), luck[ids[0]]))
        for place, ids in enumerate(members):
            right = [one for one in ids if self.labels[one] is True]
            others = members[:place] + members[place + 1 :]
            wrong = [own for ids in others if (own := [one for one in ids if self.labels[one] is False])]
            if right and wrong:
                return [right, *wrong]
        return []


def observations_of(
    probe: Probe, entrants: Sequence[Entrant], asked: Sequence[tuple[Pairing, Verdict]], case: int
) -> list[Observation]:
    """Verdicts on a probe's pairs, seen from the right candidate."""
    sizes = {one.id: one.sizes for one in entrants}
    observations = []
    for ask, verdict in asked:
        first = probe.labels[ask.a] is True
        right, wrong = (ask.a, ask.b) if first else (ask.b, ask.a)
        observations.append(
            Observation(
                case=case,
                one=right,
                other=wrong,
                level=ask.level,
                first=first,
                verdict=verdict if first else verdict.swapped(),
                sizes=(sizes[right][ask.level], sizes[wrong][ask.level]),
            )
        )
    return observations


def ballot_of(probe: Probe, entrants: Sequence[Entrant]) -> Ballot | None:
    """How the candidates of a case vote and which answers are right, if every label is known."""
    groups, believer = clusters(entrants), probe.believer
    if any(probe.labels[one.id] is None for one in entrants):
        return None
    plain = replace(believer, votes=0.0, tests=0.0, feature_weight=0.0)
    exclusive = believer.exclusive(groups)
    return Ballot(
        votes=tuple(map(votes_for, groups)),
        besides=tuple(plain.prior(groups)),
        right=tuple(any(probe.labels[one.id] for one in group) for group in groups),
        failed=tuple(shortfalls(groups, "tests_passed")),
        feature=tuple(deviations(groups, believer.feature)),
        power=1.0 if exclusive else OPEN_VOTES,
        surer=surer_in_pool_of(count_votes(groups)),
        exclusive=exclusive,
    )


def _pairs(answers: Sequence[Sequence[int]], *, flip: bool) -> Iterator[tuple[int, int]]:
    """Pairs to compare, slot A first."""
    if len(answers) < 2:
        return
    lead, rival, *rest = answers
    yield lead[0], rival[0]
    yield rival[0], lead[0]
    further = [(lead[min(1, len(lead) - 1)], rival[min(1, len(rival) - 1)])]
    further = further if len(lead) > 1 or len(rival) > 1 else []
    further += [(lead[-1], rest[0][0])] if rest else []
    for a, b in further:
        yield (b, a) if flip else (a, b)
        flip = not flip


T = TypeVar("T")
LEAST_LABELLED = 30  # cases; strengths of votes fitted to fewer make the probability worse


@dataclass(frozen=True, slots=True)
class ProbedCase:
    """A case with the answers to its probe."""

    probe: Probe
    entrants: Sequence[Entrant]
    asked: Sequence[tuple[Pairing, Verdict]]
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The result of a calibration: the judge's profile, the strength of votes if labels show it, the cost."""

    learned: Learned
    strengths: Mapping[str, float | bool] = field(default_factory=dict)
    labelled: int = 0
    ledger: Ledger = field(default_factory=Ledger)

    def inform(self, strategy: T, name: str, changes: Mapping[str, str]) -> T:
        """The strategy with all that was learnt and that it has a field for; what a user set stays so."""
        informed = with_profile(strategy, self.learned.profile, name)
        known = {field: x for field, x in self.strengths.items() if field in settings_of(strategy)}
        wiser: T = replace(cast(Any, informed), **known)
        return override(wiser, changes)


def believer_of(strategy: object, name: str) -> Posterior:
    """The strategy that estimates prior probabilities of answers, with the judge profile of a strategy."""
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
    """The probe of a case."""
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
    """Have the probes of some cases answered and fit a calibration; nothing is fitted if a limit ended it."""
    probes = [probe_of(case, believer) for case in cases]
    ledger, probed = Ledger(), list[ProbedCase]()
    async for outcome in in_order(engine.run(cases, PerCase(probes), seed=seed)):
        ledger.add(outcome.ledger)
        if outcome.prepared is not None and outcome.failure is None:
            entrants = outcome.prepared.evidence.entrants
            probed.append(ProbedCase(probes[outcome.number], entrants, _asked(outcome), outcome.number))
        advance()
    found = replace(conclude(probed, believer, fixed=fixed), ledger=ledger)
    ended = next((cause for cause in EXHAUSTED if ledger.unanswered[cause]), None)
    if ended is None:
        return found
    silent = replace(
        found.learned,
        profile=_assumed(believer),
        assumed=tuple(sorted(NAMES)),
        silent=f"the {ended} ended before all its questions were answered",
    )
    return replace(found, learned=silent, strengths={})


def conclude(
    probed: Sequence[ProbedCase], believer: Posterior, *, fixed: Collection[str] = ()
) -> Calibration:
    """Fit what votes, tests and the feature are worth, where labels show it and no user set it; the judge."""
    ballots = [ballot for case in probed if (ballot := ballot_of(case.probe, case.entrants)) is not None]
    found = dict[str, float | bool]()
    if len(ballots) >= LEAST_LABELLED:
        start = Strengths(*(getattr(believer, name) for name in Strengths._fields))
        fitted = fit_strengths(ballots, start, {*fixed, *(() if believer.feature else ("feature_weight",))})
        found = {name: round(value, 4) for name, value in fitted.items()} | {"calibrated": True}
    observations = [
        obs for case in probed for obs in observations_of(case.probe, case.entrants, case.asked, case.number)
    ]
    labelled = sum(any(label is not None for label in case.probe.labels) for case in probed)
    return Calibration(learned=learn(observations, _assumed(believer)), strengths=found, labelled=labelled)


def _assumed(believer: Posterior) -> JudgeProfile:
    return JudgeProfile(**{name: getattr(believer, name) for name in NAMES})


def _asked(outcome: Outcome) -> list[tuple[Pairing, Verdict]]:
    return [
        (judged.ask, judged.ruling.answer)
        for judged in outcome.judged
        if isinstance(judged.ask, Pairing) and isinstance(judged.ruling.answer, Verdict)
    ]
