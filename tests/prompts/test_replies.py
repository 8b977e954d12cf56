"""A corpus of judges' replies, each with its right reading: none is read wrongly, hardly any is left unread."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from caps.core.types import Group, Level, Pairing, Pick, Rating, Solo, Verdict
from caps.prompts.parse import Reading, read_bound, read_reply, readable
from prompts.test_fence import FRAGMENTS

NONCE = "3f9c2a"
ASKS = {
    "pair": Pairing(0, 1, Level.FULL),
    "ratings": Pairing(0, 1, Level.FULL, dialect="ratings"),
    "solo": Solo(0, Level.FULL),
    "group": Group((4, 7, 2, 9), Level.FULL),
}
REPLIES = [
    json.loads(line)
    for line in Path(__file__).with_name("replies.jsonl").read_text(encoding="utf-8").splitlines()
]
UNREAD_AT_MOST = 0.03


def read(entry: dict) -> Reading:
    return read_reply(
        ASKS[entry["ask"]],
        entry["reply"],
        truncated=entry.get("truncated", False),
        nonce=NONCE,
        code=entry.get("code"),
        bound_only=entry.get("bound_only", False),
    )


def said(entry: dict, reading: Reading) -> dict | None:
    """The reading in the words of the corpus."""
    answer = reading.answer
    if answer is None:
        return None
    if entry["ask"] == "pair":
        return {"winner": reading.winner, "confidence": reading.confidence}
    if isinstance(answer, Verdict):
        return {"ratings": [answer.a, answer.b]}
    if isinstance(answer, Rating):
        return {"rating": answer.value}
    assert isinstance(answer, Pick)
    return {"pick": 1 + ASKS["group"].entrants.index(answer.winner)}


def test_the_corpus_is_large_and_of_every_kind():
    assert len(REPLIES) >= 300
    for kind in ASKS:
        expected = [entry["expect"] is not None for entry in REPLIES if entry["ask"] == kind]
        assert min(expected.count(True), expected.count(False)) >= 10, kind


def test_no_reply_is_read_wrongly():
    wrong = [entry for entry in REPLIES if said(entry, read(entry)) not in (entry["expect"], None)]
    assert not wrong


def test_hardly_any_answer_is_left_unread():
    answered = [entry for entry in REPLIES if entry["expect"] is not None]
    unread = [entry["note"] for entry in answered if read(entry).answer is None]
    assert len(unread) <= UNREAD_AT_MOST * len(answered), unread


def test_what_carries_the_code_is_bound_and_nothing_else():
    for entry in REPLIES:
        reading = read(entry)
        if entry.get("bound_only"):
            assert reading.bound == (reading.answer is not None)
        elif "code" not in entry:
            assert not reading.bound


def bound_reading(ask, reply: str, code: str, *, truncated: bool = False) -> Reading | None:
    """What `read_bound` reads; checked against `read_reply`."""
    found = read_bound(ask, reply, truncated=truncated, nonce=NONCE, code=code)
    if found is not None:
        for bound_only in (False, True):
            assert found == read_reply(
                ask, reply, truncated=truncated, nonce=NONCE, code=code, bound_only=bound_only
            )
    return found


def test_a_verdict_with_the_code_is_read_alike_whatever_the_candidates_say():
    coded = [entry for entry in REPLIES if entry.get("code")]
    bound = [entry for entry in coded if read(entry).bound and not entry.get("truncated")]
    found = [bound_reading(ASKS[one["ask"]], one["reply"], one["code"]) for one in bound]
    assert len(found) > 20
    assert found.count(None) < len(found) / 4
    for entry in coded:
        bound_reading(
            ASKS[entry["ask"]], entry["reply"], entry["code"], truncated=entry.get("truncated", False)
        )


@given(st.lists(st.sampled_from([*FRAGMENTS, "7f3k", "-7f3k", "<winner>A-7f3k</winner>\n"]), max_size=12))
@settings(max_examples=200)
def test_no_reply_with_a_code_is_read_differently_for_what_the_candidates_say(parts):
    for ask in ASKS.values():
        bound_reading(ask, "".join(parts), "7f3k")


def test_every_reply_that_is_read_without_a_code_is_readable():
    for entry in REPLIES:
        reading = read({**entry, "code": None, "bound_only": False})
        if reading.answer is not None:
            assert readable(entry["reply"]), entry
            assert readable(entry["reply"], ASKS[entry["ask"]]), entry


def test_every_answer_of_the_corpus_is_readable_in_any_decoration():
    for entry in REPLIES:
        if entry["ask"] == "pair" and read({**entry, "code": None, "bound_only": False}).answer is not None:
            quoted = entry["reply"].replace("\n", "\n  # ")
            assert readable(f"def f():\n  # {quoted}\n  return 0"), entry


PIECES = (*FRAGMENTS, "Therefore, ", "So ", "\\boxed{A}", "[[B]]", "A > B", "winner", " = ", " is ", "choose ", "Candidate ",
          "[winner]", "[/winner]", "<winner=A>", '{"winner": "A"}', "| Winner | A |", "| ", " |", "|---|", "Verdict", "Ａ", "：",
          "获胜者", "更好", "wins", " because", " only ", "8/10", "score", "best", "1", "3", "two", ", ", ". ", "not ", "</think>",
          "```\n", "<answer>", "&lt;", "&gt;", "Rating", "give it ", "I ", "\u200b")  # fmt: skip
lines = st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join)


@settings(max_examples=800)
@given(lines)
@example("TIEHIGH")
@example("betterTIE")
def test_whatever_is_read_was_readable(text):
    for ask in ASKS.values():
        if read_reply(ask, text, truncated=False, nonce=NONCE).answer is not None:
            assert readable(text)
            assert readable(text, ask)


@pytest.mark.parametrize(
    "text",
    [
        "def add(x, y):\n    return x + y",
        "for i in range(n):\n    if val < best:\n        best = val",
        "We get x^2 + 3x + 2 = 0, so x = -1 or x = -2. The final answer is \\boxed{-1}.",
        "class Node:\n    def __init__(self, left, right):\n        self.left = left",
        "score = 7\nprint(score)",
        "Let triangle ABC have area 12. Then AB = 5 and the height is 24/5.",
    ],
)
def test_ordinary_answers_are_not_readable_as_the_winner_of_a_pair(text):
    assert not readable(text, ASKS["pair"])
