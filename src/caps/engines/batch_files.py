"""Batch files: written, sent, recorded in the journal, awaited and imported.

A file is called `NAME.partial` until it is complete.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import IO

from caps.core.errors import (
    BrokenServerError,
    BusyError,
    GarbledError,
    InputError,
    ModelError,
    RefusedError,
    TimedOutError,
    UnreachableError,
)
from caps.core.settings import check_settings, setting
from caps.datasets.reading import Limits, lines
from caps.files import append_file, file_errors
from caps.journal.store import Journal
from caps.models.base import Completion, Request
from caps.models.batch_api import RESULT_BYTES, Batch, Batches, Item, read_item, read_result
from caps.models.faults import AFFECTS_ALL, Failure, Failures, Fault
from caps.models.journaled import to_reply
from caps.models.pending import MissingRequest, PendingRequest
from caps.models.wire import REPLY_BYTES

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """How batches are split, retried and polled; the limits are those of OpenAI."""

    lines: int = setting(50_000, "largest number of requests in one file", least=1)
    megabytes: float = setting(200.0, "largest size of one file, in megabytes", least=0.001)
    tries: int = setting(3, "how often a request may fail before it counts as unanswered", least=1)
    at_once: int = setting(8, "largest number of batches at once", least=1)
    poll: float = setting(60.0, "longest pause between two polls of a batch, in seconds", least=0.01)
    window: str = setting("24h", "completion window of the provider")

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(slots=True)
class BatchFile:
    """One request file: its path, endpoint and model, and the requests that await a reply."""

    path: Path
    group: tuple[Hashable, str]
    awaited: dict[str, PendingRequest] = field(default_factory=dict)
    size: int = 0


class StepFiles:
    """Writes the files of one step into a folder; a context manager."""

    def __init__(self, folder: Path, name: str, settings: BatchSettings) -> None:
        self._folder, self._name = folder, name
        self._lines, self._bytes = settings.lines, settings.megabytes * MEGABYTE
        self._parts: list[BatchFile] = []
        self._open: dict[tuple[Hashable, str], tuple[BatchFile, IO[bytes]]] = {}
        self._known: set[str] = set()

    def __enter__(self) -> "StepFiles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, file in self._open.values():
            with suppress(OSError):  # a full disk was reported by the write
                file.close()
        for part in self._parts:
            part.path.unlink(missing_ok=True)  # finished files have another name

    def add(self, missing: MissingRequest, line: bytes) -> None:
        """Write the line of a request unless it was written before; a full file is followed by another."""
        if missing.key in self._known:
            return
        self._known.add(missing.key)
        with file_errors(str(self._folder)):
            part, file = self._file_for((missing.level_model, missing.request.model), len(line))
            file.write(line)
        part.awaited[missing.key] = missing.pending
        part.size += len(line)

    def finish(self) -> list[BatchFile]:
        """Rename the files to `NAME.jsonl`, or to `NAME-01.jsonl` and so on if there are several."""
        with file_errors(str(self._folder)):
            for _, file in self._open.values():
                file.close()
            self._open.clear()
            named = []
            for number, part in enumerate(self._parts, start=1):
                tail = "" if len(self._parts) == 1 else f"-{number:02d}"
                path = part.path.replace(self._folder / f"{self._name}{tail}.jsonl")
                named.append(BatchFile(path, part.group, part.awaited, part.size))
        return named

    def _file_for(self, group: tuple[Hashable, str], length: int) -> tuple[BatchFile, IO[bytes]]:
        """The open file of a group that has room for a line, or a new one."""
        current = self._open.get(group)
        if current is not None:
            part, file = current
            if len(part.awaited) < self._lines and part.size + length <= self._bytes:
                return current
            file.close()
        part = BatchFile(self._folder / f"{self._name}-{len(self._parts) + 1:02d}.jsonl.partial", group)
        self._parts.append(part)
        self._open[group] = part, append_file(part.path, empty=True)
        return self._open[group]


# Batches under way, recorded in the journal so that they survive a kill and are not paid twice. A file is
# recorded before a batch is created from it, the batch when it is created, and its end when the results are
# stored. A batch that was created but not recorded is found by its file.

REQUESTS = "batch requests"
FILE = "batch file"
CREATED = "batch made"
DONE = "batch done"


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A file at an endpoint, its awaited requests, and the batch created from it, if known."""

    address: str
    file: str
    model: str
    awaited: Mapping[str, PendingRequest]
    batch: str | None = None

    @property
    def name(self) -> str:
        """The key of its records in the journal."""
        return f"{self.address} {self.file}"


