from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.evidence.examples import generated_arguments
from caps.evidence.inputs import CallInputs, Hints
from caps.evidence.text_inputs import TextInputs


def changed_texts(text, hints=None, count=60):
    source = TextInputs([text], hints or Hints(), Random(1))
    return [source.change(text) for _ in range(count)] + list(source.edges())


def test_a_number_that_counts_words_or_lines_changes_with_them():
    for text in changed_texts("3\n70 80 90"):
        head, *rows = text.strip().split("\n")
        assert [len(row.split()) for row in rows] == [int(head)]
    for text in changed_texts("2 3\n#.#\n..#"):
        head, *rows = text.strip().split("\n")
        assert (len(rows), len(rows[0])) == tuple(map(int, head.split()))


@given(st.lists(st.lists(st.text("ab1-9 ", max_size=4), max_size=4), max_size=4), st.integers(0, 9))
def test_any_text_can_be_changed(lines, seed):
    text = "\n".join(" ".join(words) for words in lines)
    source = TextInputs([text], Hints(), Random(seed))
    assert isinstance(source.change(text), str)
    list(source.edges())


values = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.floats(-10, 10) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(values, max_size=3), st.integers(0, 99))
def test_arguments_keep_their_number_and_types(arguments, seed):
    changed, again = (CallInputs([arguments], Hints(), Random(seed)).change(arguments) for _ in range(2))
    assert [type(one) for one in changed] == [type(one) for one in arguments]
    assert repr(changed) == repr(again)


def test_an_argument_meets_its_edge_cases():
    source = CallInputs([[70, [1, 2], "ab"]], Hints(), Random(1))
    edges = list(source.edges())
    assert {0, 1, -1, -70} <= {one[0] for one in edges}
    assert [] in [one[1] for one in edges]
    assert {"", "a"} <= {one[2] for one in edges}


def test_what_the_statement_rules_out_is_not_tried():
    hints = Hints.of("A non-empty list of positive integers.", [])
    edges = list(CallInputs([[[3, 1, 2]]], hints, Random(1)).edges())
    assert all(xs and min(xs) > 0 for (xs,) in edges)


def test_numbers_may_be_negative_or_zero_where_the_statement_says_so():
    both = Hints.of("The largest of the negative integers, and the smallest of the positive integers.", [])
    assert any(min(xs) < 0 for (xs,) in CallInputs([[[3, 1, 2]]], both, Random(1)).edges() if xs)
    stated = Hints.of("Given a positive integer k, 0 <= k <= len(arr)", [])
    edges = [k for _, k in CallInputs([[[3, 1], 2]], stated, Random(1)).edges()]
    assert (min(edges), -1 in edges) == (0, False)


def test_arguments_are_exchanged_and_made_from_each_other():
    made = list(CallInputs([[5, 2, 7], [3.6, -2.2, 2]], Hints(), Random(1)).related())
    assert [7, 2, 5] in made
    assert [5, 2, 5.0 + 2] in made
    assert [0.0 - 2.2 + 2, -2.2, 2] in made
    made = list(CallInputs([[[8, 9], 70, "ab"]], Hints(), Random(1)).related())
    assert {2, 1} <= {k for _, k, _ in made}


def test_rows_stay_as_long_as_each_other_and_a_square_stays_one():
    square = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    source = CallInputs([[square]], Hints(), Random(1))
    changed = [rows for _ in range(60) for (rows,) in [source.change([square])] if len(rows) > 1]
    shaped = [
        rows for rows in changed if len({len(row) for row in rows}) == 1 == len({len(rows), len(rows[0])})
    ]
    assert len(shaped) > len(changed) / 2


def test_texts_meet_what_the_programs_look_for():
    hints = Hints.of("", ["import re\nre.search('^[a-z]+_[a-z]+$', s)", "s.startswith('p')"])
    source = CallInputs([["ab cd"]], hints, Random(1))
    changed = [text for _ in range(600) for (text,) in [source.change(["ab cd"])]]
    assert any("_" in text for text in changed)
    assert any(" p" in text for text in changed)
    assert any(sum(map(str.isdigit, text)) > 2 for text in changed)


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        ("int", int), ("str", str), ("bool", bool), ("float", float), ("List[int]", list), ("list[list[str]]", list),
        ("Tuple[int, str]", tuple), ("Dict[str, int]", dict), ("Optional[int]", int | None), ("int | None", int | None),
        ("typing.List[float]", list), ("set[int]", set),
    ],
)  # fmt: skip
def test_values_are_made_up_from_annotations(annotation, kind):
    made = generated_arguments(
        f"import x\ndef f(a: {annotation}, b: int = 3) -> int:\n    pass\n", "f", Random(1), 20
    )
    assert len(made) == 20
    assert all(isinstance(a, kind) and isinstance(b, int) for a, b in made)


def test_a_method_is_called_without_self_and_a_head_may_take_lines():
    source = "class Solution:\n    def f(\n        self,\n        a: int,\n    ) -> int:\n        return 1\n"
    assert all(len(one) == 1 for one in generated_arguments(source, "f", Random(1), 3))
    assert generated_arguments(source, "f", Random(1), 3)


@pytest.mark.parametrize(
    "head", ["def f(a): pass", "def f(a: Tree):\n  pass", "def g(a: int):\n  pass", "f(a: int)", ""]
)
def test_nothing_is_made_up_where_types_are_unknown(head):
    assert generated_arguments(head, "f", Random(1), 3) == []
