"""The answers of several judges combined into one.

A verdict is worth the log-odds of its chance to be right, which the judge's profile states for HIGH and LOW
verdicts at each level. Judges that err together count less (`discounts`). For A, the panel's log-odds are

    L = sum over members of  weight * discount * sign * log(p / (1 - p))

where the sign is +1 for A, -1 for B and 0 for a tie, and p is never below 1/2. The panel's verdict has the
weight 2P - 1 with P = 1 / (1 + exp(-|L|)). Picks are counted in the same way; they state no confidence, so
their chance is that of a LOW verdict. Ratings are averaged. The only answer is returned as it is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Literal, TypeAlias

from caps.core.judge_profile import HIGH_WEIGHT, JudgeProfile
from caps.core.types import Answer, Ask, Group, Level, Pairing, Pick, Rating, Solo, Verdict

#: Measured correlations between the errors of different judges lie from .25 to .58.
DEFAULT_CORRELATION = 0.4
DEFAULT_SURE = 0.65
MOST_LIKELY = 0.99  # chances above this are not trusted
LEAST_SKILL = 1e-6  # of a judge at chance
NOTHING = 1e-9  # log-odds below this are a tie
UNSURE_RATINGS = (4.0, 7.0)
FAR_RATING = 3.0  # points; a rating this far from the panel's disagrees with it
NORMAL = NormalDist()
LEVELS = frozenset({Level.PARTIAL, Level.FULL})
Mode: TypeAlias = Literal["all", "cascade"]


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one judge of a panel answered."""

    judge: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Member:
    """A judge of a panel: its name, its measured or assumed reliability, and what it may be asked."""

    name: str
    profile: JudgeProfile = field(default_factory=JudgeProfile)
    weight: float = 1.0
    levels: frozenset[Level] = LEVELS

    def chance(self, level: Level, *, high: bool) -> float:
        """The chance that a verdict at a level is right, from 1/2."""
        name = f"e{int(level)}_{'high' if high else 'low'}"
        value: float = getattr(self.profile, name)
        return min(MOST_LIKELY, max(0.5, value))

    def accuracy(self, level: Level) -> float:
        """The share of its decided verdicts at a level that are right, from 1/2."""
        sure: float = getattr(self.profile, f"e{int(level)}_sure")
        return sure * self.chance(level, high=True) + (1 - sure) * self.chance(level, high=False)


@dataclass(frozen=True, slots=True)
class PanelRule:
    """How the members of a panel are asked and their answers combined.

    Members are in the order in which a cascade asks them. `correlation` is that between the errors of two
    members; a cascade stops once its members agree and are right with a probability of at least `sure`.
    """

    members: tuple[Member, ...]
    correlation: float = DEFAULT_CORRELATION
    sure: float = DEFAULT_SURE

    def asked_at(self, level: Level) -> tuple[Member, ...]:
        """The members that answer a level."""
        return tuple(one for one in self.members if level in one.levels)

    def combine(self, ask: Ask, opinions: Sequence[Opinion]) -> Answer:
        """The answer of the panel, from at least one answer of a member."""
        if len(opinions) == 1:
            return opinions[0].answer
        if isinstance(ask, Solo):
            return Rating(self._mean_rating(opinions))
        scores = self._scores(ask, opinions)
        if isinstance(ask, Group):
            return Pick(max(scores, key=lambda option: scores[option]))  # the first named, if they are equal
        lead = scores.get(ask.a, 0.0) - scores.get(ask.b, 0.0)
        margin = 0.0 if abs(lead) < NOTHING else math.tanh(lead / 2)  # 2P - 1, with the sign of the lead
        return Verdict(5.5 + 4.5 * margin, 5.5 - 4.5 * margin)

    def settled(self, ask: Ask, opinions: Sequence[Opinion]) -> bool:
        """Whether a cascade asks no further member: those so far agree, and are sure enough together."""
        if not opinions:
            return False
        if isinstance(ask, Solo):
            low, high = UNSURE_RATINGS
            return not low <= self._mean_rating(opinions) <= high
        scores = self._scores(ask, opinions)
        return len(scores) == 1 and _probability(sum(scores.values())) >= self.sure - NOTHING

    def cascade(self, ask: Ask, answers: Mapping[str, Answer]) -> list[Opinion]:
        """The opinions that a cascade would ask for, of members whose answers are known."""
        found: list[Opinion] = []
        for member in self.asked_at(ask.level):
            if member.name in answers:
                found.append(Opinion(member.name, answers[member.name]))
                if self.settled(ask, found):
                    break
        return found

    def _scores(self, ask: Pairing | Group, opinions: Sequence[Opinion]) -> dict[int, float]:
        """The log-odds that the members' answers add to each candidate."""
        by_name = {one.name: one for one in self.members}
        members = [by_name[one.judge] for one in opinions]
        shares = discounts([one.accuracy(ask.level) for one in members], self.correlation)
        scores: dict[int, float] = {}
        for member, share, opinion in zip(members, shares, opinions, strict=True):
            chosen, high = _choice(ask, opinion.answer)
            if chosen is not None:
                chance = member.chance(ask.level, high=high)
                worth = member.weight * share * math.log(chance / (1 - chance))
                scores[chosen] = scores.get(chosen, 0.0) + worth
        return scores or {ask.entrants[0]: 0.0}

    def _mean_rating(self, opinions: Sequence[Opinion]) -> float:
        """The mean rating, weighted by what each member's ratings are worth if that was measured for all."""
        by_name = {one.name: one for one in self.members}
        rated = [(by_name[one.judge], one.answer.value) for one in opinions if isinstance(one.answer, Rating)]
        measured = all(member.profile.rated > 0.5 for member, _ in rated)
        weights = [
            member.weight * (_log_odds(member.profile.rated) if measured else 1.0) for member, _ in rated
        ]
        return sum(w * value for w, (_, value) in zip(weights, rated, strict=True)) / sum(weights)


