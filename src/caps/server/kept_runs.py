"""Kept runs: the folder of each request, which `caps report` shows.

Nothing is kept unless the operator asks for it: the folders contain prompts and answers, and are readable by
the user of the server only. Keys are in no file.

Invariants:

* There are at most `most` folders; the oldest are deleted. Folders that were not written here are left alone.
* A folder that cannot be written is logged, and the request is answered all the same.
"""

import asyncio
import re
import shutil
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from caps.core.errors import CapsError
from caps.files import file_errors
from caps.runs.folder import write_single_run
from caps.runs.result_lines import Line
from caps.server.selection import ContestResult
from caps.server.telemetry import JsonLog

_NAME = re.compile(r"[0-9a-f]{32}")
FOLDER_MODE = 0o700


class KeptRuns:
    """A folder with one run per request, named by the id of the request."""

    def __init__(self, folder: Path, most: int, log: JsonLog) -> None:
        self._folder, self._most, self._log = folder, most, log
        with file_errors(f"--keep {folder}"):
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            files = [path / "run.json" for path in folder.iterdir() if _NAME.fullmatch(path.name)]
            oldest_first = sorted(filter(Path.is_file, files), key=lambda file: file.stat().st_mtime)
            self._runs = deque(file.parent for file in oldest_first)
            probe = folder / ".caps-keep"  # a folder that cannot be written is an error at the start
            probe.touch()
            probe.unlink()

    async def write(self, run: str, result: ContestResult, line: Line, summary: Mapping[str, Any]) -> None:
        """Write the folder of a request, and delete the oldest beyond the limit."""
        try:
            await asyncio.to_thread(self._write, run, result, line, summary)
        except (CapsError, OSError) as error:
            self._log.write(
                "keep", level="error", run=run, message=f"not kept: {type(error).__name__}: {error}"
            )

    def _write(self, run: str, result: ContestResult, line: Line, summary: Mapping[str, Any]) -> None:
        outcome, path = result.outcome, self._folder / run
        if outcome.prepared is None or result.resolved is None:
            return
        path.mkdir(mode=FOLDER_MODE)
        self._runs.append(path)
        case = outcome.prepared.case
        write_single_run(path, result.resolved, case, outcome, line, summary=summary)
        while len(self._runs) > self._most:
            with suppress(IndexError):  # another thread was faster
                shutil.rmtree(self._runs.popleft(), ignore_errors=True)
