"""Posterior: all evidence in one probability; the judge is asked only where an answer is worth its price.

Beyond the paper. Candidates that agree are votes, findings and scores weigh in, each answer of the judge
moves the odds by what it is worth, and the next question is the one that promises most per token. Answers
compared by value exclude each other; programs and texts do not. Copies of a text without an answer are no
votes: a refusal repeats too. See docs/explanation/posterior.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import log
from random import Random
from statistics import fmean
from typing import Any, ClassVar, NamedTuple, cast

from caps.core.contest import Turn
from caps.core.judge_profile import HIGH_WEIGHT
from caps.core.play import Capabilities, Play
from caps.core.settings import setting
from caps.core.types import (
    Answer,
    Ask,
    Entrant,
    Influence,
    Level,
    Pairing,
    Rating,
    Round,
    Selection,
    Solo,
    Unanswered,
    Verdict,
    partial_views_pay,
    shown_size,
)
from caps.strategies.belief import Exclusive, Independent, Relations, UncertainJudge, votes_for, weigh
from caps.strategies.dedup import clusters, middling
from caps.strategies.pairings import ORDERS, SlotHistory

LEADERS = 8
FOREMOST = 3  # one of these is in every game where several may be right
GAMES_OF_V1 = 3  # a candidate
USUAL_POOL = 16  # candidates: what `nobody` is stated for
WEIGHTS = {  # weights of what is known before the judge is asked -> their names in an explanation
    "votes": "votes", "loose_votes": "votes", "parses": "parses", "tests": "tests_passed",
    "survived": "agreement", "score": "score", "logprob": "logprob", "written": "written tests",
    "feature_weight": "",
}  # fmt: skip
FEATURES = {  # weights -> the feature that each of them weighs
    "parses": "parses", "tests": "tests_passed", "survived": "agreement", "score": "score",
    "logprob": "logprob", "written": "written",
}  # fmt: skip
FEWER = 0.55  # how much surer a candidate of a smaller pool is, in log-odds for each halving of it / log 2


class Question(NamedTuple):
    """A possible question, a pair or a rating; `option` is its expected gain divided by its price."""

    a: int
    b: int | None
    level: Level
    option: float

    @property
    def shown(self) -> tuple[int, ...]:
        """The candidates that the judge reads."""
        return (self.a,) if self.b is None else (self.a, self.b)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior(UncertainJudge):
    """Ask what is worth its price, and report the probability of the choice; inherited fields: the judge."""

    capabilities: ClassVar = Capabilities(
        uses_judge_profile=True, uses_feature=True, asks_about_differences=True
    )

    votes: float = setting(2.1, "an answer of n candidates weighs n to this power", least=0)
    loose_votes: float = setting(1.5, "the same where several answers may be right", least=0)
    loose_odds: float = setting(
        0.0,
        "log-odds added to every candidate where several answers may be right",
        least=-9,
        most=9,
    )
    nobody: float = setting(2.0, "weight of the case that no answer is right, in candidates", least=0.01)
    parses: float = setting(3.0, "log-odds lost by what does not parse or states no answer", least=0)
    tests: float = setting(5.0, "log-odds lost by failing all public examples", least=0)
    survived: float = setting(
        0.5, "log-odds lost by differing from most programs on all inputs that separate them", least=0
    )
    score: float = setting(0.5, "log-odds a standard deviation of score", least=0)
    logprob: float = setting(0.0, "log-odds a standard deviation of log-probability", least=0)
    feature: str = setting("", "a further number of candidates that counts, such as rm_score")
    feature_weight: float = setting(0.5, "log-odds a standard deviation of the feature", least=0)
    written: float = setting(1.0, "log-odds a standard deviation of agreement with written tests", least=0)
    answers: str = setting(
        "auto",
        "how many answers may be right; auto: one if compared by value",
        choices=("auto", "one", "several"),
    )
    worth: float = setting(
        0.08, "gain in probability that all of V1-Infer's tokens would have to promise", least=0
    )
    confidence_target: float = setting(0.98, "sure enough to stop", least=0, most=1)
    max_asks: int = setting(48, "questions at most", least=0)
    max_share: float = setting(0.5, "tokens at most, as a part of V1-Infer's", least=0)
    at_once: int = setting(4, "questions a round", least=1)
    prompt_tokens: int = setting(400, "tokens of a question without its views", least=0)
    calibrated: bool = setting(False, "the strengths of votes were fitted to such cases")  # noqa: FBT003
    abstain_below: float = setting(0.0, "flag a choice less likely than this", least=0, most=1)
    order: str = setting("balanced", "which candidate is shown first, in slot A", choices=ORDERS)

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Ask rounds of worthwhile questions until there are none."""
        state = ContestState(self, entrants, [rng.random() for _ in entrants])
        while asks := state.options():
            ranking = state.ranking()
            answers = yield Round("ask", tuple(asks), tuple(ranking), facts=state.facts(ranking[0]))
            state.update(asks, answers)
        return state.selection(state.ranking())

    def explain(
        self,
        entrants: Sequence[Entrant],
        rounds: Iterable[tuple[Sequence[Ask], Sequence[Answer]]],
        chosen: int,
    ) -> tuple[Influence, ...]:
        """What moved the probability of the chosen candidate: votes, findings, scores, then each answer.

        Each is the probability with it less the one without it but with all before it.
        """
        luck, without = [0.0] * len(entrants), dict.fromkeys(WEIGHTS, 0.0)
        found = list[Influence]()

        def note(what: str, state: "ContestState") -> None:
            now = state.chances()[chosen]
            found.append(Influence(what, now, now - found[-1].probability if found else now))

        note("nothing known", ContestState(replace(cast(Any, self), **without), entrants, luck))
        features = {name for one in entrants for name in one.features} | {""}
        for name, what in WEIGHTS.items():
            del without[name]
            if (self.feature if name == "feature_weight" else FEATURES.get(name, "")) not in features:
                continue  # no candidate has it, so it changes nothing
            note(what or self.feature, ContestState(replace(cast(Any, self), **without), entrants, luck))
        state = ContestState(self, entrants, luck)
        for asks, answers in rounds:
            for ask, answer in zip(asks, answers, strict=True):
                state.update([ask], [answer])
                note(_describe_answer(ask, answer), state)
        return tuple(one for one in found if one.change or one is found[0])

    def follow(
        self, entrants: Sequence[Entrant], asks: Sequence[Ask], answers: Sequence[Answer]
    ) -> Iterator[dict[int, float]]:
        """The probability of each candidate before the first answer and after each."""
        state = ContestState(self, entrants, [0.0] * len(entrants))
        yield state.chances()
        for ask, answer in zip(asks, answers, strict=True):
            state.learn([ask], [answer])
            yield state.chances()

    def suppose(
        self,
        entrants: Sequence[Entrant],
        asks: Sequence[Ask],
        answers: Sequence[Answer],
        instead: Iterable[Sequence[Answer]],
    ) -> Iterator[dict[int, float]]:
        """The probabilities after all answers, for each list of answers of the same kinds given instead."""
        state = ContestState(self, entrants, [0.0] * len(entrants))
        state.learn(asks, answers)
        for others in instead:
            yield state.chances_if(asks, others)

    def several(self, groups: Sequence[Sequence[Entrant]]) -> bool:
        """Whether several answers may be right: none of them is compared by value."""
        if self.answers != "auto":
            return self.answers == "several"
        return not any(group[0].answer == "value" for group in groups)

    def odds_alone(self, count: int) -> float:
        """Log-odds of a candidate without an equal in a pool of `count`, where several may be right."""
        return surer_in_pool_of(count) - self.loose_votes * log(self.nobody) + self.loose_odds

    def weight_of_none(self, count: int) -> float:
        """Log-weight of no answer being right in a pool of `count`, where at most one is."""
        return self.votes * log(self.nobody) - surer_in_pool_of(count)

    def prior(self, groups: Sequence[Sequence[Entrant]]) -> list[float]:
        """Log-weight of each answer before the judge is asked."""
        failing = {"parses": self.parses, "tests_passed": self.tests, "agreement": self.survived}
        scored = {"score": self.score, "logprob": self.logprob, "written": self.written}
        scored |= {self.feature: self.feature_weight} if self.feature else {}
        several = self.several(groups)
        votes = self.loose_votes if several else self.votes
        weights = weigh(groups, votes=votes, failing=failing, scored=scored)
        if several:
            return weights
        return [
            weight - self.parses if group[0].answer == "text" else weight
            for weight, group in zip(weights, groups, strict=True)
        ]


