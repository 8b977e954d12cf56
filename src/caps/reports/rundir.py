"""A run's folder: everything that made it, what was selected, and every call.

`run.json` is written first and again at the end; the two `.jsonl` files grow while the run goes on. What was
fitted to the judge, if anything, is in `judge.json`.
"""

import errno
import re
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from caps.core.errors import InputError
from caps.core.types import Ask, Case
from caps.files import FolderLock, append_file, file_errors, is_own_output, write_file
from caps.reports.lines import Line, ask_of

NOTED = ("caps", "aiohttp", "msgspec")


# What may differ between two commands of one run: where it runs, what it may cost, what came of it.
_PASSING = (
    "base_url", "base_url_e1", "budget", "calibration", "cases", "cases_file", "journal", "limit",
    "limit_name", "price", "prompts_folder", "summary", "versions",
)  # fmt: skip
_UNFINISHED = re.compile(r"\.?run\.json\..*partial")  # left by a process that was killed


class RunFolder:
    """Writes a run's folder; a context manager.

    A folder that holds the same run is continued. One that holds another run, or files that caps did not
    write, is refused unless `force` says to write over that run; other files are left alone even then.
    """

    def __init__(
        self, path: Path, made_of: Mapping[str, Any], *, force: bool = False, lock: bool = True
    ) -> None:
        self._path = path
        self._made_of = dict(made_of) | {"cases_file": fingerprint(str(made_of["cases"]))}
        self._files: list[IO[bytes]] = []
        self._stack = ExitStack()
        with file_errors(f"--out {path}"), ExitStack() as unless_done:
            unless_done.callback(self._stack.close)
            path.mkdir(parents=True, exist_ok=True)
            if lock:
                self._stack.enter_context(FolderLock(path))
            if not force:
                refuse_others(path, self._made_of)
            if force and other_than(path, self._made_of):
                (path / "judge.json").unlink(missing_ok=True)  # fitted by the run that is written over
            self._write_run({})
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
        self._write_run(summary)

    def _open(self, name: str) -> IO[bytes]:
        file = append_file(self._path / name, empty=True)
        self._files.append(file)
        return file

    def _write_run(self, summary: Mapping[str, Any]) -> None:
        write_made(self._path, {**self._made_of, "summary": dict(summary)})


def write_made(path: Path, told: Mapping[str, Any]) -> None:
    """Write what made a run into its folder, whole or not at all."""
    write_file(path / "run.json", msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n")


def refuse_others(path: Path, made: Mapping[str, Any]) -> None:
    """Refuse a folder that holds another run than this, or files that caps did not write."""
    different = other_than(path, made)
    if different == RUN:
        names = sorted(name.name for name in path.iterdir() if not _is_expected(name, made))
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


def other_than(path: Path, made: Mapping[str, Any]) -> str:
    """What sets the run in a folder apart from this one; nothing where it is the same."""
    try:
        before = read_made(path)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return RUN
    if not {"cases", "strategy", "seed"} <= before.keys():
        return RUN
    now: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(made)))
    if ("batch" in before) != ("batch" in now):
        return "engine"
    for name in now:  # a field that an earlier version did not write sets nothing apart
        if name not in _PASSING and name in before and not _same(name, before, now):
            return name
    if not _reaches(before.get("limit"), now.get("limit")):
        return "limit"
    return "" if _continues(before, str(now["cases"])) else "cases"


def known_cases(path: Path) -> list[str]:
    """Where the cases of the run in a folder came from, if one is there."""
    with suppress(OSError, msgspec.MsgspecError, UnicodeError, KeyError):
        return [str(read_made(path)["cases"])]
    return []


def _same(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    if name == "strategy" and before.get("calibration") and "calibration" in now:
        return bool(before[name]["name"] == now[name]["name"])  # the rest was fitted, and is fitted again
    return bool(before[name] == now[name])


def _reaches(before: int | None, now: int | None) -> bool:
    """Whether the cases of the run before are among those of this one."""
    return now is None or (before is not None and now >= before)


def fingerprint(cases: str) -> dict[str, Any] | None:
    """Size and digest of a file of cases; of a stream nothing is known."""
    path = Path(cases)
    if cases == "-" or not path.is_file():
        return None
    return {"bytes": path.stat().st_size, "sha256": _digest(path, path.stat().st_size)}


def _continues(before: Mapping[str, Any], cases: str) -> bool:
    """Whether a file begins with what was there before: it may have moved, and cases may be added to it."""
    path, known = Path(cases), before.get("cases_file")
    if "-" in (cases, before["cases"]):
        return True  # a stream: `refuse_other_case` sees what comes first in it
    if known is None or not path.is_file():
        return bool(before["cases"] == cases)
    return bool(path.stat().st_size >= known["bytes"] and _digest(path, known["bytes"]) == known["sha256"])


def _digest(path: Path, size: int) -> str:
    hashed = sha256()
    with path.open("rb") as file:
        while size > 0 and (chunk := file.read(min(size, 1 << 20))):
            hashed.update(chunk)
            size -= len(chunk)
    return hashed.hexdigest()


def _is_expected(path: Path, made: Mapping[str, Any]) -> bool:
    """Whether a file may stand in the folder of a run that has not begun: its journal, or its own output."""
    journal = made.get("journal")
    own = () if journal is None else tuple(f"{journal}{tail}" for tail in ("", "-wal", "-shm"))
    return bool(_UNFINISHED.fullmatch(path.name)) or str(path.resolve()) in own or is_own_output(path)


def read_made(path: Path) -> dict[str, Any]:
    """What made the run of a folder."""
    return msgspec.json.decode(_bytes(path / "run.json"), type=dict[str, Any])


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
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not the folder of a run, or a damaged one ({error!r})") from None
    return Record(made_of, selections, unanswered)


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
    whole = _bytes(path).rpartition(b"\n")[0]
    return [msgspec.json.decode(line) for line in whole.splitlines() if line]


def _bytes(path: Path) -> bytes:
    """The content of a file of a run; anything but a regular file is no such file, and is not waited for."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return path.read_bytes()


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
