"""No selection: the first sample, as the paper's unaided baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from caps.core.play import Capabilities, Play
from caps.core.types import Entrant, Selection


@dataclass(frozen=True, slots=True)
class Vanilla:
    """The first candidate, unjudged."""

    capabilities: ClassVar = Capabilities(asks_judge=False)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:  # noqa: ARG002
        """Ask nothing."""
        yield from ()
        order = tuple(entrant.id for entrant in entrants)
        return Selection(order[0], order, scores=dict.fromkeys(order, 0.0), score_kind="score")
