import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.core.types import Candidate
from caps.evidence import signatures, views, windows


def words(n, start=0):
    return " ".join(f"word{i:03}" for i in range(start, start + n))


LONG_CODE = "\n".join(f"line_{i:03} = {i}" for i in range(100))
CODE = Candidate(f"{words(300)}\n```python\n{LONG_CODE}\n```\nThat is all.")
MATH = Candidate(f"{words(500)} so $\\boxed{{42}}$ it is. {words(200, 500)}")


def test_a_code_summary_is_both_ends_of_the_reasoning_and_the_start_of_the_code():
    assert views.code_summary(CODE) == (
        f"{words(50)}\n[...reasoning truncated...]\n{words(50, 250)}\n\n"
        f"```\n{LONG_CODE[:500].rstrip()}\n[...code truncated...]\n```"
    )


def test_a_short_candidate_is_shown_whole():
    short = Candidate("Plan.\n```\nx = 1\n```\n")
    assert views.code_summary(short) in (short.text, short.text.strip())
    assert views.math_summary(Candidate("It is \\boxed{7}.")) == "It is \\boxed{7}."


@pytest.mark.parametrize(("count", "cut"), [(99, False), (100, False), (101, True), (400, True)])
def test_up_to_a_hundred_words_are_left_alone(count, cut):
    assert ("[cut]" in windows.ends(words(count), 50, "[cut]")) is cut


def test_the_layout_inside_a_window_is_kept():
    text = "a\n  b\n\n" + "x " * 50 + "\n  y\nz"
    assert windows.ends(text, 2, "…") == "a\n  b\n…\ny\nz"


def test_writing_without_spaces_is_cut_too():
    window = windows.ends("思" * 100_000, 50, "[cut]")
    assert len(window) <= 2 * 50 * windows.CHARACTERS_PER_WORD + len("\n[cut]\n")


def test_a_code_head_is_twenty_lines():
    head = views.code_head(CODE).split("\n")
    assert head[:20] == LONG_CODE.split("\n")[:20]
    assert head[20:] == ["[...code truncated...]"]


def test_a_code_head_does_not_trust_the_length_of_lines():
    assert len(views.code_head(Candidate("```\n" + "x" * 50_000 + "\n```"))) < 5000


def test_code_only_is_all_of_the_code_or_else_the_text():
    assert views.code_only(CODE) == LONG_CODE
    assert views.code_only(Candidate("  no code here")) == "  no code here"
    assert views.code_only(Candidate("text", code="  x = 1\n")) == "  x = 1"


def test_a_math_summary_is_both_ends_and_the_answer():
    view = views.math_summary(MATH)
    assert view.startswith(words(50) + "\n[...reasoning truncated...]\n")
    assert view.endswith("word699\n\nFinal answer: 42")


def test_a_math_window_ends_soon_after_the_box():
    view = views.math_window(MATH)
    assert view.startswith("Final answer: 42\n\n[...text truncated...]\n")
    assert view.endswith("\n[...text truncated...]")
    assert "$\\boxed{42}$ it is. word500" in view
    assert "word600" not in view
    assert len(view) < 1200 + 70


def test_without_a_box_the_window_is_the_end():
    view = views.math_window(Candidate(words(900), answer="word899"))
    assert view.startswith("Final answer: word899\n\n[...text truncated...]\n")
    assert view.endswith("word899")


def test_the_thinking_view_is_the_answer_and_the_last_words():
    view = views.thinking(Candidate(f"<think>{words(2000)}</think> It is \\boxed{{5}}."))
    assert view.startswith("Final answer: 5\n\n[...text truncated...]\n")
    assert view.endswith("</think> It is \\boxed{5}.")
    assert 2000 <= len(view) <= 2000 + 50


def test_the_thinking_view_takes_a_boxed_answer_only():
    announced = Candidate(f"<think>{words(2000)}</think> The answer is 5.")
    assert "Final answer" not in views.thinking(announced)
    assert views.thinking_announced(announced).startswith("Final answer: 5\n\n")


def test_fifty_words_are_fifty_whole_words_however_long():
    long = " ".join(f"\\frac{{{'x' * 40}_{i}}}{{2}}" for i in range(300))
    shown = views.math_summary(Candidate(f"<think>{long}</think> \\boxed{{7}}"))
    before, after = shown.removesuffix("\n\nFinal answer: 7").split("\n[...reasoning truncated...]\n")
    assert before.split() == long.split()[:50]
    assert after.split() == long.split()[-50:]
    assert (
        views.math_excerpt(Candidate(f"<think>{long}</think> \\boxed{{7}}")) != shown
    )  # cut at 800 characters


