"""The parts of a candidate's text: thoughts, code blocks, boxed and announced final answers."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from caps.core.types import Candidate
from caps.evidence.windows import trim

# Where thoughts, fenced blocks and boxed answers stand in a text; total, and linear in its length.


_FENCE = r"(?P<indent>[ \t]*+)(?P<fence>`{3,}+(?=[^`\n]*+$)|~{3,}+)(?P<info>[^\n]*+)$"
_THOUGHT = r"<(?P<slash>/?)think(?:ing)?\s*+>"
# Each way begins with a sign: ten times as quick as `^`, which is tried at every character.
_MARK = re.compile(rf"\n{_FENCE}|{_THOUGHT}", re.MULTILINE | re.IGNORECASE)
_FIRST_LINE = re.compile(rf"{_FENCE}|{_THOUGHT}", re.MULTILINE | re.IGNORECASE)
# Two backslashes: inside JSON every backslash is doubled.
_BOX = re.compile(r"\\\\?(?:boxed|fbox)\s*+\{")
_BETWEEN = re.compile(
    r"(?:[\s,;$~*]|\\+[()\[\],;:! ]|\\+q?quad(?![a-z])|\\+text\s*\{[^{}]*\}"
    r"|(?:and|or)\b|[a-zA-Z]\w{0,3}\s*=)*+"
)
_WIDEST_GAP, _LONGEST_RUN = 60, 50
_BRACE = re.compile(rf"{_BOX.pattern}|\\[{{}}\\]|[{{}}]")


class Enclosed(NamedTuple):
    """A stretch of text from `start` to `stop`; without its delimiters, from `body` to `end`."""

    start: int
    body: int
    end: int
    stop: int

    def within(self, text: str) -> str:
        """What stands between the delimiters."""
        return text[self.body : self.end]


class Layout(NamedTuple):
    """The thoughts of a text in order, and the last fenced block outside them that is not blank."""

    thoughts: tuple[Enclosed, ...]
    block: Enclosed | None


@lru_cache(maxsize=2)  # a view and a signature ask one after the other
def lay_out(text: str) -> Layout:
    """Find thoughts and the last block.

    Fences close as in CommonMark: same sign, at least as long, no word behind, not indented four further.
    A thought without its opening tag began with the text (many chat templates write that tag themselves);
    one without its closing tag runs to the end, like a block. A pair of tags inside a block is quoted.
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
    r"""Find the last complete `\boxed{…}` and those in a row with it: `\boxed{1}` and `\boxed{2}`."""
    first = _BOX.search(text)
    if first is None:
        return ()
    open_: list[int] = []
    found: list[Enclosed] = []
    for mark in _BRACE.finditer(text, first.start()):
        brace = mark.group()
        if brace == "}":
            start = open_.pop() if open_ else -1
            if start > (found[-1].start if found else -1):
                box = Enclosed(start, text.index("{", start) + 1, mark.start(), mark.end())
                found += [box] if box.within(text).strip() else []
        elif brace == "{":
            open_.append(-1)
        elif len(brace) > 2:
            open_.append(mark.start())
    run = found[-1:]
    for box in reversed(found[:-1]):
        gap = text[box.stop : run[0].start]
        if len(run) == _LONGEST_RUN or len(gap) > _WIDEST_GAP or not _BETWEEN.fullmatch(gap):
            break
        run.insert(0, box)
    return tuple(run)


def _marks(text: str) -> Iterator[re.Match[str]]:
    """Fences and the tags of thoughts, in order."""
    places = [place for place in map(text.find, ("```", "~~~", "<")) if place >= 0]
    start = text.rfind("\n", 0, min(places)) if places else len(text)  # found much quicker than a mark
    first = _FIRST_LINE.match(text) if start < 0 else None
    rest = _MARK.finditer(text, first.end() if first else max(start, 0))
    return chain([first] if first else [], rest)


def _closes(mark: re.Match[str], fence: re.Match[str]) -> bool:
    indent, sign, info, _ = mark.groups()
    return sign.startswith(fence["fence"]) and not info.strip() and len(indent) < len(fence["indent"]) + 4


def _block(text: str, fence: re.Match[str], end: int, stop: int) -> Enclosed | None:
    body = min(fence.end() + 1, end)
    return Enclosed(fence.start("indent"), body, end, stop) if text[body:end].strip() else None


# Final answers that stand in no box: `#### 12`, `"answer": "12"`, `The answer is 12.`; total and linear.


LONGEST = 2000
REACH = 20_000
_ANNOUNCED = ("####", "answer", "result")  # one of these is in every mark
_SAYS = (
    r"(?<!\w\w{6})s?[*_`\"]{0,3}\s*+"
    r"(?:(?:is|are|equals|should\s++be|must\s++be)\b(?:\s*+:)?|[:=]|(?=\\[(\[]|\$))"
)
# Each way begins with a sign, not with a group, and looks back from there: ten times as quick.
_FINAL_MARK = re.compile(
    r"\n(?P<hashes>[ \t]*+####(?!#))"
    r"|answer(?P<field>(?:(?<=\"answer)|(?<=\"final[_ ]answer))\"\s*+:)"
    rf"|answer{_SAYS}|result{_SAYS}"
)
# The same letters where case is ignored, not for `lower`.
_UNLIKE_LOWER = (("ſ", "s"), ("ı", "i"), ("İ", "i"))
_STRING = re.compile(r'\s*+"((?:[^"\\]|\\.)*+)', re.DOTALL)
_BARE = re.compile(r"[^,}\n]*+")
_LINE = re.compile(r"[ \t*_:]*+(?:\n[ \t]*+)?([^\n]*+)")
_DISPLAY = re.compile(r"[\s*_:]*+(?:\\\[(.{1,500}?)\\\]|\\\((.{1,500}?)\\\)|\$\$(.{1,500}?)\$\$)", re.DOTALL)
_SENTENCE_END = re.compile(r"[.!?](?=[\s*\"]|$)(?<!\\!)")
_EMPHASIS = " \t*_`"


