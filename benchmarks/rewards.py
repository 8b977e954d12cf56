"""Choosing translations by a judge, by a trained metric, and by both: WMT23, English to German.

    python benchmarks/rewards.py --data DIR [--into docs/howto/reward-models.md]

DIR holds `wmt23_ende.jsonl.gz`, a file of pools (docs/reference/files.md, "Recorded verdicts") with ratings
of GEMBA-MQM (GPT-4), the judge, and of CometKiwi-XXL, a trained metric that plays the reward model, and the
grades of professional raters. No model is asked and nothing is simulated: the judge compares two translations
by its two recorded ratings. What is fitted is fitted on one half of the segments and used on the other. A
translation counts as right if no other of its segment has a better grade.
"""

import argparse
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from peers.tables import insert

from caps.core.contest import Contest
from caps.core.play import Strategy
from caps.core.types import Answer, Ask, Entrant, Pairing, Rating, Solo, Unanswered, Verdict
from caps.statistics.estimates import mean_interval
from caps.strategies.pointwise import Pointwise
from caps.strategies.posterior import Posterior
from caps.strategies.reward import Reward
from caps.strategies.vanilla import Vanilla
from caps.studies.calibration import Probe, ProbedCase, conclude

FILE = "wmt23_ende.jsonl.gz"
JUDGE, METRIC = "gemba_mqm_gpt4", "cometkiwi_xxl"
LOWEST = -25.0  # the rating of GEMBA-MQM that stands for the worst translation; 0 is the best
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Segment:
    """A source segment: its translations as entrants, their grades, and what the judge rated."""

    number: int
    entrants: tuple[Entrant, ...]
    grades: tuple[float, ...]
    ratings: tuple[float, ...]

    def answer(self, ask: Ask) -> Answer:
        """What the judge said: its rating, or two ratings compared."""
        rated = [1 + 9 * (self.ratings[one] - LOWEST) / -LOWEST for one in ask.entrants]
        if isinstance(ask, Pairing):
            return Verdict(*rated)
        return Rating(rated[0]) if isinstance(ask, Solo) else Unanswered("not recorded")


class Choice(NamedTuple):
    """The grade of a choice, how many calls it took, and how likely it was said to be right."""

    grade: float
    calls: int
    probability: float | None
    right: bool


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of the pools")
    options.add_argument("--seeds", type=int, default=10, metavar="N", help="orders of the candidates")
    options.add_argument("--into", type=Path, metavar="PAGE", help="put the table into a page")
    given = options.parse_args()
    with gzip.open(given.data / FILE, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    played = {name: [[] for _ in rows] for name in ARMS}
    weights = []
    for seed in range(given.seeds):
        segments = [segment(row, number, seed) for number, row in enumerate(rows)]
        for half in (0, 1):
            train, test = segments[1 - half :: 2], segments[half::2]
            for name, make in ARMS.items():
                strategy = make(train)
                weights += [strategy.feature_weight] if name == FITTED else []
                for one in test:
                    played[name][one.number].append(choose(one, strategy, seed))
    page = "\n".join(table(played))
    fitted = f"{min(weights):.2f} to {max(weights):.2f}"
    page += f"\n\nThe fitted weight of CometKiwi is {fitted} over {len(weights)} fits; the default is 0.5.\n"
    print(page)
    if given.into:
        insert(given.into, "rewards", page)


def segment(row: Mapping[str, Any], number: int, seed: int) -> Segment:
    """A segment with its candidates in another order for each seed, since they are listed by system."""
    order = Random(f"{seed}/{row['id']}").sample(range(len(row["candidates"])), len(row["candidates"]))
    picked = [row["candidates"][k] for k in order]
    entrants = []
    for place, (k, one) in enumerate(zip(order, picked, strict=True)):
        size = round(one["size"] / CHARACTERS_PER_TOKEN)
        features = {"metric": row["ratings"][METRIC][k]}
        entrants.append(Entrant(place, f"#{place}", (0, size, size), features))
    grades = tuple(one["grade"] for one in picked)
    return Segment(number, tuple(entrants), grades, tuple(row["ratings"][JUDGE][k] for k in order))


def choose(one: Segment, strategy: Strategy, seed: int) -> Choice:
    contest = Contest(strategy, one.entrants, seed=f"{seed}/{one.number}").play(one.answer)
    chosen = contest.selection
    assert chosen is not None  # noqa: S101
    calls = sum(len(turn.round.asks) for turn in contest.transcript)
    grade = one.grades[chosen.winner]
    return Choice(grade, calls, chosen.facts.get("probability"), grade == max(one.grades))


def fitted(strategy: Posterior, train: Sequence[Segment]) -> Posterior:
    """The strategy with what `--calibrate` learns from segments with labels."""
    probed = []
    for one in train:
        best = max(one.grades)
        probe = Probe(strategy, tuple(grade == best for grade in one.grades))
        contest = Contest(probe, one.entrants, seed=one.number).play(one.answer)
        asked = [
            (ask, answer)
            for turn in contest.transcript
            for ask, answer in zip(turn.round.asks, turn.answers, strict=True)
        ]
        probed.append(ProbedCase(probe, one.entrants, asked, one.number))
    return conclude(probed, strategy).inform(strategy, "posterior", {})


PLAIN = Posterior()
PRIOR = replace(PLAIN, feature="metric")
RANDOM, METRIC_ALONE, JUDGE_ALONE = "random", "CometKiwi (`reward`)", "GEMBA, all rated (`pointwise`)"
FITTED = "both, fitted (`--calibrate`)"
ARMS: dict[str, Callable[[Sequence[Segment]], Any]] = {
    RANDOM: lambda _: Vanilla(),
    METRIC_ALONE: lambda _: Reward(feature="metric"),
    JUDGE_ALONE: lambda _: Pointwise(),
    "GEMBA, pairs (`posterior`)": lambda _: PLAIN,
    "GEMBA, pairs, fitted": lambda train: fitted(PLAIN, train),
    "both (`posterior`, `feature=`)": lambda _: PRIOR,
    FITTED: lambda train: fitted(PRIOR, train),
}


def table(played: Mapping[str, Sequence[Sequence[Choice]]]) -> list[str]:
    """Means over segments, each the mean over its orders; intervals are paired, over segments."""
    means = {name: [fmean(one.grade for one in some) for some in cells] for name, cells in played.items()}
    heads = [
        "chosen by", "mean grade", "less CometKiwi", "less GEMBA, all rated", "calls", "best of its segment",
        "probability",
    ]  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for name, cells in played.items():
        flat = [one for some in cells for one in some]
        sure = [one.probability for one in flat if one.probability is not None]
        row = [name, shown(means[name])]
        row += [
            "–"
            if name == other
            else shown([x - y for x, y in zip(means[name], means[other], strict=True)], "+")
            for other in (METRIC_ALONE, JUDGE_ALONE)
        ]
        row += [f"{fmean(one.calls for one in flat):.1f}", f"{fmean(one.right for one in flat):.3f}"]
        row += [f"{fmean(sure):.3f}" if sure else "–"]
        lines.append("| " + " | ".join(row) + " |")
    return lines


def shown(values: Sequence[float], sign: str = "") -> str:
    low, high = mean_interval(values)
    return f"{fmean(values):{sign}.2f} [{low:{sign}.2f}, {high:{sign}.2f}]"


if __name__ == "__main__":
    main()
