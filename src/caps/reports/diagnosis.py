"""A diagnosis in words, tables and JSON."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from caps.core.text import number, percent
from caps.costs.prices import Price
from caps.judging.profiles import profile_row
from caps.reports.console import Grid, by_level, table
from caps.statistics.estimates import Estimate
from caps.statistics.judge_measures import (
    CLASS_NAMES,
    REASON,
    RULE,
    TOLERANCE,
    JudgeMeasures,
    LevelMeasures,
    classify,
    describe_accuracy,
    is_usable,
    mixed,
)
from caps.studies.advice import BASELINE, Conclusion, Expected, Findings
from caps.studies.diagnosis import DiagnosisRun

LEVELS = ("E1", "E2")


class Measure(NamedTuple):
    """A share that is measured at each level; `picture` names the chart that shows it."""

    name: str
    of: Callable[[LevelMeasures], Estimate | None]
    picture: str = ""


MEASURES = (
    Measure("right pairs", lambda level: level.accuracy, "accuracy"),
    Measure("flips when slots swap", lambda level: level.flips, "steadiness"),
    Measure("ties", lambda level: level.ties, "steadiness"),
    Measure("unreadable", lambda level: level.unreadable, "steadiness"),
    Measure("HIGH among decided", lambda level: level.confidence.sure),
    Measure("HIGH is right", lambda level: level.confidence.high),
    Measure("LOW is right", lambda level: level.confidence.low),
)


def figures(measured: JudgeMeasures) -> Grid:
    """Every figure by level, with its 95 % interval."""
    at = [measured.levels[level] for level in LEVELS]
    rows: list[tuple[str, ...]] = [
        (f"{measure.name} %", *(_share(measure.of(level)) for level in at)) for measure in MEASURES
    ]
    rows.insert(1, ("verdict", *(CLASS_NAMES[classify(level.accuracy)] for level in at)))
    if at[-1].brier is not None:
        rows.append(("Brier score (0.25: no idea)", *(number(level.brier, 3) for level in at)))
        rows.append(("calibration error %", *(percent(level.calibration_error) for level in at)))
    return table("", ("", *LEVELS), [*rows, ("tokens a call", *(number(level.tokens, 0) for level in at))])


def remarks(measured: JudgeMeasures) -> list[str]:
    """The figures that are about both levels, a sentence each."""
    said = []
    if measured.difference is not None:
        at = measured.levels
        full = at["E2"].accuracy.value
        both = mixed(at["E1"].accuracy.value, full)
        said.append(
            f"E1 less E2 on the same pairs: {_points(measured.difference)}; mixed as in the paper (8 calls "
            f"at E1, 10 at E2): {100 * both:.1f} %, {100 * (both - full):+.1f} points against E2 alone"
        )
    for level in LEVELS:
        if (slot := measured.levels[level].first_slot) is not None:
            said.append(f"{level}: slot A would win {_share(slot)} % of verdicts between equals")
    if measured.longer is not None:
        said.append(f"the longer one would win {_share(measured.longer)} % of verdicts between equals")
    if measured.rho is not None:
        said.append(f"rho, a call at E1 against one at E2: {measured.rho:.2f}")
    return said


def judged_words(measured: JudgeMeasures, *, pairs_most: int) -> list[str]:
    """The answer: is this judge good enough, and how sure is that?"""
    at = measured.levels
    said = [describe_accuracy(level, at[level].accuracy) for level in ("E2", "E1")]
    count = f"{measured.pairs} pairs of {measured.cases} cases"
    if any(classify(at[level].accuracy) == "undecided" for level in LEVELS):
        count += f", at most {pairs_most}, leave it open for one level at least: more pairs would tell"
    return [*said, f"{count}; intervals are 95 %"]


def options_table(options: Sequence[Expected], chosen: Expected) -> Grid:
    """Every strategy considered, with what to expect of it."""
    rows = [
        (
            ("→ " if one == chosen else "  ") + named(one),
            percent(one.pass_at_1, one.interval),
            percent(one.recovery),
            number(one.tokens, 0),
            by_level(one.calls),
            percent(one.pair_accuracy),
        )
        for one in options
    ]  # fmt: skip
    columns = (
        "strategy", "Pass@1 %", "recovery %", "tokens a case", "calls E1 + E2", "right in its games %",
    )  # fmt: skip
    return table(
        "forecast, simulated with a judge fitted to these figures; 90 % intervals are for as many new cases",
        columns,
        rows,
    )


def comparison(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Judges side by side; the arrow marks the cheapest of those within two points of the best."""
    best = max(row["pass_at_1"] for row in rows)
    close = [row for row in rows if row["pass_at_1"] >= best - TOLERANCE]
    money = all(row["usd_per_1000_cases"] is not None for row in rows)
    cost = "usd_per_1000_cases" if money else "tokens"
    arrow = min(close, key=lambda row: row[cost])
    cells = [
        (
            ("→ " if row is arrow else "  ") + row["judge"],
            number(row["pairs"], 0),
            *(percent(row["accuracy"][level]["value"]) for level in LEVELS),
            f"±{50 * (row['accuracy']['E2']['high'] - row['accuracy']['E2']['low']):.0f}",
            percent(row["first_slot"]["E2"]["value"] if row["first_slot"]["E2"] else None),
            percent(row["flips"]["E2"]["value"] if row["flips"]["E2"] else None),
            " ".join([row["use"]["strategy"], *(f"{k}={v}" for k, v in row["use"]["settings"].items())]),
            percent(row["pass_at_1"], row["interval"]),
            number(row["tokens"], 0),
            number(row["usd_per_1000_cases"], 2),
        )
        for row in rows
    ]
    columns = (
        "judge", "pairs", "right pairs E1 %", "E2 %", "95 %", "slot A %", "flips %", "use",
        "Pass@1 % forecast", "tokens a case", "USD per 1,000 cases",
    )  # fmt: skip
    return table("judges on the same pairs; forecasts are simulated, with 90 % intervals", columns, cells)


