"""What the judge itself said: its reply with reasoning, echoed candidates and quoted lines blanked.

Nothing is moved: a blanked stretch becomes as many line breaks, so places in the reply stay comparable.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

# Qwen and R1 tags, Kimi's and Magistral's, harmony channels (GPT-OSS), and harmony with its tokens stripped.
_REASONING = re.compile(
    r"(?P<open>^[ \t]*(?:<(?:think|thinking|thought|reasoning)>|◁think▷|\[THINK\])"
    r"|<\|channel\|>(?:analysis|commentary))"
    r"|</(?:think|thinking|thought|reasoning)>|◁/think▷|\[/THINK\]"
    r"|<\|channel\|>final[^<\n]{0,40}<\|message\|>|assistantfinal",
    re.IGNORECASE | re.MULTILINE,
)
_REASONS = ("think", "thought", "reasoning", "<|channel|>", "assistantfinal")  # one is in every such mark
_QUOTED = re.compile(r"\n[ \t]*>[^\n]*")


class Said(NamedTuple):
    """A reply as long as the original, only the judge's own words left in it."""

    text: str
    unfinished: bool


class _Mark(NamedTuple):
    """Where reasoning or an echo begins or ends; `kind` is the fence's label, or nothing for reasoning."""

    start: int
    end: int
    opens: bool
    kind: str


def said(reply: str, nonce: str) -> Said:
    """Blank what does not count; `unfinished` tells that the reply ends inside its own reasoning.

    Whole echoes go first, so that nothing in them passes for a mark of reasoning.
    """
    if reply.isascii():  # beyond ASCII a letter may match another: the Kelvin sign, a long s
        lowered = reply.lower()
        if nonce not in lowered and not any(map(lowered.__contains__, _REASONS)):
            return Said(_unquoted(reply), unfinished=False)
    fence = re.compile(rf"<<<[ \t]?(BEGIN|END) ([^\n<>]{{1,40}}) {re.escape(nonce)}[ \t]?>>>", re.IGNORECASE)
    words = _blanked(reply, _echoes(_fences(fence, reply)))
    thoughts = [_Mark(m.start(), m.end(), m["open"] is not None, "") for m in _REASONING.finditer(words)]
    marks = sorted([*thoughts, *_fences(fence, words)], key=lambda mark: mark.start)
    spans, last = _inside(marks, len(words))
    return Said(_unquoted(_blanked(words, spans)), last is not None and not last.kind)


def _unquoted(words: str) -> str:
    # A line break goes first, so that all quoted lines begin with one: that is looked for quickest.
    spans = [(m.start(), m.end() - 1) for m in _QUOTED.finditer("\n" + words)]
    return _blanked(words, spans) if spans else words


def _fences(fence: re.Pattern[str], text: str) -> list[_Mark]:
    return [_Mark(m.start(), m.end(), m[1].upper() == "BEGIN", m[2].upper()) for m in fence.finditer(text)]


def _echoes(marks: Iterable[_Mark]) -> list[tuple[int, int]]:
    """The stretches from an opening fence to the next closing one of its label."""
    spans, opened = list[tuple[int, int]](), None
    for mark in marks:
        if mark.opens:
            opened = mark
        elif opened is not None and mark.kind == opened.kind:
            spans.append((opened.start, mark.end))
            opened = None
    return spans


def _inside(marks: Iterable[_Mark], size: int) -> tuple[list[tuple[int, int]], _Mark | None]:
    """The stretches between marks, and the mark left open, if any.

    One never closed runs to the end; one never opened began with the reply.
    """
    spans, opened = list[tuple[int, int]](), None
    for mark in marks:
        if opened is None and mark.opens:
            opened = mark
        elif opened is None:
            spans = [(0, mark.end)]
        elif not mark.opens and mark.kind == opened.kind:
            spans.append((opened.start, mark.end))
            opened = None
    if opened is not None:
        spans.append((opened.start, size))
    return spans, opened


def _blanked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    pieces, at = list[str](), 0
    for start, end in spans:
        pieces += text[at:start], "\n" * (end - start)
        at = end
    return "".join([*pieces, text[at:]])
