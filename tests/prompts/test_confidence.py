"""Confidence from log-probabilities, however a tokeniser splits the verdict."""

from math import inf, log, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.core.types import Ask, Rating, TokenLogprob, Verdict
from caps.prompts.confidence import weigh
from caps.prompts.read import Reading, read_reply
from support.shown import ASKS, FRAGMENTS, FULL, GROUP, RATINGS, SOLO


def said(*words: str) -> list[TokenLogprob]:
    return [TokenLogprob(word, -0.01) for word in words]


def token(chosen: str, **top: float) -> TokenLogprob:
    return odds(chosen, *top.items())


def odds(chosen: str, *top: tuple[str, float]) -> TokenLogprob:
    chances = dict(top)
    logs = tuple((text, log(p) if p else -inf) for text, p in top)
    return TokenLogprob(chosen, log(chances.get(chosen, 0.5)), logs)


def tagged(one: TokenLogprob, *, before: str = "<winner>", after: str = "</winner>") -> list[TokenLogprob]:
    return [*said("Both run.\n", before), one, *said(after)]


def weighed(
    ask: Ask, tokens: list[TokenLogprob], *, code: str | None = None, imitated=(), text: str | None = None
) -> Verdict | Rating | None:
    """What the tokens of a reply say; its `text` may be spelled otherwise."""

    def read(words: str) -> Reading:
        return read_reply(ask, words, truncated=False, nonce="n0n0", code=code, imitated=imitated)

    text = "".join(token.token for token in tokens) if text is None else text
    return weigh(ask, tokens, text, read(text), read)


def lead(tokens: list[TokenLogprob]) -> float | None:
    verdict = weighed(FULL, tokens)
    return None if verdict is None else (verdict.a - verdict.b) / 9


def test_the_weight_is_the_difference_of_the_two_probabilities() -> None:
    verdict = weighed(FULL, tagged(token("A", A=0.7, B=0.2, TIE=0.1)))
    assert isinstance(verdict, Verdict)
    assert verdict.weight == pytest.approx(0.5)
    assert verdict.outcome == 1
    assert 1 <= verdict.b < verdict.a <= 10


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (tagged(odds(" B", (" A", 0.1), (" B", 0.8), ("B", 0.1))), -0.8),
        (tagged(odds(">A", (">A", 0.6), (">B", 0.3), (">T", 0.1)), before="<winner"), 0.3),
        (tagged(odds("T", ("T", 0.6), ("A", 0.3), ("B", 0.1)), after="IE</winner>"), 0.2),
        (tagged(odds("TI", ("TI", 0.5), ("A", 0.5)), after="E</winner>"), 0.5),
        (tagged(odds("\nA", ("\nA", 0.9), ("\nB", 0.1))), 0.8),
        (tagged(odds("A</", ("A</", 0.9), ("B</", 0.1)), after="winner>"), 0.8),
        (tagged(odds(" B", (" A", 0.25), (" B", 0.75)), before="<winner>Solution"), -0.5),
        (tagged(odds("**A", ("**A", 0.4), ("B", 0.4), ("tie", 0.2)), after="**</winner>"), 0.0),
        (tagged(odds("A", ("A", 0.5), ("Answer", 0.4), ("Both", 0.1))), 1.0),
        (tagged(odds("A", ("A", 0.3), ("B", 0.1), ("\n", 0.6))), 0.5),
        (tagged(TokenLogprob("B", -0.1)), -1.0),
    ],
)
def test_tokenisers_may_split_the_verdict_as_they_like(tokens: list[TokenLogprob], expected: float) -> None:
    assert lead(tokens) == pytest.approx(expected)


def test_the_larger_mass_wins_even_where_another_token_was_chosen() -> None:
    split = lead(tagged(odds("A", ("A", 0.4), ("B", 0.3), (" B", 0.3))))
    assert split == pytest.approx(-0.2)


def test_only_the_tag_that_decides_is_weighed() -> None:
    early = tagged(token("A", A=0.9, B=0.1))
    late = tagged(token("B", A=0.4, B=0.6))
    assert lead(early + said("\nWait.\n") + late) == pytest.approx(-0.2)
    assert lead(early + said("\n") + late) is None
    assert lead(said("<think>") + early + said("</think>") + late) == pytest.approx(-0.2)


@pytest.mark.parametrize(
    "tokens",
    [
        [],
        said("no tag at all"),
        said("<winner>", "A or B or TIE", "</winner>"),
        said("<winner>", "A", " tie", "</winner>"),
        said("<winner>", "neither", "</winner>"),
        said("<winner>"),
        tagged(TokenLogprob("A", -inf, (("A", -inf),))),
        tagged(TokenLogprob("A", nan)),
        tagged(TokenLogprob("A", -9999.0, (("x", -0.1),))),
    ],
)
def test_what_cannot_be_read_is_none(tokens: list[TokenLogprob]) -> None:
    assert weighed(FULL, tokens) is None


