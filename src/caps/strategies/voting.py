"""Majority vote, or self-consistency (Wang et al. 2022): the answer most candidates agree on."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from caps.core.play import Capabilities, Play
from caps.core.settings import check_settings, setting
from caps.core.standings import Standings
from caps.core.types import Entrant, Selection
from caps.strategies.dedup import REPRESENTATIVES, dedup


@dataclass(frozen=True, slots=True, kw_only=True)
class Majority:
    """The largest cluster of equal signatures; ties at random."""

    capabilities: ClassVar = Capabilities(asks_judge=False)

    representative: str = setting("first", "which candidate represents a cluster", choices=REPRESENTATIVES)

    def __post_init__(self) -> None:
        check_settings(self)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Ask nothing."""
        yield from ()
        votes, merged = dedup(entrants, self.representative, rng)
        ranked = Standings(votes, rng, floor=0).ordered(votes)
        shares = {one: votes[one] / len(entrants) for one in ranked}
        return Selection(ranked[0], (*ranked, *merged), scores=shares, score_kind="share of votes")
