"""A run through Batch files, open_batch_run: its folder, its journal, and where each case stands."""

import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from caps.building import open_journal
from caps.cli.output import report_failure, say, write_result
from caps.cli.run import Run
from caps.core.errors import InputError, NotRecordedError, SettingError
from caps.core.secrets import recorded_extra, unrecorded
from caps.core.text import number
from caps.core.types import Case
from caps.costs.prices import Price
from caps.datasets.imports import open_cases
from caps.engines.base import Outcome
from caps.engines.batch import BatchState, with_findings
from caps.engines.batch_files import BatchFile, StepFiles
from caps.files import FolderLock, file_errors
from caps.findings.base import Findings, recall
from caps.journal.store import Journal
from caps.models.batch_api import encode_line
from caps.models.faults import Failures
from caps.models.pending import PendingRequests
from caps.reports.console import shown
from caps.runner import Runner
from caps.runs.folder import BatchFolder
from caps.runs.run_file import RunFile, check_prompts


@dataclass(frozen=True, slots=True)
class BatchRun:
    """All that the commands need."""

    folder: BatchFolder
    file: RunFile
    runner: Runner
    journal: Journal
    batch_state: BatchState
    waiting: PendingRequests
    failures: Failures
    findings: Findings | None

    @property
    def price(self) -> Price | None:
        """What a token costs."""
        return self.runner.price

    @property
    def limit_name(self) -> str:
        """What the server calls its limit on tokens."""
        return str((self.file.batch or {}).get("limit_name", "max_tokens"))

    async def outcomes(self) -> AsyncGenerator[Outcome, None]:
        """What became of each case, once nothing is open; what stands in the folder's files was paid here."""
        self.waiting.paid |= self.folder.sent()
        for stand in self.batch_state.stands():
            yield stand.outcome


def _finding(
    findings: Findings, journal: Journal, versions: Mapping[str, str]
) -> Callable[[Case], Awaitable[Case]]:
    """What was found, or could not be, at the first step stands for all steps; what is new is looked into."""

    async def find(case: Case) -> Case:
        try:
            return recall(journal, versions, case)
        except NotRecordedError:
            return await findings.find(case)

    return find


@asynccontextmanager
async def open_batch_run(
    path: Path, extra: Mapping[str, object] | None = None, *, writing: bool = True
) -> AsyncIterator[BatchRun]:
    """Open the run of a folder, for `writing` by this process alone; cases are looked into where needed.

    `extra` gives request fields once more, whose texts the folder may not hold.
    """
    folder = BatchFolder(path)
    file = folder.file()
    if file.batch is None:
        raise InputError(f"{path}: the folder of a run that does not go through Batch files")
    config = file.config
    if extra:
        if recorded_extra(extra) != recorded_extra(config.extra):
            raise SettingError(f"{path} holds a run with another --extra: give what it was begun with")
        config = replace(config, extra=extra)
    runner = Runner(config, offline=True)
    check_prompts(file, runner)
    async with AsyncExitStack() as stack:
        if writing:
            with file_errors(str(path)):
                stack.enter_context(FolderLock(path))
        journal = stack.enter_context(open_journal(runner.journal_path or path / "journal.sqlite"))
        findings = runner.findings(journal)
        if findings is not None:
            stack.push_async_callback(findings.close)
        failures = folder.failures(runner.batch_settings.tries)
        waiting = PendingRequests(journal, failures)
        find = None if findings is None else _finding(findings, journal, file.findings)
        cases = await with_findings(islice(open_cases(file.cases), file.limit), find)
        batch_state = runner.batches(waiting)(cases, runner.strategy, runner.config.seed)
        yield BatchRun(folder, file, runner, journal, batch_state, waiting, failures, findings)


NAMED = 5  # failed cases; the others are counted


async def take_step(path: Path, *, extra: Mapping[str, object], again: bool, quiet: bool, lines: bool) -> int:
    """Write the next files, or deliver; the exit code. `extra` is what the folder may not hold of itself."""
    async with open_batch_run(path, extra) as run:
        out = {} if again else run.folder.out(run.journal, run.failures)
        parts, held, failed = _write(run, {key for keys in out.values() for key in keys})
        if parts or held:
            for part in parts:
                write_result(f"{shown(str(part.path)) if sys.stdout.isatty() else part.path}\n".encode())
            if not quiet:
                _print_parts(run, parts, held, sorted(out))
                _print_failures(run, failed)
            return 0
        return await _deliver(run, quiet=quiet, lines=lines)


def _write(run: BatchRun, out: set[str]) -> tuple[list[BatchFile], int, list[Outcome]]:
    """Write what is open; how much is open but under way in earlier files; and the cases that failed."""
    held, failed = set[str](), list[Outcome]()
    with StepFiles(run.folder.path, run.folder.next_step(), run.runner.batch_settings) as files:
        for stand in run.batch_state.stands():
            if stand.outcome.failure is not None:
                failed.append(stand.outcome)
            for one in stand.open:
                if one.key in out:
                    held.add(one.key)
                else:
                    _refuse_unrecorded(run)
                    files.add(one, encode_line(one.key, one.request, limit_name=run.limit_name))
        return files.finish(), len(held), failed


def _refuse_unrecorded(run: BatchRun) -> None:
    """A request cannot be written with the digest of a text in the text's place."""
    for name in unrecorded(run.runner.config.extra):
        raise SettingError(f"run.json holds no texts that may be secret: give --extra {name}=… once more")


def _print_parts(run: BatchRun, parts: list[BatchFile], held: int, out: list[Path]) -> None:
    for part in parts:
        size = f"{number(part.size, 0)} bytes"
        say(f"{part.path}: {number(len(part.awaited), 0)} requests to {part.group[1]}, {size}")
    if held:
        names = ", ".join(path.name for path in out)
        say(f"{number(held, 0)} requests are out in {names}: absorb what came back, or write them --again")
    if parts:
        say(f"run them, then: caps batch absorb {run.folder.path} RESULTS...")


def _print_failures(run: BatchRun, failed: list[Outcome]) -> None:
    for outcome in failed[:NAMED]:
        report_failure(outcome.name, str(outcome.failure))
    if len(failed) > NAMED:
        more = number(len(failed) - NAMED, 0)
        say(f"{more} more failed: caps batch status {run.folder.path} --cases names them", "red")


async def _deliver(run: BatchRun, *, quiet: bool, lines: bool) -> int:
    """Nothing is open: print the selections and keep them in the folder."""
    started = time.perf_counter()
    delivering = Run(run.runner, limit=run.file.limit, quiet=quiet, bracket=False, lines=lines)
    await delivering.deliver(run.outcomes(), run.folder.path, run.file, locked=True)
    code = delivering.close(time.perf_counter() - started)
    if not quiet:
        say(f"nothing is open: the selections are in {run.folder.path / 'selections.jsonl'}")
    return code
