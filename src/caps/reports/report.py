"""Reports of runs: the pages and data that `caps report` writes, serves and prints."""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from caps.core.errors import InputError
from caps.core.text import plural
from caps.core.types import Case
from caps.reports import compare
from caps.reports.html import Node, TextTable, el
from caps.reports.page import Page, head, receipt_json
from caps.reports.receipt import GameExchange, Receipt, exchanges_of, receipt_of
from caps.reports.receipt_page import receipt_view
from caps.reports.run_page import (
    COLUMNS,
    FILTERS,
    Listing,
    cards,
    glossary_view,
    lead,
    panel_view,
    run_rows,
    section,
    settings_view,
    timeline_view,
    tokens_view,
)
from caps.runs.rebuild import RebuiltRun
from caps.runs.summary import Figures, count_figures

MAX_FLIP_CASES = 2_000  # larger runs look for decisive verdicts only in the page of a single case


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run with its figures and known labels."""

    run: RebuiltRun
    figures: Figures
    labels: dict[str, tuple[bool | None, ...]]

    @property
    def name(self) -> str:
        """The name of the run on a page."""
        return self.run.path.resolve().name

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The result lines, in order."""
        return list(self.run.selections.values())


def load_report(run: RebuiltRun) -> RunReport:
    """Count the figures of a run."""
    labels = {
        case.id: tuple(one.correct for one in case.candidates)
        for case in run.cases()
        if case.id in run.selections
    }
    figures = count_figures(run.selections.values(), run.calls, labels, run.runner.price)
    return RunReport(run, figures, labels)


def run_page(report: RunReport, *, live: bool = False) -> Page:
    """Create the page of one run."""
    run = report.run
    return Page(
        title=f"{report.name} · caps report",
        figures=run_figures(report),
        after=[_details(run)],
        listing=Listing(COLUMNS, FILTERS, run_rows(report.lines, run.calls, report.labels)),
        footer=footer(),
        status=status(report),
        live=live,
    )


def run_figures(report: RunReport) -> list[Node]:
    """Return the part of a page that changes while the run continues."""
    run, figures = report.run, report.figures
    timeline = timeline_view(_timestamps(run))
    return [
        *head(report.name, lead(run.file.config, figures, finished=run.finished), cards(figures)),
        section("Tokens read", "Tokens sent to the judge, by stage and evidence.", tokens_view(figures)),
        *panel_view(report.lines),
        *([] if timeline is None else [timeline]),
    ]


def status(report: RunReport) -> str:
    """Say whether the run has finished."""
    if report.run.finished:
        return "finished"
    return f"not finished: {plural(report.figures.cases, 'case')} so far"


def comparison_page(runs: Sequence[RunReport]) -> Page:
    """Create the page of several runs; two runs are compared case by case."""
    names = [report.name for report in runs]
    if len(set(names)) < len(names):
        names = [str(report.run.path) for report in runs]
    title = ", ".join(names)
    figures = head(title, *compare.runs_view(names, [report.figures for report in runs]))
    listing = None
    if len(runs) == 2:
        first, second = (report.run.selections for report in runs)
        labels = {**runs[1].labels, **runs[0].labels}
        figures.append(compare.pair_view(names, compare.compare_runs(first, second, labels)))
        listing = compare.pair_listing(names, first, second, labels)
    settings = [
        node
        for name, report in zip(names, runs, strict=True)
        for node in (el("h3", name), settings_view(report.run.file))
    ]
    return Page(
        title=f"{title} · caps report",
        figures=figures,
        after=[section("Terms and settings", None, glossary_view(), *settings)],
        listing=listing,
        footer=footer(),
        runs=names,
    )


def receipts(report: RunReport, *, texts: bool = True) -> Iterator[str]:
    """Yield the receipt of every case for the page's script, in the order of the rows."""
    run, cases = report.run, report.run.cases()
    with_flips = len(run.selections) <= MAX_FLIP_CASES
    gc.freeze()  # the lines of the run stay: the garbage collector need not look at them again and again
    try:
        for line in run.selections.values():
            case = next_case(cases, line["id"]) if line["id"] in report.labels else None
            receipt, exchanges = _receipt(run, line, case, with_flips=with_flips, texts=texts)
            table = TextTable()
            yield receipt_json(receipt_view(receipt, exchanges, case if texts else None, table), table)
    finally:
        gc.unfreeze()


def next_case(cases: Iterator[Case], name: str) -> Case | None:
    """Advance to the case of that name; selections are in the order of the cases."""
    return next((case for case in cases if case.id == name), None)


def one_receipt(run: RebuiltRun, name: str) -> tuple[Receipt, list[GameExchange], Case | None]:
    """Return the receipt of one case."""
    line = run.selections.get(name)
    if line is None:
        some = ", ".join(map(repr, list(run.selections)[:5])) or "none yet"
        raise InputError(f"{run.path}: no case {name!r} in this run; there are {some}")
    case = next_case(run.cases(), name)
    return *_receipt(run, line, case, with_flips=True, texts=True), case


def case_page(run: RebuiltRun, name: str) -> Page:
    """Create the page of one case, readable without scripts."""
    receipt, exchanges, case = one_receipt(run, name)
    texts = TextTable()
    return Page(
        title=f"{name} · caps report",
        figures=[receipt_view(receipt, exchanges, case, texts)],
        after=[_details(run)],
        footer=footer(),
        status=f"one case of {run.path.resolve().name}",
        texts=texts.texts,
    )


def receipt_line(run: RebuiltRun, name: str) -> dict[str, Any]:
    """Return a receipt as plain data, with prompts and replies."""
    receipt, exchanges, _ = one_receipt(run, name)
    line = asdict(receipt)
    games = [
        {
            **{name: value for name, value in game.items() if name != "opinions" or value},
            "prompt": "".join(one.prompt),
            "exact": one.exact,
            "replies": one.replies,
        }
        for game, one in zip(line.pop("games"), exchanges, strict=True)
    ]
    return {**line, "games": games}


def footer() -> str:
    """Return the footer with the version of caps."""
    try:
        name = f"caps {version('caps-select')}"
    except PackageNotFoundError:
        name = "caps"
    return f"Written by {name}. This page makes no network requests."


def _receipt(
    run: RebuiltRun, line: dict[str, Any], case: Case | None, *, with_flips: bool, texts: bool
) -> tuple[Receipt, list[GameExchange]]:
    prepared = None if case is None else run.prepared(case)
    receipt = receipt_of(run, line, prepared, with_flips=with_flips)
    return receipt, list(exchanges_of(run, prepared, line["id"])) if texts else []


def _timestamps(run: RebuiltRun) -> list[tuple[float, str]]:
    if run.journal is None:
        return []
    levels = {line["key"]: line["level"] for lines in run.calls.values() for line in lines if line.get("key")}
    return [(at, levels[key]) for key, at in run.journal.stamps(levels).items()]


def _details(run: RebuiltRun) -> Node:
    notes = [el("p", note, class_="note") for note in run.notes]
    return section("Terms and settings", None, glossary_view(), settings_view(run.file), *notes)
