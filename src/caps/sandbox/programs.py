"""What a program does on many inputs, run one after another in as few processes as possible.

A process that ends, or is ended, costs only the input it was given: the next input starts another. What comes
out of it is hostile: here it is cut into parts and handed on as bytes; `results` reads them elsewhere.
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
from caps.sandbox.runner import judge_exit

# Jobs that run one of our own programs inside the sandbox, around a candidate.


_PACKAGE = "caps.sandbox.inside"
_NEEDED = {
    "feed": ("feed", "prelude", "wire"),
    "serve": ("serve", "plain", "prelude", "wire"),
    "examine": ("examine", "plain", "wire"),
}


def boot(name: str, limits: Limits, *, prelude: bool = False) -> Job:
    """The job that runs `inside/<name>.py`."""
    arguments = f"{limits.output}, prelude={prelude}" if name == "feed" else ""
    command = f"from {_PACKAGE}.{name} import main; main({arguments})"
    return Job((*PYTHON.argv, "-c", command), _compiled(name), limits=limits)


@cache
def _compiled(name: str) -> dict[str, bytes]:
    """The modules as Python keeps them when compiled; the interpreter inside is the one that runs us."""
    place = _PACKAGE.replace(".", "/")
    return {f"{place}/{part}.pyc": _compile(part) for part in _NEEDED[name]}


def _compile(name: str) -> bytes:
    source = (files(_PACKAGE) / f"{name}.py").read_bytes()
    code = compile(source, f"{name}.py", "exec", dont_inherit=True)
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


Manner: TypeAlias = Status | Literal["unparsed"]
_START = 10.0  # seconds a process may take to load, whatever a test may take
_LONGEST_NUMBER = 12  # digits of an exit code or a size
OUT_OF_TURN = "the program answered out of turn"


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program, called where it has an entry point, else fed; `prelude` lends common imports."""

    source: str
    entry_point: str | None = None
    prelude: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one input led to: the output, or the result of a call in its encoding; else why it failed."""

    status: Manner
    output: bytes = b""
    detail: str = ""
    seconds: float = 0.0


async def outcomes_of(
    sandbox: Sandbox, program: Program, inputs: Sequence[Any], *, limits: Limits
) -> AsyncGenerator[Outcome, None]:
    """Outcomes as they come; leaving early ends the process. Whoever asks holds a core."""
    rest = list(inputs)
    while rest:
        answered = False
        async with aclosing(_session(sandbox, program, rest, limits)) as session:
            async for outcome in session:
                answered = True
                rest.pop(0)
                yield outcome
        if not answered:
            raise SandboxError(f"{sandbox.name} started nothing that answers")


async def _session(
    sandbox: Sandbox, program: Program, inputs: Sequence[Any], limits: Limits
) -> AsyncGenerator[Outcome, None]:
    """Outcomes of one process; the last one may be its end."""
    fed = program.entry_point is None
    allowed = limits if fed else replace(limits, cpu=limits.seconds * len(inputs) + _START)
    async with sandbox.open(boot("feed" if fed else "serve", allowed, prelude=program.prelude)) as talk:
        await begin(talk, sandbox)
        started = time.perf_counter()
        try:
            failure = await (_feed_source if fed else load)(talk, program, limits)
        except EndedError as ended:
            failure = Outcome(ended.status, detail=str(ended))
        if failure is not None:
            for _ in tuple(inputs):
                yield failure
            return
        for given in tuple(inputs):
            started = time.perf_counter()
            try:
                outcome = await (_feed if fed else _call)(talk, program, given, limits)
            except EndedError as ended:
                yield Outcome(ended.status, detail=str(ended), seconds=time.perf_counter() - started)
                return
            yield replace(outcome, seconds=time.perf_counter() - started)


async def begin(talk: Conversation, sandbox: Sandbox) -> None:
    """Wait until the sandbox stands; what fails before that is no candidate's fault."""
    try:
        await talk.receive(_START)
    except EndedError as ended:
        raise SandboxError(f"{sandbox.name} did not start: {ended}") from None


async def _feed_source(talk: Conversation, program: Program, limits: Limits) -> Outcome | None:
    await talk.send(program.source.encode(errors="surrogatepass"))
    answer = await talk.receive(limits.seconds)
    return None if answer == b"parsed" else Outcome("unparsed", detail=printable(split_texts(answer, 1)[0]))


async def load(talk: Conversation, program: Program, limits: Limits) -> Outcome | None:
    """Have a program loaded; an outcome only if that failed."""
    await talk.send(encode([program.source, program.prelude, program.entry_point]))
    reply = await talk.receive(limits.seconds)
    if reply == b"L":
        return None
    if reply[:1] == b"U":
        return Outcome("unparsed", detail=printable(split_texts(reply[1:], 1)[0]))
    return failed_call(reply)


async def _feed(talk: Conversation, _: Program, given: str, limits: Limits) -> Outcome:
    await talk.send(given.encode(errors="surrogatepass"))
    answer = await talk.receive(limits.seconds)
    head = answer[: answer.find(b"\n", 0, 2 * _LONGEST_NUMBER) + 1]
    words = head.split()
    if len(words) != 2 or not words[1].isdigit() or not words[0].removeprefix(b"-").isdigit():
        return Outcome("output" if words[:1] == [b"output"] else "crashed")
    end = len(head) + int(words[1])
    last = answer[end:].strip().rpartition(b"\n")[2]
    said = printable(split_texts(last, 1)[0])
    return Outcome(judge_exit(int(words[0]), answer[end:]), answer[len(head) : end], detail=said)


async def _call(talk: Conversation, program: Program, given: list[Any], limits: Limits) -> Outcome:
    await talk.send(encode(["call", program.entry_point, encode(given), encode({}), False]))
    reply = await talk.receive(limits.seconds)
    parts = split_value(reply)
    return failed_call(reply) if parts is None else Outcome("ok", parts[0])


def failed_call(reply: bytes) -> Outcome:
    """The outcome of a reply that is no value: what was raised, if it says so."""
    if reply[:1] != b"R":
        return Outcome("crashed", detail=OUT_OF_TURN)
    kind, _, text = split_texts(reply[1:], 3)
    return Outcome("memory" if kind == "MemoryError" else "crashed", detail=printable(f"{kind}: {text}"))
