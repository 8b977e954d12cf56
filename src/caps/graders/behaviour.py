"""What a program does on many inputs, one after another, in as few processes as it takes.

A process that ends, or is ended, costs only the input it was given: the next input starts another.
"""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from caps.core.errors import SandboxError
from caps.graders.inside.plain import FAULTS, decode, encode
from caps.graders.loaded import boot
from caps.graders.outputs import normalised, spell
from caps.graders.runner import judge_exit
from caps.graders.sandbox import EndedError, Limits, Sandbox, Status, Talk

Manner: TypeAlias = Status | Literal["unparsed"]
_START = 10.0  # seconds a process may take to load, whatever a test may take


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program, called where it has an entry point, else fed; `prelude` lends common imports."""

    source: str
    entry_point: str | None = None
    prelude: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one input led to: the output, the result of a call as it is, what is known of a failure."""

    status: Manner
    output: str = ""
    result: Any = None
    detail: str = ""
    seconds: float = 0.0


async def behave(
    sandbox: Sandbox, program: Program, inputs: Sequence[Any], *, limits: Limits | None = None
) -> list[Outcome]:
    """One outcome for each input: texts for standard input, or lists of arguments.

    Equal `status` and `output` mean equal behaviour: texts come normalised, results spelled in one way.
    """
    async with sandbox.core():
        outcomes = outcomes_of(sandbox, program, inputs, limits=limits or Limits())
        return [replace(one, output=normalised(one.output)) async for one in outcomes]


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


async def begin(talk: Talk, sandbox: Sandbox) -> None:
    """Wait until the sandbox stands; what fails before that is no candidate's fault."""
    try:
        await talk.receive(_START)
    except EndedError as ended:
        raise SandboxError(f"{sandbox.name} did not start: {ended}") from None


async def _feed_source(talk: Talk, program: Program, limits: Limits) -> Outcome | None:
    await talk.send(program.source.encode(errors="surrogatepass"))
    answer = (await talk.receive(limits.seconds)).decode(errors="replace")
    return None if answer == "parsed" else Outcome("unparsed", detail=answer)


async def load(talk: Talk, program: Program, limits: Limits) -> Outcome | None:
    """Have a program loaded; an outcome only if that failed."""
    await talk.send(encode([program.source, program.prelude, program.entry_point]))
    reply = read_reply(await talk.receive(limits.seconds))
    if reply[0] == "loaded":
        return None
    return Outcome("unparsed", detail=reply[1]) if reply[0] == "unparsed" else raised(reply)


async def _feed(talk: Talk, _: Program, given: str, limits: Limits) -> Outcome:
    await talk.send(given.encode(errors="surrogatepass"))
    answer = await talk.receive(limits.seconds)
    head, _line_end, body = answer.partition(b"\n")
    words = head.split()
    if len(words) != 2 or not words[1].isdigit() or not words[0].lstrip(b"-").isdigit():
        return Outcome("output" if words[:1] == [b"output"] else "crashed")
    size = int(words[1])
    stderr = body[size:]
    out, said = (part.decode(errors="replace") for part in (body[:size], stderr))
    return Outcome(judge_exit(int(words[0]), stderr), out, detail=said.strip().rpartition("\n")[2])


async def _call(talk: Talk, program: Program, given: list[Any], limits: Limits) -> Outcome:
    await talk.send(encode(["call", program.entry_point, encode(given), encode({}), False]))
    reply = read_reply(await talk.receive(limits.seconds))
    if reply[0] != "value":
        return raised(reply)
    try:
        result = decode(reply[1])
        return Outcome("ok", spell(result), result)
    except FAULTS as error:
        return Outcome("crashed", detail=f"the result cannot be read: {error}")


def read_reply(message: bytes) -> list[Any]:
    """Read what a served program says; a hostile one may say anything."""
    try:
        reply: list[Any] = decode(message)
        match reply:
            case ["loaded"] | ["unparsed", str()] | ["raise", str(), str(), str()]:
                return reply
            case ["value", bytes(), bytes() | None]:
                return reply
    except FAULTS:
        pass
    return ["raise", "ValueError", "ValueError", "the program answered out of turn"]


def raised(reply: list[Any]) -> Outcome:
    """The outcome of a call that raised."""
    status: Status = "memory" if reply[1] == "MemoryError" else "crashed"
    return Outcome(status, detail=f"{reply[1]}: {reply[3]}"[:500])
