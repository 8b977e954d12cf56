from hypothesis import given
from hypothesis import strategies as st

from caps.evidence.examples import MAX_EXAMPLES, shown_calls


def test_a_prompt_has_its_value_on_the_next_line():
    statement = 'def f(x):\n    """\n    >>> f([1, 2])\n    3\n    >>> f("a, (b")\n    [\'x\']\n    """\n'
    assert shown_calls(statement, "f") == [([[1, 2]], 3), (["a, (b"], ["x"])]


def test_values_stand_behind_many_signs():
    lines = [
        "f(1) == 2",
        "f(2) => 3",
        "f(3) -> 4",
        "f(4) ➞ 5",
        "f(5) should return 6.",
        "f(6) # => 7",
        "f(7) = true",
    ]
    assert [(a[0], value) for a, value in shown_calls("\n".join(lines), "f")] == [
        (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, True),
    ]  # fmt: skip


def test_what_follows_a_value_is_not_part_of_it():
    assert shown_calls("f(1) == 'No' (because it is one)", "f") == [([1], "No")]
    assert shown_calls("f(1) == [2, 3], as above.", "f") == [([1], [2, 3])]


def test_only_literals_of_that_very_function_count():
    for line in [
        "f(x) == 1",
        "g.f(1) == 2",
        "ff(1) == 2",
        "def f(1) -> int",
        "f(1, y=2) == 3",
        "f(1) == g(2)",
        "f(1",
    ]:
        assert shown_calls(line, "f") == []


def test_a_call_is_told_once_and_there_is_an_end():
    assert len(shown_calls("f(1) == 2\n" * 9, "f")) == 1
    assert len(shown_calls("\n".join(f"f({i}) == 2" for i in range(99)), "f")) == MAX_EXAMPLES


@given(st.text(alphabet="f()[]'\"=>-\n\\ 12,#", max_size=200))
def test_any_text_is_read(text):
    for arguments, _ in shown_calls(text, "f"):
        assert isinstance(arguments, list)
