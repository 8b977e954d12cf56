"""The judge's own words: its reply without reasoning, echoed candidates and quotations; its lines.

Removed spans become as many line breaks, so positions in the reply do not change. Of a very long reply only
the last `READ_AT_MOST` characters are read; a thought or an echo that is open there stays open.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from caps.prompts import forms
from caps.prompts.tags import JOINER, bare, canonical

# Qwen and R1 tags, Kimi's and Magistral's, harmony channels (GPT-OSS), and harmony with its tokens stripped.
REASONING = re.compile(
    r"(?P<open>^[ \t]*(?:<(?:think|thinking|thought|reasoning)>|◁think▷|\[THINK\])"
    r"|<\|channel\|>(?:analysis|commentary))"
    r"|</(?:think|thinking|thought|reasoning)>|◁/think▷|\[/THINK\]"
    r"|<\|channel\|>final[^<\n]{0,40}<\|message\|>|assistantfinal",
    re.IGNORECASE | re.MULTILINE,
)
# Every such mark contains one of these.
_REASONING_HINTS = ("think", "thought", "reasoning", "<|channel|>", "assistantfinal")
_QUOTED = re.compile(r"\n[ \t]*>[^\n]*")
READ_AT_MOST = 200_000
_OPENING = (
    "<think>",
    "<thinking>",
    "<thought>",
    "<reasoning>",
    "◁think▷",
    "[think]",
    "<|channel|>analysis",
    "<|channel|>commentary",
)
_CLOSING = (
    "</think>",
    "</thinking>",
    "</thought>",
    "</reasoning>",
    "◁/think▷",
    "[/think]",
    "<|channel|>final",
    "assistantfinal",
)
_CODE_FENCE = re.compile(r"^[ \t]{0,8}(`{3,}|~{3,})[ \t]*([^\n`]*)$", re.MULTILINE)
# A block that is the verdict: the end of the reply, and nothing but tags, fields or one object in it.
_VERDICT_LINE = re.compile(
    r"[ \t*-]{0,8}(?:(?:<|\[|&lt;)[ \t]{0,4}/?(?:winner|confidence|best|rating|score|verdict"
    r"|answer)(?![^\W_])"
    r"|\W{0,4}(?:winner|confidence|best|rating|score|verdict)(?![^\W_])[^\n]{0,12}[:=])",
    re.IGNORECASE,
)
_VERDICT_KEY = re.compile(
    r"[\"'](?:winner|confidence|best|ratings?|scores?|verdict|better|choice"
    r"|answer)(?![^\W_])",
    re.IGNORECASE,
)
_PROGRAM = re.compile(r"(?:py|python|c|cpp|c\+\+|java|js|javascript|ts|go|rust|sh|bash)\b", re.IGNORECASE)
# "Candidate A prints:" before a block attributes it to a candidate.
_INTRODUCED = re.compile(
    r"\b(?:says?|said|claims?|prints?|contains?|includes?|writes?|wrote|ends?|ended|outputs?|injects?"
    r"|tries|returns?|has|looks? like|"
    r"formats?|examples?|template|instructions?|should|must|quotes?|candidate(?:'s)?|asks?|asked)\b",
    re.IGNORECASE,
)
_MAX_VERDICT_LINES = 12


class OwnWords(NamedTuple):
    """A reply of the original length with everything but the judge's own words blanked."""

    text: str
    unfinished: bool


class _Mark(NamedTuple):
    """Where reasoning or an echo begins or ends; `kind` is the fence's label, or nothing for reasoning."""

    start: int
    end: int
    opens: bool
    kind: str


