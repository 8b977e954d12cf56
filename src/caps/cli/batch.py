"""`caps batch`: select through files for a Batch API, step by step."""

import asyncio
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from platformdirs import user_data_path

from caps.cli import options
from caps.cli.batch_run import BatchRun, open_batch_run, take_step
from caps.cli.help import ADVANCED, FILES
from caps.cli.options import Command, JournalFile, JsonFlag, configured
from caps.cli.output import FailureLog, print_json, say, stdout
from caps.cli.preflight import checked_source
from caps.config import Keys, RunConfig
from caps.core.errors import InputError, JournalError, SettingError
from caps.core.text import number, plural
from caps.datasets.imports import open_cases
from caps.datasets.reading import lines
from caps.engines.batch import CaseProgress
from caps.engines.batch_files import RESULTS, BatchImporter, BatchRecords, ImportCount
from caps.engines.budget import Account
from caps.journal.store import Journal, default_path
from caps.models.pending import PendingRequest
from caps.models.wire import RENAMED
from caps.reports.console import table
from caps.runner import Runner
from caps.runs.folder import BatchFolder
from caps.runs.run_file import RunFile, new_run_file
from caps.studies.planning import forecast_case

app = typer.Typer(help="Select through files for a Batch API, step by step.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Write requests to files, read the results, and see the progress."""


Begun = Annotated[
    Path,
    typer.Argument(
        metavar="CASES|DIR", help="Cases to start a run with, or the folder of a run to continue."
    ),
]
LimitName = Annotated[
    str,
    typer.Option(
        "--limit-name",
        metavar="NAME",
        help=f"Request field that limits the length of a reply: max_tokens or {RENAMED}.",
        rich_help_panel=ADVANCED,
        autocompletion=options.completion(("max_tokens", RENAMED)),
    ),
]
Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Write requests again that are in files without results.",
        rich_help_panel=FILES,
    ),
]
FREE = ("begun", "again", "extra", "quiet", "as_json", "config_file")  # allowed when a run is continued


