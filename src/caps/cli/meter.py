"""A bar to look at while judges are asked."""

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from caps.cli.output import bar
from caps.core.text import number
from caps.costs.prices import Price
from caps.judging.base import Ruling


class Meter:
    """The progress bar: cases, calls, tokens, money, time left."""

    def __init__(self, total: int | None, price: Price | None, *, hidden: bool, doing: str = "cases") -> None:
        self._price, self._calls, self._tokens, self._dollars = price, 0, 0, 0.0
        self._progress = bar(
            TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[spent]}"),
            TimeElapsedColumn(), TimeRemainingColumn(), hidden=hidden,
        )  # fmt: skip
        self._bar = self._progress.add_task(doing, total=total, spent="")

    def __enter__(self) -> "Meter":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def hear(self, ruling: Ruling) -> None:
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
