"""The real sandbox for tests; without bubblewrap they are skipped, and say so."""

import asyncio

import pytest

from caps.core.errors import UserError
from caps.core.types import Candidate, Case, Problem
from caps.grading.code import CodeGrader
from caps.sandbox.base import PYTHON, Limits
from caps.sandbox.launchers import Bubblewrap, UnsafeLocal, find_sandbox
from support.closing import closing

UNHURRIED = Limits(seconds=20)  # also where many other things are under way


def works():
    try:
        asyncio.run(find_sandbox("bwrap"))
    except UserError as error:
        return str(error)
    return ""


why_not = works()
needs_bubblewrap = pytest.mark.skipif(bool(why_not), reason=f"no sandbox, so nothing was tried: {why_not}")


def run(source, *, limits=UNHURRIED, stdin=b"", sandbox="bwrap"):
    """Run one Python program in the sandbox."""

    kind = UnsafeLocal if sandbox == "unsafe-local" else Bubblewrap
    return asyncio.run(kind(cores=1).run(PYTHON.job(source, stdin=stdin, limits=limits)))


def case(tests, *, problem="Solve it.", **extra):
    return Case("1", Problem.of(problem), (), "code", extra={"tests": tests, **extra})


def grade(one, *codes, limits=UNHURRIED):
    """Grade programs, all at once; one grade if there is one program."""

    async def play():
        async with closing(CodeGrader(Bubblewrap(cores=2), limits)) as grader:
            return await asyncio.gather(*(grader.grade(one, Candidate("", code=code)) for code in codes))

    grades = asyncio.run(play())
    return grades[0] if len(codes) == 1 else grades
