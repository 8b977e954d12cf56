"""The parts of a candidate's text: thoughts, code blocks, boxed and announced final answers."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from caps.core.types import Candidate
from caps.evidence.windows import trim

# Thoughts, fenced blocks and boxed answers: every search is total and linear in the length of the text

_FENCE = r"(?P<indent>[ \t]*+)(?P<fence>`{3,}+(?=[^`\n]*+$)|~{3,}+)(?P<info>[^\n]*+)$"
_THOUGHT = r"<(?P<slash>/?)think(?:ing)?\s*+>"
# Each alternative begins with a literal, which is ten times as fast as `^`.
_MARK = re.compile(rf"\n{_FENCE}|{_THOUGHT}", re.MULTILINE | re.IGNORECASE)
_FIRST_LINE = re.compile(rf"{_FENCE}|{_THOUGHT}", re.MULTILINE | re.IGNORECASE)
# Two backslashes: inside JSON every backslash is doubled.
_BOX = re.compile(r"\\\\?(?:boxed|fbox)\s*+\{")
_BETWEEN = re.compile(
    r"(?:[\s,;$~*]|\\+[()\[\],;:! ]|\\+q?quad(?![a-z])|\\+text\s*\{[^{}]*\}"
    r"|(?:and|or)\b|[a-zA-Z]\w{0,3}\s*=)*+"
)
_MAX_GAP, _MAX_RUN = 60, 50
_BRACE = re.compile(rf"{_BOX.pattern}|\\[{{}}\\]|[{{}}]")


class Enclosed(NamedTuple):
    """A span of text from `start` to `stop`, and without its delimiters from `body` to `end`."""

    start: int
    body: int
    end: int
    stop: int

    def within(self, text: str) -> str:
        """The text between the delimiters."""
        return text[self.body : self.end]


class Layout(NamedTuple):
    """The thoughts of a text, and the last fenced block outside them that is not blank."""

    thoughts: tuple[Enclosed, ...]
    block: Enclosed | None


@lru_cache(maxsize=2)  # a view and a signature ask in turn
def find_layout(text: str) -> Layout:
    """Find the thoughts and the last block of a text.

    Fences close as in CommonMark: same character, at least as long, no info string, less than four columns
    further indented. A thought without an opening tag starts with the text, since many chat templates write
    that tag. A thought or block that is never closed runs to the end. Tags inside a block are quoted text.
    """
    thoughts: list[Enclosed] = []
    block: Enclosed | None = None
    fence: re.Match[str] | None = None
    thought: re.Match[str] | None = None
    quoted = False
    for mark in _marks(text):
        slash = mark["slash"]
        if slash is None:
            if thought is None and fence is None:
                fence, quoted = mark, False
            elif thought is None and fence is not None and _closes(mark, fence):
                block, fence = _block(text, fence, mark.start("indent"), mark.end()) or block, None
        elif not slash:
            if fence is not None:
                quoted = True
            elif thought is None:
                thought = mark
        elif thought is not None:
            thoughts.append(Enclosed(thought.start(), thought.end(), mark.start(), mark.end()))
            thought = None
        elif quoted:
            quoted = False
        else:
            start, body = thoughts.pop()[:2] if thoughts else (0, 0)
            thoughts.append(Enclosed(start, body, mark.start(), mark.end()))
            block = fence = None
    if thought is not None:
        thoughts.append(Enclosed(thought.start(), thought.end(), len(text), len(text)))
    elif fence is not None:
        block = _block(text, fence, len(text), len(text)) or block
    return Layout(tuple(thoughts), block)


def find_boxed(text: str) -> Enclosed | None:
    r"""Find the last complete `\boxed{…}` that is not blank, nested braces included."""
    boxes = find_boxes(text)
    return boxes[-1] if boxes else None


def find_boxes(text: str) -> tuple[Enclosed, ...]:
    r"""Find the last complete `\boxed{…}` and those listed with it: `\boxed{1}` and `\boxed{2}`."""
    first = _BOX.search(text)
    if first is None:
        return ()
    open_: list[int] = []
    boxes: list[Enclosed] = []
    for mark in _BRACE.finditer(text, first.start()):
        brace = mark.group()
        if brace == "}":
            start = open_.pop() if open_ else -1
            if start > (boxes[-1].start if boxes else -1):
                box = Enclosed(start, text.index("{", start) + 1, mark.start(), mark.end())
                boxes += [box] if box.within(text).strip() else []
        elif brace == "{":
            open_.append(-1)
        elif len(brace) > 2:
            open_.append(mark.start())
    run = boxes[-1:]
    for box in reversed(boxes[:-1]):
        gap = text[box.stop : run[0].start]
        if len(run) == _MAX_RUN or len(gap) > _MAX_GAP or not _BETWEEN.fullmatch(gap):
            break
        run.insert(0, box)
    return tuple(run)


def _marks(text: str) -> Iterator[re.Match[str]]:
    """Fences and the tags of thoughts, in order."""
    positions = [position for position in map(text.find, ("```", "~~~", "<")) if position >= 0]
    start = text.rfind("\n", 0, min(positions)) if positions else len(text)  # much faster than the pattern
    first = _FIRST_LINE.match(text) if start < 0 else None
    rest = _MARK.finditer(text, first.end() if first else max(start, 0))
    return chain([first] if first else [], rest)


def _closes(mark: re.Match[str], fence: re.Match[str]) -> bool:
    indent, sign, info, _ = mark.groups()
    return sign.startswith(fence["fence"]) and not info.strip() and len(indent) < len(fence["indent"]) + 4


def _block(text: str, fence: re.Match[str], end: int, stop: int) -> Enclosed | None:
    body = min(fence.end() + 1, end)
    return Enclosed(fence.start("indent"), body, end, stop) if text[body:end].strip() else None


# Final answers without a box: `#### 12`, `"answer": "12"`, `The answer is 12.`

MAX_ANSWER_CHARACTERS = 2000
SEARCHED_CHARACTERS = 20_000
_ANSWER_WORDS = ("####", "answer", "result")  # one of these is in every mark
_ANSWER_VERB = (
    r"(?<!\w\w{6})s?[*_`\"]{0,3}\s*+"
    r"(?:(?:is|are|equals|should\s++be|must\s++be)\b(?:\s*+:)?|[:=]|(?=\\[(\[]|\$))"
)
# Each alternative begins with a literal and looks back from there, which is ten times as fast.
_FINAL_MARK = re.compile(
    r"\n(?P<hashes>[ \t]*+####(?!#))"
    r"|answer(?P<field>(?:(?<=\"answer)|(?<=\"final[_ ]answer))\"\s*+:)"
    rf"|answer{_ANSWER_VERB}|result{_ANSWER_VERB}"
)
# Letters that match ASCII ones under IGNORECASE but not after `lower`.
_CASE_VARIANTS = (("ſ", "s"), ("ı", "i"), ("İ", "i"))
_STRING = re.compile(r'\s*+"((?:[^"\\]|\\.)*+)', re.DOTALL)
_BARE = re.compile(r"[^,}\n]*+")
_LINE = re.compile(r"[ \t*_:]*+(?:\n[ \t]*+)?([^\n]*+)")
_DISPLAY = re.compile(r"[\s*_:]*+(?:\\\[(.{1,500}?)\\\]|\\\((.{1,500}?)\\\)|\$\$(.{1,500}?)\$\$)", re.DOTALL)
_SENTENCE_END = re.compile(r"[.!?](?=[\s*\"]|$)(?<!\\!)")
_EMPHASIS = " \t*_`"


def announced_answer(text: str) -> str | None:
    """The last answer announced near the end of a text, up to the end of its sentence or JSON field."""
    text = text[-SEARCHED_CHARACTERS:]
    plain = _lowered(text)
    if not any(word in plain for word in _ANSWER_WORDS):  # most texts: twenty times as fast
        return None
    marks = list(_FINAL_MARK.finditer(f"\n{plain}"))  # so that the first line also begins with a line break
    for mark in reversed(marks):
        position, hashes = mark.end() - 1, mark["hashes"] is not None
        answer = _field(text, position) if mark["field"] else _rest_of_line(text, position, to_end=hashes)
        if answer:
            return answer
    return None


def _lowered(text: str) -> str:
    """The text in lowercase, with the same length."""
    for letter, replacement in _CASE_VARIANTS:
        text = text.replace(letter, replacement)
    return text.lower()


def _field(text: str, start: int) -> str:
    """A JSON string, whose closing quote may be missing, or a bare value.

    Models often write `\\frac` as `\frac` inside JSON, so backslashes before letters stay.
    """
    string = _STRING.match(text, start)
    if string is None:
        bare = _BARE.match(text, start)
        return bare.group()[:MAX_ANSWER_CHARACTERS].strip(_EMPHASIS) if bare else ""
    content = string[1].replace(r"\\", "\\").replace(r"\"", '"')
    return content.strip()


def _rest_of_line(text: str, start: int, *, to_end: bool) -> str:
    if display := _DISPLAY.match(text, start):
        return next(part for part in display.groups() if part).strip()
    line = _LINE.match(text, start)
    rest = line[1] if line else ""
    end = None if to_end else _SENTENCE_END.search(rest)
    return rest[: end.start() if end else len(rest)].strip(_EMPHASIS)


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The parts of a candidate: reasoning, code and final answer."""

    reasoning: str
    code: str | None
    candidate: Candidate

    @property
    def text(self) -> str:
        """The whole text."""
        return self.candidate.text

    @property
    def answer(self) -> str | None:
        """The final answer; computed on demand, since most callers need only the code."""
        return final_answer(self.candidate)


