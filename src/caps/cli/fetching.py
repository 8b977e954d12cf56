"""The progress bar of the default weights as they arrive."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

from caps.cli.output import bar
from caps.models.weights import Report


@contextmanager
def fetch_bar(*, hidden: bool = False) -> Iterator[Report]:
    """A bar that appears with the first bytes, if any must be fetched, and where someone looks."""
    progress = bar(
        TextColumn("fetching the default model"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        hidden=hidden,
    )  # fmt: skip
    counted = progress.add_task("weights", visible=False)

    def report(arrived: int, total: int) -> None:
        progress.start()
        progress.update(counted, completed=min(arrived, total), total=total, visible=True)

    try:
        yield report
    finally:
        progress.stop()
