"""Batch files on their way: written, sent, recorded in the journal, waited for, and imported.

A file is called `NAME.partial` until it is whole.
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
    """How batches are cut, tried and waited for; the limits are OpenAI's."""

    lines: int = setting(50_000, "requests of one file", least=1)
    megabytes: float = setting(200.0, "size of one file", least=0.001)
    tries: int = setting(3, "how often a request may fail on the way before it counts as unanswered", least=1)
    at_once: int = setting(8, "batches under way at once", least=1)
    poll: float = setting(60.0, "longest pause between two looks at a batch, in seconds", least=0.01)
    window: str = setting("24h", "how long the provider may take")

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(slots=True)
class BatchFile:
    """One file: where it lies, for which seat and model, and what is awaited of it."""

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
            with suppress(OSError):  # a full disk was reported when it was written to
                file.close()
        for part in self._parts:
            part.path.unlink(missing_ok=True)  # those that were finished have another name

    def add(self, noted: MissingRequest, line: bytes) -> None:
        """Write a request's line unless it stands in one of the files; a full file is followed by another."""
        if noted.key in self._known:
            return
        self._known.add(noted.key)
        with file_errors(str(self._folder)):
            part, file = self._place((noted.level_model, noted.request.model), len(line))
            file.write(line)
        part.awaited[noted.key] = noted.pending
        part.size += len(line)

    def finish(self) -> list[BatchFile]:
        """Give the files their names: `NAME.jsonl`, or `NAME-01.jsonl` and so on where there are several."""
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

    def _place(self, group: tuple[Hashable, str], length: int) -> tuple[BatchFile, IO[bytes]]:
        """The file that takes this line."""
        found = self._open.get(group)
        if found is not None:
            part, file = found
            if len(part.awaited) < self._lines and part.size + length <= self._bytes:
                return found
            file.close()
        part = BatchFile(self._folder / f"{self._name}-{len(self._parts) + 1:02d}.jsonl.partial", group)
        self._parts.append(part)
        self._open[group] = part, append_file(part.path, empty=True)
        return self._open[group]


# Batches under way, noted in the journal: whoever comes after a kill goes on instead of paying again.
#
# A file is noted with what its replies will need before a batch is made of it, the batch when it is made,
# and that it is done when its results are in. A batch that was made but not noted is found by its file.


REQUESTS = "batch requests"
FILE = "batch file"
MADE = "batch made"
DONE = "batch done"


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A file at an endpoint, what is awaited of it, and the batch made of it, if that is known."""

    address: str
    file: str
    model: str
    awaited: Mapping[str, PendingRequest]
    batch: str | None = None

    @property
    def name(self) -> str:
        """What it is noted under."""
        return f"{self.address} {self.file}"


class BatchNotes:
    """Reads and writes the notes."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def uploaded(self, sent: SentBatch) -> None:
        """A file is up there; nothing is paid yet."""
        rows = {key: (one.template, one.digest, one.prompt) for key, one in sent.awaited.items()}
        await self._journal.record(REQUESTS, sent.name, rows)
        about = {"address": sent.address, "file": sent.file, "model": sent.model, "requests": len(rows)}
        await self._journal.record(FILE, sent.name, about)

    async def made(self, sent: SentBatch, batch: str) -> None:
        """A batch was made of it."""
        await self._journal.record(MADE, sent.name, batch)

    async def done(self, sent: SentBatch, status: str) -> None:
        """Its results are in the journal, or none will come."""
        await self._journal.record(DONE, sent.name, status)

    def under_way(self, addresses: Collection[str] | None = None) -> list[SentBatch]:
        """What is not done, at some addresses or at all."""
        done, made, found = self._journal.facts(DONE), self._journal.facts(MADE), list[SentBatch]()
        for name, about in self._journal.facts(FILE).items():
            if name not in done and (addresses is None or about["address"] in addresses):
                model = about["model"]
                rows = self._journal.fact(REQUESTS, name) or {}
                awaited = {key: PendingRequest(model, *row) for key, row in rows.items()}
                found.append(SentBatch(about["address"], about["file"], model, awaited, made.get(name)))
        return found


