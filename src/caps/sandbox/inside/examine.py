"""Runs a test program whose candidate is in another process: every call is sent there as plain data.

The first message contains the tests. Each message sent is a request: `?`, a printable description of the
call, a zero byte, the request itself; the answer is the candidate's reply, unchanged (see `wire`). The last
message sent is the verdict, marked with a nonce that the candidate's process never saw: the outcome
(`passed`, `failed`, `raised` by the candidate, `undecided`), the type of the exception, its text, the line of
the tests, the call and its result.

An object of the candidate decides nothing: its class can have an `equals` that is always true. If the tests
pass after they called a method of one, or after its attribute decided a condition, the verdict is
`undecided`. Objects of a class that the tests themselves name are what is tested, and may decide.

The candidate's replies are hostile. A reply that cannot be parsed ends the tests immediately, so that no
`except` in them can hide it. An exception of the candidate is raised here with the same built-in type, but
never as one that controls the tests: `StopIteration` would end their loops, `SystemExit` all of them.
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
from caps.sandbox.inside.wire import MAX_TEXT, Wire, join_texts, split_reply, split_texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_CONTROL_FLOW = (StopIteration, StopAsyncIteration)  # the others are not an `Exception`


class CandidateProxy:
    """Proxy of the candidate's process; `raised` is the last exception it raised."""

    def __init__(self, wire: Wire, nonce: str, classes: tuple[str, ...] = ()) -> None:
        self._wire, self._nonce, self._classes = wire, nonce, classes
        self.calls = 0
        self.called, self.got = "", ""
        self.raised: Exception | None = None
        self.decided_by = ""  # the attribute of an object that the tests relied on
        self._instances: set[int] = set()

    def ask(self, request: bytes, called: str, find: Callable[[int], object]) -> tuple[Any, Any]:
        """Send a request; returns the result and the changed arguments, or raises the exception."""
        self.called, self.got = called, ""
        self._wire.send(b"?" + join_texts(called) + b"\0" + request)
        reply = self._wire.receive()
        if reply is None:
            os._exit(1)
        letter, _, rest = split_reply(reply) or (b"", 0, b"")
        if letter == b"R":
            name, base, text = split_texts(rest, 3)
            self.got = f"{name}: {text}"
            self.raised = _rebuild(name, base, text)
            raise self.raised
        try:
            if letter != b"V":
                raise UnreadableError("the program answered out of turn")
            value, _, changed = rest.partition(b"\n")
            result, after = decode(value, find), decode(changed, self.stand_in) if changed else None
        except (UnreadableError, MemoryError) as error:
            self.send_verdict("failed", "UnreadableError", f"the result cannot be read: {error}", "")
            os._exit(0)
        self.got = brief(result)
        return result, after

    def send_verdict(self, how: str, kind: str, text: str, line: str) -> None:
        """Send the verdict."""
        self._wire.send(self._nonce.encode() + join_texts(how, kind, text, line, self.called, self.got))

    def function(self, target: str | int) -> Callable[..., Any]:
        """A proxy of a function; lists and dicts that it changes are changed here as well."""
        find = self.instance if target in self._classes else self.stand_in

        def call(*values: Any, **named: Any) -> Any:
            self.calls += 1
            arguments = list(values)
            called = f"{target}{brief(arguments)}"
            request = join_request(["call", target, True], arguments, named)
            result, after = self.ask(request, called, find)
            if after is not None:
                _write_back(arguments, after)
            return result

        call.__name__ = str(target)
        return call

    def attribute(self, number: int, name: str) -> Any:
        """An attribute of a remote object."""
        if number in self._instances:
            return self.ask(encode(["get", number, name]), f"attribute {name}", self.stand_in)[0]

        def decide() -> None:
            self.decided_by = self.decided_by or name

        def method(number: int) -> StandIn:
            stand_in = self.stand_in(number)
            return Method(self, number, decide) if type(stand_in) is StandIn else stand_in

        return _watched(self.ask(encode(["get", number, name]), f"attribute {name}", method)[0], decide)

    def send_passed(self) -> None:
        """Send the verdict of tests that ended without an error."""
        if self.decided_by:
            text = f"the tests rely on {self.decided_by!r} of an object whose class the candidate defines"
            self.send_verdict("undecided", "NotPlainError", text, "")
        else:
            self.send_verdict("passed", "", "", "")

    def stand_in(self, number: int) -> StandIn:
        """The proxy of a remote object."""
        return Instance(self, number) if number in self._instances else StandIn(self, number)

    def instance(self, number: int) -> StandIn:
        """The proxy of an object of a class that the tests know."""
        self._instances.add(number)
        return Instance(self, number)


