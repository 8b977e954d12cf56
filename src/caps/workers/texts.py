"""Long texts, processed by pure functions in worker processes, so that no text blocks the event loop.

Threads would not help: they share the interpreter's lock with the loop. A job is the name of a function of
this package or of a plug-in, and its arguments as JSON; the result comes back as JSON, too. Both are decoded
to the types that the function declares, and to nothing else.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from inspect import signature
from types import GenericAlias
from typing import Any, NamedTuple, TypeVar, get_type_hints

import msgspec

from caps.core.errors import InputError, SlowTextError
from caps.registry import plugin_packages
from caps.workers import child
from caps.workers.pool import NoReplyError, Workers, usable_cores

T = TypeVar("T")

SECONDS = 30.0  # CPU time of one job: far more than any text needs that is not an attack
LONG_TEXT = 64_000  # characters: shorter texts take a few milliseconds
MAX_WORKERS = 4
MEMORY = 2 << 30
LONGEST_REPLY = 256 << 20
LONGEST_MESSAGE = 500  # characters of an error


class TextWorkers:
    """Runs pure functions on long texts in worker processes, and on short ones inline.

    No process is started before the first long text. Its creator closes it, in the event loop in which it
    was used.
    """

    def __init__(self, *, count: int | None = None, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._workers = Workers(
            "caps.workers.texts:serve",
            (seconds, memory),
            count=count or min(MAX_WORKERS, usable_cores()),
            seconds=seconds,
            longest=LONGEST_REPLY,
        )

    @property
    def started(self) -> int:
        """Number of processes started so far."""
        return self._workers.started

    async def run(
        self, work: "partial[T]", *, size: int, limit: int = LONG_TEXT, until: float | None = None
    ) -> T:
        """The result of the work, done in a worker if `size`, in characters, exceeds `limit`.

        An `InputError` of the work is raised here; any other failure, a worker that takes too long or one
        that dies is a `SlowTextError`. `until` is a time of the loop's clock.
        """
        if size <= limit:
            return work()
        types = _types_of(work.func)
        values = signature(work.func).bind(*work.args, **work.keywords)
        values.apply_defaults()
        request = _encode(list(values.arguments.values()))
        try:
            status, reply = await self._workers.ask(name_of(work.func), request, until=until)
            if status == "returned":
                return msgspec.convert(reply, types.result)  # type: ignore[no-any-return]
        except (NoReplyError, msgspec.ValidationError) as error:
            status, reply = "failed", str(error)
        if status == "refused":
            raise InputError(reply)
        raise SlowTextError(f"{size:,} characters of text could not be read: {reply}")

    async def close(self) -> None:
        """End every worker."""
        await self._workers.close()


def serve(seconds: float, memory: int) -> None:
    """Run jobs in a worker process until the input ends."""
    child.serve(_run, seconds=seconds, memory=memory)


def _run(name: str, parts: Sequence[bytes]) -> tuple[str, object]:
    """Run a job; returns a status, and the result or the message of the error."""
    try:
        function = function_named(name)
        types = _types_of(function)
        arguments = zip(types.names, _decode(parts[0], types.arguments), strict=True)
        return "returned", msgspec.to_builtins(function(**dict(arguments)), enc_hook=_plain_text)
    except InputError as error:
        return "refused", str(error)
    except Exception as error:  # a plug-in may raise or return anything
        return "failed", f"{type(error).__name__}: {error}"[:LONGEST_MESSAGE]


def name_of(function: Callable[..., Any]) -> str:
    """The name by which a worker finds a function."""
    return f"{function.__module__}:{function.__qualname__}"


def function_named(name: str) -> Callable[..., Any]:
    """Find a function of this package, or of a package with plug-ins, by its name."""
    module, _, function = name.partition(":")
    package = module.partition(".")[0]
    if not function.isidentifier() or (package != "caps" and package not in plugin_packages()):
        raise ValueError(f"{name} is no function of caps or of a plug-in")
    return getattr(import_module(module), function)  # type: ignore[no-any-return]


class _Types(NamedTuple):
    """What a function declares: the names and types of its arguments, and the type of its result."""

    names: tuple[str, ...]
    arguments: Any
    result: Any


@cache
def _types_of(function: Callable[..., Any]) -> _Types:
    hints = get_type_hints(function)
    names = tuple(signature(function).parameters)
    arguments = GenericAlias(tuple, tuple(hints[name] for name in names))
    return _Types(names, arguments, hints["return"])


def _encode(value: object) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_plain_text)
    except UnicodeEncodeError:  # lone surrogates, which only the standard library can write
        return json.dumps(msgspec.to_builtins(value, enc_hook=_plain_text)).encode()


def _decode(data: bytes, wanted: Any) -> Any:
    try:
        return msgspec.json.decode(data, type=wanted)
    except msgspec.DecodeError:  # lone surrogates, which only the standard library can read
        return msgspec.convert(json.loads(data), wanted)


def _plain_text(value: object) -> str:
    """The text of an instance of a subclass of `str`, which a view of a plug-in may return."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} cannot be sent to another process")
