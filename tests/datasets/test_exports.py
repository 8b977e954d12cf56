import csv
import io
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.core.types import Candidate, Case, Message, Problem
from caps.datasets.exports import EXPORTS, Chosen, pairs, preferences
from caps.datasets.imports import open_cases

CODE = Case(
    "q1", Problem.of("Add."), (Candidate("So:\n```python\nprint(1)\n```"), Candidate("no code")), "code"
)
MATH = Case(
    "a\tb", Problem.of("1+1?"),
    (Candidate(r"It is \boxed{2}", correct=True), Candidate("3\nor 4", correct=False), Candidate("5")), "math",
)  # fmt: skip


def game(a, b, verdict, **more):
    return {
        "case": MATH.id, "stage": "A", "level": "E2", "draw": 0, "pair": sorted((a, b)), "a": a, "verdict": verdict,
        "ratings": [9, 3], "weight": 0.67, "attempt": 0, "how": "tags", "cause": None, **more,
    }  # fmt: skip


def lines(chunks):
    return [json.loads(chunk) for chunk in chunks]


def exported(name, *chosen):
    return b"".join(EXPORTS[name](chosen))


def test_winners_go_to_the_evaluator_of_livecodebench_and_all_candidates_come_back():
    rows = json.loads(exported("livecodebench", Chosen(CODE, (0,)), Chosen(CODE, (1, 0))))
    assert [row["code_list"] for row in rows] == [["print(1)\n"], ["", "print(1)\n"]]
    assert rows[1]["output_list"] == ["no code", CODE.candidates[0].text]
    assert json.loads(exported("livecodebench")) == []


def test_batch_lines_are_read_back_by_the_importer(tmp_path):
    asked = {"custom_id": MATH.id, "body": {"messages": [{"role": "user", "content": "1+1?"}]}}
    (tmp_path / "in.jsonl").write_text(json.dumps(asked))
    (tmp_path / "out.jsonl").write_bytes(exported("openai-batch", Chosen(MATH, (2, 0))))
    (case,) = open_cases(str(tmp_path / "out.jsonl"), requests=str(tmp_path / "in.jsonl"))
    assert (case.id, case.problem) == (MATH.id, MATH.problem)
    assert [one.text for one in case.candidates] == ["5", r"It is \boxed{2}"]


def test_answers_stand_on_one_line_each():
    told = exported("text", Chosen(MATH, (0,)), Chosen(MATH, (1,)), Chosen(CODE, (0,))).decode()
    assert told == "a\\tb\t2\na\\tb\t3\\nor 4\nq1\tprint(1)\n"


def test_decided_games_are_preferences_and_all_others_are_left_out():
    rulings = [
        game(0, 1, "A"), game(0, 1, "B"), game(2, 1, "B", level="E1"), game(0, 1, "TIE"),
        game(0, 1, "A", cause="no-tag"), game(0, 1, None), game(0, 9, "A"), game(0, 1, "A", case="other"),
        {"case": MATH.id, "shown": [0], "group": False, "rating": 7}, {"case": MATH.id, "unanswered": "budget"},
        game(0, 1, "A", pair=[[0], 1]), game(1, 0, "A", pair=[1, 1]),
    ]  # fmt: skip
    found = lines(preferences({MATH.id: MATH}, rulings))
    assert [row["pair"] for row in found] == [[0, 1], [1, 0], [1, 2]]
    assert [row["chosen_first"] for row in found] == [True, False, False]
    first = found[0]
    assert (first["prompt"], first["chosen"], first["rejected"]) == ("1+1?", r"It is \boxed{2}", "3\nor 4")
    assert (
        first.items()
        >= {"weight": 0.67, "level": "E2", "chosen_correct": True, "rejected_correct": False}.items()
    )
    assert "rejected_correct" not in found[2]
    full = lines(preferences({MATH.id: MATH}, rulings, full_only=True))
    assert [row["pair"] for row in full] == [[0, 1], [1, 0]]


