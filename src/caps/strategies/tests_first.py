"""Hard evidence alone: most public examples passed, then the most common behaviour."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random
from typing import ClassVar

from caps.core.contest import rank_scores
from caps.core.play import Capabilities, Play
from caps.core.settings import check_settings, setting
from caps.core.standings import Standings
from caps.core.types import Entrant, Selection
from caps.strategies.dedup import REPRESENTATIVES, count_votes, dedup

EVIDENCE = ("parses", "tests_passed")
SURVIVED = ("agreement", "varied")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestsFirst:
    """Clusters by what was found out about them, then by size; ties at random. Without findings: majority.

    A program that does the same whatever its input comes after the others however common it is. Of clusters
    of one size, that which agrees with most programs on more of the separating inputs comes first.
    """

    __test__ = False  # pytest: not a test class

    capabilities: ClassVar = Capabilities(asks_judge=False)

    representative: str = setting("first", "who stands for a cluster", choices=REPRESENTATIVES)

    def __post_init__(self) -> None:
        check_settings(self)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Ask nothing."""
        yield from ()
        pool = dedup(entrants, self.representative, rng)
        votes = count_votes(entrants, pool)
        standings = Standings(votes, rng, floor=0)
        known = {one.id: [one.features.get(name, -1.0) for name in EVIDENCE] for one in entrants}
        agreed, varied = ({one.id: one.features.get(name, 1.0) for one in entrants} for name in SURVIVED)

        def merit(player: int) -> tuple[object, ...]:
            return known[player], varied[player], votes[player], agreed[player]

        ranked = sorted(votes, key=lambda player: (merit(player), standings.rank(player)), reverse=True)
        order = tuple(pool.expand(ranked))
        scores = rank_scores([list(equal) for _, equal in groupby(ranked, key=merit)])
        return Selection(order[0], order, scores=scores, score_kind="rank")
