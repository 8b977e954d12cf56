"""The probability of each candidate from votes, findings, scores and answers: docs/explanation/posterior.md.

Two models share the evidence. `Exclusive`: candidates give answers of which at most one is right, and what
agrees is right or wrong together. `Independent`: any number may be right, as with programs; what behaves
alike is right together mostly, not always, so answers about one candidate move its cluster a little less.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter, mul
from statistics import fmean, pstdev
from typing import NamedTuple

from caps.core.judge_profile import JudgeProfile
from caps.core.settings import setting
from caps.core.types import Answer, Ask, Entrant, Level
from caps.strategies.verdicts import Evidence, NewEvidence

WEAKER_JUDGES = {0.0: 0.4, 0.35: 0.6}  # share of the stated gap -> probability, for a judge worse than stated
IN_A_ROW = (1, 2, 3, 5)  # how many answers a question may need before it changes anything
SAME_PROBLEM = 0.3  # correlation of candidates by how difficult their problem is
SURELY = 0.005  # probabilities stay between this and 1 minus this

Groups = Sequence[Sequence[Entrant]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainJudge(JudgeProfile):
    """A judge profile, with how far it and the clusters are to be trusted."""

    doubt: float = setting(0.15, "chance that the judge is worse than its profile says", least=0, most=1)
    impure: float = setting(
        0.05, "how often two that behave alike are not both right or both wrong", least=0, most=1
    )
    difference: str = setting(
        "full",
        "what a verdict on the input that separates two programs is worth: one on these views",
        choices=("full", "partial"),
    )

    def evidence(
        self,
        unit_of: Mapping[int, int],
        answer_of: Mapping[int, int],
        differences: Mapping[int, Collection[int]],
        *,
        keep_form: bool = True,
    ) -> Evidence:
        """What the answers of this judge say."""
        level = Level.FULL if self.difference == "full" else Level.PARTIAL
        return Evidence(self, unit_of, answer_of, differences, difference_as=level, keep_form=keep_form)


def weigh(
    groups: Groups, *, votes: float, failing: Mapping[str, float], scored: Mapping[str, float]
) -> list[float]:
    """Log-weight of each answer before the judge is asked: votes, failed checks, scores."""
    fallen, risen = _fail(groups, failing), _stand_out(groups, scored)
    return [votes * math.log(votes_for(group)) + fallen[k] + risen[k] for k, group in enumerate(groups)]


def votes_for(group: Sequence[Entrant]) -> int:
    """How many candidates give an answer; copies of a text without an answer count once."""
    return 1 if group[0].answer == "text" else len(group)


def _fail(groups: Groups, strength: Mapping[str, float]) -> list[float]:
    """Log-odds each answer loses by a share below 1: half for falling short at all, half for how far."""
    best = {
        name: [max(one.features.get(name, 1.0) for one in group) for group in groups] for name in strength
    }
    return [
        -sum(strength[name] * ((best[name][k] < 1) + 1 - best[name][k]) / 2 for name in strength)
        for k in range(len(groups))
    ]


def _stand_out(groups: Groups, strength: Mapping[str, float]) -> list[float]:
    """Log-odds each answer gains by what its candidates score above the mean, in standard deviations."""
    gained = [0.0] * len(groups)
    for name in strength:
        known = [one.features[name] for group in groups for one in group if name in one.features]
        if len(set(known)) > 1:
            middle, spread = fmean(known), pstdev(known)
            for k, group in enumerate(groups):
                typical = fmean(one.features.get(name, middle) for one in group)
                gained[k] += strength[name] * (typical - middle) / spread
    return gained


class Relations(NamedTuple):
    """What candidates have to do with each other.

    The number of the answer that each gives; the one that is asked about in place of each, the same for all
    copies of a text; and those from which a known difference separates each.
    """

    answer_of: Mapping[int, int]
    originals: Mapping[int, int]
    differences: Mapping[int, Collection[int]]


class Exclusive:
    """The chance of each answer if at most one is right; `prior` and `none` are log-weights.

    The stated accuracy of the judge is not taken on trust: with a chance of `doubt` it is one of the weaker
    ones, and the one that explains the answers better counts for more.
    """

    def __init__(
        self,
        prior: Sequence[float],
        none: float,
        relations: Relations,
        judge: UncertainJudge,
    ) -> None:
        answer_of, originals, differences = relations
        self._prior, self._none, self._answer_of, self._judge = prior, none, answer_of, judge
        self._chances: list[float] = []
        self._texts = Counter(answer_of[one] for one in set(originals.values()))
        self._evidence = judge.evidence(answer_of, answer_of, differences)
        self._settle()

    @property
    def uses_ratings(self) -> bool:
        """Whether ratings of this judge say anything."""
        return self._evidence.uses_ratings

    def chance(self, one: int) -> float:
        """How likely a candidate is to be right."""
        return self._chances[self._answer_of[one]]

    def update(self, asks: Sequence[Ask], answers: Sequence[Answer]) -> None:
        """Update with a round; a game inside one answer carries no information."""
        for ask, answer in zip(asks, answers, strict=True):
            if self._is_between_answers(ask):
                self._evidence.add(ask, answer)
        self._settle()

    def chances_if(self, asks: Sequence[Ask], answers: Sequence[Answer]) -> dict[int, float]:
        """How likely each candidate would be if these answers had been given to all asks so far."""
        counted = [pair for pair in zip(asks, answers, strict=True) if self._is_between_answers(pair[0])]
        surprises = self._evidence.surprises([ask for ask, _ in counted], [answer for _, answer in counted])
        support = [0.0] * len(self._evidence.support)
        for news, surprise in zip(self._evidence.entered, surprises, strict=True):
            for one, x in news.design.items():
                support[one] += x * surprise / news.spread
        chances = self._chances_from(support)[0]
        return {one: chances[k] for one, k in self._answer_of.items()}

    def _is_between_answers(self, ask: Ask) -> bool:
        return len({self._answer_of[one] for one in ask.entrants}) == len(ask.entrants)

    def ceiling(self, a: int, b: int | None) -> float:
        """More than any answer about two, or about one and the likeliest other, can win."""
        j, k = self._rivals(a, b)
        return self._chances[j] + self._chances[k] - max(self._chances)

    def gain(self, a: int, b: int | None, level: Level) -> float:
        """Probability won an ask, for one ask or several in a row, whichever is best; `b` None: a rating."""
        j, k = self._rivals(a, b)
        if self._chances[k] > self._chances[j]:
            j, k = k, j
        kept, gained, behind = self._chances[j], self._chances[k], max(self._chances) - self._chances[j]
        news = self._evidence.news(a, b, level)
        apart = news.design.get(j, 0.0) - news.design.get(k, 0.0)
        once, swapped = self._distance(news, j, k), apart**2 / news.spread
        others = self._texts[j] > 1 and self._texts[k] > 1
        common = min(1.0, self._judge.shared + (0.0 if others else self._judge.repeats))
        found = 0.0
        for times in IN_A_ROW:  # several would be asked in both orders, so that the pull of a slot cancels
            sharpness = self._sharpness * (
                once if times == 1 else swapped * times / (1 + (times - 1) * common)
            )
            found = max(found, (exchange(kept, gained, sharpness) - behind) / times)
        return found

    def _rivals(self, a: int, b: int | None) -> tuple[int, int]:
        """The two answers that are compared; a rating compares one with the likeliest other."""
        j = self._answer_of[a]
        others = (k for k in range(len(self._chances)) if k != j)
        return j, max(others, key=self._chances.__getitem__) if b is None else self._answer_of[b]

    def _distance(self, news: NewEvidence, j: int, k: int) -> float:
        """Squared distance, in its own spread, between `j` is right and `k` is right."""
        x, spread = dict(news.design), news.spread
        for place, row, own in self._unknown:
            along = x.pop(place, 0.0)
            if along:
                for one in {j, k, *x}:
                    x[one] = x.get(one, 0.0) - along * row[one] / own
                spread += along**2 / own
        return (x.get(j, 0.0) - x.get(k, 0.0)) ** 2 / spread

    def _settle(self) -> None:
        """Update the chances with all evidence."""
        self._chances, self._sharpness, self._unknown = self._chances_from(list(self._evidence.support))

    def _chances_from(
        self, support: list[float]
    ) -> tuple[list[float], float, list[tuple[int, list[float], float]]]:
        """The chances by this support, how sharp they are, and the unknowns that were integrated out."""
        strain = [list(row) for row in self._evidence.strain]
        unknown = list[tuple[int, list[float], float]]()
        for place, variance in self._evidence.unknown.items():
            row, own = strain[place], strain[place][place] + 1 / variance
            if row[place]:
                height = support[place]
                support = [x - y * height / own for x, y in zip(support, row, strict=True)]
                strain = [
                    [x - z * y / own for x, y in zip(other, row, strict=True)]
                    for other, z in zip(strain, row, strict=True)
                ]
                unknown.append((place, row, own))
        games = [(p, support[k], strain[k][k]) for k, p in enumerate(self._prior)]
        worlds = []
        doubt = self._judge.doubt
        for factor, weight in (
            (1.0, 1 - doubt),
            *((share, doubt * part) for share, part in WEAKER_JUDGES.items()),
        ):
            if weight > 0:
                logs = [p + factor * g - factor**2 * a / 2 for p, g, a in games]
                worlds.append((factor, [math.log(weight) + x for x in (*logs, self._none)]))
        top = max(max(logs) for _, logs in worlds)
        found = [(factor, [math.exp(x - top) for x in logs]) for factor, logs in worlds]
        total = sum(sum(weights) for _, weights in found)
        sharpness = sum(factor**2 * sum(weights) for factor, weights in found) / total
        rows = zip(*(weights for _, weights in found), strict=True)
        return [sum(row) / total for row in rows][:-1], sharpness, unknown


class _Step(NamedTuple):
    """How an answer moves the means, which depends on the ask alone but for its surprise."""

    of_design: Callable[[Sequence[float]], tuple[float, ...]]
    weights: list[float]
    along: list[float]
    total: float

    def applied(self, mean: Sequence[float], surprise: float) -> list[float]:
        """The means after the answer."""
        error = surprise - sum(map(mul, self.of_design(mean), self.weights))
        return [m + v * error / self.total for m, v in zip(mean, self.along, strict=True)]


def _bounded(chance: float) -> float:
    return min(1 - SURELY, max(SURELY, chance))


class Independent:
    """The chance of each candidate if any number may be right: a normal approximation, updated in place.

    `odds` are log-odds by answer. Two candidates of one answer are alike but for a chance of `impure`; copies
    of a text are alike for certain.
    """

    def __init__(
        self,
        odds: Sequence[float],
        relations: Relations,
        judge: UncertainJudge,
    ) -> None:
        answer_of, originals, differences = relations
        texts = list(dict.fromkeys(originals.values()))
        places = {one: place for place, one in enumerate(texts)}
        self._unit_of = {one: places[original] for one, original in originals.items()}
        self._evidence = judge.evidence(self._unit_of, answer_of, differences, keep_form=False)
        answers = [answer_of[one] for one in texts]
        chances = [1 / (1 + math.exp(-odds[k])) for k in answers]
        spreads = [math.sqrt(p * (1 - p)) for p in chances]
        alike = max(1 - judge.impure, SAME_PROBLEM)
        unknown = self._evidence.unknown
        self._covariance = [
            [
                s * t * (1.0 if i == j else alike if k == m else SAME_PROBLEM)
                for j, (m, t) in enumerate(zip(answers, spreads, strict=True))
            ]
            + [0.0] * len(unknown)
            for i, (k, s) in enumerate(zip(answers, spreads, strict=True))
        ]
        for place, variance in unknown.items():
            self._covariance.append([variance * (k == place) for k in range(len(chances) + len(unknown))])
        self._mean = [*chances, *(0.0 for _ in unknown)]
        self._first_mean, self._steps = self._mean, list[_Step]()
        self._count = len(chances)
        self._known_best: int | None = chances.index(max(chances))

    @property
    def uses_ratings(self) -> bool:
        """Whether ratings of this judge say anything."""
        return self._evidence.uses_ratings

    def chance(self, one: int) -> float:
        """How likely a candidate is to be right."""
        return _bounded(self._mean[self._unit_of[one]])

    def update(self, asks: Sequence[Ask], answers: Sequence[Answer]) -> None:
        """Update with the answers of a round."""
        for ask, answer in zip(asks, answers, strict=True):
            if (news := self._evidence.add(ask, answer)) is not None:
                weights, of_design = list(news.design.values()), itemgetter(*news.design)
                along = [sum(map(mul, of_design(row), weights)) for row in self._covariance]
                total = sum(map(mul, of_design(along), weights)) + news.spread
                step = _Step(of_design, weights, along, total)
                self._mean = step.applied(self._mean, news.surprise)
                self._steps.append(step)
                for row, v in zip(self._covariance, along, strict=True):
                    share = v / total
                    row[:] = [c - share * w for c, w in zip(row, along, strict=True)]
        self._known_best = None

    def chances_if(self, asks: Sequence[Ask], answers: Sequence[Answer]) -> dict[int, float]:
        """How likely each candidate would be if these answers had been given to all asks so far."""
        mean = self._first_mean
        for step, surprise in zip(self._steps, self._evidence.surprises(asks, answers), strict=True):
            mean = step.applied(mean, surprise)
        return {one: _bounded(mean[place]) for one, place in self._unit_of.items()}

    @property
    def _best(self) -> int:
        """The likeliest candidate; computed when a question is weighed."""
        if self._known_best is None:
            self._known_best = max(range(self._count), key=lambda one: round(self._mean[one], 9))
        return self._known_best

    def ceiling(self, a: int, b: int | None) -> float:
        """More than any answer about these can win."""
        best, rows = self._best, self._covariance
        return max(
            _excess(
                self._mean[best] - self._mean[one],
                math.sqrt(max(0.0, rows[one][one] + rows[best][best] - 2 * rows[one][best])),
            )
            for one in self._challengers(a, b)
        )

    def gain(self, a: int, b: int | None, level: Level) -> float:
        """Probability won an ask, by exchanging the likeliest for another, for one ask or several.

        Several would be asked in both orders, so that the pull of a slot cancels.
        """
        news, best, rows = self._evidence.news(a, b, level), self._best, self._covariance
        weights, of_design = list(news.design.values()), itemgetter(*news.design)
        along = {k: sum(map(mul, of_design(rows[k]), weights)) for k in news.design}
        variance = sum(map(mul, along.values(), weights))
        pull = [(place, news.design[place]) for place in self._evidence.unknown if place in news.design]
        swapped = variance - sum(x * (2 * along[k] - x * rows[k][k]) for k, x in pull)
        lead, found = sum(map(mul, of_design(rows[best]), weights)), 0.0
        for one in self._challengers(a, b):
            behind = self._mean[best] - self._mean[one]
            once = sum(map(mul, of_design(rows[one]), weights)) - lead
            several = once - sum(x * (rows[one][k] - rows[best][k]) for k, x in pull)
            found = max(found, _excess(behind, abs(once) / math.sqrt(variance + news.spread)))
            for times in IN_A_ROW[1:]:
                deviation = abs(several) / math.sqrt(swapped + news.spread / times)
                found = max(found, _excess(behind, deviation) / times)
        return found

    def _challengers(self, a: int, b: int | None) -> list[int]:
        """Candidates that an answer may put first: those shown, or the next after a rating of the best."""
        best = self._best
        found = [k for one in (a, b) if one is not None and (k := self._unit_of[one]) != best]
        return found or [max((k for k in range(self._count) if k != best), key=self._mean.__getitem__)]


def _excess(behind: float, deviation: float) -> float:
    """Mean of what a normal number of this deviation is above `behind`, counted from 0."""
    if deviation < 1e-9:
        return 0.0
    z = behind / deviation
    return deviation * (math.exp(-z * z / 2) / math.sqrt(2 * math.pi) - z * normal_cdf(-z))


def exchange(kept: float, gained: float, sharpness: float) -> float:
    """What may be won by asking before one answer is kept or exchanged for another (Margrabe's option).

    `kept`: chance that only the first is right; `gained`: that only the second is.
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
