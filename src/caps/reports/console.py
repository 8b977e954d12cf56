"""Terminal tables that never truncate a number."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from caps.core.text import number, printable
from caps.registry import DEFAULT_STRATEGY

GAP = 2
LONGEST_WORD = 16  # longer words in a text column are broken
LONGEST_NAME = 30
LEAST_HANGING = 30  # characters; text beside a name is wrapped under itself where it has as much room
_SEAM = re.compile(r"  +| (?=\()|(?<=[+/]) ")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table whose columns from `numbers_from` on are numbers; two spaces precede an interval.

    Where the table is too wide, cells break between numbers; where that is not enough, rows become lists.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers_from: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        cells = [[printable(cell) for cell in row] for row in self.rows]
        safe = Grid(printable(self.title), [*map(printable, self.columns)], cells, self.numbers_from)
        yield from safe._drawn(options.max_width)

    def _drawn(self, width: int) -> Iterator[RenderableType]:
        if self.title:
            yield Text(self.title, style="italic")
        whole, parted = self._by_column(broken=False), self._by_column(broken=True)
        natural = [max(map(cell_len, lines)) for lines in whole]
        room = width - GAP * (len(natural) - 1)
        least = [self._least_width(*column) for column in zip(range(len(whole)), whole, parted, strict=True)]
        widths = fit_widths(natural, least, room)
        if widths is None:
            yield from self._lists(width)
        else:
            yield self._table(natural, widths)

    def _by_column(self, *, broken: bool) -> list[list[str]]:
        """Return the lines of each column, as they are or broken wherever possible."""
        columns = []
        for index, column in enumerate(self.columns):
            cells = [row[index] for row in self.rows if index < len(row)]
            lines = [line for cell in cells for line in (_parts(cell) if broken else cell.splitlines())]
            columns.append([*(column.split() if broken else [column]), *lines, ""])
        return columns

    def _least_width(self, index: int, whole: Sequence[str], parted: Sequence[str]) -> int:
        if index >= self.numbers_from:
            return max(map(cell_len, parted))
        if index == 0:
            return min(LONGEST_NAME, max(map(cell_len, whole)))
        words = [word for line in whole for word in line.split()]
        return min(LONGEST_WORD, max(map(cell_len, words), default=0))

    def _table(self, natural: Sequence[int], widths: Sequence[int]) -> Table:
        drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
        for index, (column, width) in enumerate(zip(self.columns, widths, strict=True)):
            side = "right" if index >= self.numbers_from else "left"
            drawn.add_column(column, justify=side, width=width, overflow="fold")  # type: ignore[arg-type]
        for row in self.rows:
            cells = list(row)
            for index in range(self.numbers_from, len(cells)):
                if widths[index] < natural[index]:
                    cells[index] = _break(cells[index], widths[index])
            drawn.add_row(*map(Text, cells))
        return drawn

    def _lists(self, width: int) -> Iterator[RenderableType]:
        """Draw each row as a list, for a terminal too narrow for broken cells."""
        names = max(map(cell_len, self.columns))
        room = width - names - 2 * GAP
        for row in self.rows:
            yield Text(row[0], style="bold")
            for column, cell in zip(self.columns[1:], row[1:], strict=False):
                hanging = ("\n" + " " * (names + 2 * GAP)).join(
                    wrap(cell, room) if room >= LEAST_HANGING else [cell]
                )
                yield Text(f"  {column:<{names}}  {hanging}".rstrip())


def fit_widths(natural: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Shrink the columns with most room to spare until all fit; None if they cannot."""
    widths = list(natural)
    while sum(widths) > room:
        spare = [width - low for width, low in zip(widths, least, strict=True)]
        if max(spare) <= 0:
            return None
        widths[spare.index(max(spare))] -= 1
    return widths


def _parts(cell: str) -> list[str]:
    """Split a cell into parts that must not be broken: numbers, intervals, sides of a sum, or words."""
    where = _SEAM if any(letter.isdigit() for letter in cell) else _SPACE
    return [part for line in cell.splitlines() for part in where.split(line) if part]


def _break(cell: str, width: int) -> str:
    lines: list[str] = []
    for part in _parts(cell):
        if lines and cell_len(lines[-1]) + 1 + cell_len(part) <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return "\n".join(lines)


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers_from: int = 1
) -> Grid:
    """Create a table for terminals and pages whose columns from `numbers_from` on are numbers."""
    return Grid(title, columns, rows, numbers_from)


def by_level(values: Mapping[str, Any], digits: int = 1) -> str:
    """Return the figures of E1 and E2 as a sum."""
    return " + ".join(number(values[level], digits) for level in ("E1", "E2"))


def with_range(counts: Mapping[str, float]) -> str:
    """Return a mean with its range in brackets, if it has one."""
    low, high = counts["low"], counts["high"]
    spread = "" if low == high else f" ({number(low, 0)}–{number(high, 0)})"
    return f"{number(counts['mean'], 0)}{spread}"


def with_default(strategy: str) -> str:
    """The name of a strategy; the default one is marked."""
    return f"{strategy}, default" if strategy == DEFAULT_STRATEGY else strategy
