"""Where a command's lines go: standard output, or a file that takes its name when it is whole."""

import gzip
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO

from caps.core.errors import InputError


class Sink:
    """Standard output (`-`), or a file called `NAME.partial` until it is whole, gzipped if its name says so.

    What stands under the name is never half a run; a part is left behind only where one wants to `keep` it.
    """

    def __init__(self, name: str, *, keep: bool = False) -> None:
        self._name, self._keep = name, keep
        self._partial = Path(f"{name}.partial")
        self._file = None if name == "-" else self._opened()

    def __enter__(self) -> "Sink":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            if not self._keep:
                self._partial.unlink(missing_ok=True)

    def write(self, line: bytes) -> None:
        """Write bytes, whole and at once."""
        file = self._file or sys.stdout.buffer
        with self._troubles():
            file.write(line)
            file.flush()

    def finish(self) -> None:
        """Give the file its name."""
        if self._file is not None:
            with self._troubles():
                self._file.close()
                self._partial.replace(self._name)

    def _opened(self) -> IO[bytes]:
        with self._troubles():
            path = self._partial
            return gzip.open(path, "wb") if self._name.endswith(".gz") else path.open("wb")  # type: ignore[return-value]

    @contextmanager
    def _troubles(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise InputError(f"--output {self._name}: {error.strerror or error}") from None


def write_all(chunks: Iterable[bytes], path: Path | None) -> None:
    """Write everything; a file that was there stays as it is until the new one is whole."""
    with Sink("-" if path is None else str(path)) as sink:
        for chunk in chunks:
            sink.write(chunk)
        sink.finish()
