"""Rows of a data file, whatever it is: one JSON object a line, one JSON list, or Parquet."""

from collections.abc import Iterable, Iterator
from itertools import chain

from caps.core.errors import InputError, MissingExtraError
from caps.datasets.fields import Row, kind_of
from caps.datasets.reading import LIMITS, Limits, decode, is_parquet, lines, whole


def rows_of(path: str, limits: Limits = LIMITS) -> Iterator[tuple[str, Row | InputError]]:
    """Every row with the place it stands at; a bad one as the `InputError` it is."""
    if is_parquet(path):
        yield from _parquet(path)
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
            return line.removeprefix(b"\xef\xbb\xbf").strip(), chain(seen, source)
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


def _parquet(path: str) -> Iterator[tuple[str, Row | InputError]]:
    try:
        from pyarrow import ArrowException  # noqa: PLC0415
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", f"{path}: a Parquet file") from None
    try:
        number = 0
        for batch in ParquetFile(path).iter_batches(batch_size=16):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}:{number}", row
    except (ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: not Parquet that can be read ({error})") from None
