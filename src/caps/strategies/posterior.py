"""Posterior: ask the judge about the leading answers until the choice is sure enough.

Not in the paper. `belief` gives each answer a probability from votes, findings, scores and verdicts. In each
round the leading answer meets the next one, the third the fourth, and so on among those close behind. The
contest ends when no challenger has a real chance left, or the tokens of the chosen `effort` are used up. See
docs/explanation/posterior.md, also for where the constants come from.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from random import Random
from statistics import fmean
from typing import ClassVar, NamedTuple

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
    Round,
    Selection,
    Unanswered,
    Verdict,
    shown_size,
)
from caps.strategies.belief import Evidence, accuracy, only, votes_for
from caps.strategies.dedup import clusters, middling
from caps.strategies.pairings import SlotHistory

GAMES_OF_V1 = 3  # comparisons for each candidate that V1-Infer asks for
PROMPT_TOKENS = 400  # of a question without its candidates, for prices
AT_ONCE = 8  # questions a round
CLOSE_BEHIND = 0.35  # answers with this chance against the leader also meet each other
MOST_MEETINGS = 2  # of two answers: both orders, with other candidates if there are some
SHORT_ENOUGH = 0.5  # a question on partial views may cost at most this share of one on full views
LEAST_ACCURACY = 0.55  # levels at which the judge's profile is less accurate are not asked about
UNFITTED = 0.85  # the highest probability that is stated without labels


class Effort(NamedTuple):
    """When to stop: at this probability against every challenger, or at this share of V1-Infer's tokens.

    A pool may always use the tokens of `least` questions, so that small pools are not starved.
    """

    target: float
    share: float
    least: int


EFFORTS = {"low": Effort(0.9, 0.1, 2), "medium": Effort(0.975, 0.33, 4), "high": Effort(0.99, 0.5, 8)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior(Evidence):
    """Ask until the choice is sure enough; inherited fields weigh the evidence."""

    capabilities: ClassVar = Capabilities(weighs_votes=True, uses_judge_profile=True, uses_feature=True)

    effort: str = setting("medium", "how long to ask", choices=tuple(EFFORTS))
    max_rounds: int = setting(0, "rounds of questions at most; 0: no limit", least=0)
    abstain_below: float = setting(0.0, "flag a choice less likely than this", least=0, most=1)
    calibrated: bool = setting(False, "the weights were fitted to such cases")  # noqa: FBT003

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Ask rounds of questions until the choice is sure enough."""
        state = ContestState(self, entrants, [rng.random() for _ in entrants])
        while asks := state.questions():
            answers = yield Round("ask", tuple(asks), tuple(state.ranking()), facts=state.facts())
            state.update(asks, answers)
        return state.selection()

    def explain(
        self,
        entrants: Sequence[Entrant],
        rounds: Iterable[tuple[Sequence[Ask], Sequence[Answer]]],
        chosen: int,
    ) -> tuple[Influence, ...]:
        """What moved the probability of the chosen candidate: votes, findings, scores, then each verdict.

        Each is the probability with it less the one without it but with all before it.
        """
        state = ContestState(self, entrants, [0.0] * len(entrants))
        number, influences = state.answer_of[chosen], list[Influence]()

        def note(what: str, now: float) -> None:
            change = now - influences[-1].probability if influences else now
            if change or not influences:
                influences.append(Influence(what, now, change))

        for name, beliefs_then in self.steps(state.groups):
            note(name or "nothing known", beliefs_then.chances()[number])
        for asks, answers in rounds:
            for ask, answer in zip(asks, answers, strict=True):
                state.learn([ask], [answer])
                note(_describe_answer(ask, answer), state.chances[number])
        note("not fitted to labels", state.stated()[chosen])
        return tuple(influences)

    def follow(
        self, entrants: Sequence[Entrant], asks: Sequence[Ask], answers: Sequence[Answer]
    ) -> Iterator[dict[int, float]]:
        """The probability of each candidate before the first answer and after each."""
        state = ContestState(self, entrants, [0.0] * len(entrants))
        yield state.stated()
        for ask, answer in zip(asks, answers, strict=True):
            state.learn([ask], [answer])
            yield state.stated()


