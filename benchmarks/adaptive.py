"""Accuracy against the total cost of generating and judging: fixed N beside adaptive; verdicts SIMULATED.

    python benchmarks/adaptive.py --data DIR                 the mixed workload and GSM8K + MATH
    python benchmarks/adaptive.py --data DIR --generators    two and three generators of different quality

The candidates are real, labelled and drawn in random order. A sample costs its output at four times the
price of input; every started sample is paid in full. The judge replies with `--reply` tokens and costs as
much per token as the generator, or a fifth. Intervals are paired bootstraps over problems. "Difficulty known"
is a bound: the best fixed N for each share of right candidates that a problem of a pool has, which no rule
knows before it samples.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from beyond_played import ours, simulated
from beyond_pools import read

from caps.building import make_strategy
from caps.core.contest import Contest
from caps.core.play import Strategy
from caps.core.policy import Draw, Event, JudgePrice, PolicyRun, Pool, Source
from caps.core.types import Answer, Ask, Entrant, Level, Pairing
from caps.judging.simulated import SimulatedJudge
from caps.strategies.adaptive import Adaptive
from caps.studies.adaptive import simulate_policy
from caps.studies.simulation import LabelledPool

POOLS = {
    "gsm8k": "gsm8k_zeroeval_44models",
    "math": "math_l5_zeroeval_43models",
    "humaneval": "humaneval_mapcoder",
    "mbpp": "mbpp_mapcoder",
}
WORKLOADS = {"mixed": ("gsm8k", "math", "humaneval", "mbpp"), "gsm8k + math": ("gsm8k", "math")}
OUTPUT, QUALITY = 4.0, 0.6
ACCURACY, SHARED = 0.8, 0.5  # of the simulated judge


class Row(NamedTuple):
    """One problem answered once: whether rightly, and at which cost for what."""

    right: bool
    generated: float
    judged: float
    samples: int

    @property
    def cost(self) -> float:
        return self.generated + self.judged


class Shuffled:
    """The candidates of a problem in a random order, with the judge that knows their labels."""

    def __init__(self, pool: LabelledPool, turn: int) -> None:
        self.pool = pool
        self.order = list(range(len(pool.entrants)))
        Random(f"{pool.number}/{turn}").shuffle(self.order)
        seed = (7 * pool.number + turn) % 40
        self._judge = SimulatedJudge(
            simulated(ACCURACY, SHARED), pool.entrants, pool.correct, seed=seed, case=pool.number
        )

    def entrants(self, count: int) -> tuple[Entrant, ...]:
        return tuple(replace(self.pool.entrants[place], id=k) for k, place in enumerate(self.order[:count]))

    def answer(self, ask: Ask) -> Answer:
        if not isinstance(ask, Pairing):
            raise TypeError(f"{ask!r} is no pair")
        return self._judge.answer(replace(ask, a=self.order[ask.a], b=self.order[ask.b]))

    def right(self, chosen: int) -> bool:
        return self.pool.correct[self.order[chosen]]

    def sample_cost(self, places: Sequence[int]) -> float:
        written = sum(self.pool.entrants[self.order[one]].sizes[Level.FULL] for one in places)
        return OUTPUT * written + len(places) * (self.pool.overhead - 200)

    def ask_cost(self, asks: Sequence[Ask], price: float, reply: int) -> float:
        shown = sum(
            self.pool.entrants[self.order[one]].sizes[ask.level] for ask in asks for one in ask.entrants
        )
        return price * (shown + len(asks) * (self.pool.overhead + OUTPUT * reply))


def fixed(drawn: Shuffled, strategy: Strategy, n: int, price: float, reply: int) -> Row:
    """N samples, then the strategy."""
    contest = Contest(strategy, drawn.entrants(n), seed=drawn.pool.number).play(drawn.answer)
    asks = [ask for turn in contest.transcript for ask in turn.round.asks]
    right = drawn.right(contest.selection.winner)
    return Row(right, drawn.sample_cost(range(n)), drawn.ask_cost(asks, price, reply), n)


def adaptive(drawn: Shuffled, policy: Adaptive, price: float | None, reply: int) -> Row:
    """The policy, told of its samples one by one; those that it started and did not wait for are paid."""
    judge = None
    if price is not None:
        judge = JudgePrice(price, price * OUTPUT * reply, drawn.pool.overhead)
    done = simulate_policy(
        policy, drawn.entrants(len(drawn.order)), drawn.answer, judge=judge, seed=drawn.pool.number,
        sample_price=lambda count: drawn.sample_cost(range(count)) / count if count else 1000.0,
    )  # fmt: skip
    judged = 0.0 if price is None else drawn.ask_cost(done.asks, price, reply)
    generated = drawn.sample_cost(range(done.started))
    return Row(drawn.right(done.selection.winner), generated, judged, done.started)


VALUES = (0.006, 0.01, 0.03, 0.06)
FIXED = (1, 2, 4, 8, 16)
PRICES = (1.0, 0.2)  # of the judge, in prices of the generator


def curves(pools: dict[str, Sequence[LabelledPool]], given: argparse.Namespace) -> list[dict[str, object]]:
    """Every method on every pool: one row for each, with all its problems."""
    posterior, majority = ours(ACCURACY, SHARED), make_strategy("majority")
    found = []

    def add(name: str, price: float, play: Callable[[Shuffled, str], Row]) -> None:
        for pool, problems in pools.items():
            rows = [
                play(Shuffled(one, turn), pool)
                for one in problems[: given.limit]
                for turn in range(given.turns)
            ]
            shares = [sum(one.correct) / len(one.correct) for one in problems[: given.limit]]
            found.append({"method": name, "judge price": price, "pool": pool, "rows": rows, "shares": shares})
            print(".", end="", flush=True, file=sys.stderr)

    for price in PRICES:
        for n in FIXED:
            for name, strategy in (("majority", majority), ("posterior", posterior)):
                add(
                    f"N = {n}, {name}", price,
                    lambda one, _, n=n, strategy=strategy, price=price:
                        fixed(one, strategy, min(n, len(one.order)), price, given.reply),
                )  # fmt: skip
        for value in VALUES:
            policy = Adaptive(posterior=posterior, value=value, most=given.most)
            for name, judged in (("votes only", None), ("with judge", price)):
                if judged is None and price != 1.0:
                    continue
                add(
                    f"auto {value:g}, {name}", price,
                    lambda one, _, policy=policy, judged=judged:
                        adaptive(one, policy, judged, given.reply),
                )  # fmt: skip
    return found


def report(found: Sequence[dict[str, Any]]) -> None:
    """Tables: accuracy and cost of each method on each workload, against fixed N with `posterior`."""
    for workload, names in WORKLOADS.items():
        base_n = 8 if workload == "mixed" else 16
        for price in PRICES:
            stacked: dict[str, list[Row]] = {}
            shares: dict[str, list[tuple[str, int]]] = {}
            for one in found:
                free = "majority" in one["method"] or "votes" in one["method"]
                if one["pool"] in names and one["judge price"] == (1.0 if free else price):
                    stacked.setdefault(one["method"], []).extend(Row(*row) for row in one["rows"])
                    of = shares.setdefault(one["method"], [])
                    of += [(one["pool"], sum(share > edge for edge in EDGES)) for share in one["shares"]]
            base, kinds = stacked[f"N = {base_n}, posterior"], shares[f"N = {base_n}, posterior"]
            stacked |= difficulty_known(stacked, kinds)
            cost = fmean(row.cost for row in base)
            print(
                f"\n{workload}: {len(kinds)} problems, {len(base)} answers, judge at {price:g} of the "
                f"generator's price; cost in per cent of N = {base_n} with posterior"
            )
            for name, rows in stacked.items():
                gap = np.array([100.0 * (a.right - b.right) for a, b in zip(rows, base, strict=True)])
                gap = gap.reshape(len(kinds), -1).mean(axis=1)
                draws = np.random.default_rng(1).choice(gap, (2000, len(gap))).mean(axis=1)
                low, high = np.quantile(draws, [0.025, 0.975])
                print(
                    f"  {name:24s} right {100 * fmean(row.right for row in rows):5.1f} "
                    f"({gap.mean():+.1f} [{low:+.1f}, {high:+.1f}], every second problem "
                    f"{gap[1::2].mean():+.1f})  cost {100 * fmean(row.cost for row in rows) / cost:5.1f} %  "
                    f"samples {fmean(row.samples for row in rows):4.1f}  judging "
                    f"{100 * sum(row.judged for row in rows) / sum(row.cost for row in rows):3.0f} % of it"
                )


EDGES = (0.05, 0.15, 0.25, 0.4, 0.6, 0.8, 0.93, 0.99)  # between kinds of problems, by right candidates


def difficulty_known(stacked: dict[str, list[Row]], kinds: Sequence[tuple[str, int]]) -> dict[str, list[Row]]:
    """For several prices of a right answer, the fixed N with `posterior` that is best for each kind."""
    columns = [stacked[f"N = {n}, posterior"] for n in FIXED]
    turns, found = len(columns[0]) // len(kinds), dict[str, list[Row]]()
    for price in (4e-6, 8e-6, 1.2e-5, 1.6e-5):
        best = {}
        for kind in set(kinds):
            places = [k * turns + t for k, one in enumerate(kinds) if one == kind for t in range(turns)]
            best[kind] = max(
                range(len(FIXED)),
                key=lambda n, places=places, price=price: sum(
                    columns[n][place].right - price * columns[n][place].cost for place in places
                ),
            )
        found[f"difficulty known {price:g}"] = [
            columns[best[kind]][k * turns + t] for k, kind in enumerate(kinds) for t in range(turns)
        ]
    return found


def main() -> None:
    """Measure, or print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with pools/*.jsonl.gz")
    parser.add_argument("--findings", default="found.sqlite", help="journal of what the programs did")
    parser.add_argument("--limit", type=int, default=None, help="problems of each pool")
    parser.add_argument("--turns", type=int, default=1, help="random orders of each problem")
    parser.add_argument("--reply", type=int, default=400, help="tokens of a judge's reply")
    parser.add_argument("--most", type=int, default=16, help="samples at most")
    parser.add_argument("--keep", type=Path, help="JSON file of rows; read again if it exists")
    parser.add_argument("--generators", action="store_true", help="generators of different quality instead")
    given = parser.parse_args()
    if given.generators:
        return generators(given)
    if given.keep and given.keep.exists():
        return report(json.loads(given.keep.read_text()))
    pools = {
        name: read(str(given.data / "pools" / f"{file}.jsonl.gz"), 16, given.findings).merged
        for name, file in POOLS.items()
    }
    found = curves(pools, given)
    if given.keep:
        given.keep.write_text(json.dumps(found))
    report(found)
    return None


def generators(given: argparse.Namespace) -> None:
    """Simulated generators on made-up problems, each right with its own rate; votes only."""
    teams = {
        "two": ((0.75, 3.0), (0.45, 1.0)),
        "three": ((0.8, 5.0), (0.55, 1.0), (0.3, 0.8)),
    }
    problems = given.limit or 400
    for team, members in teams.items():
        print(f"\n{team} generators: quality and price {', '.join(f'{q:g} at {p:g}' for q, p in members)}")
        for k in range(len(members)):
            print(f"  only {k + 1}      {team_line(members[k : k + 1], problems)}")
        print(f"  learned     {team_line(members, problems)}")
        print(f"  stated      {team_line(members, problems, stated=True)}")
        print(f"  even split  {team_line(members, problems, even=True)}")


@dataclass
class Team:
    """Generators that answer one made-up problem: who has been asked, and what they said."""

    members: Sequence[tuple[float, float]]
    rng: Random
    entrants: list[Entrant] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        ease = self.rng.gauss(0, 1.2)
        self.rates = [1 / (1 + math.exp(-1.3 * math.log(q / (1 - q)) - ease)) for q, _ in self.members]

    def started(self, place: int) -> int:
        return self.waiting.count(place) + self.written.count(place)

    def pool(self, quality: Sequence[float]) -> Pool:
        sources = tuple(
            Source(1000 * price, quality[place], self.started(place), self.waiting.count(place))
            for place, (_, price) in enumerate(self.members)
        )
        return Pool(sources, tuple(self.entrants), tuple(self.written), None)

    def answer(self, counts: Sequence[int], *, even: bool) -> None:
        """Start the samples, in turn if the split is even, and let the first of all end."""
        if even:
            begun = len(self.waiting) + len(self.written)
            self.waiting += [(begun + k) % len(self.members) for k in range(sum(counts))]
        else:
            self.waiting += [place for place, count in enumerate(counts) for _ in range(count)]
        source = self.waiting.pop(0)
        right = self.rng.random() < self.rates[source]
        name = "right" if right else f"wrong {int(self.rng.expovariate(0.35))}"
        self.entrants.append(Entrant(len(self.entrants), name, (0, 100, 300)))
        self.written.append(source)


def team_line(
    members: Sequence[tuple[float, float]], problems: int, *, even: bool = False, stated: bool = False
) -> str:
    """Play a team on made-up problems; its qualities are stated, or learned from agreement, from 0.6 on."""
    seen = [1e6 if stated else 4.0 for _ in members]
    right = [
        count * (quality if stated else QUALITY) for count, (quality, _) in zip(seen, members, strict=True)
    ]
    solved, cost, shares = 0, 0.0, [0] * len(members)
    for number in range(problems):
        team = Team(members, Random(f"team {number}"))
        quality = [QUALITY if even else a / b for a, b in zip(right, seen, strict=True)]
        run = PolicyRun(Adaptive(most=16), Event(team.pool(quality)), seed=number)
        while isinstance(action := run.pending, Draw):
            team.answer(action.counts, even=even)
            run.tell(Event(team.pool(quality)))
        chosen = run.selection
        solved += chosen is not None and team.entrants[chosen.winner].signature == "right"
        for place, (_, price) in enumerate(members):
            shares[place] += team.started(place)
            cost += team.started(place) * price
        for one, source in enumerate(team.written):
            right[source] += chosen.scores[one] if chosen else 0.0
            seen[source] += 1
    named = ", ".join(f"{count / sum(shares):.0%}" for count in shares)
    return f"right {100 * solved / problems:5.1f}  cost {cost / problems:5.2f}  samples {named}"


if __name__ == "__main__":
    main()
