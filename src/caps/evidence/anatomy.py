"""The parts of a candidate: what it thought, the program it wrote, the answer it gave."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from caps.core.types import Candidate
from caps.evidence.finals import concluded
from caps.evidence.marks import Enclosed, Layout, find_boxed, find_boxes, lay_out
from caps.evidence.windows import trim


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
