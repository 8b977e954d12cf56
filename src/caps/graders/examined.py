"""A test program and a candidate, each in a process of its own, with every call passed between them here.

What either says is passed on as it is: the values in it are read inside the sandbox alone.
"""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from caps.core.errors import InputError
from caps.graders.base import Grade
from caps.graders.behaviour import OUT_OF_TURN, Outcome, Program, begin, load
from caps.graders.inside.plain import encode
from caps.graders.inside.wire import split_texts
from caps.graders.loaded import boot
from caps.graders.reasons import REASONS, printable, shorten
from caps.graders.sandbox import EndedError, Limits, Sandbox, Talk
from caps.graders.suites import TestProgram


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


async def _relay(tests: Talk, candidate: Talk, suite: TestProgram, prompt: str, limits: Limits) -> Grade:
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
