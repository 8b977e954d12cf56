"""How batches reach a model: as files in a folder, or over the Batch API of an endpoint.

Request files are written within limits, and result files are read into the journal.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Container, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import msgspec

from caps.core.errors import (
    BatchWaitingError,
    BrokenServerError,
    BusyError,
    GarbledError,
    InputError,
    ModelError,
    RefusedError,
    SettingError,
    TimedOutError,
    UnreachableError,
)
from caps.core.secrets import shown_address
from caps.core.settings import check_settings, setting
from caps.core.text import number, plural
from caps.datasets.reading import Limits, lines
from caps.files import FolderLock, append_file, decode_json, file_errors, read_file, write_file
from caps.journal.store import Journal
from caps.judging.base import together
from caps.models.base import Completion, Model, Request
from caps.models.batch import (
    AFFECTS_ALL,
    RESULT_BYTES,
    Batch,
    BatchApi,
    OpenRequest,
    PendingRequests,
    encode_line,
    parse_key,
    read_item,
    read_result,
)
from caps.models.endpoints import Endpoint
from caps.models.faults import Fault
from caps.models.http import HttpModel
from caps.models.journaled import to_reply
from caps.models.wire import RENAMED, REPLY_BYTES

MEGABYTE = 1_000_000
RESULTS = Limits(line=4 * REPLY_BYTES, total=RESULT_BYTES)  # a line has a reply and little else
COMMIT_SIZE = 256  # lines whose replies are stored together
SHOWN_PROBLEMS = 5  # of a file
NEVER_RUN = "never run"


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


class Notices:
    """Messages for the user: `on_progress` may be hidden; `warn` tells each warning once."""

    def __init__(self) -> None:
        self.on_progress: Callable[[str], object] = lambda _: None
        self.on_warning: Callable[[str], object] = lambda _: None
        self._told: set[str] = set()

    def warn(self, message: str) -> None:
        """Warn, unless the same was told before."""
        if message not in self._told:
            self._told.add(message)
            self.on_warning(message)


@dataclass(slots=True)
class RequestFile:
    """A request file: its path, the endpoint that answers it, and the keys of its requests."""

    path: Path
    endpoint: Hashable
    keys: list[str] = field(default_factory=list)
    size: int = 0


class RequestFiles:
    """Writes numbered request files, one endpoint and model each; a context manager.

    A file is called `NAME.partial` until `finish`; files that are not finished are removed.
    """

    def __init__(self, folder: Path, settings: BatchSettings, *, first: int = 1) -> None:
        self._folder, self._first = folder, first
        self._lines, self._bytes = settings.lines, settings.megabytes * MEGABYTE
        self._files: list[RequestFile] = []
        self._open: dict[tuple[Hashable, str], tuple[RequestFile, IO[bytes]]] = {}
        self._keys: set[str] = set()

    def __enter__(self) -> "RequestFiles":
        return self

    def __exit__(self, *_: object) -> None:
        for _file, stream in self._open.values():
            with suppress(OSError):  # a full disk was reported by the write
                stream.close()
        for file in self._files:
            _partial(file.path).unlink(missing_ok=True)

    def add(self, request: OpenRequest, limit_name: str) -> None:
        """Write a request unless it was written before; a full file is followed by another."""
        if request.key in self._keys:
            return
        self._keys.add(request.key)
        line = encode_line(request.key, request.request, limit_name=limit_name)
        with file_errors(str(self._folder)):
            file, stream = self._file_for(request, len(line))
            stream.write(line)
        file.keys.append(request.key)
        file.size += len(line)

    def finish(self) -> list[RequestFile]:
        """Give all files their names."""
        with file_errors(str(self._folder)):
            for _, stream in self._open.values():
                stream.close()
            for file in self._files:
                _partial(file.path).replace(file.path)
        return self._files

    def _file_for(self, request: OpenRequest, length: int) -> tuple[RequestFile, IO[bytes]]:
        """The open file for a request that has room for its line, or a new one."""
        group = request.endpoint, request.request.model
        if group in self._open:
            file, stream = self._open[group]
            if len(file.keys) < self._lines and file.size + length <= self._bytes:
                return file, stream
            stream.close()
        path = self._folder / f"{self._first + len(self._files):03d}.jsonl"
        self._files.append(RequestFile(path, request.endpoint))
        self._open[group] = self._files[-1], append_file(_partial(path), empty=True)
        return self._open[group]


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


class ResultReader:
    """Reads result files into the journal, in any order and any number of times, and counts what they bring.

    A reply is in the journal before it is counted; the first under a key stands. A bad line does not stop
    the others: it is reported by file, line and field. `stored` holds the keys of replies, `failed` counts
    failed requests by cause. `refused` is an error that would fail every request. `renamed`: the server wants
    another name for the token limit.
    """

    def __init__(self, requests: PendingRequests, notices: Notices) -> None:
        self._requests, self._notices = requests, notices
        self._replies: dict[str, Completion] = {}  # not stored yet
        self.stored: set[str] = set()
        self.failed: Counter[str] = Counter()
        self.refused: ModelError | None = None
        self.renamed = False

    def __str__(self) -> str:
        causes = ", ".join(f"{cause} {number(count, 0)}" for cause, count in sorted(self.failed.items()))
        return plural(len(self.stored), "reply", "replies") + (f"; failed: {causes}" if causes else "")

    async def read(self, path: Path, name: str, *, batch: str | None, expected: Container[str]) -> None:
        """Read a file that messages call `name`; a file that breaks off ends there.

        A failure counts once per `batch`; without a batch it is only reported, as are results that are
        neither awaited nor `expected` nor in the journal.
        """
        problems, strangers = 0, set[str]()
        try:
            for place, line in enumerate(lines(str(path), RESULTS), start=1):
                problem = self._read_line(line, batch, strangers) if line.strip() else None
                if problem is not None:
                    problems += 1
                    if problems <= SHOWN_PROBLEMS:
                        self._notices.warn(f"{name}:{place}: {problem}")
                if place % COMMIT_SIZE == 0:
                    await self._store()
        except InputError as error:
            self._notices.warn(str(error))
        await self._store()
        if problems > SHOWN_PROBLEMS:
            self._notices.warn(f"{name}: {plural(problems - SHOWN_PROBLEMS, 'more problem')}")
        strangers = {key for key in strangers if key not in expected}
        if unknown := len(strangers - self._requests.journal.stamps(strangers).keys()):
            self._notices.warn(
                f"{name}: custom_id: {plural(unknown, 'result')} for requests that this run did not send"
            )

    def _read_line(self, line: bytes, batch: str | None, strangers: set[str]) -> str | None:
        """Read a line; what is wrong with it, if anything is."""
        try:
            item = read_item(line)
        except ValueError as error:
            return str(error)
        awaited = self._requests.awaited.get(item.key)
        if awaited is None:
            strangers.add(item.key)
            return None
        if item.key in self._replies or item.key in self.stored:
            return "custom_id: a second result of the same request; the first stands"
        result = read_result(item, awaited)
        if isinstance(result, Fault):
            return self._fail(item.key, batch, result)
        self._replies[item.key] = result
        return None

    def _fail(self, key: str, batch: str | None, fault: Fault) -> str | None:
        failures, cause = self._requests.failures, fault.error.cause
        if batch is None:
            return f"{cause}: name the file like its request file to send the request again"
        if not failures.add(key, batch, fault):
            return None
        self.renamed = self.renamed or fault.renamed
        if isinstance(fault.error, AFFECTS_ALL):
            self.refused = fault.error
        if failures.given_up(key) is not None:
            cause += " (given up)"
        self.failed[cause if fault.seen else NEVER_RUN] += 1
        return str(fault.error) if isinstance(fault.error, GarbledError) else None

    async def _store(self) -> None:
        """Store the replies read so far; other tasks run meanwhile."""
        journal, records = self._requests.journal, []
        for key, completion in self._replies.items():
            awaited = self._requests.awaited[key]
            request = Request((), awaited.model, awaited.template)
            records.append(journal.append(to_reply(key, awaited.digest, request, completion)))
        await asyncio.gather(*records)
        await asyncio.sleep(0)
        self.stored |= self._replies.keys()
        self._replies.clear()


# --- Batches as files in a folder, for `vllm run-batch` and clusters without a network ---
#
# `requests/001.jsonl` and so on are written here; their results belong in `results/`, under the same names.
# `batch.json` holds when the run began, and the name of the token limit in requests.
#
# A request in a request file is *under way* until its reply is in the journal, or a result file of the same
# name says that it failed. Requests under way are not written again: the user deletes a request file to have
# the rest of it written again.


STATE = "batch.json"
ENDINGS = (".jsonl", ".jsonl.gz")


class BatchFolderState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What request and result files do not tell.

    `started` is when the run began, in seconds since 1970; `limit_name` what the server calls the limit on
    tokens.
    """

    started: float
    limit_name: str = "max_tokens"


