"""Results of a study: one line per suite, strategy, seed and case, stored as soon as it is known.

Invariants:

* A line is used only if its digest matches: other settings, judges or candidates have other digests.
* A file may end in the middle of a line after a killed run; contests with unreadable lines are repeated.
* Figures depend on the set of lines, not on their order.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import msgspec

from caps.core.errors import InputError
from caps.core.types import Ask, Case, Group, Level, Pairing, Pick, Rating, Solo, Usage, Verdict
from caps.datasets.verdicts import Recorded, text_digest
from caps.files import FolderLock, append_file, file_errors, is_database, is_own_output, write_file
from caps.judging.base import Ruling

MARK = "study.json"

Pair: TypeAlias = tuple[int, int]
Unit: TypeAlias = tuple[str, int, str, str]


class AskedLine(msgspec.Struct, frozen=True, array_like=True):
    """What a judge answered, in few bytes: the ratings of a pair, a rating, or the best of several."""

    shown: tuple[int, ...]
    level: int
    kind: str
    values: tuple[float, ...]
    tokens: int
    output: int
    draw: int = 0
    cause: str | None = None

    @classmethod
    def of(cls, ask: Ask, ruling: Ruling) -> "AskedLine | None":
        """The line of an answered ask."""
        answer = ruling.answer
        values: tuple[float, ...]
        if isinstance(answer, Verdict) and isinstance(ask, Pairing):
            kind, values = ask.dialect, (answer.a, answer.b)
        elif isinstance(answer, Rating):
            kind, values = "rating", (answer.value,)
        elif isinstance(answer, Pick):
            kind, values = "best", (answer.winner,)
        else:
            return None
        usages = [attempt.usage for attempt in ruling.attempts]
        read, written = sum(usage.prompt for usage in usages), sum(usage.output for usage in usages)
        return cls(ask.entrants, int(ask.level), kind, values, read, written, ask.draw, ruling.malformed)

    def recorded(self, case: Case, judge: str) -> Recorded:
        """The same as a recorded verdict on a case."""
        level, first = Level(self.level), self.values[0]
        ask: Ask
        answer: Verdict | Rating | Pick
        if self.kind == "rating":
            ask, answer = Solo(self.shown[0], level, self.draw), Rating(first)
        elif self.kind == "best":
            ask, answer = Group(self.shown, level, self.draw), Pick(int(first))
        else:
            ask = Pairing(self.shown[0], self.shown[1], level, self.draw, self.kind)
            answer = Verdict(first, self.values[1])
        return Recorded(
            case=case.id,
            judge=judge,
            ask=ask,
            answer=answer,
            texts=tuple(text_digest(case.candidates[place].text) for place in self.shown),
            usage=Usage(self.tokens, self.output),
            cause=self.cause,
        )


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One selection with its measurements; pairs of numbers are for E1 and E2.

    `apart` counts comparisons of a right with a wrong candidate, `apart_right` the correct ones among them (a
    tie counts half).
    """

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
    apart_right: tuple[float, float] = msgspec.field(default=(0.0, 0.0), name="told")
    malformed: int = 0
    unanswered: int = 0
    difficulty: str | None = None
    sure: float | None = None  # the strategy's probability that its choice is right
    narrow: bool | None = None  # of a rescue: within the margin, or only within twice that of a singleton
    rescued_wins: bool = False
    grade: float | None = None  # of the choice, if candidates have grades
    mean_grade: float | None = None
    best_grade: float | None = None
    substituted: Mapping[str, int] | None = None  # substitutions of a recorded judge; None for other judges
    silent: Mapping[str, int] | None = None  # reasons for its unanswered asks
    v1_characters: float = 0.0  # that V1-Infer would read
    v1_tokens: float | None = None  # the same as the judge counts it; None if it was asked nothing
    asked: tuple[AskedLine, ...] = ()  # of a model

    @property
    def unit(self) -> Unit:
        """The key of the result: method, seed, case and digest."""
        return self.method, self.seed, self.case, self.made_of


class ResultFile:
    """The file of results of one suite."""

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
        """Append new results and flush."""
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
            with suppress(OSError):  # a full disk was reported by the write
                self._file.close()

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = append_file(self.path)
            if self._torn:
                self._file.truncate(self._file.tell() - len(self._torn))
                self._torn = b""
        return self._file


def claim_folder(
    folder: Path, study: str, *, simulated: bool, force: bool = False, started: float = 0.0
) -> FolderLock:
    """Create or resume the folder of a study and lock it; `started` is when the study began.

    A folder with another study, or with files that caps did not write, is refused unless `force` is given.
    """
    own = {"study": study, "simulated": simulated}
    with file_errors(f"--out {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder)
        try:
            if not force:
                _refuse_others(folder, own)
            write_file(folder / MARK, msgspec.json.encode({**own, "started": started}) + b"\n")
        except BaseException:
            lock.close()
            raise
    return lock


def study_started(folder: Path, *, force: bool) -> float | None:
    """When the study in a folder began, if there is one that goes on."""
    try:
        held = msgspec.json.decode((folder / MARK).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        return None
    began = held.get("started")
    return float(began) if isinstance(began, int | float) and not force else None


def _refuse_others(folder: Path, own: dict[str, object]) -> None:
    advice = "name another folder, or add --force to write into this one"
    mark = folder / MARK
    if mark.is_file():
        try:
            held = msgspec.json.decode(mark.read_bytes(), type=dict[str, object])
        except msgspec.MsgspecError:
            raise InputError(f"--out {folder}: {MARK!r} in it is not of caps: {advice}") from None
        if {name: value for name, value in held.items() if name != "started"} != own:
            kind = " on the simulator" if held.get("simulated") else ""
            raise InputError(f"--out {folder}: holds the study {held.get('study')!r}{kind}: {advice}")
        return
    others = sorted(path.name for path in folder.iterdir() if not _is_expected(path))
    if others:
        raise InputError(f"--out {folder}: holds {others[0]!r}, which is not of a study: {advice}")


def _is_expected(path: Path) -> bool:
    """Whether this is a journal, or the shell redirects our output into it."""
    journal = path.name.endswith(("-wal", "-shm", "-lock")) or (path.is_file() and is_database(path))
    return journal or is_own_output(path)


def selection_line(one: Result) -> bytes:
    """What was chosen for a case, as a line of JSON."""
    told = {
        "case": one.case, "winner": one.winner, "correct": one.right, "rescued": one.rescued,
        "calls": sum(one.calls), "tokens": sum(one.tokens),
    }  # fmt: skip
    return _ENCODER.encode(told) + b"\n"


_DECODER: "msgspec.json.Decoder[Result]" = msgspec.json.Decoder(Result)
_ENCODER = msgspec.json.Encoder()


def slug(name: str) -> str:
    """A name as part of a file name."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "unnamed"


def digest(*parts: object) -> str:
    """A short digest of some values."""
    encoded = msgspec.json.encode(parts, enc_hook=str, order="deterministic")
    return sha256(encoded).hexdigest()[:16]


class Disagreement(NamedTuple):
    """A case and seed on which exactly one of two methods is right."""

    suite: str
    case: str
    seed: int
    first: Result
    second: Result


def disagreements(suite: str, first: Sequence[Result], second: Sequence[Result]) -> list[Disagreement]:
    """Cases and seeds on which exactly one of two methods is right, in the order of the first."""
    other = {(one.case, one.seed): one for one in second}
    pairs = [(one, other[one.case, one.seed]) for one in first if (one.case, one.seed) in other]
    return [Disagreement(suite, a.case, a.seed, a, b) for a, b in pairs if a.right != b.right]
