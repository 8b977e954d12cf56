"""One step of a run through Batch files: what is open is written, or, where nothing is, the selections."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from caps.cli.batch_run import BatchRun, opened
from caps.cli.output import put, say, say_failed
from caps.cli.run import Run
from caps.core.errors import SettingError
from caps.core.secrets import unrecorded
from caps.core.text import number
from caps.engines.base import Outcome
from caps.engines.batch_files import BatchFile, StepFiles
from caps.models.batch_api import encode_line
from caps.reports.console import shown

NAMED = 5  # failed cases; the others are counted


async def take_step(path: Path, *, extra: Mapping[str, object], again: bool, quiet: bool, lines: bool) -> int:
    """Write the next files, or deliver; the exit code. `extra` is what the folder may not hold of itself."""
    async with opened(path, extra) as run:
        out = {} if again else run.folder.out(run.journal, run.failures)
        parts, held, failed = _write(run, {key for keys in out.values() for key in keys})
        if parts or held:
            for part in parts:
                put(f"{shown(str(part.path)) if sys.stdout.isatty() else part.path}\n".encode())
            if not quiet:
                _explain(run, parts, held, sorted(out))
                _regret(run, failed)
            return 0
        return await _deliver(run, quiet=quiet, lines=lines)


def _write(run: BatchRun, out: set[str]) -> tuple[list[BatchFile], int, list[Outcome]]:
    """Write what is open; how much is open but under way in earlier files; and the cases that failed."""
    held, failed = set[str](), list[Outcome]()
    with StepFiles(run.folder.path, run.folder.next_step(), run.runner.batch_settings) as files:
        for stand in run.batch_state.stands():
            if stand.outcome.failure is not None:
                failed.append(stand.outcome)
            for one in stand.open:
                if one.key in out:
                    held.add(one.key)
                else:
                    _refuse_unrecorded(run)
                    files.add(one, encode_line(one.key, one.request, limit_name=run.limit_name))
        return files.finish(), len(held), failed


def _refuse_unrecorded(run: BatchRun) -> None:
    """A request cannot be written with the digest of a text in the text's place."""
    for name in unrecorded(run.runner.config.extra):
        raise SettingError(f"run.json holds no texts that may be secret: give --extra {name}=… once more")


def _explain(run: BatchRun, parts: list[BatchFile], held: int, out: list[Path]) -> None:
    for part in parts:
        size = f"{number(part.size, 0)} bytes"
        say(f"{part.path}: {number(len(part.awaited), 0)} requests to {part.group[1]}, {size}")
    if held:
        names = ", ".join(path.name for path in out)
        say(f"{number(held, 0)} requests are out in {names}: absorb what came back, or write them --again")
    if parts:
        say(f"run them, then: caps batch absorb {run.folder.path} RESULTS...")


def _regret(run: BatchRun, failed: list[Outcome]) -> None:
    for outcome in failed[:NAMED]:
        say_failed(outcome.name, str(outcome.failure))
    if len(failed) > NAMED:
        more = number(len(failed) - NAMED, 0)
        say(f"{more} more failed: caps batch status {run.folder.path} --cases names them", "red")


async def _deliver(run: BatchRun, *, quiet: bool, lines: bool) -> int:
    """Nothing is open: print the selections and keep them in the folder."""
    started = time.perf_counter()
    delivering = Run(run.runner, limit=run.file.limit, quiet=quiet, bracket=False, lines=lines)
    await delivering.deliver(run.outcomes(), run.folder.path, run.file, locked=True)
    code = delivering.close(time.perf_counter() - started)
    if not quiet:
        say(f"nothing is open: the selections are in {run.folder.path / 'selections.jsonl'}")
    return code
