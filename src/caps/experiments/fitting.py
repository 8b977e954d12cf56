"""The synthetic judge that errs like a measured one, so that contests with it can be played for nothing."""

from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist, fmean

from caps.core.types import Level
from caps.diagnostics.measured import LEVELS, Measured
from caps.judges.simulated import JudgeModel

NORMAL = NormalDist()
WIDEST = 4.0


def fitted(measured: Measured) -> JudgeModel:
    """Accuracy at both levels, the pull of slot A, ties, confidence and lasting errors, as measured.

    The pull and the two bands are one number for both levels, what was not measured is as the model has it.
    """
    at_partial, at_full = measured.levels["E1"], measured.levels["E2"]
    model = JudgeModel(
        accuracy=_inside(at_full.accuracy.value), accuracy_partial=_inside(at_partial.accuracy.value)
    )
    if measured.first_slot is not None:
        model = replace(model, position_bias=NORMAL.inv_cdf(_inside(measured.first_slot.value)))
    found = measured.repeats
    if found.own is not None:
        lasting = found.own + (found.shared or 0.0)
        share = (found.shared or 0.0) / lasting if lasting else 0.0
        model = replace(model, noise=1 - lasting, shared_bias=share)
    ties = [one.ties.value for one in (at_partial, at_full) if one.ties]
    sure = [one.confidence.sure.value for one in (at_partial, at_full) if one.confidence.sure]
    if ties:
        band = _rising(lambda width: _within(replace(model, tie_band=width), width), fmean(ties))
        model = replace(model, tie_band=band)
    if sure:
        unsure = _decided(model) * (1 - fmean(sure)) + _within(model, model.tie_band)
        model = replace(model, high_band=_rising(lambda width: _within(model, width), unsure))
    return model


def _decided(model: JudgeModel) -> float:
    return 1 - _within(model, model.tie_band)


def _within(model: JudgeModel, width: float) -> float:
    """Share of comparisons whose difference is smaller than a width, over both levels and orders."""
    centres = [model.gap(Level(level)) + side * model.position_bias for level in LEVELS for side in (1, -1)]
    return fmean(NORMAL.cdf(width - centre) - NORMAL.cdf(-width - centre) for centre in centres)


def _rising(function: Callable[[float], float], wanted: float) -> float:
    """Where a rising function takes a value, from 0 to the widest band."""
    low, high = 0.0, WIDEST
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < wanted else (low, middle)
    return (low + high) / 2


def _inside(share: float) -> float:
    """A share the model takes: certainty is never measured."""
    return min(0.99, max(0.02, share))
