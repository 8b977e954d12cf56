"""Posterior: all the evidence in one probability, and the judge asked only where that is worth its price.

Beyond the paper. Candidates that agree are votes, findings and scores weigh in, each verdict multiplies the
odds by what it is worth, and the pair asked next buys most for its tokens. Where nearly all candidates
differ, votes say nothing: then it plays `sprint` and reckons along. The model: docs/explanation/posterior.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import log
from random import Random
from statistics import fmean, median
from typing import ClassVar, NamedTuple

from caps.core.contest import Turn
from caps.core.judge_profile import JudgeProfile
from caps.core.play import Capabilities, Play
from caps.core.settings import setting
from caps.core.types import Answer, Ask, Entrant, Level, Pairing, Round, Selection, Verdict
from caps.strategies.belief import exchange, one_right, several_right, weigh
from caps.strategies.dedup import clusters, middling
from caps.strategies.pairings import ORDERS, Seats
from caps.strategies.sprint import Sprint
from caps.strategies.verdicts import Evidence

IN_A_ROW = (1, 2, 3, 5)  # how many answers a question may need before it changes anything
LEADERS = 8
GAMES_OF_V1 = 3  # a candidate
STANDS_OUT = 2.0  # in log-odds: three votes among single ones, or examples that few pass


class Question(NamedTuple):
    """A pair that may be asked, and how often its worth covers its price."""

    a: int
    b: int
    level: Level
    option: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior(JudgeProfile):
    """Ask what is worth asking, and say how sure the choice is; the first fields are the judge's worth."""

    capabilities: ClassVar = Capabilities(uses_judge_profile=True)

    votes: float = setting(2.1, "an answer of n candidates weighs n to this power", least=0)
    nobody: float = setting(2.0, "no right answer weighs as much as one of so many", least=0.01)
    parses: float = setting(3.0, "log-odds lost by what does not parse", least=0)
    tests: float = setting(6.0, "log-odds lost by failing all public examples", least=0)
    score: float = setting(0.5, "log-odds a standard deviation of score", least=0)
    logprob: float = setting(0.0, "log-odds a standard deviation of log-probability", least=0)
    answers: str = setting("auto", "may several answers be right?", choices=("auto", "one", "several"))
    apart: float = setting(
        0.7, "auto: several, where such a part stands alone and none stands out", least=0, most=1
    )
    doubt: float = setting(0.15, "chance that the judge is worse than its profile says", least=0, most=1)
    worth: float = setting(0.002, "gain in probability a full game must promise", least=0, most=1)
    confidence_target: float = setting(0.98, "sure enough to stop", least=0, most=1)
    max_asks: int = setting(48, "questions at most", least=0)
    max_share: float = setting(0.5, "tokens at most, as a part of V1-Infer's", least=0)
    at_once: int = setting(4, "questions a round", least=1)
    prompt_tokens: int = setting(400, "tokens of a question without its views", least=0)
    abstain_below: float = setting(0.0, "flag a choice less likely than this", least=0, most=1)
    order: str = setting("balanced", "who sits in slot A", choices=ORDERS)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Ask rounds of bargains until there is none."""
        position = Position(self, entrants, [rng.random() for _ in entrants])
        if position.several and any(one.option >= 1 for one in position.questions()):
            ranking = yield from self._sprint(position, entrants, rng)
            return position.selection(ranking)
        while not position.several and (asks := position.options()):
            ranking = position.ranking()
            answers = yield Round("ask", tuple(asks), tuple(ranking), facts=position.facts(ranking[0]))
            position.enter(asks, answers)
        return position.selection(position.ranking())

    def _sprint(self, position: "Position", entrants: Sequence[Entrant], rng: Random) -> Play[list[int]]:
        """Let `sprint` ask, within the same limits; the order it leaves."""
        play = Sprint(order=self.order).play(entrants, rng)
        try:
            round_ = next(play)
            while position.afford(round_.asks):
                answers = yield replace(round_, facts=position.facts(round_.ranking[0]))
                position.enter(round_.asks, answers)
                round_ = play.send(answers)
        except StopIteration as end:
            return list(end.value.order)
        return list(round_.ranking)

    def several(self, groups: Sequence[Sequence[Entrant]], prior: Sequence[float]) -> bool:
        """Whether several answers may be right: nearly all stand alone, and none stands out beforehand."""
        alone, everyone = sum(len(group) == 1 for group in groups), sum(map(len, groups))
        flat = alone >= self.apart * everyone and max(prior) - median(prior) < STANDS_OUT
        return flat if self.answers == "auto" else self.answers == "several"

    def prior(self, groups: Sequence[Sequence[Entrant]]) -> list[float]:
        """Log-weight of each answer before anyone is asked."""
        failing = {"parses": self.parses, "tests_passed": self.tests}
        scored = {"score": self.score, "logprob": self.logprob}
        return weigh(groups, votes=self.votes, failing=failing, scored=scored)


class Position:
    """One contest under way: the answers and who gives them, what was asked, what is believed."""

    def __init__(self, strategy: Posterior, entrants: Sequence[Entrant], luck: Sequence[float]) -> None:
        groups = clusters(entrants)
        self.strategy, self._sizes = strategy, {one.id: one.sizes for one in entrants}
        self._luck = dict(zip(self._sizes, luck, strict=True))
        self._members = [middling(group, self._luck) for group in groups]
        self.answer_of = {one: k for k, ids in enumerate(self._members) for one in ids}
        self._prior, self._evidence = strategy.prior(groups), Evidence(strategy, self.answer_of)
        self.several = strategy.several(groups, self._prior)
        self._full_game = strategy.prompt_tokens + 2 * fmean(one.sizes[Level.FULL] for one in entrants)
        self._room = strategy.max_share * GAMES_OF_V1 * len(entrants) * self._full_game
        self._seats = Seats(self._luck)
        self._believe()

    def enter(self, asks: Sequence[Ask], answers: Sequence[Answer]) -> None:
        """Take in a round."""
        for ask, answer in zip(asks, answers, strict=True):
            if not isinstance(ask, Pairing):
                continue
            self._room -= self._tokens(ask.entrants, ask.level)
            self._seats.note(ask)
            if isinstance(answer, Verdict) and self.answer_of[ask.a] != self.answer_of[ask.b]:
                self._evidence.add(ask.a, ask.b, ask.level, answer)
        self._believe()

    def afford(self, asks: Sequence[Ask]) -> bool:
        """Whether these may still be asked."""
        tokens = sum(self._tokens(ask.entrants, ask.level) for ask in asks)
        return self._seats.asked + len(asks) <= self.strategy.max_asks and tokens <= self._room

    def ranking(self) -> list[int]:
        """One candidate of each answer, the likeliest answer first; then the others."""
        order = [self._members[k] for k in self._best_first()]
        return [ids[0] for ids in order] + [one for ids in order for one in ids[1:]]

    def chances(self) -> dict[int, float]:
        """How likely each candidate is to be right."""
        return {one: self._chances[k] for one, k in sorted(self.answer_of.items())}

    def facts(self, chosen: int) -> dict[str, float]:
        """How likely the choice is to be right, and whether that is too little."""
        probability = self._chances[self.answer_of[chosen]]
        flag = {"abstain": 1.0} if probability < self.strategy.abstain_below else {}
        return {"probability": probability} | flag

    def selection(self, order: Sequence[int]) -> Selection:
        """The choice as it stands."""
        facts = self.facts(order[0])
        return Selection(order[0], tuple(order), scores=self.chances(), facts=facts, score_kind="probability")

    def options(self) -> list[Pairing]:
        """The next round: the best bargains that do not get in each other's way."""
        if max(self._chances) >= self.strategy.confidence_target:
            return []
        asks, shown, met, leader = list[Pairing](), set[int](), set[int](), self._best_first()[0]
        for one in sorted(self.questions(), key=lambda question: -question.option):
            answers = {self.answer_of[one.a], self.answer_of[one.b]} - {leader}
            if one.option < 1 or len(asks) >= self.strategy.at_once:
                break
            if not ({one.a, one.b} & shown or answers & met):
                more = [*asks, *self._seats.seat(one.a, one.b, one.level, order=self.strategy.order)]
                if not self.afford(more):
                    break
                asks, shown, met = more, shown | {one.a, one.b}, met | answers
        return asks

    def questions(self) -> Iterator[Question]:
        """Each pair of likely answers at each level that may be worth its price."""
        front, chances, strategy = self._best_first()[:LEADERS], self._chances, self.strategy
        for level in (Level.PARTIAL, Level.FULL):
            who = {k: self._seats.least_shown(self._members[k], level) for k in front}
            for j, k in combinations(front, 2):
                tokens = self._tokens((who[j], who[k]), level)
                price = strategy.worth * tokens / self._full_game
                behind = chances[front[0]] - chances[j]
                if chances[k] - behind > price:  # no question is worth more than that
                    worth = self._worth(j, k, self._sharpness(who[j], who[k], level), behind)
                    yield Question(who[j], who[k], level, worth / price if price else float("inf"))

    def _worth(self, j: int, k: int, sharpness: float, behind: float) -> float:
        """Gain in probability an ask, for one ask or several in a row, whichever is best."""
        kept, gained = self._chances[j], self._chances[k]
        if self.several:
            kept, gained = kept * (1 - gained), gained * (1 - kept)
        others = len(self._members[j]) > 1 and len(self._members[k]) > 1
        common = min(1.0, self.strategy.shared + (0.0 if others else self.strategy.repeats))
        series = [(times, sharpness * times / (1 + (times - 1) * common)) for times in IN_A_ROW]
        return max((exchange(kept, gained, telling) - behind) / times for times, telling in series)

    def _sharpness(self, a: int, b: int, level: Level) -> float:
        news = self._evidence.news(a, b, level)
        return self._keen * news.sharpness(self.answer_of[a], self.answer_of[b])

    def _believe(self) -> None:
        strategy, games = self.strategy, self._evidence
        if self.several:  # nobody is right, against all candidates as if they gave one answer
            odds = strategy.votes * log(strategy.nobody / len(self._sizes))
            self._chances, self._keen = several_right(self._prior, odds, games)
        else:
            nobody = strategy.votes * log(strategy.nobody)
            self._chances, self._keen = one_right(self._prior, nobody, games, strategy.doubt)

    def _best_first(self) -> list[int]:
        luck = [self._luck[ids[0]] for ids in self._members]
        return sorted(range(len(luck)), key=lambda k: (-round(self._chances[k], 9), luck[k]))

    def _tokens(self, shown: Sequence[int], level: Level) -> float:
        return self.strategy.prompt_tokens + sum(self._sizes[one][level] for one in shown)


def beliefs(
    strategy: Posterior, entrants: Sequence[Entrant], transcript: Sequence[Turn]
) -> list[dict[int, float]]:
    """How likely each candidate was to be right before the first round and after each."""
    position = Position(strategy, entrants, [0.0] * len(entrants))
    found = [position.chances()]
    for turn in transcript:
        position.enter(turn.round.asks, turn.answers)
        found.append(position.chances())
    return found
