"""The folder of a run: its configuration, selections and calls, also for runs through Batch files.

`run.json` is written first and again at the end; the two `.jsonl` files grow while the run goes on. What was
fitted to the judge, if anything, is in `judge.json`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from caps.core.errors import InputError, SettingError
from caps.core.types import Ask, Case, Unanswered, Usage
from caps.datasets.verdicts import Recorded, text_digest
from caps.files import FolderLock, append_file, file_errors, is_own_output, write_file
from caps.journal.store import Journal
from caps.models.batch_api import key_in
from caps.models.faults import Failure, Failures
from caps.runs.result_lines import Line, answer_of, ask_of
from caps.runs.run_file import RunFile, read_run_file, regular_bytes

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
class RunRecord:
    """What a run's folder tells: what made it, what it selected, which asks stayed unanswered."""

    file: RunFile
    selections: dict[str, Line]
    unanswered: dict[tuple[str, Ask], str]


def read_run(path: Path) -> RunRecord:
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
    return RunRecord(file, selections, unanswered)


def read_rulings(path: Path) -> list[Line]:
    """Every call of a run, in order."""
    try:
        return [line for line in _read_lines(path / "rulings.jsonl") if isinstance(line, dict)]
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}; a folder made with --out is wanted") from None
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise InputError(f"{path}: the folder of a run is damaged ({error})") from None


def recorded_answers(path: Path, judge: str, texts: Mapping[str, Case]) -> Iterator[Recorded]:
    """Every answer of a run as recorded verdicts hold it; `texts` are its cases by id, where they are known.

    Asks that went unanswered are left out, and answers that a recorded judge substituted: nobody gave them.
    Of an ask that took several tries, the last counts.
    """
    for line in read_rulings(path):
        try:
            ask, answer = ask_of(line), answer_of(line)
            usage = Usage(line["tokens"], line["output"]) if "tokens" in line else None
            case, cause = str(line["case"]), line.get("cause")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(f"{path}: the folder of a run is damaged ({error!r})") from None
        if answer is None or isinstance(answer, Unanswered) or line.get("substituted"):
            continue
        known = texts.get(case)
        shown: tuple[str, ...] = ()
        if known is not None and all(0 <= one < len(known.candidates) for one in ask.entrants):
            shown = tuple(text_digest(known.candidates[one].text) for one in ask.entrants)
        yield Recorded(case, judge, ask, answer, texts=shown, usage=usage, cause=cause)


def _read_lines(path: Path) -> list[Line]:
    """Lines of a file that may end in the middle of one, as a killed run leaves it."""
    whole = regular_bytes(path).rpartition(b"\n")[0]
    return [msgspec.json.decode(line) for line in whole.splitlines() if line]


# The folder of a run that goes through Batch files: the folder of a run, with its steps beside it.
#
# `run.json` is written first and holds all that later commands need. `step-001.jsonl` and so on are for the
# provider; whatever else ends in `.jsonl` is taken for results. `failed.jsonl` has the items that failed,
# `absorbed.json` the result files that were taken in, by size and time.
#
# A file of requests is *out* as long as nothing of it has come back: what stands in it is not written
# again. When something of it has come back, the rest of it is open like anything else.


FAILED = "failed.jsonl"
OWN = (FAILED, "selections.jsonl", "rulings.jsonl")
ABSORBED = "absorbed.json"
_STEP = re.compile(r"step-(\d+)(?:-(\d+))?\.jsonl")


