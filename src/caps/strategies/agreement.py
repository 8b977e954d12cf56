"""How samples repeat: how likely each answer is from how often it came, and what more samples are worth.

A model of sampling. A generator's samples of a problem are right with a rate that is unknown and Beta
distributed around its quality. Right samples give one answer; a wrong one repeats a wrong answer with odds
proportional to how often that came, or gives a new one with odds `new_wrong` (a Chinese restaurant process).
Counts in any order then have the same probability, so the expectation of what more samples will show agrees
with what is believed now. See docs/explanation/adaptive-sampling.md.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from caps.strategies.belief import log_beta

CERTAINTY = 1.7  # samples that the quality of a generator counts for: a problem may be far easier or harder
NEW_WRONG = 4.0
TRACKED = 6  # likeliest answers that are told apart when more samples are imagined
DIVERSE = (
    (NEW_WRONG, 0.7),
    (40.0, 0.3),
)  # odds of a new wrong answer that a problem may have, and how likely
UNLIKELY = 1e-9


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
    total, log_odds = sum(drawn), []
    for row in counts:
        size = sum(row)
        weight = math.lgamma(NEW_WRONG + total) - math.lgamma(NEW_WRONG + total - size)
        weight -= math.log(NEW_WRONG) + math.lgamma(size)
        for repeats, count, rate in zip(row, drawn, rates, strict=True):
            weight += log_beta(rate.right + repeats, rate.wrong + count - repeats)
            weight -= log_beta(rate.right, rate.wrong + count)
        log_odds.append(weight)
    return log_odds


class Standing(NamedTuple):
    """An answer: how likely it is right, how often it came, and how often from one generator.

    `verdicts` is what verdicts may still show about it: the variance of its log-odds by them. Without a judge
    it is 0.
    """

    chance: float
    votes: int
    own: int
    verdicts: float = 0.0


def gain(
    standings: Sequence[Standing],
    rate: Rate,
    drawn: int,
    more: int,
    *,
    verdicts: float = 0.0,
    votes: bool = True,
) -> float:
    """How much likelier the right answer is chosen in the end with `more` samples of a generator.

    `drawn` samples of it came before. If an answer is right, a number of the samples will repeat it, and in
    the end it is chosen if votes and verdicts put it before the others: that is expected to happen for each
    answer that came, and for the first right one that has not (`verdicts` is what may be shown about that).
    Samples that are no independent `votes` can only add that one. Other new answers are left out.
    """
    front = sorted(standings, reverse=True)[:TRACKED]
    total = sum(answer.votes for answer in standings)
    new = Standing(max(0.0, 1 - sum(answer.chance for answer in standings)), 0, 0, verdicts)
    new_wrong = diversity([answer.votes for answer in standings])
    gained = _chosen(new, front, rate, drawn, more, total, new_wrong)
    for answer in front if votes else ():
        rivals = [other for other in front if other is not answer]
        before = _chosen(answer, rivals, rate, drawn, 0, total, new_wrong)
        gained += _chosen(answer, rivals, rate, drawn, more, total, new_wrong) - before
    return max(0.0, gained)


def diversity(counts: Sequence[int]) -> float:
    """The odds of a new wrong answer: the more the answers so far differ, the less they repeat by chance."""
    total, different = sum(counts), len(counts)
    logs = [
        math.log(share) + different * math.log(odds) + math.lgamma(odds) - math.lgamma(odds + total)
        for odds, share in DIVERSE
    ]
    weights = [math.exp(log - max(logs)) for log in logs]
    return sum(weight * odds for weight, (odds, _) in zip(weights, DIVERSE, strict=True)) / sum(weights)


def _chosen(  # noqa: PLR0917
    answer: Standing,
    rivals: Sequence[Standing],
    rate: Rate,
    drawn: int,
    more: int,
    total: int,
    new_wrong: float,
) -> float:
    """How likely an answer is right and is chosen after `more` samples."""
    if answer.chance < UNLIKELY:
        return 0.0
    hits = _log_rising(rate.right + answer.own, more)
    misses = _log_rising(rate.wrong + drawn - answer.own, more)
    all_ways = _log_rising(rate.right + rate.wrong + drawn, more)[more]
    if answer.votes:
        repeats = _log_rising(float(answer.votes), more)
    else:
        repeats = [0.0, *(math.log(new_wrong) + math.lgamma(count) for count in range(1, more + 1))]
    against = [
        (
            math.log(max(UNLIKELY, rival.chance)) + _log_rising(rate.wrong + drawn - rival.own, more)[more],
            _log_rising(new_wrong + total - rival.votes, more),
        )
        for rival in rivals
    ]
    chosen = 0.0
    for count in range(0 if answer.votes else 1, more + 1):
        seen = hits[count] + misses[more - count]
        ways = math.comb(more, count) * math.exp(seen - all_ways)
        odds = [before + repeats[count] - missing[count] for before, missing in against]
        chosen += ways * _wins(math.log(answer.chance) + seen, odds, answer.verdicts)
    return answer.chance * chosen


def _wins(log_weight: float, rivals: Sequence[float], verdicts: float) -> float:
    """How likely the right answer of this log-weight comes first, given what verdicts may still show."""
    if not rivals:
        return 1.0
    highest = max(rivals)
    if verdicts > 0:
        others = highest + math.log(sum(math.exp(rival - highest) for rival in rivals))
        return normal_cdf((log_weight - others) / math.sqrt(verdicts) + math.sqrt(verdicts) / 2)
    equal = sum(abs(log_weight - rival) < UNLIKELY for rival in rivals)
    return 1 / (1 + equal) if equal and abs(log_weight - highest) < UNLIKELY else float(log_weight > highest)


def _log_rising(start: float, most: int) -> list[float]:
    """Logarithm of start (start + 1) ... of 0 to `most` factors."""
    logs = [0.0]
    for step in range(most):
        logs.append(logs[-1] + math.log(start + step))
    return logs


def exchange(kept: float, gained: float, sharpness: float) -> float:
    """What may be won by asking before one answer is kept or exchanged for another (Margrabe's option).

    `kept`: chance that only the first is right; `gained`: that only the second is; `sharpness`: variance of
    what asking adds to the log-odds between them.
    """
    if gained <= 0 or sharpness <= 0:
        return 0.0
    if kept <= 0:
        return gained
    spread = math.sqrt(sharpness)
    middle = math.log(gained / kept) / spread
    return (
        gained * normal_cdf(middle + spread / 2)
        - kept * normal_cdf(middle - spread / 2)
        - max(0.0, gained - kept)
    )


def normal_cdf(x: float) -> float:
    """The distribution function of a normal number."""
    return math.erfc(-x * math.sqrt(0.5)) / 2
