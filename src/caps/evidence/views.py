"""Levels E1 and E2: what a judge may read of a candidate.

A partial view is an excerpt, cut where its marker lines say so. One that would not be shorter than the full
view is replaced by it: then nothing is saved by hiding anything.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeAlias

from caps.core.domains import Differences
from caps.core.text import CHARACTERS_PER_TOKEN
from caps.core.types import Candidate, Found, Run, differing_runs
from caps.evidence.anatomy import boxed_answer, dissect, final_answer, find_boxed, spoken
from caps.evidence.windows import around, ends, ends_in_words, head, head_lines, trim

REASONING_CUT = "[...reasoning truncated...]"
CODE_CUT = "[...code truncated...]"
ANSWER_CUT = "[...answer truncated...]"
TEXT_CUT = "[...text truncated...]"


def full(candidate: Candidate) -> str:
    """All of the candidate; a stated code or answer that its text does not contain follows."""
    if not candidate.code and not candidate.answer:
        return candidate.text
    pieces = [candidate.text]
    code, answer = trim(candidate.code or ""), (candidate.answer or "").strip()
    if code.strip() not in candidate.text:
        pieces.append(_fenced(code))
    if answer not in candidate.text:
        pieces.append(_final(answer))
    return candidate.text if len(pieces) == 1 else _join(*pieces)


def without_thoughts(candidate: Candidate) -> str:
    """All of the candidate but its thoughts; all of it where nothing else is left."""
    said, whole = trim(spoken(candidate.text)), full(candidate)
    shown = full(replace(candidate, text=said)) if said else ""
    return shown if shown and len(shown) < len(whole) else whole


def code_summary(candidate: Candidate) -> str:
    """The first and last 50 words of the reasoning, whole, then the first 500 characters of code."""
    return _code_summary(candidate, ends_in_words)


def code_excerpt(candidate: Candidate) -> str:
    """The same in at most 800 characters for each 50 words, which may cut a word."""
    return _code_summary(candidate, ends)


def _code_summary(candidate: Candidate, cut: Callable[[str, int, str], str]) -> str:
    parts = dissect(candidate)
    reasoning = cut(parts.reasoning, 50, REASONING_CUT)
    if parts.code is None:
        return _partial(candidate, reasoning, _excerpt(parts.answer))
    return _partial(candidate, reasoning, _fenced(head(trim(parts.code), 500, CODE_CUT)))


def code_head(candidate: Candidate) -> str:
    """The first 20 lines of code, or of the text where there is none."""
    code = dissect(candidate).code
    return _partial(candidate, head_lines(trim(code or full(candidate)), 20, 4000, CODE_CUT))


def candidate_head(candidate: Candidate) -> str:
    """The first 20 lines of the candidate: of a model that thinks at length, the start of its thoughts."""
    return _partial(candidate, head_lines(trim(full(candidate)), 20, 4000, TEXT_CUT))


def code_only(candidate: Candidate) -> str:
    """All of the code and nothing else, or the whole text where there is none."""
    code, whole = dissect(candidate).code, full(candidate)
    shown = None if code is None else trim(code)
    return (
        whole if shown is None or len(shown) > len(whole) else shown
    )  # a stated code may be indented further


def math_summary(candidate: Candidate) -> str:
    """The first and last 50 words of the reasoning, whole, then the last boxed answer."""
    parts = dissect(candidate, prose=True)
    reasoning = ends_in_words(parts.reasoning, 50, REASONING_CUT)
    return _partial(candidate, reasoning, _excerpt(boxed_answer(candidate)))


def math_excerpt(candidate: Candidate) -> str:
    """The same in at most 800 characters for each 50 words, then the final answer, boxed or announced."""
    parts = dissect(candidate, prose=True)
    return _partial(candidate, ends(parts.reasoning, 50, REASONING_CUT), _excerpt(parts.answer))


def math_window(candidate: Candidate) -> str:
    """The final answer, and some 300 tokens that end soon after the last boxed answer."""
    whole = trim(full(candidate))
    boxed = find_boxed(whole)
    end = len(whole) if boxed is None else min(len(whole), boxed.stop + 50 * CHARACTERS_PER_TOKEN)
    window = around(whole, end, 300 * CHARACTERS_PER_TOKEN, TEXT_CUT)
    return _partial(candidate, _excerpt(final_answer(candidate)), window)


def thinking(candidate: Candidate) -> str:
    """The boxed answer, if there is one, and the last 500 tokens or so: where long thoughts arrive."""
    return _thinking(candidate, boxed_answer(candidate))


def thinking_announced(candidate: Candidate) -> str:
    """The same, but also with an answer that is announced in words."""
    return _thinking(candidate, final_answer(candidate))


def _thinking(candidate: Candidate, answer: str | None) -> str:
    whole = trim(full(candidate))
    window = around(whole, len(whole), 500 * CHARACTERS_PER_TOKEN, TEXT_CUT)
    return _partial(candidate, _excerpt(answer), window)


def general_summary(candidate: Candidate) -> str:
    """The first and last 120 words."""
    return _partial(candidate, ends(full(candidate), 120, TEXT_CUT))


def _partial(candidate: Candidate, *pieces: str) -> str:
    view, whole = _join(*pieces), full(candidate)
    return view if view and len(view) < len(whole.strip()) else whole


def _join(*pieces: str) -> str:
    return "\n\n".join(piece for piece in pieces if piece.strip())


def _excerpt(answer: str | None) -> str:
    return _final(head(answer or "", 500, ANSWER_CUT))


def _final(answer: str) -> str:
    return f"Final answer: {answer}" if answer else ""


def _fenced(code: str) -> str:
    return f"```\n{code}\n```" if code else ""


# --- Pair views: what a judge reads at E1 of two candidates that a finding separates ---
#
# `code-difference` shows two programs by what they do: the shortest inputs on which they differ, what each
# made of them, and the lines of each that the other does not have. Where no input separates two programs
# there is no such view, and the partial view of each is shown. Inputs and outputs are bounded by the
# findings, lines here. Every line that is not ours begins with a bar, so that no output can pass for another
# input or output.


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
