"""Levels E1 and E2: what a judge may read of a candidate.

A partial view is an excerpt, cut where its marker lines say so. One that would not be shorter than the full
view is replaced by it: then nothing is saved by hiding anything.
"""

from collections.abc import Callable
from dataclasses import replace

from caps.core.text import CHARACTERS_PER_TOKEN
from caps.core.types import Candidate
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
