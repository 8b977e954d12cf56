"""Whatever leaves the sandbox is hostile data: it hangs nothing, fills no memory, and costs no neighbour its grade."""

import asyncio
import json
import math
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caps.core.types import Candidate, Case, Problem
from caps.findings.programs import BehaviourFinder
from caps.graders.results import Items, ResultReader, read, read_value
from caps.sandbox.base import Limits
from caps.sandbox.inside.plain import DEPTH, DIGITS, ITEMS, UnreadableError, decode, decode_given, encode
from caps.sandbox.inside.wire import join_texts, reply_value, split_texts, split_value
from caps.testing import ScriptedEndpoint, better_quality_wins
from sandboxing import UNHURRIED, case, grade, needs_bubblewrap
from shell import caps, json_lines

MANY = 450_000  # numbers in a list that takes 3 MB on the way out
BIG = case([{"input": [MANY], "output": list(range(MANY))}], entry_point="big")
CALLS = case([{"input": [[3, 1, 2]], "output": [1, 2, 3]}], entry_point="order")
PROGRAM = case("def check(candidate):\n    assert candidate([3, 1, 2]) == [1, 2, 3]\n", entry_point="order")
RIGHT = "def order(xs): return sorted(xs)"
# A candidate may replace what writes its results, and so put any bytes on the way.
SMUGGLED = """
import sys
serve = sys.modules["caps.sandbox.inside.serve"]
real, mark = serve.encode, object()
serve.encode = lambda value, *keep: ({payload}) if value is mark else real(value, *keep)
def order(xs): return mark
big = order
"""
FAKE_FRACTION = """
class Fraction: numerator = "1e999999999"; denominator = None
Fraction.__module__ = "fractions"
def order(xs): return Fraction()
"""
COLLIDING = "b'%x;' % (n * (2**61 - 1)) for n in range(110000)"
PAYLOADS = {
    "a fraction of a text": "b'Q2:s11:1e999999999N'",
    "a fraction of two texts": "b'Q2:s11:1e999999999s1:1'",
    "a fraction of floats": "b'Q2:f1e308;f1e-308;'",
    "a fraction over nothing": "b'Q2:i1;i0;'",
    "a fraction over less than nothing": "b'Q2:i1;i-2;'",
    "a fraction of truths": "b'Q2:TT'",
    "a fraction of one part": "b'Q1:i1;'",
    "a fraction of very many digits": "b'Q2:i' + b'f' * 50000 + b';i' + b'e' * 50000 + b';'",
    "a decimal of a huge exponent": "b'D1:s11:1e999999999'",
    "a decimal of very many digits": "b'D1:s50000:' + b'9' * 50000",
    "a decimal of a number": "b'D1:i3;'",
    "a decimal that signals": "b'D1:s4:sNaN'",
    "many decimals": "b'l400000:' + b'D1:s6:1e-999' * 400000",
    "a set that floods the hash": f"b'e110000:' + b''.join(b'i' + one for one in ({COLLIDING}))",
    "a frozen set that floods the hash": f"b'z110000:' + b''.join(b'i' + one for one in ({COLLIDING}))",
    "keys that flood the hash": f"b'd110000:' + b''.join(b'i' + one + b'N' for one in ({COLLIDING}))",
    "a view that floods the hash": f"b'K110000:' + b''.join(b'i' + one for one in ({COLLIDING}))",
    "a million empty sets": "b'l1300000:' + b'e0:' * 1300000",
    "a million empty dicts": "b'l1300000:' + b'd0:' * 1300000",
    "a million empty lists": "b'l1300000:' + b'l0:' * 1300000",
    "a number of millions of digits": "b'i' + b'f' * 4000000 + b';'",
    "a number that never ends": "b'i' + b'f' * 4000000",
    "a float of a million digits": "b'f' + b'1' * 1000000 + b';'",
    "a tower of lists": "b'l1:' * 100000 + b'N'",
    "a tower of sets": "b'z1:' * 100000 + b'N'",
    "a length that is a lie": "b'l999999999:N'",
    "a length beyond any number": "b'l' + b'9' * 5000 + b':N'",
    "a length below nothing": "b'l-1:N'",
    "a length with a line": "b'l1_0:N'",
    "a text that is cut off": "b's100:abc'",
    "a text that is no text": "b's2:\\xff\\xfe'",
    "bytes that are no bytes": "b'b1:s3:xyz'",
    "a range without steps": "b'r3:i1;i2;i0;'",
    "a range of texts": "b'r3:s1:as1:bs1:c'",
    "a complex of texts": "b'c2:s3:nans1:1'",
    "items that are no pairs": "b'M2:i1;i2;'",
    "an object": "b'k0;'",
    "an object nobody kept": "b'kffffffff;'",
    "an unknown kind": "b'X1:N'",
    "two values": "b'NN'",
    "nothing": "b''",
}  # fmt: skip


