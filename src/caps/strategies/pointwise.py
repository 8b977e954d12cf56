"""Pointwise self-verification (Venkatraman et al. 2025): rate each candidate alone, take the highest."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from caps.core.play import Capabilities, Play, rate
from caps.core.settings import check_settings, setting
from caps.core.types import Entrant, Level, Selection, Solo


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointwise:
    """A rating from 1 to 10 for each; ties at random, the unrated last."""

    capabilities: ClassVar = Capabilities(asks=("rating",))
    repeats: int = setting(1, "ratings of each candidate, averaged", least=1)

    def __post_init__(self) -> None:
        check_settings(self)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """One round for each repeat."""
        ids = rng.sample([entrant.id for entrant in entrants], len(entrants))
        given: dict[int, list[float]] = {one: [] for one in ids}
        for draw in range(self.repeats):
            ranking = sorted(ids, key=lambda c: _mean(given[c]), reverse=True)
            asks = [Solo(entrant.id, Level.FULL, draw) for entrant in entrants]
            ratings = yield from rate("rate", asks, ranking=ranking)
            for one, rating in ratings.items():
                given[one] += [] if rating is None else [rating]
        order = sorted(ids, key=lambda c: _mean(given[c]), reverse=True)
        return Selection(
            order[0], tuple(order), scores={c: _mean(given[c]) for c in order}, score_kind="rating"
        )


def _mean(ratings: Sequence[float]) -> float:
    return sum(ratings) / len(ratings) if ratings else 0.0
