"""Sessions with a program in the sandbox: `outcome = await session.run(value, seconds)`.

What a program writes or returns is hostile: here it is only split into parts and passed on as bytes;
`caps.grading.results` parses it elsewhere.
"""

import marshal
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from importlib.util import MAGIC_NUMBER
from typing import Any, Literal, Self, TypeAlias

from caps.core.errors import SandboxError
from caps.core.text import escaped
from caps.sandbox.base import CERTAIN, PYTHON, EndedError, Job, Limits, Status, clock_seconds
from caps.sandbox.inside.plain import encode
from caps.sandbox.inside.wire import MAX_DIGITS, split_reply, split_texts
from caps.sandbox.languages import COMPILE_SECONDS, TOOLCHAINS
from caps.sandbox.languages import PYTHON as PYTHON_NAME
from caps.sandbox.runner import Process, Sandbox, classify_exit

_PACKAGE = "caps.sandbox.inside"
_NEEDED = {
    "feed": ("feed", "prelude", "wire"),
    "native": ("native", "feed", "plain", "prelude", "wire"),
    "serve": ("serve", "plain", "prelude", "wire"),
    "examine": ("examine", "plain", "wire"),
}


def make_job(name: str, limits: Limits, *, prelude: bool = False) -> Job:
    """The job that runs `inside/<name>.py`."""
    arguments = {"feed": f"{limits.output}, prelude={prelude}", "native": str(limits.output)}
    command = f"from {_PACKAGE}.{name} import main; main({arguments.get(name, '')})"
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
_CALLS_OF_A_PROCESS = 100  # calls that use all their time and fit into the processor time of a process
OUT_OF_TURN = "the program answered out of turn"


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program that is called at its entry point, or else reads input; `prelude` adds imports.

    A program in another `language` always reads input.
    """

    source: str
    entry_point: str | None = None
    prelude: bool = True
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

    `cpu` is the processor time that it took, in seconds. `unknown` says why it tells nothing about the
    program, since it depends on the machine; else it is empty.
    """

    status: OutcomeStatus
    output: bytes = b""
    detail: str = ""
    cpu: float = 0.0
    unknown: str = ""


def _limited(outcome: Outcome, seconds: float) -> Outcome:
    """The outcome of an input with these seconds of processor time, with what they leave unknown."""
    if outcome.status == "clock":
        why = f"not ended after {clock_seconds(seconds):g} s by the clock"
    elif outcome.status != "timeout" and outcome.cpu > seconds:
        why = f"took {outcome.cpu:.1f} s of processor time, near the limit of {seconds:g} s"
    else:
        return outcome
    return replace(outcome, unknown=why)


class ProgramSession:
    """A program that runs on one input after another, in as few processes as possible.

    A process that ends or is killed loses only its current input: the next input starts another. A program
    that cannot be loaded fails on every input. `close` kills the process.
    """

    def __init__(self, sandbox: Sandbox, program: Program, limits: Limits) -> None:
        self._sandbox, self._program, self._limits = sandbox, program, limits
        self._open = AsyncExitStack()
        self._process: Process | None = None
        self._failure: Outcome | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, value: Any, seconds: float) -> Outcome:
        """Run the program on one input with these seconds of processor time; the caller must hold a core."""
        if self._process is None and self._failure is None:
            await self._start()
        if self._process is None:
            assert self._failure is not None  # noqa: S101
            return self._failure
        run = _call if self._program.kind == "serve" else _feed
        try:
            outcome = await run(self._process, self._program, value, seconds)
        except EndedError as ended:
            await self.close()
            outcome = Outcome(ended.status, detail=str(ended))
        return _limited(outcome, seconds)

    async def close(self) -> None:
        """Kill the process, if there is one."""
        self._process = None
        await self._open.aclose()

    async def _start(self) -> None:
        """Start a process and load the program; if that fails, it fails on every input."""
        kind, limits = self._program.kind, self._limits
        job = make_job(kind, self._process_limits(), prelude=self._program.prelude)
        process = await self._open.enter_async_context(self._sandbox.open(job))
        await wait_until_ready(process, self._sandbox)
        try:
            self._failure = await (load if kind == "serve" else _load_fed)(process, self._program, limits)
        except EndedError as ended:
            self._failure = _limited(Outcome(ended.status, detail=str(ended)), limits.seconds)
        if self._failure is None:
            self._process = process
        else:
            await self.close()

    def _process_limits(self) -> Limits:
        """The limits of a process. Each input has a smaller limit of its own, which a program can lift."""
        limits, kind = self._limits, self._program.kind
        if kind == "native":
            return TOOLCHAINS[self._program.language].limits(limits)
        inputs = _CALLS_OF_A_PROCESS if kind == "serve" else 1  # only calls share a process
        return replace(limits, cpu=CERTAIN * limits.seconds * inputs + _START_SECONDS)


