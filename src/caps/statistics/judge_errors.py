"""How a judge errs: accuracy by level, slot, order and length bias, errors that repeat."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from statistics import NormalDist, fmean

from caps.core.judge_profile import JudgeProfile
from caps.core.types import Level
from caps.statistics.estimates import Estimate, crossing, jackknife, mean_estimate, peak
from caps.statistics.observations import Observation, at, by_case, case_means, swapped

NORMAL = NormalDist()
WIDEST = 6.0
Sway = Callable[[Observation], bool | None]


def flips(looks: Sequence[Observation]) -> Estimate | None:
    """How often the preferred candidate changes when the two swap slots; from or to a tie is half a flip."""
    changed: dict[int, list[float]] = {}
    for first, second in swapped(looks):
        changed.setdefault(first.case, []).append(abs(first.outcome - second.outcome))
    return mean_estimate([fmean(own) for own in changed.values()], len(looks))


def in_first_slot(look: Observation) -> bool | None:
    """Whether `one` sat in slot A."""
    return look.first


def longer(look: Observation) -> bool | None:
    """Whether `one` is the longer; none where both are of equal length."""
    one, other = look.sizes
    return None if one == other else one > other


def preferred(looks: Sequence[Observation], sway: Sway) -> Estimate | None:
    """Share of verdicts for the swayed side, where it is right as often as it is wrong; a tie counts half."""
    return jackknife(by_case(looks), lambda some: _middle(_split(some, sway)))


def between_equals(looks: Sequence[Observation], sway: Sway) -> Estimate | None:
    """The same if both candidates were equally good, as signal detection has it.

    The better a judge tells right from wrong, the less room there is for a pull to show: the share is carried
    over along normal curves as far apart as this judge's.
    """
    share = preferred(looks, sway)
    sides = _split(looks, sway)
    if share is None or sides is None:
        return None
    right, wrong = sides
    gap = (_quantile(right) - _quantile(wrong)) / 2
    value, low, high = (_pull(part, gap) for part in (share.value, share.low, share.high))
    return Estimate(NORMAL.cdf(value), NORMAL.cdf(low), NORMAL.cdf(high), share.cases, share.looks)


def ties(looks: Sequence[Observation]) -> Estimate | None:
    """How often nobody is preferred."""
    return jackknife(by_case(looks), lambda some: _share(some, lambda look: not look.decided))


def unreadable(looks: Sequence[Observation]) -> Estimate | None:
    """How often no reply could be read, after every retry."""
    return jackknife(by_case(looks), lambda some: _share(some, lambda look: look.malformed))


def _split(looks: Sequence[Observation], sway: Sway) -> tuple[list[float], list[float]] | None:
    """Outcomes for the swayed side where it is right, and where it is wrong; none unless there are both."""
    right = [look.outcome for look in looks if sway(look) is True]
    wrong = [1 - look.outcome for look in looks if sway(look) is False]
    return (right, wrong) if right and wrong else None


def _middle(sides: tuple[list[float], list[float]] | None) -> float | None:
    return None if sides is None else (fmean(sides[0]) + fmean(sides[1])) / 2


def _pull(share: float, gap: float) -> float:
    """The pull, in standard deviations, at which the swayed side gets this share of right and wrong alike."""
    low, high = -WIDEST, WIDEST
    while high - low > 1e-6:
        pull = (low + high) / 2
        reached = (NORMAL.cdf(pull + gap) + NORMAL.cdf(pull - gap)) / 2
        low, high = (pull, high) if reached < share else (low, pull)
    return (low + high) / 2


def _quantile(outcomes: Sequence[float]) -> float:
    """The normal quantile of a mean, kept from infinity by one imagined tie."""
    return NORMAL.inv_cdf((sum(outcomes) + 0.5) / (len(outcomes) + 1))


def _share(looks: Sequence[Observation], holds: Callable[[Observation], bool]) -> float | None:
    return fmean(map(holds, looks)) if looks else None


# How often a judge prefers the right one of two candidates, at each evidence level, on the same pairs.


def outcomes(looks: Iterable[Observation], level: Level) -> list[float]:
    """The mean outcome of each case at a level, a tie counting half."""
    return case_means(at(looks, level), lambda look: look.outcome)


def accuracy(looks: Sequence[Observation], level: Level) -> Estimate | None:
    """Per-pair accuracy at a level: over both orders, every case counting the same."""
    return mean_estimate(outcomes(looks, level), len(at(looks, level)))


def difference(looks: Sequence[Observation]) -> Estimate | None:
    """Accuracy at E1 less that at E2, with the interval of the difference on the same pairs."""
    values = [
        0.5 + (fmean(one.outcome for one in partial) - fmean(one.outcome for one in full)) / 2
        for own in by_case(looks)
        if (partial := at(own, Level.PARTIAL)) and (full := at(own, Level.FULL))
    ]
    found = mean_estimate(values, len(looks))
    return None if found is None else found.stretched(-1, 1)


def agreement(looks: Sequence[Observation]) -> Estimate | None:
    """How often E1 prefers whom E2 prefers, in the same order; a tie on one side is half an agreement."""
    seats = {(look.pair, look.first, look.level): look for look in looks}
    values: dict[int, list[float]] = {}
    for (pair, first, level), look in seats.items():
        full = seats.get((pair, first, Level.FULL))
        if level == Level.PARTIAL and full is not None:
            values.setdefault(look.case, []).append(1 - abs(look.outcome - full.outcome))
    return mean_estimate([fmean(own) for own in values.values()], len(looks))


# How much of a judge's errors come back: with the candidate, its answer, the case, the order of the
# slots.
#
# A verdict is taken for the sign of a difference of two beliefs, the pull of a slot and what is left (as
# in `judges.simulated`). Two verdicts on one pair in both orders correlate by what lasts; two that share
# a candidate by half of what belongs to candidates; two whose candidates only share an answer by half of
# what answers share; and any two of a case by how hard it is. A pull that varies between cases adds to
# verdicts in the same order and takes from those in opposite ones. The correlations are tetrachoric, from
# how often both verdicts are right; the shares are fitted to all of them by least squares, none below
# zero. What the looks say little of stays near what is usual: both orders of a pair are enough, even
# where no candidate repeats.


LEAST_LINKS = 10  # fewer pairs of verdicts say nothing about a correlation
STEPS = 24
CLOSEST = 0.99  # correlations are looked for up to this
Link = tuple[int, int]  # sides with the same candidate, sides with the same answer only
BOTH_ORDERS: Link = (2, 0)
USUAL = (0.65, 0.0, 0.15, 0.04)  # of candidates, answers, cases and slots; see docs/explanation
USUAL_LINKS = (6.0, 12.0, 40.0, 40.0)  # imagined pairs of verdicts behind each of them
CARRIED_LINKS = 12.0
USUAL_CARRIED = 0.5
SWEEPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Shares of the variance of a comparison, of one right and one wrong candidate over all cases.

    `own` belongs to the candidates, `shared` to their answers, `hardness` to the case, `slot` to the pull in
    it; `carried` is the correlation of the same look at E1 and E2. None is not measured; `links` counts the
    pairs of verdicts behind them.
    """

    own: float | None
    shared: float | None
    hardness: float
    slot: float
    carried: float | None
    links: int

    @property
    def lasting(self) -> float | None:
        """What both orders of a pair have in common, the pull aside."""
        return None if self.own is None else min(1.0, self.own + (self.shared or 0.0) + self.hardness)


