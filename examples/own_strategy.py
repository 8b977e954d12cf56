"""Choose with a strategy of your own: the first candidate defends its title against all others.

A strategy yields rounds of questions and is sent the answers. It sees no texts, so it can be tested without
a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import caps


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """The champion meets one challenger after the other; who wins goes on."""

    capabilities: ClassVar = caps.Capabilities(asks=("pair",))

    looks: int = caps.setting(1, "comparisons of each pair", least=1)

    def play(self, entrants: Sequence[caps.Entrant], rng: Random) -> caps.Play[caps.Selection]:
        """One round for each challenger."""
        champion, *rest = rng.sample([one.id for one in entrants], len(entrants))
        beaten: list[int] = []
        while rest:
            challenger = rest.pop(0)
            asks = [
                caps.Pairing(champion, challenger, caps.Level.FULL, draw=look) for look in range(self.looks)
            ]
            ranking = [champion, challenger, *beaten, *rest]
            games = yield from caps.compare("title", asks, ranking=ranking)
            lost = sum(game.winner == challenger for game in games)
            if lost > len(games) / 2:
                champion, challenger = challenger, champion
            beaten.insert(0, challenger)
        return caps.Selection(champion, (champion, *beaten))


def longer(problem: str, a: str, b: str) -> str:  # noqa: ARG001
    """A judge for the example: the longer text wins."""
    return "TIE" if len(a) == len(b) else "A" if len(a) > len(b) else "B"


def main() -> None:
    """Play it with a function as the judge, and beside it the default strategy."""
    case = caps.Case.of("Why is the sky blue?", ["Air.", "Air scatters blue light most.", "It is not."])
    own = caps.select_sync(case, strategy=Champion(looks=1), judge=longer)
    usual = caps.select_sync(case, strategy=caps.Posterior(), judge=longer)
    print(f"champion: {own.text} ({sum(own.ledger.calls.values())} calls)")
    print(f"posterior: {usual.text} ({sum(usual.ledger.calls.values())} calls)")


if __name__ == "__main__":
    main()
