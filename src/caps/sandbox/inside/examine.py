"""Runs a test program whose candidate lives in another process: every call goes there as plain data.

The first message brings the tests. Each one sent is a request: `?`, what is called as a text for people, a
zero byte, the request itself; what comes back is the candidate's reply as it wrote it (see `wire`). The last
one sent is the verdict, under a nonce that the candidate's process never saw: how it went (`passed`,
`failed`, `raised` by the candidate, `undecided`), the type of the exception, its text, the line of the tests,
the call and its result.

What the candidate says is hostile. A reply that cannot be read ends the tests there and then, so that no
`except` in them can make up for it. An exception of the candidate is raised here as one of the same built-in
type, but never as one that steers the tests: `StopIteration` would end their loops, `SystemExit` all of them.
"""

from __future__ import annotations

import builtins
import os
import sys

from caps.sandbox.inside.plain import (
    PLAIN_TYPES,
    NotPlainError,
    UnreadableError,
    decode,
    decode_given,
    encode,
)
from caps.sandbox.inside.wire import LONGEST_TEXT, Wire, join_texts, split_texts, split_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_STEERING = (StopIteration, StopAsyncIteration)  # the other ones are no `Exception`


class Asked:
    """The other process, as far as tests can tell; `raised` is the exception it raised last."""

    def __init__(self, wire: Wire, nonce: str, classes: tuple[str, ...] = ()) -> None:
        self._wire, self._nonce, self._classes = wire, nonce, classes
        self.calls = 0
        self.called, self.got = "", ""
        self.raised: Exception | None = None
        self._instances: set[int] = set()

    def ask(self, request: list[Any], called: str, find: Callable[[int], object]) -> tuple[Any, Any]:
        """Send a request; the result and the changed arguments come back, or the exception is raised here."""
        self.called, self.got = called, ""
        self._wire.send(b"?" + join_texts(called) + b"\0" + encode(request))
        reply = self._wire.receive()
        if reply is None:
            os._exit(1)
        if reply[:1] == b"R":
            name, base, text = split_texts(reply[1:], 3)
            self.got = f"{name}: {text}"
            self.raised = _rebuild(name, base, text)
            raise self.raised
        try:
            result, after = self._read(reply, find)
        except (UnreadableError, MemoryError) as error:
            self.tell("failed", "UnreadableError", f"the result cannot be read: {error}", "")
            os._exit(0)
        self.got = brief(result)
        return result, after

    def _read(self, reply: bytes, find: Callable[[int], object]) -> tuple[Any, Any]:
        parts = split_value(reply)
        if parts is None:
            raise UnreadableError("the program answered out of turn")
        result, after = parts
        return decode(result, find), decode(after, self.stand_in) if after else None

    def tell(self, how: str, kind: str, text: str, line: str) -> None:
        """Send the verdict."""
        self._wire.send(self._nonce.encode() + join_texts(how, kind, text, line, self.called, self.got))

    def function(self, target: str | int) -> Callable[..., Any]:
        """A stand-in for a function there; lists and dicts it changes are changed here as well."""
        find = self.instance if target in self._classes else self.stand_in

        def call(*values: Any, **named: Any) -> Any:
            self.calls += 1
            given = list(values)
            called = f"{target}{brief(given)}"
            request = ["call", target, encode(given, number_of), encode(named, number_of), True]
            result, after = self.ask(request, called, find)
            if after is not None:
                _write_back(given, after)
            return result

        call.__name__ = str(target)
        return call

    def attribute(self, number: int, name: str) -> Any:
        """What an object there has under a name."""
        return self.ask(["get", number, name], f"attribute {name}", self.stand_in)[0]

    def stand_in(self, number: int) -> StandIn:
        """What takes the place of an object that stayed there."""
        return Instance(self, number) if number in self._instances else StandIn(self, number)

    def instance(self, number: int) -> StandIn:
        """What takes the place of an object of a class that the tests know."""
        self._instances.add(number)
        return Instance(self, number)


