"""What counts as the same answer, without algebra; pairs that need it stand in test_math."""

from fractions import Fraction
from itertools import combinations, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caps.core.types import Candidate
from caps.grading.answer_forms import candidate_answer, extract_answer
from caps.grading.answers import same_answer
from caps.grading.notation import normalize, rational

EQUAL = [
    # plain numbers
    ("42", "42"), ("42", "$42$"), ("42", r"\(42\)"), ("42", "42."), ("42", "**42**"), ("-7", "−7"), ("+5", "5"),
    ("5", "5.0"), ("007", "7"), (".25", "0.25"), ("1/2", "0.5"), (r"\frac{1}{2}", "1/2"), (r"\dfrac12", "1/2"),
    (r"\tfrac{3}{6}", r"\frac{1}{2}"), (r"-\frac{3}{4}", r"\frac{-3}{4}"), (r"\frac{3}{-4}", "-0.75"),
    (r"\frac3{4}", "3/4"), ("1/7", "0.142857"), ("2/3", "0.66666667"),
    # thousands
    ("12345", "12,345"), ("1234567", "1,234,567"), ("12345", r"12{,}345"), ("12345", r"12,\!345"),
    ("12345", r"12\,345"), ("1,234.5", "1234.5"), ("100,200,300", "100, 200, 300"),
    # mixed numbers, powers, arithmetic
    (r"2\frac{1}{3}", "7/3"), ("2 1/3", "7/3"), (r"-1\frac{1}{2}", "-1.5"), ("2^{10}", "1024"), ("2^10", "1024"),
    (r"3 \cdot 4", "12"), (r"3 \times 4", "12"), ("3*4 = 12", "12"), ("5!", "120"), (r"\sqrt{49}", "7"),
    ("sqrt(49)", "7"), ("√49", "7"), ("2³", "8"), ("(1+2)(3)", "9"),
    # scientific notation
    (r"3.2 \times 10^4", "32000"), ("3.2e4", "32000"), (r"5 \cdot 10^{-3}", "0.005"), ("1.5E-2", "0.015"),
    # units, money, degrees, per cent
    ("12", "12 cm"), ("12", r"12\text{ cm}"), (r"12\mbox{ cm}^2", "12"), ("12", "12 square meters"),
    ("12 cm", r"12\,\mathrm{cm}"),
    ("55", "55 miles per hour"), ("45kg", "45"), ("3/4", r"\frac{3}{4}\text{ of the cake}"), ("20", "20 dollars"),
    ("20", "$20"), ("20", r"\$20.00"), ("1250", "$1,250"), ("20", "€20"), ("20", "20€"), ("25000", "$25,000/year"),
    ("90", r"90^\circ"), ("90", "90°"), (r"90^{\circ}", "90 degrees"), ("15%", "15"), (r"15\%", "15 percent"),
    ("50%", "0.5"), ("50%", r"\frac{1}{2}"),
    # names and equations
    ("x = 3", "3"), ("x=3", "x = 3.0"), ("f(x) = 2", "2"), ("a_1 = 4", "4"), ("m+n = 17", "17"),
    (r"\frac{AB}{CD} = \frac12", "1/2"), ("x = 2 + 3 = 5", "5"), (r"0.5 \approx 0.50001", "1/2"), ("P(A) = 1/6", "1/6"),
    # lists, sets, tuples
    ("1, 2", "2, 1"), ("1, 2", "1 and 2"), ("1, 2", r"1 \text{ and } 2"), ("1, 2, and 3", "3, 2, 1"),
    ("x = 1, x = 2", "1, 2"), ("x=1 or x=2", "x=2 or x=1"), (r"\{1, 2\}", r"\{2, 1\}"), (r"\{1,2\}", "2, 1"),
    (r"\{5\}", "5"), ("(1, 2)", "(1,2)"), (r"\left(1, \frac{1}{2}\right)", "(1, 0.5)"), ("(x, y) = (1, 2)", "(1, 2)"),
    ("(1, 2)", "1, 2"), ("(1,2),(3,4)", "(3,4), (1,2)"), ("(0;1)", "(0,1)"), ("a = 1, b = 2", "b = 2, a = 1"),
    (r"\emptyset", r"\{\}"), (r"\varnothing", "no solution"), ("7:32", "7 : 32"),
    # intervals and inequalities
    ("[1, 2)", r"\left[1, 2\right)"), ("(1, 2)", "1 < x < 2"), (r"[3, \infty)", r"x \geq 3"), ("x > 3", "3 < x"),
    (r"(-\infty, 0]", r"x \leq 0"), (r"x \in [0, 1]", "[0, 1]"),
    (r"(1, +\infty)", r"(1, \infty)"), ("x >= 3", "x ≥ 3"),
    # both signs
    (r"\pm 3", "3, -3"), (r"2 \pm 1", "1, 3"), (r"x = \pm 3", "-3, 3"), ("±3", r"\{-3, 3\}"),
    # words and choices
    ("Yes", "yes"), (r"\text{Yes}", "yes."), (r"\text{no solution}", "No solution"), ("C", "(C)"), (r"\text{C}", "C"),
    (r"\textbf{(C)}", "C."), ("C", "(C) 12"), ("C", r"\mathrm{C}"), ("12", "(C) 12"), ("(b)", "B"),
    # other bases, damaged spelling
    ("204_5", "204_{5}"), ("204₅", "204_5"), ("204_5", "204"), (r"\\frac{1}{2}", r"\frac{1}{2}"), ("\frac{1}{2}", "0.5"),
    # decimals: rounded, in scientific notation, repeating; commas
    ("1/432", r"2.314814814815\times10^{-3}"), ("3/10", "0.30000000000000004"), (r"0.\overline{27}", "3/11"), ("0.333...", "1/3"),
    (r"0.1666\ldots", "1/6"),
    ("1,5", "1, 5"), ("2*3**2", "18"),
    # compound units, factors, clock times
    ("72", "72 km/h"), ("72 km/h", "72 kilometers per hour"), ("9.8 m/s^2", "9.8"),
    ("12 cm^2", "12 square centimeters"), ("30 newtons", "30 N"), (r"100^\circ C", "100 degrees Celsius"),
    ("5m", "5"), ("8", "8 pieces of wire"), ("1.5 million", "1500000"), ("2 dozen", "24"), ("4", "4 dozen"), ("5 PM", "5"),
    ("10:30 AM", "10:30"), (r"33\frac{1}{3}\%", "1/3"),
    # names and functions
    ("x = 3", "3 = x"), ("5 = n", "5"),
    # calculations with other signs, or the other way round
    ("8*3 = 24", r"8 \cdot 3=24"), ("8*3 = 24", r"8 \times 3 = 24."), ("8*3 = 24", "24 = 8*3"),
    (r"\{1,2,2\}", r"\{1,2\}"),
    ("B", "Option B"),
]  # fmt: skip

