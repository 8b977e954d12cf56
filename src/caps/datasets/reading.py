"""Reading of untrusted files within limits: bytes, rows, and the fields of rows.

Limits are far above what published files need and below what a machine has, so a decompression bomb ends in
an `InputError`.
"""

import ast
import csv
import gzip
import json
import math
import re
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from caps.core.errors import InputError
from caps.core.text import UNPARSABLE
from caps.datasets.arrow import arrow_errors
from caps.files import BOM, decode_json, is_stream, open_input
from caps.workers.child_python import isolated

T = TypeVar("T")
_MIB = 1 << 20
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_PICKLE = b"\x80"  # text in UTF-8 cannot begin with it
_PARQUET_LINES = "from caps.datasets.arrow import write_rows; write_rows(sys.argv[1], int(sys.argv[2]))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits for reading a file; sizes are in bytes after unpacking."""

    line: int = 512 * _MIB
    whole: int = 2048 * _MIB  # a file that is read at once; the memory to unpack a row of Parquet
    total: int = 65536 * _MIB  # all lines of a compressed file
    packed: int = 512 * _MIB  # a member of an archive
    archive: int = 16384 * _MIB
    members: int = 200_000  # of an archive
    values: int = 20_000_000  # of a JSON text


LIMITS = Limits()


def lines(path: str, limits: Limits = LIMITS) -> Iterator[bytes]:
    """Read the lines of a file, gzipped or not; `-` is standard input."""
    with _as_input_errors(path), _open(path) as (file, packed):
        yield from lines_in(file, path, limits, packed=packed)


def lines_in(file: IO[bytes], path: str, limits: Limits = LIMITS, *, packed: bool = True) -> Iterator[bytes]:
    """Read the lines of an open file; the total size is limited if it is `packed`."""
    total = number = 0
    while line := file.readline(limits.line + 1):
        total, number = total + len(line), number + 1
        if len(line) > limits.line:
            raise InputError(f"{path}:{number}: the line is longer than {limits.line:,} bytes")
        if packed and total > limits.total:
            raise InputError(f"{path}:{number}: holds more than {limits.total:,} bytes")
        yield line if number > 1 else line.removeprefix(BOM)


def join_lines(parts: Iterable[bytes], path: str, limits: Limits = LIMITS) -> bytes:
    """Join lines into one text, within limits."""
    parts_read, total = [], 0
    for part in parts:
        total += len(part)
        if total > limits.whole:
            raise InputError(f"{path}: has more than {limits.whole:,} bytes, too many to read at once")
        parts_read.append(part)
    return b"".join(parts_read)


def inflate(data: bytes, limit: int) -> bytes:
    """Decompress zlib data of at most `limit` bytes, or raise `InputError`."""
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(data, limit + 1)
    except zlib.error as error:
        raise InputError(f"cannot be unpacked ({error})") from None
    if len(unpacked) > limit:
        raise InputError(f"unpacks to more than {limit:,} bytes")
    if not unpacker.eof:
        raise InputError("cannot be unpacked (the data is truncated)")
    return unpacked


def decode(data: bytes | str) -> Any:
    """Decode JSON, with bare NaN as null, or raise `InputError`."""
    check_value_count(data)
    try:
        return decode_json(data, object)
    except InputError as error:
        first = error
    literals = ("NaN", "Infinity") if isinstance(data, str) else (b"NaN", b"Infinity")
    if any(needle in data for needle in literals):  # type: ignore[operator]
        try:
            return msgspec.json.decode(msgspec.json.encode(json.loads(data)))
        except (ValueError, OverflowError, RecursionError):
            pass
    raise first


def check_value_count(data: bytes | str, limits: Limits = LIMITS) -> None:
    """Refuse a JSON text with too many values for the memory, such as gigabytes of `[[],[],[],...`."""
    if len(data) <= limits.values:  # a value takes at least one byte
        return
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if sum(map(raw.count, (b",", b"[", b"{"))) > limits.values:
        raise InputError(f"holds more than {limits.values:,} values")


#: A value as Python prints it in a list; NumPy prints no commas in between.
_PRINTED = re.compile(
    r"""[\s,]*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|True|False|None|-?\d[\d.e+-]*)""", re.DOTALL
)


def decode_list(text: str, name: str) -> Any:
    """Decode the JSON list in a cell of a table, or a list of texts or numbers as pandas writes it."""
    try:
        return decode(text)
    except InputError:
        inner, values, place = text.strip()[1:-1], [], 0
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that Python does not know
            while match := _PRINTED.match(inner, place):
                values.append(ast.literal_eval(match[1].replace("\n", "\\n")))  # one constant: no nesting
                place = match.end()
    except UNPARSABLE:
        place = 0
    if not text.rstrip().endswith("]") or inner[place:].strip(", \n"):
        raise InputError(
            f"{name}: is a list, but neither JSON nor a list of texts as pandas writes it: write it as JSON, "
            f'such as with table["{name}"].map(json.dumps) before to_csv, or write the table with to_json'
        )
    return values


