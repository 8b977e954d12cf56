"""All measures of a judge, the rule for stopping a diagnosis, and whether the judge is usable."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pvariance, variance

from caps.core.judge_profile import MEASURED_SLOT_SPREAD, JudgeProfile
from caps.core.types import Level
from caps.statistics import calibration, judge_errors
from caps.statistics.estimates import Estimate, mean_estimate, student
from caps.statistics.judge_errors import (
    Repeats,
    WeightedObservation,
    accuracy,
    agreement,
    chances,
    difference,
    first_slot,
    gaps_of,
    information,
    lasting,
    links_of,
    outcomes,
    repeats,
    shares_of_high,
)
from caps.statistics.observations import Observation, Rated, at_level

# A profile learned from the first cases


LEAST_CASES_TO_LEARN = 10
LEAST_INFORMATION = 5.0  # verdicts on pairs of known truth; fewer would only repeat the assumptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A learned profile, the data behind it, the fields that stay assumed, and why if all of them do."""

    profile: JudgeProfile
    cases: int
    observations: int
    information: float
    assumed: tuple[str, ...] = ()
    silent: str | None = None


def learn(weighted: Sequence[WeightedObservation], start: JudgeProfile) -> Learned:
    """Fit a profile to observations, starting from a prior one, which is kept if there are too few data."""
    cases, known = len({one.obs.case for one in weighted}), information(weighted, start)
    learned = Learned(profile=start, cases=cases, observations=len(weighted), information=known)
    everything = tuple(sorted(JudgeProfile.__dataclass_fields__))
    if cases < LEAST_CASES_TO_LEARN:
        reason = f"only {cases} cases have two answers to compare; {LEAST_CASES_TO_LEARN} are wanted"
        return replace(learned, assumed=everything, silent=reason)
    if known < LEAST_INFORMATION:
        reason = "nothing says which answers are likelier to be right: no labels, and votes too even"
        return replace(learned, assumed=everything, silent=reason)
    found = replace(start, **chances(weighted, start), **shares_of_high(weighted, start))
    gaps, linked = gaps_of(found), links_of(weighted)
    slot = first_slot(weighted, start, gaps)
    repeats, shared = lasting(weighted, linked, start, slot)
    found = replace(found, first_slot=slot, slot_spread=MEASURED_SLOT_SPREAD, repeats=repeats, shared=shared)
    rounded = {name: round(getattr(found, name), 4) for name in everything}
    unseen = {"order_errors", "rated", "rating_spread"}
    unseen |= set() if any(answers for _, answers in linked) else {"shared"}
    return replace(learned, profile=replace(found, **rounded), assumed=tuple(sorted(unseen)))


# Sequential bounds: intervals that hold after every value, so that one may stop at any time.
#
# The confidence sequence of Waudby-Smith and Ramdas (2024, "Estimating means of bounded random variables
# by betting"). For every possible mean m, one bettor bets that the values lie above m and one that they
# lie below. If m is the true mean, the probability that a bettor's capital *ever* exceeds 2 / alpha is at
# most alpha / 2 (Ville's inequality); an m for which it does is refuted for good. The only assumption is
# that values lie from 0 to 1 and have the same mean given those before: here one value per case, with the
# cases in random order.


CELLS = 200
BOLDNESS = 0.75  # the largest share of the capital at risk in one bet
CHANCE = 0.5
USELESS = 0.6  # a judge whose accuracy is shown to be below this is not worth its calls


