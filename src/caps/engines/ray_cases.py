"""Cases read by Ray Data: JSONL or Parquet at an address such as `s3://…`, or in a folder.

Tasks anywhere on the cluster read, so every machine of it must see the files; a file of this machine alone is
better read here. Blocks come to the driver in order and as fast as cases are taken: never a list of them all.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from caps.core.errors import CapsError, InputError
from caps.core.types import Case
from caps.datasets.jsonl import cases_in, cases_in_rows
from caps.datasets.reading import lines
from caps.datasets.rows import lines_at
from caps.engines.cluster import Cluster, connect

LINES = (".jsonl", ".jsonl.gz")


def is_for_ray(path: str) -> bool:
    """Whether cases are where a whole cluster can read them."""
    return "://" in path or Path(path).is_dir()


def read_with_ray(path: str, cluster: Cluster) -> Iterator[Case | InputError]:
    """Read cases in order, just as they would be read from one file; numbers run on from file to file."""
    data = connect(cluster).data
    files = _files(path)
    if files[0].endswith(LINES):
        listed = [{"file": one} for one in files]
        return cases_in(_whole(_taken(path, lambda: data.from_items(listed).flat_map(_lines_of))), path)
    return cases_in_rows(_taken(path, lambda: data.read_parquet(files, partitioning=None)), path)


def _files(path: str) -> list[str]:
    """The files meant, in the order of their names; an address that names no lines is left to Ray."""
    if "://" in path:
        return [path]
    found = sorted(str(one) for one in Path(path).resolve().iterdir())
    tables = [name for name in found if name.endswith(".parquet")]
    files = tables or [name for name in found if name.endswith(LINES)]
    if not files:
        raise InputError(f"{path}: no file in it ends in .parquet, {' or '.join(LINES)}")
    return files


def _lines_of(row: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The lines of a file, read in a task; what is wrong is told, not raised: Ray would try again."""
    try:
        for line in (lines_at if "://" in row["file"] else lines)(row["file"]):
            yield {"line": line, "wrong": ""}
    except InputError as error:
        yield {"line": b"", "wrong": str(error)}


def _whole(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for row in rows:
        if row["wrong"]:
            raise InputError(row["wrong"])
        yield row["line"]


def _taken(path: str, made: Callable[[], Any]) -> Iterator[dict[str, Any]]:
    """The rows of a dataset, in order and without a word; what cannot be read is the file's fault."""
    try:
        dataset = made()
        dataset.context.execution_options.preserve_order = True
        dataset.context.enable_progress_bars = dataset.context.print_on_execution_start = False
        yield from dataset.iter_rows()
    except CapsError:
        raise
    except Exception as error:
        raise InputError(f"{path}: Ray Data cannot read it ({_last(error)})") from None


def _last(error: Exception) -> str:
    """The last line of what Ray says, which may be a whole traceback."""
    said = str(error).strip().splitlines()
    return said[-1] if said else type(error).__name__
