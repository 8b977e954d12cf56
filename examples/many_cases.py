"""Choose in 200 cases at the same time, with a progress bar; then look at the results as a table.

The model and its endpoint come from the environment:

    CAPS_MODEL=qwen3-14b CAPS_BASE_URL=http://localhost:8000/v1 python examples/many_cases.py
"""

from collections.abc import Iterator
from random import Random

import caps

CASES = 200


def sums() -> Iterator[caps.Case]:
    """Sums with four answers each, of which one is right; replace this with cases of your own."""
    rng = Random(1)
    for number in range(CASES):
        a, b = rng.randrange(100), rng.randrange(100)
        wrong = rng.sample([a + b - 10, a + b - 1, a + b + 1, a + b + 10], 3)
        answers = [f"{a} + {b} = \\boxed{{{value}}}" for value in rng.sample([a + b, *wrong], 4)]
        yield caps.Case.of(f"What is {a} + {b}?", answers, domain="math", name=f"sum {number}")


def main() -> None:
    """Select, and sum up what came of it."""
    results = caps.select_many_sync(list(sums()), strategy="knockout", progress=True)
    table = caps.rows(results)  # pandas.DataFrame(table) makes a data frame of it
    done = [row for row in table if row["error"] is None]
    print(f"{len(done)} of {len(table)} cases done, {sum(row['tokens'] for row in table)} input tokens")
    for row in table:
        if row["error"] is not None:
            print(f"{row['id']}: {row['error']}")


if __name__ == "__main__":
    main()