class BatchRecords:
    """Records of sent batches in the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def record_upload(self, sent: SentBatch) -> None:
        """Record an uploaded file; nothing is paid yet."""
        rows = {key: (one.template, one.digest, one.prompt) for key, one in sent.awaited.items()}
        await self._journal.record(REQUESTS, sent.name, rows)
        about = {"address": sent.address, "file": sent.file, "model": sent.model, "requests": len(rows)}
        await self._journal.record(FILE, sent.name, about)

    async def record_batch(self, sent: SentBatch, batch: str) -> None:
        """Record the batch created from a file."""
        await self._journal.record(CREATED, sent.name, batch)

    async def record_end(self, sent: SentBatch, status: str) -> None:
        """Record that the results are in the journal, or that none will come."""
        await self._journal.record(DONE, sent.name, status)

    def under_way(self, addresses: Collection[str] | None = None) -> list[SentBatch]:
        """Batches that are not done, at some addresses or at all."""
        done, created, batches = self._journal.facts(DONE), self._journal.facts(CREATED), list[SentBatch]()
        for name, about in self._journal.facts(FILE).items():
            if name not in done and (addresses is None or about["address"] in addresses):
                model = about["model"]
                rows = self._journal.fact(REQUESTS, name) or {}
                awaited = {key: PendingRequest(model, *row) for key, row in rows.items()}
                batches.append(SentBatch(about["address"], about["file"], model, awaited, created.get(name)))
        return batches


COMMIT_SIZE = 256  # replies of one commit


@dataclass(slots=True)
class ImportCount:
    """Counts of imported result lines.

    `known` lines were imported before, `unknown` ones belong to no awaited request. `failed` requests go into
    the next file and `given_up` ones do not, by cause; `not_run` were never started. `refused` is an error
    that would fail every request. `renamed`: the server wants another name for the token limit. `lost`: the
    batch no longer exists.
    """

    keys: set[str] = field(default_factory=set)
    known: int = 0
    unknown: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    given_up: Counter[str] = field(default_factory=Counter)
    not_run: int = 0
    garbage: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    refused: ModelError | None = None
    renamed: bool = False
    lost: bool = False

    @property
    def progressed(self) -> bool:
        """Whether any contest can advance, or the next file differs."""
        return bool(self.keys or self.failed or self.given_up or self.renamed or self.lost)


class BatchImporter:
    """Imports result lines into a journal, in any order and any number of times.

    A reply is in the journal before it is counted; the first under a key stands. A bad line does not stop
    the others: it is reported by file and line.
    """

    def __init__(self, journal: Journal, awaited: Mapping[str, PendingRequest], failures: Failures) -> None:
        self._journal, self._awaited, self._failures = journal, awaited, failures
        self.count = ImportCount()

    async def import_lines(self, lines: Iterable[bytes], name: str) -> None:
        """Import the lines of one file; a file that breaks off ends there."""
        replies: dict[str, Completion] = {}
        others: list[str] = []
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    self._read(line, f"{name}:{number}", replies, others)
                if len(replies) >= COMMIT_SIZE:
                    await self._store(replies)
        except InputError as error:
            self.count.garbage.append(str(error))
        await self._store(replies)
        known = len(self._journal.stamps(dict.fromkeys(others)))
        self.count.known += known
        self.count.unknown += len(dict.fromkeys(others)) - known

    def _read(self, line: bytes, where: str, replies: dict[str, Completion], others: list[str]) -> None:
        try:
            item = read_item(line)
        except ValueError as error:
            self.count.garbage.append(f"{where}: {error}")
            return
        awaited = self._awaited.get(item.key)
        if awaited is None:
            others.append(item.key)
        elif item.key in self.count.keys or item.key in replies:
            self.count.known += 1
        else:
            result = read_result(item, awaited)
            if isinstance(result, Fault):
                self._fail(item, result)
            else:
                replies[item.key] = result

    def _fail(self, item: Item, fault: Fault) -> None:
        count, failure = self.count, Failure.of(item.key, item.id, fault)
        count.renamed = count.renamed or fault.renamed
        if isinstance(fault.error, AFFECTS_ALL):
            count.refused = fault.error
        if not self._failures.add(failure):
            count.known += 1
            return
        count.failures.append(failure)
        if not fault.seen:
            count.not_run += 1
        elif self._failures.given_up(item.key) is not None:
            count.given_up[failure.cause] += 1
        elif failure.counts:
            count.failed[failure.cause] += 1

    async def _store(self, replies: dict[str, Completion]) -> None:
        rows = []
        for key, completion in replies.items():
            awaited = self._awaited[key]
            request = Request((), awaited.model, awaited.template)
            rows.append(self._journal.append(to_reply(key, awaited.digest, request, completion)))
        await asyncio.gather(*rows)
        self.count.keys |= replies.keys()
        replies.clear()


TRANSIENT = (BusyError, BrokenServerError, GarbledError, TimedOutError, UnreachableError)
RESULTS = Limits(line=4 * REPLY_BYTES, total=RESULT_BYTES)  # a line has a reply and little else
MAX_MISSES = 5  # polls in a row that may find no batch: some lists lag behind
FIRST_PAUSE = 1.0
BACKOFF = 1.5


class BatchClient:
    """Sends batches and imports their results, a few at once.

    `on_progress` and `on_warning` are called with messages for the user.
    """

    def __init__(self, journal: Journal, failures: Failures, settings: BatchSettings) -> None:
        self._journal, self._failures, self._settings = journal, failures, settings
        self._slots = asyncio.Semaphore(settings.at_once)
        self.records = BatchRecords(journal)
        self.on_progress: Callable[[str], object] = lambda _: None
        self.on_warning: Callable[[str], object] = lambda _: None

    async def send(self, api: Batches, part: BatchFile) -> ImportCount:
        """Create a batch from a file, wait for it and import its results."""
        async with self._slots:
            sent = SentBatch(api.address, await api.upload(part.path), part.group[1], part.awaited)
            await self.records.record_upload(sent)
            return await self._complete(api, sent, await self._create(api, sent), part.path.parent)

    async def rejoin(self, api: Batches, sent: SentBatch, folder: Path) -> ImportCount:
        """Continue with a file that an earlier run or another process uploaded."""
        async with self._slots:
            if sent.batch is None:
                batch = await self._create(api, sent, await api.find(sent.file))
            else:
                known = await api.retrieve(sent.batch)
                if known is None:
                    self.on_warning(
                        f"{api.address} no longer knows batch {sent.batch}: its requests are sent again"
                    )
                    await self.records.record_end(sent, "lost")
                    return ImportCount(lost=True)
                batch = known
            return await self._complete(api, sent, batch, folder)

    async def _create(self, api: Batches, sent: SentBatch, existing: Batch | None = None) -> Batch:
        batch = existing or await api.create(sent.file)
        await self.records.record_batch(sent, batch.id)
        return batch

    async def _complete(self, api: Batches, sent: SentBatch, batch: Batch, folder: Path) -> ImportCount:
        """Wait for the end of a batch and import its results."""
        ended = await self._wait(api, batch, len(sent.awaited))
        importer = BatchImporter(self._journal, sent.awaited, self._failures)
        for file in (ended.output, ended.errors):
            if file is not None:
                with NamedTemporaryFile(dir=folder, suffix=".jsonl") as results:
                    await api.download(file, Path(results.name), requests=len(sent.awaited))
                    await importer.import_lines(lines(results.name, RESULTS), file)
        await self.records.record_end(sent, ended.status)
        if importer.count.renamed:
            api.rename_limit()
        if ended.status == "failed":
            why = ended.error or "it does not say why"
            raise RefusedError(
                f"{api.address} refused batch {ended.id} ({why}): change what it names, or send less at "
                "once (--batch lines=…, --batch at_once=1), and run the same command again"
            )
        return importer.count

    async def _poll(self, api: Batches, batch: Batch) -> Batch | None:
        """The current state of a batch; it is paid for, so a temporary error of the endpoint is ignored."""
        try:
            return await api.retrieve(batch.id)
        except TRANSIENT as error:
            self.on_progress(f"batch {batch.id}: {error}; checking again later")
            return batch

    async def _wait(self, api: Batches, batch: Batch, requests: int) -> Batch:
        """Poll a batch with growing pauses until it has ended."""
        pause, shown, misses = min(FIRST_PAUSE, self._settings.poll), "", 0
        try:
            while misses < MAX_MISSES:
                message = f"batch {batch.id}: {batch.status or 'under way'}, {batch.done} of {requests} done"
                if message != shown:
                    shown = message
                    self.on_progress(message)
                if batch.ended:
                    return batch
                await asyncio.sleep(pause)
                pause = min(self._settings.poll, pause * BACKOFF)
                current = await self._poll(api, batch)
                misses = misses + 1 if current is None else 0
                batch = current or batch
        except asyncio.CancelledError:
            self.on_warning(
                f"batch {batch.id} continues at {api.address}: the same command waits for it again"
            )
            raise
        raise RefusedError(
            f"{api.address} created batch {batch.id} and no longer knows it: the same command sends its "
            "requests again, and may pay for them again"
        )