UNEQUAL = [
    ("42", "43"), ("5", "-5"), ("5.001", "5"), ("1/3", "0.33"), ("1/3", "0.3333"), ("0.1234567", "0.1234568"),
    ("12345", "12, 345"), ("1e-9", "2e-9"), (r"2\frac{1}{3}", "2/3"), ("2^{10}", "20"), ("50", "0.5"),
    ("50%", "0.05"), ("15%", "16%"), ("5 cm", "5 meters"), ("5 dollars", "5 cents"), ("5 kg", "5 hours"),
    ("x = 3", "x = 4"), ("x = 3", "y = 3"), ("x^2 + y = 0", "0"), ("(1, 2)", "[1, 2]"), ("(1, 2)", "(2, 1)"),
    ("[1, 2)", "(1, 2]"), ("(1, 2)", r"\{1, 2\}"), ("(1, 2)", "2, 1"), (r"\{1, 2\}", r"\{1, 2, 3\}"), ("1, 2", "1, 3"),
    ("2", "-1, 2"), ("36", "9, 36"), ("1, 1", "1, 2"), ("a = 1, b = 2", "a = 2, b = 1"), (r"x \ge 3", "x > 3"),
    (r"x \ge 3", r"x \le 3"), (r"\pm 3", "3"), ("yes", "no"), ("C", "D"),
    ("(C) 12", "(D) 12"), ("odd", "oddd"), ("none", "0"), ("12", "no answer"), ("7:32", "32:7"), ("12:00", "1:00"),
 ("204_5", "205_5"), ("204_5", "54"), ("204_5", "204_7"),
    ("5", ""), ("f(1) < f(2)", "3"), ("3 = x+1", "5"), ("1234567890123456.0", "1234567890123457"), ("1/7", "0.142858"), ("1/7", "0.142856"), ("1,234", "1.234"), ("12, 5", "12.5"),
    ("12 cm^2", "12 cm"), ("60 mph", "60 km/h"), ("5 J", "5 W"), ("5 AM", "5 PM"), ("2 million", "2000"), ("10%", "1000%"), ("y = 3", "x = 3"),
    ("7 (mod 11)", "7 (mod 12)"), ("3:4", "4/3"), ("6:8", "3:4"), ("x < 1 or x > 2", "x > 2"),
 (r"0.\overline{3}", "0.3"),
]  # fmt: skip

