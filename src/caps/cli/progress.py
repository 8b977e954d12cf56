"""Progress on standard error: a bar in a terminal, and otherwise a line now and then."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Self

from rich import progress as rich_progress
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from caps.cli.output import say, stderr
from caps.core.text import duration, number, plural

if TYPE_CHECKING:  # the types of what is counted; `caps doctor` needs none of them
    from caps.costs.prices import Price
    from caps.engines.adaptive import Step
    from caps.judging.base import Ruling
    from caps.models.weights import Report
    from caps.runs.summary import SamplingSummary
    from caps.sampling.base import Sample

FIRST_SECONDS = 1.0  # until the first line: what ends sooner needs none
LINE_SECONDS = 30.0  # between two lines


class ProgressLines:
    """Progress as lines of a log, without a terminal: one after a second, then one every 30 seconds."""

    def __init__(
        self,
        what: str,
        total: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], None] = say,
        show: Callable[[float], str] = lambda count: number(count, 0),
    ) -> None:
        self._what, self._total, self._clock, self._write, self._show = what, total, clock, write, show
        self._started = clock()
        self._last: float | None = None
        self._first_done: float | None = None

    def update(self, done: float, note: str = "") -> None:
        """Report how much is done; prints a line if one is due."""
        now = self._clock()
        if self._first_done is None:
            self._first_done = done
        due = self._started + FIRST_SECONDS if self._last is None else self._last + LINE_SECONDS
        if now >= due:
            self._last = now
            self._write(self._line(done, note, now - self._started))

    def _line(self, done: float, note: str, elapsed: float) -> str:
        parts = [f"{self._what}: {self._show(done)}"]
        left = ""
        if self._total:
            parts = [f"{parts[0]} of {self._show(self._total)} ({done / self._total:.0%})"]
            here = done - (self._first_done or 0)
            if here > 0 and done < self._total:
                left = f", about {duration(elapsed / here * (self._total - done))} left"
        return ", ".join([*parts, *([note] if note else [])]) + f"; {duration(elapsed)} elapsed{left}"


class Progress:
    """How much of some work is done: a bar in a terminal, lines elsewhere, nothing if `hidden`."""

    def __init__(self, what: str, total: float | None, *, hidden: bool = False, done: int = 0) -> None:
        console = stderr()
        self._done: float = done
        self._note = ""
        self._ended = Event()
        self._lines = None if hidden or console.is_terminal else ProgressLines(what, total)
        self._bar = rich_progress.Progress(
            TextColumn(what), BarColumn(), TextColumn("{task.fields[counted]}"),
            TextColumn("{task.fields[note]}"), TimeElapsedColumn(), TimeRemainingColumn(),
            console=console, transient=True, disable=hidden or not console.is_terminal,
        )  # fmt: skip
        self._of = "" if total is None else f"/{number(total, 0)}"
        self._task = self._bar.add_task(what, total=total, completed=done, counted=self._counted(), note="")

    def __enter__(self) -> Self:
        self._bar.start()
        if self._lines is not None:
            Thread(target=self._keep_telling, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._bar.stop()

    def _keep_telling(self) -> None:
        """Print lines also while nothing is finished: a slow model can be silent for minutes."""
        wait = FIRST_SECONDS
        while not self._ended.wait(wait):
            self._update()
            wait = LINE_SECONDS

    def advance(self, more: float = 1) -> None:
        """Count what has been done."""
        self._done += more
        self._update()

    def note(self, text: str) -> None:
        """Show a text beside the count."""
        self._note = text
        self._update()

    def _update(self) -> None:
        if self._lines is not None:
            self._lines.update(self._done, self._note)
        elif not self._bar.disable:
            self._bar.update(self._task, completed=self._done, counted=self._counted(), note=self._note)

    def _counted(self) -> str:
        return f"{number(self._done, 0)}{self._of}"


class JudgeProgress(Progress):
    """Progress of a run that asks a judge: cases, calls, tokens, cost."""

    def __init__(
        self, total: int | None, price: "Price | None", *, hidden: bool, what: str = "cases"
    ) -> None:
        super().__init__(what, total, hidden=hidden)
        self._total, self._price = total, price
        self._prepared, self._calls, self._tokens, self._dollars = 0, 0, 0, 0.0

    def prepare(self) -> None:
        """Count a case whose programs were run; told until the judge is asked."""
        self._prepared += 1
        if not self._calls:
            of = "" if self._total is None else f"/{number(self._total, 0)}"
            self.note(f"running programs {number(self._prepared, 0)}{of}")

    def count(self, ruling: "Ruling") -> None:
        """Count the calls of a ruling."""
        self._calls += 1
        for attempt in ruling.attempts:
            self._tokens += attempt.usage.prompt
            if self._price is not None and not attempt.replayed:
                usage = attempt.usage
                self._dollars += self._price.of(usage.prompt, usage.output, usage.cached)
        money = "" if self._price is None else f", ${self._dollars:.3f}"
        self.note(f"{plural(self._calls, 'call')}, {plural(self._tokens, 'token')}{money}")


class SampleProgress(Progress):
    """Progress of a run that generates: problems, samples, tokens written."""

    def __init__(
        self, total: int | None, tally: "SamplingSummary", *, hidden: bool, what: str = "problems"
    ) -> None:
        super().__init__(what, total, hidden=hidden)
        self._tally = tally

    def count(self, sample: "Sample") -> None:
        """Count a sample."""
        self._tally.add_sample(sample)
        written = plural(self._tally.paid.output, "token")
        self.note(f"{plural(self._tally.samples, 'sample')}, {written} written")

    def follow(self, step: "Step") -> None:
        """Show how sure the choice is after a step of adaptive sampling."""
        if step.probability is not None:
            written = plural(step.generation.output, "token")
            self.note(
                f"{plural(step.samples, 'sample')}, {written} written, probability {step.probability:.0%}"
            )


@contextmanager
def fetch_bar(*, hidden: bool = False) -> "Iterator[Report]":
    """Progress of a download; it appears with the first bytes, if anything must be downloaded."""
    console, what = stderr(), "downloading the default model"
    bar = rich_progress.Progress(
        TextColumn(what), BarColumn(), rich_progress.DownloadColumn(), rich_progress.TransferSpeedColumn(),
        console=console, transient=True, disable=hidden or not console.is_terminal,
    )  # fmt: skip
    task = bar.add_task(what, visible=False)
    lines: list[ProgressLines] = []

    def report(arrived: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=min(arrived, total), total=total, visible=True)
        if not hidden and not console.is_terminal:
            if not lines:
                lines.append(ProgressLines(what, total, show=lambda count: f"{count / 1e6:.0f} MB"))
            lines[0].update(arrived)

    try:
        yield report
    finally:
        bar.stop()
