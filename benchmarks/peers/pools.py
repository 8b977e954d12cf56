"""Fixed pools with texts, for everyone alike: who is right and who agrees as the project makes pools up.

A problem is marked `q17`, its fourth candidate `q17c3`. The marks stand in the first words, so that partial
views have them too: whoever plays the judge knows by them what it reads. No tool under test looks at them.
"""

import re
from dataclasses import dataclass
from random import Random

from caps.core.types import Candidate, Case, Problem
from caps.studies.simulation import LabelledPool, PoolModel

N = 16
TOKENS = 1500  # a candidate
MARK = re.compile(r"\bq(\d+)(?:c(\d+))?\b")
WORDS = re.findall(
    r"\w+",
    "then the sum over all terms is split into two parts and each of them bounded by what was shown before"
    " so we may take the larger one first check its sign count how often it occurs and carry the rest along"
    " until nothing remains but a case that was settled above which gives a value for every index to look at",
)


@dataclass(frozen=True, slots=True)
class Marked:
    """A case, and the pool it was written from."""

    case: Case
    pool: LabelledPool


def marked_cases(count: int, *, n: int = N, tokens: int = TOKENS, seed: int = 7) -> list[Marked]:
    """Pools of mathematics and of code by turns; a function of the numbers given."""
    return [_marked(number, n, tokens, seed) for number in range(count)]


def _marked(number: int, n: int, tokens: int, seed: int) -> Marked:
    kind = ("math", "code")[number % 2]
    pool = PoolModel(kind=kind, n=n).pool(number, seed)
    texts = [_text(kind, f"q{number}c{one.id}", str(one.signature), tokens) for one in pool.entrants]
    candidates = tuple(map(Candidate, texts))
    return Marked(Case(f"q{number}", Problem.of(_statement(number, kind)), candidates, kind), pool)


def _statement(number: int, kind: str) -> str:
    task = "What is the value asked for? Put it in a box." if kind == "math" else "Write a program in Python."
    return f"Problem q{number}. {task} " + " ".join(Random(f"statement {number}").choices(WORDS, k=60))


def _text(kind: str, mark: str, name: str, tokens: int) -> str:
    """A candidate of about so many tokens; equal names give equal answers, or equal programs."""
    rng = Random(f"text {mark}")
    end = _program(mark, name, tokens) if kind == "code" else f"Hence it is \\boxed{{{_value(mark, name)}}}."
    reasoning = f"Attempt {mark}: "
    while len(reasoning) + len(end) < 4 * tokens:
        reasoning += " ".join(rng.choices(WORDS, k=12)) + ".\n"
    return reasoning + "\n" + end


def _value(mark: str, name: str) -> int:
    """A number that belongs to an answer of a problem."""
    return Random(f"value {mark.partition('c')[0]} {name}").randrange(10, 10**6)


def _program(mark: str, name: str, tokens: int) -> str:
    rng = Random(f"program {mark.partition('c')[0]} {name}")
    lines = ["def solve(numbers):", f"    total = {rng.randrange(10**6)}"]
    while len(lines) < tokens // 32:
        lines.append(
            f"    total += sum(x % {rng.randrange(2, 99)} for x in numbers if x > {rng.randrange(99)})"
        )
    return "\n".join(["```python", *lines, "    return total", "```"])
