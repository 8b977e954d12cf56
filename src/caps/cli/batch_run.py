"""A run through Batch files: opening it, and taking its next step."""

import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from caps.building import open_journal
from caps.cli.output import FailureLog, say, write_result
from caps.cli.run import Run
from caps.core.errors import InputError, NotRecordedError, SettingError
from caps.core.secrets import recorded_extra, unrecorded
from caps.core.text import number, plural, printable
from caps.core.types import Case
from caps.costs.prices import Price
from caps.engines.base import Outcome
from caps.engines.batch import BatchState, with_findings
from caps.engines.batch_files import BatchFile, StepFiles
from caps.files import FolderLock, file_errors
from caps.findings.base import Findings, recall
from caps.journal.store import Journal
from caps.models.batch_api import encode_line
from caps.models.faults import Failures
from caps.models.pending import PendingRequests
from caps.runner import Runner
from caps.runs.folder import BatchFolder
from caps.runs.run_file import RunFile, check_prompts


@dataclass(frozen=True, slots=True)
class BatchRun:
    """An open run: its folder, its journal, and the progress of its cases."""

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
        """The price of tokens."""
        return self.runner.price

    @property
    def limit_name(self) -> str:
        """The request field that limits the length of a reply."""
        return str((self.file.batch or {}).get("limit_name", "max_tokens"))

    async def outcomes(self) -> AsyncGenerator[Outcome, None]:
        """The outcome of each case; requests in the files of this folder count as paid for."""
        self.waiting.paid |= self.folder.sent_keys()
        for outcome in self.batch_state.outcomes():
            yield outcome


def _finding(
    findings: Findings, journal: Journal, versions: Mapping[str, str]
) -> Callable[[Case], Awaitable[Case]]:
    """Reuse the findings of the first step in all steps, and compute those of new cases."""

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
    """Open the run of a folder; `writing` locks it for this process.

    `extra` repeats the request fields whose texts the folder may not hold.
    """
    folder = BatchFolder(path)
    file = folder.file()
    if file.batch is None:
        raise InputError(f"{path}: holds a run that was not started by caps batch prepare")
    config = file.config
    if extra:
        if recorded_extra(extra) != recorded_extra(config.extra):
            raise SettingError(f"{path} holds a run with another --extra: repeat the one it was started with")
        config = replace(config, extra=extra)
    runner = Runner(config, offline=True, started=file.started)
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
        cases = await with_findings(map(runner.apply_to_case, file.read_cases()), find)
        batch_state = runner.batches(waiting)(cases, runner.strategy, runner.config.seed)
        yield BatchRun(folder, file, runner, journal, batch_state, waiting, failures, findings)


async def take_step(path: Path, *, extra: Mapping[str, object], again: bool, quiet: bool, lines: bool) -> int:
    """Write the next files, or else the selections; return the exit code.

    `extra` repeats the request fields whose texts the folder may not hold.
    """
    async with open_batch_run(path, extra) as run:
        out = {} if again else run.folder.pending(run.journal, run.failures)
        parts, held, failed = _write(run, {key for keys in out.values() for key in keys})
        if parts or held:
            for part in parts:
                write_result(f"{printable(str(part.path)) if sys.stdout.isatty() else part.path}\n".encode())
            if not quiet:
                _print_parts(run, parts, held, sorted(out))
                _print_failures(run, failed)
            return 0
        return await _deliver(run, quiet=quiet, lines=lines)


def _write(run: BatchRun, out: set[str]) -> tuple[list[BatchFile], int, list[Outcome]]:
    """Write open requests: the files, the number of requests that earlier files hold, the failed cases."""
    held, failed = set[str](), list[Outcome]()
    with StepFiles(run.folder.path, run.folder.next_step(), run.runner.batch_settings) as files:
        for progress in run.batch_state.next_step():
            if progress.outcome.failure is not None:
                failed.append(progress.outcome)
            for one in progress.open:
                if one.key in out:
                    held.add(one.key)
                else:
                    _refuse_unrecorded(run)
                    files.add(one, encode_line(one.key, one.request, limit_name=run.limit_name))
        return files.finish(), len(held), failed


def _refuse_unrecorded(run: BatchRun) -> None:
    """Refuse to write a request whose text is known by its digest only."""
    for name in unrecorded(run.runner.config.extra):
        raise SettingError(f"run.json holds no texts that may be secret: give --extra {name}=… again")


def _print_parts(run: BatchRun, parts: list[BatchFile], held: int, out: list[Path]) -> None:
    for part in parts:
        size = f"{number(part.size, 0)} bytes"
        say(f"{part.path}: {plural(len(part.awaited), 'request')} to {part.group[1]}, {size}")
    if held:
        names = ", ".join(path.name for path in out)
        waiting = f"{plural(held, 'request')} sent in {names} {'has' if held == 1 else 'have'} no result yet"
        say(f"{waiting}: read results with caps batch absorb, or write the requests --again")
    if parts:
        say(f"next: run the files, then caps batch absorb {run.folder.path} RESULTS...")


def _print_failures(run: BatchRun, failed: list[Outcome]) -> None:
    with FailureLog(hint=f"list them with caps batch status {run.folder.path} --cases") as failures:
        for outcome in failed:
            failures.add_case(outcome.name, str(outcome.failure))


async def _deliver(run: BatchRun, *, quiet: bool, lines: bool) -> int:
    """Print the selections and store them in the folder."""
    started = time.perf_counter()
    delivering = Run(run.runner, limit=run.file.limit, quiet=quiet, bracket=False, lines=lines)
    await delivering.deliver(run.outcomes(), run.folder.path, run.file, locked=True)
    code = delivering.close(time.perf_counter() - started)
    if not quiet:
        say(f"complete: the selections are in {run.folder.path / 'selections.jsonl'}")
    return code
