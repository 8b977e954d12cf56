"""The judge's own words: its reply without reasoning, echoed candidates and quotations; its lines.

Nothing is moved: a blanked stretch becomes as many line breaks, so places in the reply stay comparable.
Of a very long reply only the last `READ_AT_MOST` characters are read, far more than a judge says after its
reasoning. What is open where that end begins (a thought, an echo) stays open.
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
_REASONS = ("think", "thought", "reasoning", "<|channel|>", "assistantfinal")  # one is in every such mark
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
# "Candidate A prints:" before a block says that it is somebody else's.
_INTRODUCED = re.compile(
    r"\b(?:says?|said|claims?|prints?|contains?|includes?|writes?|wrote|ends?|ended|outputs?|injects?"
    r"|tries|returns?|has|looks? like|"
    r"formats?|examples?|template|instructions?|should|must|quotes?|candidate(?:'s)?|asks?|asked)\b",
    re.IGNORECASE,
)
_PURE_LINES = 12


class OwnWords(NamedTuple):
    """A reply as long as the original, only the judge's own words left in it."""

    text: str
    unfinished: bool


class _Mark(NamedTuple):
    """Where reasoning or an echo begins or ends; `kind` is the fence's label, or nothing for reasoning."""

    start: int
    end: int
    opens: bool
    kind: str


def own_words(reply: str, nonce: str) -> OwnWords:
    """Blank what does not count; `unfinished` tells that the reply ends inside its own reasoning.

    Whole echoes go first, so that nothing in them passes for a mark of reasoning.
    """
    if len(reply) > READ_AT_MOST:
        return _said_at_the_end(reply, nonce)
    if reply.isascii():  # beyond ASCII a letter may match another: the Kelvin sign, a long s
        lowered = reply.lower()
        if nonce not in lowered and not any(map(lowered.__contains__, _REASONS)):
            return OwnWords(_without_code_blocks(_unquoted(reply)), unfinished=False)
    fence = re.compile(rf"<<<[ \t]?(BEGIN|END) ([^\n<>]{{1,40}}) {re.escape(nonce)}[ \t]?>>>", re.IGNORECASE)
    words = _blanked(reply, _echoes(_fences(fence, reply)))
    thoughts = [_Mark(m.start(), m.end(), m["open"] is not None, "") for m in REASONING.finditer(words)]
    marks = sorted([*thoughts, *_fences(fence, words)], key=lambda mark: mark.start)
    spans, last = _inside(marks, len(words))
    own = _without_code_blocks(_unquoted(_blanked(words, spans)))
    return OwnWords(own, last is not None and not last.kind)


def without_marks(text: str) -> str:
    """A text with the marks of reasoning as line breaks: what follows one may be all that is said."""
    if text.isascii():
        lowered = text.lower()
        if not any(map(lowered.__contains__, _REASONS)):
            return text
    return REASONING.sub("\n", text)


def _said_at_the_end(reply: str, nonce: str) -> OwnWords:
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
    """Blank the code blocks: what stands in them is shown, not said; only a final one may be the verdict."""
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
    return _blanked(words, spans) if spans else words


def _is_verdict(words: str, opened: re.Match[str], closed: re.Match[str]) -> bool:
    if _PROGRAM.match(opened[2]):
        return False
    before = words[max(0, opened.start() - 400) : opened.start()].rstrip().rpartition("\n")[2]
    if _INTRODUCED.search(before):
        return False
    inside = words[opened.end() : closed.start()].strip()
    if inside.startswith("{") and inside.endswith("}"):
        return bool(_VERDICT_KEY.search(inside))
    lines = [line for line in inside.split("\n", 4 * _PURE_LINES) if line.strip()]
    return 0 < len(lines) <= _PURE_LINES and all(map(_VERDICT_LINE.match, lines))


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


# The lines of a reply without decoration, the cells of its tables and the fields of its JSON.


_LINES = 400  # of a reply's lines, those at its end: keyed lines are looked for in them
_LINE = 600  # of a longer line only the end is read


class Line(NamedTuple):
    """A line of a reply with its place; `words` is the line without decoration."""

    raw: str
    words: str
    start: int
    length: int


def lines_of(text: str) -> list[Line]:
    """The last lines of a text that say anything; rows of tables become `key: value` lines."""
    at = len(text) - len(text.lstrip("\n"))
    lines = list[Line]()
    for raw in text[at:].split("\n"):
        # A line with a joiner in it is a candidate's, repeated: judges write none themselves.
        if raw and (stripped := raw.strip()) and JOINER not in stripped:
            lines.append(Line(_ending(stripped), "", at, len(raw)))
        at += len(raw) + 1
    return _untabled([line._replace(words=words_of(line.raw)) for line in lines[-_LINES:]])


def _ending(line: str) -> str:
    """The last words of a long line."""
    return line if len(line) <= _LINE else line[-_LINE:].partition(" ")[2]


def words_of(raw: str) -> str:
    """A line without decoration; in a comparison such as `B > A` the sign is none."""
    if forms.COMPARED.match(raw) or forms.RANKED.match(raw):
        return raw.strip("*_`$ ")
    return bare(forms.ENCLOSED.sub(r" \1 ", forms.BULLET.sub("", raw)))


def _untabled(lines: list[Line]) -> list[Line]:
    """The lines, with the rows of tables as keyed lines of their own."""
    plain, table = list[Line](), list[Line]()
    for line in lines:
        if line.raw.startswith("|"):
            table.append(line)
            continue
        plain += [*_cells(table), line]
        table = []
    return [line for line in [*plain, *_cells(table)] if line.words]


def _cells(table: Sequence[Line]) -> Iterator[Line]:
    """What the cells of a table say: `| Winner | B |`, or a B below a header `Winner`."""
    header, last = list[str](), list[str]()
    for row in table:
        cells = [bare(cell) for cell in row.raw.strip("|").split("|")]
        if not any(re.search(r"\w", cell) for cell in cells):
            header = last  # what stands above a rule is a header, of a further table perhaps
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
    """The fields of JSON and the like that say a verdict: name, value, and where they start."""
    if '"' in text or "'" in text:
        for found in forms.FIELD.finditer(text):
            value = next((one for one in found.groups()[1:] if one is not None), "")
            yield canonical(found[1]), value, found.start()


def sentences(line: str) -> list[str]:
    """The sentences of a line without decoration."""
    return [one for one in forms.SENTENCE_ENDS.split(line) if one]
