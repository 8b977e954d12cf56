"""The outcome of a calibration, in a line and as plain data."""

from collections.abc import Mapping
from typing import Any

from caps.core.judge_profile import JudgeProfile
from caps.judging.profiles import profile_row
from caps.runs.result_lines import tokens_line
from caps.studies.calibration import Calibration

FILE = "judge.json"


def words(found: Calibration) -> str:
    """One line for people."""
    learned = found.learned
    if learned.silent is not None:
        return f"not calibrated: {learned.silent}; the judge is taken for what was assumed"
    how = "going by the votes, since nothing is labelled"
    if found.labelled:
        how = f"{found.labelled} of them labelled"
    votes = "".join(f", {name} {x:g}" for name, x in found.strengths.items())
    return f"calibrated on {learned.cases} cases, {how}: {_worth(learned.profile)}{votes}"


def row(found: Calibration) -> dict[str, Any]:
    """All of it for a run's file; the profile itself is among the strategy's settings."""
    return _counts(found) | {
        "information": round(found.learned.information, 2),
        "assumed": list(found.learned.assumed),
        "silent": found.learned.silent,
        "strengths": dict(found.strengths),
        "tokens": tokens_line(found.ledger),
    }


def judge_row(found: Calibration, about: Mapping[str, Any]) -> dict[str, Any]:
    """The profile as `--judge-profile` reads it."""
    more = {"counts": _counts(found), "assumed": list(found.learned.assumed)}
    return profile_row(found.learned.profile, {**about, **more})


def _counts(found: Calibration) -> dict[str, int]:
    return {
        "cases": found.learned.cases,
        "labelled": found.labelled,
        "looks": found.learned.observations,
        "unanswered": found.ledger.unanswered.total(),
    }


def _worth(judge: JudgeProfile) -> str:
    return (
        f"E1 right {judge.e1_high:.0%} when HIGH and {judge.e1_low:.0%} when LOW, "
        f"E2 {judge.e2_high:.0%} and {judge.e2_low:.0%}; "
        f"slot A gets {judge.first_slot:.0%} between equals; "
        f"of its errors {judge.repeats:.0%} repeat with the candidate, {judge.shared:.0%} with the answer"
    )
