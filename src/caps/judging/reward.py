"""A reward server as the judge: it rates answers one by one, without a prompt.

The rating is `5.5 + 4.5 * s / (1 + |s|)` of the score s: it rises with the score everywhere and stays between
1 and 10, whatever the scale of the server. A probability becomes a rating between 5.5 and 7.75.
"""

from caps.core.play import AskKind
from caps.core.types import Ask, Message, Rating, Solo, Unanswered, Usage
from caps.costs.budget import Budget
from caps.judging.base import NOTHING, Attempt, PreparedCase, Ruling
from caps.judging.llm import JudgingModel
from caps.judging.payment import NoReply, ReplyHistory, at_most, pay
from caps.models.base import Request
from caps.models.rewards import Form

ONLY_RATES = "a reward server only rates"


def rating_of(score: float) -> float:
    """The rating from 1 to 10 of a score; higher scores have higher ratings."""
    return 5.5 + 4.5 * score / (1 + abs(score))


class RewardJudge:
    """Rates answers with a reward server."""

    answers: frozenset[AskKind] = frozenset({"rating"})

    def __init__(self, model: JudgingModel, form: Form) -> None:
        self._model, self._form = model, form
        self._history = ReplyHistory(expected=0)

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:
        """Ask for the score of an answer; a failed call leaves it unrated."""
        if not isinstance(ask, Solo):
            return Ruling(Unanswered(ONLY_RATES))
        done = await pay(self._model.model, self.request(prepared, ask), budget, self._history)
        if isinstance(done, NoReply):
            return done.ruling(done.attempts)
        score = float(done.text)
        return Ruling(Rating(rating_of(score)), (Attempt.of(done, "score"),), score=score)

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:
        """One call; there is no reply to write."""
        return at_most(self.request(prepared, ask)) if isinstance(ask, Solo) else NOTHING

    def request(self, prepared: PreparedCase, ask: Solo) -> Request:
        """The problem and the answer; control tokens of chat templates in either are made inert.

        A further draw is the same request: a reward model repeats its score.
        """
        texts = [*prepared.case.problem.messages]
        texts.append(Message("assistant", prepared.evidence.view(ask.entrant, ask.level)))
        messages = tuple(Message(one.role, prepared.showing(one.content, prepared.nonce)) for one in texts)
        return Request(
            messages,
            self._model.name,
            template=self._form.name,
            max_tokens=0,
            extra=self._model.extra,
            group=prepared.nonce,
        )
