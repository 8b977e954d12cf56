"""Charts as SVG files."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from caps.files import file_errors, write_file
from caps.reports.charts import WIDTH, Drawing
from caps.reports.html import el

MARGIN = 16
FILE_SCALE = 1.5  # of an SVG file, so that it is large enough where it is not scaled
_VARIABLE = re.compile(r"var\((--[\w-]+)\)")
_SET = re.compile(r"(--[\w-]+):\s*([^;]+);")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A drawing with its file name."""

    name: str
    drawing: Drawing


def write_pictures(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Write every picture into a folder as an SVG file."""
    written = []
    with file_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    for picture in pictures:
        path = folder / f"{picture.name}.svg"
        write_file(path, svg_text(picture.drawing).encode())
        written.append(path)
    return written


def svg_text(drawing: Drawing) -> str:
    """Return a chart as an SVG file with the light theme and a background."""
    width, height = WIDTH + 2 * MARGIN, drawing.height + MARGIN
    ground = el("rect", x=-MARGIN, y=-MARGIN / 2, width=width, height=height, class_="ground")
    svg = drawing.svg(
        el("style", _style()),
        ground,
        margin=MARGIN,
        xmlns="http://www.w3.org/2000/svg",
        width=f"{FILE_SCALE * width:g}",
        height=f"{FILE_SCALE * height:g}",
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n'


def _style() -> str:
    """Return the style of charts with the colours of the light theme; few viewers support CSS variables."""
    web = files("caps.reports") / "web"
    light = dict(_SET.findall((web / "style.css").read_text("utf-8").partition("}")[0]))
    return _VARIABLE.sub(lambda match: light[match[1]], (web / "chart.css").read_text("utf-8"))
