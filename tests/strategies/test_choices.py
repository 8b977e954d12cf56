"""What is chosen by default: repetition of a text is no argument, agreement of answers is one."""

import json

import pytest

import caps
from caps import Contest, Entrant
from caps.core.types import Candidate, Case, Problem
from caps.datasets.exports import Chosen, rewards
from caps.evidence.entrants import describe
from caps.evidence.profiles import profile_for
from caps.integrations.rewards import GroupRewards
from caps.strategies.posterior import Posterior
from support.playing import JUDGED, asks_of, everything_ties, lower_id_wins, played

PARIS = ["It is Paris.", "The capital of France is Paris."]
NON_ANSWERS = {
    "refusals in three wordings": [
        "I'm sorry, but I can't help with that.",
        "I cannot assist with this request.",
        "Unfortunately, I am unable to answer.",
    ],
    "copies of a refusal": ["I'm sorry, but I can't help with that."] * 3,
    "copies of a non-answer": ["No idea, sorry."] * 3,
    "copies with other spacing and case": ["No idea, sorry.", "no idea,  sorry.", "No idea, sorry.\n"],
    "copies in a chat": ["<think>Hm.</think>Ask someone else.", "<think>No.</think>Ask someone else."] * 2,
}


def prefers(word):
    """A judge that prefers whatever contains a word."""

    def judge(problem, a, b):
        return "tie" if (word in a) == (word in b) else "A" if word in a else "B"

    return judge


@pytest.mark.parametrize("name", [name for name in JUDGED if name not in ("pointwise", "listwise")])
def test_a_non_answer_does_not_win_by_being_repeated(name):
    for kind, non_answers in NON_ANSWERS.items():
        chosen = caps.best_sync(
            "What is the capital of France?", [*non_answers, *PARIS], judge=prefers("Paris"), strategy=name
        )
        assert "Paris" in chosen.text, kind
        assert chosen.ledger.total().calls > 0, kind


@pytest.mark.parametrize("answers", [["43", "41"], ["43", "43", "41"]])
def test_sentences_that_look_like_refusals_are_not_merged(answers):
    texts = [f"I won't do the division by hand; the result is {answer}." for answer in answers]
    chosen = caps.best_sync("86 / 2?", texts, judge=prefers("41"), domain="general")
    assert "41" in chosen.text


@pytest.mark.parametrize("name", ["posterior", "majority"])
def test_copies_without_an_answer_do_not_outvote_answers(name):
    texts = ["No idea, sorry."] * 3 + [r"So \boxed{4}.", r"Thus \boxed{4}."]
    chosen = caps.best_sync("2 + 2?", texts, judge=prefers("nothing"), domain="math", strategy=name)
    assert "4" in chosen.text


def test_majorities_of_answers_still_count():
    texts = [rf"Way {k}: \boxed{{4}}" for k in range(6)] + [r"\boxed{5}"]
    chosen = caps.best_sync("2 + 2?", texts, judge=prefers("5"), domain="math")
    assert "4" in chosen.text
    assert chosen.ledger.total().calls == 0
    tools = ['{"name": "look", "arguments": {"at": "sky"}}'] * 6 + [
        '{"name": "look", "arguments": {"at": "sea"}}'
    ]
    assert "sky" in caps.best_sync("Look up!", tools, strategy="majority").text


# Best first

THREE_AND_ONE = [r"Add: \boxed{4}", r"Count: \boxed{4}", r"Double: \boxed{4}", r"Guess: \boxed{5}"]


@pytest.mark.parametrize(
    "name", ["caps-r", "caps", "caps-plus", "sprint", "majority", "posterior", "knockout", "tests-first"]
)
def test_copies_of_the_right_answer_are_rewarded_alike_and_above_the_wrong_one(name):
    selected = caps.best_sync("2 + 2?", THREE_AND_ONE, judge=prefers("4"), domain="math", strategy=name)
    case = Case("1", Problem.of("2 + 2?"), tuple(map(Candidate, THREE_AND_ONE)), "math")
    scores = [selected.selection.scores[place] for place in range(4)]
    line = {"winner": selected.winner, "order": list(selected.order), "scores": scores}
    (row,) = rewards([Chosen(case, (selected.winner,), line)])
    *right, wrong = json.loads(row)["rewards"]
    assert len(set(right)) == 1
    assert right[0] > wrong
    assert selected.order[-1] == 3


@pytest.mark.parametrize("name", ["majority", "caps-r", "sprint", "posterior"])
def test_trainers_get_the_same_order(name):
    reward = GroupRewards(strategy=name, judge=prefers("4"), domain="math")
    *right, wrong = reward(["2 + 2?"] * 4, THREE_AND_ONE)
    assert len({round(value, 9) for value in right}) == 1
    assert right[0] > wrong


# Answers that exclude each other


def math_entrants(texts):
    case = Case("1", Problem.of("?"), tuple(map(Candidate, texts)), "math")
    return describe(case, profile_for("math"), len).entrants


FOUR_ANSWERS = {
    "all stand alone": [r"\boxed{51}", r"\boxed{36}", r"\boxed{28}", r"\boxed{12}"],
    "one has no answer": [r"\boxed{51}", r"\boxed{36}", r"\boxed{28}", "I ran out of"],
    "one repeats": [r"A \boxed{51}", r"B \boxed{36}", r"C \boxed{36}", r"D \boxed{28}"],
    "most have no answer": [r"\boxed{51}", "I ran out of", "So we get", "Let x be"],
}


@pytest.mark.parametrize("texts", FOUR_ANSWERS.values(), ids=FOUR_ANSWERS)
def test_answers_compared_by_value_exclude_each_other_however_many_stand_alone(texts):
    field = math_entrants(texts)
    contest = played("posterior", field)
    answer = {entrant.id: entrant.signature for entrant in field}
    scores = contest.selection.scores
    assert sum({answer[place]: score for place, score in scores.items()}.values()) <= 1
    assert asks_of(contest) or len({entrant.answer for entrant in field}) > 1
    assert all(answer[ask.a] != answer[ask.b] for ask in asks_of(contest))


def test_a_candidate_without_an_answer_ranks_last_unless_the_judge_prefers_it():
    field = math_entrants([r"\boxed{51}", "I ran out of"])
    chances = next(Posterior().follow(field, [], []))
    assert chances[0] > chances[1]
    assert played("posterior", field, everything_ties).selection.winner == 0


# Identical questions


def test_candidates_that_read_the_same_are_asked_about_once():
    texts = [r"So \boxed{4}."] * 3 + [r"So \boxed{5}."] * 3
    questions = []

    def judge(problem, a, b):
        questions.append((a, b))
        return prefers("4")(problem, a, b)

    caps.best_sync("2 + 2?", texts, judge=judge, domain="math", settings={"votes": 0.5})
    assert questions
    assert len(questions) == len(set(questions))


@pytest.mark.parametrize("kind", ["value", "open"])
def test_copies_of_a_text_are_asked_about_once(kind):
    copies = [Entrant(k, "ab"[k > 2], (0, 200, 200), signature_kind=kind, text=int(k > 2)) for k in range(6)]
    contest = Contest(Posterior(), copies, seed=1).play(lower_id_wins)
    shown = [tuple(copies[one].text for one in ask.entrants) for ask in asks_of(contest)]
    assert len(shown) == len(set(shown))
    assert len({round(contest.selection.scores[one], 9) for one in range(3)}) == 1
    assert 1 <= len(shown) <= 2
