"""Plain data as bytes and back: numbers, texts, lists, dicts, sets, ranges, iterators; nothing that runs.

A letter says the kind; then comes a number ended by `;`, or a length ended by `:` and what it counts. What
is no plain data is kept where it is, and a number goes in its place. Subclasses arrive as what they are built
on, so no method of the sender's (an `__eq__` that is always true) reaches the receiver. Next to nothing is
imported: this runs at the start of every graded program.

Whoever reads takes the bytes for hostile. `decode` checks every length before it goes by it, keeps within
`BYTES`, `DEPTH`, `ITEMS` and `DIGITS`, makes values of the built-in types alone, and raises nothing but
`UnreadableError`. Sets and dicts whose items were made to collide are refused where that is plain to see, but
a cleverer choice of numbers can still take long, so `decode` belongs in a process that can be killed; the
one outside the sandbox takes sets and dicts as lists (`caps.graders.results`).
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Builders = Mapping[bytes, Callable[[list[Any]], Any]]

MOST = 250_000  # items taken from an iterator
BYTES = 16 << 20  # of a whole message
DEPTH = 200  # lists in lists
ITEMS = 1_000_000  # values in a message, those in lists and the lists themselves
DIGITS = 100_000  # hexadecimal digits of a whole number
RATIO_DIGITS = 10_000  # digits of a fraction's or a decimal's parts: they are brought to lowest terms
RATIO_COST = 20  # a fraction or a decimal counts as so many items, since it takes as long
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
    """Bytes that are no value, or one beyond the bounds."""


def refuse(value: object) -> Any:
    """Keep nothing: only plain data may be sent."""
    raise NotPlainError(f"{type(value).__name__} is no plain data")


def encode(value: object, keep: Callable[[object], int] = refuse) -> bytes:
    """Write a value; what is no plain data becomes the number that `keep` gives it."""
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
    """One level less to go; whoever compares the value must not run out of stack."""
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
        return b"I", [item for item, _ in zip(value, range(MOST), strict=False)]
    return b"", None


def _is_a(module: str, name: str, value: object) -> bool:
    """Whether it is of a class that may not be loaded; a class of the same name is another."""
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
    """Read a value; whatever is wrong with the bytes is an `UnreadableError`.

    `find` gives what stands behind the number of an object that was kept; `build` makes the values that
    are more than numbers, texts and lists out of their items.
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
    """Reads one message and counts what it makes of it."""

    def __init__(self, data: bytes, find: Callable[[int], object], build: Builders, items: int) -> None:
        self._data, self._find, self._build = data, find, build
        self._room = self._items = items

    def read(self, place: int, depth: int) -> tuple[Any, int]:
        """The value that begins at a place, and where it ends."""
        data = self._data
        letter = data[place : place + 1]
        place += 1
        self._room -= RATIO_COST if letter in (b"D", b"Q") else 1
        if self._room < 0:
            raise UnreadableError(f"more than {self._items:,} values")
        if letter in _CONSTANTS:
            return _CONSTANTS[letter], place
        if letter in (b"i", b"k"):
            number, place = self._number(place)
            return (number if letter == b"i" else self._find(number)), place
        if letter == b"f":
            end = data.find(b";", place, place + _FLOAT_BYTES)
            if end < 0:
                raise UnreadableError("a number without an end")
            return float(data[place:end]), end + 1
        count, place = self._count(place)
        if count > len(data) - place:
            raise UnreadableError("it is cut off")
        if letter == b"s":
            return data[place : place + count].decode("utf-8", "surrogatepass"), place + count
        make = self._build.get(letter)
        if make is None:
            raise UnreadableError("no kind of value")
        if not depth:
            raise UnreadableError(f"nested deeper than {DEPTH}")
        if count > self._room:
            raise UnreadableError(f"more than {self._items:,} values")
        items = []
        for _ in range(count * 2 if letter == b"d" else count):
            item, place = self.read(place, depth - 1)
            items.append(item)
        return make(items), place

    def _number(self, place: int) -> tuple[int, int]:
        end = self._data.find(b";", place, place + DIGITS + 2)
        digits = self._data[place:end].removeprefix(b"-")
        if end < 0 or not 0 < len(digits) <= DIGITS or digits.strip(_HEX):
            raise UnreadableError(f"no whole number of at most {DIGITS:,} digits")
        return int(self._data[place:end], 16), end + 1

    def _count(self, place: int) -> tuple[int, int]:
        end = self._data.find(b":", place, place + _COUNT_DIGITS + 1)
        if end < 0 or not self._data[place:end].isdigit():
            raise UnreadableError("a length is missing")
        return int(self._data[place:end]), end + 1


def only(items: list[Any], *kinds: type) -> list[Any]:
    """Items that are exactly as many and of exactly these types."""
    if [type(item) for item in items] != list(kinds):
        raise UnreadableError("parts of the wrong kind")
    return items


def decimal(items: list[Any]) -> object:
    """A decimal number out of its digits, point and exponent."""
    from decimal import Decimal  # noqa: PLC0415 - only where one comes

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
    """A fraction out of two whole numbers."""
    from fractions import Fraction  # noqa: PLC0415

    top, bottom = only(items, int, int)
    if bottom <= 0 or max(top.bit_length(), bottom.bit_length()) > 4 * RATIO_DIGITS:
        raise UnreadableError("no fraction, or one of too many digits")
    return Fraction(top, bottom)


def _unlike(items: list[Any]) -> list[Any]:
    """Items to be hashed: a set's are all different, and so are nearly all of their hashes."""
    if len(items) > SAME_HASH:
        hashes = sorted(map(hash, items))
        if any(one == other for one, other in zip(hashes, hashes[SAME_HASH:], strict=False)):
            raise UnreadableError(f"more than {SAME_HASH} items with one hash")
    return items


def decode_given(data: bytes, find: Callable[[int], object] = refuse) -> Any:
    """Read what tests hand over: they may pass as much as they like."""
    return decode(data, find, most=sys.maxsize, items=sys.maxsize)


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(_unlike(items[::2]), items[1::2], strict=True))


PYTHON: Builders = {
    b"l": lambda items: items,
    b"t": tuple,
    b"e": lambda items: set(_unlike(items)),
    b"z": lambda items: frozenset(_unlike(items)),
    b"d": _pairs,
    b"b": lambda items: bytes.fromhex(only(items, str)[0]),
    b"a": lambda items: bytearray.fromhex(only(items, str)[0]),
    b"c": lambda items: complex(*only(items, float, float)),
    b"r": lambda items: range(*only(items, int, int, int)),
    b"I": iter,
    b"K": lambda items: dict.fromkeys(_unlike(items)).keys(),
    b"V": lambda items: dict(enumerate(items)).values(),
    b"M": lambda items: _pairs([part for key, value in items for part in (key, value)]).items(),
    b"D": decimal,
    b"Q": fraction,
}