def smuggle(payload):
    return SMUGGLED.format(payload=payload)


@needs_bubblewrap
def test_a_made_up_fraction_is_a_wrong_answer_and_its_neighbour_right():
    wrong, right = grade(CALLS, FAKE_FRACTION, RIGHT)
    assert (wrong.correct, wrong.reason, right.correct) == (False, "runtime error", True)
    wrong, right = grade(PROGRAM, FAKE_FRACTION, RIGHT)
    assert (wrong.correct, right.correct) == (False, True)


@needs_bubblewrap
def test_of_a_made_up_fraction_nothing_is_found_and_the_contest_can_begin():
    public = {"public": [{"input": [[3, 1, 2]], "output": [1, 2, 3]}]}
    texts = [FAKE_FRACTION, RIGHT, smuggle(PAYLOADS["a fraction over nothing"]), "def order(xs): return xs"]
    found = find(
        Case("1", Problem.of("?"), candidates(texts), "code", extra={"tests": public, "entry_point": "order"})
    )
    assert [one.passed for one in found] == [None, 1, None, 0]
    assert found[0] == found[2]
    assert (found[0].cluster, found[0].survived, found[0].parses) == (None, None, True)
    assert all(run.status == "unreadable" for run in found[0].runs)
    assert found[1].cluster not in (None, found[3].cluster)


@needs_bubblewrap
def test_selecting_among_hostile_programs_ends_with_the_one_that_passes(tmp_path):
    row = {"id": "order", "domain": "code", "problem": "Order it.", "entry_point": "order"}
    row["tests"] = {"public": [{"input": [[3, 1, 2]], "output": [1, 2, 3]}]}
    hostile = [
        FAKE_FRACTION,
        smuggle(PAYLOADS["a tower of sets"]),
        r"def order(xs): raise ValueError('\ud800')",
    ]
    cases = tmp_path / "cases.jsonl"
    cases.write_text(
        json.dumps(
            row
            | {
                "candidates": [
                    f"```python\n{code}\n# quality={place}\n```"
                    for place, code in enumerate((*hostile, RIGHT))
                ]
            }
        )
        + "\n"
    )
    with ScriptedEndpoint(better_quality_wins, models=("stub",)) as server:
        where = ("--base-url", server.url, "--model", "stub", "--journal", tmp_path / "journal.sqlite")
        done = caps("select", cases, *where)
    assert done.returncode == 0, done.stderr
    (line,) = json_lines(done)
    assert line["winner"] == 3
    assert line["tests_passed"] == [None, None, 0, 1]


@needs_bubblewrap
@pytest.mark.parametrize("tests", [CALLS, PROGRAM], ids=["examples", "test program"])
def test_bytes_that_are_no_value_are_wrong_and_every_neighbour_is_graded(tests):
    grades = grade(tests, *map(smuggle, PAYLOADS.values()), RIGHT, "def order(xs): return tuple(sorted(xs))")
    *hostile, right, nearly = grades
    assert [(name, one.correct) for name, one in zip(PAYLOADS, hostile, strict=True)] == [
        (name, False) for name in PAYLOADS
    ]
    assert right.correct is True
    assert nearly.correct is (tests is CALLS)  # a tuple is as good as a list only where JSON knows no tuples


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_the_reader_refuses_or_reads_every_payload_without_a_set(payload):
    data = eval(payload)
    reading = read("value", data, [encode([1, 2, 3])])
    assert not reading.same
    assert bool(reading.fault) != bool(reading.digest)


@needs_bubblewrap
def test_three_megabytes_of_plain_data_beside_hostile_ones_are_right():
    empty = smuggle(PAYLOADS["a million empty sets"])
    right = "def big(n): return list(range(n))"
    equal = "def big(n): return tuple(range(n))"  # not byte for byte what is expected, so it is read
    grades = grade(BIG, empty, right, equal)
    assert [one.correct for one in grades] == [False, True, True]
    assert len(encode(list(range(MANY)))) > 3_000_000


