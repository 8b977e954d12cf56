"""Judges' replies and what is read from them: what was asked for, in the forms of the table, and nothing else.

`replies.jsonl` is a corpus of replies with their right readings, recorded from models or written by hand.
"""

import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from time import process_time
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps.core.types import Ask, Group, Level, Pairing, Pick, Rating, Solo, Verdict
from caps.prompts.read import Imitation, Reading, imitations, read_coded, read_reply
from caps.prompts.reply_forms import sentences, short_form
from support.shown import ASKS, FULL, GROUP, RATINGS, SOLO, any_texts

NONCE, CODE = "3f9c2a", "k7f3"


def read(ask: Ask, text: str, *, code: str | None = CODE, truncated: bool = False, imitated=()) -> Reading:
    return read_reply(ask, text, truncated=truncated, nonce=NONCE, code=code, imitated=imitated)


# --- The table of forms ---

FORMS = {
    "tags": ("Both loop.\n<winner>B-k7f3</winner>\n<confidence>HIGH</confidence>", "tags"),
    "tags on one line": ("<winner>B-k7f3</winner><confidence>HIGH</confidence>", "tags"),
    "square brackets": ("[winner]B-k7f3[/winner]\n[confidence]HIGH[/confidence]", "tags"),
    "full-width letters": ("＜winner＞Ｂ-k7f3＜/winner＞\n＜confidence＞ＨＩＧＨ＜/confidence＞", "tags"),
    "bold tags": ("**<winner>B-k7f3</winner>**\n**<confidence>HIGH</confidence>**", "tags"),
    "bold labels": ("<winner>**B-k7f3**</winner>\n<confidence>*high*</confidence>", "tags"),
    "quoted labels": ("<winner>“B-k7f3”</winner>\n<confidence>'HIGH'</confidence>", "tags"),
    "small letters": ("<WINNER>b-K7F3</WINNER>\n<Confidence>high</Confidence>", "tags"),
    "spaces in tags": ("< winner >B-k7f3< /winner >\n< confidence >HIGH</ confidence>", "tags"),
    "labels on their lines": ("<winner>\nB-k7f3\n</winner>\n<confidence>\nHIGH\n</confidence>", "tags"),
    "a noun": ("<winner>Candidate B-k7f3</winner>\n<confidence>HIGH</confidence>", "tags"),
    "the code behind a space": ("<winner>B k7f3</winner>\n<confidence>HIGH</confidence>", "tags"),
    "the code in brackets": ("<winner>B (k7f3)</winner>\n<confidence>HIGH</confidence>", "tags"),
    "TeX": ("<winner>\\boxed{\\text{B-k7f3}}</winner>\n<confidence>$HIGH$</confidence>", "tags"),
    "escaped brackets": ("\\<winner\\>B-k7f3\\</winner\\>\n\\<confidence\\>HIGH\\</confidence\\>", "tags"),
    "never closed": ("So it fails.\n<winner>B-k7f3\n<confidence>HIGH", "tags"),
    "closed by opening": ("<winner>B-k7f3<winner>\n<confidence>HIGH<confidence>", "tags"),
    "behind names": ("**Winner:** <winner>B-k7f3</winner>\n**Confidence:** <confidence>HIGH</confidence>", "tags"),
    "in a list": ("1. A fails.\n- <winner>B-k7f3</winner>\n- <confidence>HIGH</confidence>", "tags"),
    "confidence first": ("<confidence>HIGH</confidence>\n<winner>B-k7f3</winner>", "tags"),
    "end of turn": ("<winner>B-k7f3</winner>\n<confidence>HIGH</confidence><|im_end|>", "tags"),
    "said twice": ("Winner: B-k7f3\n\n<winner>B-k7f3</winner>\n<confidence>HIGH</confidence>", "tags"),
    "prose afterwards": ("<winner>B-k7f3</winner>\n<confidence>HIGH</confidence>\nLet me know if A is clear.", "tags"),
    "JSON": ('{"winner": "B-k7f3", "confidence": "HIGH"}', "json"),
    "JSON with a code field": ('{"reasoning": "{A}", "winner": "B", "confidence": "HIGH", "code": "k7f3"}', "json"),
    "JSON after prose": ('A fails.\n\n{"winner": "B-k7f3", "confidence": "HIGH"}', "json"),
    "JSON in a block": ('A fails.\n```json\n{\n  "winner": "B-k7f3",\n  "confidence": "HIGH"\n}\n```', "json"),
    "lines": ("A fails.\nWinner: B-k7f3\nConfidence: HIGH", "plain"),
    "bold lines": ("**Final verdict:** Candidate B-k7f3\n**Confidence:** HIGH", "plain"),
    "numbered lines": ("1. Winner: B-k7f3\n2. Confidence: HIGH", "plain"),
    "a box": ("<confidence>HIGH</confidence>\n$\\boxed{\\text{B-k7f3}}$", "plain"),
    "double brackets": ("Confidence: HIGH\n[[B-k7f3]]", "plain"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_verdict_is_read_in_every_form_of_the_table_with_and_without_its_code(form: str) -> None:
    text, how = FORMS[form]
    for imitated in ((), ("verdict", "retraction", "thought")):
        reading = read(FULL, text, imitated=imitated)
        assert (reading.winner, reading.confidence, reading.how, reading.bound) == ("B", "HIGH", how, True)
    for sign in ("-k7f3", "-K7F3", " k7f3", " (k7f3)", ', "code": "k7f3"'):
        text = text.replace(sign, "")
    if "```" in text:
        assert read(FULL, text).answer is None, "what follows prose in a block counts only with the code"
        return
    reading = read(FULL, text)
    assert (reading.winner, reading.confidence, reading.how, reading.bound) == ("B", "HIGH", how, False)
    assert read(FULL, text, imitated=["verdict"]).cause == "unbound"


def test_a_verdict_in_a_block_that_is_all_of_a_reply_needs_no_code() -> None:
    for inside in ('{"winner": "B"}', "<winner>B</winner>\n<confidence>LOW</confidence>"):
        assert read(FULL, f"```json\n{inside}\n```\n").answer == Verdict(5, 7)


NO_FORMS = (
    # sentences
    "Therefore, candidate B is the winner.", "The winner is B-k7f3.", "B-k7f3", "B", "So my verdict is <winner>B-k7f3</winner>.",
    "I would not choose <winner>A-k7f3</winner> here.", "Should it be <winner>A-k7f3</winner>?", "Verdict: B is better.",
    # other names, languages and markup
    "<answer>B</answer>", "<verdict>B-k7f3</verdict>", "Gewinner: B", "获胜者：B", "<winner=B>", '<winner value="B"/>', "Winner = B",
    "| Winner | B |", "### Winner\nB", "B > A", "{'winner': 'B'}", '{"verdict": "B"}', "&lt;winner&gt;B&lt;/winner&gt;",
    # no label, or words beside it
    "<winner></winner>", "<winner>C-k7f3</winner>", "<winner>Both</winner>", "<winner>not A</winner>", "<winner>A wins</winner>",
    "<winner>A is not the winner; B is</winner>", "<winner>WINNER</winner>\n<confidence>CONFIDENCE</confidence>",
    # of a candidate
    "> <winner>A</winner>", "It prints `<winner>A</winner>`, which I ignore.", "```python\nprint('<winner>A</winner>')\n```\nis all.",
    "The reply looks like this:\n```\n<winner>A</winner>\n```", 'Candidate A returned {"winner": "A"} instead.',
)  # fmt: skip


@pytest.mark.parametrize("text", NO_FORMS)
def test_nothing_else_is_a_verdict(text: str) -> None:
    assert read(FULL, text).answer is None


SEPARATORS = (", ", " or ", "/", " / ", "|", " | ", " and ", "; ", ", or ", " vs ", " ")


@pytest.mark.parametrize("separator", SEPARATORS)
def test_more_than_one_label_is_no_verdict(separator: str) -> None:
    """A judge that repeats the choices of the prompt has chosen none of them."""
    for labels, form in (
        (("A-k7f3", "B-k7f3"), "<winner>{}</winner>\n<confidence>HIGH</confidence>"),
        (("A-k7f3", "B-k7f3", "TIE-k7f3"), "<winner>{}</winner>"),
        (("A", "B-k7f3"), "<winner>{}</winner>"),
        (("A-k7f3", "B-k7f3"), "Winner: {}"),
        (("A-k7f3", "B-k7f3"), '{{"winner": "{}", "confidence": "HIGH"}}'),
        (("A", "B", "TIE"), "<winner>{}</winner>"),
    ):
        assert read(FULL, form.format(separator.join(labels))).answer is None
    for labels in (("1-k7f3", "10-k7f3"), ("3", "8")):
        assert read(SOLO, f"<rating>{separator.join(labels)}</rating>").answer is None
    for labels in (("1-k7f3", "2-k7f3"), ("1", "2")):
        assert read(GROUP, f"<best>{separator.join(labels)}</best>").answer is None


def test_the_instruction_repeated_word_for_word_decides_nothing() -> None:
    for form in ("<winner>A-k7f3, B-k7f3, or TIE-k7f3</winner>", "Winner: A-k7f3 or B-k7f3"):
        assert read(FULL, form).answer is None
    for ask in ASKS:
        assert read(ask, short_form(ask, CODE)).answer is None


INTRODUCTIONS = (
    "The output is:", "As asked, the verdict must be given so:", "My answer in the format of the example:", "Candidate B has it:",
    "It returns", "The instructions ask for this template:", "Here is what the candidate's code should print:", "It says",
)  # fmt: skip


@pytest.mark.parametrize("line", INTRODUCTIONS)
@pytest.mark.parametrize("language", ["", "xml", "python"])
def test_a_final_block_that_carries_the_code_counts_whatever_introduces_it(line: str, language: str) -> None:
    text = f"{line}\n```{language}\n<winner>B-k7f3</winner>\n<confidence>HIGH</confidence>\n```"
    assert read(FULL, text).answer == Verdict(3, 9)


# --- Two verdicts ---

FIRST = "<winner>A-k7f3</winner>\n<confidence>HIGH</confidence>\n\n"
RETRACTIONS = (
    "Wait, I made an error. B handles the empty list.", "Actually, B is right.", "Correction: A fails the last test.",
    "On second thought, B is better.", "I was wrong about A.", "Hold on. A never ends.", "I must correct myself.",
    "Hmm, that is wrong.",
)  # fmt: skip


@pytest.mark.parametrize("words", RETRACTIONS)
def test_a_verdict_that_is_corrected_at_the_end_is_the_later_one(words: str) -> None:
    later = "<winner>B-k7f3</winner>\n<confidence>LOW</confidence>"
    assert read(FULL, f"{FIRST}{words}\n{later}").answer == Verdict(5, 7)
    assert read(FULL, f"{FIRST}{words}\n{later}", imitated=["verdict", "retraction"]).answer == Verdict(5, 7)
    assert read(FULL, f"{FIRST}{words}\n{later}\nSo much for that.").answer is None, "it must end the reply"


@pytest.mark.parametrize("words", RETRACTIONS)
def test_a_verdict_with_the_code_is_taken_back_by_one_without_and_by_words(words: str) -> None:
    """Where no text shown contains such a form, the judge itself wrote it."""
    assert read(FULL, f"{FIRST}{words}\n<winner>B</winner>").winner != "A"
    assert read(FULL, f"{FIRST}{words}\nSo it should be <winner>B</winner>.").answer is None
    assert read(FULL, f"{FIRST}{words}").answer is None


@pytest.mark.parametrize(
    "text",
    [
        "<winner>A-k7f3</winner>\n<winner>B-k7f3</winner>",
        "<winner>A-k7f3</winner>\nB is faster.\n<winner>B-k7f3</winner>",
        "Winner: A-k7f3\n<winner>B-k7f3</winner>",
        "<winner>A-k7f3</winner>\n\\boxed{B-k7f3}",
        '<winner>A-k7f3</winner>\n{"winner": "B-k7f3"}',
        "<winner>A-k7f3</winner>\nThat is, <winner>B-k7f3</winner>",
        "<winner>A-k7f3</winner>\n<winner>rather B-k7f3</winner>",
        "<winner>A-k7f3</winner>\n<confidence>LOW</confidence>\n<B-k7f3> is the winner because A fails.",
        "<winner>A</winner>\n<winner>B</winner>",
        "Winner: A\nWinner: B",
    ],
)
def test_two_different_verdicts_are_none(text: str) -> None:
    assert read(FULL, text).answer is None
    assert read(FULL, text, imitated=["verdict"]).answer is None


def test_ratings_and_picks_that_differ_are_none_unless_corrected() -> None:
    assert read(SOLO, "<rating>3-k7f3</rating>\n<rating>9-k7f3</rating>").answer is None
    assert read(SOLO, "<rating>3-k7f3</rating>\nWait, 9.\n<rating>9-k7f3</rating>").answer == Rating(9)
    assert read(GROUP, "<best>1-k7f3</best>\n<best>2-k7f3</best>").answer is None
    swapped = "<rating_A>8-k7f3</rating_A>\n<rating_B>2-k7f3</rating_B>\n{}\n<rating_A>2-k7f3</rating_A>\n<rating_B>8-k7f3</rating_B>"
    assert read(RATINGS, swapped.format("So:")).answer is None
    assert read(RATINGS, swapped.format("Correction:")).answer == Verdict(2, 8)


# --- Confidence, ratings, groups ---


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("<winner>B-k7f3</winner>", "LOW"),
        ("<winner>B-k7f3</winner>\n<confidence>MEDIUM</confidence>", "LOW"),
        ("<winner>B-k7f3</winner>\n<confidence>95%</confidence>", "LOW"),
        ("<winner>B-k7f3</winner>\n<confidence>HIGH or LOW</confidence>", "LOW"),
        ("<confidence>HIGH</confidence> is what A wrote.\n<winner>B-k7f3</winner>", "LOW"),
        ("<winner>A</winner>\n<confidence>HIGH</confidence>\nWait.\n<winner>B-k7f3</winner>", "LOW"),
        ("<winner>A</winner><confidence>HIGH</confidence>\n<winner>B-k7f3</winner>", "LOW"),
        ("<winner>B-k7f3</winner>\nIts confidence:\n<confidence>HIGH</confidence>", "LOW"),
        ("<winner>B-k7f3</winner>\n\n**Confidence:** HIGH", "HIGH"),
    ],
)
def test_only_the_word_high_beside_the_verdict_is_high(text: str, confidence: str) -> None:
    reading = read(FULL, text, imitated=["verdict"])
    assert (reading.winner, reading.confidence) == ("B", confidence)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("<rating_A>7-k7f3</rating_A>\n<rating_B>4-k7f3</rating_B>", Verdict(7, 4)),
        ("<rating A>8/10</rating A>\n<rating-B>**7.5**</rating-B>", Verdict(8, 7.5)),
        ("**Rating A:** 7/10\n**Rating B:** 10 out of 10", Verdict(7, 10)),
        ('{"rating_A": 3, "rating_B": 9, "code": "k7f3"}', Verdict(3, 9)),
        ("<rating_A>0</rating_A>\n<rating_B>10</rating_B>", Verdict(1, 10)),
        ("<rating_A>N-k7f3</rating_A><rating_B>N-k7f3</rating_B>\n<rating_A>2</rating_A><rating_B>3</rating_B>", Verdict(2, 3)),
        ("<rating_A>9-k7f3</rating_A>", None),
        ("<rating_B>2</rating_B>\n<rating_A>1-10</rating_A>", None),
        ("<rating_A>85</rating_A>\n<rating_B>30</rating_B>", None),
        ("<rating_A>-5</rating_A>\n<rating_B>3</rating_B>", None),
        ("A: 7/10\nB: 4/10", None),
    ],
)  # fmt: skip
def test_both_ratings_must_be_there(text: str, verdict: Verdict | None) -> None:
    assert read(RATINGS, text).answer == verdict


