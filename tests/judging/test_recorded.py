"""A recorded judge: what it answers exactly, what by substitution, and what not at all."""

import asyncio
import json

import pytest

from caps import (
    Case,
    InputError,
    Level,
    Pairing,
    Pick,
    Rating,
    RecordedJudge,
    SettingError,
    Solo,
    Verdict,
    open_session,
    resolve,
)
from caps.config import RunConfig
from caps.core.types import Group, Unanswered
from caps.costs.budget import UnlimitedBudget
from caps.datasets.verdicts import text_digest
from caps.judging.recorded import RULE, SUBSTITUTIONS, reordered
from caps.session.parts import make_prepare

CASE = Case.of("Which?", ["none", "one", "two"], name="q")
FULL, PARTIAL = Level.FULL, Level.PARTIAL


def judge_of(tmp_path, *rows):
    path = tmp_path / "v.jsonl"
    path.write_text("".join(json.dumps({"case": "q", **row}) + "\n" for row in rows))
    return RecordedJudge.read(str(path))


def heard(judge, ask, case=CASE):
    found = judge.answer(case, ask)
    return found.answer, found.substituted


def test_an_ask_that_is_recorded_is_answered_exactly(tmp_path):
    judge = judge_of(
        tmp_path,
        {"shown": [0, 1], "verdict": "B", "confidence": "LOW"},
        {"shown": [0, 1], "verdict": "A", "confidence": "HIGH", "level": "E1"},
        {"shown": [0, 1], "verdict": "TIE", "draw": 1},
        {"shown": [0, 1], "ratings": [2, 8], "dialect": "ratings"},
        {"shown": [2], "rating": 4},
        {"shown": [2, 0, 1], "best": 0},
    )
    assert heard(judge, Pairing(0, 1, FULL)) == (Verdict(5, 7), ())
    assert heard(judge, Pairing(0, 1, PARTIAL)) == (Verdict(9, 3), ())
    assert heard(judge, Pairing(0, 1, FULL, 1)) == (Verdict(5, 5), ())
    assert heard(judge, Pairing(0, 1, FULL, 0, "ratings")) == (Verdict(2, 8), ())
    assert heard(judge, Solo(2, FULL)) == (Rating(4), ())
    assert heard(judge, Group((2, 0, 1), FULL)) == (Pick(0), ())
    assert judge.answers == {"pair", "rating", "pick"}


def test_a_partial_view_gets_the_verdict_on_full_views_and_not_the_other_way_round(tmp_path):
    judge = judge_of(
        tmp_path,
        {"shown": [0, 1], "verdict": "A", "confidence": "HIGH"},
        {"shown": [1, 2], "verdict": "A", "confidence": "HIGH", "level": "E1"},
        {"shown": [1], "rating": 3},
    )
    assert heard(judge, Pairing(0, 1, PARTIAL)) == (Verdict(9, 3), ("full view",))
    assert heard(judge, Solo(1, PARTIAL)) == (Rating(3), ("full view",))
    assert heard(judge, Pairing(1, 2, FULL)) == (Unanswered("not recorded"), ())


def test_a_reverse_order_is_answered_only_where_the_orders_were_merged(tmp_path):
    judge = judge_of(
        tmp_path,
        {"shown": [0, 1], "verdict": "A", "confidence": "LOW", "merged": True},
        {"shown": [0, 2], "verdict": "A", "confidence": "LOW"},
    )
    assert heard(judge, Pairing(0, 1, FULL)) == (Verdict(7, 5), ("merged order",))
    assert heard(judge, Pairing(1, 0, FULL)) == (Verdict(5, 7), ("merged order",))
    assert heard(judge, Pairing(2, 0, FULL)) == (Unanswered("not recorded"), ())


def test_a_missing_confidence_counts_as_high(tmp_path):
    judge = judge_of(
        tmp_path,
        {"shown": [0, 1], "verdict": "B"},
        {"shown": [1, 2], "ratings": [4, 5], "dialect": "ratings"},
    )
    assert heard(judge, Pairing(0, 1, FULL)) == (Verdict(3, 9), ("no confidence",))
    assert heard(judge, Pairing(0, 1, FULL, 0, "ratings")) == (Verdict(3, 9), ("no confidence",))
    assert heard(judge, Pairing(1, 2, FULL)) == (Verdict(4, 5), ("no confidence",)), "asked in another form"


def test_a_further_draw_repeats_the_first_unless_it_is_recorded(tmp_path):
    judge = judge_of(
        tmp_path,
        {"shown": [0, 1], "verdict": "A", "confidence": "HIGH"},
        {"shown": [0, 1], "verdict": "B", "confidence": "HIGH", "draw": 1},
    )
    assert heard(judge, Pairing(0, 1, FULL, 1)) == (Verdict(3, 9), ())
    assert heard(judge, Pairing(0, 1, FULL, 2)) == (Verdict(9, 3), ("repeated draw",))


