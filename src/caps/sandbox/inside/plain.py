"""Plain data as tagged JSON: numbers, texts, lists, dicts, sets, ranges, iterators; no code.

None, booleans, texts, floats and whole numbers are what JSON has. Every other value is a list of its tag and
its parts: `["tuple", 1, 2]`, `["dict", key, value]`, `["float", "nan"]`, `["int", "-1f"]` for a whole number
of many digits. Objects that are not plain data stay in their process, and a number stands for them:
`["object", 3]`. Subclasses are sent as their base type, so no method of the sender (an `__eq__` that is
always true) reaches the receiver.

The decoder treats the bytes as hostile: it stays within `BYTES`, `DEPTH`, `ITEMS` and `DIGITS`, creates
built-in types only, calls none of the sender's methods, and raises only `UnreadableError`. Sets and dicts
with obvious hash collisions are refused, but cleverly chosen numbers can still take long, so `decode` belongs
in a process that can be killed. Outside the sandbox, sets and dicts are decoded as lists
(`caps.grading.results`).
"""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn

    Builders = Mapping[str, Callable[[list[Any]], Any]]

MAX_ITERATED = 250_000  # items taken from an iterator
BYTES = 16 << 20  # of a whole message
DEPTH = 200  # lists in lists
ITEMS = 1_000_000  # values in a message, those in lists and the lists themselves
DIGITS = 100_000  # hexadecimal digits of a whole number
RATIO_DIGITS = 10_000  # digits of the parts of a fraction or decimal, which are reduced to lowest terms
RATIO_COST = 20  # items that a fraction or a decimal counts as, since it takes as long
SAME_HASH = 64  # items of a set that may have the same hash
EXPONENT_DIGITS = 4  # digits of a decimal's exponent
_SHORT_BITS = 10_000  # whole numbers up to this size are written in decimal
_HEX = "0123456789abcdef"
_NO_NUMBERS = {"nan": float("nan"), "inf": float("inf"), "-inf": -float("inf")}
_VIEWS = {type({}.keys()): "dict_keys", type({}.values()): "dict_values", type({}.items()): "dict_items"}


PLAIN_TYPES = (str, bytes, int, float, complex, list, tuple, dict, set, frozenset)


class NotPlainError(TypeError):
    """A value that cannot be sent."""


class UnreadableError(ValueError):
    """Bytes that are not a value, or exceed the bounds."""


def refuse(value: object) -> Any:
    """Refuse an object: only plain data may be sent."""
    raise NotPlainError(f"{type(value).__name__} is not plain data")


def encode(value: object, keep: Callable[[object], int] = refuse) -> bytes:
    """Serialize a value on one line; other objects become the number that `keep` returns."""
    return json.dumps(_tagged(value, keep, DEPTH)).encode()


def _tagged(value: Any, keep: Callable[[object], int], depth: int) -> Any:
    """The value as JSON has it; the methods are those of the base types, not of their subclasses."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        whole = int.__pos__(value)
        return whole if whole.bit_length() <= _SHORT_BITS else ["int", f"{whole:x}"]
    if isinstance(value, float):
        number = float.__pos__(value)
        return number if number - number == 0 else ["float", repr(number)]
    if isinstance(value, str):
        return str.__str__(value)
    if not depth:
        raise ValueError(f"nested deeper than {DEPTH}")
    tag, items = _parts(value)
    if items is None:
        return ["object", keep(value)]
    return [tag, *[_tagged(item, keep, depth - 1) for item in items]]


def _parts(value: Any) -> tuple[str, list[Any] | None]:
    """The tag of a value and its parts; no parts if it is not plain data."""
    kind: Any
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind.__name__, list(kind.__iter__(value))
    if isinstance(value, dict):
        return "dict", [part for pair in dict.items(value) for part in pair]
    for kind in (bytes, bytearray):
        if isinstance(value, kind):
            return kind.__name__, [kind.hex(value)]
    if isinstance(value, complex):
        return "complex", [value.real, value.imag]
    if isinstance(value, range):
        return "range", [value.start, value.stop, value.step]
    if type(value) in _VIEWS:
        return _VIEWS[type(value)], list(value)
    if _is_a("decimal", "Decimal", value):
        return "decimal", [str(value)]
    if _is_a("fractions", "Fraction", value):
        return "fraction", [value.numerator, value.denominator]
    if hasattr(type(value), "__next__"):
        return "iterator", [item for item, _ in zip(value, range(MAX_ITERATED), strict=False)]
    return "", None


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

    `find` returns the object for a number; `build` creates values from the parts after their tag.
    """
    if len(data) > most:
        raise UnreadableError(f"{len(data):,} bytes are more than the {most:,} that are read")
    try:
        tree = json.loads(data.decode("ascii"), object_pairs_hook=_no_json, parse_constant=_no_json)
        return _Builder(find, build or PYTHON, items).value(tree, DEPTH)
    except UnreadableError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, AttributeError) as error:
        raise UnreadableError(f"{type(error).__name__}: {str(error)[:200]}") from None


