"""Runs a program on many inputs, one after another, in as few processes as possible.

A process that ends or is killed loses only its current input: the next input starts another. Its output is
hostile: here it is only split into parts and passed on as bytes; `caps.graders.results` parses it elsewhere.
"""

import marshal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from importlib.util import MAGIC_NUMBER
from itertools import islice
from typing import Any, Literal, TypeAlias

from caps.core.errors import SandboxError
from caps.sandbox.base import (
    CERTAIN,
    PYTHON,
    Conversation,
    EndedError,
    Job,
    Limits,
    Sandbox,
    Status,
    clock_seconds,
    printable,
)
from caps.sandbox.inside.plain import encode
from caps.sandbox.inside.wire import split_texts, split_value
from caps.sandbox.languages import COMPILE_SECONDS, TOOLCHAINS
from caps.sandbox.languages import PYTHON as PYTHON_NAME
from caps.sandbox.runner import classify_exit

_PACKAGE = "caps.sandbox.inside"
_NEEDED = {
    "feed": ("feed", "coverage", "prelude", "wire"),
    "native": ("feed", "coverage", "plain", "prelude", "wire"),
    "serve": ("serve", "coverage", "plain", "prelude", "wire"),
    "examine": ("examine", "plain", "wire"),
    "patching": ("patching",),
}


def make_job(name: str, limits: Limits, *, prelude: bool = False, trace: bool = False, mode: str = "") -> Job:
    """The job that runs `inside/<name>.py`, some of which work in several modes."""
    arguments = repr(mode) if mode else ""
    if name == "feed":
        arguments = f"{limits.output}, prelude={prelude}, trace={trace}"
    command = f"from {_PACKAGE}.{name} import main; main({arguments})"
    if name == "native":
        command = f"from {_PACKAGE}.feed import main_native; main_native({limits.output})"
    return Job((*PYTHON.argv, "-c", command), _compiled(name), limits=limits)


@cache
def _compiled(name: str) -> dict[str, bytes]:
    """The modules as bytecode; the sandbox uses the same interpreter."""
    folder = _PACKAGE.replace(".", "/")
    return {f"{folder}/{part}.pyc": _compile(part) for part in _NEEDED[name]}


def _compile(name: str) -> bytes:
    source = (files(_PACKAGE) / f"{name}.py").read_bytes()
    code = compile(source, f"{name}.py", "exec", dont_inherit=True)
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


OutcomeStatus: TypeAlias = Status | Literal["unparsed"]
_START_SECONDS = 10.0  # for a process to load, independent of the limit of a test
_MAX_DIGITS = 12  # of an exit code, a size or a time
OUT_OF_TURN = "the program answered out of turn"


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program that is called at its entry point, or else reads input; `prelude` adds imports.

    With `trace`, each outcome counts the lines of the program that it was the first to reach. A program in
    another `language` always reads input and is not traced.
    """

    source: str
    entry_point: str | None = None
    prelude: bool = True
    trace: bool = False
    language: str = PYTHON_NAME

    @property
    def kind(self) -> str:
        """The job that runs it."""
        if self.language != PYTHON_NAME:
            return "native"
        return "feed" if self.entry_point is None else "serve"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one input: the output, or the encoded result of a call; else why it failed.

    `cpu` is the processor time that it took, `limit` what it was allowed, both in seconds.
    """

    status: OutcomeStatus
    output: bytes = b""
    detail: str = ""
    cpu: float = 0.0
    reached: int = 0
    limit: float = 0.0

    @property
    def unknown(self) -> str:
        """Why it says nothing about the program, since it depends on the machine; else empty."""
        if self.status == "clock":
            return f"not ended after {clock_seconds(self.limit):g} s by the clock"
        if self.status != "timeout" and self.cpu > self.limit > 0:
            return f"took {self.cpu:.1f} s of processor time, near the limit of {self.limit:g} s"
        return ""


async def outcomes_of(
    sandbox: Sandbox, program: Program, inputs: Sequence[tuple[Any, float]], *, limits: Limits
) -> AsyncGenerator[Outcome, None]:
    """Yield the outcome of each input with its seconds of processor time; closing early kills the process.

    The caller must hold a core while it waits for an outcome. It may add inputs in between, for which the
    process is still there.
    """
    place = 0
    while place < len(inputs):
        first = place
        async with aclosing(_session(sandbox, program, inputs, first, limits)) as session:
            async for outcome in session:
                place += 1
                yield outcome
        if place == first:
            raise SandboxError(f"{sandbox.name} started a process that does not answer")


async def _session(
    sandbox: Sandbox, program: Program, inputs: Sequence[tuple[Any, float]], first: int, limits: Limits
) -> AsyncGenerator[Outcome, None]:
    """Yield outcomes of one process, from this input on; the last one may be that it ended."""
    kind, allowed = program.kind, replace(limits, cpu=CERTAIN * limits.seconds + _START_SECONDS)
    if kind == "serve":
        allowed = replace(limits, cpu=CERTAIN * limits.seconds * (len(inputs) - first) + _START_SECONDS)
    elif kind == "native":
        allowed = TOOLCHAINS[program.language].limits(limits)
    start, run = _RUNS[kind]
    job = make_job(kind, allowed, prelude=program.prelude, trace=program.trace)
    async with sandbox.open(job) as conversation:
        await wait_until_ready(conversation, sandbox)
        try:
            failure = await start(conversation, program, limits)
        except EndedError as ended:
            failure = Outcome(ended.status, detail=str(ended), limit=limits.seconds)
        if failure is not None:
            for _ in islice(inputs, first, None):
                yield failure
            return
        for value, seconds in islice(inputs, first, None):
            try:
                outcome = await run(conversation, program, value, seconds)
            except EndedError as ended:
                yield Outcome(ended.status, detail=str(ended), limit=seconds)
                return
            yield replace(outcome, limit=seconds)


