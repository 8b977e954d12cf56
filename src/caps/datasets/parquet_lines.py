"""Writes the rows of a Parquet file as JSON lines: a program that runs in a process of its own.

A text that is repeated is stored once in such a file, so a kilobyte can unpack to any size, and pages may
hold more than they claim. Only this process, whose memory is limited, unpacks them, one row at a time. The
limits of lines apply to what it writes.
"""

import contextlib
import sys

import msgspec

ERROR = 3  # the exit code if standard error has a message


def main(path: str, memory: int) -> None:
    """Write the rows to standard output; a file that cannot be read ends in a message and an exit code."""
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