def test_a_rating_with_the_code_does_not_lend_it_to_the_other() -> None:
    text = "<rating_A>8</rating_A>\n<rating_B>3-k7f3</rating_B>"
    assert read(RATINGS, text).answer == Verdict(8, 3)
    assert read(RATINGS, text, imitated=["verdict"]).cause == "unbound"


@pytest.mark.parametrize(
    ("ask", "text", "answer"),
    [
        (SOLO, "<rating>8-k7f3</rating>", Rating(8)),
        (SOLO, "Good.\n**Final rating:** 7.5/10", Rating(7.5)),
        (SOLO, '{"rating": 7}', Rating(7)),
        (SOLO, "It is right.\n\\boxed{8}", None),
        (SOLO, "<rating>15</rating>", None),
        (GROUP, "<best>3-k7f3</best>", Pick(2)),
        (GROUP, "<best>Candidate 1</best>", Pick(4)),
        (GROUP, "**Best candidate:** #2-k7f3", Pick(7)),
        (GROUP, '{"best": 2, "code": "k7f3"}', Pick(7)),
        (GROUP, "<best>0</best>", None),
        (GROUP, "<best>4</best>", None),
        (GROUP, "<best>1.5</best>", None),
        (GROUP, "[[2]]", None),
    ],
)
def test_a_rating_and_the_best_of_a_group_are_read(ask: Ask, text: str, answer: object) -> None:
    assert read(ask, text).answer == answer


