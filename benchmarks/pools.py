"""Published judgments as a file of cases and a file of recorded verdicts.

    python benchmarks/pools.py POOLS... --out DIR      # writes NAME.cases.jsonl and NAME.verdicts.jsonl

A file of pools has one problem per line, with its candidates and what several judges said of them:

    {"id": "q1", "problem": "…", "candidates": [{"text": "…", "grade": 3}, {"text": "…", "grade": 1}],
     "verdicts": {"gpt-4": [[0, 1, 1], [1, 0, 2]]}, "ratings": {"gpt-4": [3, 1]}}

* `verdicts`: judge -> [shown first, shown second, outcome]; 1: the first wins, 2: the second, 3: a tie. The
  same pair in the same order again is a further draw. `merged` verdicts are made of both orders.
* `ratings`, `scales`: judge -> one rating a candidate, or null; judge -> least and greatest rating, by
  default those of the judge in the file.
* `human`: [a, b, votes for a, votes for b, ties]. A candidate without a `grade` gets its mean share of votes
  over its opponents; a tie counts ½. Without `correct`, the candidates with the best grade are right.

A missing problem or text becomes a placeholder that differs between candidates.
"""

import argparse
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

Row = dict[str, Any]
OUTCOMES = {1: "A", 2: "B", 3: "TIE"}
OF_JUDGES = ("verdicts", "ratings", "human", "merged", "scales")


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("pools", nargs="+", type=Path, metavar="POOLS")
    options.add_argument("--out", type=Path, required=True, metavar="DIR")
    given = options.parse_args()
    for path in given.pools:
        write(path.name.partition(".")[0], read(path), given.out)


def read(path: Path) -> list[Row]:
    """The pools of a file."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


def write(name: str, pools: Sequence[Row], folder: Path) -> None:
    """Write the cases and the verdicts of pools."""
    folder.mkdir(parents=True, exist_ok=True)
    scales = judged_ranges(pools)
    rows = {"cases": map(case, pools), "verdicts": (row for pool in pools for row in answers(pool, scales))}
    for kind, content in rows.items():
        with (folder / f"{name}.{kind}.jsonl").open("w") as sink:
            sink.writelines(json.dumps(row) + "\n" for row in content)


def case(pool: Row) -> Row:
    """The problem and its labelled candidates."""
    votes = vote_shares(pool.get("human", ()))
    candidates = []
    for index, listed in enumerate(pool["candidates"]):
        stated = {field: value for field, value in listed.items() if value is not None}
        text = f"(the text of candidate {index} is not published)"
        candidates.append({"text": text, "grade": votes.get(index), **stated})
    grades = [candidate["grade"] for candidate in candidates]
    if None not in grades:
        candidates = [{"correct": row["grade"] == max(grades), **row} for row in candidates]
    rest = {field: value for field, value in pool.items() if field not in OF_JUDGES}
    return {"problem": "(the problem is not published)", **rest, "candidates": candidates}


def vote_shares(human: Sequence[Sequence[int]]) -> dict[int, float]:
    """The mean share of human votes of each candidate over its opponents."""
    shares = defaultdict(list)
    for a, b, for_a, for_b, ties in human:
        if total := for_a + for_b + ties:
            share = (for_a + ties / 2) / total
            shares[a].append(share)
            shares[b].append(1 - share)
    return {candidate: fmean(some) for candidate, some in shares.items()}


def judged_ranges(pools: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """The least and the greatest rating of each judge."""
    ratings = defaultdict(list)
    for pool in pools:
        for judge, values in pool.get("ratings", {}).items():
            ratings[judge] += [value for value in values if value is not None]
    return {judge: (min(values), max(values)) for judge, values in ratings.items() if values}


def answers(pool: Row, scales: Mapping[str, tuple[float, float]]) -> Iterator[Row]:
    """What the judges said of a pool."""
    for judge, verdicts in pool.get("verdicts", {}).items():
        draws: Counter[tuple[int, int]] = Counter()
        for a, b, outcome in verdicts:
            row: Row = {"case": pool["id"], "judge": judge, "shown": [a, b], "verdict": OUTCOMES[outcome]}
            yield row | {"draw": draws[a, b], "merged": pool.get("merged", False)}
            draws[a, b] += 1
    for judge, values in pool.get("ratings", {}).items():
        low, high = pool.get("scales", {}).get(judge) or scales.get(judge, (1, 10))
        for index, value in enumerate(values):
            if value is not None:
                scaled = {"rating": 5.5} if low == high else {"rating": value, "scale": [low, high]}
                yield {"case": pool["id"], "judge": judge, "shown": [index], **scaled}


if __name__ == "__main__":
    main()