def own_words(reply: str, nonce: str) -> OwnWords:
    """Blank what does not count; `unfinished`: the reply ends inside its reasoning.

    Complete echoes are blanked first, so that their content cannot be taken for a mark of reasoning.
    """
    if len(reply) > READ_AT_MOST:
        return _own_words_of_tail(reply, nonce)
    if reply.isascii():  # beyond ASCII a letter may match another: the Kelvin sign, a long s
        lowered = reply.lower()
        if nonce not in lowered and not any(map(lowered.__contains__, _REASONING_HINTS)):
            return OwnWords(_without_code_blocks(_without_quotes(reply)), unfinished=False)
    fence = re.compile(rf"<<<[ \t]?(BEGIN|END) ([^\n<>]{{1,40}}) {re.escape(nonce)}[ \t]?>>>", re.IGNORECASE)
    words = _blank(reply, _echoes(_fences(fence, reply)))
    thoughts = [_Mark(m.start(), m.end(), m["open"] is not None, "") for m in REASONING.finditer(words)]
    marks = sorted([*thoughts, *_fences(fence, words)], key=lambda mark: mark.start)
    spans, last = _marked_spans(marks, len(words))
    own = _without_code_blocks(_without_quotes(_blank(words, spans)))
    return OwnWords(own, last is not None and not last.kind)


def without_marks(text: str) -> str:
    """The text with marks of reasoning replaced by line breaks."""
    if text.isascii():
        lowered = text.lower()
        if not any(map(lowered.__contains__, _REASONING_HINTS)):
            return text
    return REASONING.sub("\n", text)


def _own_words_of_tail(reply: str, nonce: str) -> OwnWords:
    cut = len(reply) - READ_AT_MOST
    head, tail = reply[:cut].lower(), reply[cut:]
    if max(map(head.rfind, _OPENING)) > max(map(head.rfind, _CLOSING)):
        closed = max((mark.end() for mark in REASONING.finditer(tail) if mark["open"] is None), default=None)
        if closed is None:
            return OwnWords("\n" * len(reply), unfinished=True)
        tail = "\n" * closed + tail[closed:]
    elif nonce in head and head.rfind("<<<begin ") > head.rfind("<<<end "):
        return OwnWords("\n" * len(reply), unfinished=True)
    own = own_words(tail, nonce)
    return OwnWords("\n" * cut + own.text, own.unfinished)


def _without_code_blocks(words: str) -> str:
    """Blank code blocks, except a final one that is the verdict."""
    if "```" not in words and "~~~" not in words:
        return words
    spans, opened, end = list[tuple[int, int]](), None, len(words.rstrip())
    for fence in _CODE_FENCE.finditer(words):
        if opened is None:
            opened = fence
        elif fence[1][0] == opened[1][0] and not fence[2].strip():
            if fence.end() < end or not _is_verdict(words, opened, fence):
                spans.append((opened.start(), fence.end()))
            opened = None
    return _blank(words, spans) if spans else words


def _is_verdict(words: str, opened: re.Match[str], closed: re.Match[str]) -> bool:
    if _PROGRAM.match(opened[2]):
        return False
    before = words[max(0, opened.start() - 400) : opened.start()].rstrip().rpartition("\n")[2]
    if _INTRODUCED.search(before):
        return False
    inside = words[opened.end() : closed.start()].strip()
    if inside.startswith("{") and inside.endswith("}"):
        return bool(_VERDICT_KEY.search(inside))
    lines = [line for line in inside.split("\n", 4 * _MAX_VERDICT_LINES) if line.strip()]
    return 0 < len(lines) <= _MAX_VERDICT_LINES and all(map(_VERDICT_LINE.match, lines))


def _without_quotes(words: str) -> str:
    # The added line break lets the pattern begin with a literal, which is fastest.
    spans = [(m.start(), m.end() - 1) for m in _QUOTED.finditer("\n" + words)]
    return _blank(words, spans) if spans else words


def _fences(fence: re.Pattern[str], text: str) -> list[_Mark]:
    return [_Mark(m.start(), m.end(), m[1].upper() == "BEGIN", m[2].upper()) for m in fence.finditer(text)]


def _echoes(marks: Iterable[_Mark]) -> list[tuple[int, int]]:
    """The spans from an opening fence to the next closing fence of its label."""
    spans, opened = list[tuple[int, int]](), None
    for mark in marks:
        if mark.opens:
            opened = mark
        elif opened is not None and mark.kind == opened.kind:
            spans.append((opened.start, mark.end))
            opened = None
    return spans


