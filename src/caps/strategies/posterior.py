"""Posterior: all the evidence in one probability, and the judge asked only where its answer is worth its price.

Beyond the paper. Equal answers are votes, findings and scores weigh in, each verdict multiplies the odds by what
it is worth; the pair asked next buys most for its tokens (docs/explanation/posterior.md).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log
from random import Random
from statistics import fmean, median, pstdev
from typing import NamedTuple

from caps.core.contest import Turn
from caps.core.judging import JudgeProfile
from caps.core.play import Play, compare
from caps.core.settings import setting
from caps.core.types import Entrant, Level, Pairing, Round, Selection, Verdict
from caps.strategies.belief import Evidence, exchange, one_right, several_right
from caps.strategies.dedup import clusters
from caps.strategies.pairings import ORDERS

IN_A_ROW = (1, 2, 3, 5)  # a question may need several answers before it changes anything
LEADERS = 8
GAMES_OF_V1 = 3  # a candidate


class Question(NamedTuple):
    """A pair that may be asked, and how often its worth covers its price."""

    bargain: float
    a: int
    b: int
    level: Level
    tokens: float


class Position:
    """One contest under way: answers, who gives them, what was asked, what is believed."""

    def __init__(self, strategy: "Posterior", entrants: Sequence[Entrant], luck: Sequence[float]) -> None:
        self.strategy = strategy
        groups = clusters(entrants)
        self.entrants = {one.id: one for one in entrants}
        self.luck = dict(zip(self.entrants, luck, strict=True))
        self.members = [_middling(group, self.luck) for group in groups]
        self.answer_of = {one: k for k, ids in enumerate(self.members) for one in ids}
        self.evidence = Evidence(strategy, self.answer_of)
        self.prior = strategy.weigh(groups, entrants)
        alone = sum(len(group) == 1 for group in groups)
        self.several = strategy.answers == "several" or (
            strategy.answers == "auto" and alone >= strategy.apart * len(entrants)
        )
        self.shown: Counter[tuple[int, Level]] = Counter()
        self.seats: Counter[tuple[int, int, Level]] = Counter()
        self.lead: Counter[int] = Counter()
        self.asked, self.spent = 0, 0.0
        full = 2 * fmean(one.sizes[Level.FULL] for one in entrants)
        self.full_game = full + strategy.prompt_tokens
        self.believe()

    def believe(self) -> None:
        """Work out the chances anew."""
        strategy = self.strategy
        if self.several:
            self.chances = several_right(self.prior, self.evidence)
        else:
            self.chances = one_right(self.prior, strategy.votes * log(strategy.nobody), self.evidence)

    def best_first(self) -> list[int]:
        """Answers, the likeliest first; equals by luck."""
        luck = [self.luck[ids[0]] for ids in self.members]
        return sorted(range(len(self.members)), key=lambda k: (-round(self.chances[k], 9), luck[k]))

    def ranking(self) -> list[int]:
        """One candidate of each answer, the likeliest answer first; then the others."""
        order = [self.members[k] for k in self.best_first()]
        return [ids[0] for ids in order] + [one for ids in order for one in ids[1:]]

    def tokens(self, a: int, b: int, level: Level) -> float:
        """What a game costs to read."""
        return self.strategy.prompt_tokens + self.entrants[a].sizes[level] + self.entrants[b].sizes[level]

    def enter(self, ask: Pairing, verdict: Verdict | None) -> None:
        """Note that something was asked, and what was answered."""
        self.asked += 1
        self.spent += self.tokens(ask.a, ask.b, ask.level)
        self.shown.update([(ask.a, ask.level), (ask.b, ask.level)])
        self.seats[ask.a, ask.b, ask.level] += 1
        self.lead[ask.a] += 1
        self.lead[ask.b] -= 1
        if verdict is not None:
            self.evidence.add(ask.a, ask.b, ask.level, verdict)

    def fresh(self, answer: int, level: Level, taken: set[int]) -> int | None:
        """Who is to be shown for an answer: whoever was shown least."""
        free = [one for one in self.members[answer] if one not in taken]
        return min(free, key=lambda one: self.shown[one, level], default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior(JudgeProfile):
    """Ask what is worth asking, and say how sure the choice is; the first fields are the judge's worth."""

    votes: float = setting(2.0, "an answer of n candidates weighs n to this power", least=0)
    nobody: float = setting(2.7, "no right answer weighs as much as one of so many", least=0.01)
    parses: float = setting(3.0, "log-odds of an answer that can be read", least=0)
    tests: float = setting(4.0, "log-odds of passing all public examples against none", least=0)
    score: float = setting(0.5, "log-odds a standard deviation of score", least=0)
    logprob: float = setting(0.3, "log-odds a standard deviation of log-probability", least=0)
    answers: str = setting("auto", "may several answers be right?", choices=("auto", "one", "several"))
    apart: float = setting(0.7, "auto: several, where such a part stands alone", least=0, most=1)
    worth: float = setting(0.006, "gain in probability a full game must promise", least=0, most=1)
    confidence_target: float = setting(0.97, "sure enough to stop", least=0, most=1)
    max_asks: int = setting(48, "questions at most", least=0)
    max_share: float = setting(0.3, "tokens at most, as a part of V1-Infer's", least=0)
    at_once: int = setting(4, "questions a round", least=1)
    prompt_tokens: int = setting(400, "tokens of a question without its views", least=0)
    abstain_below: float = setting(0.0, "flag a choice less likely than this", least=0, most=1)
    order: str = setting("balanced", "who sits in slot A", choices=ORDERS)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Ask rounds of bargains until there is none."""
        position = Position(self, entrants, [rng.random() for _ in entrants])
        while asks := self._round(position):
            facts = {"probability": max(position.chances)}
            games = yield from compare("ask", asks, ranking=position.ranking(), facts=facts)
            for ask, game in zip(asks, games, strict=True):
                position.enter(ask, game.verdict)
            position.believe()
        return self._select(position)

    def weigh(self, groups: Sequence[Sequence[Entrant]], entrants: Sequence[Entrant]) -> list[float]:
        """Log-weight of each answer before anyone is asked: votes, findings, scores."""
        weights = [self.votes * log(len(group)) for group in groups]
        for name, strength in (("parses", self.parses), ("tests_passed", self.tests)):
            for k, group in enumerate(groups):
                weights[k] += strength * max((one.features.get(name, 0.0) for one in group), default=0.0)
        for name, strength in (("score", self.score), ("logprob", self.logprob)):
            known = [one.features[name] for one in entrants if name in one.features]
            if len(known) > 1 and (spread := pstdev(known)) > 0:
                middle = fmean(known)
                for k, group in enumerate(groups):
                    weights[k] += strength * (fmean(one.features.get(name, middle) for one in group) - middle) / spread
        return weights

    def _round(self, position: Position) -> list[Pairing]:
        """The best bargains that do not get in each other's way."""
        if max(position.chances) >= self.confidence_target:
            return []
        seated, taken, challenged = list[Pairing](), set[int](), set[int]()
        room = self.max_share * GAMES_OF_V1 * len(position.entrants) * position.full_game - position.spent
        leader = position.best_first()[0]
        for one in sorted(self._questions(position), key=lambda q: -q.bargain):
            answers = {position.answer_of[one.a], position.answer_of[one.b]} - {leader}
            if one.bargain < 1 or {one.a, one.b} & taken or answers & challenged:
                continue
            asks = self._seat(position, one)
            room -= one.tokens * len(asks)
            if room < 0 or position.asked + len(seated) + len(asks) > self.max_asks:
                break
            seated += asks
            taken |= {one.a, one.b}
            challenged |= answers
            if len(seated) >= self.at_once:
                break
        return seated

    def _questions(self, position: Position) -> Iterator[Question]:
        """Each pair of likely answers, at each level."""
        front = position.best_first()[:LEADERS]
        for level in (Level.PARTIAL, Level.FULL):
            for j, k in combinations(front, 2):
                a, b = position.fresh(j, level, set()), position.fresh(k, level, set())
                top = position.chances[front[0]]
                price = self.worth * position.tokens(a, b, level) / position.full_game
                if position.chances[k] - (top - position.chances[j]) > price:
                    yield self._question(position, j, k, a, b, level)

    def _question(self, position, j, k, a, b, level) -> Question:
        chances = position.chances
        top = max(chances)
        p, q = chances[j], chances[k]
        if position.several:
            p, q = p * (1 - q), q * (1 - p)
        sharpness = position.evidence.news(a, b, level).sharpness(j, k)
        others = len(position.members[j]) > 1 and len(position.members[k]) > 1
        common = min(1.0, self.shared + (0 if others else self.repeats))
        tokens = position.tokens(a, b, level)
        behind = top - max(chances[j], chances[k])
        worth = 0.0
        for times in IN_A_ROW:
            gain = exchange(p, q, sharpness * times / (1 + (times - 1) * common)) - behind
            worth = max(worth, gain / times)
        price = self.worth * tokens / position.full_game
        return Question(worth / price if price > 0 else float("inf"), a, b, level, tokens)

    def _seat(self, position: Position, question: Question) -> list[Pairing]:
        """Who sits in A: the other one at a re-match, else whoever sat there less, else luck."""
        a, b, level = question.a, question.b, question.level
        seats = position.seats

        def key(one: int, other: int) -> tuple[float, ...]:
            return seats[one, other, level], position.lead[one], position.luck[one]

        if key(b, a) < key(a, b):
            a, b = b, a
        orders = [(a, b), (b, a)] if self.order == "both" else [(a, b)]
        return [Pairing(x, y, level, seats[x, y, level]) for x, y in orders]

    def _select(self, position: Position) -> Selection:
        order = position.ranking()
        scores = {one: position.chances[k] for one, k in position.answer_of.items()}
        probability = max(position.chances)
        facts = {"probability": probability}
        if probability < self.abstain_below:
            facts["abstain"] = 1.0
        return Selection(order[0], tuple(order), scores=scores, facts=facts)


def beliefs(strategy: Posterior, entrants: Sequence[Entrant], transcript: Sequence[Turn]) -> list[dict[int, float]]:
    """Chances of every candidate before the first round and after each."""
    position = Position(strategy, entrants, [0.0] * len(entrants))
    found = [{one: position.chances[k] for one, k in position.answer_of.items()}]
    for turn in transcript:
        for ask, answer in zip(turn.round.asks, turn.answers, strict=True):
            if isinstance(ask, Pairing):
                position.enter(ask, answer if isinstance(answer, Verdict) else None)
        position.believe()
        found.append({one: position.chances[k] for one, k in position.answer_of.items()})
    return found


def _middling(group: Sequence[Entrant], luck) -> list[int]:
    """Members of a cluster, those of usual length first."""
    middle = median(one.sizes[Level.FULL] for one in group)
    return [one.id for one in sorted(group, key=lambda one: (abs(one.sizes[Level.FULL] - middle), luck[one.id]))]
