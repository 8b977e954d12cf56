"""Plain data as bytes and back: numbers, texts, lists, dicts, sets, ranges, iterators; nothing that runs.

A letter says the kind; then comes a number ended by `;`, or a length ended by `:` and what it counts. What
is no plain data is kept where it is, and a number goes in its place. Subclasses arrive as what they are built
on, so no method of the sender's (an `__eq__` that is always true) reaches the receiver. Nothing is imported:
this runs at the start of every graded program.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOST = 1_000_000  # items taken from an iterator
DEEPEST = 200  # lists in lists
FAULTS = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, AttributeError)  # of `decode`
_MARKS: dict[Any, bytes] = {None: b"N", True: b"T", False: b"F"}
_VIEWS = {type({}.keys()): b"K", type({}.values()): b"V", type({}.items()): b"M"}


class NotPlainError(TypeError):
    """A value that cannot be sent."""


def refuse(value: object) -> Any:
    """Keep nothing: only plain data may be sent."""
    raise NotPlainError(f"{type(value).__name__} is no plain data")


def encode(value: object, keep: Callable[[object], int] = refuse) -> bytes:
    """Write a value; what is no plain data becomes the number that `keep` gives it."""
    parts: list[bytes] = []
    _write(value, parts.append, keep, DEEPEST)
    return b"".join(parts)


def _write(value: Any, put: Callable[[bytes], object], keep: Callable[[object], int], depth: int) -> None:
    if value is None or value is True or value is False:
        put(_MARKS[value])
    elif isinstance(value, int):
        put(b"i%x;" % int(value))
    elif isinstance(value, float):
        put(b"f%b;" % float.__repr__(value).encode())
    elif isinstance(value, str):
        text = str.encode(value, "utf-8", "surrogatepass")
        put(b"s%d:%b" % (len(text), text))
    elif isinstance(value, dict):
        pairs = list(dict.items(value))
        put(b"d%d:" % len(pairs))
        for key, item in pairs:
            _write(key, put, keep, _deeper(depth))
            _write(item, put, keep, _deeper(depth))
    else:
        letter, items = _items(value)
        if items is None:
            put(b"k%x;" % keep(value))
            return
        put(b"%b%d:" % (letter, len(items)))
        for item in items:
            _write(item, put, keep, _deeper(depth))


def _deeper(depth: int) -> int:
    """One level less to go; whoever compares the value must not run out of stack."""
    if not depth:
        raise ValueError(f"nested deeper than {DEEPEST}")
    return depth - 1


def _items(value: Any) -> tuple[bytes, list[Any] | None]:
    kinds: tuple[tuple[Any, bytes], ...] = ((list, b"l"), (tuple, b"t"), (set, b"e"), (frozenset, b"z"))
    for kind, letter in kinds:
        if isinstance(value, kind):
            return letter, list(kind.__iter__(value))
    if isinstance(value, bytes | bytearray):
        return b"b" if isinstance(value, bytes) else b"a", [value.hex()]
    if isinstance(value, complex):
        return b"c", [value.real, value.imag]
    if isinstance(value, range):
        return b"r", [value.start, value.stop, value.step]
    if type(value) in _VIEWS:
        return _VIEWS[type(value)], list(value)
    name = (type(value).__module__, type(value).__name__)
    if name == ("decimal", "Decimal"):
        return b"D", [str(value)]
    if name == ("fractions", "Fraction"):
        return b"Q", [value.numerator, value.denominator]
    if hasattr(type(value), "__next__"):
        return b"I", [item for item, _ in zip(value, range(MOST), strict=False)]
    return b"", None


def decode(data: bytes, find: Callable[[int], object] = refuse) -> Any:
    """Read a value; whatever is wrong with the bytes is one of `FAULTS`."""
    value, end = _read(data, 0, find, DEEPEST)
    if end != len(data):
        raise ValueError("more follows after the value")
    return value


def _read(data: bytes, place: int, find: Callable[[int], object], depth: int) -> tuple[Any, int]:
    letter = data[place : place + 1]
    place += 1
    if letter in b"NTF" and letter:
        return {b"N": None, b"T": True, b"F": False}[letter], place
    if letter in b"ifk":
        end = data.index(b";", place)
        if letter == b"f":
            return float(data[place:end]), end + 1
        number = int(data[place:end], 16)
        return (number if letter == b"i" else find(number)), end + 1
    end = data.index(b":", place)
    count, place = int(data[place:end]), end + 1
    if letter == b"s":
        if place + count > len(data):
            raise ValueError("the text is cut off")
        return data[place : place + count].decode("utf-8", "surrogatepass"), place + count
    items = []
    for _ in range(count * 2 if letter == b"d" else count):
        item, place = _read(data, place, find, _deeper(depth))
        items.append(item)
    return _BUILD[letter](items), place


def _decimal(items: list[Any]) -> object:
    from decimal import Decimal  # noqa: PLC0415 - only where one comes

    return Decimal(items[0])


def _fraction(items: list[Any]) -> object:
    from fractions import Fraction  # noqa: PLC0415

    return Fraction(*items)


_BUILD: dict[bytes, Callable[[list[Any]], Any]] = {
    b"l": lambda items: items,
    b"t": tuple,
    b"e": set,
    b"z": frozenset,
    b"d": lambda items: dict(zip(items[::2], items[1::2], strict=True)),
    b"b": lambda items: bytes.fromhex(items[0]),
    b"a": lambda items: bytearray.fromhex(items[0]),
    b"c": lambda items: complex(*items),
    b"r": lambda items: range(*items),
    b"I": iter,
    b"K": lambda items: dict.fromkeys(items).keys(),
    b"V": lambda items: dict(enumerate(items)).values(),
    b"M": lambda items: dict(items).items(),
    b"D": _decimal,
    b"Q": _fraction,
}
