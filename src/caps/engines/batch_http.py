"""Batches at the Batch API of an endpoint: sent, recorded in the journal, awaited and absorbed.

Batches under way are recorded so that they survive a kill and are not paid twice: a file before a batch is
created from it, the batch when it is created, and its end when the results are stored. A batch that was
created but not recorded is found by its file.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from caps.core.errors import (
    BrokenServerError,
    BusyError,
    GarbledError,
    RefusedError,
    SettingError,
    TimedOutError,
    UnreachableError,
)
from caps.core.secrets import shown_address
from caps.core.text import plural
from caps.engines.batch_files import (
    NEVER_RUN,
    BatchSettings,
    Notices,
    RequestFile,
    RequestFiles,
    ResultReader,
)
from caps.journal.store import Journal
from caps.judging.base import together
from caps.models.base import Model
from caps.models.batch_api import Batch, BatchApi
from caps.models.endpoints import Endpoint
from caps.models.http import HttpModel
from caps.models.pending import OpenRequest, PendingRequests
from caps.models.wire import RENAMED

FILE, REQUESTS, CREATED, DONE = "batch file", "batch requests", "batch created", "batch done"
TRANSIENT = (BusyError, BrokenServerError, GarbledError, TimedOutError, UnreachableError)
MAX_MISSES = 5  # polls in a row that may find no batch: some lists lag behind
FIRST_PAUSE = 1.0
BACKOFF = 1.5


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A file at an address, the keys of its requests, and the batch created from it, if known."""

    address: str
    file: str
    keys: Collection[str]
    batch: str | None = None

    @property
    def name(self) -> str:
        """The key of its records in the journal."""
        return f"{self.address} {self.file}"


def batches_under_way(journal: Journal, addresses: Collection[str]) -> list[SentBatch]:
    """The batches at these addresses whose results are not all in the journal."""
    done, created = journal.facts(DONE), journal.facts(CREATED)
    return [
        SentBatch(address, file, frozenset(journal.fact(REQUESTS, name) or ()), created.get(name))
        for name, (address, file) in journal.facts(FILE).items()
        if name not in done and address in addresses
    ]


