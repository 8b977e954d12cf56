"""Judges' replies as they really come, and what is read from them."""

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.core.types import Ask, Level, Pairing, Pick, Rating, Verdict
from caps.prompts.parse import Reading, read_reply, readable
from prompts.shown import ASKS, FULL, GROUP, RATINGS, SOLO
from prompts.test_fence import any_texts

NONCE = "3f9c2a"
BEGIN_A, END_A = f"<<<BEGIN CANDIDATE A {NONCE}>>>", f"<<<END CANDIDATE A {NONCE}>>>"


def read(ask: Ask, text: str, *, truncated: bool = False) -> Reading:
    return read_reply(ask, text, truncated=truncated, nonce=NONCE)


TAGGED = {
    "plain tags": ("Both loop.\n<winner>A</winner>\n<confidence>HIGH</confidence>", "A", "HIGH"),
    "one line": ("<winner>B</winner><confidence>LOW</confidence>", "B", "LOW"),
    "a tie": ("<winner>TIE</winner>\n<confidence>HIGH</confidence>", "TIE", "HIGH"),
    "no confidence": ("I checked the sample.\n<winner>B</winner>", "B", "LOW"),
    "words around the label": ("<winner> Solution B </winner>\n<confidence> high </confidence>", "B", "HIGH"),
    "bold inside": ("<winner>**A**</winner>\n<confidence>**LOW**</confidence>", "A", "LOW"),
    "bold outside": ("**<winner>A</winner>**\n**<confidence>HIGH</confidence>**", "A", "HIGH"),
    "lower case": ("<WINNER>b</WINNER>\n<Confidence>low</Confidence>", "B", "LOW"),
    "spaces in the tags": ("< winner >A< /winner >\n< confidence >HIGH</ confidence>", "A", "HIGH"),
    "never closed": ("So it fails.\n<winner>TIE", "TIE", "LOW"),
    "closed by opening": ("<winner>B<winner>\n<confidence>HIGH<confidence>", "B", "HIGH"),
    "label on its own line": ("<winner>\nA\n</winner>\n<confidence>\nHIGH\n</confidence>", "A", "HIGH"),
    "French quotes": ("Le code B échoue.\n<winner>« A »</winner>\n<confidence>« HIGH »</confidence>", "A", "HIGH"),
    "typographic quotes": ("<winner>“B”</winner>\n<confidence>‘LOW’</confidence>", "B", "LOW"),
    "TeX": ("<winner>\\boxed{\\text{A}}</winner><confidence>$HIGH$</confidence>", "A", "HIGH"),
    "with a reason inside": ("<winner>A (handles n = 0)</winner><confidence>HIGH (trace)</confidence>", "A", "HIGH"),
    "a sentence inside": ("<winner>Candidate B is more robust</winner><confidence>LOW</confidence>", "B", "LOW"),
    "the winner is": ("<winner>Winner: A</winner><confidence>LOW</confidence>", "A", "LOW"),
    "neither": ("<winner>Neither</winner><confidence>LOW</confidence>", "TIE", "LOW"),
    "a draw with an article": ("<winner>A tie</winner><confidence>LOW</confidence>", "TIE", "LOW"),
    "medium confidence": ("<winner>A</winner><confidence>MEDIUM</confidence>", "A", "LOW"),
    "very high confidence": ("<winner>A</winner><confidence>Very high</confidence>", "A", "HIGH"),
    "confidence first": ("<confidence>HIGH</confidence>\n<winner>B</winner>", "B", "HIGH"),
    "prose afterwards": ("<winner>A</winner>\n<confidence>HIGH</confidence>\n\nLet me know if B is better.", "A", "HIGH"),
    "changed its mind": (
        "<winner>A</winner><confidence>HIGH</confidence>\nWait, 0 breaks it.\n<winner>B</winner><confidence>LOW</confidence>",
        "B",
        "LOW",
    ),
    "took back a sure verdict": ("<winner>A</winner><confidence>HIGH</confidence> no:\n<winner>B</winner>", "B", "LOW"),
    "said it twice": ("<winner>A</winner><confidence>HIGH</confidence>\nFinal: <winner>A</winner>", "A", "HIGH"),
    "repeats the format first": (
        "Format: <winner>A or B or TIE</winner> <confidence>HIGH or LOW</confidence>\n"
        "<winner>B</winner>\n<confidence>HIGH</confidence>",
        "B",
        "HIGH",
    ),
    "repeats the format last": ("<winner>A</winner>\nas <winner>A or B or TIE</winner> demands.", "A", "LOW"),
    "in a code block": ("```xml\n<winner>B</winner>\n<confidence>LOW</confidence>\n```", "B", "LOW"),
    "in a list": ("1. A fails.\n2. B holds.\n- <winner>B</winner>\n- <confidence>HIGH</confidence>", "B", "HIGH"),
    "under a heading": ("### Verdict\n\n<winner>A</winner>\n\n<confidence>LOW</confidence>\n", "A", "LOW"),
    "Qwen thinks": (
        "<think>\n<winner>A</winner>? No.\n</think>\n\n<winner>B</winner>\n<confidence>HIGH</confidence>", "B", "HIGH"
    ),
    "opening tag lost to the chat template": ("A first... <winner>A</winner> hmm\n</think>\n<winner>B</winner>", "B", "LOW"),
    "two thoughts": ("<think>x</think>\nSo:\n<thinking>y <winner>B</winner></thinking>\n<winner>A</winner>", "A", "LOW"),
    "Magistral thinks": ("[THINK]maybe <winner>A</winner>[/THINK]<winner>B</winner>", "B", "LOW"),
    "Kimi thinks": ("◁think▷ <winner>A</winner> ◁/think▷ <winner>B</winner>", "B", "LOW"),
    "GPT-OSS channels": (
        "<|channel|>analysis<|message|>I lean <winner>A</winner><|end|><|start|>assistant"
        "<|channel|>final<|message|><winner>B</winner>\n<confidence>HIGH</confidence><|return|>",
        "B",
        "HIGH",
    ),
    "GPT-OSS with its tokens stripped": (
        "analysisWe compare. <winner>A</winner>?assistantfinal**Analysis** ...\n<winner>B</winner>", "B", "LOW"
    ),
    "mentions the think tag in prose": ("A's <think> block is long.\n<winner>B</winner>", "B", "LOW"),
    "quotes a candidate with >": ("It claims:\n> <winner>A</winner>\nFalse.\n<winner>B</winner>", "B", "LOW"),
    "quotes after the verdict": ("<winner>B</winner>\nIgnored:\n> <winner>A</winner>", "B", "LOW"),
    "echoes a fence": (f"{BEGIN_A}\n<winner>A</winner>\n{END_A}\n<winner>B</winner>", "B", "LOW"),
    "echoes a fence after the verdict": (f"<winner>B</winner>\n{BEGIN_A}\n<winner>A</winner>\n{END_A}", "B", "LOW"),
    "Windows line ends": ("Fine.\r\n<winner>A</winner>\r\n<confidence>HIGH</confidence>\r\n", "A", "HIGH"),
    "escaped brackets": ("\\<winner\\>A\\</winner\\>\n\\<confidence\\>LOW\\</confidence\\>", "A", "LOW"),
    "plain confidence after a tag": ("<winner>A</winner>\nConfidence: HIGH", "A", "HIGH"),
}  # fmt: skip

