"""What programs put out, read and compared in a process that can be killed.

Whatever leaves the sandbox is hostile data: a number that takes hours to rebuild, a set made to collide, a
million nested nothings. So the process that grades never reads it. `ResultReader` hands the bytes to a worker
with limits on memory and time; the worker reads them within the bounds of `inside.plain`, compares them with
what is expected, and says three short things: whether they are the same, a digest, and how to show them.

The worker makes no set and no dict of what it reads, since their hashes can be flooded; it sorts instead.
A result equal to the expected one byte for byte needs no reading, which is how most right programs pass.
"""

import gc
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from hashlib import sha256
from itertools import count
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias

from caps.core.errors import InputError, SandboxError
from caps.graders.algebra import limit_memory
from caps.graders.worker_pool import NoReplyError, NotStartedError, Workers
from caps.sandbox.base import printable, shorten
from caps.sandbox.inside.plain import PYTHON, UnreadableError, decode, encode

# When two outputs are the same: line by line, whitespace aside, and numbers by their value.
#
# As LiveCodeBench compares: texts are stripped and split into lines; lines that differ as texts are the
# same if all their words are numbers of equal value.


def same_text(expected: str, got: str) -> bool:
    """Compare two outputs."""
    wanted, found = normalised(expected), normalised(got)
    if wanted == found:
        return True
    lines = list(zip(wanted.split("\n"), found.split("\n"), strict=False))
    return wanted.count("\n") == found.count("\n") and all(_same_line(a, b) for a, b in lines)


def normalised(text: str) -> str:
    """A text without what does not count: space at the ends of lines, and runs of it between words."""
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
SECONDS = 30.0  # for one result: the bounds keep each far below it on any machine
MEMORY = 1 << 30
SHOWN = 160
_LONG = 10_000  # bits of a number that Python will not write in decimals


class Reading(NamedTuple):
    """What is known of one result; with a `fault`, it could not be read, and the rest says nothing."""

    same: bool = False
    digest: str = ""
    shown: str = ""
    fault: str = ""


class ResultReader:
    """Reads results of programs in worker processes, started when the first result needs one."""

    def __init__(self, *, workers: int = 2, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._workers = Workers(
            "caps.graders.results:serve", (seconds, memory), count=workers, seconds=seconds
        )

    async def text(self, output: bytes, expected: str | None = None) -> Reading:
        """Read what was printed; `same` if it is as expected."""
        wanted = [] if expected is None else [expected.encode("utf-8", "surrogatepass")]
        return await self._read("text", output, wanted)

    async def value(self, result: bytes, expected: Sequence[Any] = ()) -> Reading:
        """Read what a call returned; `same` if it equals any of the expected values."""
        return await self._read("value", result, encode_all(expected))

    async def check_text(self, output: bytes, expected: str) -> Reading:
        """Compare what was printed; only what differs in its bytes is read."""
        if output.strip() == expected.strip().encode("utf-8", "surrogatepass"):
            return Reading(same=True)
        return await self.text(output, expected)

    async def check_value(self, result: bytes, expected: Sequence[Any]) -> Reading:
        """Compare what was returned; only what differs in its bytes is read."""
        wanted = encode_all(expected)
        if b"nan" not in result and result in wanted:
            return Reading(same=True)
        return await self._read("value", result, wanted)

    async def close(self) -> None:
        """End the workers."""
        await self._workers.close()

    async def _read(self, kind: Kind, data: bytes, expected: Sequence[bytes]) -> Reading:
        try:
            return Reading(*await self._workers.ask(kind, data, *expected))
        except NotStartedError as error:
            raise SandboxError(f"results of programs cannot be read: {error}") from None
        except NoReplyError as error:
            return Reading(fault=str(error))


def encode_all(values: Sequence[Any]) -> list[bytes]:
    """Expected values as a program that returns them would; the case's fault if that cannot be."""
    try:
        return [encode(value) for value in values]
    except (ValueError, TypeError) as error:
        raise InputError(f"tests: no program can return an expected output: {error}") from None


def serve(seconds: float, memory: int) -> None:
    """Be a worker: read results until there are no more."""
    limit_memory(memory)
    gc.disable()  # values have no cycles, and looking for some takes longer than all the rest
    _say("ready")
    while line := sys.stdin.buffer.readline():
        kind, *sizes = json.loads(line)
        data, *expected = [_take(sys.stdin.buffer, size) for size in sizes]
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds + 1)  # nobody may be left to kill it
        reading = read(kind, data, expected)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _say(reading)


