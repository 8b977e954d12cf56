"""Program behaviour: each program is run on the examples of its problem and on inputs that separate programs.

First every program runs on the examples or is tested by the public test program, and runs on further inputs.
Inputs on which programs differ are then changed further, and the programs that pass the most examples run on
these, too. `separation` draws the conclusions.

The number of inputs is fixed and they depend only on the case, so the same case has the same findings,
however busy the machine is: limits are counts and processor time. A run that came near its limit, or that
was ended by the clock, is unknown. If the processor time of a case ends first, the inputs of that round count
for no program, no more are run, and the findings say so.
"""

import ast
import asyncio
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

from caps.core.domains import Grade, Resources
from caps.core.errors import UserError
from caps.core.text import escaped, without_middle
from caps.core.types import BY_CLOCK, Case, Found, Run
from caps.findings.separation import (
    MAX_TIMEOUTS,
    Observed,
    ProgramRuns,
    Separation,
    credible,
    splitting,
)
from caps.findings.trials import FurtherInputs, Trial, trial_of
from caps.grading.code import entry_of, language_of, program_text, prompt_text, run_test_program
from caps.grading.results import Kind, ResultReader
from caps.grading.test_suites import Example, TestProgram, accepted_outputs, arguments
from caps.judging.base import together
from caps.sandbox.base import REASONS, Limits
from caps.sandbox.languages import PYTHON, TOOLCHAINS, missing_tool
from caps.sandbox.launchers import find_sandbox
from caps.sandbox.programs import Outcome, OutcomeStatus, Program, ProgramSession
from caps.sandbox.runner import Sandbox

FURTHER = 64  # inputs of a case beyond its examples
SECONDS = 20.0  # processor time of a case, after which no further inputs are run
PROBE = (
    8  # further inputs of the first round, which leaves something to conclude from if the next takes too long
)
STDIN = 0.5  # share of them for programs that read standard input, which need a process for each
FIRST = 0.6  # share of the further inputs that are made from the examples alone
FAILING = 6  # further inputs for a program that fails an example
SLOW = 12  # further inputs for a program that starts slowly
FURTHER_SECONDS = 1.0  # processor time of a run on a further input
MAX_INPUT = 1_000  # characters of an input that is recorded
MAX_OUTPUT = 400
MAX_REMEMBERED = 4_000  # bytes of an output that is read once for all programs that print it
NO_INPUTS = "no examples, and no annotated function to make inputs for"
NO_FURTHER = "no further inputs could be made"
TIME_ENDED = "the processor time for further inputs ended"
HANGS = Observed("timeout")  # what is taken to happen on an input that was not tried
HUNG = f"hung on {MAX_TIMEOUTS} inputs and was not run on more"


@dataclass
class _Input:
    """An input of a case: for standard input, or as arguments, which are parsed once for all programs."""

    value: Any

    @cached_property
    def arguments(self) -> list[Any]:
        """The arguments of a call."""
        return arguments(self.value)


class BehaviourFinder:
    """Runs every program of a case; programs with the same results on all valid inputs form a cluster.

    `further` is the number of inputs beyond the examples, `seconds` the processor time of a case on them,
    after which no more are run; inputs on which a program hangs are limited by their number. The sandbox is
    set up before the first program runs; a machine without one raises a `UserError`.
    """

    def __init__(
        self,
        sandbox: str = "auto",
        *,
        limits: Limits | None = None,
        further: int = FURTHER,
        seconds: float = SECONDS,
    ) -> None:
        self._name, self._limits = sandbox, limits or Limits(seconds=4.0)
        self._further, self._seconds = further, seconds
        self._sandbox: Sandbox | None = None
        self._reader = ResultReader()
        self._lock = asyncio.Lock()

    @property
    def version(self) -> str:
        """The Python version, the limits of a run and the number of inputs."""
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        limits = f"{self._limits.seconds:g}s {self._limits.memory >> 20}MiB"
        return f"behaviour-7 {python} {limits} {self._further} inputs {self._seconds:g}s"

    async def find(self, case: Case, until: float | None = None) -> Sequence[Found]:
        """Run all distinct programs of a case; `TimeoutError` if they take too long together."""
        trial = trial_of(case)
        if trial is None:
            return [Found(note=NO_INPUTS) for _ in case.candidates]
        written = [
            (program_text(case, candidate), language_of(case, candidate)) for candidate in case.candidates
        ]
        programs = [ProgramRuns(*program, votes) for program, votes in Counter(written).items()]
        runnable = [program for program in programs if why_not(trial, program.language) is None]
        if programs and not runnable:
            raise UserError(why_not(trial, programs[0].language) or "")
        prompt = prompt_text(case, trial.entry_point)
        sandbox = await self._get_sandbox()
        runs = _CaseRuns(trial, runnable, prompt, sandbox, self._reader, self._limits, self._seconds)
        try:
            async with asyncio.timeout_at(until):
                await runs.search(case, self._further)
        finally:
            await runs.end(runnable)
        tried = ((program.source, program.language) for program in runnable)
        findings = dict(zip(tried, runs.conclude(), strict=True))
        return [findings.get(program) or Found(note=why_not(trial, program[1]) or "") for program in written]

    async def close(self) -> None:
        """End the processes that read results."""
        await self._reader.close()

    async def _get_sandbox(self) -> Sandbox:
        async with self._lock:
            if self._sandbox is None:
                self._sandbox = await find_sandbox(self._name)
            return self._sandbox