async def wait_until_ready(conversation: Conversation, sandbox: Sandbox) -> None:
    """Wait until the sandbox has started; a failure before that is not the candidate's fault."""
    try:
        await conversation.receive(clock_seconds(_START_SECONDS))
    except EndedError as ended:
        raise SandboxError(f"{sandbox.name} did not start: {ended}") from None


async def _feed_source(conversation: Conversation, program: Program, limits: Limits) -> Outcome | None:
    await conversation.send(program.source.encode(errors="surrogatepass"))
    answer = await conversation.receive(clock_seconds(limits.seconds))
    return None if answer == b"parsed" else Outcome("unparsed", detail=printable(split_texts(answer, 1)[0]))


async def _compile_source(conversation: Conversation, program: Program, _: Limits) -> Outcome | None:
    file, compiling, running = TOOLCHAINS[program.language].commands(program.source)
    source = program.source.encode(errors="surrogatepass")
    await conversation.send(encode([source, file, compiling, running]))
    answer = await conversation.receive(clock_seconds(COMPILE_SECONDS))
    if answer == b"parsed":
        return None
    lines = split_texts(answer, 1)[0].splitlines()
    errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
    return Outcome("unparsed", detail=printable(errors[0] if errors else ""))


async def load(conversation: Conversation, program: Program, limits: Limits) -> Outcome | None:
    """Load a program; returns an outcome only if that failed."""
    seconds = CERTAIN * limits.seconds
    first = [program.source, program.prelude, program.entry_point, program.trace, seconds]
    await conversation.send(encode(first))
    reply = await conversation.receive(clock_seconds(limits.seconds))
    if reply == b"L":
        return None
    if reply[:1] == b"U":
        return Outcome("unparsed", detail=printable(split_texts(reply[1:], 1)[0]))
    return failed_call(reply)


async def _feed(conversation: Conversation, _: Program, value: str, seconds: float) -> Outcome:
    await conversation.send(b"%.3f\n%b" % (CERTAIN * seconds, value.encode(errors="surrogatepass")))
    return _read_fed(await conversation.receive(clock_seconds(seconds)))


def _read_fed(answer: bytes) -> Outcome:
    if answer == b"output":
        return Outcome("output")
    head = answer[: answer.find(b"\n", 0, 4 * _MAX_DIGITS) + 1]
    code, *numbers = head.split() or [b""]
    if len(numbers) != 3 or not b"".join(numbers).isdigit() or not code.removeprefix(b"-").isdigit():
        return Outcome("crashed")
    size, reached, milliseconds = map(int, numbers)
    end = len(head) + size
    last = answer[end:].strip().rpartition(b"\n")[2]
    message = printable(split_texts(last, 1)[0])
    status = classify_exit(int(code), answer[end:])
    return Outcome(status, answer[len(head) : end], message, cpu=milliseconds / 1000, reached=reached)


async def _call(conversation: Conversation, program: Program, value: list[Any], seconds: float) -> Outcome:
    started = time.perf_counter()
    call = ["call", program.entry_point, encode(value), encode({}), False, CERTAIN * seconds]
    await conversation.send(encode(call))
    reply = await conversation.receive(clock_seconds(seconds))
    parts = split_value(reply)
    outcome = failed_call(reply) if parts is None else Outcome("ok", parts[0])
    if not program.trace and time.perf_counter() - started < seconds:
        return outcome
    await conversation.send(encode(["used"]))
    counted = split_value(await conversation.receive(clock_seconds(seconds)))
    numbers = b"" if counted is None else counted[0][: 2 * _MAX_DIGITS]
    if len(numbers.split()) != 2 or not numbers.replace(b" ", b"").isdigit():
        return Outcome("crashed", detail=OUT_OF_TURN)
    reached, milliseconds = map(int, numbers.split())
    return replace(outcome, reached=reached, cpu=milliseconds / 1000)


_Start: TypeAlias = Callable[[Conversation, Program, Limits], Awaitable[Outcome | None]]
_Run: TypeAlias = Callable[[Conversation, Program, Any, float], Awaitable[Outcome]]
_RUNS: dict[str, tuple[_Start, _Run]] = {  # how a program is started, and run on an input
    "feed": (_feed_source, _feed),
    "native": (_compile_source, _feed),
    "serve": (load, _call),
}


def failed_call(reply: bytes) -> Outcome:
    """The outcome of a reply that is not a value: the exception, if the reply has one."""
    if reply[:1] != b"R":
        return Outcome("crashed", detail=OUT_OF_TURN)
    kind, _, text = split_texts(reply[1:], 3)
    return Outcome("memory" if kind == "MemoryError" else "crashed", detail=printable(f"{kind}: {text}"))
