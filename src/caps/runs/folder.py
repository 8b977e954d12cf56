"""Run folders: configuration, selections and judge calls.

`run.json` is written at the start and again at the end. `selections.jsonl` and `rulings.jsonl` grow during
the run. `judge.json` holds the judge profile if the run was calibrated.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from caps.core.errors import InputError
from caps.core.types import Ask, Case, Unanswered, Usage
from caps.datasets.case_files import write_case
from caps.datasets.verdicts import Recorded, text_digest
from caps.engines.base import Outcome
from caps.files import (
    FolderLock,
    append_file,
    decode_json,
    file_errors,
    is_own_output,
    split_paths,
    write_file,
)
from caps.runs.result_lines import Line, answer_of, ask_of, json_lines, ruling_lines, unanswered_in
from caps.runs.run_file import RunFile, new_run_file, read_regular_file, read_run_file, run_in
from caps.runs.shards import Shard, missing_shards, shard_folders, sum_summaries
from caps.session.resolve import Resolved

CASE_FILE = "case.jsonl"  # the case of a run that generated its own candidates
PROGRESS_FILE = "progress.json"  # how far a run is that was killed
_UNFINISHED = re.compile(r"\.?run\.json\..*partial")  # left by a killed process


class RunFolder:
    """Writes the folder of a run; a context manager.

    If the folder holds the same run, that run continues. If it holds another run or files that caps did not
    write, it is refused; `force` overwrites the other run and leaves all other files alone.
    """

    def __init__(self, path: Path, file: RunFile, *, force: bool = False) -> None:
        self._path = path
        self._file = replace(file, cases_file=fingerprint(file.cases))
        self._files: list[IO[bytes]] = []
        self._stack = ExitStack()
        with file_errors(f"--out {path}"), ExitStack() as on_failure:
            on_failure.callback(self._stack.close)
            path.mkdir(parents=True, exist_ok=True)
            self._stack.enter_context(FolderLock(path))
            if not force:
                refuse_other_run(path, self._file)
            if force and run_difference(path, self._file):
                (path / "judge.json").unlink(missing_ok=True)  # it belongs to the run that is overwritten
            self._file.write(path)
            self._selections = append_file(path / "selections.jsonl", empty=True)
            self._files.append(self._selections)
            self._rulings = append_file(path / "rulings.jsonl", empty=True)
            self._files.append(self._rulings)
            on_failure.pop_all()

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
        """Append the lines of one case."""
        with file_errors(f"--out {self._path}", "; replies so far are kept"):
            self._selections.write(selection)
            self._rulings.write(rulings)
            for file in self._files:
                file.flush()

    def write_json(self, name: str, row: Mapping[str, Any]) -> None:
        """Write an additional JSON file."""
        write_file(self._path / name, msgspec.json.format(msgspec.json.encode(row), indent=2) + b"\n")

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write `run.json` again, with the summary."""
        replace(self._file, summary=dict(summary)).write(self._path)


def claim_single_run(path: Path, resolved: Resolved, *, force: bool) -> None:
    """Create the folder of a run with one case, or refuse it before anything is spent."""
    with file_errors(f"--out {path}"):
        path.mkdir(parents=True, exist_ok=True)
        if not force:
            refuse_other_run(path, _single_run_file(path, resolved))


def write_single_run(
    path: Path,
    resolved: Resolved,
    case: Case,
    outcome: Outcome,
    line: Line,
    *,
    force: bool = False,
    summary: Mapping[str, Any] | None = None,
) -> None:
    """Write the folder of a run with one case: the case with its candidates, its result and the calls."""
    with file_errors(f"--out {path}"):
        path.mkdir(parents=True, exist_ok=True)
        (path / CASE_FILE).write_bytes(write_case(case) + b"\n")
    with RunFolder(path, _single_run_file(path, resolved), force=force) as folder:
        folder.add(json_lines([line]), json_lines(ruling_lines(outcome)))
        folder.finish({"problems": 1, **(summary or {})})


def _single_run_file(path: Path, resolved: Resolved) -> RunFile:
    return new_run_file(resolved, cases=str(path / CASE_FILE), limit=None, findings={})


def refuse_other_run(path: Path, file: RunFile) -> None:
    """Refuse a folder that holds another run, or files that caps did not write."""
    different = run_difference(path, file)
    if different == NO_RUN:
        if shard_folders(path):
            raise InputError(
                f"--out {path}: holds a run in shards: name another folder, or one of its shards with --shard"
            )
        names = sorted(entry.name for entry in path.iterdir() if not _is_expected(entry, file))
        if names:
            raise InputError(
                f"--out {path}: holds {names[0]!r}, which caps did not write: name another folder, or add "
                "--force to write into this one"
            )
    elif different:
        raise InputError(
            f"--out {path}: holds a run with another {different!r}: name another folder, or add --force to "
            "overwrite that run"
        )