class ContestState:
    """The state of a contest: answers and their candidates, what was asked, current probabilities."""

    def __init__(
        self,
        strategy: Posterior,
        entrants: Sequence[Entrant],
        luck: Sequence[float],
        effort: Effort | None = None,
    ) -> None:
        """Take the effort of the strategy unless another one is passed."""
        self._strategy, self._effort = strategy, effort or EFFORTS[strategy.effort]
        self._entrants = {entrant.id: entrant for entrant in entrants}
        self._luck = dict(zip(self._entrants, luck, strict=True))
        self.groups = sorted(clusters(entrants), key=lambda group: self._luck[group[0].id])
        self._members = [middling(group, self._luck) for group in self.groups]
        self.answer_of = {entrant: number for number, ids in enumerate(self._members) for entrant in ids}
        self._texts = [_different_texts(ids, self._entrants) for ids in self._members]
        self._beliefs = strategy.beliefs(self.groups)
        self.chances = self._beliefs.chances()
        self.judged = 0  # verdicts that counted
        self._rounds = 0
        self._slots = SlotHistory(self._luck)
        self._meetings = Counter[frozenset[int]]()
        self._ties = Counter[frozenset[int]]()
        self._unanswered = set[frozenset[int]]()
        self._full_question = PROMPT_TOKENS + 2 * fmean(entrant.sizes[Level.FULL] for entrant in entrants)
        allowed = max(self._effort.share * GAMES_OF_V1 * len(entrants), self._effort.least)
        self._room = allowed * self._full_question
        self._levels = self._usable_levels(entrants)

    def update(self, asks: Sequence[Ask], answers: Sequence[Answer]) -> None:
        """Update with a round; two answers about which a question went unanswered do not meet again."""
        self._rounds += 1
        for ask, answer in zip(asks, answers, strict=True):
            pair = frozenset(self.answer_of[entrant] for entrant in ask.entrants)
            self._meetings[pair] += 1
            self._room -= self._tokens(ask)
            self._slots.record(ask)
            if isinstance(answer, Unanswered):
                self._unanswered.add(pair)
            elif isinstance(answer, Verdict) and answer.outcome == 0.5:
                self._ties[pair] += 1
        self.learn(asks, answers)

    def learn(self, asks: Sequence[Ask], answers: Sequence[Answer]) -> None:
        """Update the probabilities alone; nothing can be asked after that."""
        for ask, answer in zip(asks, answers, strict=True):
            self.judged += self._beliefs.add(ask, answer, self.answer_of)
        self.chances = self._beliefs.chances()

    def questions(self) -> list[Ask]:
        """The next round; empty where the choice is sure enough, or nothing more may be asked."""
        order, limit = self._by_chance(), self._strategy.max_rounds
        if not self._levels or (limit and self._rounds >= limit):
            return []
        rivals = [other for other in order[1:] if self._against(order[0], other) > 1 - self._effort.target]
        size = AT_ONCE
        if limit:
            size = max(size, ceil(self._room / self._full_question / (limit - self._rounds)))
        asks = self._pair_off([order[0], *rivals], size)
        if limit:
            asks += self._meet_leader(order[0], rivals, asks, size - len(asks))
        return asks

    def _pair_off(self, contenders: list[int], size: int) -> list[Ask]:
        """The first against the next it may still meet, then the same among those left, if close behind.

        Two answers that tied meet again only after all others. Two that meet for the first time do so on
        partial views where the tokens left would not pay for full views of all that are close.
        """
        asks, waiting, leader = list[Ask](), list(contenders), contenders[0]
        close = {other for other in contenders if self._against(leader, other) >= CLOSE_BEHIND} | {leader}
        scarce = self._room < len(close) * self._full_question
        level = self._levels[0] if scarce else Level.FULL
        while len(waiting) > 1 and len(asks) < size:
            first = waiting.pop(0)
            for other in sorted(waiting, key=lambda rival: self._ties[frozenset((first, rival))]):
                if first != leader and not {first, other} <= close:
                    continue
                if (ask := self._ask(first, other, level, asks)) is not None:
                    asks.append(ask)
                    waiting.remove(other)
                    break
        return asks

    def _meet_leader(self, leader: int, rivals: Sequence[int], asks: list[Ask], size: int) -> list[Ask]:
        """More questions where rounds are limited: the leader against others, then in the other order."""
        more = list[Ask]()
        for _ in range(2):
            for other in rivals:
                ask = self._ask(leader, other, Level.FULL, [*asks, *more])
                if ask is not None and len(more) < size:
                    more.append(ask)
        return more

    def _ask(self, first: int, other: int, level: Level, asks: Sequence[Ask]) -> Ask | None:
        """A question about two answers that was not asked before, if half of its price is left at least."""
        pair = frozenset((first, other))
        if pair in self._unanswered or self._meetings[pair] >= MOST_MEETINGS:
            return None
        shown = Level.FULL if self._meetings[pair] else level
        a, b = (self._slots.least_shown(self._texts[number], shown) for number in (first, other))
        left = self._room - sum(map(self._tokens, asks))
        for slot_a, slot_b in self._slots.orders(a, b, shown):
            ask = Pairing(slot_a, slot_b, shown)
            if not self._slots.was_asked(ask) and ask not in asks and self._tokens(ask) / 2 <= left:
                return ask
        return None

    def _against(self, leader: int, other: int) -> float:
        """How likely another answer is the right one of the two, if one is right and one wrong."""
        kept = only(self.chances, leader, other, exclusive=self._beliefs.exclusive)
        gained = only(self.chances, other, leader, exclusive=self._beliefs.exclusive)
        return gained / (kept + gained) if gained else 0.0

    def _by_chance(self) -> list[int]:
        return sorted(
            range(len(self._members)),
            key=lambda number: (-round(self.chances[number], 9), self._luck[self._members[number][0]]),
        )

    def ranking(self) -> list[int]:
        """The likeliest candidate first; those that give the same answer follow each other."""
        return [entrant for number in self._by_chance() for entrant in self._members[number]]

    def stated(self) -> dict[int, float]:
        """The probability that is stated of each candidate: at most `UNFITTED` without labels."""
        most = 1.0 if self._strategy.calibrated else UNFITTED
        return {
            entrant: min(most, self.chances[number]) for entrant, number in sorted(self.answer_of.items())
        }

    def facts(self) -> dict[str, float]:
        """How likely the choice is right, what that rests on, and whether it is below `abstain_below`."""
        number = self._by_chance()[0]
        probability = self.stated()[self._members[number][0]]
        facts = {
            "probability": probability,
            "calibrated": float(self._strategy.calibrated),
            "agree": float(votes_for(self.groups[number])),
            "verdicts": float(self.judged),
            "tested": float(any("tests_passed" in entrant.features for entrant in self._entrants.values())),
        }
        return facts | ({"abstain": 1.0} if probability < self._strategy.abstain_below else {})

    def selection(self) -> Selection:
        """The choice as it stands."""
        order = self.ranking()
        return Selection(
            order[0], tuple(order), scores=self.stated(), facts=self.facts(), score_kind="probability"
        )

    def _usable_levels(self, entrants: Sequence[Entrant]) -> tuple[Level, ...]:
        """The levels at which the judge tells right from wrong; partial views only if far shorter."""
        levels = [
            level
            for level in (Level.PARTIAL, Level.FULL)
            if accuracy(self._strategy, level) >= LEAST_ACCURACY
        ]
        partial = PROMPT_TOKENS + 2 * fmean(entrant.sizes[Level.PARTIAL] for entrant in entrants)
        if Level.FULL not in levels:
            return ()
        return tuple(levels if partial <= SHORT_ENOUGH * self._full_question else [Level.FULL])

    def _tokens(self, ask: Ask) -> float:
        return PROMPT_TOKENS + shown_size(self._entrants, ask)


