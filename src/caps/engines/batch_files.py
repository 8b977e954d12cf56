"""Files of open requests: one endpoint and model a file, each request once, none beyond the limits.

A file is called `NAME.partial` until it is whole.
"""

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO

from caps.core.settings import check_settings, setting
from caps.files import append_file, file_errors
from caps.models.waiting import Awaited, Noted

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
class Part:
    """One file: where it lies, for which seat and model, and what is awaited of it."""

    path: Path
    group: tuple[Hashable, str]
    awaited: dict[str, Awaited] = field(default_factory=dict)
    size: int = 0


class StepFiles:
    """Writes the files of one step into a folder; a context manager."""

    def __init__(self, folder: Path, name: str, settings: BatchSettings) -> None:
        self._folder, self._name = folder, name
        self._lines, self._bytes = settings.lines, settings.megabytes * MEGABYTE
        self._parts: list[Part] = []
        self._open: dict[tuple[Hashable, str], tuple[Part, IO[bytes]]] = {}
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

    def add(self, noted: Noted, line: bytes) -> None:
        """Write a request's line unless it stands in one of the files; a full file is followed by another."""
        if noted.key in self._known:
            return
        self._known.add(noted.key)
        with file_errors(str(self._folder)):
            part, file = self._place((noted.seat, noted.request.model), len(line))
            file.write(line)
        part.awaited[noted.key] = noted.awaited
        part.size += len(line)

    def finish(self) -> list[Part]:
        """Give the files their names: `NAME.jsonl`, or `NAME-01.jsonl` and so on where there are several."""
        with file_errors(str(self._folder)):
            for _, file in self._open.values():
                file.close()
            self._open.clear()
            named = []
            for number, part in enumerate(self._parts, start=1):
                tail = "" if len(self._parts) == 1 else f"-{number:02d}"
                path = part.path.replace(self._folder / f"{self._name}{tail}.jsonl")
                named.append(Part(path, part.group, part.awaited, part.size))
        return named

    def _place(self, group: tuple[Hashable, str], length: int) -> tuple[Part, IO[bytes]]:
        """The file that takes this line."""
        found = self._open.get(group)
        if found is not None:
            part, file = found
            if len(part.awaited) < self._lines and part.size + length <= self._bytes:
                return found
            file.close()
        part = Part(self._folder / f"{self._name}-{len(self._parts) + 1:02d}.jsonl.partial", group)
        self._parts.append(part)
        self._open[group] = part, append_file(part.path, empty=True)
        return self._open[group]
