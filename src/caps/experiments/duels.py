"""Which pairs a diagnosis asks about: spread over cases, seeded, each at both levels and in both orders."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from caps.core.play import Play, compare
from caps.core.types import Entrant, Level, Pairing, Selection

LOOKS_A_PAIR = 4


@dataclass(frozen=True, slots=True)
class Duel:
    """Two candidates of a case; where labels are known, `one` is right and `other` wrong."""

    one: int
    other: int


@dataclass(frozen=True, slots=True)
class Duels:
    """A strategy that asks about given pairs, all in one round, and chooses nothing."""

    pairs: tuple[Duel, ...]

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:  # noqa: ARG002
        """Ask; the order that stands is the order of sampling."""
        order = tuple(entrant.id for entrant in entrants)
        yield from compare("diagnosis", asks_of(self.pairs), ranking=order)
        return Selection(order[0], order)


def asks_of(pairs: Iterable[Duel]) -> list[Pairing]:
    """Both levels and both orders of each pair; who sits in A first takes turns."""
    asks = []
    for place, pair in enumerate(pairs):
        seats = [(pair.one, pair.other), (pair.other, pair.one)]
        for a, b in seats if place % 2 == 0 else reversed(seats):
            asks += [Pairing(a, b, Level.PARTIAL), Pairing(a, b, Level.FULL)]
    return asks


def told_apart(correct: Mapping[int, bool | None], count: int, rng: Random) -> tuple[Duel, ...]:
    """Up to `count` pairs of a right and a wrong candidate.

    They form a ladder: neighbours share one candidate, the next but one none, so that it shows whether errors
    stay with a candidate.
    """
    right = [one for one, label in correct.items() if label is True]
    wrong = [one for one, label in correct.items() if label is False]
    rng.shuffle(right)
    rng.shuffle(wrong)
    if not right or not wrong:
        return ()
    return tuple(_first(count, _ladder(right, wrong, rng)))


def different(answers: Mapping[int, Hashable], count: int, rng: Random) -> tuple[Duel, ...]:
    """Up to `count` pairs of candidates with different answers, for want of labels."""
    everyone = [Duel(a, b) for a in answers for b in answers if a < b and answers[a] != answers[b]]
    rng.shuffle(everyone)
    return tuple(everyone[:count])


def _ladder(right: Sequence[int], wrong: Sequence[int], rng: Random) -> Iterator[Duel]:
    for rung in range(2 * max(len(right), len(wrong))):
        yield Duel(right[rung // 2 % len(right)], wrong[(rung + 1) // 2 % len(wrong)])
    rest = [Duel(a, b) for a in right for b in wrong]
    rng.shuffle(rest)
    yield from rest


def _first(count: int, pairs: Iterable[Duel]) -> list[Duel]:
    found: dict[Duel, None] = {}
    for pair in pairs:
        if len(found) == count:
            break
        found[pair] = None
    return list(found)
