"""All measures of a judge together, when enough has been asked, and whether the judge is usable."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pvariance, variance

from caps.core.judge_profile import MEASURED_SLOT_SPREAD, JudgeProfile
from caps.core.types import Level
from caps.statistics import calibration
from caps.statistics import judge_errors as bias
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
from caps.statistics.observations import Observation, Rated, at

# What a judge turned out to be worth on the first cases, or that they do not tell.


LEAST_CASES_TO_LEARN = 10
LEAST_INFORMATION = 5.0  # verdicts on pairs of known truth; fewer would only repeat what was assumed


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A profile, how much is behind it, which fields stayed as assumed, and why, if all of them did."""

    profile: JudgeProfile
    cases: int
    looks: int
    information: float
    assumed: tuple[str, ...] = ()
    silent: str | None = None


def learn(weighed: Sequence[WeightedObservation], start: JudgeProfile) -> Learned:
    """The profile that explains the looks, near the one to start from; that one, if they tell too little."""
    cases, told = len({one.look.case for one in weighed}), information(weighed, start)
    learned = Learned(profile=start, cases=cases, looks=len(weighed), information=told)
    everything = tuple(sorted(JudgeProfile.__dataclass_fields__))
    if cases < LEAST_CASES_TO_LEARN:
        words = f"only {cases} cases have two answers to compare; {LEAST_CASES_TO_LEARN} are wanted"
        return replace(learned, assumed=everything, silent=words)
    if told < LEAST_INFORMATION:
        words = "nothing says which answers are likelier to be right: no labels, and votes too even"
        return replace(learned, assumed=everything, silent=words)
    found = replace(start, **chances(weighed, start), **shares_of_high(weighed, start))
    gaps, linked = gaps_of(found), links_of(weighed)
    slot = first_slot(weighed, start, gaps)
    repeats, shared = lasting(weighed, linked, start, slot)
    found = replace(found, first_slot=slot, slot_spread=MEASURED_SLOT_SPREAD, repeats=repeats, shared=shared)
    rounded = {name: round(getattr(found, name), 4) for name in everything}
    unseen = {"order_errors", "rated", "rating_spread"}
    unseen |= set() if any(answers for _, answers in linked) else {"shared"}
    return replace(learned, profile=replace(found, **rounded), assumed=tuple(sorted(unseen)))


# When is enough enough: intervals that hold at every look, so that one may stop whenever they settle it.
#
# The confidence sequence of Waudby-Smith and Ramdas (2024, "Estimating means of bounded random variables
# by betting"): against every possible mean m two gamblers bet, one that the values lie above m, one that
# they lie below. If m is the true mean neither can grow rich: the chance that a capital *ever* passes 2 /
# alpha is at most alpha / 2 (Ville). Every m that was refuted is out for good. All that is assumed is
# values from 0 to 1, each with the same mean given those before it: here one value a case, cases in
# random order.


CELLS = 200
BOLDNESS = 0.75  # the largest part of a capital that may be lost in one bet
CHANCE = 0.5
USELESS = 0.6  # a judge shown to be below this is not worth its calls


class ConfidenceSequence:
    """An interval for a mean that may be looked at after every value."""

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
        """Every mean that was not refuted so far, to the width of a cell."""
        if self._first > self._last:  # each value was refuted at some time: the values have no common mean
            middle = self._sum / (self._count + 1)
            return middle, middle
        return max(0.0, self._means[self._first] - self._half), min(1.0, self._means[self._last] + self._half)

    def observe(self, value: float) -> None:
        """Settle the bets on the next value."""
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
        """How much to bet on the next value: from the values before it alone."""
        t = self._count + 1
        variance = self._squares / t
        return math.sqrt(2 * math.log(2 / self._alpha) / (max(variance, 1e-4) * t * math.log(t + 1)))

    def _refuted(self, cell: int) -> bool:
        return max(self._rising[cell], self._falling[cell]) >= self._limit


@dataclass(frozen=True, slots=True)
class Sequential:
    """The interval of a sequence at the end, and after how many values it had an answer."""

    low: float
    high: float
    settled_after: int | None


