"""Knockout with answer groups (Pairwise RM, Liu et al. 2025): reshuffled each round, losers are eliminated.

Two candidates with equal signatures need no judge: one of them goes on. Opponents are drawn from different
groups where there are any, so a call is spent only where answers differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from caps.core.play import Play
from caps.core.settings import check_settings, setting
from caps.core.types import Entrant, Level, Selection
from caps.strategies.dedup import clusters
from caps.strategies.pairings import ORDERS, Pair, PairRounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Knockout:
    """Single elimination; ties and unanswered games are decided by chance."""

    level: str = setting("E2", "evidence shown", choices=("E1", "E2"))
    groups: str = setting("answers", "spare games between equal answers?", choices=("answers", "off"))
    order: str = setting("balanced", "which candidate is shown first, in slot A", choices=ORDERS)

    def __post_init__(self) -> None:
        check_settings(self)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Rounds of disjoint pairs until one is left or all who are left agree."""
        group_of = {entrant.id: entrant.id for entrant in entrants}
        if self.groups == "answers":
            group_of = {member.id: members[0].id for members in clusters(entrants) for member in members}
        rounds = PairRounds(self.order, rng)
        level = Level.PARTIAL if self.level == "E1" else Level.FULL
        pool, fallen = rng.sample(list(group_of), len(group_of)), list[int]()
        wins = dict.fromkeys(pool, 0.0)
        while len({group_of[one] for one in pool}) > 1:
            pairs, byes = _draw(pool, group_of)
            judged = [(a, b) for a, b in pairs if group_of[a] != group_of[b]]
            games = yield from rounds.play(
                "knockout",
                level,
                judged,
                ranking=_by_group([*pool, *fallen], group_of),
                byes=byes,
                kind="elimination",
            )
            judged_winner = {frozenset((game.a, game.b)): game.winner for game in games}
            survivors, losers = byes, []
            for a, b in pairs:
                winner = judged_winner.get(frozenset((a, b)))
                winner = rng.choice((a, b)) if winner is None else winner
                survivors.append(winner)
                losers.append(b if winner == a else a)
            for survivor in survivors:
                wins[survivor] += 1
            pool, fallen = rng.sample(survivors, len(survivors)), losers + fallen
        order = _by_group([*pool, *fallen], group_of)
        best_of_group = {group_of[player]: wins[player] for player in reversed(order)}
        scores = {player: best_of_group[group_of[player]] for player in order}
        return Selection(order[0], tuple(order), scores=scores, score_kind="wins")


def _by_group(ranked: Sequence[int], group_of: dict[int, int]) -> list[int]:
    """A ranking in which the members of a group follow the best of them."""
    place_of_group: dict[int, int] = {}
    for player in ranked:
        place_of_group.setdefault(group_of[player], len(place_of_group))
    return sorted(ranked, key=lambda player: place_of_group[group_of[player]])


def _draw(pool: Sequence[int], group_of: dict[int, int]) -> tuple[list[Pair], list[int]]:
    """Pair a shuffled pool across groups: sorted by group size, the first half meets the second."""
    size: dict[int, int] = {}
    for one in pool:
        size[group_of[one]] = size.get(group_of[one], 0) + 1
    by_group = sorted(pool, key=lambda c: (-size[group_of[c]], group_of[c]))
    half = len(by_group) // 2
    pairs = list(zip(by_group[:half], by_group[len(by_group) - half :], strict=True))
    return pairs, by_group[half : len(by_group) - half]
