"""Calibration results as a line of text and as plain data."""

from collections.abc import Mapping
from typing import Any

from caps.core.judge_profile import JudgeProfile
from caps.core.text import plural
from caps.judging.profiles import profile_row
from caps.runs.result_lines import tokens_line
from caps.studies.calibration import Calibration


def calibration_text(calibration: Calibration) -> str:
    """Describe a calibration in one line."""
    learned = calibration.learned
    if learned.silent is not None:
        return f"not calibrated: {learned.silent}; the assumed judge profile is used"
    votes = "".join(
        f", {name} {value:g}" for name, value in calibration.strengths.items() if name != "calibrated"
    )
    return f"calibrated on {plural(learned.cases, 'labelled case')}: {_profile_text(learned.profile)}{votes}"


def calibration_row(calibration: Calibration) -> dict[str, Any]:
    """Return the calibration for `run.json`; the profile is among the strategy settings."""
    return _counts(calibration) | {
        "assumed": list(calibration.learned.assumed),
        "silent": calibration.learned.silent,
        "strengths": dict(calibration.strengths),
        "tokens": tokens_line(calibration.ledger),
    }


def judge_row(calibration: Calibration, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the profile as `--judge-profile` reads it."""
    more = {"counts": _counts(calibration), "assumed": list(calibration.learned.assumed)}
    return profile_row(calibration.learned.profile, {**about, **more})


def _counts(calibration: Calibration) -> dict[str, int]:
    return {
        "cases": calibration.learned.cases,
        "labelled": calibration.labelled,
        "looks": calibration.learned.observations,
        "unanswered": calibration.ledger.unanswered.total(),
    }


def _profile_text(judge: JudgeProfile) -> str:
    return (
        f"E1 right {judge.e1_high:.0%} when HIGH and {judge.e1_low:.0%} when LOW, "
        f"E2 {judge.e2_high:.0%} and {judge.e2_low:.0%}; "
        f"slot A gets {judge.first_slot:.0%} between equals"
    )
