import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.core.types import Candidate
from caps.evidence.anatomy import dissect, final_answer, last_boxed, last_code_block, spoken


@pytest.mark.parametrize(
    ("text", "reasoning"),
    [
        ("<think>first this</think>rest", "first this"),
        ("<THINKING>loud</Thinking>rest", "loud"),
        ("<think>cut off", "cut off"),
        ("<think>one</think>a<think>two</think>b", "one\ntwo"),
        ("the template wrote the tag</think>rest", "the template wrote the tag"),
        ("<think>a<think>b</think>c</think>rest", "a<think>b</think>c"),
        ("<think>  \n</think>\n\nI was told not to think", "I was told not to think"),
        ("<think>```python\nx\n</think>rest", "```python\nx"),
    ],
)
def test_reasoning_stands_between_thinking_tags(text, reasoning):
    assert dissect(Candidate(text)).reasoning == reasoning


def test_without_tags_reasoning_is_what_precedes_the_last_block():
    text = "Plan.\n```\nold()\n```\nBetter:\n```python\nnew()\n```\nDone."
    parts = dissect(Candidate(text))
    assert parts.reasoning == "Plan.\n```\nold()\n```\nBetter:"
    assert parts.code == "new()\n"
    assert parts.text == text


@pytest.mark.parametrize(
    ("text", "code", "reasoning"),
    [
        ("Plan.\n```python\nnew()\n```\nUse it:\n```\n$ run\n```", "new()", "Plan."),
        ("Plan.\nnew()\n", "\nnew()\n", "Plan."),
        ("Plan only.", "new()", "Plan only."),
        ("new()", "new()", ""),
    ],
)
def test_stated_code_goes_before_what_is_found(text, code, reasoning):
    parts = dissect(Candidate(text, code=code))
    assert (parts.code, parts.reasoning) == (code, reasoning)


def test_prose_keeps_fenced_blocks_in_the_reasoning_and_leaves_the_box_out():
    parts = dissect(Candidate("Since\n```\n1 + 1\n```\nit is $\\boxed{2}$."), prose=True)
    assert parts.reasoning == "Since\n```\n1 + 1\n```\nit is $…$."
    assert parts.answer == "2"


def test_nothing_but_a_box_has_no_reasoning():
    assert dissect(Candidate("\\boxed{2}"), prose=True).reasoning == ""


def test_code_inside_a_thought_is_not_the_answer():
    assert dissect(Candidate("<think>```\ndraft()\n```</think>I give up.")).code is None


def test_tags_quoted_in_code_are_code():
    text = "Strip them:\n```python\nre.sub('<think>.*?</think>', '', s)\n```"
    parts = dissect(Candidate(text))
    assert parts.code == "re.sub('<think>.*?</think>', '', s)\n"
    assert parts.reasoning == "Strip them:"


def test_a_fence_left_open_in_an_unopened_thought_does_not_hide_the_program():
    assert dissect(Candidate("hm\n```\ndraft\n</think>\n```\nfinal()\n```")).code == "final()\n"


DOCSTRING = 'def f():\n    """Use it so:\n\n    ```\n    f()\n    ```\n    """\n'


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("no fence", None), ("```\na\n```", "a\n"), ("~~~ruby\na\n~~~", "a\n"),
        ("```\na\n```\n```\nb\n```", "b\n"), ("```\na\n```\n```\n\n```", "a\n"),
        ("```python\na\n```\ntail\n```", "a\n"), ("```python\na", "a"), ("```", None),
        ("````\n```\na\n```\n````", "```\na\n```\n"), ("```\na\n~~~\nb\n```", "a\n~~~\nb\n"),
        ("```x``` and ```y```", None), ("1. so:\n    ```python\n    a\n    ```", "    a\n"),
        ("```\r\na\r\n```\r\n", "a\r\n"), ("see\n```python\nx = 1\ny = 2", "x = 1\ny = 2"),
        (f"```python\n{DOCSTRING}```", DOCSTRING),  # a fence in a docstring does not end the program
    ],
)  # fmt: skip
def test_the_last_fenced_block(text, body):
    assert last_code_block(text) == body


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("no box", None),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed {4}", "4"),
        (r"\fbox{5}", "5"),
        (r"\boxed{6} and \boxed{", "6"),
        (r"\boxed{7} goes into \boxed{}", "7"),
        (r"\boxed{ }", None),
        (r"} } \boxed{8} { {", "8"),
        (r"a \\ \boxed{9}", "9"),
        (r"\\\boxed{10}", "10"),
        (r"first \boxed{0}, so \(\boxed{1}\) and \(x = \boxed{2}\)", "1, 2"),  # boxes in a row are one answer
        (r"\boxed{1} is wrong, it is \boxed{2}", "2"),
        (r'{"answer": "\\boxed{\\frac{1}{2}}"}', r"\frac{1}{2}"),
    ],
)
def test_the_last_complete_box(text, answer):
    assert last_boxed(text) == answer


def test_a_stated_answer_goes_before_a_boxed_one_unless_blank():
    assert final_answer(Candidate(r"\boxed{1}", answer=" 2 ")) == "2"
    assert final_answer(Candidate(r"\boxed{1}", answer=" ")) == "1"
    assert dissect(Candidate(r"\boxed{1}", answer="2")).answer == "2"


def test_spoken_is_what_is_said_outside_the_thoughts():
    assert spoken("a<think>b</think>c<thinking>d") == "ac"


@given(
    st.recursive(st.text("xy^2 \\,"), lambda inner: inner.map(lambda s: "{" + s + "}") | inner, max_leaves=5)
)
def test_a_balanced_content_comes_out_of_its_box(content):
    wrapped = content.replace("\\", "") or "x"
    assert last_boxed(f"so \\boxed{{{wrapped}}} it is") == (wrapped.strip() or None)


@given(st.text("ab \n"), st.text("ab \n"))
def test_thoughts_and_speech_are_told_apart(thought, speech):
    parts = dissect(Candidate(f"<think>{thought}.</think>{speech}"))
    assert parts.reasoning == f"{thought}.".strip()
    assert spoken(f"<think>{thought}</think>{speech}") == speech


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 42.", "42"),
        ("So: **Answer:** $x^2$", "$x^2$"),
        ("The answer is:\n\\[\n x^2 \n\\]\nas promised.", "x^2"),
        ("Work.\n#### 1,234", "1,234"),
        ('{"reasoning": "…", "answer": "\\\\frac{1}{2}"}', r"\frac{1}{2}"),
        ('{"answer": 3}', "3"),
        ("The answer is 1. No: the final answer is 3.5. Done.", "3.5"),
        ("<think>The answer is 1.</think>", None),
        ("No conclusion here.", None),
        (r"The answer is 1, or rather \boxed{2}.", "2"),
    ],
)
def test_an_answer_may_be_announced_without_a_box(text, answer):
    assert final_answer(Candidate(text)) == answer
