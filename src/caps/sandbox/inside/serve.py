"""Loads a program and calls its functions on request, with plain data in and out.

The first message is the program with its settings. Each later one has three lines: what is asked for, which
names a function (or a stored object), the arguments, and the named arguments. `wire` describes the replies.
Loading and each call end the process when they use too much processor time. A process that the program
forked sends no reply: it would answer the next request.
"""

from __future__ import annotations

import os
import time

from caps.sandbox.inside.plain import decode_given, encode
from caps.sandbox.inside.prelude import load
from caps.sandbox.inside.wire import Wire, join_texts, limit_cpu, reply_raised, reply_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Served:
    """A loaded program, and its objects that were sent as numbers because they are not plain data."""

    def __init__(self, names: dict[str, Any], seconds: float) -> None:
        self._names, self._seconds = names, seconds
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
        kept = self._kept[target]
        return kept if attribute is None else getattr(kept, attribute)

    def answer(self, message: bytes) -> bytes:
        """Handle one request; what the program raises is the reply, too."""
        before = time.process_time()
        try:
            result, after = self._answer(*message.split(b"\n"))
        except BaseException as error:
            return _raised(error, _milliseconds_since(before))
        return reply_value(result, after, milliseconds=_milliseconds_since(before))

    def _answer(self, asked: bytes, arguments: bytes = b"", named: bytes = b"") -> tuple[bytes, bytes]:
        """The result, and the arguments if they changed and are wanted back."""
        request = decode_given(asked)
        if request[0] == "get":
            return encode(self.find(*request[1:]), self.keep), b""
        _, target, back, *seconds = request
        limit_cpu(seconds[0] if seconds else self._seconds)
        values, by_name = decode_given(arguments, self.find), decode_given(named, self.find)
        result = encode(self.find(target)(*values, **by_name), self.keep)
        after = encode(values, self.keep) if back else arguments
        return result, after if after != arguments else b""


def main() -> None:
    """Load the program, then answer requests until the input ends."""
    wire, process = Wire(), os.getpid()
    source, prelude, entry_point, seconds = decode_given(wire.receive() or b"")
    try:
        code = compile(source, "main.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        wire.send(b"U" + join_texts(repr(error)))
        return
    try:
        limit_cpu(seconds)
        served = Served(load(code, "candidate", prelude=prelude, entry_point=entry_point), seconds)
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
        reply = served.answer(message)


def _milliseconds_since(before: float) -> int:
    return int(1000 * (time.process_time() - before))


def _raised(error: BaseException, milliseconds: int = 0) -> bytes:
    kind = type(error)
    base = next(parent.__name__ for parent in kind.__mro__ if parent.__module__ == "builtins")
    try:
        text = str(error)
    except BaseException:
        text = ""
    return reply_raised(str(kind.__name__), base, text, milliseconds=milliseconds)
