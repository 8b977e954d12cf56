"""V1-Infer (Singh et al. 2026): a Swiss tournament that spends a fixed budget on the most uncertain pairs.

Every game is at full evidence. First a shuffled round of adjacent pairs, then rounds until everyone has met
`min_degree` different opponents, then Swiss rounds among neighbours in the ranking until the budget is spent.
Win rates are frozen inside a round, so a round's games can be asked at once.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from caps.core.play import Play
from caps.core.settings import check_settings, setting
from caps.core.standings import Ratings
from caps.core.types import Entrant, Level, Selection
from caps.strategies.pairings import DIALECTS, LEAST_GAMES, ORDERS, Pair, PairRounds, games_within

Met = dict[int, Counter[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class V1Infer:
    """Uncertainty-guided Swiss tournament with the settings of its own authors."""

    budget: float = setting(3.0, "k: comparisons per candidate", least=0)
    min_degree: int = setting(2, "d_min: distinct opponents everyone meets first", least=0)
    window: int = setting(8, "h: how far down the ranking to look for an opponent", least=1)
    weight_floor: float = setting(0.1, "tau: least weight of a game", least=0, most=1)
    dialect: str = setting("ratings", "what the judge is asked for", choices=DIALECTS)
    order: str = setting("balanced", "which candidate is shown first, in slot A", choices=ORDERS)
    least_games: str = setting("n", "a budget below N: play N games, or the budget", choices=LEAST_GAMES)

    def __post_init__(self) -> None:
        check_settings(self)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Cover, then Swiss, until the budget is spent."""
        ids = [entrant.id for entrant in entrants]
        tally = Ratings(ids, floor=self.weight_floor)
        rounds = PairRounds(self.order, rng, dialect=self.dialect)
        met: Met = {one: Counter() for one in ids}
        left = games_within(self.budget, len(ids), self.least_games) // rounds.asks_per_pair
        shuffled = rng.sample(ids, len(ids))
        stage, pairs = "cover", list(zip(shuffled[::2], shuffled[1::2], strict=False))
        while pairs := pairs[:left]:
            games = yield from rounds.play(stage, Level.FULL, pairs, ranking=tally.ranked(ids))
            left -= len(games)
            for game in games:
                tally.record(game)
                met[game.a][game.b] += 1
                met[game.b][game.a] += 1
            stage, pairs = "cover", self._cover(ids, tally, met)
            if not pairs:
                stage, pairs = "swiss", self._swiss(tally.ranked(ids), tally, met)
        order = tally.ranked(ids)
        return Selection(
            order[0], tuple(order), scores={one: tally.rate(one) for one in ids}, score_kind="win rate"
        )

    def _cover(self, ids: Sequence[int], tally: Ratings, met: Met) -> list[Pair]:
        """Give those with too few distinct opponents an unmet one of similar win rate."""
        pairs: list[Pair] = []
        used: set[int] = set()
        for one in sorted(ids, key=lambda c: len(met[c])):
            if len(met[one]) >= self.min_degree:
                break
            unmet = [c for c in ids if c not in used and c != one and c not in met[one]]
            if one in used or not unmet:
                continue
            mu = tally.rate(one)
            other = min(unmet, key=lambda c: (abs(mu - tally.rate(c)), len(met[c])))
            pairs.append((one, other))
            used |= {one, other}
        return pairs

    def _swiss(self, ranked: Sequence[int], tally: Ratings, met: Met) -> list[Pair]:
        """Walk down the ranking; each free candidate meets the least known neighbour in its window."""
        pairs: list[Pair] = []
        used: set[int] = set()
        for place, one in enumerate(ranked):
            near = [c for c in ranked[place + 1 : place + 1 + self.window] if c not in used]
            if one in used or not near:
                continue
            mu = tally.rate(one)
            other = min(near, key=lambda c: (met[one][c] > 0, abs(mu - tally.rate(c)), met[one][c]))
            pairs.append((one, other))
            used |= {one, other}
        return pairs


V1_INFER_CAPS = V1Infer(window=3, weight_floor=0.05)
