"""Options for figures and pages, and writing them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from caps.cli.help import FILES
from caps.cli.output import say
from caps.reports.page import Page, write_page
from caps.reports.pictures import Picture, write_pictures

Plots = Annotated[
    Path | None,
    typer.Option(
        "--plots",
        metavar="DIR",
        help="Draw the figures into this folder, as .svg files.",
        rich_help_panel=FILES,
    ),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write tables and figures into one HTML page.", rich_help_panel=FILES
    ),
]


def write_figures(pictures: Sequence[Picture], page: Page, *, plots: Path | None, html: Path | None) -> None:
    """Write the figures into a folder and the page into a file, if they are wanted."""
    if plots is not None:
        for path in write_pictures(pictures, plots):
            say(f"figure: {path}")
    if html is not None:
        write_page(page, (), html)
        say(f"page: {html}")