@given(st.lists(st.text("ab\n", min_size=1, max_size=400), min_size=1, max_size=60))
def test_a_window_of_words_is_bounded_and_cuts_no_word_that_fits(parts):
    text = windows.trim(" ".join(parts))
    shown = windows.ends_in_words(text, 5, "|")
    assert len(shown) <= 2 * 5 * windows.LONGEST_WORDS + 3
    known = text.split()
    if all(len(word) < 500 for word in known):
        assert all(word in known for word in shown.replace("|", " ").split())


def test_the_first_lines_of_a_candidate_are_those_of_its_thoughts():
    thoughts = "\n".join(f"Line {i} of a long thought." for i in range(50))
    candidate = Candidate(f"<think>\n{thoughts}\n</think>\n```python\n{LONG_CODE}\n```")
    head = views.candidate_head(candidate).split("\n")
    assert head[:2] == ["<think>", "Line 0 of a long thought."]
    assert (len(head), head[-1]) == (21, "[...text truncated...]")
    assert views.code_head(candidate).startswith("line_000 = 0")


def test_a_full_view_without_thoughts_keeps_all_else():
    candidate = Candidate(f"<think>{words(900)}</think>\nPlan.\n```\nx = 1\n```", answer="7")
    assert views.without_thoughts(candidate) == "Plan.\n```\nx = 1\n```\n\nFinal answer: 7"
    assert views.without_thoughts(CODE) is CODE.text
    cut = Candidate("<think>" + words(50))
    assert views.without_thoughts(cut) == cut.text


def test_the_papers_answer_is_the_last_box_and_ours_also_what_is_announced():
    row, said = Candidate("\\boxed{1} and \\boxed{2}"), Candidate(f"{words(300)} The answer is 12.")
    assert (signatures.math_answer(row), signatures.math_final(row)) == ("2", "1,2")
    assert (signatures.math_answer(said), signatures.math_final(said)) == (None, "12")
    assert "Final answer" not in views.math_summary(said)
    assert views.math_excerpt(said).endswith("Final answer: 12")


def test_trailing_white_space_does_not_push_the_end_out_of_sight():
    assert "word1999" in views.thinking(Candidate(words(2000) + " " * 9000))


def test_a_general_summary_is_both_ends():
    view = views.general_summary(Candidate(words(1000)))
    assert view == f"{words(120)}\n[...text truncated...]\n{words(120, 880)}"


def test_a_huge_answer_is_cut_as_well():
    view = views.math_summary(Candidate(f"\\boxed{{{'9' * 50_000}}}"))
    assert view.endswith("9\n[...answer truncated...]")
    assert len(view) < 600


def test_the_full_view_is_the_text_itself():
    assert views.full(CODE) is CODE.text
    assert views.full(Candidate(CODE.text, code=f"\n{LONG_CODE}\n\n")) is CODE.text
    assert views.full(Candidate("It is 7.", answer="7")) == "It is 7."


def test_stated_parts_the_text_lacks_follow_it():
    assert views.full(Candidate("Plan.", code="  x = 1\n")) == "Plan.\n\n```\n  x = 1\n```"
    assert views.full(Candidate("Plan.", answer="7")) == "Plan.\n\nFinal answer: 7"
    assert views.full(Candidate("", code="x = 1")) == "```\nx = 1\n```"


def test_bare_code_keeps_the_indentation_of_its_first_line():
    body = "\n".join(f"    step_{i} = {i} if a else b" for i in range(60))
    assert views.code_summary(Candidate(body)).startswith("    step_0 = 0")


@given(st.integers(0, 260), st.integers(0, 900), st.sampled_from(["", "\\boxed{7}"]))
def test_a_code_summary_says_when_it_cuts(count, length, box):
    code = "x" * length
    view = views.code_summary(Candidate(f"{words(count)}\n```\n{code}\n```\n{box}"))
    assert (words(count) in view) or "[...reasoning truncated...]" in view
    assert (code in view) or "[...code truncated...]" in view
    assert len(view) <= 2 * 50 * 16 + 500 + 100
