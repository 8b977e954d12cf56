"""Serialization of plain data: numbers, texts, lists, dicts, sets, ranges, iterators; no code.

A letter gives the type; then follows a number ended by `;`, or a length ended by `:` and the content. Other
objects stay in their process, and a number is sent in their offset. Subclasses are sent as their base type,
so no method of the sender (an `__eq__` that is always true) reaches the receiver. Imports are minimal: this
runs at the start of every graded program.

The decoder treats the bytes as hostile. `decode` checks every length before it uses it, stays within `BYTES`,
`DEPTH`, `ITEMS` and `DIGITS`, creates built-in types only, and raises only `UnreadableError`. Sets and dicts
with obvious hash collisions are refused, but cleverly chosen numbers can still take long, so `decode` belongs
in a process that can be killed. Outside the sandbox, sets and dicts are decoded as lists
(`caps.graders.results`).
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Builders = Mapping[bytes, Callable[[list[Any]], Any]]

MAX_ITERATED = 250_000  # items taken from an iterator
BYTES = 16 << 20  # of a whole message
DEPTH = 200  # lists in lists
ITEMS = 1_000_000  # values in a message, those in lists and the lists themselves
DIGITS = 100_000  # hexadecimal digits of a whole number
RATIO_DIGITS = 10_000  # digits of the parts of a fraction or decimal, which are reduced to lowest terms
RATIO_COST = 20  # items that a fraction or a decimal counts as, since it takes as long
SAME_HASH = 64  # items of a set that may have the same hash
EXPONENT_DIGITS = 4  # digits of a decimal's exponent
_COUNT_DIGITS = 9
_FLOAT_BYTES = 32
_HEX = b"0123456789abcdef"
_MARKS: dict[Any, bytes] = {None: b"N", True: b"T", False: b"F"}
_CONSTANTS = {b"N": None, b"T": True, b"F": False}
_VIEWS = {type({}.keys()): b"K", type({}.values()): b"V", type({}.items()): b"M"}


PLAIN_TYPES = (str, bytes, int, float, complex, list, tuple, dict, set, frozenset)


class NotPlainError(TypeError):
    """A value that cannot be sent."""


class UnreadableError(ValueError):
    """Bytes that are not a value, or exceed the bounds."""


def refuse(value: object) -> Any:
    """Refuse an object: only plain data may be sent."""
    raise NotPlainError(f"{type(value).__name__} is not plain data")


def encode(value: object, keep: Callable[[object], int] = refuse) -> bytes:
    """Serialize a value; other objects become the number that `keep` returns."""
    parts: list[bytes] = []
    _write(value, parts.append, keep, DEPTH)
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
    """The remaining depth, one level down; bounded so that comparing values cannot overflow the stack."""
    if not depth:
        raise ValueError(f"nested deeper than {DEPTH}")
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
    if _is_a("decimal", "Decimal", value):
        return b"D", [str(value)]
    if _is_a("fractions", "Fraction", value):
        return b"Q", [value.numerator, value.denominator]
    if hasattr(type(value), "__next__"):
        return b"I", [item for item, _ in zip(value, range(MAX_ITERATED), strict=False)]
    return b"", None


def _is_a(module: str, name: str, value: object) -> bool:
    """Whether a value is an instance of a class whose module may not be loaded."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and issubclass(type(value), kind)


def decode(
    data: bytes,
    find: Callable[[int], object] = refuse,
    build: Builders | None = None,
    *,
    most: int = BYTES,
    items: int = ITEMS,
) -> Any:
    """Parse a value; any error in the bytes is an `UnreadableError`.

    `find` returns the object for a number; `build` creates values other than numbers and texts from their
    items.
    """
    if len(data) > most:
        raise UnreadableError(f"{len(data):,} bytes are more than the {most:,} that are read")
    reader = _Reader(data, find, build or PYTHON, items)
    try:
        value, end = reader.read(0, DEPTH)
    except UnreadableError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, AttributeError) as error:
        raise UnreadableError(f"{type(error).__name__}: {str(error)[:200]}") from None
    if end != len(data):
        raise UnreadableError("more follows after the value")
    return value


