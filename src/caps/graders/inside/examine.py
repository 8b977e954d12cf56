"""Runs a test program whose candidate lives in another process: every call goes there as plain data.

The first message brings the tests; the last one sent is the verdict, under a nonce that the candidate's
process never saw: `[nonce, "passed"]`, or `[nonce, how, type, text, line]` where how is failed or undecided.
"""

from __future__ import annotations

import builtins
import sys

from caps.graders.inside.plain import NotPlainError, decode, encode
from caps.graders.inside.wire import Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Asked:
    """The other process, as far as tests can tell."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.calls = 0

    def ask(self, request: list[Any]) -> Any:
        """Send a request; the value comes back, or the exception is raised here."""
        self._wire.send(encode(request))
        message = self._wire.receive()
        if message is None:
            raise SystemExit(1)
        reply = decode(message)
        if reply[0] == "raise":
            raise _rebuild(*reply[1:])
        return reply[1], reply[2]

    def function(self, target: str | int) -> Callable[..., Any]:
        """A stand-in for a function there; lists and dicts it changes are changed here as well."""

        def call(*values: Any, **named: Any) -> Any:
            self.calls += 1
            given = encode(list(values), number_of)
            result, after = self.ask(["call", target, given, encode(named, number_of), True])
            if after is not None:
                _write_back(list(values), decode(after, self.stand_in))
            return decode(result, self.stand_in)

        call.__name__ = str(target)
        return call

    def stand_in(self, number: int) -> StandIn:
        """What takes the place of an object that stayed there."""
        return StandIn(self, number)


class StandIn:
    """An object of the other process: it can be called and has attributes, and is equal to itself alone."""

    def __init__(self, asked: Asked, number: int) -> None:
        self._asked, self._number = asked, number

    def __call__(self, *values: Any, **named: Any) -> Any:  # noqa: D102
        return self._asked.function(self._number)(*values, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return decode(self._asked.ask(["get", self._number, name])[0], self._asked.stand_in)


def number_of(value: object) -> int:
    """The number of an object that came from there; nothing else that is not plain can go there."""
    if isinstance(value, StandIn):
        return value._number
    raise NotPlainError(f"the tests pass {type(value).__name__}, which is no plain data")


def main() -> None:
    """Run the tests and tell the verdict."""
    wire = Wire()
    suite = decode(wire.receive() or b"")
    asked = Asked(wire)
    try:
        _run(suite, asked)
        verdict = ["passed"]
    except NotPlainError as error:
        verdict = ["undecided", "NotPlainError", str(error), ""]
    except SystemExit as error:  # the tests' own: unittest ends so
        verdict = ["passed"] if not error.code else ["failed", "SystemExit", str(error.code), ""]
    except BaseException as error:
        verdict = ["failed", type(error).__name__, str(error)[:500], _line(error, suite["tests"])]
    wire.send(encode([suite["nonce"], *verdict]))


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
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        name, kind = f"the candidate raised {name}", RuntimeError
    if name != base:
        kind = type(name, (kind,), {})
    try:
        error: Exception = kind(text)
    except TypeError:  # those that want more to be made of
        error = RuntimeError(f"{name}: {text}")
    return error


def _line(error: BaseException, tests: str) -> str:
    number, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<tests>":
            number = trace.tb_lineno
        trace = trace.tb_next
    return tests.splitlines()[number - 1].strip()[:300] if number else ""