def dissect(candidate: Candidate, *, prose: bool = False) -> Anatomy:
    """Split a candidate into its parts; stated code and answers take precedence over the text.

    Without tagged thoughts, the reasoning is the text before the code. With `prose` (mathematics, where the
    answer may be a fenced JSON object) it is the whole text, with an ellipsis for the boxed answer.
    """
    text = candidate.text
    layout = find_layout(text)
    stated_code = candidate.code if candidate.code and candidate.code.strip() else None
    code = layout.block.within(text) if stated_code is None and layout.block else stated_code
    thoughts = (thought.within(text).strip() for thought in layout.thoughts)
    reasoning = "\n".join(thought for thought in thoughts if thought)
    if not reasoning and code is not None and not prose:
        reasoning = _before_code(text, layout, stated_code)
    elif not reasoning:
        reasoning = _without(text, layout, find_boxed(text))
    return Anatomy(reasoning, code, candidate)


def spoken(text: str) -> str:
    """The text outside its thoughts."""
    parts, position = [], 0
    for thought in find_layout(text).thoughts:
        parts.append(text[position : thought.start])
        position = thought.stop
    return "".join([*parts, text[position:]])


def last_code_block(text: str) -> str | None:
    """The body of the last fenced block outside thoughts; an unclosed block runs to the end."""
    block = find_layout(text).block
    return None if block is None else block.within(text)