@dataclass(slots=True)
class _CaseRuns:
    """Runs the programs of one case, on the tests or examples and on further inputs."""

    trial: Trial
    programs: Sequence[ProgramRuns]
    prompt: str
    sandbox: Sandbox
    reader: ResultReader
    limits: Limits
    seconds: float  # of processor time that are left for further inputs
    inputs: list[_Input] = field(default_factory=list)
    observed: dict[tuple[Kind, bytes], Observed] = field(default_factory=dict)  # what outputs were read as
    sessions: dict[int, ProgramSession] = field(default_factory=dict)

    async def search(self, case: Case, further: int) -> None:
        """Run the first inputs on all programs, then changed ones on those that may still be alike."""
        if self.trial.program is not None:
            suite = self.trial.program
            await together([self._run_tests(suite, program) for program in self.programs])
        further = further if self.trial.style == "call" else round(further * STDIN)
        source = FurtherInputs(self.trial, case, [program.source for program in self.programs])
        first = source.first(round(further * FIRST)) if len(self.programs) > 1 else []
        for inputs in (first[:PROBE], first[PROBE:]):
            await self._run_all(self.programs, inputs, failing=FAILING)
        chosen = credible(self.programs)
        await self.end([program for program in self.programs if program not in chosen])
        if len(chosen) > 1 and len(self.inputs) < further and not self._is_cut():
            parents = [self.inputs[n].value for n in splitting(chosen, range(len(self.inputs)))]
            more = source.more(parents, further - len(self.inputs))
            await self._run_all(chosen, more, failing=further)

    async def end(self, programs: Sequence[ProgramRuns]) -> None:
        """End the processes of these programs."""
        for program in programs:
            if (session := self.sessions.pop(id(program), None)) is not None:
                await session.close()

    def conclude(self) -> list[Found]:
        """The findings about each program."""
        separation = Separation(self.programs)
        texts = {n: shown_input(self.trial, self.inputs[n]) for n in separation.valid}
        kept = separation.kept({n: len(text) for n, text in texts.items() if len(text) <= MAX_INPUT})
        return [
            Found(
                separation.cluster(program),
                program.passed,
                len(self.trial.examples) or len(self.trial.assertions),
                program.parses,
                tuple(_as_run(self.trial, texts[n], program.further.get(n)) for n in kept),
                separation.survived(program),
                self._note(program),
            )
            for program in self.programs
        ]

    def _note(self, program: ProgramRuns) -> str:
        if program.by_clock:
            return BY_CLOCK
        if program.hangs:
            return HUNG
        if not self.inputs and len(self.programs) > 1:
            return NO_FURTHER
        return TIME_ENDED if self._is_cut() else ""

    def _is_cut(self) -> bool:
        """Whether the processor time of the case has ended, so that something is left out."""
        return self.seconds <= 0

    async def _run_tests(self, suite: TestProgram, tested: ProgramRuns) -> None:
        """Run all tests on one program, and each alone if it fails: how many it passes tells programs apart.

        One that passes each test alone but not all together, since it remembers earlier calls, fails one.
        """
        program = Program(tested.source, suite.entry_point, prelude=False)

        async def run(tests: TestProgram) -> Observed:
            return observed_test(
                await run_test_program(self.sandbox, tests, self.prompt, program, self.limits)
            )

        assertions = self.trial.assertions
        all_tests = await run(suite)
        tested.by_clock = all_tests.status == "clock"
        if all_tests.passed or len(assertions) == 1 or tested.by_clock:
            tested.examples = [all_tests] * len(assertions)
            return
        for assertion in assertions:
            hung = sum(result.status == "timeout" for result in (all_tests, *tested.examples))
            tested.examples.append(Observed("timeout") if hung >= MAX_TIMEOUTS else await run(assertion))
        if all(result.passed for result in tested.examples):
            tested.examples[-1] = all_tests

    async def _run_all(self, programs: Sequence[ProgramRuns], inputs: Sequence[Any], *, failing: int) -> None:
        """Run programs on new inputs, those that fail an example on at most `failing` inputs in all."""
        start = len(self.inputs)
        self.inputs += [] if self._is_cut() else map(_Input, inputs)
        await together([self._run(program, start, failing) for program in programs])
        if self._is_cut():  # how far this round came depends on the machine
            for program in self.programs:
                program.further = {n: seen for n, seen in program.further.items() if n < start}
            del self.inputs[start:]

    async def _run(self, tested: ProgramRuns, start: int, failing: int) -> None:
        """Run one program on the examples, unless it was, and on the further inputs from `start`."""
        trial = self.trial
        entry = entry_of(trial.style, trial.entry_point, tested.source, tested.language)
        if id(tested) not in self.sessions:
            prelude = not self.prompt  # what continues a program has its imports only
            program = Program(tested.source, entry, prelude=prelude, language=tested.language)
            self.sessions[id(tested)] = ProgramSession(self.sandbox, program, self.limits)
        session = self.sessions[id(tested)]
        kind: Kind = "text" if entry is None else "value"

        async def run(test_input: _Input, seconds: float) -> Outcome:
            outcome = await session.run(test_input.value if entry is None else test_input.arguments, seconds)
            tested.by_clock = outcome.status == "clock"
            return outcome

        async with self.sandbox.core():
            for example in () if tested.examples else trial.examples:
                if tested.by_clock:
                    return
                if tested.hangs:
                    tested.examples.append(HANGS)
                    continue
                outcome = await run(_Input(example.input), self.limits.seconds)
                if outcome.unknown:
                    observed = Observed(outcome.status, unreadable=True, shown=outcome.unknown)
                else:
                    observed = await self._read(kind, outcome, example)
                tested.examples.append(observed)
            for number, further in enumerate(self.inputs[start:], start):
                if tested.hangs:
                    tested.further[number] = HANGS
                    continue
                if tested.by_clock or self._is_cut() or len(tested.further) >= _enough(tested, failing):
                    return
                outcome = await run(further, FURTHER_SECONDS)
                self.seconds -= outcome.cpu
                if not outcome.unknown:
                    tested.further[number] = await self._read(kind, outcome)

    async def _read(self, kind: Kind, outcome: Outcome, example: Example | None = None) -> Observed:
        """What a program did; an output that was read before is not read again, unless it is an example's."""
        if outcome.status != "ok":
            return Observed(outcome.status, shown=without_middle(outcome.detail, MAX_OUTPUT))
        key = (kind, outcome.output)
        if example is None and key in self.observed:
            return self.observed[key]
        accepted = [] if example is None else accepted_outputs(example, kind)
        reading = await self.reader.read(kind, outcome.output, accepted)
        shown = shown_text(outcome.output) if kind == "text" else shown_value(reading.shown)
        observed = Observed("ok", reading.digest, reading.same, bool(reading.fault), shown)
        if example is None and len(outcome.output) <= MAX_REMEMBERED:
            self.observed[key] = observed
        return observed


