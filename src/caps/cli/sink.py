"""Where a command's lines go: standard output, or a file that takes its name when it is whole."""

import sys
from collections.abc import Iterable
from pathlib import Path

from caps.core.errors import InputError


def write_all(chunks: Iterable[bytes], path: Path | None) -> None:
    """Write everything; a file that was there stays as it is until the new one is whole."""
    if path is None:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)
