"""Outputs of programs, parsed and compared in a process that can be killed.

Output of the sandbox is hostile data: a number that takes hours to rebuild, a set made to collide, a million
nested lists. So the grading process never parses it. `ResultReader` passes the bytes to a worker with limits
on memory and time. The worker parses them within the bounds of `inside.plain`, compares them with the
expected output, and returns three short values: whether they are equal, a digest, and a printable form.

The worker builds no set or dict from hostile data, since hash collisions can be forced; it sorts instead. A
result that equals the expected one byte for byte is not parsed; most correct programs pass this way.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from hashlib import sha256
from itertools import count, groupby
from math import inf, isfinite
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeAlias

from caps.core.errors import SandboxError
from caps.core.text import escaped, without_middle
from caps.sandbox.inside.plain import PYTHON, UnreadableError, decode, pairs
from caps.workers import child
from caps.workers.pool import ClockError, NoReplyError, NotStartedError, Workers


def same_text(expected: str, got: str) -> bool:
    """Compare two outputs as LiveCodeBench does: line by line, ignoring whitespace, numbers by value."""
    first, second = normalised(expected), normalised(got)
    if first == second:
        return True
    lines = list(zip(first.split("\n"), second.split("\n"), strict=False))
    return first.count("\n") == second.count("\n") and all(_same_line(a, b) for a, b in lines)


def normalised(text: str) -> str:
    """Remove whitespace that does not count: at the ends of lines, and repeated between words."""
    return "\n".join(" ".join(line.split()) for line in text.strip().split("\n"))


def _same_line(a: str, b: str) -> bool:
    if a == b:
        return True
    words, others = a.split(" "), b.split(" ")
    try:
        return len(words) == len(others) and all(
            Decimal(word) == Decimal(other) for word, other in zip(words, others, strict=True)
        )
    except InvalidOperation:
        return False


Kind: TypeAlias = Literal["text", "value"]
SECONDS = 30.0  # of processor time for one result; the bounds keep it far below that on any machine
MEMORY = 1 << 30
SHOWN_CHARS = 160
_MAX_DECIMAL_BITS = 10_000  # longer integers are written in hexadecimal


class Reading(NamedTuple):
    """The reading of one result; with a `fault` it could not be parsed, and the other fields are empty."""

    same: bool = False
    digest: str = ""
    shown: str = ""
    fault: str = ""


class ResultReader:
    """Reads results of programs in worker processes, which start on first use."""

    def __init__(self, *, workers: int = 2, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._workers = Workers(
            "caps.grading.results:serve", (seconds, memory), count=workers, seconds=seconds
        )

    async def read(self, kind: Kind, output: bytes, accepted: Sequence[bytes] = ()) -> Reading:
        """Read printed output or a returned value; `same` if it equals any of the accepted ones."""
        try:
            return Reading(*await self._workers.ask(kind, output, *accepted))
        except (NotStartedError, ClockError) as error:
            raise SandboxError(f"results of programs cannot be read: {error}") from None
        except NoReplyError as error:
            return Reading(fault=str(error))

    async def compare(self, kind: Kind, output: bytes, accepted: Sequence[bytes]) -> Reading:
        """Whether output equals any of the accepted ones; it is parsed only if the bytes differ."""
        trim = bytes.strip if kind == "text" else bytes
        if trim(output) in map(trim, accepted) and (kind == "text" or b'"nan"' not in output):
            return Reading(same=True)
        return await self.read(kind, output, accepted)

    async def close(self) -> None:
        """Stop the workers."""
        await self._workers.close()


def serve(seconds: float, memory: int) -> None:
    """Run a worker: read results until the input ends."""
    child.serve(lambda kind, parts: read(kind, parts[0], parts[1:]), seconds=seconds, memory=memory)


def read(kind: Kind, data: bytes, expected: Sequence[bytes]) -> Reading:
    """Parse one result and compare it; returns a reading for any bytes."""
    try:
        return _read_text(data, expected) if kind == "text" else _read_value(data, expected)
    except (UnreadableError, RecursionError) as error:
        return Reading(fault=escaped(str(error)))
    except MemoryError:
        return Reading(fault="it takes too much memory")


def _read_text(data: bytes, expected: Sequence[bytes]) -> Reading:
    text = data.decode("utf-8", "replace")
    same = any(same_text(wanted.decode("utf-8", "surrogatepass"), text) for wanted in expected)
    return Reading(same, _digest(_DECIMAL.sub(_round_text, normalised(text))), _show(text))


def _read_value(data: bytes, expected: Sequence[bytes]) -> Reading:
    value = read_value(data)
    same = bool(expected) and comparison_key(value) in [comparison_key(read_value(one)) for one in expected]
    rendered = render(value)
    return Reading(same, _digest(render(_alike(value))), _show(rendered))


_DECIMAL = re.compile(r"(?<![\w.])-?\d{1,15}\.\d{1,30}(?![\w.])")


def _round_text(number: re.Match[str]) -> str:
    return str(_round(float(number[0])))


def _alike(value: Any) -> Any:
    """A value whose numbers are equal if they mean the same: 1, 1.0 and True, and 0.3 and 0.1 + 0.2."""
    match value:
        case bool():
            return int(value)
        case float():
            return _round(value)
        case list() | tuple():
            return type(value)(map(_alike, value))
        case Items(kind, items):
            return Items(kind, list(map(_alike, items)))
    return value


def _round(value: float) -> float | int:
    if not isfinite(value):
        return value
    short = float(f"{value:.9g}")
    return int(short) if short.is_integer() else short


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _show(text: str) -> str:
    ends = text if len(text) <= 4 * SHOWN_CHARS else text[: 2 * SHOWN_CHARS] + text[-2 * SHOWN_CHARS :]
    return without_middle(repr(ends), SHOWN_CHARS)


@dataclass(frozen=True, slots=True)
class Items:
    """A set, a dict (alternating keys and values), a view or an iterator, as its kind and items."""

    kind: str
    items: list[Any]


def read_value(data: bytes) -> Any:
    """Decode a value into numbers, texts, lists, tuples and `Items`."""
    return decode(data, _no_object, _INERT)


def _no_object(_: int) -> Any:
    raise UnreadableError("it contains an object, which is not plain data")


def _items(kind: str) -> Callable[[list[Any]], Items]:
    return lambda items: Items(kind, items)


_KEPT_AS_ITEMS = ("set", "frozenset", "iterator", "dict_keys", "dict_values", "dict_items")
_INERT = {
    **PYTHON,
    **{kind: _items(kind) for kind in _KEPT_AS_ITEMS},
    "dict": lambda items: Items("dict", pairs(items)),
}
_UNIQUE = count()
_SETS = ("set", "frozenset", "dict_keys", "dict_items")


def comparison_key(value: Any) -> str:
    """A text that is the same for equal values only.

    Equality is that of Python (1, 1.0 and True are equal), but tuples equal lists and keys of dicts are
    texts, as in JSON. A nan, an iterator and a view of values equal nothing, not even themselves.
    """
    return render(_comparable(value))


def _comparable(value: Any) -> Any:
    match value:
        case None | str():
            return value
        case bytes() | bytearray():
            return bytes(value)
        case list() | tuple():
            return [_comparable(item) for item in value]
        case range():
            return _comparable_range(value)
        case Items("dict", items):
            return _comparable_dict(items)
        case Items(kind, items) if kind in _SETS:
            # Digests, so that quotes in quotes in quotes do not multiply the length.
            keys = sorted(_digest(comparison_key(item)) for item in items)
            return Items("set", [key for key, _ in groupby(keys)])
        case complex() if value.imag:
            return Items("complex", [_comparable(value.real), _comparable(value.imag)])
        case complex():
            return _comparable(value.real)
        case Items():
            return Items("unlike", [next(_UNIQUE)])
    if value != value:  # noqa: PLR0124 - nan
        return Items("unlike", [next(_UNIQUE)])
    try:
        fraction = Fraction(*value.as_integer_ratio())
    except OverflowError:
        return inf if value > 0 else -inf
    return fraction.numerator if fraction.denominator == 1 else fraction


def _comparable_range(value: range) -> Items:
    """Ranges are equal if they contain the same numbers."""
    steps, rest = divmod(value.stop - value.start, value.step)
    count = max(0, steps + bool(rest))  # len(range(...)) fails for long ones
    return Items("range", [count, *(value.start, value.step)[:count]])


def _comparable_dict(items: Sequence[Any]) -> Items:
    """Keys in order; of several that are one text, the last counts."""
    names = [key if isinstance(key, str) else render(key) for key in items[::2]]
    pairs = sorted(zip(names, items[1::2], strict=True), key=itemgetter(0))
    last = [list(same)[-1] for _, same in groupby(pairs, key=itemgetter(0))]
    return Items("dict", [part for name, item in last for part in (name, _comparable(item))])


def render(value: Any) -> str:
    """A value in Python syntax, the same for equal values: sets are sorted, iterators listed."""
    parts: list[str] = []
    _render(value, parts.append)
    return "".join(parts)


def _render(value: Any, write: Callable[[str], object]) -> None:
    match value:
        case list() | tuple():
            write("[" if isinstance(value, list) else "(")
            _render_all(value, write)
            write("]" if isinstance(value, list) else ",)" if len(value) == 1 else ")")
        case Items("dict", items):
            write("{")
            for index in range(0, len(items), 2):
                write(", " if index else "")
                _render(items[index], write)
                write(": ")
                _render(items[index + 1], write)
            write("}")
        case Items(kind, items) if kind in _SETS:
            write(f"{kind}({{{', '.join(sorted(map(render, items)))}}})")
        case Items(kind, items):
            write(f"{kind}[")
            _render_all(items, write)
            write("]")
        case bool():
            write(str(value))
        case int():
            write(_render_int(value))
        case Fraction():
            write(f"Fraction({_render_int(value.numerator)}, {_render_int(value.denominator)})")
        case range():
            write(f"range({', '.join(map(_render_int, (value.start, value.stop, value.step)))})")
        case _:
            write(repr(value))


def _render_all(items: Sequence[Any], write: Callable[[str], object]) -> None:
    for index, item in enumerate(items):
        if index:
            write(", ")
        _render(item, write)


def _render_int(value: int) -> str:
    return hex(value) if value.bit_length() > _MAX_DECIMAL_BITS else str(value)
