"""Texts in plain letters: what a model may take for a letter, or repeat as one."""

import re
from collections.abc import Set
from functools import lru_cache
from html import unescape
from unicodedata import category, combining, normalize

JOINER = "\u2060"  # the word joiner: no width, breaks no line

# What models write for plain signs: full width, wide spaces, emoji letters. One for one. The small form of İ
# has two characters, as that of no other letter.
_FULL_WIDTH = {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_OTHERS = {"\u3000": " ", "\xa0": " ", "\u202f": " ", "\ufe0f": " ", "🅰": "a", "🅱": "b", "İ": "i"}
_HAS_FULL_WIDTH = re.compile("[\uff01-\uff5e]")

# Letters that look like others: Greek, Cyrillic, Armenian, some Latin ones beyond ASCII, white on black.
_ALIKE = dict(
    zip(
        "ΑΒΕΗΙΚΜΝΟΡΤΧΥΖαεικνοτυАВЕІЈКМНОРСТХУҮԌԜаеіјорсухѕԁԛԝһոսıİſK",
        "ABEHIKMNOPTXYZaeikvotuABEIJKMHOPCTXYYGWaeijopcyxsdqwhnuiIsK",
        strict=True,
    )
) | {chr(first + at): chr(65 + at) for first in (0x1F150, 0x1F170) for at in range(26)}
# Zero-width characters that are letters or marks by category: Hangul, Khmer and Mongolian fillers, variation
# selectors.
_FILLERS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
)
_USUAL = bytes((9, 10, *range(32, 127)))
_BREAKS = "\r\x0b\x0c\x85\u2028\u2029"
_FEW = 40  # different characters: replacing each takes less time than one pass over all characters


def small_letters(text: str) -> str:
    """The text in small letters, full-width ones and the like as plain ones; positions do not change."""
    if not text.isascii():
        for sign, plain in {**_OTHERS, **(_FULL_WIDTH if _HAS_FULL_WIDTH.search(text) else {})}.items():
            text = text.replace(sign, plain)
    return text.lower()


def visible(text: str, signs: Set[str]) -> str:
    """The text in plain letters without accents and zero-width characters, as a model may repeat it.

    `signs` are its unusual characters.
    """
    forms = {sign: _visible_form(sign) for sign in signs}
    changed = {sign: form for sign, form in forms.items() if form != sign}
    if "\r" in changed:
        text = text.replace("\r\n", "\n")
    if len(changed) > _FEW:
        text = text.translate({ord(sign): form for sign, form in changed.items()})
    else:
        for sign, form in changed.items():
            text = text.replace(sign, form)
    return unescape(text) if "&" in text else text


def unusual(text: str) -> set[str]:
    """The different characters of a text that are not printable ASCII, tab or line feed."""
    rest = text.encode("utf-8", "surrogatepass").translate(None, _USUAL)
    return set(rest.decode("utf-8", "surrogatepass"))


@lru_cache(maxsize=8192)
def _visible_form(sign: str) -> str:
    """A character as a model may repeat it; itself unless that has plain letters, or none at all."""
    if sign in _BREAKS:
        return "\n"
    parts = (part for part in normalize("NFKD", sign) if not _hidden(part))
    form = "".join(_ALIKE.get(part, part) for part in parts)
    return form if not form or any(map(str.isascii, form)) else sign


def _hidden(sign: str) -> bool:
    """Whether a character is a control, a format character, a filler or a combining mark."""
    return category(sign).startswith("C") or combining(sign) > 0 or sign in _FILLERS
