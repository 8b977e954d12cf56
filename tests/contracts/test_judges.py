"""What every judge keeps to, whoever answers: a model, several, a function, a reward server, a file, a script."""

import asyncio
import json

import pytest

from caps.core.contest import Contest
from caps.core.types import Case, Group, Level, Pairing, Pick, Rating, Solo, Unanswered, Usage, Verdict
from caps.costs.budget import Shortage, UnlimitedBudget
from caps.judging.callables import CallableJudge
from caps.judging.llm import JudgingModel, LlmJudge
from caps.judging.recorded import RecordedJudge, ScriptedJudge
from caps.judging.reward import RewardJudge
from caps.judging.several import SeveralJudges, WeightedJudge
from caps.models.rewards import Form
from caps.models.scripted import ScriptedModel
from caps.session.parts import load_templates, make_prepare, make_strategy
from caps.testing import judge_by_quality, stated_quality
from support.running import by_quality

TEXTS = ["It is 3, quality=0.3", "It is 9, quality=0.9", "It is 5, quality=0.5"]
BEST = 1
PREPARED = make_prepare()(Case.of("Which number is it?", TEXTS, name="q"))
PAIRS = [
    Pairing(a, b, level)
    for a in range(3)
    for b in range(3)
    if a != b
    for level in (Level.PARTIAL, Level.FULL)
]
SOLOS = [Solo(entrant, Level.FULL) for entrant in range(3)]
ASKS = [*PAIRS, *SOLOS, Group((0, 1, 2), Level.FULL)]


def qualities(ask):
    return [stated_quality(TEXTS[entrant]) for entrant in ask.entrants]


def right_answer(_, ask):
    stated = qualities(ask)
    if isinstance(ask, Pairing):
        return Verdict(9, 3) if stated[0] > stated[1] else Verdict(3, 9)
    return Rating(10 * stated[0]) if isinstance(ask, Solo) else Pick(ask.entrants[stated.index(max(stated))])


class Function:
    """A function that also rates and picks, and says what a call costs."""

    full_views = True

    def __call__(self, problem, a, b):
        return judge_by_quality(problem, a, b), Usage(100, 5)

    def rate(self, problem, text):
        return 10 * stated_quality(text)

    def pick(self, problem, texts):
        return max(range(len(texts)), key=lambda place: stated_quality(texts[place]))


def over_a_model():
    return LlmJudge(JudgingModel(ScriptedModel(by_quality), "m"), load_templates())


def several():
    return SeveralJudges(
        [WeightedJudge("a", over_a_model()), WeightedJudge("b", ScriptedJudge(right_answer), 2.0)]
    )


def reward():
    model = ScriptedModel(lambda request: str(stated_quality(request.messages[-1].content)))
    return RewardJudge(JudgingModel(model, "m"), Form("vllm-score"))


def recorded(folder):
    rows = []
    for ask in ASKS:
        stated, shown = (
            qualities(ask),
            {"case": "q", "shown": list(ask.entrants), "level": f"E{ask.level.value}"},
        )
        if isinstance(ask, Pairing):
            rows.append({**shown, "verdict": "A" if stated[0] > stated[1] else "B", "confidence": "HIGH"})
        elif isinstance(ask, Solo):
            rows.append({**shown, "rating": round(10 * stated[0])})
        else:
            rows.append({**shown, "best": BEST})
    (folder / "verdicts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return RecordedJudge.read(str(folder / "verdicts.jsonl"))


JUDGES = {
    "model": lambda _: over_a_model(),
    "several": lambda _: several(),
    "function": lambda _: CallableJudge(Function()),
    "reward server": lambda _: reward(),
    "recorded": recorded,
    "script": lambda _: ScriptedJudge(right_answer),
}


@pytest.fixture(params=JUDGES)
def judge(request, tmp_path):
    return JUDGES[request.param](tmp_path)


def asks_of(judge):
    return SOLOS if isinstance(judge, RewardJudge) else ASKS


class Purse(UnlimitedBudget):
    """Notes what is reserved and settled; with `empty`, it has room for nothing."""

    free = False

    def __init__(self, *, empty=False):
        self.limited = self.empty = empty
        self.reserved, self.settled = [], []

    def covers(self, most):
        return not self.empty

    async def reserve(self, most):
        self.reserved.append(most)
        return Shortage("budget_tokens", most.prompt + most.output, 0) if self.empty else None

    def settle(self, most, spent, *, replayed):
        self.settled.append((most, spent))

    def for_stored_replies(self):
        return self


async def test_the_better_candidate_is_preferred_by_an_answer_that_fits(judge):
    strategy = make_strategy("pointwise" if isinstance(judge, RewardJudge) else "round-robin")
    contest = Contest(strategy, PREPARED.evidence.entrants, seed=1)
    while turn := contest.pending:
        contest.answer([(await judge.rule(PREPARED, ask, Purse())).answer for ask in turn.asks])
    assert contest.selection.winner == BEST
    assert not contest.selection.provisional


async def test_asks_made_at_once_and_again_get_the_same_answers(judge):
    asks = asks_of(judge)
    alone = [(await judge.rule(PREPARED, ask, Purse())).answer for ask in asks]
    together = await asyncio.gather(*(judge.rule(PREPARED, ask, Purse()) for ask in asks))
    assert [ruling.answer for ruling in together] == alone
    assert all(ruling.readable for ruling in together)


async def test_an_ask_costs_what_is_settled_and_at_most_what_was_announced(judge):
    for ask in asks_of(judge):
        await judge.rule(PREPARED, ask, Purse())  # what a function costs is known after its first call
        purse, most = Purse(), judge.max_usage(PREPARED, ask)
        ruling = await judge.rule(PREPARED, ask, purse)
        assert len(purse.reserved) >= len(purse.settled)
        paid = sum((spent.prompt + spent.output for _, spent in purse.settled), 0)
        assert paid == sum(attempt.usage.prompt + attempt.usage.output for attempt in ruling.attempts)
        assert paid <= most.prompt + most.output


async def test_without_budget_an_ask_that_costs_something_is_left_open(judge):
    for ask in asks_of(judge):
        await judge.rule(PREPARED, ask, Purse())
        if judge.max_usage(PREPARED, ask).prompt == 0:
            continue
        ruling = await judge.rule(PREPARED, ask, Purse(empty=True))
        if isinstance(judge, SeveralJudges):  # one of the two costs nothing
            assert ruling.attempts == ()
        else:
            assert ruling.answer == Unanswered("budget")
            assert ruling.shortage is not None


async def test_a_kind_of_ask_that_a_judge_cannot_answer_stays_unanswered(tmp_path):
    unable = [(reward(), PAIRS[0]), (CallableJudge(judge_by_quality), SOLOS[0])]
    for judge, ask in unable:
        ruling = await judge.rule(PREPARED, ask, Purse())
        assert ruling.unanswered
        assert ruling.attempts == ()
