"""Rewards of groups of completions: how many judge calls they take, and how well they tell right from wrong.

A simulated judge prefers the right one of a right and a wrong completion with a given probability, and tosses
a coin where both are right or both wrong; it is a Python function, everything else is what a trainer calls.
`agree` is the share of pairs of a right and a wrong completion in which the right one has the higher reward
(an equal reward counts half), and `top` the share of groups whose highest reward is of a right completion.

    python benchmarks/rewards.py
"""

import argparse
import math
from collections.abc import Callable
from hashlib import sha256
from statistics import fmean

from caps.integrations.rewards import GroupRewards

STRATEGIES: dict[str, dict] = {
    "posterior (default)": {},
    "v1-infer, 1 game each": {"strategy": "v1-infer", "settings": {"budget": 1.0, "dialect": "verdicts"}},
    "v1-infer, 2 games each": {"strategy": "v1-infer", "settings": {"budget": 2.0, "dialect": "verdicts"}},
    "v1-infer, 3 games each": {"strategy": "v1-infer", "settings": {"budget": 3.0, "dialect": "verdicts"}},
    "round-robin (all pairs)": {"strategy": "round-robin"},
}


def judge_of(accuracy: float, seed: int) -> Callable[[str, str, str], str]:
    def judge(problem: str, a: str, b: str) -> str:
        chance = int.from_bytes(sha256(f"{seed}/{problem}/{a}/{b}".encode()).digest()[:6], "big") / 2**48
        right = ("right" in a, "right" in b)
        if right[0] == right[1]:
            return "A" if chance < 0.5 else "B"
        return "A" if (chance < accuracy) == right[0] else "B"

    return judge


def batch(groups: int, size: int, share: float, seed: int) -> tuple[list[str], list[str]]:
    prompts, completions = [], []
    for group in range(groups):
        for number in range(size):
            chance = int.from_bytes(sha256(f"{seed}/{group}/{number}".encode()).digest()[:6], "big") / 2**48
            prompts.append(f"Question {seed}.{group}")
            completions.append(f"Attempt {number}: {'right' if chance < share else 'wrong'}")
    return prompts, completions


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--groups", type=int, default=100)
    options.add_argument("--size", type=int, default=8)
    options.add_argument("--share", type=float, default=0.4, help="of completions that are right")
    options.add_argument("--accuracy", type=float, nargs="+", default=[0.7, 0.8, 0.9])
    given = options.parse_args()
    print(f"{given.groups} groups of {given.size}, {100 * given.share:.0f} % right; all pairs: "
          f"{math.comb(given.size, 2)} calls a group")  # fmt: skip
    print("| judge | strategy | calls a group | of all pairs | agree | top |\n|---|---|---|---|---|---|")
    for accuracy in given.accuracy:
        for name, settings in STRATEGIES.items():
            reward = GroupRewards(judge=judge_of(accuracy, 1), journal=None, domain="general", **settings)
            prompts, completions = batch(given.groups, given.size, given.share, 1)
            agree, top = measure(reward(prompts, completions), completions, given.size)
            costs, part = reward.steps[0], reward.steps[0].judge_calls / reward.steps[0].all_pairs
            print(
                f"| {100 * accuracy:.0f} % | {name} | {costs.judge_calls / costs.groups:.1f} | "
                f"{100 * part:.0f} % | {100 * agree:.1f} % | {100 * top:.1f} % |"
            )


def measure(rewards: list[float], completions: list[str], size: int) -> tuple[float, float]:
    pairs, tops = [], []
    for start in range(0, len(rewards), size):
        places = range(start, start + size)
        right = [rewards[one] for one in places if "right" in completions[one]]
        wrong = [rewards[one] for one in places if "right" not in completions[one]]
        pairs += [0.5 if a == b else float(a > b) for a in right for b in wrong]
        if right and wrong:
            best = [one for one in places if rewards[one] == max(rewards[start : start + size])]
            tops.append(fmean("right" in completions[one] for one in best))
    return fmean(pairs), fmean(tops)


if __name__ == "__main__":
    main()
