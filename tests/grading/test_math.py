import asyncio
from contextlib import asynccontextmanager

import pytest
from benchmarks.answers import unequal_pairs

from caps.core.errors import InputError
from caps.core.types import Candidate, Case, Problem
from caps.grading import math
from caps.grading.math import MathGrader
from support.closing import closing

EQUAL = [
    (r"2\sqrt{2}", r"\sqrt{8}"), (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"), ("2*sqrt(3)", r"2\sqrt{3}"),
    ("(x+1)^2", "x^2+2x+1"), (r"\frac{x+2}{7}", r"\frac{x}{7}+\frac{2}{7}"), (r"\pi/2", r"\frac{\pi}{2}"),
    (r"\sqrt{2}", "1.41421356"), (r"\frac{9}{4}\pi", r"2.25\pi"), ("2x + 4y - 3 = 0", r"y = -\frac{1}{2}x + \frac{3}{4}"),
    ("x + y = 1", "2x + 2y = 2"), ("x + y = 1", "y = 1 - x"), ("y + x = 1", "x + y = 1"), ("x < 1", "-x > -1"), (r"1 \pm \sqrt{8}", r"1-2\sqrt{2}, 1+2\sqrt{2}"),
    (r"(\sqrt{8}, 1)", r"(2\sqrt{2}, 1)"), (r"\{\sqrt{8}, 1\}", r"\{1, 2\sqrt{2}\}"), (r"[0, \sqrt{8})", r"[0, 2\sqrt{2})"),
    (r"\begin{pmatrix} \sqrt{8} \\ 1 \end{pmatrix}", r"\begin{pmatrix} 2\sqrt{2} \\ 1 \end{pmatrix}"),
    (r"5\sqrt{8}\text{ cm}", r"10\sqrt{2}"), (r"\frac{a-1}{1-a}", "-1"), (r"\log_2 8", "3"), (r"\sin^2 x + \cos^2 x", "1"),
    (r"\binom{5}{2}", "10"), ("-\\infty", "−∞"), (r"y = \sqrt{8}", r"2\sqrt{2}"), ("3i + 2", "2+3i"),
    # complex numbers, angles, roots within roots
    ("(1+i)(1-i)", "2"), (r"\frac{1}{i}", "-i"), ("|3+4i|", "5"), (r"1+i\sqrt3", r"2e^{i\pi/3}"),
    (r"\cos 20^\circ\cos40^\circ\cos80^\circ", "1/8"), (r"\frac{\sqrt5-1}{4}", r"\sin 18^\circ"),
    (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}"), (r"\sqrt{2}+\sqrt{3}", "3.14626437"),
 (r"\log_2 3", r"\frac{\ln 3}{\ln 2}"),
    # functions and equations
    (r"2\sin x\cos x", r"\sin 2x"), (r"\frac{n(n+1)}{2}", r"\binom{n+1}{2}"), ("xy = 1", "y = 1/x"),
 (r"12\pi cm^2", r"12\pi"),
    (r"\frac12\begin{pmatrix}2&4\\6&8\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    # matrices, sets of real numbers
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{bmatrix}1&2\\3&4\\\end{bmatrix}"),
    (r"\begin{pmatrix} 1/2 \\ 3 \end{pmatrix}", r"\begin{pmatrix} 0.5 \\ 3 \end{pmatrix}"), (r"(-\infty,\infty)", r"\mathbb{R}"),
    (r"[0,1] \cup (2,3)", r"(2,3) \cup [0,1]"), (r"(0,1)\cup(1,2)", r"(0,2)\setminus\{1\}"), (r"[0,1]\cup[1,2]", "[0,2]"),
    (r"x\neq 0", r"(-\infty,0)\cup(0,\infty)"), (r"\{1,2\} \cup \{3\}", r"\{1,2,3\}"),
]  # fmt: skip

UNEQUAL = [
    (r"6\sqrt{2}", "6"), ("4x^2", "4"), ("x + 1", "1"), ("12 - 10d", "12"), ("5xy", "5"), (r"50\pi", "50"),
    (r"2\mathrm{e}", "2"), (r"\sqrt{2}", "1.41"), (r"\sqrt{2}\cdot 10^{-9}", r"\sqrt{3}\cdot 10^{-9}"), ("34", r"-\infty"),
    (r"(\sqrt{8}, 1)", r"(1, 2\sqrt{2})"), (r"[0, \sqrt{8})", r"[0, 2\sqrt{2}]"), ("f(x)", "f(y)"), ("x + y = 1", "x + y = 2"),
    ("x < 1", "x > -1"), ("(x+1)^2", "x^2+1"), (r"\frac{1+\sqrt{5}}{2}", "2"), ("a", "b"), (r"\infty", r"-\infty"),
    ("3 = x+1", "x+1"), ("5i", "5j"), (r"\sqrt{x^2}", "x"), ("x + 2 s", "x + 2"), ("f(x) = x^2", "g(x) = x^2"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}"), (r"\mathbb{R}", r"(0,\infty)"),
    (r"\begin{pmatrix} 1 & 2 \end{pmatrix}", "(1, 2)"), (r"[0,1] \cup (2,3)", "[0,1]"), (r"\ln x^2", r"2\ln x"),
    # so close that a short evaluation cannot tell
    (r"2^{1/2^{1000}}", "1"), (r"e^{\pi\sqrt{163}}", "262537412640768744"), (r"x+10^{-60}", "x"), (r"\pi", r"\ln(640320^3+744)/\sqrt{163}"), (r"\pi + 10^{-90}", r"\pi"),
    (r"(1+10^{-60})\sin^2 x+\cos^2 x", "1"), (r"\sqrt{10^{60}+1}", "10^{30}"), (r"\sqrt{2}+10^{-80}", r"\sqrt{2}"),
]  # fmt: skip


@asynccontextmanager
async def grading(**settings):
    async with closing(MathGrader(workers=1, **settings)) as grader:
        yield grader


def case(answer="42"):
    return Case("1", Problem.of("What?"), (), "math", extra={} if answer is None else {"answer": answer})


def grade(answer, text):
    async def story():
        async with grading() as grader:
            return await grader.grade(case(answer), Candidate(text))

    return asyncio.run(story())


async def test_algebra_tells_equal_from_unequal_either_way_round():
    async with grading() as grader:
        for pairs, expected in ((EQUAL, True), (UNEQUAL, False)):
            for a, b in pairs:
                assert (a, b, await grader.equal(a, b)) == (a, b, expected)
                assert (b, a, await grader.equal(b, a)) == (b, a, expected)


@pytest.mark.parametrize(
    ("answer", "text", "correct"),
    [
        ("42", r"so \boxed{42}", True),
        (42, "The answer is 42.", True),
        (0.5, "#### 1/2", True),
        (["41", "42"], "42", True),
        ("42", r"\boxed{41}", False),
        ("$x = 42$", '{"reasoning": "…", "answer": "42"}', True),
    ],
)
def test_a_candidate_is_right_when_it_gives_an_accepted_answer(answer, text, correct):
    assert grade(answer, text).correct is correct


def test_a_wrong_grade_shows_both_answers():
    found = grade(["41", "42"], r"\boxed{43}")
    assert (found.reason, found.detail) == ("different", "'43' against '41' or '42'")


@pytest.mark.parametrize("text", ["", "  ", "$$", r"\boxed{}", "I do not know what to say about this. " * 20])
def test_a_candidate_without_an_answer_is_wrong(text):
    found = grade("42", text)
    assert (found.correct, found.reason) == (False, "no answer")


@pytest.mark.parametrize(
    "answer",
    [None, "", " $$ ", [], ["1", ""], True, {"a": 1}, float("nan"), [10**5000], "1" * 3000, [[1]]],
    ids=range(11),
)
def test_a_gold_answer_that_cannot_be_used_names_the_field(answer):
    with pytest.raises(InputError, match="^answer: "):
        grade(answer, "42")


TOO_LARGE = [
    "9^{9^{9^9}}", "x + 10^{10^{10}}", "(((9!)!)!)!", "(10^{10})!", r"\binom{10^{12}}{10^{11}} + x", "e^{e^{e^{e^3}}}",
    "2^{1/2^{2^{2^{40}}}}", "x^{10^{9}}", r"\tanh(10^{9} x^2)",
]  # fmt: skip
SLOW = r"\sum_{k=1}^{10^7} \frac{1}{k^{k^{1/3}} + \sin k}"


async def test_hostile_answers_are_undecided_in_time_and_the_next_one_is_graded():
    async with grading(seconds=1.5, memory=1 << 29) as grader:
        assert await grader.equal(r"\sqrt{8}", r"2\sqrt{2}") is True
        for bomb, why in [
            *((one, "too large to compare") for one in TOO_LARGE),
            (SLOW, "no reply within 1.5 s"),
        ]:
            found = await grader.grade(case(r"x + \sqrt{2}"), Candidate("…", answer=bomb))
            assert (bomb, found.correct, found.reason) == (bomb, None, "undecided")
            assert why in found.detail
        assert await grader.equal(r"\sqrt{18}", r"3\sqrt{2}") is True


STRANGE = [
    r"\sqrt{" * 150 + "2" + "}" * 150,
    "(" * 400 + "x" + ")" * 400,
    r"__import__('os').system('touch owned')",
    r"\text{__import__('os').abort()} + x",
    "exec(open('owned', 'w'))",
    "9^9^9^9",
    "x" * 1_000_000,
    "1+" * 500_000 + "1",
    r"\frac{1}{" * 90 + "x" + "}" * 90,
]


async def test_a_strange_answer_is_never_right_and_never_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async with grading() as grader:
        for text in STRANGE:
            found = await grader.grade(case(r"x + \sqrt{2}"), Candidate(text))
            assert (text[:40], found.correct) != (text[:40], True)
    assert list(tmp_path.iterdir()) == []


async def test_generated_unequal_pairs_are_never_equal():
    async with grading() as grader:
        assert [(a, b) for a, b in unequal_pairs(160, seed=1) if await grader.equal(a, b)] == []


LAYERS = [
    ("1/2", "0.5", "exact"),
    ("3", "4", "exact"),
    ("(x+1)^2", "x^2+2x+1", "algebra"),
    (r"\sqrt{2}", "1.414213562", "algebra"),
    (r"\sqrt{2}", r"\sqrt{3}", "algebra"),
]


async def test_a_grade_names_the_layer_that_decided():
    async with grading() as grader:
        for a, b, layer in LAYERS:
            found = await grader.grade(case(a), Candidate(rf"\boxed{{{b}}}"))
            assert (a, b, found.decided_by) == (a, b, layer)


def test_close_constants_without_a_proof_stay_undecided():
    found = grade(r"\arcsin\frac{3}{5}", r"\boxed{\arctan(\frac34)}")
    assert (found.correct, found.decided_by) == (None, "")
    assert "no proof" in found.detail


def test_a_hundred_kilobytes_of_fractions_are_undecided_at_once():
    found = grade("42", r"\boxed{" + r"\frac{1}{" * 12_000 + "x" + "}" * 12_000 + "}")
    assert (found.correct, found.reason) == (None, "undecided")
    assert "too long" in found.detail


def test_without_math_verify_exact_rules_grade_and_the_rest_names_the_extra(monkeypatch):
    monkeypatch.setattr(math, "_installed", lambda: None)
    assert grade("42", "42").correct is True
    assert grade("42", "43").correct is False
    found = grade(r"\sqrt{8}", r"\boxed{2\sqrt{2}}")
    assert found.correct is None
    assert "caps-select[bench]" in found.detail


async def test_classes_name_the_first_of_each_and_ask_each_pair_once():
    async with grading() as grader:
        answers = ["1/2", r"2\sqrt{2}", None, "0.5", r"\sqrt{8}", "50%", "3", r"\sqrt{8}", r"\frac12"]
        assert await grader.classes(answers) == [0, 1, None, 0, 1, 0, 6, 1, 0]
        asked = len(grader._decided)
        await grader.classes(answers)
        assert len(grader._decided) == asked <= 6


async def test_many_candidates_are_graded_at_once():
    async with grading() as grader:
        texts = [r"\boxed{\sqrt{8}}", r"\boxed{3}"] * 20
        grades = await asyncio.gather(*(grader.grade(case(r"2\sqrt{2}"), Candidate(text)) for text in texts))
        assert [found.correct for found in grades] == [True, False] * 20
        assert len(grader._decided) == 2


async def test_a_cancelled_grade_leaves_the_grader_usable():
    async with grading() as grader:
        slow = asyncio.create_task(grader.equal("9^{9^{9^9}}", "x"))
        await asyncio.sleep(0.3)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert await grader.equal(r"\sqrt{8}", r"2\sqrt{2}") is True


def test_the_version_tells_rules_library_and_limit():
    assert MathGrader(seconds=2).version != MathGrader(seconds=3).version
    assert "math-verify" in MathGrader().version
