"""Parquet files, which need pyarrow.

A text that is repeated is stored once in a Parquet file, so a kilobyte can unpack to any size, and pages may
hold more than they claim. So a process of its own, whose memory is limited, unpacks them, one row at a time,
and writes JSON lines. The limits of lines apply to these.

No other module imports pyarrow.
"""

import contextlib
import sys
from collections.abc import Iterator

import msgspec

from caps.core.errors import InputError, MissingExtraError

ERROR = 3  # the exit code if standard error has a message


def write_rows(path: str, memory: int) -> None:
    """Write the rows of a Parquet file to standard output; run in a process of its own.

    A file that cannot be read ends in a message on standard error and an exit code.
    """
    _limit_memory(memory)
    import pyarrow  # noqa: PLC0415 - the limit comes first
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415

    encoder = msgspec.json.Encoder()
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1, use_threads=False):
                for row in batch.to_pylist():
                    sys.stdout.buffer.write(encoder.encode(row) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        sys.stdout = None  # nobody reads on
    except MemoryError:  # that of pyarrow is one too
        sys.exit(_fail(f"a row takes more than {memory:,} bytes of memory"))
    except (pyarrow.ArrowException, OSError, ValueError, TypeError) as error:
        sys.exit(_fail(str(error)))


def _fail(message: str) -> int:
    sys.stderr.write(message[:1000])
    return ERROR


def _limit_memory(size: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on Windows; macOS does not take it
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def count_rows(path: str) -> int:
    """The number of rows in the metadata of a Parquet file."""
    with arrow_errors(path, "Parquet"):
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415

        with ParquetFile(path) as file:
            return int(file.metadata.num_rows)


@contextlib.contextmanager
def arrow_errors(path: str, what: str) -> Iterator[None]:
    """Turn errors of pyarrow, and its absence, into errors of caps."""
    try:
        from pyarrow import ArrowException  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", path) from None
    try:
        yield
    except (ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as {what} ({error})") from None