def refuse_other_shards(path: Path, file: RunFile) -> None:
    """Refuse a folder that holds another run than the one of which this is a shard."""
    if (path / "run.json").is_file():
        raise InputError(f"--out {path}: holds a run that is not split into shards: name another folder")
    for shard, folder in shard_folders(path).items():
        same_count = file.shard is not None and shard.count == Shard.parse(file.shard).count
        different = (
            run_difference(folder, replace(file, shard=str(shard))) if same_count else "number of shards"
        )
        if different:
            raise InputError(
                f"--out {path}: {folder.name} is of a run with another {different!r}: name another folder"
            )


def refuse_other_case(path: Path, first: Case) -> None:
    """Refuse a folder whose first result is of another case; a stream cannot be checked any further."""
    try:
        with (path / "selections.jsonl").open("rb") as file:
            stored = decode_json(file.readline(), dict[str, Any])
    except (OSError, InputError):
        return
    texts = [None, *(candidate.text for candidate in first.candidates)]
    if stored.get("id") != first.id or stored.get("text") not in texts:
        raise InputError(
            f"--out {path}: holds a run whose first case is {stored.get('id')!r}: name another folder, or "
            "add --force to overwrite that run"
        )


NO_RUN = "run"  # the difference if the folder holds no run


def run_difference(path: Path, file: RunFile) -> str:
    """Name the first difference between the run in a folder and this one; empty if they are the same run."""
    before = run_in(path)
    if before is None:
        return NO_RUN
    if different := file.difference(before):
        return different
    if before.shard != file.shard:
        return "shard"
    if file.limit is not None and (before.limit is None or file.limit < before.limit):
        return "limit"
    return "" if _extends_cases(before, file.cases) else "cases"


def fingerprint(cases: str) -> dict[str, Any] | None:
    """Return size and digest of a file of cases, or of several; None for a stream."""
    if len(paths := split_paths(cases)) > 1:
        parts = [part for path in paths if (part := fingerprint(path)) is not None]
        digest = sha256("".join(part["sha256"] for part in parts).encode()).hexdigest()
        return {"bytes": sum(part["bytes"] for part in parts), "sha256": digest}
    path = Path(cases)
    if cases == "-" or not path.is_file():
        return None
    return {"bytes": path.stat().st_size, "sha256": _digest(path, path.stat().st_size)}


def _extends_cases(before: RunFile, cases: str) -> bool:
    """Whether a file begins with the earlier cases; it may have moved, and cases may have been appended."""
    path, recorded = Path(cases), before.cases_file
    if "-" in (cases, before.cases):
        return True  # a stream: `refuse_other_case` checks its first case
    if len(split_paths(cases)) > 1:
        return bool(fingerprint(cases) == recorded)
    if recorded is None or not path.is_file():
        return bool(before.cases == cases)
    size = recorded["bytes"]
    return bool(path.stat().st_size >= size and _digest(path, size) == recorded["sha256"])


def _digest(path: Path, size: int) -> str:
    hashed = sha256()
    with path.open("rb") as file:
        while size > 0 and (chunk := file.read(min(size, 1 << 20))):
            hashed.update(chunk)
            size -= len(chunk)
    return hashed.hexdigest()


def _is_expected(path: Path, file: RunFile) -> bool:
    """Whether a file may be in the folder before the run starts: its journal, or its own output."""
    journal = file.config.journal
    endings = ("", "-wal", "-shm", "-lock")
    journal_files = () if journal is None else tuple(f"{journal}{ending}" for ending in endings)
    return (
        bool(_UNFINISHED.fullmatch(path.name))
        or path.name in (CASE_FILE, PROGRESS_FILE)
        or str(path.resolve()) in journal_files
        or is_own_output(path)
    )


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A stored run: its run file, its selections, and the unanswered asks with their reasons, by judge.

    `journals` has the journal of each case of a shard, by its id; `missing` names the shards that are absent.
    """

    file: RunFile
    selections: dict[str, Line]
    unanswered: dict[str, dict[tuple[str, Ask], str]]
    journals: dict[str, str | None] = field(default_factory=dict)
    missing: str = ""


def run_folders(path: Path) -> list[Path]:
    """The folders with the results of a run: those of its shards, or the one of the run itself."""
    return list(shard_folders(path).values()) or [path]


def read_run(path: Path) -> RunRecord:
    """Read the folder of a finished or interrupted run, or of its shards as one run.

    Shards of different runs are refused. A run is finished if all its shards are there and finished.
    """
    shards = shard_folders(path)
    try:
        with _as_run_folder():
            return _join_shards(path, shards) if shards else _read_run(path)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: not a run folder, or a damaged one ({error!r})") from None


@contextmanager
def _as_run_folder() -> Iterator[None]:
    """Report a file that cannot be read as one that a run folder should have."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{error.filename}: {error.strerror}; expected a run folder written with --out"
        ) from None


