"""Cases read by Ray Data: JSONL or Parquet, a file, a folder of files or an address such as `s3://…`.

Blocks stream to the driver in the order of input, only as fast as cases are taken: there is never a list of
all of them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from caps.core.errors import CapsError, InputError
from caps.core.types import Case
from caps.datasets.imports import is_ours
from caps.datasets.jsonl import cases_in, cases_in_rows
from caps.datasets.reading import is_parquet, lines
from caps.datasets.rows import lines_at
from caps.engines.cluster import Cluster, connect, on_this_machine

LINES = (".jsonl", ".jsonl.gz")


def goes_through_ray(path: str) -> bool:
    """Whether Ray Data can read a file of cases; standard input and others' logs it cannot."""
    return "://" in path or Path(path).is_dir() or is_ours(path)


def read_with_ray(path: str, cluster: Cluster) -> Iterator[Case | InputError]:
    """Read cases in order, as `read_cases` does."""
    ray = connect(cluster)
    files = _files(path)
    if _is_table(files[0]):
        local = "://" not in path
        where = [f"local://{Path(one).resolve()}" for one in files] if local else files
        rows = _taken(path, lambda: ray.data.read_parquet(where, partitioning=None))
        return cases_in_rows(rows, path)
    here = {} if "://" in path else {"scheduling_strategy": on_this_machine(ray)}
    listed = [{"file": one if "://" in one else str(Path(one).resolve())} for one in files]
    rows = _taken(path, lambda: ray.data.from_items(listed).flat_map(_lines_of, **here))
    return cases_in(_whole(rows), path)


def _files(path: str) -> list[str]:
    """The files meant, in the order of their names; Ray lists what lies elsewhere by itself."""
    if "://" in path or not Path(path).is_dir():
        return [path]
    found = sorted(map(str, Path(path).iterdir()))
    tables = [name for name in found if name.endswith(".parquet")]
    files = tables or [name for name in found if name.endswith(LINES)]
    if not files:
        raise InputError(f"{path}: no file in it ends in .parquet, {' or '.join(LINES)}")
    return files


def _is_table(path: str) -> bool:
    return not path.endswith(LINES) if "://" in path else is_parquet(path)


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


def _taken(path: str, made: Any) -> Iterator[dict[str, Any]]:
    """The rows of a dataset, in order and without a word; what cannot be read is the file's fault."""
    try:
        dataset = made()
        dataset.context.execution_options.preserve_order = True
        dataset.context.enable_progress_bars = False
        yield from dataset.iter_rows()
    except CapsError:
        raise
    except Exception as error:
        raise InputError(f"{path}: Ray Data cannot read it ({_last(error)})") from None


def _last(error: Exception) -> str:
    """The last line of what Ray says, which may be a whole traceback."""
    said = str(error).strip().splitlines()
    return said[-1] if said else type(error).__name__