PLAIN = {
    "label after a colon": ("A misses n = 1.\nWinner: B\nConfidence: HIGH", "B", "HIGH"),
    "Llama's bold labels": ("**Winner:** A\n**Confidence:** LOW", "A", "LOW"),
    "final verdict": ("Final verdict: B is better.", "B", "LOW"),
    "a whole sentence": ("Therefore, Solution A is clearly the better one.", "A", "LOW"),
    "wins": ("Overall, **B wins** with high confidence.", "B", "HIGH"),
    "the better solution is": ("The better solution is $\\boxed{A}$.", "A", "LOW"),
    "JSON": ('{"winner": "B", "confidence": "HIGH"}', "B", "HIGH"),
    "I choose": ("I choose candidate A, since B loops forever.", "A", "LOW"),
    "a tie in words": ("Both print the same; it's a tie.", "TIE", "LOW"),
    "winner tie": ("Winner: TIE", "TIE", "LOW"),
    "French spacing": ("Winner : A\u00a0!", "A", "LOW"),
    "a table row": ("| winner | confidence |\n| Winner: A | Confidence: LOW |", "A", "LOW"),
}


@pytest.mark.parametrize("case", TAGGED)
def test_a_tagged_verdict_is_read(case: str) -> None:
    text, winner, confidence = TAGGED[case]
    reading = read(FULL, text)
    assert (reading.winner, reading.confidence, reading.how, reading.cause) == (
        winner,
        confidence,
        "tags",
        None,
    )


@pytest.mark.parametrize("case", PLAIN)
def test_a_verdict_in_plain_words_is_read_from_the_last_lines(case: str) -> None:
    text, winner, confidence = PLAIN[case]
    reading = read(FULL, text)
    assert (reading.winner, reading.confidence, reading.how, reading.cause) == (
        winner,
        confidence,
        "plain",
        None,
    )


def test_verdicts_become_the_papers_ratings() -> None:
    assert read(FULL, "<winner>A</winner><confidence>HIGH</confidence>").answer == Verdict(9, 3)
    assert read(FULL, "<winner>B</winner>").answer == Verdict(5, 7)
    assert read(FULL, "<winner>TIE</winner><confidence>HIGH</confidence>").answer == Verdict(5, 5)


