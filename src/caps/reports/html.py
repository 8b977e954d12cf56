"""HTML as a tree of elements; the only module that turns untrusted text into markup or JSON.

What a page shows thousands of times is a `Template`: the page holds it once, and each use is its values.
"""

import html
import re
from collections.abc import Callable, Iterable, Sequence
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


class TextRef(msgspec.Struct, frozen=True, gc=False, rename={"pieces": "t"}):
    """A text in a `TextTable`: the indices of its pieces, in order. In JSON: {"t": [index, ...]}."""

    pieces: tuple[int, ...]


class Hole(msgspec.Struct, frozen=True, gc=False, rename={"index": "h", "before": "p"}):
    """The place of a value in a template; in an attribute, a text may stand before it (`"#g" + hole`)."""

    index: int
    before: str = ""

    def __radd__(self, before: str) -> "Hole":
        """The hole with a text before it."""
        return Hole(self.index, before + self.before)


class Filled(msgspec.Struct, frozen=True, gc=False, rename={"template": "f", "values": "v"}):
    """A template with its values. In JSON: {"f": name, "v": [value, ...]}."""

    template: str
    values: tuple["Value", ...]


class Node(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An element with its attributes and children. In JSON: [tag, {attributes}, [child, ...]]."""

    tag: str
    attributes: dict[str, str | Hole]
    children: tuple["Child", ...]


Child: TypeAlias = Node | Filled | TextRef | Hole | str
Element: TypeAlias = Node | Filled
Value: TypeAlias = Element | TextRef | str | float | Sequence[Element] | None
TEMPLATES: dict[str, Node] = {}  # by name; a page holds all of them


class Template:
    """An element with holes; call it with their values, in order.

    A value of an attribute is a text or a number, and None leaves the attribute out. A value between elements
    is a child, a list of elements, or None for nothing.
    """

    __slots__ = ("name",)

    def __init__(self, name: str, holes: int, make: Callable[..., Node]) -> None:
        self.name = name
        TEMPLATES[name] = make(*map(Hole, range(holes)))

    def __call__(self, *values: Value) -> Filled:
        """Fill the holes."""
        shown = [
            (value if value.isprintable() else visible(value)) if type(value) is str
            else round(value, 1) if type(value) is float
            else value
            for value in values
        ]  # fmt: skip
        return Filled(self.name, tuple(shown))


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


def el(tag: str, *children: Child | None, **attributes: str | float | bool | Hole | None) -> Node:
    """Create an element: `class_` becomes class, `data_game` data-game; None is left out."""
    # A page of a large run has millions of elements: this is written for speed.
    named: dict[str, str | Hole] = {}
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        if isinstance(value, Hole):
            named[_attribute(name)] = value
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


def markup(child: Child, texts: Sequence[str] = (), values: Sequence[Value] = ()) -> str:
    """Return the tree as HTML; `values` are those of the template it stands in."""
    if isinstance(child, str):
        return html.escape(child, quote=False)
    if isinstance(child, TextRef):
        return html.escape("".join(texts[piece] for piece in child.pieces), quote=False)
    if isinstance(child, Filled):
        return markup(TEMPLATES[child.template], texts, child.values)
    if isinstance(child, Hole):
        return "".join(markup(one, texts) for one in _children(values[child.index]))
    opened = "".join(
        f' {name}="{html.escape(text)}"'
        for name, value in child.attributes.items()
        if (text := _attribute_text(value, values)) is not None
    )
    if child.tag in _VOID:
        return f"<{child.tag}{opened}>"
    # HTML drops a line break right after <pre>.
    start = "\n" if child.tag == "pre" else ""
    inner = "".join(markup(one, texts, values) for one in child.children)
    return f"<{child.tag}{opened}>{start}{inner}</{child.tag}>"


def _attribute_text(value: str | Hole, values: Sequence[Value]) -> str | None:
    if not isinstance(value, Hole):
        return value
    filled = values[value.index]
    if filled is None:
        return None
    if not isinstance(filled, str | int | float):
        raise TypeError(f"the value of an attribute is a text or a number, not {filled!r}")
    return value.before + _number(filled)


def _children(value: Value) -> Sequence[Child]:
    """What stands in a hole between elements."""
    if value is None:
        return ()
    if isinstance(value, int | float):
        return (_number(value),)
    return (value,) if isinstance(value, str | Node | Filled | TextRef) else value


def safe_json(value: object) -> str:
    """Encode JSON that can be embedded in a page or a script without ending it."""
    text = msgspec.json.encode(value).decode()
    for sign, escape in _ESCAPES.items():  # much faster than a regular expression: prompts are full of them
        text = text.replace(sign, escape)
    return text


def _number(value: str | float) -> str:
    if type(value) is int or isinstance(value, str):
        return str(value)
    return f"{value:.1f}".removesuffix(".0")