def _marked_spans(marks: Iterable[_Mark], size: int) -> tuple[list[tuple[int, int]], _Mark | None]:
    """The spans between marks, and the mark left open, if any.

    An unclosed span runs to the end; an unopened one starts with the reply.
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


def _blank(text: str, spans: Iterable[tuple[int, int]]) -> str:
    pieces, at = list[str](), 0
    for start, end in spans:
        pieces += text[at:start], "\n" * (end - start)
        at = end
    return "".join([*pieces, text[at:]])


# Lines without decoration, cells of tables and fields of JSON

_LINES = 400  # lines at the end of a reply that are searched
_LINE = 600  # characters at the end of a line that are read


class Line(NamedTuple):
    """A line of a reply with its position; `words` is the line without decoration."""

    raw: str
    words: str
    start: int
    length: int


def lines_of(text: str) -> list[Line]:
    """The last lines of a text that are not blank; rows of tables become `key: value` lines."""
    at = len(text) - len(text.lstrip("\n"))
    lines = list[Line]()
    for raw in text[at:].split("\n"):
        # A line with a joiner repeats a candidate: judges write none themselves.
        if raw and (stripped := raw.strip()) and JOINER not in stripped:
            lines.append(Line(_line_end(stripped), "", at, len(raw)))
        at += len(raw) + 1
    return _without_tables([line._replace(words=words_of(line.raw)) for line in lines[-_LINES:]])


def _line_end(line: str) -> str:
    """The last words of a long line."""
    return line if len(line) <= _LINE else line[-_LINE:].partition(" ")[2]


def words_of(raw: str) -> str:
    """The line without decoration; the sign of a comparison such as `B > A` stays."""
    if forms.COMPARED.match(raw) or forms.RANKED.match(raw):
        return raw.strip("*_`$ ")
    return bare(forms.ENCLOSED.sub(r" \1 ", forms.BULLET.sub("", raw)))


def _without_tables(lines: list[Line]) -> list[Line]:
    """The lines, with table rows as `key: value` lines."""
    plain, table = list[Line](), list[Line]()
    for line in lines:
        if line.raw.startswith("|"):
            table.append(line)
            continue
        plain += [*_cells(table), line]
        table = []
    return [line for line in [*plain, *_cells(table)] if line.words]


def _cells(table: Sequence[Line]) -> Iterator[Line]:
    """The `key: value` lines of a table: `| Winner | B |`, or a B below a header `Winner`."""
    header, last = list[str](), list[str]()
    for row in table:
        cells = [bare(cell) for cell in row.raw.strip("|").split("|")]
        if not any(re.search(r"\w", cell) for cell in cells):
            header = last  # the row above a rule is a header
            continue
        said = [cell for cell in cells if ":" in cell]
        if len(cells) == 2 and forms.KEY_CELL.match(cells[0]) and not forms.KEY_CELL.match(cells[1]):
            said = [f"{cells[0]}: {cells[1]}"]
        elif header and not said:
            side = re.fullmatch(rf"(?:{forms.NOUNS} )?([AB])", cells[0])
            said = [
                f"{key} {side[1]}: {cell}" if side and forms.RATED.search(key) else f"{key}: {cell}"
                for key, cell in zip(header, cells, strict=False)
                if forms.KEY_CELL.match(key)
            ]
        yield from (row._replace(words=one) for one in said)
        header, last = header or cells, cells


def fields(text: str) -> Iterator[tuple[str, str, int]]:
    """The JSON-like fields that state a verdict: name, value and position."""
    if '"' in text or "'" in text:
        for found in forms.FIELD.finditer(text):
            value = next((one for one in found.groups()[1:] if one is not None), "")
            yield canonical(found[1]), value, found.start()


def sentences(line: str) -> list[str]:
    """The sentences of a line without decoration."""
    return [one for one in forms.SENTENCE_ENDS.split(line) if one]
