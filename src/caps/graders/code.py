"""The code grader: programs are run on the tests of their case in the sandbox.

A candidate never shares a process with what it must not know: expected outputs stay outside the sandbox,
and a test program runs in a process of its own. What it puts out is read in neither, nor here: see `results`.
"""

import ast
import re
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from caps.core.domains import Resources
from caps.core.errors import InputError
from caps.core.types import Candidate, Case
from caps.evidence.anatomy import dissect
from caps.graders.base import Grade
from caps.graders.results import Reading, ResultReader
from caps.graders.test_suites import (
    Example,
    Examples,
    TestProgram,
    arguments,
    expected_text,
    expected_values,
    read_suite,
)
from caps.sandbox.base import (
    REASONS,
    Conversation,
    EndedError,
    Limits,
    Sandbox,
    find_sandbox,
    printable,
    shorten,
)
from caps.sandbox.inside.plain import encode
from caps.sandbox.inside.wire import split_texts
from caps.sandbox.programs import OUT_OF_TURN, Outcome, Program, begin, boot, load, outcomes_of

# A test program and a candidate, each in a process of its own, with every call passed between them here.
#
# What either says is passed on as it is: the values in it are read inside the sandbox alone.


class _CandidateError(Exception):
    """The candidate's process failed for good."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.detail)
        self.outcome = outcome


async def examine(
    sandbox: Sandbox, suite: TestProgram, prompt: str, program: Program, limits: Limits
) -> Grade:
    """Run the tests on a candidate; the time limit holds for all of them together."""
    lasting = replace(limits, cpu=limits.seconds * 2)
    async with (
        sandbox.core(),
        sandbox.open(boot("serve", limits)) as candidate,
        sandbox.open(boot("examine", lasting)) as tests,
    ):
        await begin(candidate, sandbox)
        await begin(tests, sandbox)
        try:
            with _blamed_on_candidate():
                failure = await load(candidate, program, limits)
            if failure is not None:
                raise _CandidateError(failure)
            return await _relay(tests, candidate, suite, prompt, limits)
        except _CandidateError as error:
            outcome = error.outcome
            return Grade(correct=False, reason=REASONS[outcome.status], detail=shorten(outcome.detail))


async def _relay(
    tests: Conversation, candidate: Conversation, suite: TestProgram, prompt: str, limits: Limits
) -> Grade:
    nonce = secrets.token_hex(16)
    names = {"missing": suite.missing, "modules": suite.modules, "classes": suite.classes}
    first = {"nonce": nonce, "prompt": prompt, "tests": suite.source, "entry_point": suite.entry_point}
    await tests.send(encode({**first, **names}))
    deadline = time.perf_counter() + limits.seconds
    called = ""
    while True:
        try:
            said = await tests.receive(deadline - time.perf_counter())
        except EndedError as ended:
            return Grade(correct=False, reason=REASONS[ended.status], detail=f"in the tests, after {called}")
        if said.startswith(nonce.encode()):
            return _verdict(said[len(nonce) :], asked=bool(called))
        label, _, request = said[1:].partition(b"\0")
        called = shorten(printable(split_texts(label, 1)[0]))
        with _blamed_on_candidate(called):
            await candidate.send(request)
            reply = await candidate.receive(deadline - time.perf_counter())
        if reply[:1] not in (b"V", b"R"):
            raise _CandidateError(Outcome("crashed", detail=f"{OUT_OF_TURN} on {called}"))
        await tests.send(reply)


@contextmanager
def _blamed_on_candidate(called: str = "") -> Iterator[None]:
    try:
        yield
    except EndedError as ended:
        where = f" on {called}" if called else ""
        raise _CandidateError(Outcome(ended.status, detail=f"{ended}{where}")) from None


def _verdict(said: bytes, *, asked: bool) -> Grade:
    how, kind, text, line, called, got = map(printable, split_texts(said, 6))
    if how == "passed" and asked:
        return Grade(correct=True)
    if how == "undecided":
        return Grade(correct=None, reason="no plain data", detail=text)
    if not asked:
        why = "they never call the candidate" if how == "passed" else f"{kind}: {text}"
        raise InputError(f"tests: cannot be run: {why}")
    called, got = shorten(called), shorten(got)
    detail = shorten(f"{line or kind}: called {called}, got {got}" + (f"; {kind}: {text}" if text else ""))
    if kind == "MemoryError":
        return Grade(correct=False, reason=REASONS["memory"], detail=detail)
    reason = REASONS["crashed"] if how == "raised" or kind == "UnreadableError" else "wrong answer"
    return Grade(correct=False, reason=reason, detail=detail)


_READS = re.compile(r"\binput\s*\(|\bstdin\b|\bopen\(0")


@dataclass(frozen=True, slots=True)
class CodeGrader:
    """Right is what passes every hidden test; public tests alone decide nothing, and that is said."""

    sandbox: Sandbox
    limits: Limits = field(default_factory=Limits)
    reader: ResultReader = field(default_factory=ResultReader)

    @property
    def version(self) -> str:
        """How tests are run, in which Python, under which limits; the sandbox does not change a grade."""
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return f"code-2 {python} {self.limits.seconds:g}s {self.limits.memory >> 20}MiB"

    async def grade(self, case: Case, candidate: Candidate) -> Grade:
        """Grade one candidate."""
        suite = read_suite(case)
        source = program_text(case, candidate)
        if isinstance(suite, Examples):
            grade = await self._examples(suite, source)
        else:
            prompt = prompt_text(case, suite.entry_point)
            program = Program(source, suite.entry_point, prelude=False)
            grade = await examine(self.sandbox, suite, prompt, program, self.limits)
        return replace(grade, correct=None, passed_public_tests=grade.correct) if suite.public else grade

    async def close(self) -> None:
        """End the processes that read results."""
        await self.reader.close()

    async def _examples(self, suite: Examples, source: str) -> Grade:
        entry = entry_of(suite, source)
        program = Program(source, entry)
        inputs = [one.input if entry is None else arguments(one.input) for one in suite.tests]
        async with (
            self.sandbox.core(),
            aclosing(outcomes_of(self.sandbox, program, inputs, limits=self.limits)) as outcomes,
        ):
            places = iter(enumerate(suite.tests))
            async for outcome in outcomes:
                place, example = next(places)
                if outcome.status != "ok":
                    return _failed(outcome, Reading(), example, place, entry)
                if entry is None:
                    reading = await self.reader.check_text(outcome.output, expected_text(example))
                else:
                    reading = await self.reader.check_value(outcome.output, expected_values(example))
                if not reading.same:
                    return _failed(outcome, reading, example, place, entry)
        return Grade(correct=True)


async def make_grader(resources: Resources) -> CodeGrader:
    """What runs hidden tests; a `UserError` where there is no sandbox."""
    return CodeGrader(await find_sandbox(resources.sandbox), Limits(seconds=resources.seconds))


def program_text(case: Case, candidate: Candidate) -> str:
    """The program a candidate stands for: its code, after the preamble or the prompt that it continues."""
    code = dissect(candidate).code or candidate.text
    preamble = str(case.extra.get("preamble") or "")
    entry = case.extra.get("entry_point")
    prompt = prompt_text(case, str(entry) if entry else None)
    if not prompt and code[:1].isspace() and code.lstrip("\n")[:1].isspace():
        prompt = str(case.extra.get("starter_code") or "").rstrip() + "\n"  # the code is a function's body
    if "from __future__" in code:
        prompt = preamble = ""  # must come first, and then it is no continuation
    return "".join(part if part.endswith("\n") else f"{part}\n" for part in (preamble, prompt, code) if part)


def prompt_text(case: Case, entry_point: str | None) -> str:
    """The problem itself where it is Python and defines the entry point, as in HumanEval; else nothing."""
    text = case.problem.text
    if not entry_point or f"def {entry_point}" not in text:
        return ""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return text


def entry_of(suite: Examples, source: str) -> str | None:
    """The function to call, or None to feed standard input: given texts, a program that reads them is fed."""
    if suite.style == "stdin" or (suite.style == "either" and _READS.search(source)):
        return None
    return suite.entry_point


def _failed(outcome: Outcome, reading: Reading, example: Example, place: int, entry: str | None) -> Grade:
    wanted: Any = expected_text(example) if entry is None else example.output
    reason, got = REASONS[outcome.status], reading.shown
    if outcome.status != "ok":
        got = _cut(outcome.detail or outcome.status)
    elif reading.fault:
        reason, got = REASONS["crashed"], shorten(f"what cannot be read: {reading.fault}")
    told = f"test {place + 1}: input {_cut(example.input)}, expected {_cut(wanted)}, got {got}"
    return Grade(correct=False, reason=reason, detail=told)


def _cut(value: object) -> str:
    try:
        return shorten(repr(value), 160)
    except ValueError:  # Python will not write very long numbers in decimals
        return f"{type(value).__name__} of very many digits"
