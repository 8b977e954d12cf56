"""Figures of a study for a paper; the only module that imports matplotlib."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from caps.core.errors import MissingExtraError
from caps.core.text import printable
from caps.files import file_errors, write_file

WIDTH, LEGEND_CHARACTERS = 6.5, 110  # of the text of a page: inches, and characters of a legend line
ACROSS = {1: 1, 2: 2, 4: 2}  # columns by number of panels; otherwise three
SERIES, ROW, PAGE = 0.15, 0.28, 7.6  # heights in inches: a series, the least row, all rows at most
PAPER = "hollow: the paper"
# One more marker than colours, so that their combinations repeat late.
MARKS = ("o", "s", "D", "^", "v", "P", "X", "*")
# A palette for colour-blind readers (after Okabe and Ito); in grey, lightness and markers differ.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#555555")
STYLE: dict[Any, Any] = {
    "font.family": ["STIXGeneral", "DejaVu Sans"],
    "font.size": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "xtick.major.width": 0.6,
    "pdf.fonttype": 42,  # embedded fonts, as publishers require
    "svg.fonttype": "path",
    "svg.hashsalt": "caps",  # reproducible files
    "text.parse_math": False,  # names may contain dollar signs
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One axis with its unit and series; a series has a figure or None for every row."""

    title: str
    unit: str
    series: Mapping[str, Sequence[Mapping[str, Any] | None]]


def draw_panels(
    panels: Sequence[Panel], rows: Sequence[str], path: Path, *, title: str, notes: Sequence[str]
) -> list[Path]:
    """Draw one panel per metric as .svg and .pdf; hollow marks are the paper's figures."""
    with _figure_class() as make:
        most = max(len(panel.series) for panel in panels)
        across = ACROSS.get(len(panels), 3)
        down = -(-len(panels) // across)
        height = min(PAGE / down, len(rows) * max(ROW, SERIES * most))
        figure = make(figsize=(WIDTH, down * (height + 0.75) + 0.65), layout="constrained")
        grid = figure.subplots(down, across, sharey=True, squeeze=False)
        names = list(dict.fromkeys(["", *(name for panel in panels for name in panel.series)]))
        names = names if any("" in panel.series for panel in panels) else names[1:]
        all_axes = list(grid.flat)
        for axes, panel in zip(all_axes, panels, strict=False):
            _draw_panel(axes, panel, rows, names)
        for axes in all_axes[len(panels) :]:
            axes.set_visible(False)
        _add_legend(figure, panels, names, title, notes)
        files = [path.with_name(f"{path.name}{ending}") for ending in (".svg", ".pdf")]
        return [_save(figure, file, title) for file in files]


def _draw_panel(axes: Any, panel: Panel, rows: Sequence[str], names: Sequence[str]) -> None:
    step = 0.8 / len(panel.series)
    for index, (name, cells) in enumerate(panel.series.items()):
        style = names.index(name)
        colour, mark = COLOURS[style % len(COLOURS)], MARKS[style % len(MARKS)]
        shift = step * (index - (len(panel.series) - 1) / 2)
        for row, cell in enumerate(cells):
            if cell is not None:
                _draw_cell(axes, cell, row + shift, colour, mark)
    for row in range(1, len(rows)):
        axes.axhline(row - 0.5, color="#dddddd", linewidth=0.5, zorder=0)
    axes.set_yticks(range(len(rows)), [printable(label) for label in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title(printable(panel.title), fontsize=8, loc="left")
    axes.set_xlabel(panel.unit)
    axes.grid(visible=True, axis="x", color="#eeeeee", linewidth=0.6)
    axes.set_axisbelow(True)


def _draw_cell(axes: Any, cell: Mapping[str, Any], y: float, colour: str, mark: str) -> None:
    """Draw our figure as a filled mark with its interval, the paper's as a hollow one."""
    if cell["low"] is not None and cell["high"] is not None:
        interval = [cell["low"], cell["high"]]
        axes.plot(interval, [y, y], color=colour, linewidth=1.1, alpha=0.55, solid_capstyle="butt")
    if cell["paper"] is not None:
        hollow = {"markerfacecolor": "white", "markeredgecolor": colour, "markeredgewidth": 0.9}
        axes.plot([cell["paper"]], [y], mark, markersize=4.8, **hollow)
    if cell["ours"] is not None:
        filled = {"color": colour, "markeredgecolor": "white", "markeredgewidth": 0.3}
        axes.plot([cell["ours"]], [y], mark, markersize=4.2, **filled)


def _add_legend(
    figure: Any, panels: Sequence[Panel], names: Sequence[str], title: str, notes: Sequence[str]
) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415

    marks = [
        Line2D([], [], color=COLOURS[index % len(COLOURS)], marker=MARKS[index % len(MARKS)],
               linestyle="", markersize=4, label=printable(name))
        for index, name in enumerate(names)
        if name
    ]  # fmt: skip
    cells = [cell for panel in panels for some in panel.series.values() for cell in some if cell is not None]
    figure.suptitle("\n".join(map(printable, [title, *notes])), fontsize=8, x=0.01, ha="left")
    if any(cell["paper"] is not None for cell in cells):
        marks.append(
            Line2D([], [], color="#333333", marker="o", markerfacecolor="white", linestyle="", markersize=4,
                   label=PAPER)
        )  # fmt: skip
    if marks:
        longest = max(len(name) for name in [*names, PAPER])
        figure.legend(
            handles=marks,
            loc="outside lower left",
            ncols=max(1, min(len(marks), LEGEND_CHARACTERS // (longest + 5))),
            fontsize=7.5,
            frameon=False,
            handletextpad=0.2,
        )


@contextmanager
def _figure_class() -> Iterator[Any]:
    try:
        import matplotlib  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("matplotlib", "bench", "a plot") from None
    with matplotlib.rc_context(STYLE):
        yield Figure


def _save(figure: Any, path: Path, title: str) -> Path:
    dated = "Date" if path.suffix == ".svg" else "CreationDate"
    drawn = BytesIO()
    figure.savefig(drawn, format=path.suffix.lstrip("."), metadata={"Title": printable(title), dated: None})
    with file_errors(str(path.parent)):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, drawn.getvalue())
    return path