def repeats(looks: Sequence[Observation]) -> Repeats:
    """Fit the shares to the correlations of linked verdicts of a case and level."""
    linked: dict[tuple[Link, bool], list[tuple[Observation, Observation]]] = defaultdict(list)
    levels = []
    for own in by_case(looks):
        for one, two in combinations(own, 2):
            if one.level == two.level:
                linked[link_of(one, two), one.first == two.first].append((one, two))
            elif one.pair == two.pair and one.first == two.first:
                levels.append((one, two))
    known = [(key, both) for key, both in linked.items() if len(both) >= LEAST_LINKS]
    rows = [
        ((same / 2, answers / 2, 1.0, 1.0 if alike else -1.0), correlation(both), _weight(both))
        for ((same, answers), alike), both in known
    ]
    count = sum(len(both) for _, both in known)
    candidates, shared, hardness, slot = _fitted(rows)
    seen = {link for (link, _), _ in known}
    lasts = any(same for same, _ in seen)
    return Repeats(
        own=max(0.0, candidates - shared) if lasts else None,
        shared=shared if lasts and any(answers for _, answers in seen) else None,
        hardness=hardness,
        slot=slot,
        carried=_carried(levels),
        links=count,
    )


def _weight(both: Sequence[tuple[Observation, Observation]]) -> float:
    """Pairs of verdicts of one case tell less than as many of several."""
    return math.sqrt(len(both) * len({one.case for one, _ in both}))


