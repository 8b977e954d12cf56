"""What real judges look like: the figures behind the defaults of the simulated judge.

    python benchmarks/judge_statistics.py --data DIR

DIR holds verdicts of real judges, files of JSON lines, plain or gzipped, in one of three layouts:

* whole pools: `{"human": [[a, b, votes for a, votes for b, ties]], "candidates": [{"grade"?}],
  "verdicts": {judge: [[first, second, outcome]]}, "ratings": {judge: [number]}}`, outcome 1, 2 or 3 (tie);
* labelled pairs, both orders: `{"label": "A" or "B", "judgments": [{"judge_model", "judge_prompt",
  "verdict_ab", "verdict_ba"}]}`, verdicts mapped to the names of the row;
* repeated pairs: the same with lists `verdicts_ab` and `verdicts_ba`, and without a label.

A verdict is taken for the sign of a normal variable. Of each judge with 90 pairs and more: accuracy over both
orders (a tie counts half), the pull of the first slot in standard deviations, how often the preferred one
changes when the slots swap, and the correlation of the two orders (tetrachoric), which is the share of the
error that lasts. Of whole pools: how errors on two pairs of a case that share no candidate correlate, which
is how hard the case is plus or minus the pull of a slot in it. Between judges: the correlation of their
errors in the same order. Of repeated pairs: how often asking again, in the same order or in the other,
prefers another one.
"""

import argparse
import gzip
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from statistics import NormalDist, fmean, quantiles
from typing import Any

from caps.judging.simulated import GOOD_ENOUGH
from caps.statistics.estimates import find_crossing

NORMAL = NormalDist()
LEAST_PAIRS = 90
STEPS = 24
CLOSEST = 0.99  # the largest correlation considered
OUTCOMES = {1: 1.0, 2: 0.0, 3: 0.5}
Orders = tuple[float, float]  # outcome for the right one where it is shown first, and where second
Judged = dict[str, dict[str, Orders]]  # judge -> pair -> outcomes


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Rows of a file of JSON lines."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return [json.loads(line) for line in lines]


