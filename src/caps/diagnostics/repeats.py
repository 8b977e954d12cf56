"""How much of a judge's errors come back: with the candidate, whoever it meets, and with its answer.

A verdict is taken for the sign of a difference of two beliefs plus fresh noise (as in `judges.simulated`).
Two verdicts on pairs that share a candidate then correlate by half of what lasts, two whose candidates only
share an answer by half of what answers share. The correlations are tetrachoric, from how often both verdicts
are right. That a case is hard for all its pairs counts as lasting too.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist, fmean

from caps.diagnostics.looks import Look, by_case

NORMAL = NormalDist()
LEAST_LINKS = 40  # fewer pairs of verdicts say nothing about a correlation
STEPS = 24
Link = tuple[int, int]  # sides with the same candidate, sides with the same answer only


@dataclass(frozen=True, slots=True)
class Repeats:
    """Shares of the variance of a comparison: what a candidate keeps to itself, what its answer shares.

    None is not measured; `links` counts the pairs of verdicts behind it.
    """

    own: float | None
    shared: float | None
    links: int


def repeats(looks: Sequence[Look]) -> Repeats:
    """Fit both shares to the correlations of linked verdicts: least squares, weighted by their number."""
    linked: dict[Link, list[tuple[Look, Look]]] = defaultdict(list)
    for own in by_case(looks):
        for one, two in combinations(own, 2):
            if one.level == two.level and one.pair != two.pair:
                link = link_of(one, two)
                if link != (0, 0):
                    linked[link].append((one, two))
    rows = [(link, correlation(both), len(both)) for link, both in linked.items() if len(both) >= LEAST_LINKS]
    count = sum(weight for *_, weight in rows)
    lasting, shared = solve(rows)
    if lasting is None:
        return Repeats(None, None, count)
    lasting = min(1.0, max(0.0, lasting))
    if shared is None:
        return Repeats(lasting, None, count)
    shared = min(lasting, max(0.0, shared))
    return Repeats(lasting - shared, shared, count)


def correlation(pairs: Sequence[tuple[Look, Look]]) -> float:
    """Correlation of the normal variables behind two verdicts: what makes so many of them right together."""
    seats: dict[bool, list[float]] = {True: [], False: []}
    for pair in pairs:
        for look in pair:
            seats[look.first].append(look.outcome)
    height = {
        first: NORMAL.inv_cdf((sum(found) + 0.5) / (len(found) + 1))
        for first, found in seats.items()
        if found
    }
    both = sum(one.outcome * two.outcome for one, two in pairs)
    seated: dict[tuple[bool, bool], int] = defaultdict(int)
    for one, two in pairs:
        seated[one.first, two.first] += 1
    low, high = -0.99, 0.99
    while high - low > 1e-3:
        middle = (low + high) / 2
        expected = sum(n * both_right(height[f], height[g], middle) for (f, g), n in seated.items())
        low, high = (middle, high) if expected < both else (low, middle)
    return (low + high) / 2


def both_right(h: float, k: float, correlation: float) -> float:
    """Chance that two correlated standard normals stay below h and k, by Plackett's integral."""
    points = ((step + 0.5) / STEPS * correlation for step in range(STEPS))
    return NORMAL.cdf(h) * NORMAL.cdf(k) + correlation * fmean(_density(h, k, r) for r in points)


def _density(h: float, k: float, r: float) -> float:
    rest = 1 - r * r
    return math.exp(-(h * h - 2 * r * h * k + k * k) / (2 * rest)) / (2 * math.pi * math.sqrt(rest))


def link_of(one: Look, two: Look) -> Link:
    """What two looks of a case have in common, side by side."""
    same = answers = 0
    for mine, yours, my_answer, your_answer in _sides(one, two):
        if mine == yours:
            same += 1
        elif my_answer == your_answer:
            answers += 1
    return same, answers


def _sides(one: Look, two: Look) -> Iterator[tuple[int, int, str | int, str | int]]:
    yield one.one, two.one, one.clusters[0], two.clusters[0]
    yield one.other, two.other, one.clusters[1], two.clusters[1]


def solve(rows: Iterable[tuple[Link, float, float]]) -> tuple[float | None, float | None]:
    """Weighted least squares of `correlation = (same * lasting + answers * shared) / 2`."""
    aa = ab = bb = ay = by = 0.0
    for (same, answers), found, weight in rows:
        a, b = same / 2, answers / 2
        aa, ab, bb = aa + weight * a * a, ab + weight * a * b, bb + weight * b * b
        ay, by = ay + weight * a * found, by + weight * b * found
    if aa == 0:
        return None, None
    determinant = aa * bb - ab * ab
    if bb == 0 or determinant < 1e-9:
        return ay / aa, None
    return (ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant
