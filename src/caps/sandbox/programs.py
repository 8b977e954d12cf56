"""Runs a program on many inputs, one after another, in as few processes as possible.

A process that ends or is killed loses only its current input: the next input starts another. Its output is
hostile: here it is only split into parts and passed on as bytes; `caps.graders.results` parses it elsewhere.
"""

import marshal
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from importlib.util import MAGIC_NUMBER
from typing import Any, Literal, TypeAlias

from caps.core.errors import SandboxError
from caps.sandbox.base import PYTHON, Conversation, EndedError, Job, Limits, Sandbox, Status, printable
from caps.sandbox.inside.plain import encode
from caps.sandbox.inside.wire import split_texts, split_value
from caps.sandbox.runner import classify_exit

_PACKAGE = "caps.sandbox.inside"
_NEEDED = {
    "feed": ("feed", "prelude", "wire"),
    "serve": ("serve", "plain", "prelude", "wire"),
    "examine": ("examine", "plain", "wire"),
    "patching": ("patching",),
}


def make_job(name: str, limits: Limits, *, prelude: bool = False, mode: str = "") -> Job:
    """The job that runs `inside/<name>.py`, some of which work in several modes."""
    arguments = f"{limits.output}, prelude={prelude}" if name == "feed" else repr(mode) if mode else ""
    command = f"from {_PACKAGE}.{name} import main; main({arguments})"
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
_MAX_DIGITS = 12  # of an exit code or a size
OUT_OF_TURN = "the program answered out of turn"


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program that is called at its entry point, or else reads input; `prelude` adds imports."""

    source: str
    entry_point: str | None = None
    prelude: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one input: the output, or the encoded result of a call; else why it failed."""

    status: OutcomeStatus
    output: bytes = b""
    detail: str = ""
    seconds: float = 0.0


async def outcomes_of(
    sandbox: Sandbox, program: Program, inputs: Sequence[Any], *, limits: Limits
) -> AsyncGenerator[Outcome, None]:
    """Yield the outcome of each input; closing early kills the process. The caller must hold a core."""
    remaining = list(inputs)
    while remaining:
        answered = False
        async with aclosing(_session(sandbox, program, remaining, limits)) as session:
            async for outcome in session:
                answered = True
                remaining.pop(0)
                yield outcome
        if not answered:
            raise SandboxError(f"{sandbox.name} started a process that does not answer")


async def _session(
    sandbox: Sandbox, program: Program, inputs: Sequence[Any], limits: Limits
) -> AsyncGenerator[Outcome, None]:
    """Yield outcomes of one process; the last one may be that it ended."""
    fed = program.entry_point is None
    allowed = limits if fed else replace(limits, cpu=limits.seconds * len(inputs) + _START_SECONDS)
    async with sandbox.open(
        make_job("feed" if fed else "serve", allowed, prelude=program.prelude)
    ) as conversation:
        await wait_until_ready(conversation, sandbox)
        started = time.perf_counter()
        try:
            failure = await (_feed_source if fed else load)(conversation, program, limits)
        except EndedError as ended:
            failure = Outcome(ended.status, detail=str(ended))
        if failure is not None:
            for _ in tuple(inputs):
                yield failure
            return
        for value in tuple(inputs):
            started = time.perf_counter()
            try:
                outcome = await (_feed if fed else _call)(conversation, program, value, limits)
            except EndedError as ended:
                yield Outcome(ended.status, detail=str(ended), seconds=time.perf_counter() - started)
                return
            yield replace(outcome, seconds=time.perf_counter() - started)


async def wait_until_ready(conversation: Conversation, sandbox: Sandbox) -> None:
    """Wait until the sandbox has started; a failure before that is not the candidate's fault."""
    try:
        await conversation.receive(_START_SECONDS)
    except EndedError as ended:
        raise SandboxError(f"{sandbox.name} did not start: {ended}") from None


async def _feed_source(conversation: Conversation, program: Program, limits: Limits) -> Outcome | None:
    await conversation.send(program.source.encode(errors="surrogatepass"))
    answer = await conversation.receive(limits.seconds)
    return None if answer == b"parsed" else Outcome("unparsed", detail=printable(split_texts(answer, 1)[0]))


async def load(conversation: Conversation, program: Program, limits: Limits) -> Outcome | None:
    """Load a program; returns an outcome only if that failed."""
    await conversation.send(encode([program.source, program.prelude, program.entry_point]))
    reply = await conversation.receive(limits.seconds)
    if reply == b"L":
        return None
    if reply[:1] == b"U":
        return Outcome("unparsed", detail=printable(split_texts(reply[1:], 1)[0]))
    return failed_call(reply)


async def _feed(conversation: Conversation, _: Program, value: str, limits: Limits) -> Outcome:
    await conversation.send(value.encode(errors="surrogatepass"))
    answer = await conversation.receive(limits.seconds)
    head = answer[: answer.find(b"\n", 0, 2 * _MAX_DIGITS) + 1]
    fields = head.split()
    if len(fields) != 2 or not fields[1].isdigit() or not fields[0].removeprefix(b"-").isdigit():
        return Outcome("output" if fields[:1] == [b"output"] else "crashed")
    end = len(head) + int(fields[1])
    last = answer[end:].strip().rpartition(b"\n")[2]
    message = printable(split_texts(last, 1)[0])
    return Outcome(classify_exit(int(fields[0]), answer[end:]), answer[len(head) : end], detail=message)


async def _call(conversation: Conversation, program: Program, value: list[Any], limits: Limits) -> Outcome:
    await conversation.send(encode(["call", program.entry_point, encode(value), encode({}), False]))
    reply = await conversation.receive(limits.seconds)
    parts = split_value(reply)
    return failed_call(reply) if parts is None else Outcome("ok", parts[0])


def failed_call(reply: bytes) -> Outcome:
    """The outcome of a reply that is not a value: the exception, if the reply has one."""
    if reply[:1] != b"R":
        return Outcome("crashed", detail=OUT_OF_TURN)
    kind, _, text = split_texts(reply[1:], 3)
    return Outcome("memory" if kind == "MemoryError" else "crashed", detail=printable(f"{kind}: {text}"))