def test_substitutions_add_up_and_the_rule_names_each(tmp_path):
    judge = judge_of(tmp_path, {"shown": [1, 0], "verdict": "A", "merged": True})
    assert heard(judge, Pairing(0, 1, PARTIAL, 3)) == (Verdict(3, 9), tuple(SUBSTITUTIONS))
    assert all(name in RULE for name in SUBSTITUTIONS)


def test_what_was_recorded_of_another_text_is_not_an_answer(tmp_path):
    texts = [text_digest("none"), text_digest("another")]
    judge = judge_of(
        tmp_path,
        {"shown": [0, 1], "verdict": "A", "texts": texts},
        {"shown": [1, 2], "verdict": "A", "texts": [text_digest("one"), text_digest("two")], "merged": True},
    )
    assert heard(judge, Pairing(0, 1, FULL)) == (Unanswered("recorded of another text"), ())
    assert heard(judge, Pairing(2, 1, FULL))[0] == Verdict(3, 9)
    assert heard(judge, Pairing(0, 1, FULL), Case.of("Which?", ["0", "1"], name="r"))[0] == Unanswered(
        "not recorded"
    )


def test_candidates_in_another_order_are_found_by_where_they_stood(tmp_path):
    judge = judge_of(
        tmp_path,
        {"shown": [0, 1], "verdict": "A", "texts": [text_digest("none"), text_digest("one")]},
        {"shown": [2, 0, 1], "best": 0},
        {"shown": [2], "rating": 4},
    )
    moved = reordered(reordered(CASE, [1, 2, 0]), [2, 0, 1])
    assert [one.text for one in moved.candidates] == ["none", "one", "two"]
    moved = reordered(CASE, [1, 2, 0])
    assert heard(judge, Pairing(2, 0, FULL), moved)[0] == Verdict(9, 3)
    assert heard(judge, Group((1, 2, 0), FULL), moved) == (Pick(2), ())
    assert heard(judge, Solo(1, FULL), moved) == (Rating(4), ())


@pytest.mark.parametrize(
    "places", ["021", [0, 1], [0, 1, True], [0, 1, 2.0], None, {}, [0, 1, 10**30], [-1, -1, -1]]
)
def test_places_that_mean_nothing_do_no_harm(places, tmp_path):
    judge = judge_of(tmp_path, {"shown": [0, 1], "verdict": "A"})
    case = Case(CASE.id, CASE.problem, CASE.candidates, extra={"places": places})
    for ask in (Pairing(0, 2, FULL), Solo(2, FULL), Group((0, 1, 2), FULL)):
        assert isinstance(judge.answer(case, ask).answer, Unanswered)


def test_a_ruling_tells_what_was_substituted_and_what_reading_takes(tmp_path):
    judge = judge_of(
        tmp_path,
        {"shown": [0, 1], "verdict": "A", "tokens": 70, "output": 9},
        {"shown": [1, 0], "verdict": "TIE"},
    )
    prepared = make_prepare()(CASE)
    ruling = asyncio.run(judge.rule(prepared, Pairing(0, 1, PARTIAL), UnlimitedBudget()))
    assert ruling.substituted == ("full view", "no confidence")
    (attempt,) = ruling.attempts
    assert (attempt.usage.prompt, attempt.usage.output, attempt.replayed, attempt.how) == (
        70,
        9,
        True,
        "recorded",
    )
    (attempt,) = asyncio.run(judge.rule(prepared, Pairing(1, 0, FULL), UnlimitedBudget())).attempts
    assert attempt.usage.estimated
    assert attempt.usage.prompt > 0


def test_a_strategy_that_asks_for_what_is_not_recorded_is_refused(tmp_path):
    judge_of(tmp_path, {"shown": [0, 1], "verdict": "A"})

    async def run(**settings):
        config = RunConfig(recorded=str(tmp_path / "v.jsonl"), **settings)
        async with open_session(resolve(config)) as session:
            return [outcome async for outcome in session.run([CASE])]

    with pytest.raises(SettingError, match="asks for a rating, and no rating of judge 'judge' is recorded"):
        asyncio.run(run(strategy="pointwise"))
    with pytest.raises(SettingError, match="engine batch: recorded verdicts cannot be the judge"):
        asyncio.run(run(strategy="caps", engine="batch", journal=str(tmp_path / "j.sqlite")))
    (outcome,) = asyncio.run(run(strategy="caps"))
    assert outcome.ledger.unanswered["not recorded"] > 0
    with pytest.raises(InputError, match=r"--recorded .*: No such file"):
        resolve(RunConfig(recorded=str(tmp_path / "no")))
