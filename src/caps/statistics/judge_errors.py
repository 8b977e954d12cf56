"""Errors of a judge: accuracy by level, slot, order and length bias, errors that repeat."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from statistics import NormalDist, fmean

from caps.core.judge_profile import JudgeProfile
from caps.core.types import Level
from caps.statistics.estimates import Estimate, find_crossing, find_peak, jackknife, mean_estimate
from caps.statistics.observations import Observation, at_level, by_case, case_means, swapped

NORMAL = NormalDist()
WIDEST = 6.0
Sway = Callable[[Observation], bool | None]


def flips(observations: Sequence[Observation]) -> Estimate | None:
    """How often the preference changes when the slots are swapped; a change from or to a tie counts half."""
    changed: dict[int, list[float]] = {}
    for first, second in swapped(observations):
        changed.setdefault(first.case, []).append(abs(first.outcome - second.outcome))
    return mean_estimate([fmean(own) for own in changed.values()], len(observations))


def in_first_slot(obs: Observation) -> bool | None:
    """Whether `one` was in slot A."""
    return obs.first


def longer(obs: Observation) -> bool | None:
    """Whether `one` is longer; None if both have the same length."""
    one, other = obs.sizes
    return None if one == other else one > other


def preferred(observations: Sequence[Observation], sway: Sway) -> Estimate | None:
    """Share of verdicts for the favoured side, if it were right half of the time; a tie counts half."""
    return jackknife(by_case(observations), lambda some: _middle(_split(some, sway)))


def between_equals(observations: Sequence[Observation], sway: Sway) -> Estimate | None:
    """The same share if both candidates were equally good, by signal detection theory.

    The more accurate a judge, the less a bias shows in its verdicts. The share is therefore corrected with
    two normal distributions whose distance is the sensitivity of this judge.
    """
    share = preferred(observations, sway)
    sides = _split(observations, sway)
    if share is None or sides is None:
        return None
    right, wrong = sides
    gap = (_quantile(right) - _quantile(wrong)) / 2
    value, low, high = (_pull(part, gap) for part in (share.value, share.low, share.high))
    return Estimate(NORMAL.cdf(value), NORMAL.cdf(low), NORMAL.cdf(high), share.cases, share.looks)


def ties(observations: Sequence[Observation]) -> Estimate | None:
    """Share of ties."""
    return jackknife(by_case(observations), lambda some: _share(some, lambda obs: not obs.decided))


def unreadable(observations: Sequence[Observation]) -> Estimate | None:
    """Share of replies that could not be read after all retries."""
    return jackknife(by_case(observations), lambda some: _share(some, lambda obs: obs.malformed))


def _split(observations: Sequence[Observation], sway: Sway) -> tuple[list[float], list[float]] | None:
    """Outcomes for the favoured side when it is right and when it is wrong; None unless there are both."""
    right = [obs.outcome for obs in observations if sway(obs) is True]
    wrong = [1 - obs.outcome for obs in observations if sway(obs) is False]
    return (right, wrong) if right and wrong else None


def _middle(sides: tuple[list[float], list[float]] | None) -> float | None:
    return None if sides is None else (fmean(sides[0]) + fmean(sides[1])) / 2


def _pull(share: float, gap: float) -> float:
    """The pull, in standard deviations, at which the favoured side gets this share of the verdicts."""
    return find_crossing(
        lambda pull: (NORMAL.cdf(pull + gap) + NORMAL.cdf(pull - gap)) / 2, share, -WIDEST, WIDEST, width=1e-6
    )


def _quantile(outcomes: Sequence[float]) -> float:
    """The normal quantile of a mean, kept finite by one added tie."""
    return NORMAL.inv_cdf((sum(outcomes) + 0.5) / (len(outcomes) + 1))


def _share(observations: Sequence[Observation], holds: Callable[[Observation], bool]) -> float | None:
    return fmean(map(holds, observations)) if observations else None


# Accuracy at each evidence level


def outcomes(observations: Iterable[Observation], level: Level) -> list[float]:
    """Mean outcome of each case at a level; a tie counts half."""
    return case_means(at_level(observations, level), lambda obs: obs.outcome)


def accuracy(observations: Sequence[Observation], level: Level) -> Estimate | None:
    """Per-pair accuracy at a level over both orders; every case has the same weight."""
    return mean_estimate(outcomes(observations, level), len(at_level(observations, level)))


def difference(observations: Sequence[Observation]) -> Estimate | None:
    """Accuracy at E1 minus accuracy at E2, as a paired difference."""
    values = [
        0.5 + (fmean(one.outcome for one in partial) - fmean(one.outcome for one in full)) / 2
        for own in by_case(observations)
        if (partial := at_level(own, Level.PARTIAL)) and (full := at_level(own, Level.FULL))
    ]
    found = mean_estimate(values, len(observations))
    return None if found is None else found.stretched(-1, 1)


def agreement(observations: Sequence[Observation]) -> Estimate | None:
    """How often E1 and E2 prefer the same candidate in the same order; a tie at one level counts half."""
    known = {(obs.pair, obs.first, obs.level): obs for obs in observations}
    values: dict[int, list[float]] = {}
    for (pair, first, level), obs in known.items():
        full = known.get((pair, first, Level.FULL))
        if level == Level.PARTIAL and full is not None:
            values.setdefault(obs.case, []).append(1 - abs(obs.outcome - full.outcome))
    return mean_estimate([fmean(own) for own in values.values()], len(observations))


# Errors that repeat: with the candidate, its answer, the case, or the order of the slots
#
# A verdict is modelled as the sign of a difference of two beliefs, the pull of a slot and a residual (see
# `judging.simulated`). Two verdicts on one pair in both orders correlate by the lasting share of the
# variance; two that share a candidate by half of the candidates' share; two whose candidates only share
# an answer by half of the answers' share; any two of a case by the share of its hardness. A pull that
# varies between cases raises the correlation of verdicts in the same order and lowers that of verdicts in
# opposite orders. The correlations are tetrachoric; the shares are fitted to them by non-negative least
# squares. Prior values keep shares with few data near the usual ones, so both orders of each pair are
# enough even if no candidate repeats.


LEAST_LINKS = 10  # pairs of verdicts that a correlation needs
STEPS = 24
CLOSEST = 0.99  # the largest correlation considered
Link = tuple[int, int]  # sides with the same candidate, sides with the same answer only
USUAL = (0.65, 0.0, 0.15, 0.04)  # of candidates, answers, cases and slots; see docs/explanation
USUAL_LINKS = (6.0, 12.0, 40.0, 40.0)  # weight of each prior value, in pairs of verdicts
CARRIED_LINKS = 12.0
USUAL_CARRIED = 0.5
SWEEPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Shares of the variance of a comparison between a right and a wrong candidate, over all cases.

    `own` belongs to the candidates, `shared` to their answers, `hardness` to the case, `slot` to the pull in
    it; `carried` is the correlation between E1 and E2. None: not measured. `links` counts the pairs of
    verdicts behind them.
    """

    own: float | None
    shared: float | None
    hardness: float
    slot: float
    carried: float | None
    links: int

    @property
    def lasting(self) -> float | None:
        """The share that both orders of a pair have in common, without the pull."""
        return None if self.own is None else min(1.0, self.own + (self.shared or 0.0) + self.hardness)