class StandIn:
    """Proxy of a remote object: it can be called, has attributes, and is equal only to itself.

    It lacks the methods of texts, numbers, lists, dicts and sets: tests that call these expect such a value,
    and an object in its index could return what they expect (a `startswith` that is always true).
    """

    def __init__(self, candidate: CandidateProxy, number: int) -> None:
        self._candidate, self._number = candidate, number

    def __call__(self, *values: Any, **named: Any) -> Any:  # noqa: D102
        return self._candidate.function(self._number)(*values, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or any(hasattr(kind, name) for kind in self._plain_types()):
            raise AttributeError(
                f"the candidate's object, which is not plain data, has no attribute {name!r}"
            )
        return self._candidate.attribute(self._number, name)

    def _plain_types(self) -> tuple[type, ...]:
        return PLAIN_TYPES


class Method(StandIn):
    """Proxy of an object that is an attribute of another: as a method, it decides what it returns."""

    def __init__(self, candidate: CandidateProxy, number: int, decide: Callable[[], object]) -> None:
        super().__init__(candidate, number)
        self._decide = decide

    def __call__(self, *values: Any, **named: Any) -> Any:  # noqa: D102
        self._decide()
        return super().__call__(*values, **named)


class Instance(StandIn):
    """Proxy of an object that the tests expect; it may have methods such as `pop` and `get`."""

    def _plain_types(self) -> tuple[type, ...]:
        return ()


def join_request(asked: list[Any], values: list[Any], named: dict[str, Any]) -> bytes:
    """The request for a call."""
    return b"\n".join((encode(asked), encode(values, number_of), encode(named, number_of)))


def number_of(value: object) -> int:
    """The number of a remote object; no other object can be sent."""
    if isinstance(value, StandIn):
        return value._number
    raise NotPlainError(f"the tests pass {type(value).__name__}, which is not plain data")


def main() -> None:
    """Run the tests and send the verdict."""
    wire = Wire()
    suite = decode_given(wire.receive() or b"")
    candidate = CandidateProxy(wire, suite["nonce"], tuple(suite["classes"]))
    try:
        _run(suite, candidate)
        candidate.send_passed()
    except NotPlainError as error:
        candidate.send_verdict("undecided", "NotPlainError", str(error), "")
    except SystemExit as error:  # raised by the tests: unittest ends this way
        if error.code:
            candidate.send_verdict("failed", "SystemExit", str(error.code), "")
        else:
            candidate.send_passed()
    except BaseException as error:
        how = "raised" if error is candidate.raised else "failed"
        candidate.send_verdict(how, type(error).__name__, str(error), _line(error, suite["tests"]))


def _run(suite: dict[str, Any], candidate: CandidateProxy) -> None:
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    names = vars(module)
    exec(compile(suite["prompt"], "<prompt>", "exec", dont_inherit=True), names)  # noqa: S102
    for name in suite["modules"]:
        names.setdefault(name, __import__(name))
    for name in suite["missing"]:
        names.setdefault(name, candidate.function(name))
    entry = suite["entry_point"]
    if entry:
        names["candidate"] = names[entry] = candidate.function(entry)
    exec(compile(suite["tests"], "<tests>", "exec", dont_inherit=True), names)  # noqa: S102
    if entry and not candidate.calls and callable(names.get("check")):
        names["check"](names[entry])


def _watched(value: Any, decide: Callable[[], object]) -> Any:
    """A value that reports when its truth is asked for; a truth value does so at once."""
    kind = type(value)
    if value is True or value is False:
        decide()
    if kind not in PLAIN_TYPES or kind is complex:
        return value

    def truth(_: object) -> bool:
        decide()
        return bool(value)

    return type(kind.__name__, (kind,), {"__bool__": truth})(value)


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
    if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, _CONTROL_FLOW):
        name, kind = f"the candidate raised {name}", RuntimeError
    if name != base:
        kind = type(name, (kind,), {})
    try:
        error: Exception = kind(text)
    except TypeError:  # exceptions that need more arguments
        error = RuntimeError(f"{name}: {text}")
    return error


def brief(value: Any, room: int = MAX_TEXT) -> str:
    """A truncated `repr`, which reads only the beginning of a long value."""
    parts: list[str] = []
    _write_brief(value, parts, room)
    return "".join(parts)[:room]


def _write_brief(value: Any, parts: list[str], room: int) -> int:
    """Write what fits into `room` characters; returns the remaining room."""
    if room <= 0:
        return 0
    kind = type(value)
    if kind in _BRACKETS:
        opening, closing = _BRACKETS[kind]
        parts.append(opening)
        room -= len(opening)
        for index, item in enumerate(value.items() if kind is dict else value):
            if room <= 0:
                break
            parts.append(", " if index else "")
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
        except ValueError:  # Python refuses to print very long integers
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