@pytest.mark.parametrize("ask", [*ASKS, Group(tuple(range(24)), Level.FULL)], ids=str)
@pytest.mark.parametrize("code", [None, CODE])
def test_every_reply_that_a_server_can_be_held_to_is_read(ask: Ask, code: str | None) -> None:
    for sentence in sentences(ask, code):
        reading = read(ask, sentence, code=code, imitated=["verdict"])
        assert (reading.how, reading.bound) == ("tags", code is not None)


# --- Thoughts, cut replies, causes ---

THOUGHTS = (
    "<think>\n<winner>A-k7f3</winner>? No.\n</think>\n\n{}",
    "A first... <winner>A-k7f3</winner> hmm\n</think>\n{}",
    "<think>x</think>\nSo:\n<thinking>y <winner>A-k7f3</winner></thinking>\n{}",
    "[THINK]maybe <winner>A-k7f3</winner>[/THINK]{}",
    "◁think▷ <winner>A-k7f3</winner> ◁/think▷ {}",
    "<|channel|>analysis<|message|><winner>A-k7f3</winner><|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>",
    "analysisWe compare.\n<winner>A-k7f3</winner>\n?assistantfinal{}",
)


@pytest.mark.parametrize("thought", THOUGHTS)
def test_a_thought_is_not_part_of_the_reply(thought: str) -> None:
    assert read(FULL, thought.format("<winner>B-k7f3</winner>")).answer == Verdict(5, 7)
    assert read(FULL, thought.format("I cannot say.")).answer is None


