"""Rows of a data file, whatever it is: one JSON object a line, one JSON list, or Parquet."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from itertools import chain
from typing import IO, Any

from caps.core.errors import InputError, MissingExtraError
from caps.datasets.fields import Row, kind_of
from caps.datasets.reading import LIMITS, Limits, decode, is_parquet, lines, lines_in, whole


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
