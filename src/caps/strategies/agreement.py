"""How samples repeat: how likely each answer is from how often it came, and what more samples are worth.

A model of sampling. A generator's samples of a problem are right with a rate that is unknown and Beta
distributed around its quality. Right samples give one answer; a wrong one repeats a wrong answer with odds
proportional to how often that came, or gives a new one with odds `new_wrong` (a Chinese restaurant process).
Counts in any order then have the same probability, so the expectation of what more samples will show agrees
with what is believed now. See docs/explanation/adaptive-sampling.md.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

CERTAINTY = 1.7  # samples that the quality of a generator counts for: a problem may be far easier or harder
NEW_WRONG = 4.0
TRACKED = 3  # likeliest answers that are told apart when more samples are imagined


class Rate(NamedTuple):
    """The Beta distribution of a generator's rate of right samples."""

    right: float
    wrong: float

    @classmethod
    def of(cls, quality: float) -> "Rate":
        """The rate of a generator whose samples are right this often."""
        bounded = min(0.95, max(0.05, quality))
        return cls(CERTAINTY * bounded, CERTAINTY * (1 - bounded))


def log_weights(counts: Sequence[Sequence[int]], rates: Sequence[Rate]) -> list[float]:
    """Log-weight of each answer being right, against none being right; `counts`: by answer and generator."""
    drawn = [sum(column) for column in zip(*counts, strict=True)] if counts else []
    total, found = sum(drawn), []
    for row in counts:
        size = sum(row)
        weight = math.lgamma(NEW_WRONG + total) - math.lgamma(NEW_WRONG + total - size)
        weight -= math.log(NEW_WRONG) + math.lgamma(size)
        for own, count, rate in zip(row, drawn, rates, strict=True):
            weight += _log_beta(rate.right + own, rate.wrong + count - own)
            weight -= _log_beta(rate.right, rate.wrong + count)
        found.append(weight)
    return found


def _log_beta(x: float, y: float) -> float:
    return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)


class Standing(NamedTuple):
    """An answer: how likely it is right, how often it came, and how often from one generator."""

    chance: float
    votes: int
    own: int


def chance_of_new(standings: Sequence[Standing], rate: Rate, drawn: int) -> float:
    """How likely the generator's next sample is right and gives an answer that has not come yet."""
    return _unseen(standings) * rate.right / (rate.right + rate.wrong + drawn)


def gain(standings: Sequence[Standing], rate: Rate, drawn: int, more: int) -> float:
    """By how much the likeliest answer's chance is expected to rise with `more` samples of a generator.

    `drawn` samples of it came before. All ways in which they may fall on the likeliest answers, on the first
    new answer, and on all others are added up; of the others none is chosen.
    """
    front = sorted(standings, reverse=True)[:TRACKED]
    tracked = [*front, Standing(_unseen(standings), 0, 0)]  # the last one is the first new answer
    total = sum(one.votes for one in standings)
    rises = [_rising(float(one.votes), more) for one in front]
    rises.append([1.0, *(NEW_WRONG * math.gamma(count) for count in range(1, more + 1))])
    others = _others(float(total - sum(one.votes for one in front)), more)
    rights = [_rising(rate.right + one.own, more) for one in tracked]
    wrongs = [_rising(rate.wrong + drawn - one.own, more) for one in tracked]
    both = _rising(rate.right + rate.wrong + drawn, more)[more]
    missing = [_rising(NEW_WRONG + total - one.votes, more) for one in tracked]
    expected = 0.0
    for ways, parts in _splits(more, len(tracked) + 1):
        *on, apart = parts
        highest = 0.0
        for k, one in enumerate(tracked):
            if one.votes or on[k]:
                likely = rights[k][on[k]] * wrongs[k][more - on[k]] / (both * missing[k][more - on[k]])
                for j, count in enumerate(on):
                    if j != k:
                        likely *= rises[j][count]
                highest = max(highest, one.chance * likely)
        expected += ways * others[on[-1]][apart] * highest
    return max(0.0, expected - max((one.chance for one in standings), default=0.0))


def _others(rest: float, most: int) -> list[list[float]]:
    """Weight of samples that fall on no tracked answer, by how many fall on the first new one.

    `rest` of them came before. Among the new ones, the first to come is the tracked one.
    """
    old, new = _rising(rest, most), _rising(NEW_WRONG, most)
    found = [old]
    for first in range(1, most + 1):
        found.append(
            [
                sum(
                    math.comb(count, n) * old[count - n] * new[n] * first / (first + n)
                    for n in range(count + 1)
                )
                for count in range(most + 1)
            ]
        )
    return found


def _unseen(standings: Sequence[Standing]) -> float:
    return max(0.0, 1 - sum(one.chance for one in standings))


def _rising(start: float, most: int) -> list[float]:
    """start (start + 1) ... of 0 to `most` factors."""
    found = [1.0]
    for step in range(most):
        found.append(found[-1] * (start + step))
    return found


def _splits(total: int, places: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """All ways to put samples into places: the number of orders in which they may come, and the numbers."""
    if places == 1:
        yield 1, (total,)
        return
    for first in range(total + 1):
        for ways, rest in _splits(total - first, places - 1):
            yield ways * math.comb(total, first), (first, *rest)