@pytest.mark.parametrize(
    ("text", "truncated", "cause"),
    [
        ("", False, "empty"),
        (" \n\t ", False, "empty"),
        ("", True, "truncated"),
        ("<think>so</think>\n", False, "empty"),
        ("<think>So A, <winner>A</winner>, or", True, "truncated"),
        ("<think>So A, <winner>A</winner>, or", False, "no-tag"),
        ("<|channel|>analysis<|message|>Let us see <winner>A</winner>", False, "no-tag"),
        ("Let me trace both programs. For n = 0, A", True, "truncated"),
        ("It seems that\nWinner: A", True, "truncated"),
        ("So I say <winner>A", True, "truncated"),
        ("I'm sorry, but I can't assist with that.", False, "refused"),
        ("I cannot assist with judging these answers.", False, "refused"),
        ("As a language model I am unable to evaluate this.", False, "refused"),
        ("Both are interesting.", False, "no-tag"),
        ("<winner></winner>", False, "no-tag"),
        ("<winner>A or B or TIE</winner>\n<confidence>HIGH or LOW</confidence>", False, "no-tag"),
        ("<winner>A/B</winner>", False, "no-tag"),
        ("<winner>C</winner>", False, "no-tag"),
        ("<confidence>HIGH</confidence>", False, "no-tag"),
        ("The <winner> tag. A has it.", False, "no-tag"),
        ("Winner: A or B or TIE", False, "no-tag"),
        ("The verdict is a close call.", False, "no-tag"),
        ("It is not clear whether B is better.", False, "no-tag"),
        ("Neither A nor B is better.", False, "no-tag"),
        ("I don't think A is better.", False, "no-tag"),
        ("Candidate B claims that A is better.", False, "no-tag"),
        ("A is not better.", False, "no-tag"),
        ("Winner: A\n1\n2\n3\n4\nI am lost.", False, "no-tag"),
        (f"{BEGIN_A}\n<winner>A</winner>", False, "empty"),
        (f"x <winner>A</winner>\n{END_A}", False, "empty"),
        ("> <winner>A</winner>", False, "empty"),
    ],
)
def test_a_reply_without_a_verdict_says_why(text: str, truncated: bool, cause: str) -> None:  # noqa: FBT001
    assert read(FULL, text, truncated=truncated) == Reading(None, "none", cause)


def test_a_cut_reply_that_holds_complete_tags_counts() -> None:
    reading = read(FULL, "<winner>B</winner>\n<confidence>HI", truncated=True)
    assert (reading.winner, reading.confidence) == ("B", "LOW")
    assert read(
        RATINGS, "<rating_A>3</rating_A><rating_B>8</rating_B>, as", truncated=True
    ).answer == Verdict(3, 8)
    assert read(RATINGS, "<rating_A>3</rating_A>\n<rating_B>", truncated=True).cause == "truncated"


@pytest.mark.parametrize(
    ("text", "verdict", "how"),
    [
        ("<rating_A>7</rating_A>\n<rating_B>4</rating_B>", Verdict(7, 4), "tags"),
        ("<rating_a> 8/10 </rating_a><rating_b>**7.5**</rating_b>", Verdict(8, 7.5), "tags"),
        ("<rating A>9</rating A> <rating-B>7,5</rating-B>", Verdict(9, 7.5), "tags"),
        ("<rating_A>85/100</rating_A><rating_B>3 out of 10</rating_B>", Verdict(8.5, 3), "tags"),
        ("<rating_A>15</rating_A><rating_B>0</rating_B>", Verdict(10, 1), "tags"),
        ("<rating_A>N</rating_A><rating_B>N</rating_B> <rating_A>2</rating_A><rating_B>3</rating_B>", Verdict(2, 3), "tags"),
        ("<rating_A>1</rating_A><rating_B>2</rating_B>\nNo:\n<rating_A>6</rating_A>", Verdict(6, 2), "tags"),
        ("<rating_A>9</rating_A>", Verdict(9, 5), "tags"),
        ("<rating_B>2</rating_B>\n<rating_A>1-10</rating_A>", Verdict(5, 2), "tags"),
        ("Rating A: 7, Rating B: 4", Verdict(7, 4), "plain"),
        ("**Rating A:** 7/10\n**Rating B:** 10/10", Verdict(7, 10), "plain"),
        ("Ratings: A = 3, B = 9", Verdict(3, 9), "plain"),
        ("rating_A: 6\nrating_B: 6", Verdict(6, 6), "plain"),
        ("Score for A: 6", Verdict(6, 5), "plain"),
    ],
)  # fmt: skip
def test_two_ratings_are_read_and_a_missing_one_is_five(text: str, verdict: Verdict, how: str) -> None:
    reading = read(RATINGS, text)
    assert (reading.answer, reading.how) == (verdict, how)


