"""HTML as a tree of elements; the one place where foreign text becomes markup or JSON."""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

# What a reader would not see, or what would turn the line around: controls, direction marks, zero widths.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]|\r(?!\n)"
)
_VOID = frozenset({"br", "hr", "input", "meta", "wbr"})
_ESCAPES = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"}
_RISKY = re.compile("[<>&\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class TextRef:
    """Words that stand in a table of texts: the places of their pieces, in order."""

    pieces: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """An element with its attributes and what is in it."""

    tag: str
    attributes: dict[str, str]
    children: tuple["Child", ...]


Child: TypeAlias = Node | TextRef | str


@dataclass(slots=True)
class Texts:
    """Long words of others, each kept once."""

    kept: list[str] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)

    def passage(self, pieces: Iterable[str]) -> TextRef:
        """Keep the pieces of a text."""
        return TextRef(tuple(self._place(visible(piece)) for piece in pieces if piece))

    def _place(self, text: str) -> int:
        place = self._places.setdefault(text, len(self.kept))
        if place == len(self.kept):
            self.kept.append(text)
        return place


def el(tag: str, *children: Child | None, **attributes: str | float | bool | None) -> Node:
    """An element; `class_` is class, `data_game` is data-game; what is None is left out."""
    named = {
        name.rstrip("_").replace("_", "-"): "" if value is True else _number(value)
        for name, value in attributes.items()
        if value is not None and value is not False
    }
    within = (visible(child) if isinstance(child, str) else child for child in children)
    return Node(tag, named, tuple(child for child in within if child is not None))


def visible(text: str) -> str:
    """A text in which what cannot be seen is named: ⟦U+202E⟧."""
    if text.isprintable():  # nearly always, and much faster to know
        return text
    return _UNSEEN.sub(lambda found: f"⟦U+{ord(found[0]):04X}⟧", text)


def markup(child: Child, texts: Sequence[str] = ()) -> str:
    """The tree as HTML."""
    if isinstance(child, str):
        return html.escape(child, quote=False)
    if isinstance(child, TextRef):
        return html.escape("".join(texts[piece] for piece in child.pieces), quote=False)
    opened = "".join(f' {name}="{html.escape(value)}"' for name, value in child.attributes.items())
    if child.tag in _VOID:
        return f"<{child.tag}{opened}>"
    # A line break right behind <pre> would be swallowed.
    start = "\n" if child.tag == "pre" else ""
    inner = "".join(markup(one, texts) for one in child.children)
    return f"<{child.tag}{opened}>{start}{inner}</{child.tag}>"


def plain(child: Child) -> Any:
    """The tree as lists a script can build it from: [tag, {attributes}, child, ...]."""
    if isinstance(child, str):
        return child
    if isinstance(child, TextRef):
        return {"t": child.pieces}
    return [child.tag, child.attributes, *map(plain, child.children)]


def safe_json(value: object) -> str:
    """JSON that may stand in a page or a script: nothing in it can end either."""
    text = msgspec.json.encode(value).decode()
    return _RISKY.sub(lambda found: _ESCAPES[found[0]], text)


def _number(value: str | float) -> str:
    if isinstance(value, str):
        return visible(value)
    return f"{value:.1f}".removesuffix(".0")