def repeats(observations: Sequence[Observation]) -> Repeats:
    """Fit the shares of variance to the correlations of linked verdicts."""
    linked: dict[tuple[Link, bool], list[tuple[Observation, Observation]]] = defaultdict(list)
    levels = []
    for own in by_case(observations):
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
    """Weight of pairs of verdicts: pairs from the same case carry less information than from several."""
    return math.sqrt(len(both) * len({one.case for one, _ in both}))


def _fitted(rows: Sequence[tuple[tuple[float, ...], float, float]]) -> tuple[float, ...]:
    """Non-negative weighted least squares by coordinate descent, with the prior values as further rows."""
    indices = range(len(USUAL))
    prior = [(tuple(float(i == j) for j in indices), USUAL[i], USUAL_LINKS[i]) for i in indices]
    found = list(USUAL)
    for _ in range(SWEEPS):
        for i in indices:
            above = below = 0.0
            for shares, seen, weight in [*rows, *prior]:
                rest = sum(shares[j] * found[j] for j in indices if j != i)
                above += weight * shares[i] * (seen - rest)
                below += weight * shares[i] ** 2
            found[i] = min(1.0, max(0.0, above / below))
    return tuple(found)


def _carried(levels: Sequence[tuple[Observation, Observation]]) -> float | None:
    """Correlation of verdicts on the same pair and order at both levels."""
    if len(levels) < LEAST_LINKS:
        return None
    by_level = [sorted(both, key=lambda obs: obs.level) for both in levels]
    found = tetrachoric([one.outcome for one, _ in by_level], [two.outcome for _, two in by_level])
    weight = _weight(levels)
    return max(0.0, (weight * found + CARRIED_LINKS * USUAL_CARRIED) / (weight + CARRIED_LINKS))


