"""Where pictures and pages of a finding go, beside what is printed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from caps.cli.output import say
from caps.reports.page import Page, write_page
from caps.reports.pictures import Picture, write_pictures

Plots = Annotated[
    Path | None,
    typer.Option("--plots", metavar="DIR", help="Draw the figures into this folder, as .svg files."),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write figures and pictures as one page, to mail or to keep."
    ),
]


def write_figures(pictures: Sequence[Picture], page: Page, *, plots: Path | None, html: Path | None) -> None:
    """Write the pictures into a folder, the page into a file, as far as they are wanted."""
    if plots is not None:
        for path in write_pictures(pictures, plots):
            say(f"picture: {path}")
    if html is not None:
        write_page(page, (), html)
        say(f"page: {html}")