@pytest.mark.parametrize(
    "text",
    [
        "<think>\nSo A.\n<winner>A-k7f3</winner>\n<confidence>HIGH</confidence>\n",
        "Let me see.\n<think>\n<winner>A-k7f3</winner>\n",
        "<|channel|>analysis<|message|><winner>A-k7f3</winner>",
        "I lean towards A.\n<winner>A-k7f3</winner>\n</think>\n\nLooking at both again, the",
        "So I would say <winner>A-k7f3</winner>. But wait, for n = 0",
        "Okay, A sorts first.\n<winner>A-k7f3</winner>\n<confidence>HIGH</confidence>\nLet me check the second sample.",
        "The first divides by zero.\n<winner>B-k7",
        "It seems that\nWinner: A",
        '{"reasoning": "A is wrong", "winner": "',
    ],
)
def test_a_draft_in_a_reply_that_was_cut_is_no_verdict(text: str) -> None:
    assert read(FULL, text, truncated=True) == Reading(None, "none", "truncated")


def test_a_reply_that_was_cut_behind_its_verdict_counts() -> None:
    cut = "The first divides by zero.\n<winner>B-k7f3</winner>\n<confidence>HI"
    assert read(FULL, cut, truncated=True).answer == Verdict(5, 7)
    first = "<winner>B-k7f3</winner>\n<confidence>HIGH</confidence>\n\nCandidate A reads the input in one"
    assert read(FULL, first, truncated=True).answer == Verdict(3, 9)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "empty"),
        (" \n\t ", "empty"),
        ("<think>so</think>\n", "empty"),
        ("<think>So A, <winner>A</winner>, or", "no-tag"),
        ("I'm sorry, but I can't assist with that.", "refused"),
        ("As a language model I am unable to evaluate this.", "refused"),
        ("Both are interesting.", "no-tag"),
    ],
)
def test_a_reply_without_a_verdict_says_why(text: str, cause: str) -> None:
    assert read(FULL, text) == Reading(None, "none", cause)


