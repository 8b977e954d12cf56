"""The code grader: runs programs on the tests of their case in the sandbox.

A candidate never shares a process with what it must not know: expected outputs stay outside the sandbox, and
a test program runs in a separate process. The output of a candidate is parsed in neither, nor here: see
`results`.
"""

import re
import secrets
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

from caps.core.domains import Grade, Resources
from caps.core.errors import InputError
from caps.core.text import escaped, syntax_tree, without_middle
from caps.core.types import Candidate, Case
from caps.evidence.anatomy import dissect, fence_label
from caps.grading.results import Kind, Reading, ResultReader
from caps.grading.test_suites import (
    Example,
    Examples,
    Style,
    TestProgram,
    accepted_outputs,
    arguments,
    expected_text,
    read_suite,
)
from caps.sandbox.base import (
    CERTAIN,
    REASONS,
    EndedError,
    Limits,
    clock_seconds,
)
from caps.sandbox.inside.plain import encode
from caps.sandbox.inside.wire import split_texts
from caps.sandbox.languages import PYTHON, language_named, missing_tool
from caps.sandbox.launchers import find_sandbox
from caps.sandbox.programs import (
    OUT_OF_TURN,
    Outcome,
    OutcomeStatus,
    Program,
    ProgramSession,
    load,
    make_job,
    wait_until_ready,
)
from caps.sandbox.runner import Process, Sandbox

# --- Test programs: tests and candidate run in separate processes, and calls are relayed here unparsed ---


async def run_test_program(
    sandbox: Sandbox, suite: TestProgram, prompt: str, program: Program, limits: Limits
) -> Grade:
    """Run the tests on a candidate; the time limit applies to all of them together."""
    limits = replace(limits, cpu=CERTAIN * limits.seconds)
    test_limits = replace(limits, cpu=2 * CERTAIN * limits.seconds)
    async with (
        sandbox.core(),
        sandbox.open(make_job("serve", limits)) as candidate,
        sandbox.open(make_job("examine", test_limits)) as tests,
    ):
        await wait_until_ready(candidate, sandbox)
        await wait_until_ready(tests, sandbox)
        try:
            failure = await load(candidate, program, limits)
        except EndedError as ended:
            failure = Outcome(ended.status, detail=str(ended))
        if failure is not None:
            return _ended(failure.status, without_middle(failure.detail))
        return await _relay(tests, candidate, suite, prompt, limits)


async def _relay(
    tests: Process, candidate: Process, suite: TestProgram, prompt: str, limits: Limits
) -> Grade:
    nonce = secrets.token_hex(16)
    names = {"missing": suite.missing, "modules": suite.modules, "classes": suite.classes}
    first = {"nonce": nonce, "prompt": prompt, "tests": suite.source, "entry_point": suite.entry_point}
    await tests.send(encode({**first, **names}))
    deadline = time.perf_counter() + clock_seconds(limits.seconds)
    called = ""
    while True:
        try:
            message = await tests.receive(deadline - time.perf_counter())
        except EndedError as ended:
            return _ended(ended.status, f"in the tests, after {called}")
        if message.startswith(nonce.encode()):
            return _parse_verdict(message[len(nonce) :], called_candidate=bool(called))
        label, _, request = message[1:].partition(b"\0")
        called = without_middle(escaped(split_texts(label, 1)[0]))
        await candidate.send(request)
        try:
            reply = await candidate.receive(deadline - time.perf_counter())
        except EndedError as ended:
            return _ended(ended.status, without_middle(f"{ended} on {called}" if called else str(ended)))
        if reply[:1] not in (b"V", b"R"):
            return _ended("crashed", without_middle(f"{OUT_OF_TURN} on {called}"))
        await tests.send(reply)


def _ended(status: OutcomeStatus, detail: str) -> Grade:
    """The grade of a program that was ended; the clock proves nothing."""
    return Grade(correct=None if status == "clock" else False, reason=REASONS[status], detail=detail)


def _parse_verdict(message: bytes, *, called_candidate: bool) -> Grade:
    how, kind, text, line, called, got = map(escaped, split_texts(message, 6))
    if how == "passed" and called_candidate:
        return Grade(correct=True)
    if how == "undecided":
        return Grade(correct=None, reason="no plain data", detail=text)
    if not called_candidate:
        why = "they never call the candidate" if how == "passed" else f"{kind}: {text}"
        raise InputError(f"tests: cannot be run: {why}")
    called, got = without_middle(called), without_middle(got)
    detail = without_middle(
        f"{line or kind}: called {called}, got {got}" + (f"; {kind}: {text}" if text else "")
    )
    if kind == "MemoryError":
        return Grade(correct=False, reason=REASONS["memory"], detail=detail)
    reason = REASONS["crashed"] if how == "raised" or kind == "UnreadableError" else "wrong answer"
    return Grade(correct=False, reason=reason, detail=detail)


_READS_STDIN = re.compile(r"\binput\s*\(|\bstdin\b|\bopen\(0")


