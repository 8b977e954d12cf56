"""Read a set of problems of your own: here capitals, one JSON object a line.

From the command line: caps import capitals.jsonl --dataset py:own_dataset:CAPITALS -o problems.jsonl
"""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import caps


def parse(row: Mapping[str, object]) -> caps.Case:
    """One row as a case without candidates; a wrong row is an `InputError` that names the field."""
    country, capital = row["country"], row["capital"]
    if not isinstance(country, str) or not country:
        raise caps.InputError("country: must be a text")
    question = caps.Problem.of(f"What is the capital of {country}?")
    return caps.Case(f"capital-{country}", question, (), extra={"answer": capital})


CAPITALS = caps.Dataset(
    name="capitals",
    parse=parse,
    marks=frozenset({"country", "capital"}),  # fields that its rows are known by
    expected=2,  # problems: another number is another version, and is refused
    source="this file",
    licence="CC0-1.0",
)


def main() -> None:
    """Write two rows and read them."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "capitals.jsonl"
        rows = [{"country": "France", "capital": "Paris"}, {"country": "Peru", "capital": "Lima"}]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        for case in CAPITALS.read(str(path)):
            print(case if isinstance(case, caps.InputError) else f"{case.id}: {case.problem.text}")


if __name__ == "__main__":
    main()