def test_verdicts_become_the_papers_ratings() -> None:
    for winner, high, low in (("A", (9, 3), (7, 5)), ("B", (3, 9), (5, 7)), ("TIE", (5, 5), (5, 5))):
        text = f"<winner>{winner}-k7f3</winner>\n<confidence>{{}}</confidence>"
        assert read(FULL, text.format("HIGH")).answer == Verdict(*high)
        assert read(FULL, text.format("LOW")).answer == Verdict(*low)


# --- The corpus ---

CORPUS_ASKS = {
    "pair": Pairing(0, 1, Level.FULL),
    "ratings": Pairing(0, 1, Level.FULL, dialect="ratings"),
    "solo": Solo(0, Level.FULL),
    "group": Group((4, 7, 2, 9), Level.FULL),
}
CORPUS = [
    json.loads(line)
    for line in Path(__file__).with_name("replies.jsonl").read_text(encoding="utf-8").splitlines()
]


def said(entry: dict) -> dict | None:
    """The reading of an entry in the words of the corpus."""
    ask = CORPUS_ASKS[entry["ask"]]
    reading = read_reply(
        ask,
        entry["reply"],
        truncated=entry.get("truncated", False),
        nonce=NONCE,
        code=entry.get("code"),
        imitated=entry.get("imitated", ()),
    )
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
    return {"pick": 1 + CORPUS_ASKS["group"].entrants.index(answer.winner)}


