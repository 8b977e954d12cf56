"""What became of each (suite, strategy, seed, case): one line, on disk as soon as it is known.

Rules that must not be broken:

* A line counts only for what it was made of: another strategy setting, judge or candidate has another digest.
* A file may end in the middle of a line, as a killed run leaves it; what is unreadable is played again.
* Figures are a function of the set of lines, not of their order.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from caps.core.errors import InputError

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
        try:
            raw = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
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
        try:
            file = self._opened()
            file.write(b"".join(_ENCODER.encode(result) + b"\n" for result in new))
            file.flush()
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}; results so far are kept") from None
        self.found |= {result.unit: result for result in new}

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab")
            if self._torn:
                self._file.truncate(self._file.tell() - len(self._torn))
                self._torn = b""
        return self._file


_DECODER: "msgspec.json.Decoder[Result]" = msgspec.json.Decoder(Result)
_ENCODER = msgspec.json.Encoder()


def slug(name: str) -> str:
    """A name as a file may have it."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "unnamed"


def digest(*parts: object) -> str:
    """A short digest of what something was made of."""
    encoded = msgspec.json.encode(parts, enc_hook=str, order="deterministic")
    return sha256(encoded).hexdigest()[:16]
