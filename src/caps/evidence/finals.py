"""Final answers that stand in no box: `#### 12`, `"answer": "12"`, `The answer is 12.`; total and linear."""

import re

LONGEST = 2000
REACH = 20_000
_MARK = re.compile(
    r"(?P<hashes>^[ \t]*####(?!#))"
    r"|(?P<field>\"(?:final[_ ])?answer\"\s*+:)"
    r"|(?P<words>\b(?:final\s++)?(?:answer|result)s?[*_`\"]{0,3}\s*+"
    r"(?:(?:is|are|equals|should\s++be|must\s++be)\b(?:\s*+:)?|[:=]|(?=\\[(\[]|\$)))",
    re.IGNORECASE | re.MULTILINE,
)
_ANNOUNCED = ("####", "answer", "result")  # one of these is in every mark
_STRING = re.compile(r'\s*+"((?:[^"\\]|\\.)*+)', re.DOTALL)
_BARE = re.compile(r"[^,}\n]*+")
_LINE = re.compile(r"[ \t*_:]*+(?:\n[ \t]*+)?([^\n]*+)")
_DISPLAY = re.compile(r"[\s*_:]*+(?:\\\[(.{1,500}?)\\\]|\\\((.{1,500}?)\\\)|\$\$(.{1,500}?)\$\$)", re.DOTALL)
_SENTENCE_END = re.compile(r"[.!?](?=[\s*\"]|$)(?<!\\!)")
_EMPHASIS = " \t*_`"


def concluded(text: str) -> str | None:
    """The last answer a text announces near its end; the sentence ends it, or the field of a JSON object."""
    text = text[-REACH:]
    plain = text.casefold()
    if not any(word in plain for word in _ANNOUNCED):  # most texts: seen twenty times as fast
        return None
    for mark in reversed(list(_MARK.finditer(text))):
        found = _field(text, mark.end()) if mark["field"] else _rest_of_line(text, mark)
        if found:
            return found
    return None


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


def _rest_of_line(text: str, mark: re.Match[str]) -> str:
    if display := _DISPLAY.match(text, mark.end()):
        return next(part for part in display.groups() if part).strip()
    line = _LINE.match(text, mark.end())
    rest = line[1] if line else ""
    end = None if mark["hashes"] else _SENTENCE_END.search(rest)
    return rest[: end.start() if end else len(rest)].strip(_EMPHASIS)
