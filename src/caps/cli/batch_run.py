"""A run through Batch files, opened: its folder, its journal, and where each case stands."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from caps.building import open_journal
from caps.core.errors import InputError, NotRecordedError, SettingError
from caps.core.secrets import recorded_extra
from caps.core.types import Case
from caps.costs.prices import Price
from caps.datasets.imports import open_cases
from caps.engines.base import Outcome
from caps.engines.batch import BatchState, with_findings
from caps.files import FolderLock, file_errors
from caps.findings.base import Findings, recall
from caps.journal.store import Journal
from caps.models.faults import Failures
from caps.models.pending import PendingRequests
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
async def opened(
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
        cases = await with_findings(map(runner.stated, islice(open_cases(file.cases), file.limit)), find)
        batch_state = runner.batches(waiting)(cases, runner.strategy, runner.config.seed)
        yield BatchRun(folder, file, runner, journal, batch_state, waiting, failures, findings)