def discounts(accuracies: Sequence[float], correlation: float) -> list[float]:
    """How much of its own evidence each of several judges adds whose errors correlate.

    These are the weights of the best linear combination of readings with this common correlation, relative to
    a reading that stands alone: `R^-1 d / d`, where d is the distance between right and wrong that an
    accuracy implies. n equal judges count 1 / (1 + (n - 1) r) each. A judge that would count less than
    nothing beside better ones counts nothing.
    """
    skills = [max(LEAST_SKILL, NORMAL.inv_cdf(min(MOST_LIKELY, max(0.5, one)))) for one in accuracies]
    used = set(range(len(skills)))
    while True:
        common = correlation * sum(skills[i] for i in used) / (1 + (len(used) - 1) * correlation)
        found = {i: (1 - common / skills[i]) / (1 - correlation) for i in used}
        worst = min(used, key=lambda i: found[i])
        if found[worst] >= 0 or len(used) == 1:
            return [max(0.0, found.get(i, 0.0)) for i in range(len(skills))]
        used.remove(worst)


def disagreement(ask: Ask, answer: Answer, opinions: Sequence[Opinion]) -> float | None:
    """The share of members whose answer differs from the panel's; None if fewer than two answered.

    A verdict or pick differs if it prefers another candidate, a rating if it is three points away.
    """
    said = [one.answer for one in opinions if isinstance(one.answer, Verdict | Rating | Pick)]
    if len(said) < 2:
        return None
    if isinstance(answer, Rating):
        apart = [abs(one.value - answer.value) >= FAR_RATING for one in said if isinstance(one, Rating)]
    elif isinstance(ask, Solo):
        return None
    else:
        chosen = _choice(ask, answer)[0]
        apart = [_choice(ask, one)[0] != chosen for one in said]
    return sum(apart) / len(apart)


def _choice(ask: Pairing | Group, answer: Answer) -> tuple[int | None, bool]:
    """The candidate that an answer prefers, None for a tie, and whether it is sure."""
    if isinstance(answer, Pick):
        return answer.winner, False
    if not isinstance(answer, Verdict) or not isinstance(ask, Pairing) or answer.a == answer.b:
        return None, False
    return ask.a if answer.a > answer.b else ask.b, answer.weight >= HIGH_WEIGHT


def _log_odds(chance: float) -> float:
    chance = min(MOST_LIKELY, chance)
    return math.log(chance / (1 - chance))


def _probability(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))