def correlation(pairs: Sequence[tuple[Observation, Observation]]) -> float:
    """Tetrachoric correlation of linked verdicts, from how often both are right."""
    by_slot: dict[bool, list[float]] = {True: [], False: []}
    for pair in pairs:
        for obs in pair:
            by_slot[obs.first].append(obs.outcome)
    threshold = {first: _quantile(found) for first, found in by_slot.items() if found}
    both = sum(one.outcome * two.outcome for one, two in pairs)
    slots = Counter((one.first, two.first) for one, two in pairs)
    return find_crossing(
        lambda r: sum(n * both_right(threshold[f], threshold[g], r) for (f, g), n in slots.items()),
        both,
        -CLOSEST,
        CLOSEST,
    )


def tetrachoric(first: Sequence[float], second: Sequence[float]) -> float:
    """Tetrachoric correlation of two lists of outcomes of the same pairs."""
    h, k = _quantile(first), _quantile(second)
    both = fmean(one * two for one, two in zip(first, second, strict=True))
    return find_crossing(lambda r: both_right(h, k, r), both, -CLOSEST, CLOSEST)


def both_right(h: float, k: float, correlation: float) -> float:
    """Probability that two correlated standard normals are below h and k, by Plackett's integral."""
    points = ((step + 0.5) / STEPS * correlation for step in range(STEPS))
    return NORMAL.cdf(h) * NORMAL.cdf(k) + correlation * fmean(_density(h, k, r) for r in points)


def _density(h: float, k: float, r: float) -> float:
    rest = 1 - r * r
    return math.exp(-(h * h - 2 * r * h * k + k * k) / (2 * rest)) / (2 * math.pi * math.sqrt(rest))


def link_of(one: Observation, two: Observation) -> Link:
    """On how many sides two observations of a case share the candidate, and on how many only the answer."""
    same = [one.one == two.one, one.other == two.other]
    answers = [a == b for a, b in zip(one.clusters, two.clusters, strict=True)]
    return sum(same), sum(answer and not alike for answer, alike in zip(answers, same, strict=True))


def solve_shares(rows: Iterable[tuple[Link, float, float]]) -> tuple[float | None, float | None]:
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


# Accuracy without certain labels
#
# Votes (or labels) give the probability that only the one, or only the other, of two candidates is right.
# A judge with accuracy e prefers the one with probability ½ + (e - ½) (P(one) - P(other)). With labels
# the probabilities are 0 and 1, and fitting e is counting. Without labels, e measures agreement with the
# votes: a judge that knows cannot be distinguished from one that repeats the votes, nor a coin from a
# judge that is right where the votes mislead. So without labels, more cases add less and less.
#
# The likelihood is composite: each observation is explained by itself, so the dependence of errors does
# not matter, except that several observations of one case get a lower weight.


SKILL_SPREAD = 0.5  # prior standard deviation of the factor on all log-odds: 0 is a coin, 2 far better
FIELD_SPREAD = 0.4  # prior standard deviation of one field's departure from it, in log-odds
MOST_BY_VOTES = 100.0  # the most verdicts of known truth that cases without labels count for
SURE_CASES = 4.0  # weight of the prior share of HIGH verdicts, in cases
LATENT_SWEEPS = 8
LEVELS = (Level.PARTIAL, Level.FULL)
FIELDS = {
    (Level.PARTIAL, True): "e1_high",
    (Level.PARTIAL, False): "e1_low",
    (Level.FULL, True): "e2_high",
    (Level.FULL, False): "e2_low",
}
Terms = Mapping[float, float]  # weight of verdicts by the lead of the candidate they prefer


@dataclass(frozen=True, slots=True)
class WeightedObservation:
    """An observation with the prior probabilities that only its `one`, or only its `other`, is right.

    `known` if labels say so.
    """

    obs: Observation
    one: float
    other: float
    known: bool = False

    @property
    def lead(self) -> float:
        """The difference of the two probabilities."""
        return self.one - self.other


def information(weighted: Sequence[WeightedObservation], start: JudgeProfile) -> float:
    """The equivalent number of independent verdicts on pairs of known truth."""
    return sum(weight * one.lead**2 for one, weight in _discounted(weighted, start))