def standing(low: float, high: float) -> str:
    """What an interval of accuracy says of a judge: above, below, chance (or hardly above), undecided."""
    if low > CHANCE:
        return "above"
    if high < CHANCE:
        return "below"
    return "chance" if high < USELESS else "undecided"


def watch(values: Iterable[float], alpha: float) -> Sequential:
    """Run a sequence over values; settled once it says above, below or chance."""
    sequence, settled = ConfidenceSequence(alpha), None
    for count, value in enumerate(values, 1):
        sequence.observe(value)
        if settled is None and standing(*sequence.interval) != "undecided":
            settled = count
    return Sequential(*sequence.interval, settled)


def enough(sequences: Sequence[Sequential]) -> int | None:
    """After how many values all of them had their answer."""
    known = [one.settled_after for one in sequences if one.settled_after is not None]
    return max(known) if known and len(known) == len(sequences) else None


LEVELS = (Level.PARTIAL, Level.FULL)
ALPHA = 0.05
PRECISION = 0.05  # half of the 90 % interval of the accuracy at which a forecast counts as settled
LEAST_CASES = 30


def half_width(values: Sequence[float]) -> float:
    """Half of the 90 % interval of a mean of one value a case; infinite below the least number of cases.

    One case more is taken to be right and one wrong: a judge that was always right so far may still err.
    """
    if len(values) < LEAST_CASES:
        return math.inf
    return student(len(values) - 1, 0.9) * math.sqrt(variance([*values, 0.0, 1.0]) / len(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelMeasures:
    """Figures of one evidence level; the sequential bounds of both levels hold at once, at every look."""

    accuracy: Estimate
    bounds: Sequential
    flips: Estimate | None
    first_slot: Estimate | None
    ties: Estimate | None
    unreadable: Estimate | None
    confidence: calibration.Confidence
    brier: float | None
    calibration_error: float | None
    curve: tuple[calibration.Stated, ...]
    tokens: float
    output: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """How well ratings, a call for each candidate, tell right from wrong; `spread` is among equals."""

    accuracy: Estimate
    ties: Estimate
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMeasures:
    """What is known of a judge after its looks."""

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
    looks: Sequence[Observation], *, probabilities: bool, rated: Sequence[Rated] = ()
) -> JudgeMeasures:
    """Work out every figure; `probabilities` where verdicts weigh by token probabilities."""
    levels = {
        str(level): found
        for level in LEVELS
        if (found := _at_level(looks, level, probabilities=probabilities))
    }
    tokens = [levels[name].tokens for name in ("E1", "E2") if name in levels]
    return JudgeMeasures(
        pairs=len({look.pair for look in looks}),
        cases=len({look.case for look in looks}),
        levels=levels,
        difference=difference(looks),
        agreement=agreement(looks),
        first_slot=bias.between_equals(looks, bias.in_first_slot),
        longer=bias.between_equals(looks, bias.longer),
        repeats=repeats(looks),
        ratings=_ratings(rated),
        rho=tokens[0] / tokens[1] if len(tokens) == 2 and tokens[1] else None,
        settled_after=enough([one.bounds for one in levels.values()]),
    )


class StopRule:
    """Hears case after case, and knows when more pairs are not needed.

    Both levels must have their answer, and the forecast must be settled too: it moves with the accuracy at
    full views, so that has to be known to within `precision` (twice that, where the judge is at chance).
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
        at_chance = standing(*self._sequences[Level.FULL].interval) == "chance"
        return half_width(self._full) <= (2 if at_chance else 1) * self._precision

    def hear(self, looks: Sequence[Observation]) -> None:
        """Take note of the looks of one more case."""
        for level, sequence in self._sequences.items():
            for value in outcomes(looks, level):
                sequence.observe(value)
                if level == Level.FULL:
                    self._full.append(value)
            if standing(*sequence.interval) != "undecided":
                self._open.discard(level)


def profile_of(looks: Sequence[Observation], measured: JudgeMeasures) -> tuple[JudgeProfile, tuple[str, ...]]:
    """The profile of a judge, and the names of fields that are assumed because nothing was seen of them."""
    known: dict[str, float] = {}
    for level in LEVELS:
        some, name = at(looks, level), str(level).lower()
        decided = [look for look in some if look.decided]
        known[f"{name}_high"] = calibration.smoothed(some, sure=True)
        known[f"{name}_low"] = calibration.smoothed(some, sure=False)
        if decided:
            known[f"{name}_sure"] = fmean(look.sure for look in decided)
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


def _at_level(looks: Sequence[Observation], level: Level, *, probabilities: bool) -> LevelMeasures | None:
    some = at(looks, level)
    found = accuracy(looks, level)
    if found is None:
        return None
    return LevelMeasures(
        accuracy=found,
        bounds=watch(outcomes(looks, level), ALPHA / len(LEVELS)),
        flips=bias.flips(some),
        first_slot=bias.between_equals(some, bias.in_first_slot),
        ties=bias.ties(some),
        unreadable=bias.unreadable(some),
        confidence=calibration.by_confidence(some),
        brier=calibration.brier(some) if probabilities else None,
        calibration_error=calibration.calibration_error(some) if probabilities else None,
        curve=calibration.curve(some) if probabilities else (),
        tokens=fmean(look.tokens for look in some),
        output=fmean(look.output for look in some),
    )


# Is a judge good enough, and for partial views too? The paper's measure, ours, and the words for it.


PAPER_CALLS = (8, 10)  # E1 and E2 calls of the paper's standard configuration, N = 16 and f = 4
TOLERANCE = 0.02
SLACK = 1.3  # a warning is due this far beyond the precision at which asking stops

RULE = (
    "the cheapest strategy whose expected Pass@1 is within two points of the best (simulations tell no "
    "finer), and no judge at all unless its accuracy at E2 is shown to be above 50 %"
)
REASON = (
    "the paper goes by the accuracy of CAPS's mixed calls less that of V1-Infer's, which are about different "
    "pairs, and its threshold contradicts itself (a loss below 5 points is to win, yet suites with -4.4, "
    "-4.6 and -4.7 lost); so both levels are measured on the same pairs and what follows is simulated"
)

WORDS = {
    "above": "tells right from wrong",
    "below": "prefers the wrong one",
    "chance": "at chance",
    "undecided": "not told from chance",
}


def mixed(partial: float, full: float, calls: tuple[float, float] = PAPER_CALLS) -> float:
    """Accuracy over the calls of a cascade if its games were pairs like these: the paper's mixed metric."""
    at_partial, at_full = calls
    return (at_partial * partial + at_full * full) / (at_partial + at_full)


def thin(measured: JudgeMeasures) -> list[str]:
    """What a profile rests on too little for, and what would help."""
    found = measured.levels["E2"].accuracy
    said = []
    if found.cases < LEAST_CASES:
        said.append(
            f"only {found.cases} cases have pairs that were answered: a profile from fewer than "
            f"{LEAST_CASES} says little about other cases"
        )
    freedom = max(2, found.cases - 1)
    half = (found.high - found.low) / 2 * student(freedom, 0.9) / student(freedom)
    if half > SLACK * PRECISION and found.cases >= LEAST_CASES:
        pairs = math.ceil(measured.pairs * (half / PRECISION) ** 2 / 10) * 10
        said.append(
            f"accuracy at full views is known to ±{100 * half:.0f} points only, and the forecasts with it; "
            f"about {pairs} pairs, of more cases, would give ±{100 * PRECISION:.0f}"
        )
    if measured.repeats.own is None:
        said.append(
            "too few pairs were answered in both orders to measure how much of an error lasts: it is assumed"
        )
    return said


def usable(full: Sequential) -> bool:
    """Whether a judge may choose at all."""
    return standing(full.low, full.high) == "above"


def sentence(level: str, found: Estimate, bounds: Sequential) -> str:
    """What an accuracy says, in words."""
    word = standing(bounds.low, bounds.high)
    range_ = f"between {100 * bounds.low:.0f} and {100 * bounds.high:.0f} %"
    return {
        "above": f"{level}: the judge tells right from wrong, {100 * found.value:.0f} % of pairs ({range_})",
        "below": f"{level}: the judge prefers the wrong one, {100 * found.value:.0f} % right ({range_})",
        "chance": f"{level}: the judge is at chance or hardly above ({range_})",
        "undecided": f"{level}: {found.looks // 2} pairs do not tell the judge from a coin ({range_})",
    }[word]
