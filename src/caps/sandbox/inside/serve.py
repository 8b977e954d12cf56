"""Loads a program and calls its functions on request, with plain data in and out.

The first message is the program with its settings; each later one names a function (or a stored object) and
arguments. `wire` describes the replies. Loading and each call end the process when they use too much
processor time. A process that the program forked sends no reply: it would answer the next request.
"""

from __future__ import annotations

import os
import time

from caps.sandbox.inside.coverage import Coverage
from caps.sandbox.inside.plain import decode_given, encode
from caps.sandbox.inside.prelude import load
from caps.sandbox.inside.wire import Wire, join_texts, limit_cpu, reply_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Served:
    """A loaded program, and its objects that were sent as numbers because they are not plain data."""

    def __init__(self, names: dict[str, Any], seconds: float, coverage: Coverage | None = None) -> None:
        self._names, self._seconds, self._coverage, self._known = names, seconds, coverage, 0
        self._spent = 0.0
        self._kept: list[object] = []
        self._numbers: dict[int, int] = {}

    def keep(self, value: object) -> int:
        """Store an object and return its number, always the same for the same object."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._kept)
            self._kept.append(value)
        return self._numbers[id(value)]

    def find(self, target: str | int, attribute: str | None = None) -> Any:
        """A function by name, also a method of a class Solution; a stored object, or its attribute."""
        if isinstance(target, str):
            if target not in self._names and hasattr(self._names.get("Solution"), target):
                return getattr(self._names["Solution"](), target)
            if target not in self._names:
                raise NameError(f"name {target!r} is not defined")
            return self._names[target]
        found = self._kept[target]
        return found if attribute is None else getattr(found, attribute)

    def answer(self, message: bytes) -> bytes:
        """Handle one request."""
        request = decode_given(message)
        if request[0] == "get":
            return reply_value(encode(self.find(*request[1:]), self.keep))
        if request[0] == "used":
            return reply_value(b"%d %d" % (self._newly_reached(), int(1000 * self._spent)))
        _, target, given, named, back, *seconds = request
        limit_cpu(seconds[0] if seconds else self._seconds)
        values = decode_given(given, self.find)
        result = encode(self._call(self.find(target), values, decode_given(named, self.find)), self.keep)
        after = encode(values, self.keep) if back else given
        return reply_value(result, after if after != given else b"")

    def _call(self, function: Any, values: list[Any], named: dict[str, Any]) -> Any:
        coverage = None if self._coverage is None or self._coverage.is_complete else self._coverage
        before = time.process_time()
        if coverage is not None:
            coverage.start()
        try:
            return function(*values, **named)
        finally:
            if coverage is not None:
                coverage.stop()
            self._spent = time.process_time() - before

    def _newly_reached(self) -> int:
        """The number of lines reached since the last such request."""
        count = 0 if self._coverage is None else len(self._coverage.lines)
        new, self._known = count - self._known, count
        return new


def main() -> None:
    """Load the program, then answer requests until the input ends."""
    wire, process = Wire(), os.getpid()
    source, prelude, entry_point, trace, seconds = decode_given(wire.receive() or b"")
    try:
        code = compile(source, "main.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        wire.send(b"U" + join_texts(repr(error)))
        return
    try:
        coverage = Coverage(code) if trace else None
        limit_cpu(seconds)
        names = load(code, "candidate", prelude=prelude, entry_point=entry_point)
        served = Served(names, seconds, coverage)
    except BaseException as error:
        if os.getpid() == process:
            wire.send(_raised(error))
        return
    reply = b"L"
    while os.getpid() == process:
        wire.send(reply)
        message = wire.receive()
        if message is None:
            return
        try:
            reply = served.answer(message)
        except BaseException as error:
            reply = _raised(error)


def _raised(error: BaseException) -> bytes:
    kind = type(error)
    base = next(parent.__name__ for parent in kind.__mro__ if parent.__module__ == "builtins")
    try:
        text = str(error)
    except BaseException:
        text = ""
    return b"R" + join_texts(str(kind.__name__), base, text)
