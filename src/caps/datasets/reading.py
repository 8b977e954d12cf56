"""Files written by others, read within limits: bytes, rows, and the fields of rows.

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
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import IO, Any

import msgspec

from caps.core.errors import InputError, MissingExtraError
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


# Fields of rows others wrote: each is of the kind that is wanted, or an `InputError` names it.


Row = dict[str, Any]

_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
}


def wanted(row: Row, name: str, kind: type, where: str = "") -> Any:
    """The value of a field that must be there."""
    if name not in row:
        raise InputError(f"{where}{name}: is missing; {_NAMES[kind]} is wanted")
    value = row[name]
    kinds = (int, float) if kind is float else kind
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{where}{name}: must be {_NAMES[kind]}, not {kind_of(value)}")
    return value


def optional(row: Row, name: str, kind: type, where: str = "") -> Any:
    """The value of a field that may be absent or null."""
    return None if row.get(name) is None else wanted(row, name, kind, where)


def label(row: Row, name: str) -> str:
    """A name or an answer that some publish as a text and some as a number."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{name}: must be a text or a number, not {kind_of(value)}")
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value).strip()


def objects(row: Row, name: str) -> list[Row]:
    """A list of objects."""
    items = wanted(row, name, list)
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            raise InputError(f"{name}[{i}]: must be an object, not {kind_of(item)}")
    return list(items)


def texts(row: Row, name: str, where: str = "") -> list[str]:
    """A list of texts."""
    items = wanted(row, name, list, where)
    for i, item in enumerate(items):
        if not isinstance(item, str):
            raise InputError(f"{where}{name}[{i}]: must be a text, not {kind_of(item)}")
    return list(items)


def kind_of(value: object) -> str:
    """What a value is, in words."""
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)


def present(**fields: object) -> Row:
    """Those fields that hold something."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


# Rows of a data file, whatever it is: one JSON object a line, one JSON list, or Parquet.


def rows_of(path: str, limits: Limits = LIMITS) -> Iterator[tuple[str, Row | InputError]]:
    """Every row with the place it stands at; a bad one as the `InputError` it is."""
    if is_parquet(path):
        yield from ((f"{path}:{number}", row) for number, row in enumerate(parquet_rows(path), start=1))
        return
    source = lines(path, limits)
    first, source = peeked(source)
    if not first:
        raise InputError(f"{path}: nothing in it")
    numbered = _listed(source, path, limits) if first.startswith(b"[") else enumerate(source, start=1)
    for number, item in numbered:
        where = f"{path}:{number}"
        if isinstance(item, bytes):
            if item.strip():
                yield where, row_in(item, where)
        else:
            yield where, _object(item, where)


def peeked(source: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first line that holds something, bare of white space, and all lines nevertheless."""
    seen = []
    for line in source:
        seen.append(line)
        if line.strip():
            return line.strip(), chain(seen, source)
    return b"", iter(seen)


def row_in(line: bytes, where: str) -> Row | InputError:
    """The object on a line."""
    try:
        return _object(decode(line), where)
    except InputError as error:
        return InputError(f"{where}: {error}")


def _object(item: object, where: str) -> Row | InputError:
    return item if isinstance(item, dict) else InputError(f"{where}: must be an object, not {kind_of(item)}")


def _listed(source: Iterable[bytes], path: str, limits: Limits) -> Iterator[tuple[int, object]]:
    try:
        items = decode(whole(source, path, limits))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return enumerate(items, start=1)


def parquet_rows(path: str) -> Iterator[Row]:
    """The rows of a Parquet file, a few at a time."""
    with _parquet(path) as file:
        for batch in file.iter_batches(batch_size=16):
            yield from batch.to_pylist()


def count_rows(path: str) -> int:
    """How many rows a Parquet file has, as it says itself."""
    with _parquet(path) as file:
        return int(file.metadata.num_rows)


def lines_at(address: str, limits: Limits = LIMITS) -> Iterator[bytes]:
    """Lines of a file at an address such as `s3://…`, gzipped if its name says so."""
    with _arrow(address, "a file"), _stream(address) as file:
        yield from lines_in(file, address, limits)


@contextmanager
def _stream(address: str) -> Iterator[IO[bytes]]:
    from pyarrow.fs import FileSystem  # noqa: PLC0415

    system, path = FileSystem.from_uri(address)
    with BufferedReader(system.open_input_stream(path)) as file:
        yield file


@contextmanager
def _parquet(path: str) -> Iterator[Any]:
    with _arrow(path, "Parquet"):
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415

        with ParquetFile(path) as file:
            yield file


@contextmanager
def _arrow(path: str, what: str) -> Iterator[None]:
    """No pyarrow, no file, not what it should be: what is wrong, in one line."""
    try:
        from pyarrow import ArrowException  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", path) from None
    try:
        yield
    except (ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: not {what} that can be read ({error})") from None
