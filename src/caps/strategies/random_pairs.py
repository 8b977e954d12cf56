"""Random pairs at full evidence, as many as V1-Infer asks and weighted like it: what scheduling is worth."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from caps.core.play import Play
from caps.core.settings import check_settings, setting
from caps.core.standings import Ratings
from caps.core.types import Entrant, Level, Selection
from caps.strategies.pairings import DIALECTS, LEAST_GAMES, ORDERS, PairRounds, games_within, round_robin


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomPairs:
    """Uniformly random pairs, none twice before all were met once."""

    budget: float = setting(3.0, "k: comparisons per candidate", least=0)
    weight_floor: float = setting(0.1, "tau: least weight of a game", least=0, most=1)
    dialect: str = setting("ratings", "what the judge is asked for", choices=DIALECTS)
    order: str = setting("balanced", "which candidate is shown first, in slot A", choices=ORDERS)
    least_games: str = setting("n", "a budget below N: play N games, or the budget", choices=LEAST_GAMES)

    def __post_init__(self) -> None:
        check_settings(self)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """One round of all pairs drawn."""
        ids = [entrant.id for entrant in entrants]
        tally = Ratings(ids, floor=self.weight_floor)
        rounds = PairRounds(self.order, rng, dialect=self.dialect)
        every = round_robin(ids)
        games = games_within(self.budget, len(ids), self.least_games)
        left = games // rounds.asks_per_pair if every else 0
        while left > 0:
            pairs = rng.sample(every, min(left, len(every)))
            left -= len(pairs)
            played = yield from rounds.play("random", Level.FULL, pairs, ranking=tally.ranked(ids))
            for game in played:
                tally.record(game)
        order = tally.ranked(ids)
        return Selection(
            order[0], tuple(order), scores={one: tally.rate(one) for one in ids}, score_kind="win rate"
        )


RANDOM_PAIRS_CAPS = RandomPairs(weight_floor=0.05)