class StandIn:
    """An object of the other process: it can be called and has attributes, and is equal to itself alone.

    Tests that call a method of texts, numbers, lists, dicts or sets expect one of these, and an object in its
    place could answer as they wish (`startswith` is always true): it has no such method.
    """

    def __init__(self, asked: Asked, number: int) -> None:
        self._asked, self._number = asked, number

    def __call__(self, *values: Any, **named: Any) -> Any:  # noqa: D102
        return self._asked.function(self._number)(*values, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or any(hasattr(kind, name) for kind in self._plain_types()):
            raise AttributeError(f"the candidate's object, which is no plain data, has no attribute {name!r}")
        return self._asked.attribute(self._number, name)

    def _plain_types(self) -> tuple[type, ...]:
        return PLAIN_TYPES


class Instance(StandIn):
    """An object where the tests expect one, as from a class: it may have methods such as `pop` and `get`."""

    def _plain_types(self) -> tuple[type, ...]:
        return ()


def number_of(value: object) -> int:
    """The number of an object that came from there; nothing else that is not plain can go there."""
    if isinstance(value, StandIn):
        return value._number
    raise NotPlainError(f"the tests pass {type(value).__name__}, which is no plain data")


def main() -> None:
    """Run the tests and tell the verdict."""
    wire = Wire()
    suite = decode_given(wire.receive() or b"")
    asked = Asked(wire, suite["nonce"], tuple(suite["classes"]))
    try:
        _run(suite, asked)
        asked.tell("passed", "", "", "")
    except NotPlainError as error:
        asked.tell("undecided", "NotPlainError", str(error), "")
    except SystemExit as error:  # the tests' own: unittest ends so
        asked.tell("failed" if error.code else "passed", "SystemExit", str(error.code), "")
    except BaseException as error:
        how = "raised" if error is asked.raised else "failed"
        asked.tell(how, type(error).__name__, str(error), _line(error, suite["tests"]))


def _run(suite: dict[str, Any], asked: Asked) -> None:
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    names = vars(module)
    exec(compile(suite["prompt"], "<prompt>", "exec", dont_inherit=True), names)  # noqa: S102
    for name in suite["modules"]:
        names.setdefault(name, __import__(name))
    for name in suite["missing"]:
        names.setdefault(name, asked.function(name))
    entry = suite["entry_point"]
    if entry:
        names["candidate"] = names[entry] = asked.function(entry)
    exec(compile(suite["tests"], "<tests>", "exec", dont_inherit=True), names)  # noqa: S102
    if entry and not asked.calls and callable(names.get("check")):
        names["check"](names[entry])


def _write_back(old: Any, new: Any) -> None:
    if isinstance(old, list) and isinstance(new, list):
        for before, after in zip(old, new, strict=False):
            _write_back(before, after)
        kept = [b if isinstance(b, list | dict) and b == a else a for b, a in zip(old, new, strict=False)]
        old[:] = kept + new[len(kept) :]
    elif isinstance(old, dict | set) and type(old) is type(new):
        old.clear()
        old.update(new)


def _rebuild(name: str, base: str, text: str) -> Exception:
    kind = getattr(builtins, base, Exception)
    if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, _STEERING):
        name, kind = f"the candidate raised {name}", RuntimeError
    if name != base:
        kind = type(name, (kind,), {})
    try:
        error: Exception = kind(text)
    except TypeError:  # those that want more to be made of
        error = RuntimeError(f"{name}: {text}")
    return error


def brief(value: Any, room: int = LONGEST_TEXT) -> str:
    """A value as Python would write it, cut short; little of a long one is looked at."""
    parts: list[str] = []
    _write_brief(value, parts, room)
    return "".join(parts)[:room]


def _write_brief(value: Any, parts: list[str], room: int) -> int:
    """Write what there is room for; the room that is left."""
    if room <= 0:
        return 0
    kind = type(value)
    if kind in _BRACKETS:
        opening, closing = _BRACKETS[kind]
        parts.append(opening)
        room -= len(opening)
        for place, item in enumerate(value.items() if kind is dict else value):
            if room <= 0:
                break
            parts.append(", " if place else "")
            if kind is dict:
                room = _write_brief(item[0], parts, room - 2)
                parts.append(": ")
            room = _write_brief(item[1] if kind is dict else item, parts, room - 2)
        parts.append("," + closing if kind is tuple and len(value) == 1 else closing)
        return room - 1
    if isinstance(value, StandIn):
        text = f"object {value._number}"
    elif kind in (str, bytes, bytearray):
        text = repr(value[:room])
    else:
        try:
            text = repr(value) if kind.__name__ in _SHORT else kind.__name__
        except ValueError:  # Python will not write very long numbers in decimals
            text = f"{kind.__name__} of very many digits"
    parts.append(text)
    return room - len(text)


_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
    dict: ("{", "}"),
}
_SHORT = ("NoneType", "bool", "int", "float", "complex", "range", "Decimal", "Fraction")


def _line(error: BaseException, tests: str) -> str:
    number, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<tests>":
            number = trace.tb_lineno
        trace = trace.tb_next
    return tests.splitlines()[number - 1].strip()[:300] if number else ""