@dataclass(frozen=True, slots=True)
class CodeGrader:
    """Correct means that every hidden test passes; with public tests only, the grade is undecided."""

    sandbox: Sandbox
    limits: Limits = field(default_factory=Limits)
    reader: ResultReader = field(default_factory=ResultReader)

    @property
    def version(self) -> str:
        """Version of the test procedure, of Python and of the limits; the sandbox does not affect grades."""
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return f"code-3 {python} {self.limits.seconds:g}s {self.limits.memory >> 20}MiB"

    async def grade(self, case: Case, candidate: Candidate) -> Grade:
        """Grade one candidate."""
        suite = read_suite(case)
        source, language = program_text(case, candidate), language_of(case, candidate)
        missing = missing_tool(language)
        if missing is not None:
            raise InputError(f"language: {missing}")
        if language != PYTHON and (isinstance(suite, TestProgram) or suite.style == "call"):
            detail = f"its tests call functions, which is possible in Python only, not in {language}"
            return Grade(correct=None, reason="other language", detail=detail)
        if isinstance(suite, Examples):
            grade = await self._examples(suite, source, language)
        else:
            prompt = prompt_text(case, suite.entry_point)
            program = Program(source, suite.entry_point, prelude=False)
            grade = await run_test_program(self.sandbox, suite, prompt, program, self.limits)
        return replace(grade, correct=None, passed_public_tests=grade.correct) if suite.public else grade

    async def close(self) -> None:
        """Stop the processes that read results."""
        await self.reader.close()

    async def _examples(self, suite: Examples, source: str, language: str) -> Grade:
        entry = entry_of(suite.style, suite.entry_point, source, language)
        program = Program(source, entry, language=language)
        kind: Kind = "text" if entry is None else "value"
        doubt = ""
        async with self.sandbox.core(), ProgramSession(self.sandbox, program, self.limits) as session:
            for index, example in enumerate(suite.tests):
                value = example.input if entry is None else arguments(example.input)
                outcome = await session.run(value, self.limits.seconds)
                doubt = doubt or outcome.unknown
                if outcome.status == "clock":
                    return Grade(correct=None, reason=REASONS["clock"], detail=f"test {index + 1}: {doubt}")
                if outcome.status != "ok":
                    return _failed_test(outcome, Reading(), example, index, entry)
                accepted = accepted_outputs(example, kind)
                reading = await self.reader.compare(kind, outcome.output, accepted)
                if not reading.same:
                    return _failed_test(outcome, reading, example, index, entry)
        if doubt:
            return Grade(correct=None, reason="near the time limit", detail=doubt)
        return Grade(correct=True)


async def make_grader(resources: Resources) -> CodeGrader:
    """What runs hidden tests; a `UserError` where there is no sandbox."""
    return CodeGrader(await find_sandbox(resources.sandbox), Limits(seconds=resources.seconds))


def program_text(case: Case, candidate: Candidate) -> str:
    """The program of a candidate: its code, after the preamble or the prompt that it continues."""
    code = dissect(candidate).code or candidate.text
    if language_of(case, candidate) != PYTHON:
        return code
    preamble = str(case.extra.get("preamble") or "")
    entry = case.extra.get("entry_point")
    prompt = prompt_text(case, str(entry) if entry else None)
    if not prompt and code[:1].isspace() and code.lstrip("\n")[:1].isspace():
        prompt = str(case.extra.get("starter_code") or "").rstrip() + "\n"  # the code is a function's body
    if "from __future__" in code:
        prompt = preamble = ""  # it must come first, so the code is not a continuation
    return "".join(part if part.endswith("\n") else f"{part}\n" for part in (preamble, prompt, code) if part)


def language_of(case: Case, candidate: Candidate) -> str:
    """The language of a program: that of its fence, else that of its case, else Python."""
    of_case = language_named(case.extra.get("language")) or PYTHON
    if candidate.code and candidate.code.strip():
        return of_case
    return language_named(fence_label(candidate.text)) or of_case


def prompt_text(case: Case, entry_point: str | None) -> str:
    """The problem text if it is Python and defines the entry point, as in HumanEval; else empty."""
    text = case.problem.text
    if not entry_point or f"def {entry_point}" not in text:
        return ""
    return "" if syntax_tree(text) is None else text


def entry_of(style: Style, entry_point: str | None, source: str, language: str) -> str | None:
    """The function to call, or None for standard input, which is used if the program reads it."""
    reads = language != PYTHON or _READS_STDIN.search(source)
    return None if style == "stdin" or (style == "either" and reads) else entry_point


def _failed_test(
    outcome: Outcome, reading: Reading, example: Example, index: int, entry: str | None
) -> Grade:
    expected: Any = expected_text(example) if entry is None else example.output
    reason, got = REASONS[outcome.status], reading.shown
    if outcome.status != "ok":
        got = _cut(outcome.detail or outcome.status)
    elif reading.fault:
        reason, got = REASONS["crashed"], without_middle(f"what cannot be read: {reading.fault}")
    detail = f"test {index + 1}: input {_cut(example.input)}, expected {_cut(expected)}, got {got}"
    return Grade(correct=False, reason=reason, detail=detail)


def _cut(value: object) -> str:
    try:
        return without_middle(repr(value), 160)
    except ValueError:  # Python refuses to print very long integers
        return f"{type(value).__name__} of very many digits"
