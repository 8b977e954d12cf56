"""`caps report`: one page per run, as a file or served live."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from caps.cli.options import RunDomain, named_domain
from caps.cli.output import print_json, say, write_result
from caps.cli.progress import Progress
from caps.core.errors import InputError, JournalError
from caps.core.text import plural, printable
from caps.journal.store import Journal
from caps.reports.compare import comparison_page, index_page
from caps.reports.html import Html
from caps.reports.page import write_page
from caps.reports.report import RunReport, load_report
from caps.reports.run_page import case_page, receipt_line, receipts, run_page
from caps.runs.folder import read_run
from caps.runs.rebuild import RebuiltRun
from caps.runs.shards import shard_folders

REPORT = "report.html"

Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="Folders of runs, made with --out; several are compared, and a folder of runs is listed.",
    ),
]
CaseId = Annotated[str | None, typer.Option("--case", metavar="ID", help="Only the receipt of this case.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="File of the page. Default: in the folder of the run."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the receipt of --case as JSON.")]
Texts = Annotated[
    bool,
    typer.Option(
        "--texts/--no-texts",
        help="Include problems, candidates, prompts and replies (default), or omit them.",
    ),
]
Serve = Annotated[
    bool, typer.Option("--serve", help="Serve the page on this machine, and update it while the run goes on.")
]
Port = Annotated[int, typer.Option("--port", metavar="N", help="Port of --serve; 0 takes a free one.")]


def report(
    runs: Runs,
    case: CaseId = None,
    output: Output = None,
    as_json: Json = False,
    texts: Texts = True,
    serve: Serve = False,
    port: Port = 8910,
    domain: RunDomain = None,
) -> None:
    """Write a page about a run: choices, contests and costs.

    The page loads nothing from the network and can be mailed. The receipts of a large run are written into a
    folder beside it.
    """
    named_domain(domain)
    if (as_json or serve or case is not None) and len(runs) > 1:
        raise InputError("--case, --json and --serve take one run")
    if output is not None and str(output) == "-":
        raise InputError("--output -: a page cannot be printed; name a file")
    if as_json and case is None:
        raise InputError("--json prints the receipt of one case: name it with --case")
    if serve:
        if shard_folders(runs[0]):
            raise InputError(f"{runs[0]}: --serve shows one shard at a time: name its folder")
        from caps.reports.live import serve_page  # noqa: PLC0415  (loads a web server)

        serve_page(runs[0], open_run, port=port, say=say)
        return
    inside = runs_in(runs[0]) if len(runs) == 1 and case is None else []
    if inside:
        _write_index(runs[0], inside, output, texts=texts)
        return
    with ExitStack() as stack:
        loaded = [stack.enter_context(open_run(run)) for run in runs]
        if case is not None and as_json:
            print_json(receipt_line(loaded[0], case))
            return
        _write(loaded, case, output, texts=texts)


def write_report(path: Path) -> Path:
    """Write the page of a run into its folder."""
    with open_run(path) as run:
        loaded = load_report(run)
        return write_page(run_page(loaded), _receipts(loaded), path / REPORT)[0]


def _receipts(report: RunReport, *, texts: bool = True) -> Iterator[Html]:
    """The receipts of a run; a large one takes minutes, so it shows how many are written."""
    with Progress("receipts", len(report.selections)) as progress:
        for receipt in receipts(report, texts=texts):
            yield receipt
            progress.advance()


@contextmanager
def open_run(path: Path) -> Iterator[RebuiltRun]:
    """A run with its journals, as far as they exist."""
    record, journals = read_run(path), dict[str, Journal]()
    with ExitStack() as stack:
        for where in {*record.journals.values(), record.file.config.journal} - {None}:
            if where is None or not Path(where).is_file():
                continue
            try:
                journals[where] = stack.enter_context(Journal.open(where))
            except JournalError as error:
                say(f"{error}; the page is written without it", "yellow")
        yield RebuiltRun(path, journals)


def runs_in(folder: Path) -> list[Path]:
    """The folders of runs in a folder that holds no run itself."""
    if (folder / "run.json").is_file() or shard_folders(folder) or not folder.is_dir():
        return []
    entries = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    return [entry for entry in entries if (entry / "run.json").is_file() or shard_folders(entry)]


def _write_index(folder: Path, runs: list[Path], output: Path | None, *, texts: bool) -> None:
    """Write the page of every run, and one that lists them."""
    out = output or folder / "index.html"
    with ExitStack() as stack:
        loaded = {}
        for path in runs:
            run = load_report(stack.enter_context(open_run(path)))
            page = write_page(run_page(run, texts=texts), _receipts(run, texts=texts), path / REPORT)[0]
            address = os.path.relpath(page, out.parent)
            loaded[quote(Path(address).as_posix())] = run
        write_page(index_page(folder.resolve().name, loaded), (), out)
    write_result(f"{printable(str(out)) if sys.stdout.isatty() else out}\n".encode())


def _write(runs: list[RebuiltRun], case: str | None, output: Path | None, *, texts: bool) -> None:
    held: Iterator[Html] = iter(())
    if case is not None:
        name = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in case)
        page, usual = case_page(runs[0], case), f"receipt-{name}.html"
    elif len(runs) == 1:
        loaded = load_report(runs[0])
        page, held, usual = run_page(loaded, texts=texts), _receipts(loaded, texts=texts), REPORT
    else:
        all_ = [load_report(run) for run in runs]
        held = chain.from_iterable(_receipts(run, texts=texts) for run in all_)
        page, usual = comparison_page(all_, texts=texts), "compared.html"
    out = output or runs[0].path / usual
    files = write_page(page, held, out)
    write_result(f"{printable(str(out)) if sys.stdout.isatty() else out}\n".encode())
    if len(files) > 1:
        say(
            f"the receipts are in {files[1].parent} ({plural(len(files) - 1, 'file')}): keep it with the page"
        )
    for note in dict.fromkeys(note for run in runs for note in run.notes):
        say(note, "yellow")