def test_only_the_tag_with_the_code_is_weighed_where_another_could_be_an_echo() -> None:
    echo = tagged(token("A", A=0.9, B=0.1))
    own = tagged(token("B", A=0.4, B=0.6), after="-k7f3</winner>")
    for tokens in (own + said("\n") + echo, echo + said("\nNo.\n") + own):
        verdict = weighed(FULL, tokens, code="k7f3", imitated=["verdict"])
        assert isinstance(verdict, Verdict)
        assert (verdict.a - verdict.b) / 9 == pytest.approx(-0.2)
    assert weighed(FULL, echo, code="k7f3", imitated=["verdict"]) is None
    assert weighed(FULL, echo, code="k7f3") is not None


def test_ratings_are_expected_values_over_the_digits() -> None:
    a = [*said("<rating_A>"), odds("8", ("8", 0.5), ("6", 0.5)), *said("</rating_A>\n")]
    b = [*said("<rating", "_B>"), odds(" 10", (" 10", 0.5), (" 9", 0.25), ("N", 0.25)), *said("</rating_B>")]
    verdict = weighed(RATINGS, a + b)
    assert isinstance(verdict, Verdict)
    assert verdict.a == pytest.approx(7)
    assert verdict.b == pytest.approx((10 * 0.5 + 9 * 0.25) / 0.75)
    assert weighed(RATINGS, a) is None


def test_a_ten_split_into_digits_is_no_one() -> None:
    split = [*said("<rating>"), odds("1", ("1", 0.8), ("9", 0.2)), *said("0", "</rating>")]
    beside = [*said("<rating>"), odds("9", ("1", 0.2), ("9", 0.8)), *said("</rating>")]
    low = [*said("<rating>"), odds("1", ("1", 0.8), ("2", 0.2)), *said("</rating>")]
    values = [weighed(SOLO, tokens) for tokens in (split, beside, low)]
    assert values == [Rating(pytest.approx(9.8)), Rating(pytest.approx(9.2)), Rating(pytest.approx(1.2))]


def test_a_group_has_no_such_reading() -> None:
    assert weighed(GROUP, said("<best>", "2", "</best>")) is None


words = st.sampled_from(FRAGMENTS) | st.text(max_size=4)
logprobs = st.floats(allow_nan=True, allow_infinity=True)
tops = st.lists(st.tuples(words, logprobs), max_size=4).map(tuple)


@given(st.lists(st.builds(TokenLogprob, words, logprobs, tops), max_size=12))
def test_no_tokens_make_it_raise_and_all_answers_are_on_the_scale(tokens: list[TokenLogprob]) -> None:
    for ask in ASKS:
        answer = weighed(ask, tokens)
        if isinstance(answer, Verdict):
            assert 1 - 1e-9 <= min(answer.a, answer.b) <= max(answer.a, answer.b) <= 10 + 1e-9
        elif answer is not None:
            assert 1 - 1e-9 <= answer.value <= 10 + 1e-9


def thought(*words: str) -> list[TokenLogprob]:
    return [*said("Let me see. ", *words), *said(" So it is A: <winner>", "A", "</winner> Hmm, no. ")]


VERDICT = "<winner>\n\n   B</winner>"


@pytest.mark.parametrize("closing", ["</think>", ""])
def test_of_a_thinking_model_only_the_tokens_of_its_reply_are_weighed(closing: str) -> None:
    """Some servers give the tokens of the thought too, and leave out the mark that ends it."""
    own = [*said("\n\n", "<winner>", "\n\n", "   "), token("B", A=0.3, B=0.6, TIE=0.1), *said("</winner>")]
    verdict = weighed(FULL, [*thought(), *said(closing), *own], text=VERDICT)
    assert isinstance(verdict, Verdict)
    assert (verdict.outcome, verdict.weight) == (0.0, pytest.approx(0.3))


@pytest.mark.parametrize("gap", [" " * 40, "\n" * 6, "\n \n\t"])
def test_white_space_before_the_verdict_hides_nothing(gap: str) -> None:
    tokens = tagged(token("A", A=0.8, B=0.2), before=f"<winner>{gap}")
    assert lead(tokens) == pytest.approx(0.6)


def test_tokens_that_end_before_the_reply_say_nothing_of_it() -> None:
    """The thought leans to A, the reply says B: the word stands, and no probability of another tag."""
    assert weighed(FULL, thought(), text=VERDICT) is None
    assert weighed(FULL, [], text=VERDICT) is None
    ratings = [
        *said("<rating_A>"),
        token("8"),
        *said("</rating_A><rating_B>"),
        token("3"),
        *said("</rating_B>"),
    ]
    other = "<rating_A>{}</rating_A> <rating_B>{}</rating_B>"
    assert weighed(RATINGS, ratings, text=other.format(2, 9)) is None
    assert weighed(RATINGS, ratings, text=other.format(8, 3)) is not None


def test_tokens_spelt_otherwise_count_where_they_say_the_same() -> None:
    tokens = [*said("caf\\xc3\\xa9\n"), *tagged(token("B", A=0.4, B=0.6))]
    assert weighed(FULL, tokens, text="café\nBoth run.\n<winner>B</winner>") is not None
    assert weighed(FULL, tokens, text="café\nBoth run.\n<winner>A</winner>") is None
