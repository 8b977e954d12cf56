"""Where thoughts, fenced blocks and boxed answers stand in a text; total, and linear in its length."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

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