_STATUS_OF_REASON = {reason: cast(OutcomeStatus, status) for status, reason in REASONS.items()}


def observed_test(grade: Grade) -> Observed:
    """The result of a test as that of a run: an undecided one cannot be read."""
    if grade.correct:
        return Observed("ok", digest="passed", passed=True)
    status = _STATUS_OF_REASON.get(grade.reason, "ok")
    return Observed(status, unreadable=grade.correct is None, shown=without_middle(grade.detail, MAX_OUTPUT))


def _enough(tested: ProgramRuns, failing: int) -> float:
    """The number of further inputs that a program runs on at most."""
    if tested.language in TOOLCHAINS and TOOLCHAINS[tested.language].starts_slowly:
        return SLOW
    return math.inf if all(result.passed for result in tested.examples) else failing


def shown_value(quoted: str) -> str:
    """A returned value as a judge may read it: without the quotes that a reading puts around it."""
    try:
        return escaped(str(ast.literal_eval(quoted)))
    except (ValueError, SyntaxError):  # shortened within an escape sequence
        return quoted[1:-1]


def shown_text(output: bytes) -> str:
    """Printed output as a judge may read it: escaped lines, shortened."""
    half = 2 * MAX_OUTPUT
    ends = output if len(output) <= 2 * half else output[:half] + output[-half:]
    text = ends.decode("utf-8", "replace").strip()
    return without_middle("\n".join(map(escaped, text.split("\n"))), MAX_OUTPUT)


def _as_run(trial: Trial, text: str, seen: Observed | None) -> Run:
    kind: Literal["stdin", "call"] = "stdin" if trial.style == "stdin" else "call"
    if seen is None or seen.unreadable:
        return Run(text, kind, "skipped" if seen is None else "unreadable")
    return Run(text, kind, seen.status, seen.shown, seen.digest[:16])


def shown_input(trial: Trial, test_input: _Input) -> str:
    """An input as text: standard input as it is, arguments as a call."""
    if trial.style == "stdin":
        return "\n".join(map(escaped, str(test_input.value).split("\n")))
    try:
        return escaped(f"{trial.entry_point}({', '.join(map(repr, test_input.arguments))})")
    except ValueError:  # Python refuses to print very long integers
        return ""


def why_not(trial: Trial, language: str) -> str | None:
    """Why programs of a language are not run on the inputs of a trial; None if they are."""
    if trial.style == "call" and language != PYTHON:
        return f"functions are called in Python only: not in {language}"
    return missing_tool(language)


def make_finder(resources: Resources) -> BehaviourFinder | None:
    """What runs programs; nothing where they may not run."""
    if resources.sandbox == "off":
        return None
    return BehaviourFinder(
        resources.sandbox, further=resources.further_inputs, seconds=resources.further_seconds
    )