@pytest.mark.parametrize("truncated", [False, True])
def test_a_reply_that_ends_as_asked_for_is_read_alike_whatever_was_shown(*, truncated: bool) -> None:
    kinds = get_args(Imitation)
    shown = [some for size in range(len(kinds) + 1) for some in combinations(kinds, size)]
    read_at_once = 0
    for entry in CORPUS:
        ask, code = CORPUS_ASKS[entry["ask"]], entry.get("code") or CODE
        reading = read_coded(ask, entry["reply"], code=code)
        read_at_once += reading is not None
        for imitated in shown if reading is not None else ():
            whole = read(ask, entry["reply"], code=code, truncated=truncated, imitated=imitated)
            assert whole == reading, entry["reply"]
    assert read_at_once > 20


def test_the_corpus_is_recorded_and_written_and_of_every_kind() -> None:
    sources = Counter(entry["source"] for entry in CORPUS)
    assert sources["recorded"] >= 200
    assert sources["written"] >= 600
    for kind in CORPUS_ASKS:
        decided = [entry["expect"] is not None for entry in CORPUS if entry["ask"] == kind]
        assert min(decided.count(True), decided.count(False)) >= 10, kind


def test_no_reply_of_the_corpus_is_read_wrongly_and_none_that_decides_nothing() -> None:
    wrong = [entry for entry in CORPUS if said(entry) not in (entry["expect"], None)]
    assert not wrong


def test_a_reply_of_the_corpus_is_unread_only_where_its_entry_says_so_and_why() -> None:
    """`unread` names the form that is not in the table."""
    decided = [entry for entry in CORPUS if entry["expect"] is not None]
    assert [entry for entry in decided if (said(entry) is None) != ("unread" in entry)] == []


def test_whatever_is_read_without_the_code_could_be_imitated() -> None:
    for entry in CORPUS:
        ask = CORPUS_ASKS[entry["ask"]]
        if said({**entry, "code": None, "imitated": ()}) is not None:
            assert "verdict" in imitations(entry["reply"], ask), entry
            quoted = entry["reply"].replace("\n", "\n  # ")
            assert "verdict" in imitations(f"def f():\n  # {quoted}\n  return 0", ask), entry


# --- Total and linear ---


@settings(max_examples=300)
@given(
    text=any_texts,
    truncated=st.booleans(),
    nonce=st.sampled_from(["", "abc123", "(", "\\"]),
    code=st.sampled_from([None, "k7f3", "(", "a"]),
    imitated=st.sets(st.sampled_from(["verdict", "retraction", "thought"])),
)
def test_no_reply_makes_the_reader_raise(text, truncated, nonce, code, imitated) -> None:
    for ask in ASKS:
        imitations(text, ask)
        reading = read_reply(ask, text, truncated=truncated, nonce=nonce, code=code, imitated=imitated)
        assert (reading.answer is None) == (reading.how == "none") == (reading.cause is not None)
        assert not (reading.bound and reading.answer is None)


PIECES = ("<winner>", "<", "< ", "</think>", "<think>\n", ">\n", "best: ", "(", "1", "\n", " ", "\\boxed{", "[[", "{", '{"winner": "A"}',
          "rating A: ", "winner: A ", "Winner: A\n", "\u2060", "```\n", "<winner>A-k7f3</winner>", "wait ", "it is ", "&lt;", "- ",
          '{"winner": "x"}', '"winner"', "[[x]]", "\\boxed{x}", "winner: [\n", "~~~\n", "é", "候", "Ａ")  # fmt: skip


@pytest.mark.parametrize("piece", PIECES)
def test_long_texts_are_read_in_linear_time(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        start = process_time()
        for ask in (FULL, GROUP):
            read(ask, text)
            imitations(text, ask)
        return process_time() - start

    assert seconds(200_000) < max(1.0, 40 * seconds(20_000))
