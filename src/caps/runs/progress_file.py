"""`progress.json`: how far a run is, for a page that shows it meanwhile. It is removed when the run ends."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from caps.core.errors import CapsError, InputError
from caps.core.types import Case
from caps.costs.prices import Price
from caps.files import decode_json, write_file
from caps.judging.base import Ruling
from caps.runs.folder import PROGRESS_FILE as NAME

SECONDS = 1.0  # between two writes
MOST_PLAYING = 50  # cases named


class ProgressFile:
    """Writes the progress of a run into its folder, at most once a second; a context manager.

    It only helps those who watch, so a file that cannot be written is no error. Without a folder nothing is
    written.
    """

    def __init__(
        self,
        folder: Path | None,
        total: int | None,
        *,
        what: str = "cases",
        done: int = 0,
        price: Price | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._clock, self._price = folder, clock, price
        self._written = 0.0
        self._playing: dict[str, None] = {}  # in order
        self._row: dict[str, Any] = {
            "what": what, "total": total, "done": done, "done_before": done, "started": clock(), "calls": 0,
            "tokens": 0, "usd": None if price is None else 0.0,
        }  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / NAME).unlink(missing_ok=True)

    def watch(self, cases: Iterable[Case | InputError]) -> Iterator[Case | InputError]:
        """The same cases; one that was taken is in play until it is finished."""
        for case in cases:
            if isinstance(case, Case):
                self._playing[case.id] = None
            yield case

    def count(self, ruling: Ruling) -> None:
        """Count the calls and the cost of a ruling."""
        self._row["calls"] += 1
        for attempt in ruling.attempts:
            usage = attempt.usage
            self._row["tokens"] += usage.prompt
            if self._price is not None and not attempt.replayed:
                self._row["usd"] += self._price.of(usage.prompt, usage.output, usage.cached)
        self.write()

    def finish(self, name: str | None = None, more: int = 1) -> None:
        """Count a case, or several units of work, as done."""
        if name is not None:
            self._playing.pop(name, None)
        self._row["done"] += more
        self.write()

    def write(self) -> None:
        """Write the file, unless that was done a moment ago."""
        now = self._clock()
        if self._folder is None or now - self._written < SECONDS:
            return
        self._written = now
        row = {**self._row, "updated": now, "playing": list(self._playing)[:MOST_PLAYING]}
        row["in_play"] = len(self._playing)
        with suppress(OSError, CapsError):
            write_file(self._folder / NAME, msgspec.json.encode(row) + b"\n")


def read_progress(folder: Path) -> dict[str, Any] | None:
    """Read the progress of a run that goes on; None if there is none."""
    try:
        return decode_json((folder / NAME).read_bytes(), dict[str, Any])
    except (OSError, InputError):
        return None
