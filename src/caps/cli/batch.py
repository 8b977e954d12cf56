"""`caps batch`: the same selections through Batch files, step by step."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from caps.cli import options
from caps.cli.batch_prepare import prepare
from caps.cli.batch_run import BatchRun, opened
from caps.cli.batch_status import status
from caps.cli.output import say
from caps.core.errors import InputError
from caps.core.text import number
from caps.datasets.reading import lines
from caps.engines.batch_files import RESULTS, BatchImporter, ImportCount
from caps.models.pending import PendingRequest
from caps.models.wire import RENAMED
from caps.runs.folder import BatchFolder

NAMED = 20  # garbage lines that are named one by one

app = typer.Typer(help="The same selections through Batch files, step by step.", no_args_is_help=True)
app.command()(prepare)

Places = Annotated[
    list[Path],
    typer.Argument(metavar="DIR|FILES...", help="The folder of the run, result files, or both."),
]


@app.callback()
def group() -> None:
    """Go through Batch files: write what is open, take in what came back, see how far it is."""


@app.command()
def absorb(places: Places, quiet: options.Quiet = False) -> None:
    """Take result and error files into the journal, in any order and as often as you like.

    A folder alone takes every new file in it that is not its own. Failed items go into the next file that
    caps batch prepare writes; lines that are no results are named, and the exit code is 1.
    """
    folder, files = _sorted_out(places)
    if not files:
        say(f"{folder}: no new results are in it")
        return
    taken = asyncio.run(_absorb(folder, files))
    for words in taken.garbage[:NAMED]:
        say(f"not a result: {words}", "red")
    if len(taken.garbage) > NAMED:
        say(f"not a result: {number(len(taken.garbage) - NAMED, 0)} lines more", "red")
    if taken.refused is not None:
        say(f"refused: {taken.refused}", "red")
    if not quiet:
        say(_told(taken, len(files)))
        say(f"next: caps batch prepare {folder}")
    raise typer.Exit(1 if taken.garbage else 0)


app.command()(status)


async def _absorb(path: Path, files: list[Path]) -> ImportCount:
    async with opened(path) as run:
        absorber = BatchImporter(run.journal, _awaited(run), run.failures)
        for file in files:
            await absorber.absorb(lines(str(file), RESULTS), str(file))
        run.folder.keep(absorber.taken.failures)
        run.folder.note_absorbed(files)
        if absorber.taken.renamed:
            run.folder.rename_limit(RENAMED)
            say(f"this server says {RENAMED}: the next file will, too", "yellow")
    return absorber.taken


def _awaited(run: BatchRun) -> dict[str, PendingRequest]:
    """What the contests lack now, what was given up included: a reply that comes late is welcome."""
    return {one.key: one.awaited for stand in run.batch_state.stands() for one in stand.noted}


def _sorted_out(places: list[Path]) -> tuple[Path, list[Path]]:
    """The folder of the run and the files meant; of files alone, the folder they lie in."""
    folders, files = [one for one in places if one.is_dir()], [one for one in places if not one.is_dir()]
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: no such file or folder")
    homes = folders or sorted({file.parent for file in files})
    if len(homes) != 1:
        raise InputError(f"which run? {', '.join(map(str, homes))} are several folders; name one")
    folder = BatchFolder(homes[0])
    if not folder.begun:
        raise InputError(
            f"{homes[0]}: no run is here: name its folder too  (caps batch absorb DIR FILES...), or make one "
            "with  caps batch prepare CASES --out DIR"
        )
    if files:
        return homes[0], files
    if not folder.results():
        raise InputError(f"{homes[0]}: no result files are in it: name them, or put them there")
    return homes[0], folder.fresh()


def _told(taken: ImportCount, files: int) -> str:
    counts = [
        (len(taken.keys), "replies taken"),
        (taken.known, "known already"),
        (taken.unknown, "of nobody here"),
        (taken.failed.total(), f"failed and go into the next file{_causes(taken.failed)}"),
        (taken.unrun, "never run, go into the next file"),
        (taken.given_up.total(), f"given up: they count as unanswered{_causes(taken.given_up)}"),
    ]
    words = "; ".join(f"{number(count, 0)} {kind}" for count, kind in counts if count) or "nothing in it"
    return f"{files} file{'s' * (files != 1)}: {words}"


def _causes(counts: "dict[str, int]") -> str:
    return f" ({', '.join(f'{cause} {count}' for cause, count in sorted(counts.items()))})" if counts else ""