def _fitted(rows: Sequence[tuple[tuple[float, ...], float, float]]) -> tuple[float, ...]:
    """Weighted least squares with every share at least 0, the usual ones as further rows."""
    places = range(len(USUAL))
    usual = [
        (tuple(float(place == other) for other in places), USUAL[place], USUAL_LINKS[place])
        for place in places
    ]
    everything = [*rows, *usual]
    found = list(USUAL)
    for _ in range(SWEEPS):
        for place in places:
            above = below = 0.0
            for shares, seen, weight in everything:
                rest = sum(shares[other] * found[other] for other in places if other != place)
                above += weight * shares[place] * (seen - rest)
                below += weight * shares[place] ** 2
            found[place] = min(1.0, max(0.0, above / below))
    return tuple(found)


def _carried(levels: Sequence[tuple[Observation, Observation]]) -> float | None:
    """Correlation of the same look at both levels."""
    if len(levels) < LEAST_LINKS:
        return None
    by_level = [sorted(both, key=lambda look: look.level) for both in levels]
    found = tetrachoric([one.outcome for one, _ in by_level], [two.outcome for _, two in by_level])
    weight = _weight(levels)
    return max(0.0, (weight * found + CARRIED_LINKS * USUAL_CARRIED) / (weight + CARRIED_LINKS))


def correlation(pairs: Sequence[tuple[Observation, Observation]]) -> float:
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
    return crossing(
        lambda r: sum(n * both_right(height[f], height[g], r) for (f, g), n in seated.items()),
        both,
        -CLOSEST,
        CLOSEST,
    )


def tetrachoric(first: Sequence[float], second: Sequence[float]) -> float:
    """Correlation of the normal variables behind two lists of outcomes of the same pairs, in two settings."""
    h, k = (NORMAL.inv_cdf((sum(own) + 0.5) / (len(own) + 1)) for own in (first, second))
    both = fmean(one * two for one, two in zip(first, second, strict=True))
    return crossing(lambda r: both_right(h, k, r), both, -CLOSEST, CLOSEST)


def both_right(h: float, k: float, correlation: float) -> float:
    """Chance that two correlated standard normals stay below h and k, by Plackett's integral."""
    points = ((step + 0.5) / STEPS * correlation for step in range(STEPS))
    return NORMAL.cdf(h) * NORMAL.cdf(k) + correlation * fmean(_density(h, k, r) for r in points)


def _density(h: float, k: float, r: float) -> float:
    rest = 1 - r * r
    return math.exp(-(h * h - 2 * r * h * k + k * k) / (2 * rest)) / (2 * math.pi * math.sqrt(rest))


def link_of(one: Observation, two: Observation) -> Link:
    """What two looks of a case have in common, side by side."""
    same = answers = 0
    for mine, yours, my_answer, your_answer in _sides(one, two):
        if mine == yours:
            same += 1
        elif my_answer == your_answer:
            answers += 1
    return same, answers


def _sides(one: Observation, two: Observation) -> Iterator[tuple[int, int, str | int, str | int]]:
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


# How often a judge is right, where the truth is known by its odds only.
#
# Votes (or labels) say how likely it is that only the one, or only the other, of two candidates is right.
# A judge of chance e prefers the one with ½ + (e - ½) (chance of the one - chance of the other): the
# further apart the odds, the more a verdict tells. With labels the odds are certainties and this is
# counting. Without, e is what going with the votes shows: nothing tells a judge that knows from one that
# echoes the votes, nor a coin from a judge that is right where votes mislead. So without labels more
# cases bring less and less.
#
# Each look is explained by itself (a composite likelihood), so it does not matter how errors of several
# looks hang together; that several of a case repeat each other only makes them weigh less.


