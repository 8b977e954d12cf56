"""Majority vote, or self-consistency (Wang et al. 2022): the answer most candidates agree on."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from caps.core.play import Capabilities, Play
from caps.core.settings import check_settings, setting
from caps.core.standings import Standings
from caps.core.types import Entrant, Selection
from caps.strategies.dedup import REPRESENTATIVES, count_votes, dedup


@dataclass(frozen=True, slots=True, kw_only=True)
class Majority:
    """The largest cluster of equal answers; ties at random. Equal texts count only if no answer was found."""

    capabilities: ClassVar = Capabilities(asks_judge=False)

    representative: str = setting("first", "which candidate represents a cluster", choices=REPRESENTATIVES)

    def __post_init__(self) -> None:
        check_settings(self)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Ask nothing."""
        yield from ()
        pool = dedup(entrants, self.representative, rng)
        votes = count_votes(entrants, pool)
        ranked = Standings(votes, rng, floor=0).ordered(votes)
        shares = {player: votes[player] / len(entrants) for player in ranked}
        order = tuple(pool.expand(ranked))
        return Selection(order[0], order, scores=shares, score_kind="share of votes")
