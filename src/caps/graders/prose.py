"""What a candidate answered, as a short text: out of boxes, JSON and sentences; pure, total, linear."""

import re

from caps.core.types import Candidate
from caps.evidence.anatomy import last_boxed, spoken
from caps.evidence.finals import concluded

LONGEST_BARE = 200
LONGEST_READ = 20_000
LAST_SENTENCES = 3
_FEW, _MANY = 2, 4
_TURN = re.compile(r"<\|(?:im_start|im_end|eot_id|endoftext|end)\|>")
_BLANK_BOX = re.compile(r"\\boxed\s*+\{\s*+\}")
_JSON_END = re.compile(r"\"?[`\",]{0,5}\s{0,20}\n\s{0,20}[}\]]|\"\s{0,20}[`}\]]")
_MATH_WORDS = r"sqrt|sin|cos|tan|cot|sec|csc|log|ln|pi|infinity|and|or"
_WORD = re.compile(rf"(?<![\\a-zA-Z{{])(?!(?:{_MATH_WORDS})\b)[a-zA-Z]{{2,}}+")
_NEGATION = re.compile(
    r"\b(?:no|not|none|cannot|can't|without|undefined|incorrect|unable|un\w+able)\b", re.IGNORECASE
)
_QUANTITY = re.compile(
    r"-?\\?\$?(?<![\w.])(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d++)?(?:/\d++|\s?\\?%)?(?![\w^(\\])"
)
_MATH = re.compile(r"\$([^$]{1,300})\$|\\\((.{1,300}?)\\\)")
_IS = re.compile(
    r"\b(?:is|are|equals|be|makes?|=)\s+(?:equal to |approximately |about |exactly )?", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def candidate_answer(candidate: Candidate) -> str | None:
    """The stated answer, or else the last boxed one, one announced, all of a short text, a conclusion."""
    stated = (candidate.answer or "").strip()
    if stated:
        return settle(stated)
    text = _TURN.split(spoken(candidate.text) or candidate.text, maxsplit=1)[0].strip()
    found = last_boxed(candidate.text) or concluded(text)
    if found:
        return settle(found)
    return settle(text) if len(text) <= LONGEST_BARE else _conclusion(text)


def settle(text: str) -> str:
    """A stated answer without what stands around it: a box, a broken JSON object, a sentence."""
    text = _BLANK_BOX.sub("", text).strip()
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    text = _TURN.split(text, maxsplit=1)[0].strip()
    announced = concluded(text)
    if announced:
        return _balanced(announced) if announced == text else settle(announced)
    if cut := _JSON_END.search(text):
        text = text[: cut.start()].strip() or text
    words = len(_WORD.findall(_MATH.sub(" ", text[:LONGEST_READ])))
    prose = words >= (_FEW if _MATH.search(text) else _MANY)
    return (_conclusion(text) if prose else None) or _balanced(text)


def _balanced(text: str) -> str:
    """Without closing braces that nothing opened, which a wrapper left behind."""
    excess = text.count("}") - text.count("{")
    while excess > 0 and text.endswith("}"):
        text, excess = text[:-1].rstrip(), excess - 1
    return text


def _conclusion(text: str) -> str | None:
    """What the whole of a text says, else one of its last sentences."""
    text = text[-LONGEST_READ:]
    sentences = [part for part in _SENTENCE.split(text) if part.strip()]
    for prose in [text, *reversed(sentences[-LAST_SENTENCES:])]:
        found = _quantity(prose)
        if found:
            return found
    return None


def _quantity(prose: str) -> str | None:
    """The one number a text states, or what a sentence says something *is*; nothing where it denies."""
    if _NEGATION.search(prose):
        return None
    formulas = [one or other for one, other in _MATH.findall(prose)]
    numbers = {found.group().replace("\\", "") for found in _QUANTITY.finditer(_MATH.sub(" ", prose))}
    if len(formulas) + len(numbers) == 1:
        return str(next(iter([*formulas, *numbers])))
    if _SENTENCE.search(prose):
        return None
    for verb in _IS.finditer(prose):
        if found := _MATH.match(prose, verb.end()):
            return str(found[1] or found[2])
        if found := _QUANTITY.match(prose, verb.end()):
            return found.group()
    return None