def concluded(text: str) -> str | None:
    """The last answer a text announces near its end; the sentence ends it, or the field of a JSON object."""
    text = text[-REACH:]
    plain = _lowered(text)
    if not any(word in plain for word in _ANNOUNCED):  # most texts: seen twenty times as fast
        return None
    marks = list(_FINAL_MARK.finditer(f"\n{plain}"))  # so that the first line has a start like any other
    for mark in reversed(marks):
        place, hashes = mark.end() - 1, mark["hashes"] is not None
        found = _field(text, place) if mark["field"] else _rest_of_line(text, place, to_end=hashes)
        if found:
            return found
    return None


def _lowered(text: str) -> str:
    """A text in lowercase, exactly as long."""
    for letter, small in _UNLIKE_LOWER:
        text = text.replace(letter, small)
    return text.lower()


def _field(text: str, start: int) -> str:
    """A JSON text (its closing quote may be missing) or whatever else stands there, as a model meant it.

    Models write `\\frac` as `\frac` inside JSON as often as not, so backslashes before letters stay.
    """
    string = _STRING.match(text, start)
    if string is None:
        bare = _BARE.match(text, start)
        return bare.group()[:LONGEST].strip(_EMPHASIS) if bare else ""
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
    """A candidate taken apart."""

    reasoning: str
    code: str | None
    candidate: Candidate

    @property
    def text(self) -> str:
        """All it wrote."""
        return self.candidate.text

    @property
    def answer(self) -> str | None:
        """Its final answer, looked for when asked: few who want the code do."""
        return final_answer(self.candidate)


def dissect(candidate: Candidate, *, prose: bool = False) -> Anatomy:
    """Take a candidate apart; a stated code or answer goes before one found in the text.

    Without thoughts between tags, the reasoning is what stands before the code. In `prose` (mathematics,
    where an answer may well be one fenced JSON object) it is all of the text, an ellipsis in place of the
    boxed answer.
    """
    text = candidate.text
    layout = lay_out(text)
    stated = candidate.code if candidate.code and candidate.code.strip() else None
    code = layout.block.within(text) if stated is None and layout.block else stated
    thoughts = (thought.within(text).strip() for thought in layout.thoughts)
    reasoning = "\n".join(thought for thought in thoughts if thought)
    if not reasoning and code is not None and not prose:
        reasoning = _before_code(text, layout, stated)
    elif not reasoning:
        reasoning = _without(text, layout, find_boxed(text))
    return Anatomy(reasoning, code, candidate)


def spoken(text: str) -> str:
    """What a text says outside its thoughts."""
    parts, place = [], 0
    for thought in lay_out(text).thoughts:
        parts.append(text[place : thought.start])
        place = thought.stop
    return "".join([*parts, text[place:]])


def last_code_block(text: str) -> str | None:
    """The body of the last fenced block outside thoughts; one that is never closed runs to the end."""
    block = lay_out(text).block
    return None if block is None else block.within(text)


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{…}` that is not blank; of boxes in a row, a list."""
    return _joined(text, find_boxes(text))


def boxed_answer(candidate: Candidate) -> str | None:
    r"""The stated answer, or else the last `\boxed{…}` alone: the paper knows no other answers."""
    boxed = find_boxed(candidate.text)
    return (candidate.answer or "").strip() or (None if boxed is None else _unbox(candidate.text, boxed))


def final_answer(candidate: Candidate) -> str | None:
    """The stated answer, or else the last boxed one, or else one announced in words."""
    return (candidate.answer or "").strip() or _found_answer(candidate.text)


@lru_cache(maxsize=2)  # a view and a signature ask one after the other
def _found_answer(text: str) -> str | None:
    if boxes := find_boxes(text):
        return _joined(text, boxes)
    # Most texts announce nothing, which is quicker to see than where their thoughts are.
    found = concluded(text)
    return concluded(spoken(text)) if found and lay_out(text).thoughts else found


def _joined(text: str, boxes: Sequence[Enclosed]) -> str | None:
    return ", ".join(_unbox(text, boxed) for boxed in boxes) or None


def _unbox(text: str, boxed: Enclosed) -> str:
    content = boxed.within(text).strip()
    escaped = text.startswith(r"\\", boxed.start)  # the box stands inside a JSON text
    return content.replace(r"\\", "\\") if escaped else content


def _before_code(text: str, layout: Layout, stated: str | None) -> str:
    start = _after_thoughts(layout)
    # Not rfind: only the forward search is linear in the worst case.
    place = -1 if stated is None else text.find(stated.strip(), start)
    if place < 0:
        return trim(text[start : layout.block.start if layout.block else len(text)])
    before = text[start:place].rstrip()
    earlier, _, line = before.rpartition("\n")
    return trim(earlier if line.lstrip().startswith(("```", "~~~")) else before)


def _without(text: str, layout: Layout, boxed: Enclosed | None) -> str:
    start = _after_thoughts(layout)
    if boxed is None or boxed.start < start:
        return trim(text[start:])
    before, after = text[start : boxed.start], text[boxed.stop :]
    return trim(f"{before}…{after}") if (before + after).strip() else ""


def _after_thoughts(layout: Layout) -> int:
    """Where the text goes on; only asked when all thoughts are blank (a model told not to think)."""
    return layout.thoughts[-1].stop if layout.thoughts else 0
