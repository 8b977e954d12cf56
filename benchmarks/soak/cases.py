"""Cases without end: no two alike, some with equal answers, a few of which only algebra shows it."""

import json
import random
from collections.abc import Iterator

CANDIDATES = 16
ROOTS = ("\\sqrt{8}", "2\\sqrt{2}", "\\sqrt{2}+\\sqrt{2}", "\\frac{4}{\\sqrt{2}}")
ALGEBRA = 400  # one case in so many


def case_line(seed: int, number: int) -> str:
    chance = random.Random(f"{seed}/{number}")
    boxed = [str(chance.randrange(CANDIDATES)) for _ in range(CANDIDATES)]
    if number % ALGEBRA == 0:
        boxed[: len(ROOTS)] = ROOTS
    domain = "general" if number % 3 == 2 else "math"
    candidates = [
        f"{number}.{place}: " + "because of that, " * chance.randint(5, 60) + f"\\boxed{{{answer}}}"
        for place, answer in enumerate(boxed)
    ]
    row = {
        "id": f"{number}",
        "domain": domain,
        "problem": f"What is it, {number}?",
        "candidates": candidates,
    }
    return json.dumps(row) + "\n"


def lines(seed: int) -> Iterator[str]:
    number = 0
    while True:
        yield case_line(seed, number)
        number += 1