@app.command(cls=Command, epilog=options.EPILOG)
@configured(
    "judge", "asking", "strategy", "evidence", "domain", "findings", "engine",
    "context", "journal", "cases", "price", "budget",
    defaults={"engine": "batch"},
    without=(
        "base_url", "judge_base_url", "judge_base_url_e1", "engine", "ray_address", "ray_workers",
    ),
)  # fmt: skip
def prepare(
    ctx: typer.Context,
    begun: Begun,
    config: RunConfig,
    keys: Keys,
    out: options.Out = None,
    force: options.Force = False,
    limit_name: LimitName = "max_tokens",
    limit: options.Limit = None,
    again: Again = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Write the next requests to files for a Batch API or vllm run-batch.

    The folder stores all settings except texts of --extra that may be secret, so later steps need only its
    name and those. The paths of the files are printed. When no request is left, the selections are printed,
    as by caps select, and stored in the folder.
    """
    if begun.is_dir():
        _refuse_options(ctx, begun)
        folder = begun
    else:
        if out is None:
            raise SettingError("no folder for the files of this run: give --out DIR")
        if config.confidence == "auto":
            raise SettingError("--confidence auto needs a server to ask: choose verbal or logprobs")
        if config.reply == "auto":
            raise SettingError("--reply auto needs a server to ask: choose free, tags or json")
        if limit_name not in ("max_tokens", RENAMED):
            raise SettingError(f"--limit-name {limit_name!r}: must be max_tokens or {RENAMED}")
        if not (config.judge_model or config.model or config.judges):
            raise SettingError("no model: give --model NAME, or set CAPS_MODEL")
        file = _run_file(Runner(config, keys=keys, offline=True), begun, limit)
        BatchFolder(out).begin(replace(file, batch={"limit_name": limit_name}), force=force)
        folder = out
    lines = as_json or not sys.stdout.isatty()
    raise typer.Exit(
        asyncio.run(take_step(folder, extra=config.extra, again=again, quiet=quiet, lines=lines))
    )


def _refuse_options(ctx: typer.Context, folder: Path) -> None:
    """Refuse options that would be ignored, since a run keeps its settings."""
    for name in ctx.params:
        source = ctx.get_parameter_source(name)
        if name not in FREE and source is not None and source.name == "COMMANDLINE":
            raise SettingError(
                f"{folder} stores its settings, so --{name.strip('_').replace('_', '-')} has no effect: "
                "leave it out, or start another run with another --out"
            )


def _run_file(runner: Runner, cases: Path, limit: int | None) -> RunFile:
    """The run file, checked before it is stored."""
    runner.check_batch()
    Account(runner.case_budget, runner.price)  # raises if dollars are limited and the price is unknown
    if not cases.is_file():
        raise InputError(
            f"{cases}: no such file; cases are read at every step, so they must be in a regular file"
        )
    read = partial(open_cases, str(cases), fields=runner.config.map, say=say)
    checked_source(read, None)  # raises if it holds no case
    findings = runner.findings(None)
    return new_run_file(
        runner,
        cases=str(cases),
        limit=limit,
        confidence=runner.judge_settings.confidence,
        findings={} if findings is None else findings.versions,
    )


Places = Annotated[
    list[Path],
    typer.Argument(metavar="DIR|FILES...", help="Folder of the run, result files, or both."),
]


@app.command(cls=Command)
def absorb(places: Places, quiet: options.Quiet = False) -> None:
    """Read result and error files into the journal, in any order and as often as you like.

    With a folder alone, every new result file in it is read. Failed requests go into the next file that caps
    batch prepare writes. Lines that are not results are reported, and the exit code is 1.
    """
    folder, files = _sorted_out(places)
    if not files:
        say(f"{folder}: holds no new results")
        return
    imported = asyncio.run(_absorb(folder, files))
    with FailureLog("not a result") as garbage:
        for words in imported.garbage:
            garbage.add(words)
    if imported.refused is not None:
        say(f"refused: {imported.refused}", "red")
    if not quiet:
        say(_summary(imported, len(files)))
        say(f"next: caps batch prepare {folder}")
    raise typer.Exit(1 if imported.garbage else 0)


async def _absorb(path: Path, files: list[Path]) -> ImportCount:
    async with open_batch_run(path) as run:
        importer = BatchImporter(run.journal, _awaited(run), run.failures)
        for file in files:
            await importer.import_lines(lines(str(file), RESULTS), str(file))
        run.folder.add_failures(importer.count.failures)
        run.folder.mark_imported(files)
        if importer.count.renamed:
            run.folder.rename_limit(RENAMED)
            say(f"this server calls the limit {RENAMED}: the next file will use that name", "yellow")
    return importer.count


def _awaited(run: BatchRun) -> dict[str, PendingRequest]:
    """The requests that contests wait for, including those given up: late replies count."""
    return {one.key: one.pending for progress in run.batch_state.progress() for one in progress.missing}


def _sorted_out(places: list[Path]) -> tuple[Path, list[Path]]:
    """The folder of the run, and the result files; of files alone, the folder they are in."""
    folders, files = [one for one in places if one.is_dir()], [one for one in places if not one.is_dir()]
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: no such file or folder")
    homes = folders or sorted({file.parent for file in files})
    if len(homes) != 1:
        raise InputError(f"{', '.join(map(str, homes))}: these are several folders; name one")
    folder = BatchFolder(homes[0])
    if not folder.exists:
        raise InputError(
            f"{homes[0]}: holds no batch run: name its folder too  (caps batch absorb DIR FILES...), or "
            "start one with  caps batch prepare CASES --out DIR"
        )
    if files:
        return homes[0], files
    if not folder.results():
        raise InputError(f"{homes[0]}: holds no result files: name them, or copy them there")
    return homes[0], folder.new_results()


def _summary(imported: ImportCount, files: int) -> str:
    counts = [
        (len(imported.keys), "new"),
        (imported.known, "known already"),
        (imported.unknown, "not of this run"),
        (imported.failed.total(), f"failed, to be sent again{_causes(imported.failed)}"),
        (imported.not_run, "never run, to be sent again"),
        (imported.given_up.total(), f"given up, counted as unanswered{_causes(imported.given_up)}"),
    ]
    words = "; ".join(f"{number(count, 0)} {kind}" for count, kind in counts if count) or "none"
    return f"replies in {plural(files, 'file')}: {words}"


def _causes(counts: "dict[str, int]") -> str:
    return f" ({', '.join(f'{cause} {count}' for cause, count in sorted(counts.items()))})" if counts else ""


RunFolder = Annotated[
    Path | None,
    typer.Argument(metavar="[DIR]", help="Folder of the run. Default: the batches of the journal."),
]
ByCase = Annotated[bool, typer.Option("--cases", help="List every case.")]
OVER = "over"


@dataclass(slots=True)
class BatchProgress:
    """The progress of all cases; `trips` is the number of further files that the longest contest may need."""

    cases: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    trips: int = 0

    def total(self, name: str) -> int:
        """One figure, over all cases."""
        return sum(case[name] for case in self.cases)

    def stages(self) -> dict[str, list[int]]:
        """Cases, and answered, open and abandoned requests, by stage; finished cases last."""
        found: dict[str, list[int]] = {}
        for case in sorted(self.cases, key=lambda case: (case["stage"] == OVER, case["stage"])):
            row = found.setdefault(case["stage"], [0, 0, 0, 0])
            for place, count in enumerate((1, case["answered"], case["open"], case["given_up"])):
                row[place] += count
        return found


@app.command(cls=Command)
def status(
    begun: RunFolder = None,
    by_case: ByCase = False,
    journal: JournalFile = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the progress: requests answered, open, sent and given up, and the files still to come.

    Without a folder, show the unfinished batches of select --engine batch, as stored in the journal.
    """
    if begun is None:
        _under_way(journal or default_path(user_data_path("caps")), as_json=as_json)
        return
    asyncio.run(_status(begun, by_case=by_case, as_json=as_json))


def _under_way(path: Path, *, as_json: bool) -> None:
    if not path.is_file():
        raise JournalError(f"{path}: no such journal: give the --journal of the run")
    with Journal.open(path) as journal:
        rows = [
            {
                "batch": sent.batch,
                "file": sent.file,
                "address": sent.address,
                "model": sent.model,
                "requests": len(sent.awaited),
            }
            for sent in BatchRecords(journal).under_way()
        ]
    if as_json:
        print_json(rows)
        return
    columns = ("batch", "file", "address", "model", "requests")
    shown = [tuple("–" if row[name] is None else str(row[name]) for name in columns) for row in rows]
    stdout().print(table("", columns, shown, numbers_from=4))
    say(f"{plural(len(rows), 'batch', 'batches')} under way: run the same command to wait for them")


async def _status(path: Path, *, by_case: bool, as_json: bool) -> None:
    async with open_batch_run(path, writing=False) as run:
        found = _progress(run)
        out = run.folder.pending(run.journal, run.failures)
    under_way = len(found.keys & {key for keys in out.values() for key in keys})
    failed = sum(case["failed"] is not None for case in found.cases)
    if as_json:
        print_json(
            {
                "cases": len(found.cases),
                "over": sum(case["stage"] == OVER for case in found.cases),
                "failed": failed,
                **{name: found.total(name) for name in ("answered", "given_up")},
                "open": len(found.keys),
                "out": under_way,
                "files_out": [str(path) for path in sorted(out)],
                "trips": found.trips,
                "by_case": found.cases,
            }
        )
        return
    _show(found, by_case=by_case)
    names = f" ({', '.join(path.name for path in sorted(out))})" if under_way else ""
    files = (
        "no more files"
        if not found.trips
        else f"about {plural(found.trips, 'more file')}, one after the other"
    )
    say(f"{plural(len(found.keys), 'request')} open, {number(under_way, 0)} of them sent{names}; {files}")
    if failed:
        say(f"{plural(failed, 'case')} failed: list them with caps batch status --cases", "red")


def _show(found: BatchProgress, *, by_case: bool) -> None:
    columns: tuple[str, ...] = ("stage", "cases", "answered", "open", "given up")
    rows: list[tuple[str, ...]] = [
        (stage, *(number(count, 0) for count in row)) for stage, row in found.stages().items()
    ]
    if by_case:
        columns = ("case", "stage", "rounds", "answered", "open", "given up", "failed")
        rows = [
            (
                case["id"],
                case["stage"],
                *(number(case[name], 0) for name in ("rounds", "answered", "open", "given_up")),
                case["failed"] or "",
            )
            for case in found.cases
        ]
    stdout().print(table("", columns, rows, numbers_from=2 if by_case else 1))


def _progress(run: BatchRun) -> BatchProgress:
    found, runner = BatchProgress(), run.runner
    depths: dict[int, int] = {}  # by number of distinct answers, on which the number of rounds depends
    for progress in run.batch_state.progress():
        found.cases.append(_line(progress))
        found.keys |= {one.key for one in progress.open}
        if progress.stage is not None and progress.case_run is not None:
            prepared = progress.case_run.prepared
            size = len({one.signature or one.id for one in prepared.evidence.entrants})
            if size not in depths:
                forecast = forecast_case(prepared, runner.strategy, runner.templates, seed=runner.config.seed)
                depths[size] = forecast.depth
            found.trips = max(found.trips, depths[size] - progress.case_run.depth, 1)
    return found


def _line(progress: CaseProgress) -> dict[str, Any]:
    case_run, outcome = progress.case_run, progress.outcome
    answered = [one for one in outcome.judged if one.ruling.unanswered is None]
    pending = 0
    if case_run is not None and case_run.round is not None:
        pending = len(case_run.round.asks) - len(case_run.open_asks())
    return {
        "id": outcome.name,
        "stage": progress.stage or OVER,
        "rounds": 0 if case_run is None else case_run.depth,
        "answered": len(answered) + pending,
        "open": len(progress.open),
        "given_up": len(progress.missing) - len(progress.open),
        "failed": outcome.failure,
    }
