"""Listwise choice: one call reads a whole window of candidates and names the best.

With a window that holds everyone this is universal self-consistency (Chen et al. 2023); with windows of
eight whose winners meet again, GenSelect (Toshniwal et al. 2025).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from caps.core.play import Capabilities, Play, pick
from caps.core.settings import check_settings, setting
from caps.core.types import Entrant, Group, Level, Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Listwise:
    """Shuffled windows of candidates; the winner of each goes on until one is left."""

    capabilities: ClassVar = Capabilities(asks=("pick",))
    window: int = setting(8, "how many the judge reads at once", least=2)

    def __post_init__(self) -> None:
        check_settings(self)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Rounds of windows; an unanswered window sends on its first."""
        pool = rng.sample([entrant.id for entrant in entrants], len(entrants))
        fallen: list[int] = []
        wins = dict.fromkeys(pool, 0.0)
        while len(pool) > 1:
            windows = [tuple(pool[i : i + self.window]) for i in range(0, len(pool), self.window)]
            contested = [window for window in windows if len(window) > 1]
            asks = [Group(window, Level.FULL) for window in contested]
            picks = yield from pick("pick", asks, ranking=[*pool, *fallen])
            winners = {window[0]: window[0] for window in windows}
            winners |= {w[0]: best for w, best in zip(contested, picks, strict=True) if best is not None}
            survivors = list(winners.values())
            for survivor in survivors:
                wins[survivor] += 1
            fallen = [one for one in pool if one not in set(survivors)] + fallen
            pool = rng.sample(survivors, len(survivors))
        order = (*pool, *fallen)
        return Selection(order[0], order, scores=wins, score_kind="wins")