def chances(weighted: Sequence[WeightedObservation], start: JudgeProfile) -> dict[str, float]:
    """Maximum a posteriori accuracy of HIGH and LOW verdicts at each level, with a profile as the prior.

    One factor moves all log-odds of that profile together, and each may depart from it a little.
    """
    terms: dict[str, dict[float, float]] = {name: defaultdict(float) for name in FIELDS.values()}
    for one, weight in _discounted(weighted, start):
        if one.obs.decided and one.lead:
            toward = one.lead * (2 * one.obs.outcome - 1)
            terms[FIELDS[one.obs.level, one.obs.sure]][toward] += weight
    before = {name: _logit(getattr(start, name)) for name in terms}
    factor, departures = 1.0, dict.fromkeys(terms, 0.0)
    for _ in range(LATENT_SWEEPS):
        factor = find_peak(partial(_fit_all, before, departures, terms), -2.0, 6.0)
        for name, own in terms.items():
            if own:
                departures[name] = find_peak(partial(_fit_one, factor * before[name], own), -3.0, 3.0)
    return {name: _sigmoid(factor * before[name] + departures[name]) for name in terms}


def shares_of_high(weighted: Sequence[WeightedObservation], start: JudgeProfile) -> dict[str, float]:
    """Share of decided verdicts that are HIGH at each level; every case has the same weight."""
    found = {}
    for level, name in zip(LEVELS, ("e1_sure", "e2_sure"), strict=True):
        by_case: dict[int, list[bool]] = defaultdict(list)
        for one in weighted:
            if one.obs.level == level and one.obs.decided:
                by_case[one.obs.case].append(one.obs.sure)
        seen = sum(sum(own) / len(own) for own in by_case.values())
        found[name] = (seen + SURE_CASES * getattr(start, name)) / (len(by_case) + SURE_CASES)
    return found


def _discounted(
    weighted: Sequence[WeightedObservation], start: JudgeProfile
) -> list[tuple[WeightedObservation, float]]:
    """Weights of observations: less for several of one case and level, and less for votes than for labels."""
    common = min(1.0, start.repeats + start.shared)
    count = Counter((one.obs.case, one.obs.level) for one in weighted)
    found = [(one, 1 / (1 + (count[one.obs.case, one.obs.level] - 1) * common)) for one in weighted]
    guessed = sum(weight * one.lead**2 for one, weight in found if not one.known)
    trust = 1 / (1 + guessed / MOST_BY_VOTES)
    return [(one, weight if one.known else trust * weight) for one, weight in found]


def _fit_all(
    before: Mapping[str, float], departures: Mapping[str, float], terms: Mapping[str, Terms], factor: float
) -> float:
    likelihood = sum(
        _log_likelihood(factor * before[name] + departures[name], own) for name, own in terms.items()
    )
    return likelihood - ((factor - 1) / SKILL_SPREAD) ** 2 / 2


def _fit_one(centre: float, terms: Terms, departure: float) -> float:
    return _log_likelihood(centre + departure, terms) - (departure / FIELD_SPREAD) ** 2 / 2


def _log_likelihood(log_odds: float, terms: Terms) -> float:
    """Log-likelihood of verdicts that are right with these log-odds."""
    beyond = _sigmoid(log_odds) - 0.5
    return sum(weight * math.log(max(1e-9, 0.5 + beyond * toward)) for toward, weight in terms.items())


def _logit(chance: float) -> float:
    chance = min(0.999, max(0.001, chance))
    return math.log(chance / (1 - chance))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


# Slot bias and repeated errors without certain labels
#
# Both explain what the accuracy leaves open: how often slot A wins when both orders are judged, and how
# much more often than expected two verdicts on the same candidates, or on others with the same answers,
# agree. With few observations the result stays close to the prior profile.


SLOT_CASES = 10.0  # weight of the prior pull, in cases
LASTING_CASES = 25.0  # weight of each prior share of lasting errors, in cases
SAME_PAIR, SAME_ANSWERS = (2, 0), (0, 2)
WIDEST_PULL, WIDEST_GAP, CLOSEST_LINK = 3.0, 1.65, 0.99
Gaps = Mapping[Level, float]
Linked = dict[Link, list[tuple[WeightedObservation, WeightedObservation]]]


def gaps_of(profile: JudgeProfile) -> dict[Level, float]:
    """Distance between right and wrong at each level, in standard deviations of a comparison."""
    accuracy = {
        Level.PARTIAL: profile.e1_sure * profile.e1_high + (1 - profile.e1_sure) * profile.e1_low,
        Level.FULL: profile.e2_sure * profile.e2_high + (1 - profile.e2_sure) * profile.e2_low,
    }
    return {level: _normal_quantile(share) for level, share in accuracy.items()}