NEEDS_ALGEBRA = [
    (r"[0,1] \cup [1,2]", "[0,2]"),
    ("5xy", "5"),
    ("2c", "4"),
    (r"6\sqrt{2}", "6"),
    ("x + 1", "1"),
    (r"2\mathrm{e}", "2"),
    ("9^{9^{9^9}}", "1"),
]


def read_otherwise(pairs, expected):
    return [pair for pair in pairs if same_answer(*pair) is not expected]


def test_answers_are_the_same_or_not_or_left_open_for_algebra():
    for pairs, expected in ((EQUAL, True), (UNEQUAL, False), (NEEDS_ALGEBRA, None)):
        assert read_otherwise(pairs, expected) == []


CALCULATIONS = [
    "(9-6)*(8-7) = 24",
    "8 * 3 = 24",
    r"\frac{48}{2} = 24",
    "24 = 6*4",
    "2*2*6 = 4*6 = 24",
    "30 - 6 = 24 apples",
]
RESULTS = ["24", "$24$", "24.0", "x = 24", "24 = n", "48/2"]


def test_different_calculations_with_the_same_result_are_different_answers():
    pairs = list(combinations(CALCULATIONS, 2))
    in_tuples = [(f"({a}, 1)", f"({b}, 1)") for a, b in pairs]
    assert read_otherwise([*pairs, *in_tuples], expected=False) == []


def test_a_calculation_is_the_same_as_its_result_alone():
    assert read_otherwise(product(CALCULATIONS, RESULTS), expected=True) == []
    assert read_otherwise(product(CALCULATIONS, ["25"]), expected=False) == []


@pytest.mark.parametrize("symbol", ["x", "a_1", r"\theta", "f(2)", "AB", "m+n", "P(A)"])
def test_a_symbol_is_reduced_to_its_value_however_that_was_computed(symbol):
    assert same_answer(f"{symbol} = 8*3 = 24", f"{symbol} = 6*4 = 24") is True
    assert same_answer(f"{symbol} = 24", "24") is True


def test_a_number_in_a_base_is_the_same_as_its_digits_only():
    others = ["7/204", r"\frac{1}{204}", "2.04", "0.204", "204%", "204 cm", "204 million", "54", "-204"]
    assert read_otherwise([("204_5", other) for other in others], expected=False) == []


def test_long_numbers_in_a_base_are_compared_by_all_their_digits():
    digits = "12" * 60
    assert same_answer(f"{digits}_5", digits) is True
    assert same_answer(f"{digits}_5", f"{digits[:-1]}1") is False


ANSWERS = st.one_of(
    st.text(max_size=60),
    st.text(alphabet=r"\{}()[],;:=<>+-*/^_!%$.&|0123456789xyEeC ", max_size=60),
    st.lists(
        st.sampled_from(
            [r"\frac", r"\sqrt", r"\text{", "{", "}", "(", ")", r"\pm", r"\cup", "1", "x", ",", " and "]
        ),
        max_size=20,
    ).map("".join),
    st.sampled_from([side for pair in EQUAL + UNEQUAL for side in pair]),
)


@given(ANSWERS, ANSWERS)
@example(r"\begin{pmatrix}\end{pmatrix}", "()")
@example("0_0", "0_99")
def test_sameness_is_total_and_symmetric(a, b):
    assert same_answer(a, b) in (True, False, None)
    assert same_answer(a, b) is same_answer(b, a)


@given(ANSWERS)
def test_every_answer_is_the_same_as_itself_and_as_its_tidy_spelling(text):
    assert same_answer(text, text) is True
    assert same_answer(text, f" {text}\n") is True
    assert isinstance(normalize(text), str)


