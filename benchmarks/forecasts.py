"""Does `caps diagnose` forecast what happens? Recorded verdicts, forecast and outcome on different cases.

    python benchmarks/forecasts.py --data DIR --splits 2

DIR holds verdicts as `benchmarks/judge_statistics.py` reads them. The cases of each judge are split randomly.
On one part the judge is diagnosed as the command does it, from at most `--pairs` pairs; a simulated judge is
fitted, and every strategy's share of right choices is forecast with a 90 % interval for as many cases as the
other part has. On the other part the strategies are played with the recorded verdicts. Right is the candidate
that people prefer most often in its pool, or one of the best grade; labelled pairs are pools of two.
Candidates are shuffled.

What the records cannot answer exactly: partial views are answered with the verdict on full views, a further
look in the same order with the first one, a merged verdict stands for both orders, and a verdict without a
confidence counts as LOW. The diagnosis and the contests are answered by the same rule.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from judge_statistics import OUTCOMES, Judged, of_pairs, of_pools, rows_of

from caps.building import make_strategy
from caps.core.contest import Contest
from caps.core.play import Strategy
from caps.core.types import Answer, Ask, Entrant, Pairing, Unanswered, Verdict
from caps.statistics.judge_measures import measure, profile_of
from caps.studies import diagnosis
from caps.studies.advice import forecast, shuffled, uncertainty_of
from caps.studies.diagnosis import Plan, fitted, schedule, watched
from caps.studies.simulation import LabelledPool

STRATEGIES = ("vanilla", "caps-r", "caps-plus", "knockout", "sprint", "v1-infer")
PROFILED = ("posterior",)
WORDS = {1.0: Verdict(7, 5), 0.0: Verdict(5, 7), 0.5: Verdict(5, 5)}
LEAST_CASES = 30
OVERHEAD = 300


@dataclass(frozen=True)
class Recorded:
    """Pools of one judge and set with their verdicts: (first, second) -> outcome for the first."""

    name: str
    groups: tuple[str, ...]  # cases of one group stay together
    pools: tuple[LabelledPool, ...]
    verdicts: tuple[Mapping[tuple[int, int], float], ...]

    def answer(self, pool: LabelledPool, ask: Ask) -> Answer:
        """What was recorded about the candidates that now have these numbers."""
        if not isinstance(ask, Pairing):
            return Unanswered("not recorded")
        place = {one.id: int(str(one.signature)) for one in pool.entrants}
        return WORDS[self.verdicts[pool.number][place[ask.a], place[ask.b]]]


def pool_of(number: int, right: Sequence[bool], sizes: Sequence[int]) -> LabelledPool:
    """A pool whose candidates' signatures are their places in the record."""
    entrants = tuple(
        Entrant(place, str(place), (0, min(size, 250), size), {"score": 0.0})
        for place, size in enumerate(sizes)
    )
    return LabelledPool(number, entrants, tuple(right), OVERHEAD)


def of_labelled_pairs(name: str, judged: Judged) -> Iterator[Recorded]:
    """Judges of pairs: every pair is a pool of two, the right one first in the record."""
    for judge, pairs in judged.items():
        yield Recorded(
            f"{name}: {judge}",
            tuple(pair.split(" ")[0] for pair in pairs),
            tuple(pool_of(number, (True, False), (300, 300)) for number in range(len(pairs))),
            tuple({(0, 1): first, (1, 0): 1 - second} for first, second in pairs.values()),
        )


