"""Do forecasts contain what runs ask? Real pools and recorded verdicts, judges that forecasts do not assume.

    python benchmarks/forecasts.py --data DIR --cases 40

DIR holds `pools/*.jsonl.gz`, files of labelled cases, and `judgments/recorded/*.jsonl.gz`, pools all of whose
pairs real judges compared. Each strategy is forecast on each case as `caps plan` does it, and then played: on
the pools by simulated judges that know the labels, on the recorded pools by the verdicts. Partial views get
the recorded verdict on full views, a further draw the first one, and every verdict counts as LOW.

A line states for how many cases the calls were inside the 90 % range, and the calls of all cases as a share
of the forecast mean.
"""

import argparse
import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from caps.core.contest import Contest
from caps.core.types import Answer, Ask, Case, Entrant, Pairing, Unanswered, Verdict
from caps.datasets.imports import open_cases
from caps.judging.simulated import PRESETS, JudgeModel, SimulatedJudge, judge_of
from caps.session.parts import make_prepare, make_strategy
from caps.studies.planning import Forecast, rehearse

STRATEGIES = ("posterior", "caps-r", "knockout", "sprint")
JUDGES: Mapping[str, JudgeModel] = {
    **{f"right in {name} %": PRESETS[name] for name in ("60", "70", "80", "90")},
    "biased": PRESETS["biased"],
    "tie-prone": judge_of(0.75, tie_band=0.6),
    "at chance": PRESETS["weak"],
}
VERDICTS = {1: Verdict(7, 5), 2: Verdict(5, 7), 3: Verdict(5, 5)}
SEED = 1234

Rule = Callable[[Ask], Answer]


class Played(NamedTuple):
    """Entrants of a case, and the judges that rule on it, by name."""

    name: str
    entrants: Sequence[Entrant]
    judges: Mapping[str, Rule]


def labelled_cases(path: Path, count: int) -> Iterator[Played]:
    """Cases of a file with simulated judges that know the labels."""
    prepare = make_prepare(findings=True)
    found = (case for case in open_cases(str(path)) if isinstance(case, Case))
    for number, case in enumerate(islice(found, count)):
        entrants = prepare(case).evidence.entrants
        correct = [bool(candidate.correct) for candidate in case.candidates]
        judges = {
            name: SimulatedJudge(model, entrants, correct, seed=SEED, case=number).answer
            for name, model in JUDGES.items()
        }
        yield Played(case.id, entrants, judges)


def recorded_cases(path: Path, count: int) -> Iterator[Played]:
    """Pools all of whose pairs were judged; a merged verdict stands for both orders."""
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    for row in islice((row for row in rows if row.get("verdicts")), count):
        sizes = [one["size"] // 4 for one in row["candidates"]]
        entrants = [
            Entrant(place, str(place), (0, min(size, 250), size), {"score": 0.0}, signature_kind="open")
            for place, size in enumerate(sizes)
        ]
        judges = {judge: rule for judge in row["verdicts"] if (rule := _recorded(row, judge)) is not None}
        if judges:
            yield Played(row["id"], entrants, judges)


def _recorded(row: Mapping[str, Any], judge: str) -> Rule | None:
    known = {(first, second): outcome for first, second, outcome in row["verdicts"][judge]}
    if row.get("merged"):
        known |= {(second, first): {1: 2, 2: 1, 3: 3}[outcome] for (first, second), outcome in known.items()}
    count = len(row["candidates"])
    if count < 3 or len(known) < count * (count - 1):
        return None

    def rule(ask: Ask) -> Answer:
        return VERDICTS[known[ask.a, ask.b]] if isinstance(ask, Pairing) else Unanswered("not recorded")

    return rule


def rows_of(name: str, cases: Sequence[Played], strategy_name: str) -> Iterator[dict[str, Any]]:
    """A line for each judge: cases inside the range, and all calls against the mean."""
    strategy = make_strategy(strategy_name)
    inside, asked = defaultdict[str, list[bool]](list), defaultdict[str, int](int)
    totals = defaultdict[str, Forecast](Forecast)
    for case in cases:
        seed = f"{SEED}/{case.name}"
        forecast = rehearse(strategy, case.entrants, lambda _: 1, seed=seed)
        line = forecast.as_line()["calls_total"]
        for judge, rule in case.judges.items():
            transcript = Contest(strategy, case.entrants, seed=seed).play(rule).transcript
            calls = sum(len(turn.round.asks) for turn in transcript)
            inside[judge].append(line["low"] <= calls <= line["high"])
            asked[judge] += calls
            totals[judge] += forecast
    for judge, hits in inside.items():
        calls = totals[judge].calls
        yield {
            "set": name, "judge": judge, "strategy": strategy_name, "cases": len(hits),
            "inside": sum(hits) / len(hits), "calls": asked[judge], "mean": calls.mean, "low": calls.low,
            "high": calls.high,
        }  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cases", type=int, default=40, help="of each file")
    parser.add_argument("--only", default="", help="files whose name has this in it")
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    given = parser.parse_args()
    sets = {
        path.name.split(".")[0]: list(read(path, given.cases))
        for folder, read in (("pools", labelled_cases), ("judgments/recorded", recorded_cases))
        for path in sorted((given.data / folder).glob("*.jsonl.gz"))
        if given.only in path.name
    }
    print("| set | judge | strategy | cases | inside 90 % | calls | mean (90 %) | of the mean |")
    print("|---|---|---|---|---|---|---|---|")
    for name, cases in sets.items():
        for strategy in given.strategies:
            for row in rows_of(name, Random(0).sample(cases, len(cases)), strategy):
                share = f"{row['calls'] / row['mean']:.2f}" if row["mean"] else "–"
                inside = f"{100 * row['inside']:.0f} %"
                print(
                    f"| {name} | {row['judge']} | {strategy} | {row['cases']} | {inside} | "
                    f"{row['calls']} | {row['mean']:.0f} ({row['low']:.0f}–{row['high']:.0f}) | {share} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
