"""HTML as a tree of elements; the only module that turns untrusted text into markup or JSON."""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

import msgspec

# Invisible characters and those that reorder a line: controls, direction marks, zero widths.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]|\r(?!\n)"
)
_VOID = frozenset({"br", "hr", "input", "meta", "wbr"})
_ESCAPES = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"}
_UNSAFE = re.compile("[<>&\u2028\u2029]")


class TextRef(msgspec.Struct, frozen=True, gc=False, rename={"pieces": "t"}):
    """A text in a `TextTable`: the indices of its pieces, in order. In JSON: {"t": [index, ...]}."""

    pieces: tuple[int, ...]


class Node(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An element with its attributes and children. In JSON: [tag, {attributes}, [child, ...]]."""

    tag: str
    attributes: dict[str, str]
    children: tuple["Child", ...]


Child: TypeAlias = Node | TextRef | str


@dataclass(slots=True)
class TextTable:
    """Long texts, each stored once."""

    texts: list[str] = field(default_factory=list)
    _indices: dict[str, int] = field(default_factory=dict)

    def add(self, pieces: Iterable[str]) -> TextRef:
        """Store the pieces of a text."""
        return TextRef(tuple(self._index(piece) for piece in pieces if piece))

    def _index(self, text: str) -> int:
        index = self._indices.get(text)
        if index is None:
            index = self._indices[text] = len(self.texts)
            self.texts.append(visible(text))
        return index


def el(tag: str, *children: Child | None, **attributes: str | float | bool | None) -> Node:
    """Create an element: `class_` becomes class, `data_game` data-game; None is left out."""
    # A page of a large run has millions of elements: this is written for speed.
    named = {}
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        text = value if type(value) is str else "" if value is True else _number(value)
        named[_attribute(name)] = text if text.isprintable() else visible(text)
    shown = []
    for child in children:
        if child is not None:
            shown.append(visible(child) if type(child) is str and not child.isprintable() else child)
    return Node(tag, named, tuple(shown))


@cache
def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def visible(text: str) -> str:
    """Replace invisible characters by their names, as in ⟦U+202E⟧."""
    if text.isprintable():  # the usual case, and much faster
        return text
    return _INVISIBLE.sub(lambda match: f"⟦U+{ord(match[0]):04X}⟧", text)


def markup(child: Child, texts: Sequence[str] = ()) -> str:
    """Return the tree as HTML."""
    if isinstance(child, str):
        return html.escape(child, quote=False)
    if isinstance(child, TextRef):
        return html.escape("".join(texts[piece] for piece in child.pieces), quote=False)
    opened = "".join(f' {name}="{html.escape(value)}"' for name, value in child.attributes.items())
    if child.tag in _VOID:
        return f"<{child.tag}{opened}>"
    # HTML drops a line break right after <pre>.
    start = "\n" if child.tag == "pre" else ""
    inner = "".join(markup(one, texts) for one in child.children)
    return f"<{child.tag}{opened}>{start}{inner}</{child.tag}>"


def safe_json(value: object) -> str:
    """Encode JSON that can be embedded in a page or a script without ending it."""
    text = msgspec.json.encode(value).decode()
    return _UNSAFE.sub(lambda match: _ESCAPES[match[0]], text)


def _number(value: str | float) -> str:
    if type(value) is int or isinstance(value, str):
        return str(value)
    return f"{value:.1f}".removesuffix(".0")
