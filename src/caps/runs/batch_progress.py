"""How far a run through batch files is: requests sent, answered and failed, for a page that shows it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from caps.core.errors import CapsError
from caps.journal.store import Journal
from caps.runner import Runner
from caps.runs.folder import ABSORBED, FAILED, BatchFolder


class BatchWatch:
    """Reads the progress of a batch folder; the request files and the journal only after a change."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = BatchFolder(path), clock
        self._known: tuple[tuple[Any, ...], dict[str, Any] | None] | None = None

    def read(self) -> dict[str, Any] | None:
        """The progress as `progress.json` has it, with what comes next; None if this is no batch run."""
        if not self._folder.exists or not (steps := self._folder.steps()):
            return None
        watched = [*steps, *(self._folder.path / name for name in (FAILED, ABSORBED))]
        state = tuple((path.name, path.stat().st_mtime_ns) for path in watched if path.exists())
        if self._known is None or self._known[0] != state:
            try:
                self._known = (state, self._count(steps))
            except (CapsError, OSError):  # such as a file that is being written
                return None
        row = self._known[1]
        return None if row is None else row | {"updated": max(row["started"], self._clock())}

    def _count(self, steps: list[Path]) -> dict[str, Any] | None:
        folder = self._folder
        file = folder.file()
        if file.batch is None:
            return None
        runner = Runner(file.config, offline=True)
        failures = folder.failures(runner.batch_settings.tries)
        where = runner.journal_path or folder.path / "journal.sqlite"
        sent = folder.sent_keys()
        if where.is_file():
            with Journal.open(where) as journal:
                replies = journal.get_many(sent)
        else:
            replies = {}
        failed = sum(failures.returned(key) > 0 for key in sent - replies.keys())
        given_up = sum(failures.given_up(key) is not None for key in sent - replies.keys())
        price, started = runner.price, min(path.stat().st_mtime for path in steps)
        usages = [(one.prompt_tokens, one.output_tokens, one.cached_tokens) for one in replies.values()]
        done = len(replies) + given_up
        following = f"Run the request files, then: caps batch absorb {folder.path} RESULTS..."
        if done + failed - given_up >= len(sent):
            following = f"Next: caps batch prepare {folder.path}"
        return {
            "what": "requests answered", "total": len(sent), "done": done, "done_before": 0,
            "started": started, "calls": 0, "tokens": sum(prompt for prompt, _, _ in usages),
            "usd": None if price is None else sum(price.of(*one) for one in usages),
            "playing": [], "in_play": 0, "files": len(steps), "failed": failed, "note": following,
            "latest": max((one.at for one in replies.values()), default=None),
        }  # fmt: skip