class HttpCarrier:
    """Carries requests to the Batch APIs of endpoints, a few batches at once, and waits for the results.

    A round without any result ends the run instead of repeating for ever.
    """

    def __init__(
        self, models: Mapping[Endpoint, Model], requests: PendingRequests, settings: BatchSettings
    ) -> None:
        self._apis: dict[Hashable, BatchApi] = {}
        for where, model in models.items():
            if not isinstance(model, HttpModel):
                raise SettingError(
                    "--engine batch needs an endpoint with a Batch API; "
                    f"{shown_address(where.base_url)} is none: give --batch-dir to write files"
                )
            self._apis[where] = BatchApi(model, where.model, window=settings.window)
        self._requests, self._journal, self._settings = requests, requests.journal, settings
        self._slots = asyncio.Semaphore(settings.at_once)
        self._steps = 0
        self._ended: set[str] = set()  # batches whose results this run has absorbed
        self.notices = Notices()

    async def exchange(self, requests: AsyncIterator[OpenRequest]) -> bool:
        """Send what no batch holds yet, wait for all batches that hold some, and absorb their results."""
        by_address = {api.address: api for api in self._apis.values()}
        under_way = batches_under_way(self._journal, by_address)
        holders = {key: sent for sent in under_way if sent.name not in self._ended for key in sent.keys}
        joined = dict[str, SentBatch]()
        with TemporaryDirectory(prefix="caps-batch-") as name:
            folder = Path(name)
            with RequestFiles(folder, self._settings) as files:
                async for request in requests:
                    if holder := holders.get(request.key):
                        joined[holder.name] = holder
                    else:
                        files.add(request, self._apis[request.endpoint].limit_name)
                written = files.finish()
            awaited = len(self._requests.awaited)
            if not awaited:
                return False
            self._steps += 1
            counts = {"new": len(written), "under way already": len(joined)}
            batches = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
            self.notices.on_progress(
                f"step {self._steps}: {plural(awaited, 'request')} open; batches: {batches}"
            )
            progress = await together(
                [self._rejoin(by_address[sent.address], sent, folder) for sent in joined.values()]
                + [self._send(self._apis[file.endpoint], file) for file in written]
            )
        if not any(progress):
            raise BusyError(
                f"none of the {awaited:,} requests of this step was answered (they expired, or have no "
                "result): run the same command again later, or use --engine local"
            )
        return True

    async def _send(self, api: BatchApi, file: RequestFile) -> bool:
        """Create a batch from a file and complete it."""
        async with self._slots:
            sent = SentBatch(api.address, await api.upload(file.path), file.keys)
            await self._journal.record(REQUESTS, sent.name, file.keys)
            await self._journal.record(FILE, sent.name, [sent.address, sent.file])
            return await self._complete(api, sent, await api.create(sent.file), file.path.parent)

    async def _rejoin(self, api: BatchApi, sent: SentBatch, folder: Path) -> bool:
        """Complete the batch of a file that an earlier run or another process uploaded."""
        async with self._slots:
            if sent.batch is None:
                batch = await api.find(sent.file) or await api.create(sent.file)
            elif (known := await api.retrieve(sent.batch)) is not None:
                batch = known
            else:
                self.notices.warn(
                    f"{api.address} no longer knows batch {sent.batch}: its requests are sent again"
                )
                await self._journal.record(DONE, sent.name, "lost")
                return True
            return await self._complete(api, sent, batch, folder)

    async def _complete(self, api: BatchApi, sent: SentBatch, batch: Batch, folder: Path) -> bool:
        """Wait for the end of a batch and absorb its results; false if the next batch would be the same."""
        await self._journal.record(CREATED, sent.name, batch.id)
        ended = await self._wait(api, batch, len(sent.keys))
        reader = ResultReader(self._requests, self.notices)
        results = folder / f"{ended.id.replace('/', '_')}.results"
        for file in (ended.output, ended.errors):
            if file is not None:
                await api.download(file, results, requests=len(sent.keys))
                await reader.read(results, file, batch=sent.name, expected=sent.keys)
        self._requests.paid |= reader.stored
        self._ended.add(sent.name)
        # Replies to requests of other cases, which this run does not ask, are left for a run that does.
        others = set(sent.keys) - self._requests.awaited.keys()
        if ended.status == "failed" or len(self._journal.stamps(others)) == len(others):
            await self._journal.record(DONE, sent.name, ended.status)
        if ended.status == "failed":
            raise RefusedError(
                f"{api.address} refused batch {ended.id} ({ended.error or 'it does not say why'}): change "
                "what it names, or send less at once (--batch lines=…, --batch at_once=1), and run the same "
                "command again"
            )
        if reader.refused is not None:
            raise reader.refused
        if reader.renamed:
            api.limit_name = RENAMED
        return bool(reader.stored) or reader.failed.total() > reader.failed[NEVER_RUN]

    async def _wait(self, api: BatchApi, batch: Batch, requests: int) -> Batch:
        """Poll a batch with growing pauses until it has ended."""
        pause, shown, misses = min(FIRST_PAUSE, self._settings.poll), "", 0
        try:
            while misses < MAX_MISSES:
                message = f"batch {batch.id}: {batch.status or 'under way'}, {batch.done} of {requests} done"
                if message != shown:
                    shown = message
                    self.notices.on_progress(message)
                if batch.ended:
                    return batch
                await asyncio.sleep(pause)
                pause = min(self._settings.poll, pause * BACKOFF)
                try:
                    current = await api.retrieve(batch.id)
                except TRANSIENT as error:  # the batch is paid for: wait for it
                    self.notices.on_progress(f"batch {batch.id}: {error}; checking again later")
                    continue
                misses = misses + 1 if current is None else 0
                batch = current or batch
        except asyncio.CancelledError:
            self.notices.warn(
                f"batch {batch.id} continues at {api.address}: the same command waits for it again"
            )
            raise
        raise RefusedError(
            f"{api.address} created batch {batch.id} and no longer knows it: the same command sends its "
            "requests again, and may pay for them again"
        )