def of_whole_pools(name: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[Recorded]:
    """Judges of pools all of whose pairs were judged."""
    by_judge: dict[str, list[tuple[str, LabelledPool, Mapping[tuple[int, int], float]]]] = defaultdict(list)
    for row in rows:
        count = len(row["candidates"])
        worth = [float(one.get("grade") or 0) for one in row["candidates"]]
        for a, b, for_a, for_b, _ in row.get("human", ()):
            share = 0.5 if for_a == for_b else float(for_a > for_b)
            worth[a], worth[b] = worth[a] + share, worth[b] + 1 - share
        right = [value == max(worth) for value in worth]
        for judge, verdicts in row["verdicts"].items():
            known = {(first, second): OUTCOMES[given] for first, second, given in verdicts}
            if row.get("merged"):
                known |= {(second, first): 1 - outcome for (first, second), outcome in known.items()}
            if len(known) == count * (count - 1) and count > 2 and not all(right):
                sizes = [one["size"] // 4 for one in row["candidates"]]
                by_judge[judge].append((row["id"], pool_of(len(by_judge[judge]), right, sizes), known))
    for judge, found in by_judge.items():
        groups, pools, verdicts = zip(*found, strict=True)
        yield Recorded(f"{name}: {judge}", groups, pools, verdicts)


def records(data: Path) -> list[Recorded]:
    """Every judge of every file that has enough cases."""
    found: list[Recorded] = []
    for path in sorted(data.rglob("*.jsonl*")):
        rows, name = rows_of(path), path.name.split(".")[0]
        if "candidates" in rows[0]:
            found += of_whole_pools(name, rows)
            found += of_labelled_pairs(f"{name}, pairs", of_pools(rows))
        elif rows[0].get("label"):
            found += of_labelled_pairs(name, of_pairs(rows))
    return [one for one in found if len(set(one.groups)) >= LEAST_CASES]


def compared(job: tuple[Recorded, int, argparse.Namespace]) -> list[dict[str, Any]]:
    """Forecast and outcome of every strategy on one split."""
    recorded, seed, given = job
    rng = Random(f"{recorded.name} {seed}")
    groups = sorted(set(recorded.groups))
    rng.shuffle(groups)
    chosen = set(groups[: len(groups) // 2])
    here = [pool for pool, group in zip(recorded.pools, recorded.groups, strict=True) if group in chosen]
    there = [pool for pool, group in zip(recorded.pools, recorded.groups, strict=True) if group not in chosen]
    there = rng.sample(there, min(len(there), given.outcomes))
    plan = Plan(pairs=given.pairs, seed=seed)
    asked = watched(schedule(list(diagnosis.of_pools(here)), plan), plan, recorded.answer)
    measured = measure(asked.looks, probabilities=False)
    profile, _ = profile_of(asked.looks, measured)
    strategies: dict[tuple[str, tuple[tuple[str, str], ...]], Strategy] = {
        (name, ()): make_strategy(name) for name in STRATEGIES
    }
    strategies |= {(name, ()): make_strategy(name, profile=profile) for name in PROFILED}
    forecasts = forecast(
        here, strategies, fitted(measured), seed=seed, contests=given.contests,
        uncertainty=uncertainty_of(measured, len(there)),
    )  # fmt: skip
    rows = []
    for key, strategy in strategies.items():
        right = []
        for pool in shuffled(there, seed + 1):
            contest = Contest(strategy, pool.entrants, seed=f"{seed}/{pool.number}")
            winner = contest.play(lambda ask, pool=pool: recorded.answer(pool, ask)).selection.winner
            right.append(pool.correct[winner])
        record, (low, high) = forecasts[key]
        rows.append(
            {
                "set": recorded.name.split(":")[0],
                "judge": recorded.name,
                "strategy": key[0],
                "pairs": measured.pairs,
                "cases": len(there),
                "accuracy": measured.levels["E2"].accuracy.value,
                "forecast": record.right / record.problems,
                "low": low,
                "high": high,
                "outcome": fmean(right),
            }
        )
    return rows


def line(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Coverage, mean absolute error, mean error and mean width."""
    inside = fmean(one["low"] - 1e-9 <= one["outcome"] <= one["high"] + 1e-9 for one in rows)
    error = fmean(abs(one["forecast"] - one["outcome"]) for one in rows)
    shift = fmean(one["forecast"] - one["outcome"] for one in rows)
    width = fmean(one["high"] - one["low"] for one in rows)
    return (
        f"| {name} | {len(rows)} | {100 * inside:.0f} % | {100 * error:.1f} | {100 * shift:+.1f} | "
        f"±{50 * width:.1f} |"
    )


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--splits", type=int, default=1)
    options.add_argument("--pairs", type=int, default=Plan().pairs)
    options.add_argument("--contests", type=int, default=200)
    options.add_argument("--outcomes", type=int, default=120, help="cases at most that are played")
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--only", help="judges whose name has this in it")
    options.add_argument("--each", action="store_true", help="a line for every forecast too")
    given = options.parse_args()
    found = [one for one in records(given.data) if not given.only or given.only in one.name]
    jobs = [(one, seed, given) for one in found for seed in range(given.splits)]
    with Pool(given.processes) as workers:
        rows = [row for rows in workers.imap(compared, jobs) for row in rows]
    if given.each:
        for one in rows:
            print(
                f"{one['judge']:48s} {one['strategy']:10s} {one['pairs']:4d} pairs, {one['accuracy']:.3f}: "
                f"forecast {one['forecast']:.3f} [{one['low']:.3f}, {one['high']:.3f}], "
                f"outcome {one['outcome']:.3f}"
            )
    print(f"{len(found)} judges, {given.splits} splits")
    print("| | forecasts | inside 90 % | mean abs. error, points | mean error | mean interval |")
    print("|---|---|---|---|---|---|")
    for what in ("set", "strategy"):
        for name in dict.fromkeys(one[what] for one in rows):
            print(line(name, [one for one in rows if one[what] == name]))
    judged = [one for one in rows if one["strategy"] != "vanilla"]
    print(line("**all that ask the judge**", judged))


if __name__ == "__main__":
    main()
