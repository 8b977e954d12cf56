"""Reports of runs: the pages and data that `caps report` writes, serves and prints."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from caps.core.errors import InputError
from caps.core.text import number, percent, plural
from caps.core.types import Case
from caps.reports import compare
from caps.reports.cases import CaseFacts, case_facts
from caps.reports.elements import head, section, table
from caps.reports.html import Html, el
from caps.reports.listing import Listing
from caps.reports.numbers import dollars
from caps.reports.page import Page
from caps.reports.receipt import GameExchange, Receipt, exchanges_of, games_of, receipt_of
from caps.reports.receipt_page import receipt_view
from caps.reports.run_page import (
    FILTERS,
    Choices,
    RowContext,
    accuracy_view,
    cards,
    count_choices,
    glossary_view,
    group_fields,
    groups_view,
    judge_view,
    judges_view,
    lead,
    run_rows,
    searched_characters,
    settings_view,
    tokens_view,
    warning_view,
)
from caps.runs.judge_quality import JudgeQuality, count_judge_quality
from caps.runs.outcomes import Outcomes
from caps.runs.rebuild import RebuiltRun
from caps.runs.run_file import judges_of
from caps.runs.summary import Figures, count_figures

KEPT_CHARACTERS = (
    120_000_000  # of candidates in memory; a larger run reads its cases again for their receipts
)
MAX_FLIP_CASES = 2_000  # larger runs look for decisive verdicts only in the page of a single case


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run with its figures, known labels, and what a list says about each case.

    `cases` are those with a result, with their findings; None if they are too many to keep. `misjudged` are
    those in which the judge preferred a wrong candidate to a right one.
    """

    run: RebuiltRun
    figures: Figures
    labels: dict[str, tuple[bool | None, ...]]
    facts: dict[str, CaseFacts]
    choices: Choices
    quality: JudgeQuality
    misjudged: frozenset[str]
    cases: dict[str, Case] | None = None

    @property
    def outcomes(self) -> Outcomes:
        """How the labelled choices turned out."""
        return self.figures.outcomes

    @property
    def name(self) -> str:
        """The name of the run on a page."""
        return self.run.path.resolve().name

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The result lines, in order."""
        return list(self.run.selections.values())


def load_report(run: RebuiltRun, *, keep_cases: bool = False) -> RunReport:
    """Count the figures of a run; `keep_cases` if the receipts of all of them follow."""
    labels, facts, size = {}, {}, 0
    cases: dict[str, Case] | None = {} if keep_cases else None
    for read in run.cases():
        line = run.selections.get(read.id)
        if line is not None:
            case = run.with_findings(read)
            labels[case.id] = tuple(candidate.correct for candidate in case.candidates)
            facts[case.id] = case_facts(run, case, line)
            size += sum(len(candidate.text) for candidate in case.candidates)
            if size > KEPT_CHARACTERS:
                cases = None
            elif cases is not None:
                cases[case.id] = case
    figures = count_figures(run.selections.values(), run.calls, labels, run.resolved.price)
    choices = count_choices(run.selections.values(), labels, facts)
    quality, misjudged = count_judge_quality(run.calls, labels)
    return RunReport(run, figures, labels, facts, choices, quality, misjudged, cases)


def run_page(report: RunReport, *, live: bool = False, texts: bool = True) -> Page:
    """Create the page of one run; without `texts`, no word of a problem or candidate is on it."""
    run = report.run
    context = row_context(report, texts=texts)
    return Page(
        title=f"{report.name} · caps report",
        figures=run_figures(report),
        details=run_details(report),
        after=[_details(run)],
        listing=Listing(context.columns, FILTERS, run_rows(report.lines, context), context.fields),
        footer=footer(live=live),
        status=status(report),
        live=live,
    )


def row_context(report: RunReport, *, texts: bool = True) -> RowContext:
    """What the rows of a run have in common."""
    return RowContext(
        calls=report.run.calls,
        labels=report.labels,
        facts=report.facts,
        misjudged=report.misjudged,
        fields=group_fields(report.facts),
        stated=bool(report.choices.stated),
        priced=report.figures.usd is not None,
        searched=searched_characters(len(report.run.selections)) if texts else 0,
    )


def run_figures(report: RunReport) -> list[Html]:
    """Return the part of a page above its table; it changes while the run continues."""
    run, figures, outcomes = report.run, report.figures, report.outcomes
    is_baseline = run.file.config.strategy == "v1-infer"
    return [
        *head(
            report.name,
            lead(run.file.config, figures, finished=run.finished),
            warning_view(figures, outcomes, report.choices),
            cards(figures, outcomes, report.choices, is_baseline=is_baseline),
        ),
        *accuracy_view(outcomes, report.choices),
    ]


def run_details(report: RunReport) -> list[Html]:
    """Return the figures below the table: groups, the judge, tokens and money by stage."""
    run, figures = report.run, report.figures
    about = "Prompts sent to the judge, by stage and evidence: partial views (E1) or whole answers (E2)."
    spent = section("What it read", about, tokens_view(figures, run.resolved.price))
    shown = (
        groups_view(report.lines, report.labels, report.facts),
        judge_view(report.quality, len(report.misjudged)),
        spent if figures.total.calls else None,
        judges_view(report.lines),
    )
    return [element for element in shown if element is not None]


def status(report: RunReport) -> str:
    """Say whether the run has finished."""
    if report.run.finished:
        return "finished"
    return f"not finished: {plural(report.figures.cases, 'case')} so far"


def comparison_page(runs: Sequence[RunReport], *, texts: bool = True) -> Page:
    """Create the page of several runs, compared case by case."""
    names = [report.name for report in runs]
    if len(set(names)) < len(names):
        names = [str(report.run.path) for report in runs]
    sides = [_compared(name, report) for name, report in zip(names, runs, strict=True)]
    settings = [
        element
        for name, report in zip(names, runs, strict=True)
        for element in (el("h3", name), settings_view(report.run.file))
    ]
    title = ", ".join(names)
    return Page(
        title=f"{title} · caps report",
        figures=head(title, compare.lead(sides), compare.runs_view(sides), compare.pairs_view(sides)),
        after=[section("Terms and settings", None, glossary_view(), *settings)],
        listing=compare.cases_listing(sides, texts=texts),
        listing_title="Cases of all runs, different answers first",
        footer=footer(),
        runs=names,
    )


def index_page(title: str, runs: Mapping[str, RunReport]) -> Page:
    """Create the page that lists the runs of a folder, the latest first, each by the address of its page."""
    rows = []
    for address, report in sorted(runs.items(), key=lambda item: -item[1].run.file.started):
        side, outcomes = _compared(report.name, report), report.outcomes
        started = report.run.file.started
        date = datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%d %H:%M") if started else "–"
        accuracy = "–" if outcomes.accuracy is None else f"{percent(outcomes.accuracy)} %"
        cost = "unknown" if report.figures.usd is None and report.figures.total.calls else None
        rows.append(
            (
                el("a", report.name, href=address), date, side.strategy, side.model,
                number(report.figures.cases, 0), accuracy,
                f"{outcomes.right} / {outcomes.missed} / {outcomes.impossible}",
                percent(outcomes.share(outcomes.possible)), percent(outcomes.recovery),
                cost or dollars(report.figures.usd or 0.0), status(report),
            )
        )  # fmt: skip
    heads = (
        "run", "begun (UTC)", "strategy", "judge", "cases", "right", "right / missed / impossible",
        "ceiling %", "recovery %", "cost", "state",
    )  # fmt: skip
    about = el("p", f"{plural(len(rows), 'run')}. Each name leads to the page of the run.", class_="lead")
    return Page(
        title=f"{title} · caps report",
        figures=[*head(title, about), table(heads, rows, "runs")],
        footer=footer(),
    )


def _compared(name: str, report: RunReport) -> compare.ComparedRun:
    full, at_partial = judges_of(report.run.file.config)
    judge = str(full) if full == at_partial else f"{at_partial}, {full}"
    return compare.ComparedRun(
        name=name,
        strategy=report.run.file.config.strategy,
        model=judge if report.figures.total.calls else "none",
        selections=report.run.selections,
        calls=report.run.calls,
        labels=report.labels,
        facts=report.facts,
        figures=report.figures,
        outcomes=report.outcomes,
    )


def receipts(report: RunReport, *, texts: bool = True) -> Iterator[Html]:
    """Yield the receipt of every case, in the order of the rows."""
    run, cases = report.run, _cases(report)
    with_flips = len(run.selections) <= MAX_FLIP_CASES
    gc.freeze()  # the lines of the run stay: the garbage collector need not look at them again and again
    try:
        for line in run.selections.values():
            case = next_case(cases, line["id"]) if line["id"] in report.labels else None
            receipt, exchanges = _receipt(run, line, case, with_flips=with_flips, texts=texts)
            yield receipt_view(receipt, exchanges, case if texts else None)
    finally:
        gc.unfreeze()


def _cases(report: RunReport) -> Iterator[Case]:
    """The cases of a report with their findings."""
    if report.cases is not None:
        return iter(report.cases.values())
    return map(report.run.with_findings, report.run.cases())


def next_case(cases: Iterator[Case], name: str) -> Case | None:
    """Advance to the case of that name; selections are in the order of the cases."""
    return next((case for case in cases if case.id == name), None)


def one_receipt(run: RebuiltRun, name: str) -> tuple[Receipt, list[GameExchange], Case | None]:
    """Return the receipt of one case."""
    line = run.selections.get(name)
    if line is None:
        some = ", ".join(map(repr, list(run.selections)[:5])) or "none yet"
        raise InputError(f"{run.path}: no case {name!r} in this run; there are {some}")
    read = next_case(run.cases(), name)
    case = None if read is None else run.with_findings(read)
    return *_receipt(run, line, case, with_flips=True, texts=True), case


def case_page(run: RebuiltRun, name: str) -> Page:
    """Create the page of one case, readable without scripts."""
    receipt, exchanges, case = one_receipt(run, name)
    return Page(
        title=f"{name} · caps report",
        figures=[receipt_view(receipt, exchanges, case)],
        after=[_details(run)],
        footer=footer(),
        status=f"one case of {run.path.resolve().name}",
        rich=True,
    )


def receipt_line(run: RebuiltRun, name: str) -> dict[str, Any]:
    """Return a receipt as plain data, with prompts and replies."""
    receipt, exchanges, _ = one_receipt(run, name)
    line = asdict(receipt)
    games = [
        {
            **{name: value for name, value in game.items() if name != "opinions" or value},
            "prompt": exchange.prompt,
            "exact": exchange.exact,
            "replies": exchange.replies,
        }
        for game, exchange in zip(line.pop("games"), exchanges, strict=True)
    ]
    return {**line, "outcome": receipt.outcome, "missed": receipt.missed, "games": games}


def footer(*, live: bool = False) -> str:
    """Return the footer with the version of caps, and what the page asks of the network."""
    try:
        name = f"caps {version('caps-select')}"
    except PackageNotFoundError:
        name = "caps"
    if live:
        return f"Served by {name}. This page asks nothing of any other machine."
    return f"Written by {name}. This page makes no network requests."


def _receipt(
    run: RebuiltRun, line: dict[str, Any], case: Case | None, *, with_flips: bool, texts: bool
) -> tuple[Receipt, list[GameExchange]]:
    prepared = None if case is None else run.prepare(case)
    games = games_of(run.calls.get(line["id"], []))
    receipt = receipt_of(run, line, prepared, with_flips=with_flips, games=games)
    if not texts:
        return replace(receipt, names=(), gold=""), []  # a short answer is a text too
    return receipt, list(exchanges_of(run, line["id"], prepared, games))


def _details(run: RebuiltRun) -> Html:
    notes = [el("p", note, class_="note") for note in run.notes]
    return section("Terms and settings", None, glossary_view(), settings_view(run.file), *notes)
