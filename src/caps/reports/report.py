"""From runs to pages: what `caps report` writes, serves and prints."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from caps.core.errors import InputError
from caps.core.types import Case
from caps.reports import compare as compared
from caps.reports.html import Node, Texts, el
from caps.reports.page import Page, head, receipt_json
from caps.reports.receipt import GameExchange, Receipt, exchange_of, receipt_of
from caps.reports.receipt_page import receipt_view
from caps.reports.run_page import (
    COLUMNS,
    FILTERS,
    Listing,
    cards,
    lead,
    run_rows,
    section,
    settings,
    times,
    tokens,
    words,
)
from caps.runs.rebuild import RebuiltRun
from caps.runs.summary import Figures, count_figures

MOST_TURNED = 2_000  # cases of a run whose verdicts are turned around; of any other, by itself


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run with its figures and known labels, ready to be shown."""

    run: RebuiltRun
    figures: Figures
    labels: dict[str, tuple[bool | None, ...]]

    @property
    def name(self) -> str:
        """What the run is called on a page."""
        return self.run.path.resolve().name

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its selections, in order."""
        return list(self.run.selections.values())


def load_report(run: RebuiltRun) -> RunReport:
    """Count a run."""
    labels = {
        case.id: tuple(one.correct for one in case.candidates)
        for case in run.cases()
        if case.id in run.selections
    }
    figures = count_figures(run.selections.values(), run.calls, labels, run.runner.stated_price)
    return RunReport(run, figures, labels)


def run_page(told: RunReport, *, live: bool = False) -> Page:
    """The page of one run."""
    run = told.run
    listing = Listing(COLUMNS, FILTERS, run_rows(told.lines, run.calls, told.labels))
    return Page(
        title=f"{told.name} · caps report",
        figures=run_figures(told),
        after=[section("How it was run", None, words(), settings(run.file), *_notes(run))],
        listing=listing,
        footer=footer(),
        status=status(told),
        live=live,
    )


def run_figures(told: RunReport) -> list[Node]:
    """What is counted anew while a run goes on."""
    run = told.run
    return [
        *head(told.name, lead(run.file.config, told.figures, finished=run.finished), cards(told.figures)),
        section(
            "What the judge read", "Tokens sent to the judge, by stage and evidence.", tokens(told.figures)
        ),
        *([drawn] if (drawn := times(_stamps(run))) is not None else []),
    ]


def status(told: RunReport) -> str:
    """Where the run stands."""
    return "finished" if told.run.finished else f"not finished: {told.figures.cases} cases so far"


def pair_page(runs: Sequence[RunReport]) -> Page:
    """The page of several runs; of two, case by case."""
    names = [told.name for told in runs]
    if len(set(names)) < len(names):
        names = [str(told.run.path) for told in runs]
    title = ", ".join(names)
    figures = head(title, *compared.runs_view(names, [told.figures for told in runs]))
    listing = None
    if len(runs) == 2:
        first, second = (told.run.selections for told in runs)
        labels = {**runs[1].labels, **runs[0].labels}
        figures.append(compared.pair_view(names, compared.compare_runs(first, second, labels)))
        listing = compared.pair_listing(names, first, second, labels)
    made = [el("h3", name) for name in names]
    after = [
        node for title, told in zip(made, runs, strict=True) for node in (title, settings(told.run.file))
    ]
    return Page(
        title=f"{title} · caps report",
        figures=figures,
        after=[section("How they were run", None, words(), *after)],
        listing=listing,
        footer=footer(),
        runs=names,
    )


def receipts(told: RunReport, *, texts: bool = True) -> Iterator[str]:
    """The receipt of every case, in the order of the rows, as the page's script reads it."""
    run, cases = told.run, told.run.cases()
    turn = len(run.selections) <= MOST_TURNED
    for line in run.selections.values():
        case = next_called(cases, line["id"]) if line["id"] in told.labels else None
        receipt, heard = _receipt(run, line, case, turn=turn, texts=texts)
        kept = Texts()
        view = receipt_view(receipt, heard, case if texts else None, kept)
        yield receipt_json(view, kept)


def next_called(cases: Iterator[Case], name: str) -> Case | None:
    """The case of that name, further on; selections stand in the order of the cases."""
    return next((case for case in cases if case.id == name), None)


def one_receipt(run: RebuiltRun, name: str) -> tuple[Receipt, list[GameExchange], Case | None]:
    """The receipt of one case."""
    line = run.selections.get(name)
    if line is None:
        some = ", ".join(map(repr, list(run.selections)[:5])) or "none yet"
        raise InputError(f"{run.path}: no case {name!r} in this run; there are {some}")
    case = next_called(run.cases(), name)
    return *_receipt(run, line, case, turn=True, texts=True), case


def case_page(run: RebuiltRun, name: str) -> Page:
    """The page of one case, readable without scripts."""
    receipt, heard, case = one_receipt(run, name)
    texts = Texts()
    view = receipt_view(receipt, heard, case, texts)
    return Page(
        title=f"{name} · caps report",
        figures=[view],
        after=[section("How it was run", None, words(), settings(run.file), *_notes(run))],
        footer=footer(),
        status=f"one case of {run.path.resolve().name}",
        texts=texts.kept,
    )


def receipt_line(run: RebuiltRun, name: str) -> dict[str, Any]:
    """A receipt as plain data, with the words of its games."""
    receipt, heard, _ = one_receipt(run, name)
    line = asdict(receipt)
    games = line.pop("games")
    words_ = [{"prompt": "".join(one.prompt), "exact": one.exact, "replies": one.replies} for one in heard]
    return {**line, "games": [{**game, **said} for game, said in zip(games, words_, strict=True)]}


def footer() -> str:
    """Who made the page."""
    try:
        return f"Made by caps {version('caps-select')}. Nothing on this page asks anything of the network."
    except PackageNotFoundError:
        return "Made by caps. Nothing on this page asks anything of the network."


def _receipt(
    run: RebuiltRun, line: dict[str, Any], case: Case | None, *, turn: bool, texts: bool
) -> tuple[Receipt, list[GameExchange]]:
    prepared = None if case is None else run.prepared(case)
    receipt = receipt_of(run, line, prepared, turn=turn)
    return receipt, list(exchange_of(run, prepared, line["id"])) if texts else []


def _stamps(run: RebuiltRun) -> list[tuple[float, str]]:
    if run.journal is None:
        return []
    levels = {line["key"]: line["level"] for lines in run.calls.values() for line in lines if line.get("key")}
    return [(at, levels[key]) for key, at in run.journal.stamps(levels).items()]


def _notes(run: RebuiltRun) -> list[Node]:
    return [el("p", note, class_="note") for note in run.notes]
