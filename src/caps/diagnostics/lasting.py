"""The pull of slot A, and how much of the errors come back, where the truth is known by its odds only.

Both are what is left to explain once a judge's chances are known: how often slot A wins when both orders are
asked, and how much oftener than they should two looks at the same candidates, or at others with the same
answers, rule alike. Few looks leave the profile one started from much as it was.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import NormalDist

from caps.core.judging import JudgeProfile
from caps.core.types import Level
from caps.diagnostics.latent import LEVELS, Weighed
from caps.diagnostics.repeats import Link, both_right, link_of, solve
from caps.diagnostics.searching import crossing

NORMAL = NormalDist()
SLOT_CASES = 10.0  # imagined cases behind the pull
LASTING_CASES = 25.0  # imagined cases behind each of the two shares of lasting errors
SAME_PAIR, SAME_ANSWERS = (2, 0), (0, 2)
WIDEST_PULL, WIDEST_GAP, CLOSEST = 3.0, 1.65, 0.99
Gaps = Mapping[Level, float]
Linked = dict[Link, list[tuple[Weighed, Weighed]]]


def gaps_of(profile: JudgeProfile) -> dict[Level, float]:
    """How far right lies from wrong at each level, in standard deviations of a verdict."""
    accuracy = {
        Level.PARTIAL: profile.e1_sure * profile.e1_high + (1 - profile.e1_sure) * profile.e1_low,
        Level.FULL: profile.e2_sure * profile.e2_high + (1 - profile.e2_sure) * profile.e2_low,
    }
    return {level: _quantile(share) for level, share in accuracy.items()}


def first_slot(weighed: Sequence[Weighed], start: JudgeProfile, gaps: Gaps) -> float:
    """Share of verdicts slot A would get between equals; a tie counts half."""
    if not weighed:
        return start.first_slot
    seen = sum(one.look.outcome if one.look.first else 1 - one.look.outcome for one in weighed)

    def expected(pull: float) -> float:
        return sum(_wins(one, gaps[one.look.level], pull) for one in weighed)

    share = NORMAL.cdf(crossing(expected, seen, -WIDEST_PULL, WIDEST_PULL))
    cases = len({one.look.case for one in weighed})
    return (cases * share + SLOT_CASES * start.first_slot) / (cases + SLOT_CASES)


def links_of(weighed: Sequence[Weighed]) -> Linked:
    """Decided looks of a case and level at the same two answers, two by two, by what they have in common."""
    cases: dict[tuple[int, Level], list[Weighed]] = defaultdict(list)
    for one in weighed:
        if one.look.decided:
            cases[one.look.case, one.look.level].append(one)
    linked: Linked = defaultdict(list)
    for own in cases.values():
        for one, two in combinations(own, 2):
            link = link_of(one.look, two.look)
            if sum(link) == len(link):
                linked[link].append((one, two))
    return linked


def lasting(
    weighed: Sequence[Weighed], linked: Linked, start: JudgeProfile, slot: float
) -> tuple[float, float]:
    """`repeats` and `shared`: least squares over the correlations of linked looks and the imagined ones.

    Looks rule alike beyond what the gaps explain that are seen here, not those that a cautious fit states.
    """
    pull = _quantile(slot)
    seen = {level: _gap(weighed, level, pull) for level in LEVELS}
    rows = [
        (link, _correlation(pairs, seen, pull), float(len({one.look.case for one, _ in pairs})))
        for link, pairs in linked.items()
    ]
    rows += [
        (SAME_PAIR, min(1.0, start.repeats + start.shared), LASTING_CASES),
        (SAME_ANSWERS, start.shared, LASTING_CASES),
    ]
    both, shared = (min(1.0, max(0.0, found or 0.0)) for found in solve(rows))
    return max(0.0, both - shared), min(both, shared)


def _gap(weighed: Sequence[Weighed], level: Level, pull: float) -> float:
    """The gap that explains how often the likelier one is preferred at a level."""
    own = [one for one in weighed if one.look.level == level and one.look.decided]
    seen = sum(one.lead * one.look.outcome for one in own)

    def expected(gap: float) -> float:
        return sum(
            one.lead * (wins if one.look.first else 1 - wins)
            for one in own
            for wins in [_wins(one, gap, pull)]
        )

    return crossing(expected, seen, -WIDEST_GAP, WIDEST_GAP) if own else 0.0


def _wins(one: Weighed, gap: float, pull: float) -> float:
    """Chance that slot A wins a look."""
    a, b = (one.one, one.other) if one.look.first else (one.other, one.one)
    return a * NORMAL.cdf(gap + pull) + b * NORMAL.cdf(pull - gap) + (1 - a - b) * NORMAL.cdf(pull)


def _correlation(pairs: Sequence[tuple[Weighed, Weighed]], gaps: Gaps, pull: float) -> float:
    """Correlation of errors at which two looks rule alike as often as they do."""
    alike = 0
    states: dict[tuple[float, float, float], float] = defaultdict(float)  # lean, pull on each: how many
    for one, two in pairs:
        alike += one.look.outcome == two.look.outcome
        gap, pulls = gaps[one.look.level], [pull if each.look.first else -pull for each in (one, two)]
        right, wrong = (one.one + two.one) / 2, (one.other + two.other) / 2
        for lean, chance in ((gap, right), (-gap, wrong), (0.0, 1 - right - wrong)):
            states[lean, pulls[0], pulls[1]] += chance

    def expected(correlation: float) -> float:
        return sum(
            chance * _alike(lean + here, lean + there, correlation)
            for (lean, here, there), chance in states.items()
        )

    return crossing(expected, alike, 0.0, CLOSEST)


def _alike(h: float, k: float, correlation: float) -> float:
    return both_right(h, k, correlation) + both_right(-h, -k, correlation)


def _quantile(share: float) -> float:
    return NORMAL.inv_cdf(min(0.99, max(0.01, share)))
