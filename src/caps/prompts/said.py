"""What the judge itself said: its reply with reasoning, echoed candidates and quoted lines blanked.

Nothing is moved: a blanked stretch becomes as many line breaks, so places in the reply stay comparable.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Qwen and R1 tags, Kimi's and Magistral's, harmony channels (GPT-OSS), and harmony with its tokens stripped.
_REASONING = re.compile(
    r"(?P<open>^[ \t]*(?:<(?:think|thinking|thought|reasoning)>|◁think▷|\[THINK\])"
    r"|<\|channel\|>(?:analysis|commentary))"
    r"|</(?:think|thinking|thought|reasoning)>|◁/think▷|\[/THINK\]"
    r"|<\|channel\|>final[^<\n]{0,40}<\|message\|>|assistantfinal",
    re.IGNORECASE | re.MULTILINE,
)
_QUOTED = re.compile(r"^[ \t]*>[^\n]*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Said:
    """A reply as long as the original, only the judge's own words left in it."""

    text: str
    unfinished: bool


def said(reply: str, nonce: str) -> Said:
    """Blank what does not count; `unfinished` tells that the reply ends inside its own reasoning."""
    thoughts = [(m.start(), m.end(), m["open"] is not None, "") for m in _REASONING.finditer(reply)]
    spans, unfinished = _inside(thoughts, len(reply))
    words = _blanked(reply, spans)
    fence = re.compile(rf"<<<[ \t]?(BEGIN|END) ([^\n<>]{{1,40}}) {re.escape(nonce)}[ \t]?>>>", re.IGNORECASE)
    quotes = [(m.start(), m.end(), m[1].upper() == "BEGIN", m[2].upper()) for m in fence.finditer(words)]
    words = _blanked(words, _inside(quotes, len(words))[0])
    return Said(_blanked(words, [m.span() for m in _QUOTED.finditer(words)]), unfinished)


def _inside(marks: Iterable[tuple[int, int, bool, str]], size: int) -> tuple[list[tuple[int, int]], bool]:
    """The stretches between marks; one never closed runs to the end, one never opened from the start."""
    spans: list[tuple[int, int]] = []
    opened: tuple[int, str] | None = None
    for start, end, opens, label in marks:
        if opened is None and opens:
            opened = start, label
        elif opened is None:
            spans = [(0, end)]
        elif not opens and label == opened[1]:
            spans.append((opened[0], end))
            opened = None
    if opened is not None:
        spans.append((opened[0], size))
    return spans, opened is not None


def _blanked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    pieces, at = list[str](), 0
    for start, end in spans:
        pieces += text[at:start], "\n" * (end - start)
        at = end
    return "".join([*pieces, text[at:]])
