"""Progress bars on standard error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from caps.cli.output import bar
from caps.core.text import number

if TYPE_CHECKING:  # the types of what is counted; `caps doctor` needs none of them
    from caps.costs.prices import Price
    from caps.judging.base import Ruling
    from caps.models.weights import Report
    from caps.runs.summary import Tally
    from caps.sampling.base import Sample


class JudgeProgress:
    """The progress bar: cases, calls, tokens, money, time left."""

    def __init__(
        self, total: int | None, price: "Price | None", *, hidden: bool, doing: str = "cases"
    ) -> None:
        self._price, self._calls, self._tokens, self._dollars = price, 0, 0, 0.0
        self._progress = bar(
            TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[spent]}"),
            TimeElapsedColumn(), TimeRemainingColumn(), hidden=hidden,
        )  # fmt: skip
        self._bar = self._progress.add_task(doing, total=total, spent="")

    def __enter__(self) -> "JudgeProgress":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def count(self, ruling: "Ruling") -> None:
        """Count a ruling."""
        self._calls += 1
        for attempt in ruling.attempts:
            self._tokens += attempt.usage.prompt
            if self._price is not None and not attempt.replayed:
                usage = attempt.usage
                self._dollars += self._price.of(usage.prompt, usage.output, usage.cached)
        money = "" if self._price is None else f", ${self._dollars:.3f}"
        spent = f"{number(self._calls, 0)} calls, {number(self._tokens, 0)} tokens{money}"
        self._progress.update(self._bar, spent=spent)

    def advance(self) -> None:
        """Count a case."""
        self._progress.advance(self._bar)


@contextmanager
def fetch_bar(*, hidden: bool = False) -> "Iterator[Report]":
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


class SampleProgress:
    """The progress bar: problems, samples, tokens written, time left."""

    def __init__(self, total: int | None, tally: "Tally", *, hidden: bool) -> None:
        self._tally = tally
        self._progress = bar(
            TextColumn("problems"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[spent]}"),
            TimeElapsedColumn(), TimeRemainingColumn(), hidden=hidden,
        )  # fmt: skip
        self._bar = self._progress.add_task("problems", total=total, spent="")

    def __enter__(self) -> "SampleProgress":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def count(self, sample: "Sample") -> None:
        """Count a sample."""
        self._tally.hear(sample)
        samples, written = number(self._tally.samples, 0), number(self._tally.paid.output, 0)
        self._progress.update(self._bar, spent=f"{samples} samples, {written} tokens written")

    def advance(self) -> None:
        """Count a problem."""
        self._progress.advance(self._bar)