class ConfidenceSequence:
    """A confidence interval for a mean that is valid after every value."""

    def __init__(self, alpha: float = 0.05, cells: int = CELLS) -> None:
        self._means = [(cell + 0.5) / cells for cell in range(cells)]
        self._rising = [0.0] * cells
        self._falling = [0.0] * cells
        self._limit = math.log(2 / alpha)
        self._half = 0.5 / cells
        self._alpha = alpha
        self._first, self._last = 0, cells - 1
        self._count, self._sum, self._squares = 0, 0.5, 0.25

    @property
    def interval(self) -> tuple[float, float]:
        """All means not refuted so far, to the width of a cell."""
        if self._first > self._last:  # every mean was refuted: the values have no common mean
            middle = self._sum / (self._count + 1)
            return middle, middle
        return max(0.0, self._means[self._first] - self._half), min(1.0, self._means[self._last] + self._half)

    def observe(self, value: float) -> None:
        """Add the next value."""
        bet = self._bet()
        for cell in range(self._first, self._last + 1):
            mean = self._means[cell]
            edge = value - mean
            self._rising[cell] += math.log1p(min(bet, BOLDNESS / mean) * edge)
            self._falling[cell] += math.log1p(-min(bet, BOLDNESS / (1 - mean)) * edge)
        while self._first <= self._last and self._refuted(self._first):
            self._first += 1
        while self._last >= self._first and self._refuted(self._last):
            self._last -= 1
        self._count += 1
        self._sum += value
        self._squares += (value - self._sum / (self._count + 1)) ** 2

    def _bet(self) -> float:
        """The bet on the next value; depends only on the values before it."""
        t = self._count + 1
        variance = self._squares / t
        return math.sqrt(2 * math.log(2 / self._alpha) / (max(variance, 1e-4) * t * math.log(t + 1)))

    def _refuted(self, cell: int) -> bool:
        return max(self._rising[cell], self._falling[cell]) >= self._limit


@dataclass(frozen=True, slots=True)
class Sequential:
    """The final interval of a confidence sequence, and after how many values it was conclusive."""

    low: float
    high: float
    settled_after: int | None


def classify(low: float, high: float) -> str:
    """Classify a judge by its interval of accuracy: above, below, chance (or hardly above), undecided."""
    if low > CHANCE:
        return "above"
    if high < CHANCE:
        return "below"
    return "chance" if high < USELESS else "undecided"


def run_sequence(values: Iterable[float], alpha: float) -> Sequential:
    """Run a confidence sequence over values; it is settled once it says above, below or chance."""
    sequence, settled = ConfidenceSequence(alpha), None
    for count, value in enumerate(values, 1):
        sequence.observe(value)
        if settled is None and classify(*sequence.interval) != "undecided":
            settled = count
    return Sequential(*sequence.interval, settled)


def values_needed(sequences: Sequence[Sequential]) -> int | None:
    """The number of values after which all sequences were settled; None if one is not."""
    known = [one.settled_after for one in sequences if one.settled_after is not None]
    return max(known) if known and len(known) == len(sequences) else None


LEVELS = (Level.PARTIAL, Level.FULL)
ALPHA = 0.05
PRECISION = 0.05  # half-width of the 90 % interval of accuracy at which a forecast is settled
LEAST_CASES = 30


