from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.evidence.examples import generated_inputs, mutate_arguments, mutate_text


def test_numbers_that_count_something_stay():
    for seed in range(50):
        head, row = mutate_text("3\n70 80 90", Random(seed)).split("\n")
        assert head == "3"
        assert len(row.split()) == 3
        assert all(70 <= int(word) <= 90 for word in row.split())


def test_words_keep_their_letters_and_some_input_differs():
    seen = {mutate_text("5\nhello", Random(seed)) for seed in range(20)}
    assert len(seen) > 3
    assert all(sorted(one) == sorted("5\nhello") for one in seen)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.floats(-10, 10) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(values, max_size=3), st.integers(0, 99))
def test_arguments_keep_their_number_and_types(arguments, seed):
    changed = mutate_arguments(arguments, Random(seed))
    assert [type(one) for one in changed] == [type(one) for one in arguments]
    assert repr(mutate_arguments(arguments, Random(seed))) == repr(changed)


@given(st.integers(0, 10**6), st.integers(0, 99))
def test_what_is_not_negative_stays_so_in_a_text(number, seed):
    assert int(mutate_text(f"{number}", Random(seed))) >= 0


def test_an_argument_meets_its_edge_cases():
    assert {0, 1, -1, -70} <= {mutate_arguments([70], Random(seed))[0] for seed in range(200)}


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        ("int", int), ("str", str), ("bool", bool), ("float", float), ("List[int]", list), ("list[list[str]]", list),
        ("Tuple[int, str]", tuple), ("Dict[str, int]", dict), ("Optional[int]", int | None), ("int | None", int | None),
        ("typing.List[float]", list), ("set[int]", set),
    ],
)  # fmt: skip
def test_values_are_made_up_from_annotations(annotation, kind):
    made = generated_inputs(
        f"import x\ndef f(a: {annotation}, b: int = 3) -> int:\n    pass\n", "f", Random(1), 20
    )
    assert len(made) == 20
    assert all(isinstance(a, kind) and isinstance(b, int) for a, b in made)


def test_a_method_is_called_without_self_and_a_head_may_take_lines():
    source = "class Solution:\n    def f(\n        self,\n        a: int,\n    ) -> int:\n        return 1\n"
    assert all(len(one) == 1 for one in generated_inputs(source, "f", Random(1), 3))
    assert generated_inputs(source, "f", Random(1), 3)


@pytest.mark.parametrize(
    "head", ["def f(a): pass", "def f(a: Tree):\n  pass", "def g(a: int):\n  pass", "f(a: int)", ""]
)
def test_nothing_is_made_up_where_types_are_unknown(head):
    assert generated_inputs(head, "f", Random(1), 3) == []
