"""A run through Batch files, opened: its folder, its journal, and where each case stands."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from caps.assemble import Setup, make_findings, make_strategy, open_journal
from caps.assemble.batching import convoys
from caps.core.errors import InputError, NotRecordedError, SettingError
from caps.core.play import Strategy
from caps.core.secrets import recorded_extra
from caps.core.types import Case
from caps.costs.prices import Price
from caps.datasets.imports import open_cases
from caps.engines.base import Outcome
from caps.engines.batch_files import BatchSettings
from caps.engines.convoy import Convoy, looked_into
from caps.findings.kept import Findings, recall
from caps.journal.store import Journal
from caps.models.failures import Failures
from caps.models.waiting import Waiting
from caps.reports.batchdir import BatchFolder
from caps.reports.remade import check_prompts, price_of_run, settings_of_run, setup_of_run


@dataclass(frozen=True, slots=True)
class BatchRun:
    """All that the commands need."""

    folder: BatchFolder
    made: dict[str, Any]
    setup: Setup
    strategy: Strategy
    journal: Journal
    convoy: Convoy
    waiting: Waiting
    failures: Failures
    findings: Findings | None

    @property
    def price(self) -> Price | None:
        """What a token costs."""
        return price_of_run(self.made)

    @property
    def limit_name(self) -> str:
        """What the server calls its limit on tokens."""
        return str(self.made["limit_name"])

    async def outcomes(self) -> AsyncGenerator[Outcome, None]:
        """What became of each case, once nothing is open; what stands in the folder's files was paid here."""
        self.waiting.paid |= self.folder.sent()
        for stand in self.convoy.stands():
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
async def opened(path: Path, extra: Mapping[str, object] | None = None) -> AsyncIterator[BatchRun]:
    """Open the run of a folder; cases are looked into where they have not been.

    `extra` gives request fields once more, whose texts the folder may not hold.
    """
    folder = BatchFolder(path)
    made = folder.made()
    if "batch" not in made:
        raise InputError(f"{path}: the folder of a run that does not go through Batch files")
    batch = BatchSettings(**made["batch"])
    setup = replace(
        setup_of_run(made),
        engine="batch",
        batch=batch,
        hard_evidence=made["hard_evidence"],
        sandbox=made["sandbox"],
    )
    if extra:
        if recorded_extra(extra) != made["extra"]:
            raise SettingError(f"{path} holds a run with another --extra: give what it was begun with")
        setup = replace(setup, extra=extra)
    check_prompts(made, setup)
    strategy = make_strategy(made["strategy"]["name"], settings_of_run(made))
    async with AsyncExitStack() as stack:
        journal = stack.enter_context(open_journal(Path(made["journal"])))
        findings = make_findings(setup, journal)
        if findings is not None:
            stack.push_async_callback(findings.close)
        failures = folder.failures(batch.tries)
        waiting = Waiting(journal, failures)
        find = None if findings is None else _finding(findings, journal, made["findings"])
        cases = await looked_into(islice(open_cases(made["cases"]), made["limit"]), find)
        convoy = convoys(setup, waiting, price_of_run(made))(cases, strategy, made["seed"])
        yield BatchRun(folder, made, setup, strategy, journal, convoy, waiting, failures, findings)