def half_width(values: Sequence[float]) -> float:
    """Half-width of the 90 % interval of a mean of one value per case; infinite below `LEAST_CASES`.

    One right and one wrong case are added: a judge that was always right so far may still err.
    """
    if len(values) < LEAST_CASES:
        return math.inf
    return student(len(values) - 1, 0.9) * math.sqrt(variance([*values, 0.0, 1.0]) / len(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelMeasures:
    """Figures of one evidence level; the sequential bounds of both levels hold simultaneously."""

    accuracy: Estimate
    bounds: Sequential
    flips: Estimate | None
    first_slot: Estimate | None
    ties: Estimate | None
    unreadable: Estimate | None
    confidence: calibration.Confidence
    brier: float | None
    calibration_error: float | None
    curve: tuple[calibration.ReliabilityBin, ...]
    tokens: float
    output: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """Accuracy of ratings (one call per candidate); `spread` is that among candidates of equal label."""

    accuracy: Estimate
    ties: Estimate
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMeasures:
    """All figures measured of a judge."""

    pairs: int
    cases: int
    levels: Mapping[str, LevelMeasures]
    difference: Estimate | None
    agreement: Estimate | None
    first_slot: Estimate | None
    longer: Estimate | None
    repeats: Repeats
    ratings: Ratings | None
    rho: float | None
    settled_after: int | None  # cases


def measure(
    observations: Sequence[Observation], *, probabilities: bool, rated: Sequence[Rated] = ()
) -> JudgeMeasures:
    """Compute all figures of a judge; `probabilities` if verdicts are weighted by token probabilities."""
    levels = {
        str(level): found
        for level in LEVELS
        if (found := _measure_level(observations, level, probabilities=probabilities))
    }
    tokens = [levels[name].tokens for name in ("E1", "E2") if name in levels]
    return JudgeMeasures(
        pairs=len({obs.pair for obs in observations}),
        cases=len({obs.case for obs in observations}),
        levels=levels,
        difference=difference(observations),
        agreement=agreement(observations),
        first_slot=judge_errors.between_equals(observations, judge_errors.in_first_slot),
        longer=judge_errors.between_equals(observations, judge_errors.longer),
        repeats=repeats(observations),
        ratings=_ratings(rated),
        rho=tokens[0] / tokens[1] if len(tokens) == 2 and tokens[1] else None,
        settled_after=values_needed([one.bounds for one in levels.values()]),
    )


class StopRule:
    """Decides, case after case, when no more pairs are needed.

    Both levels must be conclusive. The forecast depends on the accuracy at full views, so that must also be
    known to within `precision` (twice that if the judge is at chance).
    """

    def __init__(self, precision: float = PRECISION) -> None:
        self._sequences = {level: ConfidenceSequence(ALPHA / len(LEVELS)) for level in LEVELS}
        self._open = set(LEVELS)
        self._precision = precision
        self._full: list[float] = []

    @property
    def settled(self) -> bool:
        """Whether more pairs are not needed."""
        if self._open:
            return False
        at_chance = classify(*self._sequences[Level.FULL].interval) == "chance"
        return half_width(self._full) <= (2 if at_chance else 1) * self._precision

    def add(self, observations: Sequence[Observation]) -> None:
        """Add the observations of one case."""
        for level, sequence in self._sequences.items():
            for value in outcomes(observations, level):
                sequence.observe(value)
                if level == Level.FULL:
                    self._full.append(value)
            if classify(*sequence.interval) != "undecided":
                self._open.discard(level)


def profile_of(
    observations: Sequence[Observation], measured: JudgeMeasures
) -> tuple[JudgeProfile, tuple[str, ...]]:
    """The profile of a judge, and the names of the fields that were not measured."""
    known: dict[str, float] = {}
    for level in LEVELS:
        some, name = at_level(observations, level), str(level).lower()
        decided = [obs for obs in some if obs.decided]
        known[f"{name}_high"] = calibration.smoothed(some, sure=True)
        known[f"{name}_low"] = calibration.smoothed(some, sure=False)
        if decided:
            known[f"{name}_sure"] = fmean(obs.sure for obs in decided)
    if measured.first_slot is not None:
        known["first_slot"] = measured.first_slot.value
        known["slot_spread"] = MEASURED_SLOT_SPREAD
    found = measured.repeats
    if found.own is not None:
        known["repeats"] = found.own if found.shared is not None else min(1.0, found.own + found.hardness)
        known["order_errors"] = max(0.0, 1 - (found.lasting or 0.0) - found.slot)
        known["slot_spread"] = max(0.01, (found.slot / max(0.01, 1 - found.slot)) ** 0.5)
    if found.shared is not None:
        known["shared"] = min(1.0, found.shared + found.hardness)
    if measured.ratings is not None:
        known["rated"] = measured.ratings.accuracy.value
        known["rating_spread"] = max(0.1, measured.ratings.spread)
    profile = replace(JudgeProfile(), **{name: round(value, 4) for name, value in known.items()})
    return profile, tuple(sorted(set(JudgeProfile.__dataclass_fields__) - set(known)))


def _ratings(rated: Sequence[Rated]) -> Ratings | None:
    cases: dict[int, list[Rated]] = {}
    for pair in rated:
        cases.setdefault(pair.case, []).append(pair)
    own = list(cases.values())
    right = mean_estimate([fmean(_order(pair) for pair in pairs) for pairs in own], len(rated))
    ties = mean_estimate([fmean(_order(pair) == 0.5 for pair in pairs) for pairs in own], len(rated))
    if right is None or ties is None:
        return None
    sides = [pair.one for pair in rated], [pair.other for pair in rated]
    spread = fmean(pvariance(side) for side in sides) ** 0.5
    return Ratings(accuracy=right, ties=ties, spread=spread)


def _order(pair: Rated) -> float:
    return 0.5 if pair.one == pair.other else float(pair.one > pair.other)


def _measure_level(
    observations: Sequence[Observation], level: Level, *, probabilities: bool
) -> LevelMeasures | None:
    some = at_level(observations, level)
    found = accuracy(observations, level)
    if found is None:
        return None
    return LevelMeasures(
        accuracy=found,
        bounds=run_sequence(outcomes(observations, level), ALPHA / len(LEVELS)),
        flips=judge_errors.flips(some),
        first_slot=judge_errors.between_equals(some, judge_errors.in_first_slot),
        ties=judge_errors.ties(some),
        unreadable=judge_errors.unreadable(some),
        confidence=calibration.by_confidence(some),
        brier=calibration.brier(some) if probabilities else None,
        calibration_error=calibration.calibration_error(some) if probabilities else None,
        curve=calibration.curve(some) if probabilities else (),
        tokens=fmean(obs.tokens for obs in some),
        output=fmean(obs.output for obs in some),
    )


# Whether a judge is usable, and how that is reported


PAPER_CALLS = (8, 10)  # E1 and E2 calls of the paper's standard configuration, N = 16 and f = 4
TOLERANCE = 0.02
SLACK = 1.3  # a half-width beyond the precision times this gives a warning

RULE = (
    "the cheapest strategy whose expected Pass@1 is within two points of the best (simulations are no "
    "more precise), and no judge at all unless its accuracy at E2 is shown to be above 50 %"
)
REASON = (
    "the paper goes by the accuracy of CAPS's mixed calls less that of V1-Infer's, which are about different "
    "pairs, and its threshold contradicts itself (a loss below 5 points is to win, yet suites with -4.4, "
    "-4.6 and -4.7 lost); so both levels are measured on the same pairs and what follows is simulated"
)

CLASS_NAMES = {
    "above": "tells right from wrong",
    "below": "prefers the wrong one",
    "chance": "at chance",
    "undecided": "not distinguished from chance",
}


def mixed(partial: float, full: float, calls: tuple[float, float] = PAPER_CALLS) -> float:
    """The paper's mixed metric: accuracy over the calls of a cascade, if its pairs were like these."""
    at_partial, at_full = calls
    return (at_partial * partial + at_full * full) / (at_partial + at_full)


def profile_warnings(measured: JudgeMeasures) -> list[str]:
    """Warnings about a profile that rests on too few data, with what would help."""
    found = measured.levels["E2"].accuracy
    warnings = []
    if found.cases < LEAST_CASES:
        warnings.append(
            f"only {found.cases} cases have pairs that were answered: a profile from fewer than "
            f"{LEAST_CASES} says little about other cases"
        )
    freedom = max(2, found.cases - 1)
    half = (found.high - found.low) / 2 * student(freedom, 0.9) / student(freedom)
    if half > SLACK * PRECISION and found.cases >= LEAST_CASES:
        pairs = math.ceil(measured.pairs * (half / PRECISION) ** 2 / 10) * 10
        warnings.append(
            f"accuracy at full views is known to ±{100 * half:.0f} points only, and the forecasts with it; "
            f"about {pairs} pairs, of more cases, would give ±{100 * PRECISION:.0f}"
        )
    if measured.repeats.own is None:
        warnings.append(
            "too few pairs were answered in both orders to measure how much of an error lasts: it is assumed"
        )
    return warnings


def is_usable(full: Sequential) -> bool:
    """Whether a judge is shown to be better than chance."""
    return classify(full.low, full.high) == "above"


def describe_accuracy(level: str, found: Estimate, bounds: Sequential) -> str:
    """One sentence on the accuracy at a level."""
    range_ = f"between {100 * bounds.low:.0f} and {100 * bounds.high:.0f} %"
    return {
        "above": f"{level}: the judge tells right from wrong, {100 * found.value:.0f} % of pairs ({range_})",
        "below": f"{level}: the judge prefers the wrong one, {100 * found.value:.0f} % right ({range_})",
        "chance": f"{level}: the judge is at chance or hardly above ({range_})",
        "undecided": f"{level}: {found.looks // 2} pairs do not tell the judge from a coin ({range_})",
    }[classify(bounds.low, bounds.high)]