# Results of batches into the journal: in any order, any number of times, whatever else is in the file.
#
# Rules that must not be broken:
#
# * A reply is in the journal before it counts as taken; the first under a key stands.
# * No line of a file can stop the others: garbage is named by file and line.


TOGETHER = 256  # replies of one commit


@dataclass(slots=True)
class ImportCount:
    """What became of the lines of some files.

    `known` were taken before, `unknown` are nobody's; `failed` go into the next file and `given_up` do not,
    by cause. `refused` is what would fail every request, `renamed` that the server wants another name for a
    limit, `lost` that the batch is not there any more.
    """

    keys: set[str] = field(default_factory=set)
    known: int = 0
    unknown: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    given_up: Counter[str] = field(default_factory=Counter)
    unrun: int = 0
    garbage: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    refused: ModelError | None = None
    renamed: bool = False
    lost: bool = False

    @property
    def moved(self) -> bool:
        """Whether any contest may go on for it, or the next file be better."""
        return bool(self.keys or self.failed or self.given_up or self.renamed or self.lost)


class BatchImporter:
    """Takes result lines into a journal, and counts into `taken`."""

    def __init__(self, journal: Journal, awaited: Mapping[str, PendingRequest], failures: Failures) -> None:
        self._journal, self._awaited, self._failures = journal, awaited, failures
        self.taken = ImportCount()

    async def absorb(self, lines: Iterable[bytes], name: str) -> None:
        """Take the lines of one file; a file that breaks off ends there."""
        replies: dict[str, Completion] = {}
        strangers: list[str] = []
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    self._hear(line, f"{name}:{number}", replies, strangers)
                if len(replies) >= TOGETHER:
                    await self._store(replies)
        except InputError as error:
            self.taken.garbage.append(str(error))
        await self._store(replies)
        known = len(self._journal.stamps(dict.fromkeys(strangers)))
        self.taken.known += known
        self.taken.unknown += len(dict.fromkeys(strangers)) - known

    def _hear(self, line: bytes, where: str, replies: dict[str, Completion], strangers: list[str]) -> None:
        try:
            item = read_item(line)
        except ValueError as error:
            self.taken.garbage.append(f"{where}: {error}")
            return
        awaited = self._awaited.get(item.key)
        if awaited is None:
            strangers.append(item.key)
        elif item.key in self.taken.keys or item.key in replies:
            self.taken.known += 1
        else:
            result = read_result(item, awaited)
            if isinstance(result, Fault):
                self._fail(item, result)
            else:
                replies[item.key] = result

    def _fail(self, item: Item, fault: Fault) -> None:
        taken, failure = self.taken, Failure.of(item.key, item.id, fault)
        taken.renamed = taken.renamed or fault.renamed
        if isinstance(fault.error, AFFECTS_ALL):
            taken.refused = fault.error
        if not self._failures.add(failure):
            taken.known += 1
            return
        taken.failures.append(failure)
        if not fault.seen:
            taken.unrun += 1
        elif self._failures.given_up(item.key) is not None:
            taken.given_up[failure.cause] += 1
        elif failure.counts:
            taken.failed[failure.cause] += 1

    async def _store(self, replies: dict[str, Completion]) -> None:
        rows = []
        for key, completion in replies.items():
            awaited = self._awaited[key]
            asked = Request((), awaited.model, awaited.template)
            rows.append(self._journal.append(to_reply(key, awaited.digest, asked, completion)))
        await asyncio.gather(*rows)
        self.taken.keys |= replies.keys()
        replies.clear()


# One batch from its file to the journal: sent, noted, waited for, brought back and taken in.


PASSING = (BusyError, BrokenServerError, GarbledError, TimedOutError, UnreachableError)
RESULTS = Limits(line=4 * REPLY_BYTES, total=RESULT_BYTES)  # a line has a reply and little else
MISSES = 5  # looks in a row that may find no batch: some lists lag behind
FIRST_LOOK = 1.0
SLOWER = 1.5


