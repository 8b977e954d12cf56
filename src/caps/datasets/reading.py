"""Bytes of files others wrote: within limits, and whatever is wrong with them is the file's fault.

A limit is far above what any published file needs and far below what a machine has: a bomb ends in an
`InputError` that names it.
"""

import gzip
import json
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from caps.core.errors import InputError
from caps.files import BOM, is_stream, open_input

_MIB = 1 << 20
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bytes after unpacking: of a line, of a file read as one, of all lines of a packed one, of a member,
    of an archive; then how many members an archive may have, and how many values one JSON text.
    """

    line: int = 512 * _MIB
    whole: int = 2048 * _MIB
    total: int = 65536 * _MIB
    packed: int = 512 * _MIB
    archive: int = 16384 * _MIB
    members: int = 200_000
    values: int = 20_000_000


LIMITS = Limits()


def lines(path: str, limits: Limits = LIMITS) -> Iterator[bytes]:
    """Lines of a file (gzipped or not; `-` is standard input) within limits."""
    with _faults(path), _opened(path) as (file, packed):
        yield from lines_in(file, path, limits, packed=packed)


def lines_in(file: IO[bytes], path: str, limits: Limits = LIMITS, *, packed: bool = True) -> Iterator[bytes]:
    """Lines of an open file, each within limits; of a packed one all together too."""
    total = number = 0
    while line := file.readline(limits.line + 1):
        total, number = total + len(line), number + 1
        if len(line) > limits.line:
            raise InputError(f"{path}:{number}: a line is longer than {limits.line:,} bytes")
        if packed and total > limits.total:
            raise InputError(f"{path}:{number}: holds more than {limits.total:,} bytes")
        yield line if number > 1 else line.removeprefix(BOM)


def whole(parts: Iterable[bytes], path: str, limits: Limits = LIMITS) -> bytes:
    """All lines as one."""
    kept, total = [], 0
    for part in parts:
        total += len(part)
        if total > limits.whole:
            raise InputError(f"{path}: holds more than {limits.whole:,} bytes, too many to be read as one")
        kept.append(part)
    return b"".join(kept)


def inflate(data: bytes, limit: int) -> bytes:
    """Unpack zlib data, or raise `InputError` before more than `limit` bytes are unpacked."""
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(data, limit + 1)
    except zlib.error as error:
        raise InputError(f"cannot be unpacked ({error})") from None
    if len(unpacked) > limit:
        raise InputError(f"unpacks to more than {limit:,} bytes")
    if not unpacker.eof:
        raise InputError("cannot be unpacked (it is cut off)")
    return unpacked


def decode(data: bytes | str) -> Any:
    """Read JSON, bare NaN as null, or raise `InputError`."""
    refuse_flood(data)
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        first = error
    needles = ("NaN", "Infinity") if isinstance(data, str) else (b"NaN", b"Infinity")
    if any(needle in data for needle in needles):  # type: ignore[operator]
        try:
            return msgspec.json.decode(msgspec.json.encode(json.loads(data)))
        except (ValueError, OverflowError, RecursionError):
            pass
    raise InputError(f"not JSON: {first}")


def refuse_flood(data: bytes | str, limits: Limits = LIMITS) -> None:
    """Refuse a JSON text of so many values that they would fill the memory: `[[],[],[],...` for gigabytes."""
    if len(data) <= limits.values:  # a value takes a byte at least
        return
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if sum(map(raw.count, (b",", b"[", b"{"))) > limits.values:
        raise InputError(f"holds more than {limits.values:,} values")


def is_zip(path: str) -> bool:
    """Whether a file is a zip archive; a file that cannot be opened is not, nor one that can be read once."""
    return _magic(path).startswith(_ZIP)


def is_parquet(path: str) -> bool:
    """Whether a file is in the format Parquet."""
    return _magic(path) == b"PAR1"


def _magic(path: str) -> bytes:
    if is_stream(path):
        return b""
    try:
        with Path(path).open("rb") as file:
            return file.read(4)
    except (OSError, ValueError):
        return b""


@contextmanager
def _opened(path: str) -> Iterator[tuple[IO[bytes], bool]]:
    """A file, and whether it is packed: only then can it be longer than it looks."""
    if path == "-":
        yield sys.stdin.buffer, False
        return
    with open_input(path) as file:
        packed = path.endswith(".gz") or file.peek(2).startswith(_GZIP)  # type: ignore[attr-defined]
        yield (gzip.GzipFile(fileobj=file) if packed else file), packed  # type: ignore[misc]


@contextmanager
def _faults(path: str) -> Iterator[None]:
    """No file, a directory, a broken archive: the file's fault."""
    try:
        yield
    except (OSError, EOFError, zlib.error, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{path}: {reason}") from None
