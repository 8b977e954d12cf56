"""Naive: the leading answer meets the next one in both orders until it is sure enough. A first one to read.

It believes what `posterior` believes before the judge is asked, and takes verdicts for independent of each
other. It is the baseline that each part of `posterior` has to beat.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from caps.core.judge_profile import HIGH_WEIGHT
from caps.core.play import Capabilities, Play
from caps.core.settings import setting
from caps.core.types import Entrant, Level, Pairing, Round, Selection, Verdict
from caps.strategies.belief import Evidence, log_sigmoid, logit
from caps.strategies.dedup import clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class Naive(Evidence):
    """Leader against challenger at full views, both orders; inherited fields weigh the evidence."""

    capabilities: ClassVar = Capabilities(weighs_votes=True, uses_judge_profile=True, uses_feature=True)

    target: float = setting(0.95, "sure enough to stop", least=0, most=1)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """At most as many questions as there are candidates, and two; no two answers meet twice."""
        groups = clusters(entrants)
        rng.shuffle(groups)
        odds = self.prior(groups)
        met = set[frozenset[int]]()
        while True:
            chances = self.beliefs(groups, odds).chances()
            order = sorted(range(len(groups)), key=lambda number: -chances[number])
            ranking = tuple(one.id for number in order for one in groups[number])
            facts = {"probability": chances[order[0]]}
            rivals = [number for number in order[1:] if frozenset((order[0], number)) not in met]
            if not rivals or chances[order[0]] >= self.target or 2 * len(met) >= max(2, len(entrants)):
                scores = {one.id: chances[number] for number in order for one in groups[number]}
                return Selection(ranking[0], ranking, scores=scores, facts=facts, score_kind="probability")
            pair = order[0], rivals[0]
            a, b = (groups[number][0].id for number in pair)
            asks = Pairing(a, b, Level.FULL), Pairing(b, a, Level.FULL)
            answers = yield Round("ask", asks, ranking, facts=facts)
            for (a_place, b_place), verdict in zip((pair, pair[::-1]), answers, strict=True):
                if isinstance(verdict, Verdict) and verdict.outcome != 0.5:
                    won, lost = (a_place, b_place) if verdict.outcome == 1 else (b_place, a_place)
                    worth = logit(self.e2_high if verdict.weight >= HIGH_WEIGHT else self.e2_low)
                    odds[won] += math.log(2) + log_sigmoid(worth)
                    odds[lost] += math.log(2) + log_sigmoid(-worth)
            met.add(frozenset(pair))
