"""All measures of a judge, the rule for stopping a diagnosis, and whether the judge is usable."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from caps.core.judge_profile import JudgeProfile
from caps.core.types import Level
from caps.statistics import calibration, judge_errors
from caps.statistics.estimates import Estimate, student
from caps.statistics.judge_errors import accuracy, difference, outcomes
from caps.statistics.observations import Observation, at_level, by_case

LEVELS = (Level.PARTIAL, Level.FULL)

# A profile learned from the first cases


LEAST_CASES_TO_LEARN = 10
PRIOR_CASES = 10.0  # that the profile at the start counts for


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A learned profile, the data behind it, the fields that stay assumed, and why if all of them do."""

    profile: JudgeProfile
    cases: int
    observations: int
    assumed: tuple[str, ...] = ()
    silent: str | None = None


def learn(observations: Sequence[Observation], start: JudgeProfile) -> Learned:
    """Fit a profile to verdicts on pairs of a right and a wrong candidate; the start is kept if too few."""
    cases = len(by_case(observations))
    learned = Learned(profile=start, cases=cases, observations=len(observations))
    everything = tuple(sorted(JudgeProfile.__dataclass_fields__))
    if cases < LEAST_CASES_TO_LEARN:
        reason = (
            f"only {cases} cases have labels (candidates[].correct) of a right and a wrong answer; "
            f"{LEAST_CASES_TO_LEARN} are wanted"
        )
        return replace(learned, assumed=everything, silent=reason)
    profile, assumed = fit_profile(observations, start)
    return replace(learned, profile=profile, assumed=assumed)


def fit_profile(
    observations: Sequence[Observation], start: JudgeProfile
) -> tuple[JudgeProfile, tuple[str, ...]]:
    """The profile of a judge, and the names of the fields that were not measured.

    Verdicts count equally, and the profile at the start like those of `PRIOR_CASES` cases.
    """
    fields: dict[str, float] = {}
    cases = by_case(observations)
    for level in LEVELS:
        name = str(level).lower()
        decided = [[obs for obs in own if obs.decided] for own in by_case(at_level(observations, level))]
        for sure, field in ((True, f"{name}_high"), (False, f"{name}_low")):
            right = [[obs.outcome for obs in own if obs.sure == sure] for own in decided]
            fields[field] = _shrunk(right, getattr(start, field))
    confident = [[float(obs.sure) for obs in own if obs.decided] for own in cases]
    fields["sure"] = _shrunk(confident, start.sure)
    slot = judge_errors.between_equals(observations, judge_errors.in_first_slot)
    if slot is not None:
        total = len(cases) + PRIOR_CASES
        fields["first_slot"] = (len(cases) * slot.value + PRIOR_CASES * start.first_slot) / total
    rounded = {name: round(value, 4) for name, value in fields.items()}
    assumed = tuple(sorted(set(JudgeProfile.__dataclass_fields__) - set(fields)))
    return replace(start, **rounded), assumed


def _shrunk(cases: Sequence[Sequence[float]], start: float) -> float:
    """The mean of all values and of `PRIOR_CASES` more cases of usual size that have the value `start`."""
    values = [value for case in cases for value in case]
    if not values:
        return start
    counted = sum(1 for case in cases if case)
    before = PRIOR_CASES * len(values) / counted
    return (sum(values) + before * start) / (len(values) + before)


CHANCE = 0.5
USELESS = 0.6  # a judge whose accuracy is shown to be below this is not worth its calls


def classify(accuracy: Estimate) -> str:
    """Classify a judge by its interval of accuracy: above, below, chance (or hardly above), undecided."""
    if accuracy.low > CHANCE:
        return "above"
    if accuracy.high < CHANCE:
        return "below"
    return "chance" if accuracy.high < USELESS else "undecided"


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
    """Figures of one evidence level."""

    accuracy: Estimate
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
class JudgeMeasures:
    """All figures measured of a judge."""

    pairs: int
    cases: int
    levels: Mapping[str, LevelMeasures]
    difference: Estimate | None
    first_slot: Estimate | None
    longer: Estimate | None
    rho: float | None


def measure(observations: Sequence[Observation], *, probabilities: bool) -> JudgeMeasures:
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
        first_slot=judge_errors.between_equals(observations, judge_errors.in_first_slot),
        longer=judge_errors.between_equals(observations, judge_errors.longer),
        rho=tokens[0] / tokens[1] if len(tokens) == 2 and tokens[1] else None,
    )


class StopRule:
    """Decides, case after case, when the accuracy at full views is known well enough.

    It goes by how precise the figure is and not by what it says, so looking often does not bias it.
    """

    def __init__(self, precision: float = PRECISION) -> None:
        self._precision = precision
        self._full: list[float] = []

    @property
    def settled(self) -> bool:
        """Whether more pairs are not needed."""
        return half_width(self._full) <= self._precision

    def add(self, observations: Sequence[Observation]) -> None:
        """Add the observations of one case."""
        self._full += outcomes(observations, Level.FULL)


def _measure_level(
    observations: Sequence[Observation], level: Level, *, probabilities: bool
) -> LevelMeasures | None:
    some = at_level(observations, level)
    found = accuracy(observations, level)
    if found is None:
        return None
    return LevelMeasures(
        accuracy=found,
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
    freedom = max(1, found.cases - 1)
    half = (found.high - found.low) / 2 * student(freedom, 0.9) / student(freedom)
    if half > SLACK * PRECISION and found.cases >= LEAST_CASES:
        pairs = math.ceil(measured.pairs * (half / PRECISION) ** 2 / 10) * 10
        warnings.append(
            f"accuracy at full views is known to ±{100 * half:.0f} points only, and the forecasts with it; "
            f"about {pairs} pairs, of more cases, would give ±{100 * PRECISION:.0f}"
        )
    return warnings


def is_usable(measured: JudgeMeasures) -> bool:
    """Whether a judge is shown to be better than chance at full views."""
    return classify(measured.levels["E2"].accuracy) == "above"


def describe_accuracy(level: str, found: Estimate) -> str:
    """One sentence on the accuracy at a level."""
    range_ = f"between {100 * found.low:.0f} and {100 * found.high:.0f} %"
    return {
        "above": f"{level}: the judge tells right from wrong, {100 * found.value:.0f} % of pairs ({range_})",
        "below": f"{level}: the judge prefers the wrong one, {100 * found.value:.0f} % right ({range_})",
        "chance": f"{level}: the judge is at chance or hardly above ({range_})",
        "undecided": f"{level}: {found.looks // 2} pairs do not tell the judge from a coin ({range_})",
    }[classify(found)]