def paper_measure(options: Sequence[Expected]) -> str | None:
    """The paper's own measure, as its games would have it: CAPS's mixed accuracy less V1-Infer's."""
    found = {one.strategy: one.pair_accuracy for one in options if one.strategy in ("caps-r", BASELINE)}
    caps, full = found.get("caps-r"), found.get(BASELINE)
    if caps is None or full is None:
        return None
    return (
        f"the paper's measure, on simulated games: caps-r {100 * caps:.1f} %, {BASELINE} {100 * full:.1f} %, "
        f"delta {100 * (caps - full):+.1f} points"
    )


def advice_words(measured: JudgeMeasures, chosen: Expected) -> list[str]:
    """What to run, and why."""
    if not is_usable(measured):
        why = "do not let this judge choose: at full evidence it is not shown to beat a coin"
        return [why, f"use {chosen.strategy}, which asks no judge; the rule: {RULE}"]
    return [
        f"use {named(chosen)}: expected Pass@1 {percent(chosen.pass_at_1)} % for {number(chosen.tokens, 0)} "
        f"tokens a case; the rule: {RULE}",
        f"why not the paper's rule: {REASON}",
    ]


def command(
    cases: str, strategy: str, settings: Mapping[str, str], judge: Sequence[str], profile: Path | None
) -> str:
    """The line to paste; it runs as it stands."""
    words = ["caps", "select", cases, "--strategy", strategy]
    for name, value in settings.items():
        words += ["--set", f"{name}={value}"]
    if profile is not None:
        words += ["--judge-profile", str(profile)]
    return shlex.join([*words, *judge])


def named(one: Expected) -> str:
    """A strategy with the settings that are not the usual ones."""
    return " ".join([one.strategy, *(f"{name}={value}" for name, value in one.settings.items())])


def _share(found: Estimate | None) -> str:
    return percent(None) if found is None else percent(found.value, (found.low, found.high))


def _points(found: Estimate) -> str:
    return f"{100 * found.value:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}] points"


# A diagnosis as JSON: printed in full, or kept as a judge's profile.


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeLabel:
    """Who was diagnosed: where the verdicts come from, its name, the options that name it again."""

    source: str
    model: str | None = None
    words: tuple[str, ...] = ()
    simulated: bool = False
    price: Price | None = None

    @property
    def name(self) -> str:
        """How a table calls it."""
        return self.model or self.source


