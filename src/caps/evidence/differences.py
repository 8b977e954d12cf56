"""Pair views: what a judge reads at E1 of two candidates that a finding separates.

`code-difference` shows two programs by what they do: the shortest inputs on which they differ, what each made
of them, and the lines of each that the other does not have. Where no input separates two programs there is no
such view, and the partial view of each is shown. Inputs and outputs are bounded by the findings, lines here.
Every line that is not ours begins with a bar, so that no output can pass for another input or output.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

from caps.core.domains import Differences
from caps.core.types import Candidate, Found, Run, differing_runs
from caps.evidence.anatomy import dissect
from caps.evidence.views import TEXT_CUT
from caps.evidence.windows import head

MAX_INPUTS = 3
MAX_CHARACTERS = 800  # of inputs and outputs of one program; the shortest input is shown at any length
LONGEST_SHOWN = 1000  # characters of an input or an output; findings keep no longer inputs
MAX_LINES = 10
LINE_CHARACTERS = 120
LONGEST_READ = 64_000  # characters of a candidate whose lines are shown
BAR = "| "
LINES = "Lines that only this program has:"
LINES_CUT = "[...other lines left out...]"
FAILED = {
    "crashed": "It failed",
    "timeout": "It did not end in time",
    "memory": "It needed too much memory",
    "output": "It printed too much",
    "unparsed": "It is not a valid program",
}
_NOT_TELLING = re.compile(
    r"(?:#|@|from\s|import\s|if __name__|main\(\)|else\s*:|try\s*:|pass$|[\"']{3}|[)\]}]+$|$)"
)

Lines: TypeAlias = dict[str, tuple[int, str]]  # without spaces -> number and line


def code_difference(candidates: Sequence[Candidate]) -> Differences:
    """Two programs by the shortest inputs on which they differ, both outputs, and lines that only one has."""

    @cache
    def lines(place: int) -> Lines:
        return _telling_lines(candidates[place])

    def compare(a: int, b: int) -> tuple[str, str] | None:
        first, second = candidates[a].found, candidates[b].found
        if first is None or second is None or not (runs := _shown_runs(first, second)):
            return None
        texts = _side([run for run, _ in runs], lines(a), lines(b))
        return texts, _side([run for _, run in runs], lines(b), lines(a))

    return compare


def _shown_runs(first: Found, second: Found) -> list[tuple[Run, Run]]:
    """The runs to show: the one with the shortest input, then others while there is room."""
    shown: list[tuple[Run, Run]] = []
    room = MAX_CHARACTERS
    for a, b in differing_runs(first, second):
        room -= len(a.input) + max(len(a.output), len(b.output))
        if shown and (room < 0 or len(shown) == MAX_INPUTS):
            break
        shown.append((a, b))
    return shown


def _side(runs: Sequence[Run], lines: Lines, others: Lines) -> str:
    """What is shown of one of two programs."""
    pieces = [_told(run, "" if len(runs) == 1 else f" {number}") for number, run in enumerate(runs, 1)]
    only = [line for _, line in sorted(lines[key] for key in lines.keys() - others.keys())]
    if only:
        cut = [LINES_CUT] if len(only) > MAX_LINES else []
        pieces.append("\n".join([LINES, *cut, *(f"{BAR}{line}" for line in only[-MAX_LINES:])]))
    return "\n\n".join(pieces)


def _told(run: Run, number: str) -> str:
    """An input and what a program made of it."""
    call, result = "Call" if run.kind == "call" else "Input", f"Output{number}:"
    if run.status != "ok":
        result += f" none. {FAILED.get(run.status, 'It failed')}" + (":" if run.output.strip() else ".")
    elif not run.output.strip():
        result += " nothing"
    return "\n".join([f"{call}{number}:", *_barred(run.input), result, *_barred(run.output)])


def _barred(text: str) -> list[str]:
    return [BAR + line for line in head(text, LONGEST_SHOWN, TEXT_CUT).rstrip().splitlines()]


def _telling_lines(candidate: Candidate) -> Lines:
    """The lines of a program without imports, comments and the like, by their text without spaces."""
    if len(candidate.text) + len(candidate.code or "") > LONGEST_READ:
        return {}
    code = dissect(candidate).code or ""
    lines: Lines = {}
    for number, line in enumerate(code.expandtabs(4).splitlines()):
        bare = line.strip()
        if not _NOT_TELLING.match(bare):
            lines.setdefault("".join(bare.split()), (number, line.rstrip()[:LINE_CHARACTERS]))
    return lines