SKILL_SPREAD = 0.5  # expected of the factor on all log-odds: at 0 the judge is a coin, at 2 far better
FIELD_SPREAD = 0.4  # expected of what one chance departs from that, in log-odds
MOST_BY_VOTES = 100.0  # known verdicts that any number of cases without labels may count for
SURE_CASES = 4.0  # imagined cases behind the share of HIGH verdicts
LATENT_SWEEPS = 8
LEVELS = (Level.PARTIAL, Level.FULL)
FIELDS = {
    (Level.PARTIAL, True): "e1_high",
    (Level.PARTIAL, False): "e1_low",
    (Level.FULL, True): "e2_high",
    (Level.FULL, False): "e2_low",
}
Terms = Mapping[float, float]  # by the lead of the one a verdict prefers, the weight of such verdicts


@dataclass(frozen=True, slots=True)
class WeightedObservation:
    """A look, and how likely it is beforehand that only its one, or only its other, is right.

    `known` where labels say so.
    """

    look: Observation
    one: float
    other: float
    known: bool = False

    @property
    def lead(self) -> float:
        """By how much the one is likelier to be right than the other."""
        return self.one - self.other


def information(weighed: Sequence[WeightedObservation], start: JudgeProfile) -> float:
    """How many independent verdicts on pairs of known truth the looks count for."""
    return sum(weight * one.lead**2 for one, weight in _discounted(weighed, start))


def chances(weighed: Sequence[WeightedObservation], start: JudgeProfile) -> dict[str, float]:
    """How often HIGH and LOW verdicts of each level are right: likeliest, a profile being expected.

    One factor moves all chances of that profile together, and each may depart from it a little.
    """
    terms: dict[str, dict[float, float]] = {name: defaultdict(float) for name in FIELDS.values()}
    for one, weight in _discounted(weighed, start):
        if one.look.decided and one.lead:
            toward = one.lead * (2 * one.look.outcome - 1)
            terms[FIELDS[one.look.level, one.look.sure]][toward] += weight
    before = {name: _logit(getattr(start, name)) for name in terms}
    factor, departures = 1.0, dict.fromkeys(terms, 0.0)
    for _ in range(LATENT_SWEEPS):
        factor = peak(partial(_fit_all, before, departures, terms), -2.0, 6.0)
        for name, own in terms.items():
            if own:
                departures[name] = peak(partial(_fit_one, factor * before[name], own), -3.0, 3.0)
    return {name: _sigmoid(factor * before[name] + departures[name]) for name in terms}


def shares_of_high(weighed: Sequence[WeightedObservation], start: JudgeProfile) -> dict[str, float]:
    """How often decided verdicts of each level are HIGH; every case counts the same."""
    found = {}
    for level, name in zip(LEVELS, ("e1_sure", "e2_sure"), strict=True):
        by_case: dict[int, list[bool]] = defaultdict(list)
        for one in weighed:
            if one.look.level == level and one.look.decided:
                by_case[one.look.case].append(one.look.sure)
        seen = sum(sum(own) / len(own) for own in by_case.values())
        found[name] = (seen + SURE_CASES * getattr(start, name)) / (len(by_case) + SURE_CASES)
    return found


def _discounted(
    weighed: Sequence[WeightedObservation], start: JudgeProfile
) -> list[tuple[WeightedObservation, float]]:
    """Each look with its weight: several of a case and level repeat each other, and votes are no labels."""
    common = min(1.0, start.repeats + start.shared)
    count = Counter((one.look.case, one.look.level) for one in weighed)
    found = [(one, 1 / (1 + (count[one.look.case, one.look.level] - 1) * common)) for one in weighed]
    guessed = sum(weight * one.lead**2 for one, weight in found if not one.known)
    trust = 1 / (1 + guessed / MOST_BY_VOTES)
    return [(one, weight if one.known else trust * weight) for one, weight in found]


def _fit_all(
    before: Mapping[str, float], departures: Mapping[str, float], terms: Mapping[str, Terms], factor: float
) -> float:
    told = sum(_told(factor * before[name] + departures[name], own) for name, own in terms.items())
    return told - ((factor - 1) / SKILL_SPREAD) ** 2 / 2