@needs_bubblewrap
@pytest.mark.parametrize(
    "result",
    ["{10**5000: 1}", "10**5000", "[{(10**5000,): {10**5000}}]", "{10**5000}", "range(10**5000)", "-10**5000"],
)  # fmt: skip
def test_a_very_long_number_is_a_wrong_answer_like_any_other(result):
    code = f"def order(xs): return {result}"
    for tests in (CALLS, PROGRAM):
        found = grade(tests, code)
        assert (found.correct, found.reason) == (False, "wrong answer")
        assert len(found.detail) < 1000
    wanted = case([{"input": [[]], "output": 10**5000}], entry_point="order")
    assert grade(wanted, code).correct is (result == "10**5000")


@needs_bubblewrap
@pytest.mark.parametrize(
    "raised",
    [
        r"ValueError('\ud800')", r"ValueError('\x1b[2J\x9b\u202e\0')", r"type('\ud800'.join('ab'), (ValueError,), {})('x')",
        r"type('\x1b', (KeyError,), {})('\u2066')", r"ValueError('x' * 10**7)", r"ExceptionGroup('\ud800', [ValueError()])",
        r"UnicodeEncodeError('utf-8', '\ud800', 0, 1, '\ud800')", r"SystemExit('\ud800')",
    ],
)  # fmt: skip
def test_what_a_candidate_says_reaches_nobody_as_it_was_said(raised):
    for tests in (CALLS, PROGRAM):
        for code in (f"def order(xs): raise {raised}", f"raise {raised}"):
            found = grade(tests, code)
            assert (found.correct, found.reason) == (False, "runtime error")
            assert found.detail.isprintable()
            assert found.detail.encode("utf-8")
            assert len(found.detail) < 1000


@needs_bubblewrap
def test_what_a_program_prints_reaches_nobody_as_it_was_printed():
    fed = case([{"input": "", "output": "1"}])
    codes = (
        r"import os; os.write(1, b'\x1b[2J\xed\xa0\x80\xff')",
        r"import os; os.write(2, b'\x1b[2J\xed\xa0\x80\xff'); os._exit(3)",
        r"import sys; sys.stderr.write('\x9b\u202e' * 10**6); 1/0",
        r"import os; os.write(1, b'1' * 7000000)",
    )
    for found in grade(fed, *codes):
        assert found.correct is False
        assert found.detail.isprintable()
        assert found.detail.encode("utf-8")
        assert len(found.detail) < 1000


@needs_bubblewrap
@pytest.mark.parametrize(
    "head",
    ["9" * 5000 + " 1", "1 " + "9" * 5000, "-", "output", "\u0661 1", "1 -1", "1 1 1", "", "\n" * 100],
)
def test_a_program_that_answers_in_place_of_its_feeder_is_merely_wrong(head):
    forged = (
        "import os\n"
        f"message = {head!r}.encode() + b'\\n3'\n"
        "for fd in range(3, 20):\n"
        "    try: os.write(os.open(f'/proc/{os.getppid()}/fd/{fd}', os.O_WRONLY), b'%d\\n%b' % (len(message), message))\n"
        "    except OSError: pass\n"
    )
    wrong, right = grade(
        case([{"input": "1 2", "output": "3"}]), forged, "print(sum(map(int, input().split())))"
    )
    assert (wrong.correct, right.correct) == (False, True)


@needs_bubblewrap
def test_the_whole_command_goes_on_and_writes_valid_text(tmp_path):
    codes = ["def order(xs): return {10**5000: 1}", r"def order(xs): raise ValueError('\ud800\x1b]0;x\x07')"]
    codes += [FAKE_FRACTION, smuggle(PAYLOADS["a tower of lists"]), RIGHT]
    rows = [
        {
            "id": "calls",
            "domain": "code",
            "problem": "?",
            "tests": CALLS.extra["tests"],
            "entry_point": "order",
        },
        {
            "id": "program",
            "domain": "code",
            "problem": "?",
            "tests": PROGRAM.extra["tests"],
            "entry_point": "order",
        },
    ]
    cases = tmp_path / "cases.jsonl"
    cases.write_text("".join(json.dumps(row | {"candidates": codes}) + "\n" for row in rows))
    done = caps("grade", cases, "--journal", tmp_path / "journal.sqlite", "--explain")
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert [one["correct"] for one in json.loads(line)["candidates"]] == [False] * 4 + [True]
    assert "2 right" in done.stderr
    assert not {"\x1b", "\x07", "\ud800"} & set(done.stderr)
    again = caps("grade", cases, "--journal", tmp_path / "journal.sqlite", "--explain")
    assert (again.returncode, again.stdout) == (0, done.stdout)