def _read_run(path: Path) -> RunRecord:
    """Read a run that is in one folder."""
    file = read_run_file(path)
    selections = {line["id"]: line for line in _read_lines(path / "selections.jsonl")}
    unanswered: dict[str, dict[tuple[str, Ask], str]] = {}
    for line in _read_lines(path / "rulings.jsonl"):
        for judge, reason in unanswered_in(line):
            unanswered.setdefault(judge, {})[line["case"], ask_of(line)] = reason
    return RunRecord(file, selections, unanswered)


def _join_shards(path: Path, shards: Mapping[Shard, Path]) -> RunRecord:
    """Read the shards of a run as one; the order of the cases is that of their file."""
    records = {shard: _read_run(folder) for shard, folder in shards.items()}
    (first, start), *others = records.items()
    for shard, record in others:
        different = "number of shards" if shard.count != first.count else _difference(start.file, record.file)
        if different:
            raise InputError(
                f"{path}: {shards[shard].name} is of another run than {shards[first].name}: it has another "
                f"{different!r}"
            )
    placed: dict[int, Line] = {}
    unanswered: dict[str, dict[tuple[str, Ask], str]] = {}
    for shard, record in records.items():
        placed |= {shard.place(index): line for index, line in enumerate(record.selections.values())}
        for judge, asks in record.unanswered.items():
            unanswered.setdefault(judge, {}).update(asks)
    missing = missing_shards(shards)
    summaries = [record.file.summary for record in records.values()]
    finished = not missing and all(summaries)
    return RunRecord(
        replace(start.file, shard=None, summary=sum_summaries(summaries) if finished else {}),
        {line["id"]: line for _, line in sorted(placed.items())},
        unanswered,
        {name: record.file.config.journal for record in records.values() for name in record.selections},
        f"{path}: {missing}" if missing else "",
    )


def _difference(file: RunFile, other: RunFile) -> str:
    """Name the first setting in which two shards differ; empty if they are of one run."""
    if file.limit != other.limit:
        return "limit"
    digests = file.cases_file, other.cases_file
    same_cases = file.cases == other.cases if None in digests else digests[0] == digests[1]
    return file.difference(other) or ("" if same_cases else "cases")


def read_rulings(path: Path) -> list[Line]:
    """Read every judge call of a run, in order."""
    shards = shard_folders(path)
    if shards:
        places = {name: place for place, name in enumerate(read_run(path).selections)}
        rulings = [line for folder in shards.values() for line in read_rulings(folder)]
        return sorted(rulings, key=lambda line: places.get(line.get("case", ""), len(places)))
    with _as_run_folder():
        return _read_lines(path / "rulings.jsonl")


def recorded_answers(path: Path, judge: str, texts: Mapping[str, Case]) -> Iterator[Recorded]:
    """Yield the answers of a run as recorded verdicts; `texts` holds its known cases by id.

    Unanswered asks and answers that a recorded judge substituted are left out. The last attempt of an ask
    counts.
    """
    for line in read_rulings(path):
        try:
            ask, answer = ask_of(line), answer_of(line)
            usage = Usage(line["tokens"], line["output"]) if "tokens" in line else None
            case, cause = str(line["case"]), line.get("cause")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(f"{path}: the run folder is damaged ({error!r})") from None
        if answer is None or isinstance(answer, Unanswered) or line.get("substituted"):
            continue
        judged = texts.get(case)
        shown: tuple[str, ...] = ()
        if judged is not None and all(0 <= place < len(judged.candidates) for place in ask.entrants):
            shown = tuple(text_digest(judged.candidates[place].text) for place in ask.entrants)
        yield Recorded(case, judge, ask, answer, texts=shown, usage=usage, cause=cause)


def _read_lines(path: Path) -> list[Line]:
    """Read complete lines; a killed run may leave half a line at the end."""
    whole = read_regular_file(path).rpartition(b"\n")[0]
    return [decode_json(line, dict[str, Any], str(path)) for line in whole.splitlines() if line]