def read_state(folder: Path) -> BatchFolderState | None:
    """The state of a batch folder; None if no run has begun in it."""
    path = folder / STATE
    if not path.exists():
        return None
    try:
        return decode_json(read_file(path), BatchFolderState)
    except InputError as error:
        raise InputError(f"{path}: {error}: delete it, or name another --batch-dir") from None


class FolderCarrier:
    """Carries requests through files: writes what is not under way, and raises `BatchWaitingError`."""

    def __init__(
        self, folder: Path, requests: PendingRequests, settings: BatchSettings, *, started: float
    ) -> None:
        self._written, self._results = folder / "requests", folder / "results"
        self._folder, self._requests, self._settings = folder, requests, settings
        self._state = BatchFolderState(started)
        self.notices = Notices()

    async def exchange(self, requests: AsyncIterator[OpenRequest]) -> bool:
        """Absorb results; if there is nothing to absorb, write what is not under way and raise."""
        with file_errors(f"--batch-dir {self._folder}"):
            for subfolder in (self._written, self._results):
                subfolder.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(self._written)
        with lock:
            return await self._exchange(requests)

    async def _exchange(self, requests: AsyncIterator[OpenRequest]) -> bool:
        self._state = read_state(self._folder) or self._state
        batches = self._batches_by_key()
        with RequestFiles(self._written, self._settings, first=self._next_number()) as files:
            async for request in requests:
                if self._under_way(request.key, batches) is None:
                    files.add(request, self._state.limit_name)
            if not self._requests.awaited:
                return False
            self._requests.paid |= batches.keys()
            if await self._absorb(batches):
                return True
            self._write_state()  # before the first requests: replies count from then on
            waiting = Counter({_number(file.path): len(file.keys) for file in files.finish()})
        waiting.update(filter(None, (self._under_way(key, batches) for key in self._requests.awaited)))
        raise BatchWaitingError(self._instructions(waiting))

    def _batches_by_key(self) -> dict[str, list[str]]:
        """The request files that hold each request, by their numbers."""
        batches: dict[str, list[str]] = {}
        with file_errors(str(self._written)):
            for path in _files(self._written):
                with path.open("rb") as lines:
                    for key in filter(None, map(parse_key, lines)):
                        batches.setdefault(key, []).append(_number(path))
        return batches

    def _next_number(self) -> int:
        """A number that no request file has, nor a result file of a request file that was deleted."""
        numbers = [_number(path) for folder in (self._written, self._results) for path in _files(folder)]
        return 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)

    def _under_way(self, key: str, batches: Mapping[str, list[str]]) -> str | None:
        """The request file in which a request without a reply is under way."""
        failures = self._requests.failures
        return next((batch for batch in batches.get(key, ()) if not failures.failed_in(key, batch)), None)

    async def _absorb(self, expected: Container[str]) -> bool:
        """Read all result files; False if they hold nothing new."""
        reader = ResultReader(self._requests, self.notices)
        batches = set(map(_number, _files(self._written)))
        for path in _files(self._results):
            batch = _number(path) if _number(path) in batches else None
            await reader.read(path, str(path), batch=batch, expected=expected)
        if reader.refused is not None:
            self.notices.warn(f"refused: {reader.refused}")
        if reader.renamed:
            self._state = msgspec.structs.replace(self._state, limit_name=RENAMED)
            self._write_state()
        if not reader.stored and not reader.failed:
            return False
        self.notices.on_progress(f"{self._results}: {reader}")
        return True

    def _write_state(self) -> None:
        write_file(self._folder / STATE, msgspec.json.encode(self._state) + b"\n", option="--batch-dir")

    def _instructions(self, waiting: Mapping[str, int]) -> str:
        """What to do with which files."""
        files = [
            f"  {self._written / f'{batch}.jsonl'}: {plural(count, 'request')} without a result"
            for batch, count in sorted(waiting.items())
        ]
        return "\n".join(
            [
                f"waiting for {plural(sum(waiting.values()), 'result')}:",
                *files,
                f"Process each file, put its results into {self._results} under the same name, and run the "
                "same command again. To have requests without a result written again, delete their file.",
            ]
        )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS) and path.is_file())


def _number(path: Path) -> str:
    """What a request file and its result files have in common: their names up to the first dot."""
    return path.name.partition(".")[0]


# --- Batches at the Batch API of an endpoint: sent, recorded in the journal, awaited and absorbed ---
#
# Batches under way are recorded so that they survive a kill and are not paid twice: a file before a batch is
# created from it, the batch when it is created, and its end when the results are stored. A batch that was
# created but not recorded is found by its file.


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