def _no_json(_: object) -> NoReturn:
    raise UnreadableError("no kind of value")


class _Builder:
    """Builds the value of one message and counts its parts."""

    def __init__(self, find: Callable[[int], object], build: Builders, items: int) -> None:
        self._find, self._build = find, build
        self._room = self._items = items

    def value(self, tree: Any, depth: int) -> Any:
        """The value of tagged JSON."""
        tag = tree[0] if type(tree) is list and tree else None
        self._room -= RATIO_COST if tag in ("decimal", "fraction") else 1
        if self._room < 0:
            raise UnreadableError(f"more than {self._items:,} values")
        if type(tree) is not list:
            return tree
        if tag == "int":
            return _long_number(*only(tree[1:], str))
        if tag == "float":
            return _NO_NUMBERS[only(tree[1:], str)[0]]
        if tag == "object":
            return self._find(*only(tree[1:], int))
        make = self._build.get(tag) if type(tag) is str else None
        if make is None:
            raise UnreadableError("no kind of value")
        if not depth:
            raise UnreadableError(f"nested deeper than {DEPTH}")
        return make([self.value(item, depth - 1) for item in tree[1:]])


def only(items: list[Any], *kinds: type) -> list[Any]:
    """Check that the items have exactly these types."""
    if [type(item) for item in items] != list(kinds):
        raise UnreadableError("parts of the wrong kind")
    return items


def _long_number(text: str) -> int:
    digits = text.removeprefix("-")
    if not 0 < len(digits) <= DIGITS or digits.strip(_HEX):
        raise UnreadableError(f"no whole number of at most {DIGITS:,} digits")
    return int(text, 16)


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


def pairs(items: list[Any]) -> list[Any]:
    """Check that keys and values alternate."""
    if len(items) % 2:
        raise UnreadableError("a key without a value")
    return items


def _dict(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(_check_hashes(pairs(items)[::2]), items[1::2], strict=True))


PYTHON: Builders = {
    "list": lambda items: items,
    "tuple": tuple,
    "set": lambda items: set(_check_hashes(items)),
    "frozenset": lambda items: frozenset(_check_hashes(items)),
    "dict": _dict,
    "bytes": lambda items: bytes.fromhex(only(items, str)[0]),
    "bytearray": lambda items: bytearray.fromhex(only(items, str)[0]),
    "complex": lambda items: complex(*only(items, float, float)),
    "range": lambda items: range(*only(items, int, int, int)),
    "iterator": iter,
    "dict_keys": lambda items: dict.fromkeys(_check_hashes(items)).keys(),
    "dict_values": lambda items: dict(enumerate(items)).values(),
    "dict_items": lambda items: _dict([part for key, value in items for part in (key, value)]).items(),
    "decimal": decimal,
    "fraction": fraction,
}
