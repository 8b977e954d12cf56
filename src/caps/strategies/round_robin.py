"""Everyone meets everyone once; ranked by win rate or by Bradley-Terry strength (Hunter 2004)."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from caps.core.play import Capabilities, Game, Play
from caps.core.settings import check_settings, setting
from caps.core.standings import Tally, win_rates
from caps.core.types import Entrant, Level, ScoreKind, Selection
from caps.strategies.dedup import dedup, keep_all
from caps.strategies.pairings import ORDERS, PairRounds, round_robin

ITERATIONS = 100
DRAWS_WITH_AN_AVERAGE_PLAYER = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobin:
    """All pairs at one evidence level, in one round."""

    capabilities: ClassVar = Capabilities(counts_votes=False)

    rank_by: str = setting("win-rate", "how games become an order", choices=("win-rate", "bradley-terry"))
    weight_floor: float = setting(0.05, "least weight of a game", least=0, most=1)
    level: str = setting("E2", "evidence shown", choices=("E1", "E2"))
    dedup: str = setting("off", "one per cluster, or off", choices=("one", "off"))
    order: str = setting("balanced", "which candidate is shown first, in slot A", choices=ORDERS)

    def __post_init__(self) -> None:
        check_settings(self)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """One round of all pairs."""
        clusters = dedup(entrants, "longest", rng) if self.dedup == "one" else keep_all(entrants)
        players = clusters.cluster_size
        pool = rng.sample(list(players), len(players))
        pool.sort(key=players.__getitem__, reverse=True)
        level = Level.PARTIAL if self.level == "E1" else Level.FULL
        rounds = PairRounds(self.order, rng)
        games = yield from rounds.play(
            "all", level, round_robin(pool), ranking=clusters.expand(pool), kind="round_robin"
        )
        if self.rank_by == "win-rate":
            scores = win_rates(pool, games, floor=self.weight_floor)
            kind: ScoreKind = "win rate"
        else:
            scores = bradley_terry(pool, games, floor=self.weight_floor)
            kind = "score"
        ranked = sorted(pool, key=lambda c: round(scores[c], 9), reverse=True)
        return Selection(ranked[0], tuple(clusters.expand(ranked)), scores=scores, score_kind=kind)


def bradley_terry(players: Sequence[int], games: Sequence[Game], *, floor: float) -> dict[int, float]:
    """Strengths by Hunter's MM updates; a faint draw against an average player keeps them finite."""
    tally = Tally(players, floor=floor)
    met: dict[int, list[tuple[int, float]]] = {player: [] for player in players}
    for game in games:
        tally.record(game)
        if game.verdict is not None:
            met[game.a].append((game.b, tally.weigh(game.verdict)))
            met[game.b].append((game.a, tally.weigh(game.verdict)))
    faint = DRAWS_WITH_AN_AVERAGE_PLAYER
    strength = dict.fromkeys(players, 1.0)
    for _ in range(ITERATIONS):
        strength = {
            one: (tally.score[one] + faint / 2)
            / (sum(w / (strength[one] + strength[c]) for c, w in met[one]) + faint / (strength[one] + 1))
            for one in players
        }
    return strength
