"""Printing: results go to standard output, everything else to standard error."""

import os
import sys
from functools import cache
from typing import Self

import msgspec
from rich.console import Console

from caps.core.errors import UNREADABLE_CASE
from caps.core.text import number, printable, printable_json
from caps.models.base import Notify, ignore

WIDE = 200


def stdout() -> Console:
    """The console of results; where there is no terminal, wide enough to break no line."""
    console = Console(highlight=False)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=WIDE)


@cache
def stderr() -> Console:
    """The console of progress and remarks: one for all, so that remarks stand above a progress bar."""
    return Console(stderr=True, highlight=False)


def say(words: str, style: str = "dim") -> None:
    """Print a message on standard error; control characters in it are made harmless.

    A terminal would cut words in the middle; the lines of a log are never broken.
    """
    console = stderr()
    console.print(printable(words), style=style, markup=False, soft_wrap=not console.is_terminal)


class FailureLog:
    """Prints the first failures and counts the rest, so that many bad lines do not hide everything else.

    `hint` says where all of them can be read.
    """

    def __init__(self, word: str = "failed", *, hint: str = "", most: int = 5) -> None:
        self.count, self.hint = 0, hint
        self._word, self._most = word, most

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Print how many failures there were beyond those printed."""
        if self.count > self._most:
            hint = f"; {self.hint}" if self.hint else ""
            more, all_ = number(self.count - self._most, 0), number(self.count, 0)
            say(f"{self._word}: {more} more, {all_} in all{hint}", "red")

    def add(self, why: str) -> None:
        """Report a failure, or count it if there were many before."""
        self.count += 1
        if self.count <= self._most:
            say(f"{self._word}: {why}", "red")

    def add_case(self, name: str, why: str) -> None:
        """Report that a case failed; one that could not be read has no name of its own."""
        self.add(f"case {name!r}: {why}" if name and not name.startswith(UNREADABLE_CASE) else why)


def warn(words: str) -> None:
    """Print a warning."""
    say(words, "yellow")


def warning_printer(*, quiet: bool) -> Notify:
    """What prints the warnings of a run: nothing if `quiet`."""
    return ignore if quiet else warn


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    write_result(printable_json(msgspec.json.format(msgspec.json.encode(value))) + b"\n")


def write_result(data: bytes) -> None:
    """Write a result to standard output at once, so that a failed write is found here and not at exit."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
