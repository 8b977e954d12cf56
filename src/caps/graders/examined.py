"""A test program and a candidate, each in a process of its own, with every call passed between them here."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from caps.core.errors import InputError
from caps.graders.base import Grade
from caps.graders.behaviour import Outcome, Program, begin, load, read_reply
from caps.graders.inside.plain import FAULTS, decode, encode
from caps.graders.loaded import boot
from caps.graders.outputs import spell
from caps.graders.reasons import REASONS, shorten
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
    first = {"nonce": nonce, "prompt": prompt, "tests": suite.source, "entry_point": suite.entry_point}
    await tests.send(encode(first | {"missing": suite.missing, "modules": suite.modules}))
    deadline = time.perf_counter() + limits.seconds
    called, got = "", ""
    while True:
        try:
            said = decode(message := await tests.receive(deadline - time.perf_counter()))
        except EndedError as ended:
            return Grade(correct=False, reason=REASONS[ended.status], detail=f"in the tests, after {called}")
        if said[0] == nonce:
            return _verdict(said[1:], called, got)
        called = _show(said)
        with _blamed_on_candidate(called):
            await candidate.send(message)
            reply = read_reply(await candidate.receive(deadline - time.perf_counter()))
        got = shorten(_spelled(reply[1])) if reply[0] == "value" else f"{reply[1]}: {reply[3]}"
        await tests.send(encode(reply))


@contextmanager
def _blamed_on_candidate(called: str = "") -> Iterator[None]:
    try:
        yield
    except EndedError as ended:
        where = f" on {called}" if called else ""
        raise _CandidateError(Outcome(ended.status, detail=f"{ended}{where}")) from None


def _show(request: list[Any]) -> str:
    return shorten(
        f"{request[1]}{_spelled(request[2])}" if request[0] == "call" else f"attribute {request[2]}"
    )


def _spelled(data: bytes) -> str:
    try:
        return spell(decode(data, lambda number: f"object {number}"))
    except FAULTS:
        return "what cannot be read"


def _verdict(said: list[Any], called: str, got: str) -> Grade:
    if said[0] == "passed" and called:
        return Grade(correct=True)
    if said[0] == "undecided":
        return Grade(correct=None, reason="no plain data", detail=said[2])
    if not called:
        why = "they never call the candidate" if said[0] == "passed" else f"{said[1]}: {said[2]}"
        raise InputError(f"tests: cannot be run: {why}")
    _, kind, text, line = said
    detail = shorten(f"{line or kind}: called {called}, got {got}" + (f"; {kind}: {text}" if text else ""))
    if kind == "MemoryError":
        return Grade(correct=False, reason=REASONS["memory"], detail=detail)
    raised = got.partition(":")[0] == kind
    return Grade(correct=False, reason=REASONS["crashed"] if raised else "wrong answer", detail=detail)
