"""`caps batch status`: how far a run through Batch files is."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from platformdirs import user_data_path

from caps.cli.batch_run import BatchRun, opened
from caps.cli.options import JournalFile
from caps.cli.output import JsonFlag, print_json, say, stdout
from caps.core.errors import JournalError
from caps.core.text import number
from caps.engines.batch import CaseProgress
from caps.engines.batch_files import BatchNotes
from caps.journal.store import Journal, default_path
from caps.reports.console import table
from caps.studies.planning import forecast_case

Begun = Annotated[
    Path | None,
    typer.Argument(metavar="[DIR]", help="The folder of the run; without it, batches of the journal."),
]
ByCase = Annotated[bool, typer.Option("--cases", help="List every case.")]
OVER = "over"


@dataclass(slots=True)
class Progress:
    """Where all cases stand; `trips` is how many files more the longest contest may take."""

    cases: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    trips: int = 0

    def total(self, name: str) -> int:
        """One figure, over all cases."""
        return sum(case[name] for case in self.cases)

    def stages(self) -> dict[str, list[int]]:
        """Cases, answered, open and given-up requests by the stage cases are in, those that are over last."""
        found: dict[str, list[int]] = {}
        for case in sorted(self.cases, key=lambda case: (case["stage"] == OVER, case["stage"])):
            row = found.setdefault(case["stage"], [0, 0, 0, 0])
            for place, count in enumerate((1, case["answered"], case["open"], case["given_up"])):
                row[place] += count
        return found


def status(
    begun: Begun = None,
    by_case: ByCase = False,
    journal: JournalFile = None,
    as_json: JsonFlag = False,
) -> None:
    """How far each stage is: requests answered, open, out in files, given up; and files still to come.

    Without a folder, the batches that select --engine batch has under way, as the journal knows them.
    """
    if begun is None:
        _under_way(journal or default_path(user_data_path("caps")), as_json=as_json)
        return
    asyncio.run(_status(begun, by_case=by_case, as_json=as_json))


def _under_way(path: Path, *, as_json: bool) -> None:
    if not path.is_file():
        raise JournalError(f"{path}: no such journal: give the --journal of the run")
    with Journal.open(path) as journal:
        rows = [
            {
                "batch": sent.batch,
                "file": sent.file,
                "address": sent.address,
                "model": sent.model,
                "requests": len(sent.awaited),
            }
            for sent in BatchNotes(journal).under_way()
        ]
    if as_json:
        print_json(rows)
        return
    columns = ("batch", "file", "address", "model", "requests")
    shown = [tuple("–" if row[name] is None else str(row[name]) for name in columns) for row in rows]
    stdout().print(table("", columns, shown, numbers_from=4))
    say(f"{len(rows)} under way: the same select command waits for them and goes on")


async def _status(path: Path, *, by_case: bool, as_json: bool) -> None:
    async with opened(path, writing=False) as run:
        found = _progress(run)
        out = run.folder.out(run.journal, run.failures)
    under_way = len(found.keys & {key for keys in out.values() for key in keys})
    failed = sum(case["failed"] is not None for case in found.cases)
    if as_json:
        print_json(
            {
                "cases": len(found.cases),
                "over": sum(case["stage"] == OVER for case in found.cases),
                "failed": failed,
                **{name: found.total(name) for name in ("answered", "given_up")},
                "open": len(found.keys),
                "out": under_way,
                "files_out": [str(path) for path in sorted(out)],
                "trips": found.trips,
                "by_case": found.cases,
            }
        )
        return
    _show(found, by_case=by_case)
    names = f" ({', '.join(path.name for path in sorted(out))})" if under_way else ""
    files = "no file more" if not found.trips else f"about {found.trips} file(s) more, one after the other"
    say(f"{number(len(found.keys), 0)} requests open, {number(under_way, 0)} of them out{names}; {files}")
    if failed:
        say(f"{number(failed, 0)} cases failed: caps batch status --cases names them", "red")


def _show(found: Progress, *, by_case: bool) -> None:
    columns: tuple[str, ...] = ("stage", "cases", "answered", "open", "given up")
    rows: list[tuple[str, ...]] = [
        (stage, *(number(count, 0) for count in row)) for stage, row in found.stages().items()
    ]
    if by_case:
        columns = ("case", "stage", "rounds", "answered", "open", "given up", "failed")
        rows = [
            (
                case["id"],
                case["stage"],
                *(number(case[name], 0) for name in ("rounds", "answered", "open", "given_up")),
                case["failed"] or "",
            )
            for case in found.cases
        ]
    stdout().print(table("", columns, rows, numbers_from=2 if by_case else 1))


def _progress(run: BatchRun) -> Progress:
    found, runner = Progress(), run.runner
    depths: dict[int, int] = {}  # by the number of distinct answers: cases of one size are about equally deep
    for stand in run.batch_state.stands():
        found.cases.append(_line(stand))
        found.keys |= {one.key for one in stand.open}
        if stand.stage is not None and stand.play is not None:
            prepared = stand.play.prepared
            size = len({one.signature or one.id for one in prepared.evidence.entrants})
            if size not in depths:
                forecast = forecast_case(prepared, runner.strategy, runner.templates, seed=runner.config.seed)
                depths[size] = forecast.depth
            found.trips = max(found.trips, depths[size] - stand.play.depth, 1)
    return found


def _line(stand: CaseProgress) -> dict[str, Any]:
    play, outcome = stand.play, stand.outcome
    answered = [one for one in outcome.judged if one.ruling.unanswered is None]
    pending = 0
    if play is not None and play.round is not None:
        pending = len(play.round.asks) - len(play.waiting())
    return {
        "id": outcome.name,
        "stage": stand.stage or OVER,
        "rounds": 0 if play is None else play.depth,
        "answered": len(answered) + pending,
        "open": len(stand.open),
        "given_up": len(stand.noted) - len(stand.open),
        "failed": outcome.failure,
    }
