"""A diagnosis as JSON: printed in full, or kept as a judge's profile."""

from dataclasses import asdict, dataclass
from typing import Any

from caps.diagnostics.measured import Measured
from caps.diagnostics.sequential import standing
from caps.diagnostics.suitability import REASON, RULE
from caps.experiments.conclusion import Conclusion
from caps.experiments.diagnosis import Asked
from caps.judges.profiles import profile_row

NEEDS_LABELS = ("accuracy", "bounds", "standing", "brier", "calibration_error", "curve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Who was diagnosed: where the verdicts come from, the models' names, the options that name it again."""

    source: str
    model: str | None = None
    model_e1: str | None = None
    words: tuple[str, ...] = ()
    simulated: bool = False


def diagnosis_row(found: Conclusion, asked: Asked, judge: Judge, line: str) -> dict[str, Any]:
    """Everything."""
    return {
        "judge": {"source": judge.source, "model": judge.model, "simulated": judge.simulated},
        "counts": _counts(found.measured, asked),
        **_figures(found.measured),
        "profile": asdict(found.profile),
        "assumed": found.assumed,
        "advice": {
            "use": asdict(found.chosen),
            "command": line,
            "rule": RULE,
            "reason": REASON,
            "expected_by": {"simulated": True, "judge": asdict(found.model)},
            "options": [asdict(one) for one in found.options],
        },
    }


def proxy_row(measured: Measured, asked: Asked) -> dict[str, Any]:
    """What is known without labels, and nothing that needs them."""
    row = _figures(measured)
    for level in row["levels"].values():
        for name in NEEDS_LABELS:
            level.pop(name)
        level["confidence"] = {"sure": level["confidence"]["sure"]}
    for name in ("difference", "repeats", "settled_after"):
        row.pop(name)
    counts = _counts(measured, asked)
    return {"proxy": "agreement of E1 with E2; not an accuracy", "counts": counts, **row}


def kept_row(found: Conclusion, asked: Asked, judge: Judge, *, date: str, seed: int) -> dict[str, Any]:
    """The profile as a file keeps it."""
    intervals = {
        level: {
            "accuracy": [one.accuracy.value, one.accuracy.low, one.accuracy.high],
            "at_every_look": [one.bounds.low, one.bounds.high],
        }
        for level, one in found.measured.levels.items()
    }
    about = {
        "source": judge.source,
        "model": judge.model,
        "model_e1": judge.model_e1,
        "confidence": asked.confidence,
        "date": date,
        "seed": seed,
        "counts": _counts(found.measured, asked),
        "intervals": intervals,
        "assumed": list(found.assumed),
    }
    return profile_row(found.profile, about)


def _counts(measured: Measured, asked: Asked) -> dict[str, int]:
    return {
        "pairs": measured.pairs,
        "cases": measured.cases,
        "looks": len(asked.looks),
        "beyond": asked.beyond,
        "unanswered": asked.unanswered,
    }


def _figures(measured: Measured) -> dict[str, Any]:
    row = asdict(measured)
    for name, level in row["levels"].items():
        bounds = measured.levels[name].bounds
        level["standing"] = standing(bounds.low, bounds.high)
    return row