class _Reader:
    """Parses one message and counts its values."""

    def __init__(self, data: bytes, find: Callable[[int], object], build: Builders, items: int) -> None:
        self._data, self._find, self._build = data, find, build
        self._room = self._items = items

    def read(self, offset: int, depth: int) -> tuple[Any, int]:
        """The value that starts at an offset, and the offset of its end."""
        data = self._data
        letter = data[offset : offset + 1]
        offset += 1
        self._room -= RATIO_COST if letter in (b"D", b"Q") else 1
        if self._room < 0:
            raise UnreadableError(f"more than {self._items:,} values")
        if letter in _CONSTANTS:
            return _CONSTANTS[letter], offset
        if letter in (b"i", b"k"):
            number, offset = self._number(offset)
            return (number if letter == b"i" else self._find(number)), offset
        if letter == b"f":
            end = data.find(b";", offset, offset + _FLOAT_BYTES)
            if end < 0:
                raise UnreadableError("a number without an end")
            return float(data[offset:end]), end + 1
        count, offset = self._count(offset)
        if count > len(data) - offset:
            raise UnreadableError("it is cut off")
        if letter == b"s":
            return data[offset : offset + count].decode("utf-8", "surrogatepass"), offset + count
        make = self._build.get(letter)
        if make is None:
            raise UnreadableError("no kind of value")
        if not depth:
            raise UnreadableError(f"nested deeper than {DEPTH}")
        if count > self._room:
            raise UnreadableError(f"more than {self._items:,} values")
        items = []
        for _ in range(count * 2 if letter == b"d" else count):
            item, offset = self.read(offset, depth - 1)
            items.append(item)
        return make(items), offset

    def _number(self, offset: int) -> tuple[int, int]:
        end = self._data.find(b";", offset, offset + DIGITS + 2)
        digits = self._data[offset:end].removeprefix(b"-")
        if end < 0 or not 0 < len(digits) <= DIGITS or digits.strip(_HEX):
            raise UnreadableError(f"no whole number of at most {DIGITS:,} digits")
        return int(self._data[offset:end], 16), end + 1

    def _count(self, offset: int) -> tuple[int, int]:
        end = self._data.find(b":", offset, offset + _COUNT_DIGITS + 1)
        if end < 0 or not self._data[offset:end].isdigit():
            raise UnreadableError("a length is missing")
        return int(self._data[offset:end]), end + 1


def only(items: list[Any], *kinds: type) -> list[Any]:
    """Check that the items have exactly these types."""
    if [type(item) for item in items] != list(kinds):
        raise UnreadableError("parts of the wrong kind")
    return items


def decimal(items: list[Any]) -> object:
    """Build a decimal number from its text."""
    from decimal import Decimal  # noqa: PLC0415 - only if needed

    (text,) = only(items, str)
    digits, _, exponent = text.upper().partition("E")
    if len(digits) > RATIO_DIGITS or len(exponent.lstrip("+-")) > EXPONENT_DIGITS:
        raise UnreadableError("a decimal number of too many digits")
    if not text.isascii() or "_" in text or " " in text:
        raise UnreadableError("no decimal number")
    number = Decimal(text)
    if number.is_snan():  # comparing one raises
        raise UnreadableError("no decimal number")
    return number


def fraction(items: list[Any]) -> object:
    """Build a fraction from two integers."""
    from fractions import Fraction  # noqa: PLC0415

    top, bottom = only(items, int, int)
    if bottom <= 0 or max(top.bit_length(), bottom.bit_length()) > 4 * RATIO_DIGITS:
        raise UnreadableError("no fraction, or one of too many digits")
    return Fraction(top, bottom)


def _check_hashes(items: list[Any]) -> list[Any]:
    """Refuse items for hashing if too many have the same hash."""
    if len(items) > SAME_HASH:
        hashes = sorted(map(hash, items))
        if any(one == other for one, other in zip(hashes, hashes[SAME_HASH:], strict=False)):
            raise UnreadableError(f"more than {SAME_HASH} items with one hash")
    return items


def decode_given(data: bytes, find: Callable[[int], object] = refuse) -> Any:
    """Parse data of the tests, without bounds on size."""
    return decode(data, find, most=sys.maxsize, items=sys.maxsize)


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(_check_hashes(items[::2]), items[1::2], strict=True))


PYTHON: Builders = {
    b"l": lambda items: items,
    b"t": tuple,
    b"e": lambda items: set(_check_hashes(items)),
    b"z": lambda items: frozenset(_check_hashes(items)),
    b"d": _pairs,
    b"b": lambda items: bytes.fromhex(only(items, str)[0]),
    b"a": lambda items: bytearray.fromhex(only(items, str)[0]),
    b"c": lambda items: complex(*only(items, float, float)),
    b"r": lambda items: range(*only(items, int, int, int)),
    b"I": iter,
    b"K": lambda items: dict.fromkeys(_check_hashes(items)).keys(),
    b"V": lambda items: dict(enumerate(items)).values(),
    b"M": lambda items: _pairs([part for key, value in items for part in (key, value)]).items(),
    b"D": decimal,
    b"Q": fraction,
}