class BatchClient:
    """Sees batches through, a few at once.

    `told` hears in words what is under way, `warned` what goes on, or goes wrong, without anyone's doing.
    """

    def __init__(self, journal: Journal, failures: Failures, settings: BatchSettings) -> None:
        self._journal, self._failures, self._settings = journal, failures, settings
        self._room = asyncio.Semaphore(settings.at_once)
        self.notes = BatchNotes(journal)
        self.told: Callable[[str], object] = lambda _: None
        self.warned: Callable[[str], object] = lambda _: None

    async def send(self, desk: Batches, part: BatchFile) -> ImportCount:
        """Make a batch of a file and see it through."""
        async with self._room:
            sent = SentBatch(desk.address, await desk.upload(part.path), part.group[1], part.awaited)
            await self.notes.uploaded(sent)
            return await self._see_through(desk, sent, await self._made(desk, sent), part.path.parent)

    async def rejoin(self, desk: Batches, sent: SentBatch, folder: Path) -> ImportCount:
        """Go on with a file that an earlier run, or another process, has sent up."""
        async with self._room:
            if sent.batch is None:
                batch = await self._made(desk, sent, await desk.find(sent.file))
            else:
                known = await desk.retrieve(sent.batch)
                if known is None:
                    self.warned(f"{desk.address} knows batch {sent.batch} no more: its requests go out again")
                    await self.notes.done(sent, "lost")
                    return ImportCount(lost=True)
                batch = known
            return await self._see_through(desk, sent, batch, folder)

    async def _made(self, desk: Batches, sent: SentBatch, found: Batch | None = None) -> Batch:
        batch = found or await desk.create(sent.file)
        await self.notes.made(sent, batch.id)
        return batch

    async def _see_through(self, desk: Batches, sent: SentBatch, batch: Batch, folder: Path) -> ImportCount:
        """Wait for the end of a batch and take in what it brought."""
        ended = await self._ended(desk, batch, len(sent.awaited))
        absorber = BatchImporter(self._journal, sent.awaited, self._failures)
        for file in (ended.output, ended.errors):
            if file is not None:
                with NamedTemporaryFile(dir=folder, suffix=".jsonl") as kept:
                    await desk.download(file, Path(kept.name), requests=len(sent.awaited))
                    await absorber.absorb(lines(kept.name, RESULTS), file)
        await self.notes.done(sent, ended.status)
        if absorber.taken.renamed:
            desk.rename_limit()
        if ended.status == "failed":
            why = ended.error or "it does not say why"
            raise RefusedError(
                f"{desk.address} refused batch {ended.id} ({why}): change what it names, or send less at "
                "once (--batch lines=…, --batch at_once=1), and run the same command again"
            )
        return absorber.taken

    async def _looked_at(self, desk: Batches, batch: Batch) -> Batch | None:
        """How a batch stands now; an endpoint that is away for a while is waited for: it is paid already."""
        try:
            return await desk.retrieve(batch.id)
        except PASSING as error:
            self.told(f"batch {batch.id}: {error}; looked at again in a while")
            return batch

    async def _ended(self, desk: Batches, batch: Batch, requests: int) -> Batch:
        """Look at a batch, more and more seldom, until it has ended."""
        pause, shown, missed = min(FIRST_LOOK, self._settings.poll), "", 0
        try:
            while missed < MISSES:
                words = f"batch {batch.id}: {batch.status or 'under way'}, {batch.done} of {requests} done"
                if words != shown:
                    shown = words
                    self.told(words)
                if batch.ended:
                    return batch
                await asyncio.sleep(pause)
                pause = min(self._settings.poll, pause * SLOWER)
                found = await self._looked_at(desk, batch)
                missed = missed + 1 if found is None else 0
                batch = found or batch
        except asyncio.CancelledError:
            self.warned(f"batch {batch.id} goes on at {desk.address}: the same command waits for it again")
            raise
        raise RefusedError(
            f"{desk.address} made batch {batch.id} and does not know it any more: the same command sends its "
            "requests again, and may pay for them again"
        )
