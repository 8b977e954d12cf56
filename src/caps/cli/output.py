"""What the commands share: results go to standard output, everything else to standard error."""

import os
import sys
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress, ProgressColumn

from caps.core.text import printable_json
from caps.models.base import Tell, ignore
from caps.reports.console import shown

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field; may be repeated.")
]

WIDE = 200


def stdout() -> Console:
    """The console of results; where nobody looks, wide enough to break no line."""
    console = Console(highlight=False)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=WIDE)


def stderr() -> Console:
    """The console of progress and remarks."""
    return Console(stderr=True, highlight=False)


def bar(*columns: ProgressColumn, hidden: bool = False) -> Progress:
    """A progress bar on standard error, where someone looks at it."""
    console = stderr()
    return Progress(*columns, console=console, transient=True, disable=hidden or not console.is_terminal)


def say(words: str, style: str = "dim") -> None:
    """Say something on standard error; whatever others wrote into it is shown as text."""
    stderr().print(shown(words), style=style, markup=False, soft_wrap=True)


def report_failure(name: str, why: str) -> None:
    """Say that a case failed; one that could not be read has no name."""
    say(f"failed: case {name!r}: {why}" if name else f"failed: {why}", "red")


def warn(words: str) -> None:
    """Say what went wrong and was mended."""
    say(words, "yellow")


def warning_printer(*, quiet: bool) -> Tell:
    """Who hears of troubles that a run survives."""
    return ignore if quiet else warn


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    write_result(printable_json(msgspec.json.format(msgspec.json.encode(value))) + b"\n")


def write_result(data: bytes) -> None:
    """Write a result to standard output, at once: what cannot be written is found here, not at the end."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