def first_slot(weighted: Sequence[WeightedObservation], start: JudgeProfile, gaps: Gaps) -> float:
    """Share of verdicts that slot A would get between equal candidates; a tie counts half."""
    if not weighted:
        return start.first_slot
    seen = sum(one.obs.outcome if one.obs.first else 1 - one.obs.outcome for one in weighted)

    def expected(pull: float) -> float:
        return sum(_wins(one, gaps[one.obs.level], pull) for one in weighted)

    share = NORMAL.cdf(find_crossing(expected, seen, -WIDEST_PULL, WIDEST_PULL))
    cases = len({one.obs.case for one in weighted})
    return (cases * share + SLOT_CASES * start.first_slot) / (cases + SLOT_CASES)


def links_of(weighted: Sequence[WeightedObservation]) -> Linked:
    """Pairs of decided observations on the same two answers of a case and level, grouped by their link."""
    cases: dict[tuple[int, Level], list[WeightedObservation]] = defaultdict(list)
    for one in weighted:
        if one.obs.decided:
            cases[one.obs.case, one.obs.level].append(one)
    linked: Linked = defaultdict(list)
    for own in cases.values():
        for one, two in combinations(own, 2):
            link = link_of(one.obs, two.obs)
            if sum(link) == len(link):
                linked[link].append((one, two))
    return linked


def lasting(
    weighted: Sequence[WeightedObservation], linked: Linked, start: JudgeProfile, slot: float
) -> tuple[float, float]:
    """Fit `repeats` and `shared` by least squares to the correlations of linked observations and the prior.

    The gaps are those seen in these data, not those of the cautious fit.
    """
    pull = _normal_quantile(slot)
    seen = {level: _gap(weighted, level, pull) for level in LEVELS}
    rows = [
        (link, _correlation(pairs, seen, pull), float(len({one.obs.case for one, _ in pairs})))
        for link, pairs in linked.items()
    ]
    rows += [
        (SAME_PAIR, min(1.0, start.repeats + start.shared), LASTING_CASES),
        (SAME_ANSWERS, start.shared, LASTING_CASES),
    ]
    both, shared = (min(1.0, max(0.0, found or 0.0)) for found in solve_shares(rows))
    return max(0.0, both - shared), min(both, shared)


def _gap(weighted: Sequence[WeightedObservation], level: Level, pull: float) -> float:
    """The gap that explains how often the more probable candidate is preferred at a level."""
    own = [one for one in weighted if one.obs.level == level and one.obs.decided]
    seen = sum(one.lead * one.obs.outcome for one in own)

    def expected(gap: float) -> float:
        return sum(
            one.lead * (wins if one.obs.first else 1 - wins)
            for one in own
            for wins in [_wins(one, gap, pull)]
        )

    return find_crossing(expected, seen, -WIDEST_GAP, WIDEST_GAP) if own else 0.0


def _wins(one: WeightedObservation, gap: float, pull: float) -> float:
    """Probability that slot A wins."""
    a, b = (one.one, one.other) if one.obs.first else (one.other, one.one)
    return a * NORMAL.cdf(gap + pull) + b * NORMAL.cdf(pull - gap) + (1 - a - b) * NORMAL.cdf(pull)


def _correlation(
    pairs: Sequence[tuple[WeightedObservation, WeightedObservation]], gaps: Gaps, pull: float
) -> float:
    """Correlation of errors that explains how often linked observations agree."""
    alike = 0
    states: dict[tuple[float, float, float], float] = defaultdict(float)  # count by lean and both pulls
    for one, two in pairs:
        alike += one.obs.outcome == two.obs.outcome
        gap, pulls = gaps[one.obs.level], [pull if each.obs.first else -pull for each in (one, two)]
        right, wrong = (one.one + two.one) / 2, (one.other + two.other) / 2
        for lean, chance in ((gap, right), (-gap, wrong), (0.0, 1 - right - wrong)):
            states[lean, pulls[0], pulls[1]] += chance

    def expected(correlation: float) -> float:
        return sum(
            chance * _alike(lean + here, lean + there, correlation)
            for (lean, here, there), chance in states.items()
        )

    return find_crossing(expected, alike, 0.0, CLOSEST_LINK)


def _alike(h: float, k: float, correlation: float) -> float:
    return both_right(h, k, correlation) + both_right(-h, -k, correlation)


def _normal_quantile(share: float) -> float:
    return NORMAL.inv_cdf(min(0.99, max(0.01, share)))
