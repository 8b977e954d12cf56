"""What the sandbox costs: grades per second on all cores, against the same programs run bare.

Bare is what a grader without a sandbox would do: one Python process for each test, or one for candidate and
test program together. Run it with `python -m benchmarks.sandbox [--programs 60]`.
"""

import argparse
import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable

from rich.console import Console
from rich.table import Table

from caps.core.types import Candidate, Case, Problem
from caps.grading.code import CodeGrader
from caps.sandbox.base import PYTHON
from caps.sandbox.launchers import find_sandbox

TESTS = 10
SUM = "import sys\nn, *xs = map(int, sys.stdin.read().split())\nprint(sum(x * {0} for x in xs[:n]))\n"
FIBONACCI = (
    "def fib(n):\n    a, b = 0, {0}\n    for _ in range(n):\n        a, b = b, a + b\n    return a // {0}\n"
)


def fed(number: int) -> tuple[Case, str]:
    """A program that reads standard input, with tests."""
    tests = [{"input": f"3\n{i} {i} 1", "output": str((2 * i + 1) * (number + 1))} for i in range(TESTS)]
    return Case("fed", Problem.of("Sum."), (), "code", extra={"tests": tests}), SUM.format(number + 1)


def examined(number: int) -> tuple[Case, str]:
    """A function with a test program."""
    known = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]
    lines = "".join(f"    assert candidate({n}) == {value}\n" for n, value in enumerate(known))
    extra = {"tests": "def check(candidate):\n" + lines, "entry_point": "fib"}
    return Case("examined", Problem.of("Fibonacci."), (), "code", extra=extra), FIBONACCI.format(number + 1)


async def bare(source: str, stdin: str = "") -> bytes:
    """One plain process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", source, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    return (await process.communicate(stdin.encode()))[0]


async def bare_grade(case: Case, source: str) -> bool:
    """Grade without any protection."""
    tests = case.extra["tests"]
    if isinstance(tests, str):
        return await bare(f"{source}\n{tests}\ncheck(fib)\nprint('passed')") == b"passed\n"
    assert isinstance(tests, list)  # noqa: S101
    for test in tests:
        if (await bare(source, test["input"])).strip().decode() != test["output"]:
            return False
    return True


async def timed(
    work: Callable[[Case, str], Awaitable[bool]], cases: list[tuple[Case, str]], cores: int
) -> float:
    """Grades per second."""
    free = asyncio.Semaphore(cores)

    async def one(case: Case, source: str) -> bool:
        async with free:
            return await work(case, source)

    started = time.perf_counter()
    assert all(await asyncio.gather(*(one(*case) for case in cases)))  # noqa: S101
    return len(cases) / (time.perf_counter() - started)


async def measure(programs: int) -> Table:
    cores = os.cpu_count() or 1
    sandbox = await find_sandbox(cores=cores)
    grader = CodeGrader(sandbox)

    async def grade(case: Case, source: str) -> bool:
        return bool((await grader.grade(case, Candidate("", code=source))).correct)

    async def start(*_: object) -> bool:
        return (await sandbox.run(PYTHON.job("print(1)"))).stdout == b"1\n"

    async def start_bare(*_: object) -> bool:
        return await bare("print(1)") == b"1\n"

    table = Table("", "sandboxed / s", "bare / s", "ratio", title=f"{sandbox.name}, {cores} cores")
    rows = (
        (f"programs with {TESTS} inputs each", fed, grade, bare_grade),
        ("functions with a test program", examined, grade, bare_grade),
        ("starts of one process", fed, start, start_bare),
    )
    for label, make, safe, unsafe in rows:
        cases = [make(number) for number in range(programs)]
        speeds = [await timed(work, cases, cores) for work in (safe, unsafe)]
        table.add_row(label, *(f"{speed:,.1f}" for speed in speeds), f"{speeds[0] / speeds[1]:.2f}")
    await grader.close()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=60)
    Console().print(asyncio.run(measure(parser.parse_args().programs)))


if __name__ == "__main__":
    main()