def surer_in_pool_of(count: int) -> float:
    """Log-odds by which a candidate is surer in a pool of this size than in one of the usual size."""
    return FEWER * log(USUAL_POOL / count)


class ContestState:
    """The state of a contest: answers and their candidates, what was asked, current probabilities."""

    def __init__(self, strategy: Posterior, entrants: Sequence[Entrant], luck: Sequence[float]) -> None:
        self.strategy, self._entrants = strategy, {one.id: one for one in entrants}
        self._luck = dict(zip(self._entrants, luck, strict=True))
        groups = sorted(clusters(entrants), key=lambda group: self._luck[group[0].id])
        self._members = [middling(group, self._luck) for group in groups]
        self.answer_of = {one: k for k, ids in enumerate(self._members) for one in ids}
        self._originals = _originals(self._members, self._entrants)
        self._ids = sorted(self.answer_of)
        full_game = strategy.prompt_tokens + 2 * fmean(one.sizes[Level.FULL] for one in entrants)
        self._everything = GAMES_OF_V1 * len(entrants) * full_game or 1.0
        self._room = strategy.max_share * self._everything
        self._slots = SlotHistory(self._luck)
        self._unanswered = set[tuple[frozenset[int], Level]]()
        self._levels = self._worthwhile(entrants)
        prior, self.several = strategy.prior(groups), strategy.several(groups)
        differences = {one.id: one.differences for one in entrants}
        count = sum(map(votes_for, groups))
        known = Relations(self.answer_of, self._originals, differences)
        self._belief: Exclusive | Independent
        if self.several:
            base = strategy.odds_alone(count)
            self._belief = Independent([base + x for x in prior], known, strategy)
        else:
            none = strategy.weight_of_none(count)
            self._belief = Exclusive(prior, none, known, strategy)

    def update(self, asks: Sequence[Ask], answers: Sequence[Answer]) -> None:
        """Update with the answers of a round; a question that went unanswered is not asked again."""
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, Unanswered):
                self._unanswered.add((frozenset(ask.entrants), ask.level))
            self._room -= self._tokens(ask.entrants, ask.level)
            self._slots.record(ask)
        self.learn(asks, answers)

    def learn(self, asks: Sequence[Ask], answers: Sequence[Answer]) -> None:
        """Update the probabilities alone; nothing can be asked after that."""
        self._belief.update(asks, answers)

    def afford(self, asks: Sequence[Ask]) -> bool:
        """Whether these may still be asked."""
        tokens = sum(self._tokens(ask.entrants, ask.level) for ask in asks)
        return self._slots.asked + len(asks) <= self.strategy.max_asks and tokens <= self._room

    def ranking(self) -> list[int]:
        """The likeliest candidate first; of equally likely ones, those that give the same answer together."""
        grouped = [one for ids in self._answers_by_chance() for one in ids]
        return sorted(grouped, key=self._unlikeliness)

    def _answers_by_chance(self) -> list[list[int]]:
        """The members of each answer, likeliest first; the answer with the likeliest member first."""
        answers = [sorted(ids, key=self._unlikeliness) for ids in self._members]
        return sorted(answers, key=lambda ids: (self._unlikeliness(ids[0]), self._luck[ids[0]]))

    def _unlikeliness(self, one: int) -> float:
        return -round(self._belief.chance(one), 9)

    def chances(self) -> dict[int, float]:
        """How likely each candidate is to be right."""
        return {one: self._belief.chance(one) for one in self._ids}

    def chances_if(self, asks: Sequence[Ask], answers: Sequence[Answer]) -> dict[int, float]:
        """The same if these answers had been given to the asks that were learned from."""
        return self._belief.chances_if(asks, answers)

    def facts(self, chosen: int) -> dict[str, float]:
        """How likely the choice is to be right, whether that was fitted, and whether it is too little."""
        probability = self._belief.chance(chosen)
        flag = {"abstain": 1.0} if probability < self.strategy.abstain_below else {}
        return {"probability": probability, "calibrated": float(self.strategy.calibrated)} | flag

    def selection(self, order: Sequence[int]) -> Selection:
        """The choice as it stands."""
        facts = self.facts(order[0])
        return Selection(order[0], tuple(order), scores=self.chances(), facts=facts, score_kind="probability")

    def options(self) -> list[Ask]:
        """The next round: the best questions that do not involve the same candidates."""
        order = self.ranking()
        if self._belief.chance(order[0]) >= self.strategy.confidence_target:
            return []
        asks, shown, met, leader = list[Ask](), set[int](), set[int](), self.answer_of[order[0]]
        for one in sorted(self.questions(), key=lambda question: -question.option):
            answers = {self.answer_of[each] for each in one.shown} - {leader}
            if one.option < 1 or len(asks) >= self.strategy.at_once:
                break
            if not (shown.intersection(one.shown) or answers & met):
                more = self._slots.make_asks(one.shown, one.level, order=self.strategy.order)
                if not self.afford([*asks, *more]):
                    break
                if self.strategy.order != "balanced" or self._slots.keeps_balance(more):
                    asks, shown, met = [*asks, *more], shown.union(one.shown), met | answers
        return asks

    def questions(self) -> Iterator[Question]:
        """Each pair of likely candidates at each level, and each to be rated, that may be worth its price."""
        answers = self._answers_by_chance()
        front = [self._originals[ids[0]] for ids in answers[:LEADERS]]
        inside = [
            one for one in dict.fromkeys(self._originals[each] for each in answers[0]) if one != front[0]
        ]
        if len(front) == 1 and not (self.several and inside):
            return
        for level in (Level.PARTIAL, Level.FULL):
            for a, b in self._pairs(front, inside, level):
                if level in self._levels or b in self._entrants[a].differences:
                    yield from self._priced(a, b, level)
        if self._belief.uses_ratings:
            for one in front:
                yield from self._priced(one, None, Level.FULL)

    def _priced(self, a: int, b: int | None, level: Level) -> Iterator[Question]:
        """A question with what it is worth, unless it cannot be worth its price."""
        shown = (a,) if b is None else (a, b)
        if (frozenset(shown), level) in self._unanswered:
            return
        price = self.strategy.worth * self._tokens(shown, level) / self._everything
        if self._belief.ceiling(a, b) > price:
            if b is not None:
                a, b = self._slots.orders(a, b, level, order=self.strategy.order)[0]
            gain = self._belief.gain(a, b, level)
            yield Question(a, b, level, gain / price if price else float("inf"))

    def _pairs(self, front: Sequence[int], inside: Sequence[int], level: Level) -> Iterator[tuple[int, int]]:
        """Pairs to consider, of the likeliest of each answer and of others `inside` the likeliest answer.

        Where members of an answer are right together, the one shown least stands for it.
        """
        if not self.several:
            shown = [self._slots.least_shown(self._texts_of(self.answer_of[one]), level) for one in front]
            yield from combinations(shown, 2)
            return
        for place, one in enumerate(front[:FOREMOST]):
            yield from ((one, other) for other in front[place + 1 :])
        yield from ((front[0], other) for other in inside[:FOREMOST])

    def _texts_of(self, answer: int) -> list[int]:
        """The members of an answer that a judge can tell apart."""
        return list(dict.fromkeys(self._originals[one] for one in self._members[answer]))

    def _worthwhile(self, entrants: Sequence[Entrant]) -> tuple[Level, ...]:
        return (Level.PARTIAL, Level.FULL) if partial_views_pay(entrants) else (Level.FULL,)

    def _tokens(self, shown: Sequence[int], level: Level) -> float:
        ask = Solo(shown[0], level) if len(shown) == 1 else Pairing(shown[0], shown[1], level)
        return self.strategy.prompt_tokens + shown_size(self._entrants, ask)


