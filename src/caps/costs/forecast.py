"""What a strategy will ask: play it dry, with a judge that flips coins, and count."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from caps.core.contest import Contest
from caps.core.play import Strategy
from caps.core.types import Answer, Ask, Entrant, Group, Level, Pairing, Pick, Rating
from caps.costs.closed_form import ViewSizes
from caps.prompts.scale import RATINGS

REHEARSALS = 40


@dataclass(frozen=True, slots=True)
class Forecast:
    """Means over rehearsals; where `most` differs from `least`, the verdicts decide how much is asked."""

    calls: dict[str, float]
    depth: float
    tokens: float
    least: int
    most: int

    @property
    def total(self) -> float:
        """Calls at all levels."""
        return sum(self.calls.values())


def forecast(strategy: Strategy, entrants: Sequence[Entrant], sizes: ViewSizes) -> Forecast:
    """Rehearse a contest a few dozen times and average what it asks."""
    asked: Counter[str] = Counter()
    totals, depth, tokens = list[int](), 0, 0.0
    for seed in range(REHEARSALS):
        contest, coin = Contest(strategy, entrants, seed=seed), Random(seed)
        while round_ := contest.pending:
            contest.answer([flip(ask, coin) for ask in round_.asks])
        asks = [ask for turn in contest.transcript for ask in turn.round.asks]
        asked.update(str(ask.level) for ask in asks)
        depth += len(contest.transcript)
        tokens += sum(sizes.tokens(ask) for ask in asks)
        totals.append(len(asks))
    calls = {str(level): asked[str(level)] / REHEARSALS for level in (Level.PARTIAL, Level.FULL)}
    return Forecast(calls, depth / REHEARSALS, tokens / REHEARSALS, min(totals), max(totals))


def flip(ask: Ask, coin: Random) -> Answer:
    """Answer an ask by chance."""
    if isinstance(ask, Pairing):
        return coin.choice(list(RATINGS.values()))
    if isinstance(ask, Group):
        return Pick(coin.choice(ask.entrants))
    return Rating(coin.randint(1, 10))


def field_of(n: int, *, score: float = 0.0) -> list[Entrant]:
    """Entrants that all differ: the dearest pool of its size."""
    return [Entrant(i, signature=f"#{i}", features={"score": score}) for i in range(n)]