def test_preferences_may_be_chats():
    chat = Problem((Message("system", "s"), Message("user", "u")))
    case = Case("c", chat, (Candidate("x"), Candidate("y")))
    (row,) = lines(preferences({"c": case}, [game(1, 0, "A", case="c")], chat=True))
    assert row["prompt"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert row["chosen"] == [{"role": "assistant", "content": "y"}]
    assert row["rejected"] == [{"role": "assistant", "content": "x"}]


VALUES = st.none() | st.integers(-2, 3) | st.text(max_size=3) | st.lists(st.integers(-1, 3), max_size=3)


@given(st.dictionaries(st.sampled_from(["case", "pair", "a", "verdict", "level", "cause"]), VALUES))
def test_any_ruling_is_a_pair_or_left_out(changes):
    for row in lines(preferences({MATH.id: MATH}, [game(0, 1, "A") | changes])):
        assert {row["chosen"], row["rejected"]} <= {one.text for one in MATH.candidates}


def test_answers_are_written_with_their_prompts_and_how_sure_they_are():
    sure, plain = lines(EXPORTS["best"]([Chosen(MATH, (0,), {"probability": 0.9}), Chosen(MATH, (0,))]))
    assert plain == {"id": "a\tb", "prompt": "1+1?", "answer": "2", "text": r"It is \boxed{2}"}
    assert sure == plain | {"probability": 0.9}


def test_a_spreadsheet_runs_nothing_and_keeps_numbers():
    texts = ["=HYPERLINK(1)", "@x", "-1+cmd", "-5", "+3.5", 'a "b", c\nd']
    cases = [Case("q", Problem.of("?"), (Candidate(text, answer=text),), "math") for text in texts]
    written = exported("csv", *(Chosen(case, (0,)) for case in cases)).decode()
    header, *rows = csv.reader(io.StringIO(written))
    assert header == ["id", "prompt", "answer", "text", "probability"]
    assert [row[2] for row in rows] == ["'=HYPERLINK(1)", "'@x", "'-1+cmd", "-5", "+3.5", 'a "b", c\nd']


def test_the_winner_becomes_a_chat_to_learn_from():
    (row,) = lines(EXPORTS["sft"]([Chosen(MATH, (0,))]))
    assert row["messages"] == [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": r"It is \boxed{2}"},
    ]


def test_rewards_of_a_group_are_normalised_and_equal_for_equal_completions():
    for scores, rewards in (
        ([0.8, 0.2, 0.2], [1.414214, -0.707107, -0.707107]),
        ([1.0, 0.0, 0.5], [1.224745, -1.224745, 0.0]),
        ([0.5, 0.5, 0.5], [0.0, 0.0, 0.0]),
    ):
        (row,) = lines(EXPORTS["rewards"]([Chosen(MATH, (0,), {"scores": scores})]))
        assert row["rewards"] == pytest.approx(rewards, abs=1e-6)
        assert row["completions"] == [one.text for one in MATH.candidates]
    case = Case("q", Problem.of("?"), (Candidate("a"), Candidate("b"), Candidate("a")), "general")
    (row,) = lines(EXPORTS["rewards"]([Chosen(case, (0,), {"scores": [0.8, 0.3, 0.6]})]))
    assert row["rewards"][0] == row["rewards"][2]
    assert row["scores"] == [0.7, 0.3, 0.7]


def test_pairs_keep_labels_and_leave_out_those_that_contradict_the_judge():
    labels = {"right": True, "wrong": False, "unknown": None}
    candidates = tuple(Candidate(text, correct=label) for text, label in labels.items())
    case = Case(MATH.id, Problem.of("?"), candidates, "general")
    left_out = Counter()
    rulings = [game(0, 1, "A"), game(1, 2, "A"), game(0, 2, "B")]
    found = lines(pairs({case.id: case}, rulings, left_out=left_out))
    assert [(row["chosen"], row["rejected"]) for row in found] == [
        ("right", "wrong"), ("wrong", "unknown"), ("unknown", "right"),
    ]  # fmt: skip
    assert [row.get("chosen_correct") for row in found] == [True, False, None]
    assert [row.get("rejected_correct") for row in found] == [False, None, True]
    assert not left_out
    assert lines(pairs({case.id: case}, [game(0, 1, "B")], left_out=left_out)) == []
    assert left_out == {"labels": 1}


def test_pairs_are_those_of_full_views_unless_any_are_wanted():
    rulings = [{**game(0, 1, "A"), "level": "E1"}, game(0, 2, "A")]
    left_out = Counter()
    assert len(lines(pairs({MATH.id: MATH}, rulings, left_out=left_out))) == 1
    assert left_out == {"partial": 1}
    assert len(lines(pairs({MATH.id: MATH}, rulings, full_only=False))) == 2


def test_each_pair_of_texts_is_trained_on_once_and_only_with_a_margin():
    asked = ((0, 1, "A"), (1, 0, "B"), (0, 2, "A"), (2, 0, "A"))
    rulings = [*(game(*one) for one in asked), game(1, 2, "A", weight=0.1)]
    found = lines(pairs({MATH.id: MATH}, rulings))
    best, second, third = (one.text for one in MATH.candidates)
    assert [(row["chosen"], row["rejected"], row["games"]) for row in found] == [
        (best, second, 2),
        (second, third, 1),
    ]
    left_out = Counter()
    (row,) = lines(pairs({MATH.id: MATH}, rulings, margin=0.5, left_out=left_out))
    assert (row["margin"], left_out) == (0.67, {"margin": 2})
    same = Case(MATH.id, MATH.problem, (Candidate("x"), Candidate("x")), "math")
    assert lines(pairs({MATH.id: same}, [game(0, 1, "A")])) == []


def test_samples_of_lm_eval_say_what_was_chosen_and_are_read_back(tmp_path):
    (tmp_path / "samples.jsonl").write_bytes(exported("lm-eval", Chosen(MATH, (0,))))
    (row,) = lines([(tmp_path / "samples.jsonl").read_bytes()])
    assert (row["filtered_resps"], row["acc"]) == ([r"It is \boxed{2}"], 1.0)
    (case,) = open_cases(str(tmp_path / "samples.jsonl"))
    assert [one.text for one in case.candidates] == [one.text for one in MATH.candidates]


def test_a_log_of_inspect_has_the_winner_and_is_read_back(tmp_path):
    candidates = (Candidate("It is \\boxed{2}", correct=True), Candidate("It is \\boxed{3}", correct=False))
    case = Case("a", Problem.of("1 + 1?"), candidates, "math", extra={"answer": "2"})
    line = {"winner": 0, "order": [0, 1], "strategy": "posterior", "probability": 0.9}
    path = tmp_path / "log.json"
    path.write_bytes(b"".join(EXPORTS["inspect"]([Chosen(case, (0,), line)])))
    log = json.loads(path.read_text())
    (sample,) = log["samples"]
    assert sample["output"]["choices"][0]["message"]["content"] == "It is \\boxed{2}"
    assert {name: score["value"] for name, score in sample["scores"].items()} == {
        "probability": 0.9,
        "correct": "C",
    }
    assert (sample["target"], log["eval"]["model"]) == ("2", "caps/posterior")
    assert log["results"]["total_samples"] == 1
    path.write_bytes(b"".join(EXPORTS["inspect"]([Chosen(case, (0, 1))])))
    (back,) = open_cases(str(path))
    assert [one.text for one in back.candidates] == [one.text for one in candidates]
    assert back.problem.text == "1 + 1?"
    assert json.loads(b"".join(EXPORTS["inspect"]([])))["samples"] == []
