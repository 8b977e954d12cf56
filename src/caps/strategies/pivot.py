"""Pivot tournament (llm-verifier): in a ring each meets two neighbours, then all meet the leaders."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from caps.core.play import Play
from caps.core.settings import check_settings, setting
from caps.core.standings import Ratings
from caps.core.types import Entrant, Level, Selection
from caps.strategies.pairings import ORDERS, Pair, PairRounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Pivot:
    """N games in a ring, then everyone against the k best so far."""

    pivots: int = setting(2, "k: leaders everyone then meets", least=1)
    weight_floor: float = setting(0.05, "least weight of a game", least=0, most=1)
    order: str = setting("balanced", "which candidate is shown first, in slot A", choices=ORDERS)

    def __post_init__(self) -> None:
        check_settings(self)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Two rounds."""
        ring = rng.sample([entrant.id for entrant in entrants], len(entrants))
        tally = Ratings(ring, floor=self.weight_floor)
        rounds = PairRounds(self.order, rng)
        pairs: list[Pair] = list(pairwise(ring))
        if len(ring) > 2:
            pairs.append((ring[-1], ring[0]))
        for stage in ("ring", "pivot"):
            games = yield from rounds.play(stage, Level.FULL, pairs, ranking=tally.ranked(ring))
            for game in games:
                tally.record(game)
            ranked = tally.ranked(ring)
            leaders = ranked[: self.pivots]
            pairs = [(a, b) for i, a in enumerate(leaders) for b in ranked[i + 1 :]]
        order = tally.ranked(ring)
        return Selection(
            order[0], tuple(order), scores={one: tally.rate(one) for one in ring}, score_kind="win rate"
        )
