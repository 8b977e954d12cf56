"""Texts in plain letters: what a model may take for a letter, or repeat as one."""

import re
from functools import lru_cache
from html import unescape
from unicodedata import category, combining, normalize

JOINER = "\u2060"  # the word joiner: no width, breaks no line

# Signs that models write for a plain one: full width, mathematical, circled, squared, spaces. One for one.
_LOOKS = {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | dict.fromkeys(
    "\u3000\xa0\u202f\ufe0f", " "
)
for _first, _letter in ((0x24B6, "A"), (0x1F130, "A"), (0x1F170, "A"), (0x24D0, "a")):
    _LOOKS |= {chr(_first + at): chr(ord(_letter) + at) for at in range(26)}
for _block in range(13):  # bold, italic, script ... mathematical capitals and small letters
    _LOOKS |= {chr(0x1D400 + 52 * _block + at): chr(65 + at) for at in range(26)}
    _LOOKS |= {chr(0x1D41A + 52 * _block + at): chr(97 + at) for at in range(26)}
_LOOKS |= {chr(0x1D7CE + at): chr(48 + at % 10) for at in range(50)}

# Letters that look like others: Greek, Cyrillic, Armenian, and some Latin ones beyond ASCII.
_ALIKE = str.maketrans(
    "ΑΒΕΗΙΚΜΝΟΡΤΧΥΖαεικνοτυАВЕІЈКМНОРСТХУҮԌԜаеіјорсухѕԁԛԝһոսıİſK",
    "ABEHIKMNOPTXYZaeikvotuABEIJKMHOPCTXYYGWaeijopcyxsdqwhnuiIsK",
)
# Zero-width characters that are letters or marks by category: Hangul, Khmer and Mongolian fillers, variation
# selectors.
_FILLERS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
)
_USUAL = bytes((9, 10, *range(32, 127)))
_BREAKS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")


def plainly(text: str) -> str:
    """The text with full-width and similar letters as plain ones; positions do not change."""
    if text.isascii():
        return text
    for sign in {*text} & _LOOKS.keys():
        text = text.replace(sign, _LOOKS[sign])
    return text


def visible(text: str) -> str:
    """The text in plain letters without accents and zero-width characters, as a model may repeat it."""
    signs = _unusual(text)
    forms = {sign: _ascii_form(sign) for sign in signs}
    if "" not in forms.values():  # the usual case: none, or signs such as … whose plain form is ASCII
        for sign, form in forms.items():
            text = text.replace(sign, form)
    else:
        plain = normalize("NFKD", _BREAKS.sub("\n", text) if any(map(_BREAKS.match, signs)) else text)
        # Few different characters of a text are beyond ASCII: each is looked up once.
        changed = {
            ord(sign): None if _hidden(sign) else _ALIKE.get(ord(sign), sign) for sign in _unusual(plain)
        }
        text = plain.translate(changed) if any(sign != chr(code) for code, sign in changed.items()) else plain
    return unescape(text) if "&" in text else text


def _unusual(text: str) -> set[str]:
    """The different characters of a text that are not printable ASCII, tab or line feed."""
    rest = text.encode("utf-8", "surrogatepass").translate(None, _USUAL)
    return set(rest.decode("utf-8", "surrogatepass"))


@lru_cache(maxsize=4096)
def _ascii_form(sign: str) -> str:
    """The plain form of a character if that is printable ASCII; else an empty text."""
    form = normalize("NFKD", sign)
    return "" if _unusual(form) else form


@lru_cache(maxsize=4096)
def _hidden(sign: str) -> bool:
    """Whether a character is a control, a format character, a filler or a combining mark."""
    return category(sign).startswith("C") or combining(sign) > 0 or sign in _FILLERS
