"""What is believed about each answer, in log-odds: votes, findings and scores, then verdicts.

The hypotheses are "answer k is right", one for each cluster of candidates that agree. Answers that are
compared by value exclude each other: at most one is right, and "none is right" is a hypothesis too. Programs
and texts are right or wrong each for itself. Either way an answer's log-odds are a sum:

    votes + findings + scores                                        before the judge is asked
    + log P(wins and losses | k is right) / P(the same | k is wrong)    after its comparisons

An unmeasured judge is assumed to be good, or at chance with a small probability.
`naive`, `posterior` and adaptive sampling share this module. See docs/explanation/posterior.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from operator import add
from statistics import fmean, pstdev

from caps.core.judge_profile import HIGH_WEIGHT, JudgeProfile
from caps.core.settings import setting
from caps.core.types import Answer, Ask, Entrant, Level, Pairing, Verdict

Groups = Sequence[Sequence[Entrant]]

# Where the constants come from: docs/explanation/posterior.md#where-the-constants-come-from
OPEN_VOTES = 0.7  # the weight of votes for programs and texts, relative to votes for values
USUAL_POOL = 16  # candidates in the pool for which `nobody` is stated
SMALLER_POOL = 0.55  # log-odds that a candidate gains each time its pool is e times smaller
UNPARSED = 3.0  # log-odds lost by a candidate that does not parse or states no answer
DISAGREEING = 0.5  # log-odds lost by differing from most programs on all inputs that separate them
SCORED = 0.5  # log-odds per standard deviation of the score that candidates carry
SUREST = 0.99  # the highest accuracy of a verdict, whatever a profile says
RIGHT_RECORDS = 2.0  # concentration (alpha + beta) of the beta distribution of a right answer's win rate
WRONG_RECORDS = 3.0  # the same of a wrong answer
DOUBT = 0.1  # chance that an unmeasured judge is at chance
BENEFIT = 2.3  # log-odds of a verdict of an unmeasured judge, relative to an average judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(JudgeProfile):
    """How much votes, findings and scores weigh; inherited: how much verdicts do."""

    votes: float = setting(2.1, "an answer of n candidates weighs n to this power", least=0)
    nobody: float = setting(2.0, "votes for the case that no answer is right", least=0.01)
    tests: float = setting(5.0, "log-odds lost by failing all public examples", least=0)
    feature: str = setting("", "a further number of candidates that counts, such as rm_score")
    feature_weight: float = setting(0.5, "log-odds a standard deviation of the feature", least=0)

    def exclusive(self, groups: Groups) -> bool:
        """Whether at most one answer is right: some are compared by value."""
        return any(group[0].answer == "value" for group in groups)

    def power(self, groups: Groups) -> float:
        """An answer of n candidates weighs n to this power."""
        return self.votes if self.exclusive(groups) else OPEN_VOTES * self.votes

    def nobody_right(self, groups: Groups) -> float:
        """Log-weight of no answer being right, or of an answer without any evidence being wrong."""
        return self.power(groups) * math.log(self.nobody) - surer_in_pool_of(count_votes(groups))

    def vote_odds(self, groups: Groups) -> list[float]:
        """Log-odds by votes alone."""
        return [self.power(groups) * math.log(votes_for(group)) for group in groups]

    def parts(self, groups: Groups) -> dict[str, list[float]]:
        """Log-odds of each answer before the judge is asked, by what they come from, votes first."""
        parts = {"votes": self.vote_odds(groups)}
        if self.exclusive(groups):
            no_answer = [-UNPARSED if group[0].answer == "text" else 0.0 for group in groups]
            parts["votes"] = list(map(add, parts["votes"], no_answer))
        for name, strength in (
            ("parses", UNPARSED), ("tests_passed", self.tests), ("agreement", DISAGREEING),
        ):  # fmt: skip
            parts[name] = [-strength * lost for lost in shortfalls(groups, name)]
        for name, strength in {"score": SCORED, self.feature: self.feature_weight}.items():
            parts[name] = [strength * above for above in deviations(groups, name)]
        return {name: odds for name, odds in parts.items() if name == "votes" or any(odds)}

    def prior(self, groups: Groups) -> list[float]:
        """Log-odds of each answer before the judge is asked."""
        return [sum(odds, 0.0) for odds in zip(*self.parts(groups).values(), strict=True)]

    def beliefs(self, groups: Groups, odds: Sequence[float] | None = None) -> "Beliefs":
        """What is believed with these log-odds; by default those before the judge is asked."""
        prior = self.prior(groups) if odds is None else odds
        return Beliefs(self, prior, self.nobody_right(groups), exclusive=self.exclusive(groups))

    def steps(self, groups: Groups) -> list[tuple[str, "Beliefs"]]:
        """What is believed with nothing known, then with each part of the evidence in turn."""
        parts, nothing = self.parts(groups), [0.0] * len(groups)
        sums = accumulate(parts.values(), lambda odds, more: list(map(add, odds, more)), initial=nothing)
        return [(name, self.beliefs(groups, odds)) for name, odds in zip(("", *parts), sums, strict=True)]


def votes_for(group: Sequence[Entrant]) -> int:
    """How many candidates give an answer; copies of a text without an answer count once."""
    return 1 if group[0].answer == "text" else len(group)


def count_votes(groups: Groups) -> int:
    """How many votes there are in a pool."""
    return sum(map(votes_for, groups))


def surer_in_pool_of(count: int) -> float:
    """Log-odds by which a candidate is surer in a pool of this size than in one of the usual size."""
    return SMALLER_POOL * math.log(USUAL_POOL / count)


def shortfalls(groups: Groups, name: str) -> list[float]:
    """How far each answer falls short of 1 in a share: half for falling short at all, half for how far."""
    best = [max(entrant.features.get(name, 1.0) for entrant in group) for group in groups]
    return [((share < 1) + 1 - share) / 2 for share in best]


def deviations(groups: Groups, name: str) -> list[float]:
    """By how many standard deviations the candidates of each answer exceed the mean of a number."""
    members = [entrant for group in groups for entrant in group]
    values = [entrant.features[name] for entrant in members if name in entrant.features]
    if len(set(values)) < 2:
        return [0.0] * len(groups)
    mean, spread = fmean(values), pstdev(values)
    return [(fmean(member.features.get(name, mean) for member in group) - mean) / spread for group in groups]


def accuracy(judge: JudgeProfile, level: Level) -> float:
    """How often a decided verdict at a level prefers the right one of a right and a wrong candidate."""
    high, low = (judge.e1_high, judge.e1_low) if level is Level.PARTIAL else (judge.e2_high, judge.e2_low)
    return judge.sure * high + (1 - judge.sure) * low


def is_assumed(judge: JudgeProfile) -> bool:
    """Whether the judge is unmeasured: every field of its profile has its default."""
    return all(getattr(judge, spec.name) == spec.default for spec in fields(JudgeProfile))


class Worth:
    """What verdicts of a judge are worth: the log-odds of the best kind, and the others as shares of it."""

    def __init__(self, judge: JudgeProfile) -> None:
        scale = BENEFIT if is_assumed(judge) else 1.0
        accuracies = {
            (Level.PARTIAL, True): judge.e1_high, (Level.PARTIAL, False): judge.e1_low,
            (Level.FULL, True): judge.e2_high, (Level.FULL, False): judge.e2_low,
        }  # fmt: skip
        self._odds = {kind: scale * max(0.0, logit(share)) for kind, share in accuracies.items()}
        self._best = min(max(self._odds.values()), logit(SUREST))
        self._first_slot = judge.first_slot
        self.accuracy = math.exp(log_sigmoid(self._best))

    def of(self, level: Level, verdict: Verdict) -> float:
        """How many of the best verdicts this one counts as; less for the slot that the judge prefers."""
        if verdict.outcome == 0.5 or not self._best:
            return 0.0
        unlikely = 1 - self._first_slot if verdict.outcome == 1 else self._first_slot
        return min(1.0, self._odds[level, verdict.weight >= HIGH_WEIGHT] / self._best) * 2 * unlikely


class Beliefs:
    """Log-odds of each answer by its wins and losses.

    Each answer has a win rate of its own: a judge that prefers a wrong answer once prefers it again. The rate
    comes from a beta distribution whose mean is the accuracy of the judge if the answer is right, and ½ if it
    is wrong. So a record of wins and losses has a beta-binomial probability, and repeated verdicts count less
    and less. An unmeasured judge may be at chance: then a record says nothing.
    """

    def __init__(
        self, judge: JudgeProfile, prior: Sequence[float], nobody: float, *, exclusive: bool
    ) -> None:
        self._worth, self._prior, self._nobody, self.exclusive = Worth(judge), prior, nobody, exclusive
        self._doubt = DOUBT if is_assumed(judge) else 0.0
        self._wins = [0.0] * len(prior)
        self._losses = [0.0] * len(prior)

    def add(self, ask: Ask, answer: Answer, answer_of: Mapping[int, int]) -> bool:
        """Count a verdict; whether it says anything: ties and verdicts inside an answer do not."""
        if not (isinstance(ask, Pairing) and isinstance(answer, Verdict)):
            return False
        a, b = answer_of[ask.a], answer_of[ask.b]
        worth = self._worth.of(ask.level, answer)
        if not worth or a == b:
            return False
        winner, loser = (a, b) if answer.outcome == 1 else (b, a)
        self._wins[winner] += worth
        self._losses[loser] += worth
        return True

    def chances(self) -> list[float]:
        """How likely each answer is right."""
        ratios = map(self._log_ratio, self._wins, self._losses)
        return self._normalised(list(map(add, self._prior, ratios)))

    def _log_ratio(self, wins: float, losses: float) -> float:
        """Log of how much likelier a record is if the answer is right than if it is wrong."""
        accuracy, even = self._worth.accuracy, WRONG_RECORDS / 2
        right = log_record(wins, losses, RIGHT_RECORDS * accuracy, RIGHT_RECORDS * (1 - accuracy))
        ratio = math.exp(right - log_record(wins, losses, even, even))
        return math.log((1 - self._doubt) * ratio + self._doubt)

    def _normalised(self, odds: Sequence[float]) -> list[float]:
        """Log-odds as probabilities."""
        if not self.exclusive:
            return [math.exp(log_sigmoid(log_odds - self._nobody)) for log_odds in odds]
        top = max(self._nobody, *odds)
        weights = [math.exp(log_odds - top) for log_odds in odds]
        total = sum(weights) + math.exp(self._nobody - top)
        return [weight / total for weight in weights]


def log_record(wins: float, losses: float, alpha: float, beta: float) -> float:
    """Log-probability of wins and losses in a certain order, if the win rate has a beta distribution."""
    return log_beta(alpha + wins, beta + losses) - log_beta(alpha, beta)


def log_beta(x: float, y: float) -> float:
    """Logarithm of the beta function."""
    return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)


def only(chances: Sequence[float], right: int, wrong: int, *, exclusive: bool) -> float:
    """How likely one answer is right and another wrong."""
    return chances[right] if exclusive else chances[right] * (1 - chances[wrong])


def logit(share: float) -> float:
    """Log-odds of a share, which is never taken for surer than `SUREST` either way."""
    bounded = min(SUREST, max(1 - SUREST, share))
    return math.log(bounded / (1 - bounded))


def log_sigmoid(x: float) -> float:
    """Logarithm of the probability with these log-odds."""
    return -math.log1p(math.exp(-x)) if x > -30 else x
