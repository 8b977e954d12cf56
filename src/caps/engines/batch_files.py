"""Batch files: request files are written within limits, result files are read into the journal."""

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from caps.core.errors import GarbledError, InputError, ModelError
from caps.core.settings import check_settings, setting
from caps.core.text import number, plural
from caps.datasets.reading import Limits, lines
from caps.files import append_file, file_errors
from caps.models.base import Completion, Request
from caps.models.batch_lines import RESULT_BYTES, encode_line, read_item, read_result
from caps.models.faults import Fault
from caps.models.journaled import to_reply
from caps.models.pending import AFFECTS_ALL, OpenRequest, PendingRequests
from caps.models.wire import REPLY_BYTES

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
            self._notices.warn(f"{name}: custom_id: {plural(unknown, 'result')} of no request of this run")

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
            return f"{cause}: name the file like its request file to have the request asked again"
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
