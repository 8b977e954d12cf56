"""A run's folder: everything that made it, what was selected, and every call.

`run.json` is written first and again at the end; the two `.jsonl` files grow while the run goes on. What was
fitted to the judge, if anything, is in `judge.json`.
"""

import re
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from caps.core.errors import InputError
from caps.core.types import Ask, Case
from caps.files import FolderLock, append_file, file_errors, is_own_output, write_file
from caps.reports.lines import Line, ask_of
from caps.reports.run_file import RunFile, read_run_file, regular_bytes

_UNFINISHED = re.compile(r"\.?run\.json\..*partial")  # left by a process that was killed


class RunFolder:
    """Writes a run's folder; a context manager.

    A folder that holds the same run is continued. One that holds another run, or files that caps did not
    write, is refused unless `force` says to write over that run; other files are left alone even then.
    """

    def __init__(self, path: Path, file: RunFile, *, force: bool = False, lock: bool = True) -> None:
        self._path = path
        self._file = replace(file, cases_file=fingerprint(file.cases))
        self._files: list[IO[bytes]] = []
        self._stack = ExitStack()
        with file_errors(f"--out {path}"), ExitStack() as unless_done:
            unless_done.callback(self._stack.close)
            path.mkdir(parents=True, exist_ok=True)
            if lock:
                self._stack.enter_context(FolderLock(path))
            if not force:
                refuse_others(path, self._file)
            if force and other_than(path, self._file):
                (path / "judge.json").unlink(missing_ok=True)  # fitted by the run that is written over
            self._file.write(path)
            self._selections = self._open("selections.jsonl")
            self._rulings = self._open("rulings.jsonl")
            unless_done.pop_all()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            with suppress(OSError):  # a full disk was reported when it was written to
                file.close()
        self._stack.close()

    def add(self, selection: bytes, rulings: bytes) -> None:
        """Write the lines of one case down."""
        with file_errors(f"--out {self._path}", "; replies so far are kept"):
            self._selections.write(selection)
            self._rulings.write(rulings)
            for file in self._files:
                file.flush()

    def keep(self, name: str, row: Mapping[str, Any]) -> None:
        """Write a file of its own beside the others."""
        write_file(self._path / name, msgspec.json.format(msgspec.json.encode(row), indent=2) + b"\n")

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the totals."""
        replace(self._file, summary=dict(summary)).write(self._path)

    def _open(self, name: str) -> IO[bytes]:
        file = append_file(self._path / name, empty=True)
        self._files.append(file)
        return file


def refuse_others(path: Path, file: RunFile) -> None:
    """Refuse a folder that holds another run than this, or files that caps did not write."""
    different = other_than(path, file)
    if different == RUN:
        names = sorted(name.name for name in path.iterdir() if not _is_expected(name, file))
        if names:
            raise InputError(
                f"--out {path}: holds {names[0]!r}, which is not of a run of caps: name another folder, or "
                "add --force to write into this one"
            )
    elif different:
        raise InputError(
            f"--out {path}: holds a run with another {different!r}: name another folder, or add --force to "
            "write over that run"
        )


def refuse_other_case(path: Path, first: Case) -> None:
    """Refuse a folder whose results begin with another case: all that is known of a stream in time."""
    with suppress(OSError, msgspec.MsgspecError, UnicodeError):
        with (path / "selections.jsonl").open("rb") as file:
            held = msgspec.json.decode(file.readline(), type=dict[str, Any])
        texts = [None, *(candidate.text for candidate in first.candidates)]
        if held.get("id") != first.id or held.get("text") not in texts:
            raise InputError(
                f"--out {path}: holds a run that began with another case, {held.get('id')!r}: name another "
                "folder, or add --force to write over that run"
            )


RUN = "run"  # what differs where there is no run at all


def other_than(path: Path, file: RunFile) -> str:
    """What sets the run in a folder apart from this one; nothing where it is the same."""
    try:
        before = read_run_file(path)
    except (OSError, InputError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return RUN
    if different := file.difference(before):
        return different
    if not _reaches(before.limit, file.limit):
        return "limit"
    return "" if _continues(before, file.cases) else "cases"


def known_cases(path: Path) -> list[str]:
    """Where the cases of the run in a folder came from, if one is there."""
    with suppress(OSError, InputError, msgspec.MsgspecError, UnicodeError):
        return [read_run_file(path).cases]
    return []


def _reaches(before: int | None, now: int | None) -> bool:
    """Whether the cases of the run before are among those of this one."""
    return now is None or (before is not None and now >= before)


def fingerprint(cases: str) -> dict[str, Any] | None:
    """Size and digest of a file of cases; of a stream nothing is known."""
    path = Path(cases)
    if cases == "-" or not path.is_file():
        return None
    return {"bytes": path.stat().st_size, "sha256": _digest(path, path.stat().st_size)}


def _continues(before: RunFile, cases: str) -> bool:
    """Whether a file begins with what was there before: it may have moved, and cases may be added to it."""
    path, known = Path(cases), before.cases_file
    if "-" in (cases, before.cases):
        return True  # a stream: `refuse_other_case` sees what comes first in it
    if known is None or not path.is_file():
        return bool(before.cases == cases)
    return bool(path.stat().st_size >= known["bytes"] and _digest(path, known["bytes"]) == known["sha256"])


def _digest(path: Path, size: int) -> str:
    hashed = sha256()
    with path.open("rb") as file:
        while size > 0 and (chunk := file.read(min(size, 1 << 20))):
            hashed.update(chunk)
            size -= len(chunk)
    return hashed.hexdigest()


def _is_expected(path: Path, file: RunFile) -> bool:
    """Whether a file may stand in the folder of a run that has not begun: its journal, or its own output."""
    journal = file.config.journal
    own = () if journal is None else tuple(f"{journal}{tail}" for tail in ("", "-wal", "-shm"))
    return bool(_UNFINISHED.fullmatch(path.name)) or str(path.resolve()) in own or is_own_output(path)


@dataclass(frozen=True, slots=True)
class Record:
    """What a run's folder tells: what made it, what it selected, which asks stayed unanswered."""

    file: RunFile
    selections: dict[str, Line]
    unanswered: dict[tuple[str, Ask], str]


def read_run(path: Path) -> Record:
    """Read a run's folder; also of a run that was interrupted."""
    try:
        file = read_run_file(path)
        selections = {line["id"]: line for line in _read_lines(path / "selections.jsonl")}
        silent = [line for line in _read_lines(path / "rulings.jsonl") if line.get("unanswered") is not None]
        unanswered = {(line["case"], ask_of(line)): str(line["unanswered"]) for line in silent}
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}; a folder made with --out is wanted") from None
    except InputError:
        raise
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not the folder of a run, or a damaged one ({error!r})") from None
    return Record(file, selections, unanswered)


def read_rulings(path: Path) -> list[Line]:
    """Every call of a run, in order."""
    try:
        return [line for line in _read_lines(path / "rulings.jsonl") if isinstance(line, dict)]
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}; a folder made with --out is wanted") from None
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise InputError(f"{path}: the folder of a run is damaged ({error})") from None


def _read_lines(path: Path) -> list[Line]:
    """Lines of a file that may end in the middle of one, as a killed run leaves it."""
    whole = regular_bytes(path).rpartition(b"\n")[0]
    return [msgspec.json.decode(line) for line in whole.splitlines() if line]