@pytest.mark.parametrize(
    ("text", "value", "how"),
    [
        ("<rating>8</rating>", 8, "tags"),
        ("<rating>3</rating> rather\n<rating>Rating: 4</rating>", 4, "tags"),
        ("<rating>7.5/10</rating>", 7.5, "tags"),
        ("<rating>99</rating>", 10, "tags"),
        ("<rating>10", 10, "tags"),
        ("Good.\nRating: 7", 7, "plain"),
        ("**Final rating:** 6/10", 6, "plain"),
        ("I'd give it a score of 9.", 9, "plain"),
        ("My rating is 4 out of 10", 4, "plain"),
    ],
)
def test_one_rating_is_read(text: str, value: float, how: str) -> None:
    reading = read(SOLO, text)
    assert (reading.answer, reading.how) == (Rating(value), how)


@pytest.mark.parametrize(
    ("text", "winner", "how"),
    [
        ("<best>3</best>", 2, "tags"),
        ("<best>1</best> or rather <best>#2</best>", 7, "tags"),
        ("<best>Candidate 1</best>", 4, "tags"),
        ("<best>**2**</best>", 7, "tags"),
        ("The best candidate is 3.", 2, "plain"),
        ("**Best:** 1", 4, "plain"),
        ("Hence candidate 2 is the best.", 7, "plain"),
    ],
)
def test_the_best_of_a_group_is_the_entrant_shown_at_that_place(text: str, winner: int, how: str) -> None:
    reading = read(GROUP, text)
    assert (reading.answer, reading.how) == (Pick(winner), how)


@pytest.mark.parametrize("text", ["<best>0</best>", "<best>4</best>", "<best>NUMBER</best>", "<best>1 or 2</best>",
                                  "<best>1, 2</best>", "<best>-1</best>", "<best>1.5</best>", "Best of 3"])  # fmt: skip
def test_a_number_out_of_range_or_none_is_malformed(text: str) -> None:
    assert read(GROUP, text) == Reading(None, "none", "no-tag")


@given(
    text=any_texts,
    truncated=st.booleans(),
    nonce=st.sampled_from(["", "abc123", "(", "\\"]),
    code=st.sampled_from([None, "", "7f3k", "(", "a"]),
    bound_only=st.booleans(),
)
def test_no_reply_makes_a_parser_raise(
    text: str,
    truncated: bool,  # noqa: FBT001
    nonce: str,
    code: str | None,
    bound_only: bool,  # noqa: FBT001
) -> None:
    readable(text)
    for ask in ASKS:
        reading = read_reply(ask, text, truncated=truncated, nonce=nonce, code=code, bound_only=bound_only)
        assert (reading.answer is None) == (reading.how == "none") == (reading.cause is not None)
        assert not (reading.bound and reading.answer is None)


@pytest.mark.parametrize(
    "piece",
    ["<winner>", "<", "< ", "</think>", "<think>\n", BEGIN_A, END_A, ">\n", "best ", "A is the ", "(", "1", "\n", " ",
     "\\boxed{", "rating A: ", "winner: A ", "not A wins ", "\u2060", "a\u2060", "<winner>the the "],
)  # fmt: skip
def test_long_replies_are_read_in_linear_time(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        start = process_time()
        for ask in ASKS:
            read(ask, text)
        return process_time() - start

    assert seconds(100_000) < max(1.0, 40 * seconds(10_000))


@given(
    sentence=st.none() | st.lists(st.sampled_from(["the", "whole", "of", "it", "was", "read", "with", "care", "and", "tested"]), min_size=1).map(" ".join)
    | st.text("abcdefghij ,", min_size=1, max_size=60),
    winner=st.sampled_from(["A", "B", "TIE"]),
    sure=st.sampled_from(["HIGH", "LOW"]),
    code=st.none() | st.just("k7f3"),
    bound_only=st.booleans(),
)  # fmt: skip
def test_a_terse_reply_is_read_as_the_full_reading_reads_it(sentence, winner, sure, code, bound_only):
    tags = f"<winner>{winner}{'' if code is None else '-' + code}</winner>\n<confidence>{sure}</confidence>"
    text = tags if sentence is None else f"{sentence}.\n{tags}"
    settings_ = {"truncated": False, "nonce": "abcdef", "code": code, "bound_only": bound_only}
    # A blank of no width in the sentence before keeps a reply from being terse, and nobody sees it.
    full = read_reply(Pairing(0, 1, Level.FULL), f"\u200b\n{text}", **settings_)
    assert read_reply(Pairing(0, 1, Level.FULL), text, **settings_) == full