@needs_bubblewrap
def test_a_case_of_hostile_programs_can_be_looked_into_and_its_findings_kept(tmp_path):
    public = {"public": [{"input": [[2, 1]], "output": [1, 2]}]}
    hostile = ["def order(xs): return {10**5000: 1}", r"def order(xs): raise ValueError('\ud800')"]
    one = Case(
        "1",
        Problem.of("?"),
        candidates([*hostile, RIGHT]),
        "code",
        extra={"tests": public, "entry_point": "order"},
    )
    found = find(one)
    assert [fact.passed for fact in found] == [0, 0, 1]
    json.dumps([fact.cluster for fact in found]).encode("utf-8")


def test_a_reader_that_takes_too_long_is_ended_and_the_next_result_is_read():
    async def play():
        hasty, patient = ResultReader(seconds=0.3), ResultReader()
        slow = b"l%d:" % (ITEMS - 1) + b"N" * (ITEMS - 1)
        try:
            return await hasty.value(slow), await patient.value(slow), await patient.value(b"i7;", [7])
        finally:
            await hasty.close()
            await patient.close()

    late, whole, plain = asyncio.run(play())
    assert late.fault.startswith("no reply within")
    assert (whole.fault, plain.same) == ("", True)


def test_a_reader_without_memory_says_so_and_the_next_result_is_read():
    async def play():
        reader = ResultReader(memory=100 << 20)
        many = b"l%d:" % (ITEMS - 1) + b"d0:" * (ITEMS - 1)
        try:
            return await reader.value(many), await reader.value(b"l1:i7;", [[7]])
        finally:
            await reader.close()

    starved, plain = asyncio.run(play())
    assert starved.fault
    assert plain.same


def test_bounds_are_where_they_are_said_to_be():
    assert read_value(b"i" + b"f" * DIGITS + b";") == 16**DIGITS - 1
    assert read_value(b"l1:" * DEPTH + b"N")
    assert len(read_value(b"l%d:" % (ITEMS - 1) + b"T" * (ITEMS - 1))) == ITEMS - 1
    assert len(decode_given(b"l%d:" % ITEMS + b"T" * ITEMS)) == ITEMS, "tests may pass what they like"
    for beyond in (
        b"i" + b"f" * (DIGITS + 1) + b";",
        b"l1:" * (DEPTH + 1) + b"N",
        b"l%d:" % ITEMS + b"T" * ITEMS,
        b"s%d:" % (17 << 20) + b"x" * (17 << 20),
    ):
        with pytest.raises(UnreadableError):
            read_value(beyond)
        with pytest.raises(UnreadableError):
            decode(beyond)


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ([1, 2], (1, 2), True), ([[1], [2]], ((1,), [2]), True), (1, 1.0, True), (1, True, True), ("1", 1, False),
        (0.5, Fraction(1, 2), True), (0.5, Decimal("0.50"), True), (0.1, Decimal("0.1"), False), (1, 1 + 0j, True),
        (math.inf, Decimal("Infinity"), True), (math.nan, math.nan, False), ([math.nan], [math.nan], False),
        ({"1": [2]}, {1: (2,)}, True), ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True), ({"a": 1}, {"a": 2}, False),
        ({1, 2}, {2.0, 1}, True), ({1, 2}, frozenset((1, 2)), True), ({1, 2}, {1: 0, 2: 0}.keys(), True), ({1, 2}, [1, 2], False),
        (b"ab", bytearray(b"ab"), True), (range(0), range(2, 1), True), (range(0, 5, 3), range(0, 4, 3), True),
        ([0, 3], range(0, 4, 3), False), (None, None, True), (None, 0, False), (-0.0, 0, True), ([1], iter([1]), False),
        ({(1, 2): 3}, {(1, 2): 3}, True), ({frozenset({1})}, {frozenset({1.0})}, True), ([10**5000], [10**5000], True),
    ],
)  # fmt: skip
def test_results_are_compared_as_python_would_without_hashing_them(expected, got, same):
    assert read("value", encode(got), [encode(expected)]).same is same
    assert read("value", encode(got), [encode("another"), encode(expected)]).same is same


# --- any bytes at all: 10,000 messages -------------------------------------------------------------------------------------------------

