"""What is believed about each answer, in log-odds: votes, findings and scores, then verdicts.

The hypotheses are "answer k is right", one for each cluster of candidates that agree. Answers that are
compared by value exclude each other: at most one is right, and "none is right" is a hypothesis too. Programs
and texts are right or wrong each for itself. Either way an answer's log-odds are a sum:

    votes + findings + scores                           before the judge is asked
    + log P(verdict | k is right) / P(verdict | not)    for each verdict about it, less where they repeat

`naive`, `posterior` and adaptive sampling share this module. See docs/explanation/posterior.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from statistics import fmean, pstdev

from caps.core.judge_profile import HIGH_WEIGHT, JudgeProfile
from caps.core.settings import setting
from caps.core.types import Answer, Ask, Entrant, Level, Pairing, Verdict

Groups = Sequence[Sequence[Entrant]]

# Where these come from: docs/explanation/posterior.md, "Where the constants come from".
OPEN_VOTES = 0.7  # votes of programs and texts weigh this part of the votes of values
USUAL_POOL = 16  # candidates of the pool that `nobody` is stated for
SMALLER_POOL = 0.55  # log-odds that a candidate gains for each factor e by which its pool is smaller
UNPARSED = 3.0  # log-odds lost by what does not parse or states no answer
DISAGREEING = 0.5  # log-odds lost by differing from most programs on all inputs that separate them
SCORED = 0.5  # log-odds a standard deviation of the score that candidates carry
WRITTEN_TESTS = 1.0  # log-odds a standard deviation of agreement with tests that a model wrote
REPEATED = 0.25  # correlation of the errors of two verdicts about the same answer
SUREST = 0.99  # a verdict is right at most this often, whatever a profile says


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
        found = {"votes": self.vote_odds(groups)}
        if self.exclusive(groups):
            no_answer = [-UNPARSED if group[0].answer == "text" else 0.0 for group in groups]
            found["votes"] = list(map(add, found["votes"], no_answer))
        for name, strength in (
            ("parses", UNPARSED), ("tests_passed", self.tests), ("agreement", DISAGREEING),
        ):  # fmt: skip
            found[name] = [-strength * lost for lost in shortfalls(groups, name)]
        scored = {"score": SCORED, "written": WRITTEN_TESTS, self.feature: self.feature_weight}
        for name, strength in scored.items():
            found[name] = [strength * above for above in deviations(groups, name)]
        return {name: odds for name, odds in found.items() if name == "votes" or any(odds)}

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
    values = [one.features[name] for group in groups for one in group if name in one.features]
    if len(set(values)) < 2:
        return [0.0] * len(groups)
    mean, spread = fmean(values), pstdev(values)
    return [(fmean(one.features.get(name, mean) for one in group) - mean) / spread for group in groups]


def accuracy(judge: JudgeProfile, level: Level) -> float:
    """How often a decided verdict at a level prefers the right one of a right and a wrong candidate."""
    high, low = (judge.e1_high, judge.e1_low) if level is Level.PARTIAL else (judge.e2_high, judge.e2_low)
    return judge.sure * high + (1 - judge.sure) * low


def evidence_of(judge: JudgeProfile, level: Level, verdict: Verdict) -> tuple[float, float] | None:
    """What a verdict adds to the log-odds of A and of B; None for a tie.

    A verdict for A has probability σ(w + b) if A is right, σ(b - w) if B is, and σ(b) if neither is, where w
    is the log-odds of its accuracy and b those of slot A between equals.
    """
    if verdict.outcome == 0.5:
        return None
    sure = verdict.weight >= HIGH_WEIGHT
    if level is Level.PARTIAL:
        share = judge.e1_high if sure else judge.e1_low
    else:
        share = judge.e2_high if sure else judge.e2_low
    worth, bias = logit(max(0.5, share)), logit(judge.first_slot)
    sign = 1 if verdict.outcome == 1 else -1
    neither = log_sigmoid(sign * bias)
    return log_sigmoid(sign * (bias + worth)) - neither, log_sigmoid(sign * (bias - worth)) - neither


class Beliefs:
    """Log-odds of each answer, and the verdicts about it so far.

    Verdicts about the same answer err together, so n of them count as n / (1 + (n - 1) REPEATED).
    """

    def __init__(
        self, judge: JudgeProfile, prior: Sequence[float], nobody: float, *, exclusive: bool
    ) -> None:
        self._judge, self._prior, self._nobody, self.exclusive = judge, prior, nobody, exclusive
        self._verdicts = [0] * len(prior)
        self._evidence = [0.0] * len(prior)

    def add(self, ask: Ask, answer: Answer, answer_of: Mapping[int, int]) -> bool:
        """Count a verdict; whether it says anything: ties and verdicts inside an answer do not."""
        if not (isinstance(ask, Pairing) and isinstance(answer, Verdict)):
            return False
        pair = answer_of[ask.a], answer_of[ask.b]
        found = evidence_of(self._judge, ask.level, answer)
        if found is None or pair[0] == pair[1]:
            return False
        for number, odds in zip(pair, found, strict=True):
            self._verdicts[number] += 1
            self._evidence[number] += odds
        return True

    def chances(self) -> list[float]:
        """How likely each answer is right."""
        odds = [
            prior + evidence / (1 + max(0, count - 1) * REPEATED)
            for prior, evidence, count in zip(self._prior, self._evidence, self._verdicts, strict=True)
        ]
        if not self.exclusive:
            return [math.exp(log_sigmoid(one - self._nobody)) for one in odds]
        top = max(self._nobody, *odds)
        weights = [math.exp(one - top) for one in odds]
        total = sum(weights) + math.exp(self._nobody - top)
        return [weight / total for weight in weights]


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
