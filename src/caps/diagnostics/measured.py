"""Everything a diagnosis knows of a judge, from its looks; and the profile that follows from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from caps.core.judging import JudgeProfile
from caps.core.types import Level
from caps.diagnostics import bias, calibration
from caps.diagnostics.estimates import Estimate
from caps.diagnostics.looks import Look, at
from caps.diagnostics.pair_accuracy import accuracy, agreement, difference, outcomes
from caps.diagnostics.repeats import Repeats, repeats
from caps.diagnostics.sequential import ConfidenceSequence, Sequential, enough, standing, watch

LEVELS = (Level.PARTIAL, Level.FULL)
ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLevel:
    """Figures of one evidence level; the sequential bounds of both levels hold at once, at every look."""

    accuracy: Estimate
    bounds: Sequential
    flips: Estimate | None
    ties: Estimate | None
    unreadable: Estimate | None
    confidence: calibration.Confidence
    brier: float | None
    calibration_error: float | None
    curve: tuple[calibration.Stated, ...]
    tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What is known of a judge after its looks."""

    pairs: int
    cases: int
    levels: Mapping[str, AtLevel]
    difference: Estimate | None
    agreement: Estimate | None
    first_slot: Estimate | None
    longer: Estimate | None
    repeats: Repeats
    rho: float | None
    settled_after: int | None  # cases


def measure(looks: Sequence[Look], *, probabilities: bool) -> Measured:
    """Work out every figure; `probabilities` where verdicts weigh by token probabilities."""
    levels = {
        str(level): found
        for level in LEVELS
        if (found := _at_level(looks, level, probabilities=probabilities))
    }
    tokens = [levels[name].tokens for name in ("E1", "E2") if name in levels]
    return Measured(
        pairs=len({look.pair for look in looks}),
        cases=len({look.case for look in looks}),
        levels=levels,
        difference=difference(looks),
        agreement=agreement(looks),
        first_slot=bias.between_equals(looks, bias.in_first_slot),
        longer=bias.between_equals(looks, bias.longer),
        repeats=repeats(looks),
        rho=tokens[0] / tokens[1] if len(tokens) == 2 and tokens[1] else None,
        settled_after=enough([one.bounds for one in levels.values()]),
    )


class StopRule:
    """Hears case after case, and knows when both levels have their answer."""

    def __init__(self) -> None:
        self._sequences = {level: ConfidenceSequence(ALPHA / len(LEVELS)) for level in LEVELS}
        self._open = set(LEVELS)

    @property
    def settled(self) -> bool:
        """Whether more pairs are not needed."""
        return not self._open

    def hear(self, looks: Sequence[Look]) -> None:
        """Take note of the looks of one more case."""
        for level, sequence in self._sequences.items():
            for value in outcomes(looks, level):
                sequence.observe(value)
            if standing(*sequence.interval) != "undecided":
                self._open.discard(level)


def profile_of(looks: Sequence[Look], measured: Measured) -> tuple[JudgeProfile, tuple[str, ...]]:
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
    if measured.repeats.own is not None:
        known["repeats"] = measured.repeats.own
    if measured.repeats.shared is not None:
        known["shared"] = measured.repeats.shared
    profile = replace(JudgeProfile(), **{name: round(value, 4) for name, value in known.items()})
    return profile, tuple(sorted(set(JudgeProfile.__dataclass_fields__) - set(known)))


def _at_level(looks: Sequence[Look], level: Level, *, probabilities: bool) -> AtLevel | None:
    some = at(looks, level)
    found = accuracy(looks, level)
    if found is None:
        return None
    return AtLevel(
        accuracy=found,
        bounds=watch(outcomes(looks, level), ALPHA / len(LEVELS)),
        flips=bias.flips(some),
        ties=bias.ties(some),
        unreadable=bias.unreadable(some),
        confidence=calibration.by_confidence(some),
        brier=calibration.brier(some) if probabilities else None,
        calibration_error=calibration.calibration_error(some) if probabilities else None,
        curve=calibration.curve(some) if probabilities else (),
        tokens=fmean(look.tokens for look in some),
    )
