"""Cost forecasts: strategies run with simulated answers, and their calls and tokens are counted.

The first round does not depend on any verdict, so its tokens are exact. A rehearsal gives the shape of later
rounds: how many asks, of which kind, how often each entrant is shown. A shape costs the most if the largest
views are shown most often, and the least if the smallest are (rearrangement inequality). If verdicts decide
who meets whom but not the shape, every contest lies between the two; if they decide the shape too, between
the bounds of all rehearsed shapes. In a few percent of contests, a Swiss tournament leaves over a pair that
has met before: the bounds always include that shape.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from random import Random
from statistics import fmean
from typing import Protocol, TypeAlias

from caps.core.contest import Contest
from caps.core.play import Strategy
from caps.core.text import CHARACTERS_PER_TOKEN
from caps.core.types import Answer, Ask, Entrant, Group, Level, Pairing, Pick, Rating, Round, Verdict
from caps.costs.closed_form import ViewSizes
from caps.prompts.tags import RATINGS

REHEARSALS = 40


@dataclass(frozen=True, slots=True)
class Forecast:
    """Means over rehearsals; `least` and `most` calls differ if the verdicts decide how much is asked."""

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
    """Rehearse a contest with random answers and average its calls and tokens."""
    asked: Counter[str] = Counter()
    totals, depth, tokens = list[int](), 0, 0.0
    for seed in range(REHEARSALS):
        contest = Contest(strategy, entrants, seed=seed).play(partial(flip, coin=Random(seed)))
        asks = [ask for turn in contest.transcript for ask in turn.round.asks]
        asked.update(str(ask.level) for ask in asks)
        depth += len(contest.transcript)
        tokens += sum(sizes.tokens(ask) for ask in asks)
        totals.append(len(asks))
    calls = {str(level): asked[str(level)] / REHEARSALS for level in (Level.PARTIAL, Level.FULL)}
    return Forecast(calls, depth / REHEARSALS, tokens / REHEARSALS, min(totals), max(totals))


def flip(ask: Ask, coin: Random) -> Answer:
    """Answer an ask at random."""
    if isinstance(ask, Pairing):
        return coin.choice(list(RATINGS.values()))
    if isinstance(ask, Group):
        return Pick(coin.choice(ask.entrants))
    return Rating(coin.randint(1, 10))


def distinct_entrants(n: int) -> list[Entrant]:
    """Entrants that all differ: the most expensive pool of its size."""
    return [Entrant(i, signature=f"#{i}", features={"score": 0.0}, signature_kind="open") for i in range(n)]


PER_CHARACTER = 1 / CHARACTERS_PER_TOKEN
FLIPS = 4
STRANDED = 4  # entrants of the two games of a left-over pair, in an extra round

Rounds: TypeAlias = Sequence[Round]
Rule: TypeAlias = Callable[[Ask], Answer]


class Prompts(Protocol):
    """Sizes of the prompts of one case, in characters: an ask is a bare prompt and its views.

    With `has_differences`, partial evidence of some pairs is what separates the two, in place of their views.
    """

    has_differences: bool

    def bare(self, ask: Ask) -> int:
        """Characters of the prompt around the views."""
        ...

    def view(self, entrant: int, level: Level) -> int:
        """Characters of a view in a prompt."""
        ...

    def size(self, ask: Ask) -> int:
        """Characters of the whole prompt of an ask."""
        ...


@dataclass(frozen=True, slots=True)
class CaseForecast:
    """Input tokens, calls and rounds of one case; `mean`, `partial`, `full` are means over random answers."""

    first_stage: int
    least: int
    mean: float
    most: int
    calls_least: int
    calls_most: int
    depth: int
    partial: float
    full: float


def forecast_contest(
    strategy: Strategy,
    entrants: Sequence[Entrant],
    prompts: Prompts,
    *,
    seed: int | str,
    flips: int = FLIPS,
    per_character: float = PER_CHARACTER,
) -> CaseForecast:
    """Rehearse one contest with the pairings of `seed` and count the tokens of its asks."""
    biased = [_rounds(strategy, entrants, seed, rule) for rule in _biased(prompts)]
    if max(map(len, biased)) > 1:
        fair = [_rounds(strategy, entrants, seed, _coin(number)) for number in range(flips)]
    else:
        fair = biased[:1]  # at most one round, for any verdicts
    first = sum(_tokens(ask, prompts, per_character) for round_ in fair[0][:1] for ask in round_.asks)
    rehearsals = [*biased, *fair]
    shown = sorted({one for rounds in rehearsals for r in rounds for ask in r.asks for one in ask.entrants})
    bounds = _Bounds(prompts, shown, per_character)
    ranges = [bounds.of(rounds[1:]) for rounds in rehearsals]
    calls = [sum(len(round_.asks) for round_ in rounds) for rounds in rehearsals]
    later = (sum(_tokens(a, prompts, per_character) for r in rounds[1:] for a in r.asks) for rounds in fair)
    return CaseForecast(
        first_stage=first,
        least=first + min(low for low, _ in ranges),
        mean=first + fmean(later),
        most=first + max(high for _, high in ranges),
        calls_least=min(calls),
        calls_most=max(calls),
        depth=max(map(len, rehearsals)),
        partial=fmean(_calls(rounds, Level.PARTIAL) for rounds in fair),
        full=fmean(_calls(rounds, Level.FULL) for rounds in fair),
    )


class _Bounds:
    """The fewest and the most tokens of a shape of rounds."""

    def __init__(self, prompts: Prompts, shown: Sequence[int], per_character: float) -> None:
        self._prompts, self._shown, self._rate = prompts, shown, per_character
        self._sizes: dict[Level, list[int]] = {}
        self._pairs: tuple[int, int] | None = None

    def of(self, rounds: Rounds) -> tuple[int, int]:
        """Bounds for rounds of this shape; the tokens of an ask are rounded up, so each may add one."""
        low, high, asks = 0, 0, 0
        full_rounds: Counter[Level] = Counter()
        for round_ in rounds:
            compared, others = self._split(round_.asks)
            least, most = self._pair_sizes() if compared else (0, 0)
            bare = sum(map(self._prompts.bare, others))
            low, high = low + bare + len(compared) * least, high + bare + len(compared) * most
            asks += len(round_.asks)
            for level, times in _appearances(others):
                sizes = self._ascending(level)
                low += sum(size * count for size, count in zip(sizes, times, strict=False))
                high += sum(size * count for size, count in zip(reversed(sizes), times, strict=False))
                full_rounds[level] += len(sizes) >= STRANDED and times == [1] * len(sizes)
        for level in (level for level, count in full_rounds.items() if count > 1):
            sizes = self._ascending(level)
            low -= 2 * sum(sizes[-2:]) - sum(sizes[:STRANDED])
            high += sum(sizes[-STRANDED:]) - 2 * sum(sizes[:2])
        return math.ceil(low * self._rate), math.floor(high * self._rate) + asks

    def _split(self, asks: Sequence[Ask]) -> tuple[list[Ask], list[Ask]]:
        """The asks that may show what separates two candidates, which depends on the pair; and the others."""
        if not self._prompts.has_differences:
            return [], list(asks)
        compared: list[Ask] = [ask for ask in asks if isinstance(ask, Pairing) and ask.level is Level.PARTIAL]
        return compared, [ask for ask in asks if ask not in compared]

    def _pair_sizes(self) -> tuple[int, int]:
        """The shortest and the longest prompt that shows two candidates at E1."""
        if self._pairs is None:
            pairs = combinations(self._shown, 2)
            sizes = [self._prompts.size(Pairing(a, b, Level.PARTIAL)) for a, b in pairs]
            self._pairs = min(sizes), max(sizes)
        return self._pairs

    def _ascending(self, level: Level) -> list[int]:
        if level not in self._sizes:
            self._sizes[level] = sorted(self._prompts.view(one, level) for one in self._shown)
        return self._sizes[level]


def _appearances(asks: Sequence[Ask]) -> Iterator[tuple[Level, list[int]]]:
    """How often the entrants of a round are shown at each level, in descending order."""
    for level in sorted({ask.level for ask in asks}):
        shown = Counter(one for ask in asks if ask.level == level for one in ask.entrants)
        yield level, sorted(shown.values(), reverse=True)


def _rounds(strategy: Strategy, entrants: Sequence[Entrant], seed: int | str, rule: Rule) -> list[Round]:
    return [turn.round for turn in Contest(strategy, entrants, seed=seed).play(rule).transcript]


def _biased(prompts: Prompts) -> Iterator[Rule]:
    """Judges that always prefer the larger view, the smaller view, or neither; the first two are certain."""

    def prefer(sign: int) -> Rule:
        def rule(ask: Ask) -> Answer:
            sizes = {one: sign * prompts.view(one, ask.level) for one in ask.entrants}
            if isinstance(ask, Pairing):
                return Verdict(9, 3) if sizes[ask.a] >= sizes[ask.b] else Verdict(3, 9)
            return Pick(max(sizes, key=sizes.__getitem__)) if isinstance(ask, Group) else Rating(9)

        return rule

    def tie(ask: Ask) -> Answer:
        if isinstance(ask, Pairing):
            return Verdict(5, 5)
        return Pick(ask.entrants[0]) if isinstance(ask, Group) else Rating(5)

    return iter((prefer(1), prefer(-1), tie))


def _coin(number: int) -> Rule:
    coin = Random(number)
    return lambda ask: flip(ask, coin)


def _tokens(ask: Ask, prompts: Prompts, per_character: float) -> int:
    return math.ceil(prompts.size(ask) * per_character)


def _calls(rounds: Rounds, level: Level) -> int:
    return sum(ask.level == level for round_ in rounds for ask in round_.asks)