def _originals(members: Sequence[Sequence[int]], entrants: Mapping[int, Entrant]) -> dict[int, int]:
    """Who is asked about in place of each candidate: the first of its answer that reads the same."""
    originals = {}
    for ids in members:
        first: dict[int, int] = {}
        for one in ids:
            text = entrants[one].text
            originals[one] = one if text is None else first.setdefault(text, one)
    return originals


def beliefs(
    strategy: Posterior, entrants: Sequence[Entrant], transcript: Sequence[Turn]
) -> list[dict[int, float]]:
    """How likely each candidate was to be right before the first round and after each."""
    state = ContestState(strategy, entrants, [0.0] * len(entrants))
    found = [state.chances()]
    for turn in transcript:
        state.update(turn.round.asks, turn.answers)
        found.append(state.chances())
    return found


def _describe_answer(ask: Ask, answer: Answer) -> str:
    """Describe an answer for an explanation."""
    if isinstance(ask, Pairing) and isinstance(answer, Verdict):
        sign = {1.0: ">", 0.5: "=", 0.0: "<"}[answer.outcome]
        sure = "" if answer.outcome == 0.5 else " HIGH" if answer.weight >= HIGH_WEIGHT else " LOW"
        return f"{ask.level}: {ask.a} {sign} {ask.b}{sure}"
    if isinstance(ask, Solo) and isinstance(answer, Rating):
        return f"{ask.level}: {ask.entrant} rated {answer.value:g}"
    return f"{ask.level}: unanswered"