def _take(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the question is cut off")
    return data


def _say(reply: object) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


def read(kind: Kind, data: bytes, expected: Sequence[bytes]) -> Reading:
    """Read one result and compare it; total: whatever the bytes are, a reading comes out."""
    try:
        return _read_text(data, expected) if kind == "text" else _read_value(data, expected)
    except (UnreadableError, RecursionError) as error:
        return Reading(fault=printable(str(error)))
    except MemoryError:
        return Reading(fault="it takes too much memory")


def _read_text(data: bytes, expected: Sequence[bytes]) -> Reading:
    text = data.decode("utf-8", "replace")
    same = any(same_text(one.decode("utf-8", "surrogatepass"), text) for one in expected)
    return Reading(same, _digest(normalised(text)), _show(text))


def _read_value(data: bytes, expected: Sequence[bytes]) -> Reading:
    value = read_value(data)
    if expected:
        found = sort_key(value)
        same = any(found == sort_key(read_value(one)) for one in expected)
    else:
        same = False
    spelled = spell(value)
    return Reading(same, _digest(spelled), _show(spelled))


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _show(text: str) -> str:
    ends = text if len(text) <= 4 * SHOWN else text[: 2 * SHOWN] + text[-2 * SHOWN :]
    return shorten(repr(ends), SHOWN)


@dataclass(frozen=True, slots=True)
class Items:
    """A set, a dict (keys and values in turn), a view or an iterator: its kind and what it holds."""

    kind: str
    items: list[Any]


def read_value(data: bytes) -> Any:
    """A value of numbers, texts, lists, tuples and `Items`."""
    return decode(data, _no_object, _INERT)


def _no_object(_: int) -> Any:
    raise UnreadableError("it holds an object, which is no plain data")


def _items(kind: str) -> Callable[[list[Any]], Items]:
    return lambda items: Items(kind, items)


_INERT = {
    **PYTHON,
    b"e": _items("set"),
    b"z": _items("frozenset"),
    b"d": _items("dict"),
    b"I": _items("iterator"),
    b"K": _items("dict_keys"),
    b"V": _items("dict_values"),
    b"M": _items("dict_items"),
}
_UNLIKE = count()
_SETS = ("set", "frozenset", "dict_keys", "dict_items")


def sort_key(value: Any) -> bytes:
    """Bytes that are the same for equal values, and in no other case.

    Equal as Python has it (1, 1.0 and True are), but a tuple is as good as a list and keys of dicts are
    texts, as in JSON. What is not a number (nan), an iterator and a view of values equal nothing, not even
    themselves: their key is a new one each time.
    """
    match value:
        case None:
            return b"N"
        case str():
            return b"s" + value.encode("utf-8", "surrogatepass")
        case bytes() | bytearray():
            return b"b" + bytes(value)
        case list() | tuple():
            return b"l" + _joined([sort_key(item) for item in value])
        case range():
            return _range_key(value)
        case Items("dict", items):
            return b"d" + _dict_key(items)
        case Items(kind, items) if kind in _SETS:
            return b"e" + _joined(_unique(sorted(sort_key(item) for item in items)))
        case Items():
            return b"!%d" % next(_UNLIKE)
        case complex() if value.imag:
            return b"c" + _joined([_number_key(value.real), _number_key(value.imag)])
        case complex():
            return _number_key(value.real)
    return _number_key(value)


def _number_key(value: Any) -> bytes:
    """A whole number, or a fraction in lowest terms, whatever type it comes as."""
    if isinstance(value, int):
        return b"i%x" % value
    if value != value:  # noqa: PLR0124 - that is how one knows
        return b"!%d" % next(_UNLIKE)
    try:
        top, bottom = value.as_integer_ratio()
    except OverflowError:
        return b"+inf" if value > 0 else b"-inf"
    return b"i%x" % top if bottom == 1 else b"q%x/%x" % (top, bottom)


def _range_key(value: range) -> bytes:
    """Ranges are equal where they hold the same numbers."""
    ahead = (value.stop - value.start) // value.step + bool((value.stop - value.start) % value.step)
    held = [ahead, value.start, value.step] if ahead > 1 else [ahead, value.start] if ahead == 1 else [0]
    return b"r" + b",".join(b"%x" % number for number in held)


def _dict_key(items: Sequence[Any]) -> bytes:
    pairs = [(_name(key), sort_key(item)) for key, item in zip(items[::2], items[1::2], strict=True)]
    pairs.sort(key=lambda pair: pair[0])
    last = [pair for place, pair in enumerate(pairs, 1) if place == len(pairs) or pair[0] != pairs[place][0]]
    return _joined([part for pair in last for part in pair])


def _name(key: Any) -> bytes:
    return (key if isinstance(key, str) else spell(key)).encode("utf-8", "surrogatepass")


def _unique(keys: Sequence[bytes]) -> list[bytes]:
    return [key for place, key in enumerate(keys) if not place or key != keys[place - 1]]


def _joined(keys: Sequence[bytes]) -> bytes:
    """A digest, so that depth does not multiply length."""
    digest = sha256()
    for key in keys:
        digest.update(b"%d:" % len(key))
        digest.update(key)
    return digest.digest()


def spell(value: Any) -> str:
    """A value as Python would write it, the same for equal values: sets sorted, whatever an iterator held."""
    parts: list[str] = []
    _spell(value, parts.append)
    return "".join(parts)


def _spell(value: Any, put: Callable[[str], object]) -> None:
    match value:
        case list() | tuple():
            put("[" if isinstance(value, list) else "(")
            _spell_all(value, put)
            put("]" if isinstance(value, list) else ",)" if len(value) == 1 else ")")
        case Items("dict", items):
            put("{")
            for place in range(0, len(items), 2):
                put(", " if place else "")
                _spell(items[place], put)
                put(": ")
                _spell(items[place + 1], put)
            put("}")
        case Items(kind, items) if kind in _SETS:
            put(f"{kind}({{{', '.join(sorted(map(spell, items)))}}})")
        case Items(kind, items):
            put(f"{kind}[")
            _spell_all(items, put)
            put("]")
        case bool():
            put(str(value))
        case int():
            put(_spell_int(value))
        case Fraction():
            put(f"Fraction({_spell_int(value.numerator)}, {_spell_int(value.denominator)})")
        case range():
            put(f"range({', '.join(map(_spell_int, (value.start, value.stop, value.step)))})")
        case _:
            put(repr(value))


def _spell_all(items: Sequence[Any], put: Callable[[str], object]) -> None:
    for place, item in enumerate(items):
        if place:
            put(", ")
        _spell(item, put)


def _spell_int(value: int) -> str:
    return hex(value) if value.bit_length() > _LONG else str(value)