def is_zip(path: str) -> bool:
    """Whether a file is a zip archive; false for streams and files that cannot be opened."""
    return _magic(path).startswith(_ZIP)


def is_parquet(path: str) -> bool:
    """Whether a file is a Parquet file."""
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
def _open(path: str) -> Iterator[tuple[IO[bytes], bool]]:
    """Open a file and tell whether it is compressed."""
    if path == "-":
        yield sys.stdin.buffer, False
        return
    with open_input(path) as file:
        start = file.peek(2)  # type: ignore[attr-defined]
        if start.startswith(_PICKLE) or path.endswith((".pkl", ".pickle", ".pkl.gz")):
            raise InputError(
                f"{path}: is a pickle, and reading one can run any code, so caps does not: write the data as "
                "JSON lines or Parquet, such as with to_json(path, orient='records', lines=True) of pandas"
            )
        packed = path.endswith(".gz") or start.startswith(_GZIP)
        yield (gzip.GzipFile(fileobj=file) if packed else file), packed  # type: ignore[misc]


@contextmanager
def _as_input_errors(path: str) -> Iterator[None]:
    """Turn errors of opening and decompressing a file into `InputError`."""
    try:
        yield
    except (OSError, EOFError, zlib.error, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{path}: {reason}") from None


# Fields of rows, with type checks

Row = dict[str, Any]

_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
}


def required(row: Row, name: str, kind: type, where: str = "") -> Any:
    """The value of a required field."""
    if name not in row:
        raise InputError(f"{where}{name}: is missing; {_NAMES[kind]} is wanted")
    value = row[name]
    kinds = (int, float) if kind is float else kind
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{where}{name}: must be {_NAMES[kind]}, not {kind_of(value)}")
    return value


def optional(row: Row, name: str, kind: type, where: str = "") -> Any:
    """The value of a field that may be missing or null."""
    return None if row.get(name) is None else required(row, name, kind, where)


def text_or_number(row: Row, name: str) -> str:
    """A field that is published as a text or as a number, as a text."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{name}: must be a text or a number, not {kind_of(value)}")
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_whole else value).strip()


def objects(row: Row, name: str) -> list[Row]:
    """The value of a field that is a list of objects."""
    items = required(row, name, list)
    return [as_object(item, f"{name}[{i}]: ") for i, item in enumerate(items)]


def as_object(value: object, where: str = "") -> Row:
    """A value that must be an object."""
    if not isinstance(value, dict):
        raise InputError(f"{where}must be an object, not {kind_of(value)}")
    return value


def texts(row: Row, name: str, where: str = "") -> list[str]:
    """The value of a field that is a list of texts."""
    items = required(row, name, list, where)
    for i, item in enumerate(items):
        if not isinstance(item, str):
            raise InputError(f"{where}{name}[{i}]: must be a text, not {kind_of(item)}")
    return list(items)


def kind_of(value: object) -> str:
    """The type of a value, for messages."""
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)


def drop_empty(**fields: object) -> Row:
    """The fields that are not empty."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


# Rows of data frames and datasets


def frame_rows(table: Any) -> Iterator[Row] | None:
    """The rows of a table of pandas, Polars, Arrow or Hugging Face datasets; None for anything else.

    They are recognised by their methods, so none of these packages is imported.
    """
    rows: Iterable[Mapping[Any, Any]]
    if hasattr(table, "iter_rows"):  # Polars
        rows = table.iter_rows(named=True)
    elif hasattr(table, "itertuples"):  # pandas
        names = list(table.columns)
        rows = (dict(zip(names, cells, strict=True)) for cells in table.itertuples(index=False, name=None))
    elif hasattr(table, "to_batches"):  # Arrow
        rows = (row for batch in table.to_batches() for row in batch.to_pylist())
    elif hasattr(table, "column_names") and not isinstance(table, Mapping):  # datasets
        rows = table
    elif isinstance(table, Mapping) and any(hasattr(part, "column_names") for part in table.values()):
        splits = ", ".join(map(repr, table))
        raise InputError(
            f"cases: has the splits {splits}: give one of them, such as data[{next(iter(table))!r}]"
        )
    elif hasattr(table, "collect_schema"):
        raise InputError("cases: is a lazy frame: give the result of its method collect()")
    else:
        return None
    return ({str(name): _plain_value(value) for name, value in row.items()} for row in rows)


