"""Every view and signature answers on every text, soon, whoever wrote it."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.core.types import Candidate
from caps.evidence.anatomy import dissect
from caps.registry import SIGNATURES, VIEWS, resolve

SCRAPS = [
    "<think>", "</think>", "<Thinking >", "</thinking>", "```", "```python", "~~~~", "\n", "\r\n", " ", "    ",
    "\\boxed{", "\\\\boxed{", "\\fbox {", "{", "}", "\\{", "\\", "[", "]", "(", ")", '"', "'", "#", ":", ",",
    "\0", "\ud800", "\u2028", "思", "x = 1", "def f():", "return", "import os", "if x:", "lambda ", "not ", "-",
    '{"a": 1}', '{"name": "f", "arguments": "{}"}', '"type": ', "<tool_call>", "</tool_call>", "word ", "1e999",
]  # fmt: skip
TEXTS = st.text() | st.lists(st.sampled_from(SCRAPS), max_size=40).map("".join)
CANDIDATES = st.builds(Candidate, TEXTS, code=st.none() | TEXTS, answer=st.none() | TEXTS)
SLOWEST = 20.0
SIZE = 10_000_000
LARGE = {"boxes": "\\boxed{", "thoughts": "<think>", "backticks": "`", "braces": "{", "letters": "a"}
REPEATED = {
    "closed boxes": "\\boxed{1}",
    "ends of thoughts": "</think>",
    "brackets": "[",
    "backslashes": "\\",
    "spaces": " ",
    "lines": "\n",
    "nothing": "\0",
    "surrogates": "\ud800",
    "fences": "```\n",
    "quotes": '\\"',
    "calls": "<tool_call>{",
    "words": "word ",
    "objects": '{"a":',
}
HOSTILE = {
    "100,000 fences": "```\nx\n```\n" * 50_000,
    "a box of braces": "\\boxed{" + "{" * 100_000,
    "nested boxes": "\\boxed{" * 50_000 + "}" * 50_000,
    "backticks, then not": "`" * 100_000 + "x`",
    "a deep list": "[" * 50_000 + "]" * 50_000,
    "a deep but lawful list": "[" * 300 + "]" * 300,
    "deep brackets": "(" * 150 + ")" * 150,
    "a sum": "+".join("a" * 50_000),
    "signs": "-" * 100_000 + "1",
    "attributes": "a" + ".b" * 50_000,
    "alternatives": "if a:\n  b\n" + "elif a:\n  b\n" * 5_000,
    "digits": "x = " + "9" * 100_000,
    "hexadecimal digits": "x = 0x" + "f" * 100_000,
    "a number": '{"a": ' + "9" * 100_000 + "}",
    "a quote and an escape": "```\n" + '\\"' * 50_000 + "\\",
}


full = resolve(VIEWS, "full")


def seconds(registry, name, candidate):
    """What one view or signature costs this process, however busy the machine."""
    began = time.process_time()
    resolve(registry, name)(candidate)
    return time.process_time() - began


@pytest.mark.parametrize("name", VIEWS.table)
@given(candidate=CANDIDATES)
def test_a_view_shows_something_of_anything_and_never_more_than_the_full_one(name, candidate):
    shown = resolve(VIEWS, name)(candidate)
    assert isinstance(shown, str)
    assert bool(shown) == bool(full(candidate))
    assert bool(full(candidate).strip()) == bool(shown.strip())
    assert len(shown) <= len(full(candidate))


@pytest.mark.parametrize("name", SIGNATURES.table)
@given(candidate=CANDIDATES)
def test_a_signature_is_short_printable_or_none(name, candidate):
    signature = resolve(SIGNATURES, name)
    found = signature(candidate)
    assert found is None or (0 < len(found) <= 80 and found.isprintable())
    assert found == signature(candidate)


@given(candidate=CANDIDATES, prose=st.booleans())
def test_anything_can_be_taken_apart(candidate, prose):
    parts = dissect(candidate, prose=prose)
    assert parts.text == candidate.text
    assert parts.code is None or parts.code.strip()
    assert parts.answer is None or parts.answer.strip()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_are_answered(text):
    for registry in (VIEWS, SIGNATURES):
        for name in registry.table:
            for candidate in (
                Candidate(text),
                Candidate(f"```python\n{text}\n```"),
                Candidate("", text, text),
            ):
                assert seconds(registry, name, candidate) < SLOWEST


@pytest.mark.parametrize("scrap", LARGE.values(), ids=LARGE)
def test_ten_megabytes_of_one_thing_take_seconds_at_most(scrap):
    candidate = Candidate(scrap * (SIZE // len(scrap)))
    for registry, name in ((VIEWS, "math-window"), (SIGNATURES, "code-ast"), (SIGNATURES, "general-answer")):
        assert seconds(registry, name, candidate) < SLOWEST


@pytest.mark.parametrize("scrap", REPEATED.values(), ids=REPEATED)
def test_no_repetition_takes_quadratic_time(scrap):
    candidate = Candidate(scrap * (SIZE // 10 // len(scrap)))
    for registry in (VIEWS, SIGNATURES):
        for name in registry.table:
            assert seconds(registry, name, candidate) < SLOWEST


def test_a_long_text_that_nearly_holds_the_stated_code_is_searched_in_linear_time():
    candidate = Candidate("a" * SIZE, code="a" * (SIZE // 2) + "b", answer="b" + "a" * (SIZE // 2))
    began = time.process_time()
    assert len(full(candidate)) > 2 * SIZE - 1
    assert time.process_time() - began < SLOWEST
