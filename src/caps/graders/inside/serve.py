"""Loads a program and calls its functions when told, with plain data in and out.

The first message is the program with its settings; each one after it names a function (or a kept object) and
arguments. Answers are `["value", result, arguments or null]` or `["raise", type, built-in base, text]`.
"""

import json
from typing import Any

from caps.graders.inside.plain import pack, unpack
from caps.graders.inside.prelude import load
from caps.graders.inside.wire import Wire


class Served:
    """A loaded program and the objects it handed out that are no plain data."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._kept: list[object] = []

    def keep(self, value: object) -> int:
        """Remember an object; its number is sent in its place."""
        self._kept.append(value)
        return len(self._kept) - 1

    def find(self, target: str | int, attribute: str | None = None) -> Any:
        """A function by its name, also one of a class Solution; a kept object, or what it has by that name."""
        if isinstance(target, str):
            if target not in self._names and hasattr(self._names.get("Solution"), target):
                return getattr(self._names["Solution"](), target)
            if target not in self._names:
                raise NameError(f"name {target!r} is not defined")
            return self._names[target]
        found = self._kept[target]
        return found if attribute is None else getattr(found, attribute)

    def answer(self, message: bytes) -> list[Any]:
        """Do what a message asks for."""
        request = json.loads(message)
        if request[0] == "get":
            return ["value", pack(self.find(*request[1:]), self.keep), None]
        _, target, packed, named, back = request
        values = unpack(packed, self.find)
        result = pack(self.find(target)(*values, **unpack(named, self.find)), self.keep)
        if not back:
            return ["value", result, None]
        after = pack(values, self.keep)
        return ["value", result, after if json.dumps(after) != json.dumps(packed) else None]


def main() -> None:
    """Load the program, then answer until no more is asked."""
    wire = Wire()
    settings = json.loads(wire.receive() or b"{}")
    try:
        code = compile(settings["source"], "main.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        wire.send(json.dumps(["unparsed", repr(error)]).encode())
        return
    try:
        served = Served(load(code, "candidate", prelude=settings["prelude"]))
        wire.send(b'["loaded"]')
    except BaseException as error:  # noqa: BLE001 - SystemExit too
        wire.send(_raised(error))
        return
    while (message := wire.receive()) is not None:
        try:
            wire.send(json.dumps(served.answer(message)).encode())
        except BaseException as error:  # noqa: BLE001
            wire.send(_raised(error))


def _raised(error: BaseException) -> bytes:
    kind = type(error)
    base = next(parent.__name__ for parent in kind.__mro__ if parent.__module__ == "builtins")
    try:
        text = str(error)[:500]
    except BaseException:  # noqa: BLE001
        text = ""
    return json.dumps(["raise", str(kind.__name__), base, text]).encode()