async def wait_until_ready(process: Process, sandbox: Sandbox) -> None:
    """Wait until the sandbox has started; a failure before that is not the candidate's fault."""
    try:
        await process.receive(clock_seconds(_START_SECONDS))
    except EndedError as ended:
        raise SandboxError(f"{sandbox.name} did not start: {ended}") from None


async def _load_fed(process: Process, program: Program, limits: Limits) -> Outcome | None:
    """Compile a program that reads input; returns an outcome only if that failed."""
    first, seconds = program.source.encode(errors="surrogatepass"), limits.seconds
    if program.kind == "native":
        first = encode([first, *TOOLCHAINS[program.language].commands(program.source)])
        seconds = COMPILE_SECONDS
    await process.send(first)
    answer = await process.receive(clock_seconds(seconds))
    if answer == b"parsed":
        return None
    lines = split_texts(answer, 1)[0].splitlines()
    errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
    return Outcome("unparsed", detail=escaped(errors[0] if errors else ""))


async def load(process: Process, program: Program, limits: Limits) -> Outcome | None:
    """Load a program; returns an outcome only if that failed."""
    seconds = CERTAIN * limits.seconds
    first = [program.source, program.prelude, program.entry_point, seconds]
    await process.send(encode(first))
    reply = await process.receive(clock_seconds(limits.seconds))
    if reply == b"L":
        return None
    if reply[:1] == b"U":
        return Outcome("unparsed", detail=escaped(split_texts(reply[1:], 1)[0]))
    outcome = _read_called(reply)
    return Outcome("crashed", detail=OUT_OF_TURN) if outcome.status == "ok" else outcome


async def _feed(process: Process, _: Program, value: str, seconds: float) -> Outcome:
    await process.send(b"%.3f\n%b" % (CERTAIN * seconds, value.encode(errors="surrogatepass")))
    return _read_fed(await process.receive(clock_seconds(seconds)))


def _read_fed(answer: bytes) -> Outcome:
    if answer == b"output":
        return Outcome("output")
    head = answer[: answer.find(b"\n", 0, 3 * MAX_DIGITS) + 1]
    code, *numbers = head.split() or [b""]
    if len(numbers) != 2 or not b"".join(numbers).isdigit() or not code.removeprefix(b"-").isdigit():
        return Outcome("crashed")
    size, milliseconds = map(int, numbers)
    end = len(head) + size
    last = answer[end:].strip().rpartition(b"\n")[2]
    message = escaped(split_texts(last, 1)[0])
    status = classify_exit(int(code), answer[end:])
    return Outcome(status, answer[len(head) : end], message, cpu=milliseconds / 1000)


async def _call(process: Process, program: Program, value: list[Any], seconds: float) -> Outcome:
    asked = ["call", program.entry_point, False, CERTAIN * seconds]
    await process.send(b"\n".join((encode(asked), encode(value), encode({}))))
    return _read_called(await process.receive(clock_seconds(seconds)))


def _read_called(reply: bytes) -> Outcome:
    letter, milliseconds, rest = split_reply(reply) or (b"", 0, b"")
    if not letter:
        return Outcome("crashed", detail=OUT_OF_TURN)
    cpu = milliseconds / 1000
    if letter == b"V":
        return Outcome("ok", rest.partition(b"\n")[0], cpu=cpu)
    kind, _, text = split_texts(rest, 3)
    status: OutcomeStatus = "memory" if kind == "MemoryError" else "crashed"
    return Outcome(status, detail=escaped(f"{kind}: {text}"), cpu=cpu)
