"""Plain data as text and back: numbers, strings, lists, tuples, dicts, sets, ranges, iterators, nothing that runs.

What is no plain data is kept where it is, and a number goes in its place. Subclasses arrive as what they are
built on, so no method of the sender's (an `__eq__` that is always true) reaches the receiver.
"""

import json
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any

MOST = 1_000_000  # items taken from an iterator
_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}
_SPELLED = {("decimal", "Decimal"), ("fractions", "Fraction")}


class NotPlainError(TypeError):
    """A value that cannot be sent."""


def refuse(value: object) -> int:
    """Keep nothing: only plain data may be sent."""
    raise NotPlainError(f"{type(value).__name__} is no plain data")


def to_text(value: object, keep: Callable[[object], int] = refuse) -> str:
    """Write a value."""
    return json.dumps(pack(value, keep))


def to_value(text: str | bytes, find: Callable[[int], object] = refuse) -> Any:
    """Read a value; whatever is wrong with the text is a ValueError, TypeError, KeyError or RecursionError."""
    return unpack(json.loads(text), find)


def pack(value: Any, keep: Callable[[object], int] = refuse) -> Any:
    """Turn a value into what JSON can hold: lists stay, all else is an object with one key, its kind."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        number = int(value)
        return number if number.bit_length() < 64 else {"int": hex(number)}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return [pack(item, keep) for item in list.__iter__(value)]
    return {kind: packed for kind, packed in [_pack_tagged(value, keep)]}  # noqa: C416


def _pack_tagged(value: Any, keep: Callable[[object], int]) -> tuple[str, Any]:
    if isinstance(value, dict):
        return "dict", [[pack(key, keep), pack(item, keep)] for key, item in dict.items(value)]
    for kind in (tuple, set, frozenset):
        if isinstance(value, kind):
            return kind.__name__, [pack(item, keep) for item in kind.__iter__(value)]
    if isinstance(value, bytes | bytearray):
        return type(value).__name__ if type(value) is bytearray else "bytes", bytes(value).hex()
    if isinstance(value, complex):
        return "complex", [value.real, value.imag]
    if isinstance(value, range):
        return "range", [pack(part) for part in (value.start, value.stop, value.step)]
    if type(value) in _VIEWS:
        return _VIEWS[type(value)], [pack(item, keep) for item in value]
    if (type(value).__module__, type(value).__name__) in _SPELLED:
        return type(value).__name__, str(value)
    if hasattr(type(value), "__next__"):
        return "iterator", [pack(item, keep) for item in islice(value, MOST)]
    return "kept", keep(value)


def unpack(data: Any, find: Callable[[int], object] = refuse) -> Any:
    """Turn what `pack` made into a value again."""
    if isinstance(data, list):
        return [unpack(item, find) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, inner),) = data.items()
    if kind == "kept":
        return find(inner)
    if kind in _SCALARS:
        return _SCALARS[kind](inner)
    return _COLLECTIONS[kind]([unpack(item, find) for item in inner])


def _spelled(module: str, name: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        __import__(module)
        return getattr(sys.modules[module], name)(text)

    return read


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "complex": lambda parts: complex(*parts),
    **{name: _spelled(module, name) for module, name in _SPELLED},
}
_COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "dict": dict,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "range": lambda parts: range(*parts),
    "iterator": iter,
    "keys": lambda items: dict.fromkeys(items).keys(),
    "values": lambda items: dict(enumerate(items)).values(),
    "items": lambda items: dict(items).items(),
}
