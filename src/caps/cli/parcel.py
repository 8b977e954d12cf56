"""What is kept of a case that is over and has to wait for those before it: only what will be written."""

from dataclasses import dataclass

from rich.text import Text

from caps.core.text import number
from caps.engines.base import Outcome
from caps.evidence.anatomy import last_boxed
from caps.reports.bracket import draw
from caps.runs.result_lines import Line, json_lines, ruling_lines


@dataclass(frozen=True, slots=True)
class Parcel:
    """The lines of a case; for people its row of the table, its picture, or why it failed."""

    name: str
    selection: bytes
    rulings: bytes
    failure: str | None
    picture: list[Text]
    row: tuple[str, ...] | None


def pack(outcome: Outcome, line: Line, *, rulings: bool, picture: bool, row: bool) -> Parcel:
    """Take what is wanted of an outcome, whose line is given."""
    chosen = outcome.failure is None
    drawn = outcome.contest if picture and chosen else None
    return Parcel(
        name=outcome.name,
        selection=json_lines([line]),
        rulings=json_lines(ruling_lines(outcome)) if rulings else b"",
        failure=outcome.failure,
        picture=[] if drawn is None else draw(drawn),
        row=_row(line) if row and chosen else None,
    )


def _row(line: Line) -> tuple[str, ...]:
    notes = [word for word in ("provisional",) if line[word]]
    if line["rescued"] is not None:
        notes.append("rescue")
    if line["malformed"]:
        notes.append(f"{line['malformed']} unreadable")
    last = last_boxed(line["text"]) or (line["text"].strip().splitlines() or [""])[-1]
    calls = line["calls"]
    return (
        line["id"], last[:40], str(line["winner"]), str(line["clusters"]), f"{calls['E1']} + {calls['E2']}",
        number(line["tokens"]["asked"], 0), ", ".join(notes),
    )  # fmt: skip
