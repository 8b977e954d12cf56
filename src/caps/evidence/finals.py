"""Final answers that stand in no box: `#### 12`, `"answer": "12"`, `The answer is 12.`; total and linear."""

import re

LONGEST = 2000
REACH = 20_000
_ANNOUNCED = ("####", "answer", "result")  # one of these is in every mark
_SAYS = (
    r"(?<!\w\w{6})s?[*_`\"]{0,3}\s*+"
    r"(?:(?:is|are|equals|should\s++be|must\s++be)\b(?:\s*+:)?|[:=]|(?=\\[(\[]|\$))"
)
# Each way begins with a sign, not with a group, and looks back from there: ten times as quick.
_MARK = re.compile(
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
    marks = list(_MARK.finditer(f"\n{plain}"))  # so that the first line has a start like any other
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