SEEDS = [
    encode(value)
    for value in (
        [1, -2, 3.5, "text", None, True], {"a": [1, (2, 3)], "b": {4, 5}}, frozenset({1, "x"}), b"bytes", 10**50, 2 + 3j,
        range(1, 9, 2), iter([1, 2]), {1: 2}.keys(), {1: 2}.values(), {1: 2}.items(), Decimal("1.5e10"), Fraction(-7, 3),
        [[[[[]]]]], {"k": {"k": {"k": set()}}}, "\ud800\x00\u202e", math.inf, bytearray(b"\x00"), [[0] * 20] * 5,
    )
]  # fmt: skip
LETTERS = b"NTFifkslteztdbacrIKVMDQ0123456789-;:ex"
MESSAGES = 40  # of each example of mutated ones


def check(data):
    """Read bytes in every way there is; nothing is raised, and what is read stays within the bounds."""
    reading = read("value", data, [SEEDS[0]])
    assert bool(reading.fault) != bool(reading.digest)
    assert json.dumps(reading)
    assert (reading.shown + reading.fault).isprintable()
    assert len(reading.shown) <= 200
    read("text", data, [b"1 2"])
    split_value(data)
    assert len(split_texts(data, 3)) == 3
    if not reading.fault:
        assert measure(read_value(data)) <= (DEPTH, ITEMS)
    with suppress(UnreadableError):
        decode(data, find=lambda number: number)


def measure(value):
    """How deep a value is, and of how many it is made."""
    if isinstance(value, Items | list | tuple):
        inner = [measure(item) for item in (value.items if isinstance(value, Items) else value)]
        return 1 + max((depth for depth, _ in inner), default=0), 1 + sum(size for _, size in inner)
    return 0, 1


@settings(max_examples=225)
@given(st.integers(0, 2**32))
def test_of_mutated_messages_none_is_more_than_the_reader_can_take(seed):
    rng = Random(seed)
    for _ in range(MESSAGES):
        data = bytearray(rng.choice(SEEDS))
        for _ in range(rng.randrange(1, 6)):
            place, other = rng.randrange(len(data) + 1), rng.choice(SEEDS)
            change = rng.randrange(5)
            if change == 0:
                data[place : place + 1] = bytes([rng.choice(LETTERS)])
            elif change == 1:
                data[place:place] = other
            elif change == 2:
                del data[place : place + rng.randrange(4)]
            elif change == 3:
                data[place : place + 1] = bytes([rng.randrange(256)])
            else:
                data = bytearray(b"%c%d:" % (rng.choice(b"ltezdIKVMQDcrba"), rng.randrange(4)) + data)
            data = data or bytearray(b"N")
        check(bytes(data))


@settings(max_examples=600)
@given(st.binary(max_size=60) | st.lists(st.sampled_from(list(LETTERS)), max_size=40).map(bytes))
def test_of_random_messages_none_is_more_than_the_reader_can_take(data):
    check(data)


nested = st.recursive(
    st.sampled_from([b"N", b"i1;", b"f0.5;", b"s1:a", b"i-f;", b"k3;", b"D1:s1:1", b"Q2:i1;i2;", b"s3:\xed\xa0\x80"]),
    lambda inner: st.builds(
        lambda kind, items, lie: b"%c%d:%b" % (kind, len(items) // (2 if kind == ord("d") else 1) + lie, b"".join(items)),
        st.sampled_from(list(b"ltezdIKVMQDcrba")), st.lists(inner, max_size=4), st.sampled_from([0, 0, 0, 0, 1, -1]),
    ),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=400)
@given(nested)
def test_of_nested_messages_none_is_more_than_the_reader_can_take(data):
    check(data)


def test_texts_of_a_reply_are_cut_and_made_valid():
    assert split_texts(join_texts("a\ud800\0b", "x" * 10**6), 3) == ["a? b", "x" * 500, ""]
    assert split_texts(b"\xff\xfe\0" * 10**6, 2)[0] == "\ufffd\ufffd"
    assert split_value(reply_value(b"i1;", b"l0:")) == (b"i1;", b"l0:")
    for reply in (
        b"",
        b"V",
        b"V:",
        b"V-1:",
        b"V9:abc",
        b"V1_0:" + b"x" * 20,
        b"V" + b"9" * 5000 + b":",
        b"L1:x",
    ):
        assert split_value(reply) is None


def candidates(codes):
    return tuple(Candidate("", code=code) for code in codes)


def find(one):
    async def look():
        finder = BehaviourFinder("bwrap", limits=Limits(seconds=UNHURRIED.seconds))
        try:
            return await finder.find(one)
        finally:
            await finder.close()

    return asyncio.run(look())
