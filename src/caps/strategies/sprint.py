"""Sprint: halve on partial views, then a knockout at full evidence; doubtful games are played twice.

Beyond the paper: a cascade for candidates that all differ, where votes say nothing. What CAPS spends on a
round-robin goes into second looks with slots swapped: at tied games, and late at those that were LOW.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from caps.core.judge_profile import HIGH_WEIGHT
from caps.core.play import Capabilities, Game, Play, compare
from caps.core.settings import check_settings, setting
from caps.core.standings import Standings
from caps.core.types import Entrant, Level, Pairing, Selection, partial_views_pay
from caps.strategies.dedup import REPRESENTATIVES, dedup
from caps.strategies.pairings import ORDERS, PairRounds, average, prior, slaughter

ABOVE_TIE = 1 / 9  # the weight from which it is more than a tie


@dataclass(frozen=True, slots=True, kw_only=True)
class Sprint:
    """Halvings at E1, then single elimination at E2 with second looks."""

    capabilities: ClassVar = Capabilities(asks_about_differences=True)

    halvings: int = setting(1, "rounds on partial views", least=0)
    down_to: int = setting(4, "pools of at most N candidates are judged at full evidence", least=1)
    second_look: str = setting("E2", "which doubtful games are played again", choices=("none", "E2", "all"))
    late: int = setting(
        4, "LOW games are played again when at most N candidates are left; ties always", least=0
    )
    screening: str = setting("auto", "evidence of the halvings", choices=("E1", "auto"))
    representative: str = setting("longest", "which candidate represents a cluster", choices=REPRESENTATIVES)
    weight_floor: float = setting(0.05, "least weight of a game", least=0, most=1)
    order: str = setting("balanced", "which candidate is shown first, in slot A", choices=ORDERS)

    def __post_init__(self) -> None:
        check_settings(self)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Pair the best seed with the worst, round by round, until one is left."""
        clusters = dedup(entrants, self.representative, rng)
        players = clusters.cluster_size
        standings, rounds = Standings(players, rng, floor=self.weight_floor), PairRounds(self.order, rng)
        known = {one.id: prior(one) for one in entrants}
        pool = sorted(players, key=lambda one: (known[one], standings.rank(one)), reverse=True)
        fallen: list[int] = []
        wins = dict.fromkeys(pool, 0.0)
        halvings = self.halvings if self._shorter(entrants) else 0
        while len(pool) > 1:
            level = Level.PARTIAL if halvings > 0 and len(pool) > self.down_to else Level.FULL
            halvings -= 1
            pairs, winners = slaughter(pool, len(pool) // 2)
            ranking = clusters.expand([*pool, *fallen])
            stage = "halve" if level == Level.PARTIAL else "knockout"
            games = yield from rounds.play(
                stage, level, pairs, ranking=ranking, byes=winners, kind="elimination"
            )
            late = len(pool) <= self.late
            games = yield from self._look_again(
                games, level, ranking, below=HIGH_WEIGHT if late else ABOVE_TIE
            )
            losers = []
            for game in games:
                standings.record(game)
                winner = standings.better(game.a, game.b) if game.winner is None else game.winner
                winners.append(winner)
                losers.append(game.b if winner == game.a else game.a)
            for survivor in winners:
                wins[survivor] += 1
            pool, fallen = standings.ordered(winners), standings.ordered(losers) + fallen
        order = tuple(clusters.expand([*pool, *fallen]))
        return Selection(order[0], order, scores=wins, score_kind="wins")

    def _shorter(self, entrants: Sequence[Entrant]) -> bool:
        """Whether a halving is worth it: partial views save enough, or show what separates most pairs."""
        pairs = len(entrants) * (len(entrants) - 1)
        if 2 * sum(len(one.differences) for one in entrants) > pairs:
            return True
        return self.screening == "E1" or partial_views_pay(entrants)

    def _look_again(
        self, games: list[Game], level: Level, ranking: Sequence[int], *, below: float
    ) -> Play[list[Game]]:
        """Play doubtful games again with the slots swapped, and average the two."""
        if self.order == "both" or self.second_look not in ("all", str(level)):
            return games
        doubtful = [one for one in games if one.verdict is not None and one.verdict.weight < below]
        asks = [Pairing(one.b, one.a, level) for one in doubtful]
        again = yield from compare("second look", asks, ranking=ranking, kind="second_look")
        back = {(game.b, game.a): game for game in again}
        return [average(one, back[one.a, one.b]) if (one.a, one.b) in back else one for one in games]