def _plain_value(value: Any) -> Any:
    """A value of a table as JSON has it; missing ones are None."""
    if hasattr(value, "tolist"):  # NumPy
        value = value.tolist()
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain_value(item) for name, item in value.items()}
    if (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value.isoformat() if hasattr(value, "isoformat") else value


# Rows of a data file: JSON lines, one JSON list, or Parquet


def read_rows(path: str, limits: Limits = LIMITS) -> Iterator[tuple[str, Row | InputError]]:
    """Read every row with its location; a row that cannot be read is an `InputError`."""
    if is_parquet(path):
        yield from ((f"{path}:{number}", row) for number, row in enumerate(parquet_rows(path), start=1))
        return
    first, source = peek_line(lines(path, limits))
    if not first:
        raise InputError(f"{path}: the file is empty")
    numbered = _read_list(source, path, limits) if first.startswith(b"[") else enumerate(source, start=1)
    for number, item in numbered:
        where = f"{path}:{number}"
        if isinstance(item, bytes):
            if item.strip():
                yield where, decode_row(item, where)
        else:
            yield where, row_or_error(item, where)


def peek_line(source: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first line that is not blank, stripped, and an iterator over all lines."""
    seen = []
    for line in source:
        seen.append(line)
        if line.strip():
            return line.strip(), chain(seen, source)
    return b"", iter(seen)


def decode_row(line: bytes, where: str = "") -> Row | InputError:
    """Decode the object on a line; an error is returned, with the location if there is one."""
    try:
        return row_or_error(decode(line), where)
    except InputError as error:
        return InputError(f"{where}: {error}" if where else str(error))


def row_or_error(value: object, where: str = "") -> Row | InputError:
    """A value that should be an object; an error is returned."""
    try:
        return as_object(value, f"{where}: " if where else "")
    except InputError as error:
        return error


def line_rows(source: Iterable[bytes], path: str) -> Iterator[tuple[str, Row | InputError]]:
    """The object on each line that is not blank, with its location; a line that has none is an error."""
    for number, line in enumerate(source, start=1):
        if line.strip():
            where = f"{path}:{number}"
            yield where, decode_row(line, where)


def parsed_rows(
    rows: Iterable[tuple[str, Row | InputError]], parse: Callable[[Row], T | None]
) -> Iterator[T | InputError]:
    """What `parse` makes of each row, unless that is None; an error names the location of its row."""
    for where, row in rows:
        if isinstance(row, InputError):
            yield row
            continue
        try:
            item = parse(row)
        except InputError as error:
            yield InputError(f"{where}: {error}")
        else:
            if item is not None:
                yield item


def _read_list(source: Iterable[bytes], path: str, limits: Limits) -> Iterator[tuple[int, object]]:
    try:
        items = decode(join_lines(source, path, limits))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return enumerate(items, start=1)


def is_table(path: str) -> bool:
    """Whether a file is a table of text by its name: CSV or TSV, compressed or not."""
    return path.removesuffix(".gz").lower().endswith((".csv", ".tsv"))


def table_rows(path: str, limits: Limits = LIMITS) -> Iterator[Row]:
    """Read the rows of a CSV or TSV file with a header, which tells the separator; empty cells are absent."""
    csv.field_size_limit(limits.line)
    texts = (_utf8(line, f"{path}:{number}") for number, line in enumerate(lines(path, limits), start=1))
    header = next(texts, "")
    separator = max("\t,;", key=header.count)
    try:
        reader = csv.reader(chain([header], texts), delimiter=separator, strict=True)
        names = next(reader, [])
        if len(set(names)) < len(names):
            raise InputError(f"{path}:1: two columns have the same name: {', '.join(names)[:200]}")
        for cells in reader:
            if len(cells) > len(names):
                raise InputError(
                    f"{path}:{reader.line_num}: has {len(cells)} cells, but the header {len(names)}: a text "
                    "with commas or line breaks must stand in double quotes"
                )
            yield {name: cell for name, cell in zip(names, cells, strict=False) if cell}
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: cannot be read as a table ({error})") from None


def _utf8(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{where}: is not UTF-8: save the table as UTF-8") from None


def parquet_rows(path: str, limits: Limits = LIMITS) -> Iterator[Row]:
    """Read the rows of a Parquet file, which a process of its own unpacks (`arrow.write_rows`)."""
    with arrow_errors(path, "Parquet"), _open_parquet_lines(path, limits) as process:
        assert process.stdout is not None  # noqa: S101
        for line in lines_in(process.stdout, path, limits):
            yield decode(line)
        _, message = process.communicate()
        if process.returncode:
            # The reader may crash where no memory is left, before it can say so.
            crashed = f"it is damaged, or a row takes more than {limits.whole:,} bytes of memory"
            raise ValueError(message.decode("utf-8", "replace") or crashed)


@contextmanager
def _open_parquet_lines(path: str, limits: Limits) -> Iterator[subprocess.Popen[bytes]]:
    child = isolated(_PARQUET_LINES, str(Path(path).absolute()), str(limits.whole))
    process = subprocess.Popen(  # noqa: S603
        child.argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child.env | {"ARROW_DEFAULT_MEMORY_POOL": "system"},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