def _fit_one(centre: float, terms: Terms, departure: float) -> float:
    return _told(centre + departure, terms) - (departure / FIELD_SPREAD) ** 2 / 2


def _told(log_odds: float, terms: Terms) -> float:
    """Log-likelihood of verdicts that are right with such log-odds."""
    beyond = _sigmoid(log_odds) - 0.5
    return sum(weight * math.log(max(1e-9, 0.5 + beyond * toward)) for toward, weight in terms.items())


def _logit(chance: float) -> float:
    chance = min(0.999, max(0.001, chance))
    return math.log(chance / (1 - chance))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


# The pull of slot A, and how much of the errors come back, where the truth is known by its odds only.
#
# Both are what is left to explain once a judge's chances are known: how often slot A wins when both
# orders are asked, and how much oftener than they should two looks at the same candidates, or at others
# with the same answers, rule alike. Few looks leave the profile one started from much as it was.


SLOT_CASES = 10.0  # imagined cases behind the pull
LASTING_CASES = 25.0  # imagined cases behind each of the two shares of lasting errors
SAME_PAIR, SAME_ANSWERS = (2, 0), (0, 2)
WIDEST_PULL, WIDEST_GAP, CLOSEST_LINK = 3.0, 1.65, 0.99
Gaps = Mapping[Level, float]
Linked = dict[Link, list[tuple[WeightedObservation, WeightedObservation]]]


def gaps_of(profile: JudgeProfile) -> dict[Level, float]:
    """How far right lies from wrong at each level, in standard deviations of a verdict."""
    accuracy = {
        Level.PARTIAL: profile.e1_sure * profile.e1_high + (1 - profile.e1_sure) * profile.e1_low,
        Level.FULL: profile.e2_sure * profile.e2_high + (1 - profile.e2_sure) * profile.e2_low,
    }
    return {level: _normal_quantile(share) for level, share in accuracy.items()}


def first_slot(weighed: Sequence[WeightedObservation], start: JudgeProfile, gaps: Gaps) -> float:
    """Share of verdicts slot A would get between equals; a tie counts half."""
    if not weighed:
        return start.first_slot
    seen = sum(one.look.outcome if one.look.first else 1 - one.look.outcome for one in weighed)

    def expected(pull: float) -> float:
        return sum(_wins(one, gaps[one.look.level], pull) for one in weighed)

    share = NORMAL.cdf(crossing(expected, seen, -WIDEST_PULL, WIDEST_PULL))
    cases = len({one.look.case for one in weighed})
    return (cases * share + SLOT_CASES * start.first_slot) / (cases + SLOT_CASES)


def links_of(weighed: Sequence[WeightedObservation]) -> Linked:
    """Decided looks of a case and level at the same two answers, two by two, by what they have in common."""
    cases: dict[tuple[int, Level], list[WeightedObservation]] = defaultdict(list)
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
    weighed: Sequence[WeightedObservation], linked: Linked, start: JudgeProfile, slot: float
) -> tuple[float, float]:
    """`repeats` and `shared`: least squares over the correlations of linked looks and the imagined ones.

    Looks rule alike beyond what the gaps explain that are seen here, not those that a cautious fit states.
    """
    pull = _normal_quantile(slot)
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


def _gap(weighed: Sequence[WeightedObservation], level: Level, pull: float) -> float:
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


def _wins(one: WeightedObservation, gap: float, pull: float) -> float:
    """Chance that slot A wins a look."""
    a, b = (one.one, one.other) if one.look.first else (one.other, one.one)
    return a * NORMAL.cdf(gap + pull) + b * NORMAL.cdf(pull - gap) + (1 - a - b) * NORMAL.cdf(pull)


def _correlation(
    pairs: Sequence[tuple[WeightedObservation, WeightedObservation]], gaps: Gaps, pull: float
) -> float:
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

    return crossing(expected, alike, 0.0, CLOSEST_LINK)


def _alike(h: float, k: float, correlation: float) -> float:
    return both_right(h, k, correlation) + both_right(-h, -k, correlation)


def _normal_quantile(share: float) -> float:
    return NORMAL.inv_cdf(min(0.99, max(0.01, share)))
