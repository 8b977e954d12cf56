"""`caps report`: one page per run, to mail, to open from disk, or to watch while the run goes on."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from caps.cli.config_options import named_domain
from caps.cli.output import print_json, put, say
from caps.core.errors import InputError, JournalError
from caps.journal.store import Journal
from caps.reports.console import shown
from caps.reports.page import write_page
from caps.reports.report import case_page, load_report, pair_page, receipt_line, receipts, run_page
from caps.runs.folder import read_run
from caps.runs.rebuild import RebuiltRun

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, made with --out; two are compared.")
]
CaseId = Annotated[str | None, typer.Option("--case", metavar="ID", help="The receipt of one case alone.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Where the page goes, instead of into the run's folder.")
]
Json = Annotated[bool, typer.Option("--json", help="With --case: print the receipt as JSON.")]
Texts = Annotated[
    bool,
    typer.Option("--texts/--no-texts", help="Problems, candidates, prompts and replies, or none of them."),
]
Serve = Annotated[
    bool, typer.Option("--serve", help="Serve the page on this machine; live while the run goes on.")
]
Domain = Annotated[
    str | None,
    typer.Option("--domain", help="The domain of the run once more, if it is code of the working directory."),
]
Port = Annotated[int, typer.Option(help="With --serve: the port; 0 takes a free one.")]


def report(
    runs: Runs,
    case: CaseId = None,
    output: Output = None,
    as_json: Json = False,
    texts: Texts = True,
    serve: Serve = False,
    port: Port = 8910,
    domain: Domain = None,
) -> None:
    """Write a page about a run: what was chosen, how each case was decided, and what it cost.

    It asks nothing of the network and can be mailed. Of a large run, receipts go into a folder beside it.
    """
    named_domain(domain)
    if (as_json or serve or case is not None) and len(runs) > 1:
        raise InputError("--case, --json and --serve take one run")
    if output is not None and str(output) == "-":
        raise InputError("--output -: a page goes into a file; name one")
    if as_json and case is None:
        raise InputError("--json prints the receipt of one case: name it with --case")
    if serve:
        from caps.reports.live import serve_page  # noqa: PLC0415 - a web server is loaded by those who want one

        serve_page(runs[0], opened, port=port, say=say)
        return
    with ExitStack() as stack:
        told = [stack.enter_context(opened(run)) for run in runs]
        if case is not None and as_json:
            print_json(receipt_line(told[0], case))
            return
        _write(told, case, output, texts=texts)


@contextmanager
def opened(path: Path) -> Iterator[RebuiltRun]:
    """A run with its journal, as far as that is there."""
    kept = read_run(path).file.config.journal
    where = None if kept is None else Path(kept)
    with ExitStack() as stack:
        journal = None
        if where is not None and where.is_file():
            try:
                journal = stack.enter_context(Journal.open(where))
            except JournalError as error:
                say(f"{error}; the page goes without", "yellow")
        yield RebuiltRun(path, journal)


def _write(runs: list[RebuiltRun], case: str | None, output: Path | None, *, texts: bool) -> None:
    held: Iterator[str] = iter(())
    if case is not None:
        name = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in case)
        page, usual = case_page(runs[0], case), f"receipt-{name}.html"
    elif len(runs) == 1:
        told = load_report(runs[0])
        page, held, usual = run_page(told), receipts(told, texts=texts), "report.html"
    else:
        all_ = [load_report(run) for run in runs]
        both = chain.from_iterable(receipts(one, texts=texts) for one in all_[:2])
        page, held, usual = pair_page(all_), both if len(all_) == 2 else iter(()), "compared.html"
    out = output or runs[0].path / usual
    files = write_page(page, held, out)
    put(f"{shown(str(out)) if sys.stdout.isatty() else out}\n".encode())
    if len(files) > 1:
        say(f"its receipts lie in {files[1].parent}: keep that folder beside it ({len(files) - 1} files)")
    for note in dict.fromkeys(note for run in runs for note in run.notes):
        say(note, "yellow")
