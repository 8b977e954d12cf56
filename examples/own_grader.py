"""Label candidates with a grader of your own: here numbers are right within one percent of the answer.

From the command line: caps grade cases.jsonl --grader py:own_grader:WithinOnePercent
"""

import asyncio
import re

import caps


class WithinOnePercent:
    """Right is a candidate whose last number is close to the `answer` of its case."""

    version = "within-1-percent-1"  # grades are kept in the journal under it

    def __init__(self, resources: caps.Resources) -> None:
        """`resources` say where programs may run and for how long; this grader runs none."""

    async def grade(self, case: caps.Case, candidate: caps.Candidate) -> caps.Grade:
        """A grade for any candidate; a truth that cannot be used is the fault of the case."""
        try:
            gold = float(str(case.extra["answer"]))
        except (KeyError, ValueError):
            raise caps.InputError("answer: must be a number") from None
        numbers = re.findall(r"-?\d+(?:\.\d+)?", candidate.text[-1000:])
        if not numbers:
            return caps.Grade(correct=False, reason="no number")
        right = abs(float(numbers[-1]) - gold) <= abs(gold) / 100
        return caps.Grade(
            correct=right, reason="" if right else "too far off", detail=f"{numbers[-1]}, {gold}"
        )

    async def close(self) -> None:
        """Nothing is held open."""


async def main() -> None:
    """Grade three candidates."""
    texts = ("About 3.14.", "It is 22/7, so 3.1428.", "Roughly 4.")
    candidates = tuple(caps.Candidate(text) for text in texts)
    case = caps.Case("pi", caps.Problem.of("What is pi?"), candidates, extra={"answer": 3.14159})
    grader = WithinOnePercent(caps.Resources())
    for candidate in candidates:
        grade = await grader.grade(case, candidate)
        print(candidate.text, "right" if grade.correct else f"wrong: {grade.reason}")


if __name__ == "__main__":
    asyncio.run(main())