def fence_label(text: str) -> str:
    """The first word after the opening fence of the last block: `python`; empty without one."""
    block = find_layout(text).block
    opening = "" if block is None else text[block.start : block.body].strip().lstrip("`~")
    return (opening.split() or [""])[0]


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{…}` that is not blank; of boxes in a row, a list."""
    return _join_boxes(text, find_boxes(text))


def boxed_answer(candidate: Candidate) -> str | None:
    r"""The stated answer, or else the last `\boxed{…}` alone: the paper knows no other answers."""
    boxed = find_boxed(candidate.text)
    return (candidate.answer or "").strip() or (None if boxed is None else _unbox(candidate.text, boxed))


def final_answer(candidate: Candidate) -> str | None:
    """The stated answer, else the last boxed one, else the last announced one."""
    return (candidate.answer or "").strip() or _extract_answer(candidate.text)


@lru_cache(maxsize=32)  # views, signatures and reports ask about all candidates of a case in turn
def _extract_answer(text: str) -> str | None:
    if boxes := find_boxes(text):
        return _join_boxes(text, boxes)
    # Checked first: most texts announce nothing, and finding thoughts is slower.
    announced = announced_answer(text)
    return announced_answer(spoken(text)) if announced and find_layout(text).thoughts else announced


def _join_boxes(text: str, boxes: Sequence[Enclosed]) -> str | None:
    return ", ".join(_unbox(text, boxed) for boxed in boxes) or None


def _unbox(text: str, boxed: Enclosed) -> str:
    content = boxed.within(text).strip()
    escaped = text.startswith(r"\\", boxed.start)  # the box is inside a JSON string
    return content.replace(r"\\", "\\") if escaped else content


def _before_code(text: str, layout: Layout, stated_code: str | None) -> str:
    start = _after_thoughts(layout)
    # Not rfind: only the forward search is linear in the worst case.
    position = -1 if stated_code is None else text.find(stated_code.strip(), start)
    if position < 0:
        return trim(text[start : layout.block.start if layout.block else len(text)])
    before = text[start:position].rstrip()
    earlier, _, line = before.rpartition("\n")
    return trim(earlier if line.lstrip().startswith(("```", "~~~")) else before)


def _without(text: str, layout: Layout, boxed: Enclosed | None) -> str:
    start = _after_thoughts(layout)
    if boxed is None or boxed.start < start:
        return trim(text[start:])
    before, after = text[start : boxed.start], text[boxed.stop :]
    return trim(f"{before}…{after}") if (before + after).strip() else ""


def _after_thoughts(layout: Layout) -> int:
    """The end of the thoughts; used only if all are blank, as with thinking turned off."""
    return layout.thoughts[-1].stop if layout.thoughts else 0
