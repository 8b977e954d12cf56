"""Pictures with their numbers, on a page or as SVG files."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from msgspec.structs import replace

from caps.files import file_errors, write_file
from caps.reports.charts import WIDTH, shown_chart
from caps.reports.html import Node, el, markup
from caps.reports.run_page import table

MARGIN = 16
FEW_COLUMNS = 3  # of a table narrow enough to stand beside its picture
_VARIABLE = re.compile(r"var\((--[\w-]+)\)")
_SET = re.compile(r"(--[\w-]+):\s*([^;]+);")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A drawing with its file name, title and table of numbers; `draw` takes the width."""

    name: str
    title: str
    draw: Callable[[int], Node]
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def picture_view(picture: Picture) -> Node:
    """Show a picture with its table of numbers."""
    numbers = table(picture.heads, picture.rows, f"{picture.title}: numbers")
    few = len(picture.heads) <= FEW_COLUMNS
    return el(
        "div",
        shown_chart(picture.draw),
        numbers,
        class_="picture beside" if few else "picture",
    )


def write_pictures(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Write every picture into a folder as an SVG file."""
    written = []
    with file_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    for picture in pictures:
        path = folder / f"{picture.name}.svg"
        write_file(path, svg_text(picture).encode())
        written.append(path)
    return written


def svg_text(picture: Picture) -> str:
    """Return a picture as an SVG file with the light theme and a background."""
    drawing = picture.draw(WIDTH)
    _, _, width, height = map(float, str(drawing.attributes["viewBox"]).split())
    box = (-MARGIN, -MARGIN / 2, width + 2 * MARGIN, height + MARGIN)
    background = el("rect", x=box[0], y=box[1], width=box[2], height=box[3], class_="ground")
    (title, *rest) = drawing.children
    svg = replace(
        drawing,
        attributes={
            **drawing.attributes,
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": " ".join(f"{number:g}" for number in box),
            "width": f"{box[2]:g}",
            "height": f"{box[3]:g}",
        },
        children=(title, el("style", _style()), background, *rest),
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{markup(svg)}\n'


def _style() -> str:
    """Return the style of charts with the colours of the light theme; few viewers support CSS variables."""
    web = files("caps.reports") / "web"
    light = dict(_SET.findall((web / "style.css").read_text("utf-8").partition("}")[0]))
    return _VARIABLE.sub(lambda match: light[match[1]], (web / "chart.css").read_text("utf-8"))
