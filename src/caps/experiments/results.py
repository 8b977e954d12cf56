"""What became of each (suite, strategy, seed, case): one line, on disk as soon as it is known.

Rules that must not be broken:

* A line counts only for what it was made of: another strategy setting, judge or candidate has another digest.
* A file may end in the middle of a line, as a killed run leaves it; what is unreadable is played again.
* Figures are a function of the set of lines, not of their order.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from caps.core.errors import InputError
from caps.files import FolderLock, append_file, file_errors, is_database, is_own_output, write_file

MARK = "study.json"

Pair: TypeAlias = tuple[int, int]
Unit: TypeAlias = tuple[str, int, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One selection and all that is measured on it; pairs of numbers are those of E1 and E2."""

    method: str
    seed: int
    case: str
    made_of: str
    n: int
    rights: int
    first: bool
    clusters: int
    winner: int
    right: bool
    rescued: int = 0
    depth: int = 0
    calls: Pair = (0, 0)
    tokens: Pair = (0, 0)
    pairs: Pair = (0, 0)
    pair_tokens: Pair = (0, 0)
    apart: Pair = (0, 0)
    told: tuple[float, float] = (0.0, 0.0)
    malformed: int = 0
    unanswered: int = 0
    difficulty: str | None = None
    sure: float | None = None  # how likely the strategy said its choice is right

    @property
    def unit(self) -> Unit:
        """What this is the result of."""
        return self.method, self.seed, self.case, self.made_of


class ResultFile:
    """The results of one suite, read and added to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[Unit, Result] = {}
        self.unreadable = 0
        self._file: IO[bytes] | None = None
        with file_errors(str(path)):
            raw = path.read_bytes() if path.is_file() else b""
        whole, _, self._torn = raw.rpartition(b"\n")
        for line in whole.splitlines():
            try:
                result = _DECODER.decode(line)
            except msgspec.MsgspecError:
                self.unreadable += 1
                continue
            self.found[result.unit] = result

    def add(self, results: Iterable[Result]) -> None:
        """Append what is not there yet, and hand it to the system at once."""
        new = [result for result in results if result.unit not in self.found]
        if not new:
            return
        with file_errors(str(self.path), "; results so far are kept"):
            file = self._opened()
            file.write(b"".join(_ENCODER.encode(result) + b"\n" for result in new))
            file.flush()
        self.found |= {result.unit: result for result in new}

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with suppress(OSError):  # a full disk was reported when it was written to
                self._file.close()

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = append_file(self.path)
            if self._torn:
                self._file.truncate(self._file.tell() - len(self._torn))
                self._torn = b""
        return self._file


def claim_folder(folder: Path, study: str, *, simulated: bool, force: bool = False) -> FolderLock:
    """Make the folder of a study, or go on with it, alone until the lock ends; others are refused.

    A folder that holds another study, or files that caps did not write, is refused unless `force` is given.
    """
    own = {"study": study, "simulated": simulated}
    with file_errors(f"--out {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder)
        try:
            if not force:
                _refuse_others(folder, own)
            write_file(folder / MARK, msgspec.json.encode(own) + b"\n")
        except BaseException:
            lock.close()
            raise
    return lock


def _refuse_others(folder: Path, own: dict[str, object]) -> None:
    advice = "name another folder, or add --force to write into this one"
    mark = folder / MARK
    if mark.is_file():
        try:
            held = msgspec.json.decode(mark.read_bytes(), type=dict[str, object])
        except msgspec.MsgspecError:
            raise InputError(f"--out {folder}: {MARK!r} in it is not of caps: {advice}") from None
        if held != own:
            kind = " on the simulator" if held.get("simulated") else ""
            raise InputError(f"--out {folder}: holds the study {held.get('study')!r}{kind}: {advice}")
        return
    others = sorted(path.name for path in folder.iterdir() if not _is_expected(path))
    if others:
        raise InputError(f"--out {folder}: holds {others[0]!r}, which is not of a study: {advice}")


def _is_expected(path: Path) -> bool:
    """Whether a version that left no mark wrote this, or the shell writes our output into it."""
    if path.name == "results" and path.is_dir():
        return all(_holds_results(file) for file in path.iterdir())
    journal = path.name.endswith(("-wal", "-shm")) or (path.is_file() and is_database(path))
    return path.name in ("tables", "tables.md") or journal or is_own_output(path)


def _holds_results(path: Path) -> bool:
    if path.suffix != ".jsonl" or not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline(1 << 20)
    try:
        return not first or bool(_DECODER.decode(first))
    except msgspec.MsgspecError:
        return False


_DECODER: "msgspec.json.Decoder[Result]" = msgspec.json.Decoder(Result)
_ENCODER = msgspec.json.Encoder()


def slug(name: str) -> str:
    """A name as a file may have it."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "unnamed"


def digest(*parts: object) -> str:
    """A short digest of what something was made of."""
    encoded = msgspec.json.encode(parts, enc_hook=str, order="deterministic")
    return sha256(encoded).hexdigest()[:16]
