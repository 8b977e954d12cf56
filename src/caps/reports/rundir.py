"""A run's folder: everything that made it, what was selected, and every call.

`run.json` is written first and again at the end; the two `.jsonl` files grow while the run goes on. What was
fitted to the judge, if anything, is in `judge.json`.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from caps.core.errors import InputError
from caps.core.types import Ask
from caps.reports.lines import Line, ask_of

NOTED = ("caps", "aiohttp", "msgspec")


class RunFolder:
    """Writes a run's folder; a context manager."""

    def __init__(self, path: Path, made_of: Mapping[str, Any]) -> None:
        self._path, self._made_of = path, dict(made_of)
        self._files: list[IO[bytes]] = []
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._write_run({})
            self._selections = self._open("selections.jsonl")
            self._rulings = self._open("rulings.jsonl")
        except OSError as error:
            raise InputError(f"--out {path}: {error.strerror or error}") from None

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()

    def add(self, selection: bytes, rulings: bytes) -> None:
        """Write the lines of one case down."""
        try:
            self._selections.write(selection)
            self._rulings.write(rulings)
            for file in self._files:
                file.flush()
        except OSError as error:
            raise InputError(
                f"--out {self._path}: {error.strerror or error}; replies so far are kept"
            ) from None

    def keep(self, name: str, row: Mapping[str, Any]) -> None:
        """Write a file of its own beside the others."""
        try:
            (self._path / name).write_bytes(msgspec.json.format(msgspec.json.encode(row), indent=2) + b"\n")
        except OSError as error:
            raise InputError(f"--out {self._path}: {error.strerror or error}") from None

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the totals."""
        self._write_run(summary)

    def _open(self, name: str) -> IO[bytes]:
        file = (self._path / name).open("wb")
        self._files.append(file)
        return file

    def _write_run(self, summary: Mapping[str, Any]) -> None:
        write_made(self._path, {**self._made_of, "summary": dict(summary)})


def write_made(path: Path, told: Mapping[str, Any]) -> None:
    """Write what made a run into its folder, whole or not at all."""
    partial = path / "run.json.partial"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n")
    partial.replace(path / "run.json")


def read_made(path: Path) -> dict[str, Any]:
    """What made the run of a folder."""
    return msgspec.json.decode((path / "run.json").read_bytes(), type=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Record:
    """What a run's folder tells: what made it, what it selected, which asks stayed unanswered."""

    made_of: dict[str, Any]
    selections: dict[str, Line]
    unanswered: dict[tuple[str, Ask], str]


def read_run(path: Path) -> Record:
    """Read a run's folder; also of a run that was interrupted."""
    try:
        made_of = read_made(path)
        selections = {line["id"]: line for line in _read_lines(path / "selections.jsonl")}
        silent = [line for line in _read_lines(path / "rulings.jsonl") if line.get("unanswered") is not None]
        unanswered = {(line["case"], ask_of(line)): str(line["unanswered"]) for line in silent}
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}; a folder made with --out is wanted") from None
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not the folder of a run, or a damaged one ({error!r})") from None
    return Record(made_of, selections, unanswered)


def read_rulings(path: Path) -> list[Line]:
    """Every call of a run, in order."""
    try:
        return [line for line in _read_lines(path / "rulings.jsonl") if isinstance(line, dict)]
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}; a folder made with --out is wanted") from None
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: the folder of a run is damaged ({error})") from None


def _read_lines(path: Path) -> list[Line]:
    """Lines of a file that may end in the middle of one, as a killed run leaves it."""
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [msgspec.json.decode(line) for line in whole.splitlines() if line]


def versions() -> dict[str, str]:
    """What this run was made with."""
    found = {"python": sys.version.partition(" ")[0]}
    for package in NOTED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def digests(templates: Mapping[str, str]) -> dict[str, str]:
    """A short digest of each prompt template."""
    return {name: sha256(text.encode()).hexdigest()[:16] for name, text in sorted(templates.items())}