@given(st.fractions(max_denominator=10**6))
def test_a_fraction_is_read_exactly_in_each_spelling(value):
    above, below = value.numerator, value.denominator
    for text in (f"{above}/{below}", rf"\frac{{{above}}}{{{below}}}", rf"\dfrac{{{-above}}}{{{-below}}}"):
        assert rational(normalize(text)) == value


@pytest.mark.parametrize(
    "bomb",
    [
        "9^{9^{9^9}}",
        "9^9^9^9",
        "(((9!)!)!)!",
        "(" * 200,
        "-" * 399,
        "2^{4000}*2^{4000}",
        "1/0",
        r"\frac{1}{" * 40,
    ],
)
def test_arithmetic_never_grows(bomb):
    assert rational(bomb) is None


@pytest.mark.parametrize(
    "long", ["(" * 5000, "a " * 50_000, "1,234" * 30_000, "\\text{" * 20_000, "answer: " * 20_000]
)
def test_a_long_text_is_only_equal_to_itself(long):
    assert same_answer(long, long) is True
    assert same_answer(long, "1") is None
    assert isinstance(extract_answer(long), str)


SAID = [
    ("So we get \\boxed{12}. Wait, \\boxed{13}.", "13"),
    ("\\boxed{1} and \\boxed{2}", "1, 2"),
    ("Some work.\n#### 1,234", "1,234"),
    ('{"reasoning": "2 + 2", "answer": "4"}', "4"),
    ('```json\n{"reasoning": "half", "answer": "\\\\frac{1}{2}"}\n```', r"\frac{1}{2}"),
    ('{"reasoning": "…", "answer": 17}', "17"),
    ("Long thoughts. The final answer is $x^2$. I hope it is correct.", "$x^2$"),
    ("**Answer:** 3/4", "3/4"),
    ("Answer: 5\n\nActually no.\n\nAnswer: 6", "6"),
    ("<think>The answer is 1.</think> The answer is 2.", "2"),
    ("42", "42"),
    ("It's 8", "8"),
    ("We have 5 + 8 = 13", "13"),
    (r"The probability is \frac{1}{2}.", r"\frac{1}{2}"),
    ("Working it out. " * 20 + "Therefore, the probability that she wins is 2/3.", "2/3"),
    ("Working it out. " * 20 + "Therefore there are 12 such sequences. I hope it is correct.", "12"),
    # the result of the calculation that a text ends with
    ("Therefore, the number that was removed is 84 - 60 = 24.", "24"),
    ("So, the original cost is $15 / (1 - 25%) = $15 / 0.75 = $20.", "20"),
    ("The average speed is 240 km / 3 hours = 80 km/h", "80"),
    ("Average speed = distance / time\n= 240 km / 3 hours\n= 80 km/h", "80"),
    ("There are (9 * 8) / 2 = 36 handshakes.", "36"),
    (r"The number of even ones is \(9 \times 10 \times 5 = 450\).", "450"),
    ("15 % of 240 is 36.\nThe share is 36 / 240 = 15%.", "15%"),
    ("So 2x + 1 = 7", "So 2x + 1 = 7"),
    ("(10 - 4) * (8 - 4) = 24", "(10 - 4) * (8 - 4) = 24"),
]


def test_the_answer_is_found():
    assert [candidate_answer(Candidate(text)) for text, _ in SAID] == [answer for _, answer in SAID]


@pytest.mark.parametrize(
    ("stated", "answer"),
    [
        ('12"\n}\n```\nThe rest explains.', "12"),
        ("John pays $31,800 per year for driving.", "$31,800"),
        ("The only solution is $x = 3$", "x = 3"),
        (r"\text{answer: 12}", "12"),
        ("No such 3-digit integer exists anywhere.", "No such 3-digit integer exists anywhere."),
    ],
)
def test_a_stated_answer_loses_what_stands_around_it(stated, answer):
    assert candidate_answer(Candidate("text", answer=stated)) == answer


def test_a_long_text_without_a_conclusion_has_no_answer():
    assert candidate_answer(Candidate("I cannot say anything about it. " * 30)) is None


@given(st.text())
def test_finding_an_answer_is_total(text):
    found = candidate_answer(Candidate(text))
    assert found is None or isinstance(found, str)
    assert same_answer(extract_answer(text), "1") in (True, False, None)


def test_rational_reads_mixed_numbers():
    assert rational(r"12 1/3") == Fraction(37, 3)
