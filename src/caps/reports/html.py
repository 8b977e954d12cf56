"""Escaped HTML: the only module that turns untrusted text into markup or JSON.

`Html` is a string that holds markup. Every function here escapes plain strings and leaves `Html` as it is.
What a string method or an f-string makes of `Html` is a plain string, which is escaped where it is used: a
forgotten conversion shows tags as text, and never lets a text become a tag.
"""

import html
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

import msgspec

# Invisible characters and those that reorder a line: controls, direction marks, zero widths.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]|\r(?!\n)"
)
_PLAIN = bytes(range(32, 127)) + b"\n\t"  # ASCII that is seen as it is
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}  # & first
_VOID = frozenset({"br", "hr", "input", "meta", "wbr"})
_ESCAPES = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"}


class Html(str):
    """Markup in which every text is escaped."""

    __slots__ = ()


Child: TypeAlias = Html | str | None
Attribute: TypeAlias = str | float | bool | None


def escaped(text: str) -> Html:
    """A text as markup; `Html` stays as it is."""
    if type(text) is Html:
        return text
    text = visible(text)
    for sign, escape in _ENTITIES.items():
        if sign in text:  # much faster than replacing nothing
            text = text.replace(sign, escape)
    return Html(text)


def join(children: Iterable[Child]) -> Html:
    """Several children one after the other, texts escaped; None is left out."""
    return Html("".join([escaped(child) for child in children if child is not None]))


def el(tag: str, *children: Child, **attributes: Attribute) -> Html:
    """Create an element: `class_` becomes class, `data_game` data-game; None and False are left out."""
    # A page of a large run has millions of elements: this is written for speed.
    opened = "".join([_attribute(name, value) for name, value in attributes.items()]) if attributes else ""
    if tag in _VOID:
        return Html(f"<{tag}{opened}>")
    inner = "".join(
        [child if type(child) is Html else escaped(child) for child in children if child is not None]
    )
    start = "\n" if tag == "pre" else ""  # HTML drops a line break right after <pre>
    return Html(f"<{tag}{opened}>{start}{inner}</{tag}>")


@lru_cache(maxsize=20_000, typed=True)
def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    text = value if isinstance(value, str) else "" if value is True else coordinate(value)
    return f' {name.rstrip("_").replace("_", "-")}="{html.escape(visible(text))}"'


def coordinate(value: float) -> str:
    """A number of a drawing, with one digit at most."""
    return str(value) if type(value) is int else f"{value:.1f}".removesuffix(".0")


def visible(text: str) -> str:
    """Replace invisible characters by their names, as in ⟦U+202E⟧."""
    # The usual cases first, since they are much faster to recognise.
    if text.isprintable() or (text.isascii() and not text.encode().translate(None, _PLAIN)):
        return text
    return _INVISIBLE.sub(lambda match: f"⟦U+{ord(match[0]):04X}⟧", text)


def safe_json(value: object) -> str:
    """Encode JSON that can be embedded in a page or a script without ending it."""
    text = msgspec.json.encode(value).decode()
    for sign, escape in _ESCAPES.items():  # much faster than a regular expression: prompts are full of them
        text = text.replace(sign, escape)
    return text