class BatchFolder:
    """Reads and writes the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def begun(self) -> bool:
        """Whether a run lives here."""
        return (self.path / "run.json").is_file()

    def begin(self, file: RunFile, *, force: bool = False) -> None:
        """Remember what makes the run; another run's folder is refused unless `force` says otherwise."""
        if self.begun and not force:
            before = self.file()
            different = file.difference(before) or ("cases" if before.cases != file.cases else "")
            different = different or ("limit" if before.limit != file.limit else "")
            if different:
                raise SettingError(
                    f"{self.path} holds a run with another {different!r}: name another --out, go on "
                    f"with  caps batch prepare {self.path}  or write over it with --force"
                )
            return
        with file_errors(f"--out {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)
            with FolderLock(self.path):
                if not force:
                    refuse_others(self.path, file)
                file.write(self.path)

    def file(self) -> RunFile:
        """What makes the run."""
        try:
            return read_run_file(self.path)
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(
                f"{self.path}: not the folder of a batch ({error}); caps batch prepare CASES --out makes one"
            ) from None

    def rename_limit(self, name: str) -> None:
        """From now on the limit on tokens has another name in the requests."""
        replace(self.file(), batch={"limit_name": name}).write(self.path)

    def steps(self) -> list[Path]:
        """The files of requests, in the order they were written."""
        found = [(match, path) for path in self.path.iterdir() if (match := _STEP.fullmatch(path.name))]
        return [
            path for _, path in sorted(found, key=lambda one: [int(part or 0) for part in one[0].groups()])
        ]

    def next_step(self) -> str:
        """What the next file is called."""
        numbers = [int(match[1]) for path in self.steps() if (match := _STEP.fullmatch(path.name))]
        return f"step-{max(numbers, default=0) + 1:03d}"

    def results(self) -> list[Path]:
        """Files that may hold results."""
        steps = set(self.steps())
        found = [path for ending in ("*.jsonl", "*.jsonl.gz") for path in self.path.glob(ending)]
        return sorted(path for path in found if path not in steps and path.name not in OWN)

    def fresh(self) -> list[Path]:
        """Those that were not taken in as they are now."""
        before = self._absorbed()
        return [path for path in self.results() if before.get(path.name) != _mark(path)]

    def note_absorbed(self, files: Iterable[Path]) -> None:
        """Files of this folder were taken in."""
        own = {path.name: _mark(path) for path in self.results()}
        taken = {path.name for path in files if path.resolve().parent == self.path.resolve()}
        marks = self._absorbed() | {name: mark for name, mark in own.items() if name in taken}
        write_file(self.path / ABSORBED, msgspec.json.encode(marks))

    def _absorbed(self) -> dict[str, list[int]]:
        try:
            return msgspec.json.decode((self.path / ABSORBED).read_bytes(), type=dict[str, list[int]])
        except (OSError, msgspec.MsgspecError):
            return {}  # taking a file in twice is harmless

    def sent(self) -> set[str]:
        """The keys of all requests that were ever written."""
        return {key for path in self.steps() for key in _keys(path)}

    def out(self, journal: Journal, failures: Failures) -> dict[Path, set[str]]:
        """Files of which nothing has come back yet, with the keys in them."""
        times: Counter[str] = Counter()
        waiting: dict[Path, set[str]] = {}
        for path in self.steps():
            keys = set(_keys(path))
            times.update(keys)
            back = journal.stamps(keys) or any(failures.returned(key) >= times[key] for key in keys)
            if not back:
                waiting[path] = keys
        return waiting

    def failures(self, tries: int) -> Failures:
        """What has failed so far."""
        try:
            rows = (self.path / FAILED).read_bytes().splitlines()
            return Failures(tries, [msgspec.json.decode(row, type=Failure) for row in rows if row])
        except FileNotFoundError:
            return Failures(tries)
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(
                f"{self.path / FAILED}: {error}; without it, what failed is asked again"
            ) from None

    def keep(self, failures: list[Failure]) -> None:
        """Add what has failed."""
        if failures:
            with file_errors(str(self.path / FAILED)), append_file(self.path / FAILED) as file:
                file.writelines(msgspec.json.encode(asdict(one)) + b"\n" for one in failures)


def _mark(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _keys(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for line in file:
            if (key := key_in(line)) is not None:
                yield key
