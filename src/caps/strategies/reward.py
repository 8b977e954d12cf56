"""Best-of-N by a number each candidate carries, such as a reward model's score."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from caps.core.errors import InputError
from caps.core.play import Capabilities, Play
from caps.core.settings import check_settings, setting
from caps.core.types import Entrant, Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The largest value of one feature; who lacks it comes last, ties as sampled."""

    capabilities: ClassVar = Capabilities(asks_judge=False, uses_feature=True)

    feature: str = setting("score", "score, logprob, tests_passed, or any numeric field of candidates")

    def __post_init__(self) -> None:
        check_settings(self)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:  # noqa: ARG002
        """Ask nothing."""
        yield from ()
        values = {e.id: e.features[self.feature] for e in entrants if self.feature in e.features}
        if not values:
            raise InputError(
                f"no candidate has the number {self.feature!r}, by which strategy 'reward' chooses: caps "
                "score adds the scores of a reward model, and --set feature=NAME names another field"
            )
        order = sorted((e.id for e in entrants), key=lambda c: values.get(c, float("-inf")), reverse=True)
        return Selection(order[0], tuple(order), scores=values, score_kind="score")