def _different_texts(ids: Sequence[int], entrants: Mapping[int, Entrant]) -> list[int]:
    """The candidates of an answer that a judge can tell apart: the first of each text."""
    first: dict[int, int] = {}
    for entrant in ids:
        text = entrants[entrant].text
        first.setdefault(-entrant - 1 if text is None else text, entrant)
    return list(first.values())


def beliefs(
    strategy: Posterior, entrants: Sequence[Entrant], transcript: Sequence[Turn]
) -> list[dict[int, float]]:
    """How likely each candidate was to be right before the first round and after each."""
    state = ContestState(strategy, entrants, [0.0] * len(entrants))
    history = [state.stated()]
    for turn in transcript:
        state.learn(turn.round.asks, turn.answers)
        history.append(state.stated())
    return history


def _describe_answer(ask: Ask, answer: Answer) -> str:
    """Describe an answer for an explanation."""
    if not (isinstance(ask, Pairing) and isinstance(answer, Verdict)):
        return f"{ask.level}: unanswered"
    sign = {1.0: ">", 0.5: "=", 0.0: "<"}[answer.outcome]
    sure = "" if answer.outcome == 0.5 else " HIGH" if answer.weight >= HIGH_WEIGHT else " LOW"
    return f"{ask.level}: {ask.a} {sign} {ask.b}{sure}"
