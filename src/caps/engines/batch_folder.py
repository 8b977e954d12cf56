"""Batches as files in a folder, for `vllm run-batch` and clusters without a network.

`requests/001.jsonl` and so on are written here; their results belong in `results/`, under the same names.
`batch.json` holds when the run began, and the name of the token limit in requests.

A request in a request file is *under way* until its reply is in the journal, or a result file of the same
name says that it failed. Requests under way are not written again: the user deletes a request file to have
the rest of it written again.
"""

from collections import Counter
from collections.abc import AsyncIterator, Container, Mapping
from pathlib import Path

import msgspec

from caps.core.errors import BatchWaitingError, InputError
from caps.core.text import plural
from caps.engines.batch_files import BatchSettings, Notices, RequestFiles, ResultReader
from caps.files import FolderLock, decode_json, file_errors, read_file, write_file
from caps.models.batch_lines import parse_key
from caps.models.pending import OpenRequest, PendingRequests
from caps.models.wire import RENAMED

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