def diagnosis_row(found: Conclusion, asked: DiagnosisRun, judge: JudgeLabel, line: str) -> dict[str, Any]:
    """Everything."""
    return {
        **findings_row(found, asked, judge),
        "advice": {
            "use": asdict(found.chosen),
            "command": line,
            "rule": RULE,
            "reason": REASON,
            "expected_by": {"simulated": True, "judge": asdict(found.model)},
            "options": [asdict(one) for one in found.options],
        },
    }


def findings_row(found: Findings, asked: DiagnosisRun, judge: JudgeLabel) -> dict[str, Any]:
    """Figures and profile, which need no forecast."""
    return {
        "judge": {"source": judge.source, "model": judge.model, "simulated": judge.simulated},
        "counts": _counts(found.measured, asked),
        **_figures(found.measured),
        "profile": asdict(found.profile),
        "assumed": found.assumed,
        "warnings": found.warnings,
    }


def usd_per_case(found: Conclusion, price: Price | None) -> float | None:
    """Dollars the advised strategy spends on a case, replies included; none without a price."""
    if price is None:
        return None
    written = sum(calls * found.measured.levels[level].output for level, calls in found.chosen.calls.items())
    return price.of(round(found.chosen.tokens), round(written))


def comparison_rows(found: Sequence[tuple[Conclusion, DiagnosisRun, JudgeLabel]]) -> list[dict[str, Any]]:
    """Judges side by side: what they are worth, what to use with each, and what that costs."""
    rows = []
    for one, _, judge in found:
        at, chosen, dollars = one.measured.levels, one.chosen, usd_per_case(one, judge.price)
        rows.append(
            {
                "judge": judge.name,
                "simulated": judge.simulated,
                "pairs": one.measured.pairs,
                "accuracy": {level: asdict(at[level].accuracy) for level in ("E1", "E2")},
                "first_slot": {
                    level: asdict(slot) if (slot := at[level].first_slot) else None for level in at
                },
                "flips": {level: asdict(flips) if (flips := at[level].flips) else None for level in at},
                "use": {"strategy": chosen.strategy, "settings": dict(chosen.settings)},
                "pass_at_1": chosen.pass_at_1,
                "interval": chosen.interval,
                "tokens": chosen.tokens,
                "usd_per_1000_cases": None if dollars is None else 1000 * dollars,
                "warnings": one.warnings,
            }
        )
    return rows


def kept_row(
    found: Findings, asked: DiagnosisRun, judge: JudgeLabel, *, date: str, seed: int
) -> dict[str, Any]:
    """The profile as a file keeps it."""
    about = {
        "source": judge.source,
        "model": judge.model,
        "confidence": asked.confidence,
        "date": date,
        "seed": seed,
        "counts": _counts(found.measured, asked),
        "intervals": _intervals(found.measured),
        "assumed": list(found.assumed),
        "warnings": list(found.warnings),
    }
    return profile_row(found.profile, about)


def _intervals(measured: JudgeMeasures) -> dict[str, dict[str, list[float]]]:
    """Every figure of a profile with its 95 % interval, by level."""
    figures = {
        level: {
            "accuracy": one.accuracy,
            "first_slot": one.first_slot,
            "flips": one.flips,
            "high": one.confidence.high,
            "low": one.confidence.low,
        }
        for level, one in measured.levels.items()
    }
    return {
        level: {name: [one.value, one.low, one.high] for name, one in row.items() if one is not None}
        for level, row in figures.items()
    }


def _counts(measured: JudgeMeasures, asked: DiagnosisRun) -> dict[str, int]:
    return {
        "pairs": measured.pairs,
        "cases": measured.cases,
        "looks": len(asked.observations),
        "beyond": asked.beyond,
        "unanswered": asked.unanswered,
    }


def _figures(measured: JudgeMeasures) -> dict[str, Any]:
    row = asdict(measured)
    for name, level in row["levels"].items():
        level["standing"] = classify(measured.levels[name].accuracy)
    return row
