"""Tables and contests in a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from caps.core.printable import printable
from caps.reports.grid import Grid

UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers_from: int = 1
) -> Grid:
    """A table whose columns from `numbers_from` on are numbers; words of others in it are harmless."""
    cells = [[shown(cell) for cell in row] for row in rows]
    return Grid(shown(title), [shown(column) for column in columns], cells, numbers_from)


def shown(words: str) -> str:
    """Words of others as a terminal may show them: no control sequences, no direction marks."""
    return printable(words)


def number(value: float | None, digits: int = 2) -> str:
    """A number for reading: grouped, without idle zeros, a dash where there is none."""
    if value is None:
        return "–"
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float | None, interval: Sequence[float] | None = None) -> str:
    """A share as per cent, with its interval."""
    if share is None:
        return "–"
    tail = "" if interval is None else f"  [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    return f"{100 * share:.1f}{tail}"


def by_level(values: Mapping[str, Any], digits: int = 1) -> str:
    """Figures of E1 and E2 side by side."""
    return " + ".join(number(values[level], digits) for level in ("E1", "E2"))


def short(value: float) -> str:
    """A number in three digits: 950, 12.3k, 1.05M."""
    for size, unit in UNITS:
        if value >= 0.9995 * size:
            return f"{value / size:.{2 if value < 9.995 * size else 1 if value < 99.95 * size else 0}f}{unit}"
    return f"{value:.0f}"
