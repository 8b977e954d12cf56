"""What every grader of the registry keeps to: right, wrong or undecided, whatever a candidate contains."""

import asyncio
import inspect

import pytest

from caps.core.domains import Resources
from caps.core.errors import InputError
from caps.core.types import Candidate, Case, Problem
from caps.registry import GRADERS, resolve
from support.closing import closing
from support.sandboxing import needs_bubblewrap

HOSTILE = [
    "", "\0", "\ud800", "\\boxed{" * 5_000, "```python\n" + "(" * 20_000, "{" * 20_000, "9" * 100_000, "\u202e1",
    "```python\nimport os; os._exit(0)\n```", "\\boxed{9^{9^{9^9}}}",
]  # fmt: skip
# A case with its truth, a right candidate and a wrong one, and truth that cannot be used.
GRADED = {
    "code": (
        {"tests": [{"input": "1 2", "output": "3"}]},
        "```python\nprint(sum(map(int, input().split())))\n```",
        "```python\nprint(1)\n```",
        {"tests": "this is no program ("},
    ),
    "math": ({"answer": "1/2"}, "It is \\boxed{0.5}", "It is \\boxed{2}", {"answer": ""}),
    "replies": ({"answer": "4"}, "The answer is 4.", "The answer is 5.", {"answer": ""}),
}


def case_of(name, truth):
    domain = name if name in ("code", "math") else "general"
    return Case("1", Problem.of("What is it?"), (), domain, extra=truth)


@pytest.fixture(
    params=[pytest.param(name, marks=needs_bubblewrap) if name == "code" else name for name in GRADERS.table]
)
def named(request):
    return request.param


async def opened(name):
    grader = resolve(GRADERS, name)(Resources(seconds=20.0))
    return await grader if inspect.isawaitable(grader) else grader


async def test_right_is_right_and_wrong_is_wrong_with_a_reason_also_at_once(named):
    truth, right, wrong, _ = GRADED[named]
    grader, case = await opened(named), case_of(named, truth)
    try:
        grades = await asyncio.gather(*(grader.grade(case, Candidate(text)) for text in (right, wrong) * 3))
        again = [await grader.grade(case, Candidate(text)) for text in (right, wrong)]
    finally:
        await grader.close()
    assert [grade.correct for grade in grades] == [True, False] * 3
    assert [grade.reason for grade in again] == ["", grades[1].reason]
    assert grades[1].reason


async def test_no_candidate_raises_or_is_right_and_the_next_one_is_graded(named):
    truth, right, _, _ = GRADED[named]
    grader, case = await opened(named), case_of(named, truth)
    try:
        grades = await asyncio.gather(*(grader.grade(case, Candidate(text)) for text in HOSTILE))
        after = await grader.grade(case, Candidate(right))
    finally:
        await grader.close()
    for text, grade in zip(HOSTILE, grades, strict=True):
        assert not grade.correct, text[:40]
        assert (grade.reason + grade.detail).isprintable()
    assert after.correct is True


async def test_truth_that_cannot_be_used_names_its_field(named):
    _, right, _, unusable = GRADED[named]
    (field,) = unusable
    async with closing(await opened(named)) as grader:
        with pytest.raises(InputError, match=field):
            await grader.grade(case_of(named, unusable), Candidate(right))


async def test_a_version_is_the_same_for_the_same_grader_and_it_closes_twice(named):
    first, second = await opened(named), await opened(named)
    assert first.version == second.version
    assert first.version.isprintable()
    for grader in (first, second, first):
        await grader.close()
