"""The pull of slot A, and how much of the errors come back, where the truth is known by its odds only.

Both are what is left to explain once a judge's chances are known: how often slot A wins when both orders are
asked, and how much more often than they should two looks at the same candidates, or at others with the same
answers, rule alike. Few looks leave the profile one starts from as it was.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import NormalDist

from caps.core.judging import JudgeProfile
from caps.core.types import Level
from caps.diagnostics.latent import Weighed
from caps.diagnostics.looks import by_case
from caps.diagnostics.repeats import Link, both_right, link_of, solve

NORMAL = NormalDist()
SLOT_CASES = 10.0  # imagined cases behind the pull
LINKS = 20.0  # imagined links behind each of the two shares of lasting errors
SAME_PAIR, SAME_ANSWERS = (2, 0), (0, 2)
Gaps = Mapping[Level, float]
Group = tuple[Level, bool, bool]  # of two looks: their level, and whether the one sat in A in each


def gaps_of(profile: JudgeProfile) -> dict[Level, float]:
    """How far right lies from wrong at each level, in standard deviations of a verdict."""
    accuracy = {
        Level.PARTIAL: profile.e1_sure * profile.e1_high + (1 - profile.e1_sure) * profile.e1_low,
        Level.FULL: profile.e2_sure * profile.e2_high + (1 - profile.e2_sure) * profile.e2_low,
    }
    return {level: NORMAL.inv_cdf(min(0.99, max(0.01, share))) for level, share in accuracy.items()}


def first_slot(weighed: Sequence[Weighed], start: JudgeProfile, gaps: Gaps) -> float:
    """Share of verdicts slot A would get between equals; a tie counts half."""
    if not weighed:
        return start.first_slot
    seen = sum(one.look.outcome if one.look.first else 1 - one.look.outcome for one in weighed)

    def expected(pull: float) -> float:
        return sum(_wins(one, gaps[one.look.level], pull) for one in weighed)

    cases = len({one.look.case for one in weighed})
    share = NORMAL.cdf(_rising(expected, seen, 3.0))
    return (cases * share + SLOT_CASES * start.first_slot) / (cases + SLOT_CASES)


def lasting(
    weighed: Sequence[Weighed], start: JudgeProfile, gaps: Gaps, slot: float
) -> tuple[float, float, int]:
    """`repeats` and `shared`, and how many pairs of looks tell them."""
    pull, odds = NORMAL.inv_cdf(min(0.99, max(0.01, slot))), {id(one.look): one for one in weighed}
    linked: dict[Link, list[tuple[Weighed, Weighed]]] = defaultdict(list)
    for own in by_case([one.look for one in weighed if one.look.decided]):
        for one, two in combinations(own, 2):
            link = link_of(one, two)
            if one.level == two.level and link != (0, 0):
                linked[link].append((odds[id(one)], odds[id(two)]))
    rows = [(link, _correlation(both, gaps, pull), float(len(both))) for link, both in linked.items()]
    before = [
        (SAME_PAIR, min(1.0, start.repeats + start.shared), LINKS),
        (SAME_ANSWERS, start.shared, LINKS),
    ]
    both, shared = solve([*rows, *before])
    assert both is not None and shared is not None  # noqa: S101, PT018 - the imagined links see to that
    both = min(1.0, max(0.0, both))
    shared = min(both, max(0.0, shared))
    return both - shared, shared, sum(len(found) for found in linked.values())


def _wins(one: Weighed, gap: float, pull: float) -> float:
    """Chance that slot A wins a look."""
    a, b = (one.one, one.other) if one.look.first else (one.other, one.one)
    return a * NORMAL.cdf(gap + pull) + b * NORMAL.cdf(pull - gap) + (1 - a - b) * NORMAL.cdf(pull)


def _correlation(pairs: Sequence[tuple[Weighed, Weighed]], gaps: Gaps, pull: float) -> float:
    """Correlation of errors at which two looks rule alike as often as they do."""
    alike, groups = 0, defaultdict[Group, list[float]](lambda: [0.0, 0.0, 0.0])
    for one, two in pairs:
        alike += one.look.outcome == two.look.outcome
        chances = groups[one.look.level, one.look.first, two.look.first]
        right, wrong = (one.one + two.one) / 2, (one.other + two.other) / 2
        for state, chance in enumerate((right, wrong, 1 - right - wrong)):
            chances[state] += chance

    def expected(correlation: float) -> float:
        return sum(
            chance * _alike(sign * gaps[level], (first, second), pull, correlation)
            for (level, first, second), found in groups.items()
            for sign, chance in zip((1, -1, 0), found, strict=True)
            if chance
        )

    return _rising(expected, alike, 0.99)


def _alike(lean: float, seats: tuple[bool, bool], pull: float, correlation: float) -> float:
    h, k = (lean + (pull if first else -pull) for first in seats)
    return both_right(h, k, correlation) + both_right(-h, -k, correlation)


def _rising(function: Callable[[float], float], wanted: float, widest: float) -> float:
    """Where a rising function takes a value."""
    low, high = -widest, widest
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < wanted else (low, middle)
    return (low + high) / 2