def preferred(row: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Pairs of a pool whose labels differ, the better one first."""
    for a, b, for_a, for_b, _ in row.get("human", ()):
        if for_a != for_b:
            yield (a, b) if for_a > for_b else (b, a)


def tetrachoric(first: Sequence[float], second: Sequence[float]) -> float:
    """Correlation of the normal variables behind two lists of outcomes, from how often both are right."""
    h, k = (NORMAL.inv_cdf((sum(own) + 0.5) / (len(own) + 1)) for own in (first, second))
    both = fmean(one * two for one, two in zip(first, second, strict=True))

    def both_right(correlation: float) -> float:  # Plackett's integral
        points = [(step + 0.5) / STEPS * correlation for step in range(STEPS)]
        return NORMAL.cdf(h) * NORMAL.cdf(k) + correlation * fmean(density(r) for r in points)

    def density(r: float) -> float:
        rest = 1 - r * r
        return math.exp(-(h * h - 2 * r * h * k + k * k) / (2 * rest)) / (2 * math.pi * math.sqrt(rest))

    return find_crossing(both_right, both, -CLOSEST, CLOSEST)


def of_pools(rows: Sequence[Mapping[str, Any]]) -> Judged:
    """Judges of whole pools; pairs that were asked in both orders."""
    found: Judged = defaultdict(dict)
    for row in rows:
        if row.get("merged"):
            continue  # one outcome for both orders says nothing of either
        for judge, verdicts in row.get("verdicts", {}).items():
            outcome = {(first, second): OUTCOMES[given] for first, second, given in verdicts}
            for right, wrong in preferred(row):
                if (right, wrong) in outcome and (wrong, right) in outcome:
                    both = outcome[right, wrong], 1 - outcome[wrong, right]
                    found[judge][f"{row['id']} {right} {wrong}"] = both
    return found


def of_pairs(rows: Sequence[Mapping[str, Any]]) -> Judged:
    """Judges of labelled pairs; a judge with another prompt is another judge."""
    found: Judged = defaultdict(dict)
    for row in rows:
        label = row["label"]
        for one in row["judgments"]:
            given = one["verdict_ab"], one["verdict_ba"]
            if None not in given:
                ab, ba = (0.5 if verdict not in ("A", "B") else float(verdict == label) for verdict in given)
                judge = f"{one['judge_model']}, {one['judge_prompt']}"
                found[judge][row["pair_id"]] = (ab, ba) if label == "A" else (ba, ab)
    return found


def evidence(judged: Judged) -> list[dict[str, Any]]:
    """The figures of every judge that has enough pairs."""
    table = []
    for judge, pairs in sorted(judged.items()):
        if len(pairs) < LEAST_PAIRS:
            continue
        first, second = ([orders[place] for orders in pairs.values()] for place in (0, 1))
        at = [NORMAL.inv_cdf((sum(own) + 0.5) / (len(own) + 1)) for own in (first, second)]
        table.append(
            {
                "judge": judge,
                "pairs": len(pairs),
                "accuracy": fmean([*first, *second]),
                "pull": (at[0] - at[1]) / 2,
                "flips": fmean(abs(x - y) for x, y in pairs.values()),
                "lasting": tetrachoric(first, second),
            }
        )
    return table


def across(judged: Judged) -> list[float]:
    """Correlation of the errors of every two judges (prompts of one model left out), in the same order."""
    found = []
    for one, two in combinations([name for name, own in judged.items() if len(own) >= LEAST_PAIRS], 2):
        same = [pair for pair in judged[one] if pair in judged[two]]
        if len(same) >= LEAST_PAIRS and one.split(",")[0] != two.split(",")[0]:
            found.append(
                fmean(
                    tetrachoric([judged[one][x][i] for x in same], [judged[two][x][i] for x in same])
                    for i in (0, 1)
                )
            )
    return found


def within_cases(rows: Sequence[Mapping[str, Any]], judge: str) -> Orders | None:
    """Correlation of the errors on two pairs of a case that share no candidate, by their orders."""
    linked: dict[Orders, list[Orders]] = defaultdict(list)
    for row in rows:
        outcome = {
            (first, second): OUTCOMES[given] for first, second, given in row["verdicts"].get(judge, ())
        }
        pairs = [(r, w) for r, w in preferred(row) if (r, w) in outcome and (w, r) in outcome]
        for one, two in combinations(pairs, 2):
            if not set(one) & set(two):
                level_models = [(outcome[r, w], 1 - outcome[w, r]) for r, w in (one, two)]
                for here, there in product((0, 1), repeat=2):
                    linked[here, there].append((level_models[0][here], level_models[1][there]))
    if len(linked[0, 0]) < LEAST_PAIRS:
        return None
    found = {order: tetrachoric(*zip(*pairs, strict=True)) for order, pairs in linked.items()}
    return (found[0, 0] + found[1, 1]) / 2, (found[0, 1] + found[1, 0]) / 2


def repeated(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, float, float]]:
    """By judge: how often a redraw and a swap prefer another one (a tie is half), and the share of ties."""
    value = {"A": 1.0, "B": 0.0, "tie": 0.5}
    redraws, swaps, ties = (defaultdict[str, list[float]](list) for _ in range(3))
    for row in rows:
        for one in row["judgments"]:
            judge = one["judge_model"]
            orders = [[value[v] for v in one[name] if v in value] for name in ("verdicts_ab", "verdicts_ba")]
            for own in orders:
                redraws[judge] += [abs(x - y) for x, y in combinations(own, 2)]
                ties[judge] += [float(x == 0.5) for x in own]
            swaps[judge] += [abs(x - y) for x in orders[0] for y in orders[1]]
    return [(name, fmean(redraws[name]), fmean(swaps[name]), fmean(ties[name])) for name in sorted(redraws)]


def rated(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, float, int]]:
    """By judge: accuracy of ratings on pairs with unequal labels, and how many have equal ratings."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        labels = [one.get("grade", one.get("correct")) for one in row["candidates"]]
        for judge, ratings in row.get("ratings", {}).items():
            for a, b in combinations(range(len(labels)), 2):
                if None not in (labels[a], labels[b], ratings[a], ratings[b]) and labels[a] != labels[b]:
                    better, worse = (a, b) if labels[a] > labels[b] else (b, a)
                    sign = (ratings[better] > ratings[worse]) - (ratings[better] < ratings[worse])
                    found[judge].append((1 + sign) / 2)
    return [(judge, fmean(own), fmean(x == 0.5 for x in own), len(own)) for judge, own in found.items()]


def quartiles(values: Sequence[float]) -> str:
    """Least, quartiles and most."""
    middle = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return " ".join(f"{value:.2f}" for value in (min(values), *middle, max(values)))


def print_pools(rows: Sequence[Mapping[str, Any]], judged: Judged) -> None:
    """Print what only whole pools show."""
    for judge, accuracy, equal, pairs in rated(rows):
        print(f"  ratings of {judge}: {accuracy:.3f} right, {equal:.2f} tied, {pairs} pairs")
    for judge in sorted(judged):
        if disjoint := within_cases(rows, judge):
            same, opposite = disjoint
            print(f"  {judge:36s} within a case: same order {same:+.2f}, opposite {opposite:+.2f}")


def main() -> None:
    """Print the figures of every file."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--data", type=Path, required=True)
    table: list[dict[str, Any]] = []
    for path in sorted(options.parse_args().data.rglob("*.jsonl*")):
        rows = rows_of(path)
        print(f"\n{path.name}: {len(rows)} lines")
        if "candidates" in rows[0]:
            judged = of_pools(rows)
            print_pools(rows, judged)
        elif rows[0].get("label"):
            judged = of_pairs(rows)
        else:
            for judge, redraw, swap, ties in repeated(rows):
                print(f"  {judge:28s} redraw changes {redraw:.3f}, swap {swap:.3f}, ties {ties:.3f}")
            continue
        found = evidence(judged)
        table += found
        for one in found:
            print(
                f"  {one['judge']:36s} {one['pairs']:4d} pairs  accuracy {one['accuracy']:.3f}  "
                f"pull {one['pull']:+.2f}  flips {one['flips']:.3f}  lasting {one['lasting']:+.2f}"
            )
        if between := across(judged):
            print(f"  errors of {len(between)} pairs of judges correlate: {quartiles(between)}")
    for name, some in (
        (f"accuracy of at least {GOOD_ENOUGH}", [one for one in table if one["accuracy"] >= GOOD_ENOUGH]),
        ("below", [one for one in table if one["accuracy"] < GOOD_ENOUGH]),
    ):
        if some:
            print(f"\n{len(some)} judges, {name} (least, quartiles, most)")
            for figure in ("pull", "flips", "lasting"):
                print(f"  {figure:8s} {quartiles([abs(one[figure]) for one in some])}")


if __name__ == "__main__":
    main()
