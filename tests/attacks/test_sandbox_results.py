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
from caps.grading.results import Items, ResultReader, read, read_value, render
from caps.sandbox.base import Limits
from caps.sandbox.inside.plain import (
    DEPTH,
    DIGITS,
    ITEMS,
    PYTHON,
    UnreadableError,
    decode,
    decode_given,
    encode,
)
from caps.sandbox.inside.wire import join_texts, reply_raised, reply_value, split_reply, split_texts
from caps.testing import ScriptedEndpoint, better_quality_wins
from support.closing import closing
from support.sandboxing import UNHURRIED, case, grade, needs_bubblewrap
from support.shell import caps, json_lines

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
COLLIDING = "b''.join(b', %d' % (n * (2**61 - 1)) for n in range(110000))"
PAYLOADS = {
    "a fraction of a text": "b'[\"fraction\", \"1e999999999\", null]'",
    "a fraction of two texts": "b'[\"fraction\", \"1e999999999\", \"1\"]'",
    "a fraction of floats": "b'[\"fraction\", 1e308, 1e-308]'",
    "a fraction over nothing": "b'[\"fraction\", 1, 0]'",
    "a fraction over less than nothing": "b'[\"fraction\", 1, -2]'",
    "a fraction of truths": "b'[\"fraction\", true, true]'",
    "a fraction of one part": "b'[\"fraction\", 1]'",
    "a fraction of very many digits": "b'[\"fraction\", [\"int\", \"' + b'f' * 50000 + b'\"], [\"int\", \"' + b'e' * 50000 + b'\"]]'",
    "a decimal of a huge exponent": "b'[\"decimal\", \"1e999999999\"]'",
    "a decimal of very many digits": "b'[\"decimal\", \"' + b'9' * 50000 + b'\"]'",
    "a decimal of a number": "b'[\"decimal\", 3]'",
    "a decimal that signals": "b'[\"decimal\", \"sNaN\"]'",
    "many decimals": "b'[\"list\"' + b', [\"decimal\", \"1e-999\"]' * 400000 + b']'",
    "a set that floods the hash": f"b'[\"set\"' + {COLLIDING} + b']'",
    "a frozen set that floods the hash": f"b'[\"frozenset\"' + {COLLIDING} + b']'",
    "keys that flood the hash": f"b'[\"dict\"' + {COLLIDING} + b']'",
    "a view that floods the hash": f"b'[\"dict_keys\"' + {COLLIDING} + b']'",
    "a million empty sets": "b'[\"list\"' + b',[\"set\"]' * 1300000 + b']'",
    "a million empty dicts": "b'[\"list\"' + b',[\"dict\"]' * 1300000 + b']'",
    "a million empty lists": "b'[\"list\"' + b',[\"list\"]' * 1300000 + b']'",
    "millions of lists without a kind": "b'[\"list\"' + b',[]' * 2500000 + b']'",
    "a number of millions of digits": "b'[\"int\", \"' + b'f' * 4000000 + b'\"]'",
    "a decimal number of millions of digits": "b'9' * 4000000",
    "a number with a line": "b'[\"int\", \"f_f\"]'",
    "a number that never ends": "b'[\"int\", \"' + b'f' * 4000000",
    "a float of a million digits": "b'[\"float\", \"' + b'1' * 1000000 + b'\"]'",
    "a float that is no float": "b'[\"float\", \"1.5\"]'",
    "a constant": "b'Infinity'",
    "an object of JSON": "b'{\"a\": 1}'",
    "a tower of lists": "b'[\"list\",' * 100000 + b'null' + b']' * 100000",
    "a tower of sets": "b'[\"frozenset\",' * 100000 + b'null' + b']' * 100000",
    "a tower without an end": "b'[' * 4000000",
    "a text that is cut off": "b'\"abc'",
    "a text that is no text": "b'\"\\xff\\xfe\"'",
    "bytes that are no bytes": "b'[\"bytes\", \"xyz\"]'",
    "a range without steps": "b'[\"range\", 1, 2, 0]'",
    "a range of texts": "b'[\"range\", \"a\", \"b\", \"c\"]'",
    "a complex of texts": "b'[\"complex\", \"nan\", \"1\"]'",
    "items that are no pairs": "b'[\"dict_items\", 1, 2]'",
    "a key without a value": "b'[\"dict\", 1]'",
    "an object": "b'[\"object\", 0]'",
    "an object nobody kept": "b'[\"object\", 4294967295]'",
    "an unknown kind": "b'[\"thing\", null]'",
    "a kind that is a list": "b'[[\"list\"], null]'",
    "two values": "b'null null'",
    "two lines": "b'null\\nnull\\nnull'",
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


async def test_a_reader_that_takes_too_long_is_ended_and_the_next_result_is_read():
    hasty, patient = ResultReader(seconds=0.3), ResultReader()
    slow = nulls(ITEMS - 1)
    try:
        late, whole, plain = (
            await hasty.read("value", slow),
            await patient.read("value", slow),
            await patient.read("value", b"7", [b"7"]),
        )
    finally:
        await hasty.close()
        await patient.close()
    assert late.fault.startswith("no reply within")
    assert (whole.fault, plain.same) == ("", True)


async def test_a_reader_without_memory_says_so_and_the_next_result_is_read():
    reader = ResultReader(memory=100 << 20)
    many = b'["list"' + b',["dict"]' * (ITEMS - 1) + b"]"
    try:
        starved, plain = (
            await reader.read("value", many),
            await reader.read("value", b'["list", 7]', [b'["list", 7]']),
        )
    finally:
        await reader.close()
    assert starved.fault
    assert plain.same


def nulls(count):
    return b'["list"' + b",null" * count + b"]"


def tower(depth):
    return b'["list",' * depth + b"null" + b"]" * depth


def test_bounds_are_where_they_are_said_to_be():
    assert read_value(b'["int", "' + b"f" * DIGITS + b'"]') == 16**DIGITS - 1
    assert read_value(tower(DEPTH))
    assert len(read_value(nulls(ITEMS - 1))) == ITEMS - 1
    assert len(decode_given(nulls(ITEMS))) == ITEMS, "tests may pass what they like"
    for beyond in (
        b'["int", "' + b"f" * (DIGITS + 1) + b'"]',
        tower(DEPTH + 1),
        nulls(ITEMS),
        b'"' + b"x" * (17 << 20) + b'"',
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
LETTERS = b'[]{},:" -+.eE0123456789abcdefntu\\'
TAGS = [tag.encode() for tag in (*PYTHON, "int", "float", "object")]
MESSAGES = 40  # of each example of mutated ones


def check(data):
    """Read bytes in every way there is; nothing is raised, and what is read stays within the bounds."""
    reading = read("value", data, [SEEDS[0]])
    assert bool(reading.fault) != bool(reading.digest)
    assert json.dumps(reading)
    assert (reading.shown + reading.fault).isprintable()
    assert len(reading.shown) <= 200
    read("text", data, [b"1 2"])
    split_reply(data)
    assert len(split_texts(data, 3)) == 3
    if not reading.fault:
        assert measure(read_value(data)) <= (DEPTH, ITEMS)
    with suppress(UnreadableError):
        decode(data, find=lambda number: number)
    with suppress(UnreadableError):
        encoded = encode(decode(data))
        again = encode(decode(encoded))
        assert render(read_value(again)) == render(read_value(encoded)), "a value like any other"


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
                data = bytearray(b'["%b",%b]' % (rng.choice(TAGS), data))
            data = data or bytearray(b"null")
        check(bytes(data))


@settings(max_examples=600)
@given(st.binary(max_size=60) | st.lists(st.sampled_from(list(LETTERS)), max_size=40).map(bytes))
def test_of_random_messages_none_is_more_than_the_reader_can_take(data):
    check(data)


nested = st.recursive(
    st.sampled_from([b"null", b"1", b"0.5", b'"a"', b'["int", "-f"]', b'["object", 3]', b'["decimal", "1"]', b'"\\ud800"', b"{}"]),
    lambda inner: st.builds(
        lambda tag, items: b'["%b"%b]' % (tag, b"".join(b"," + item for item in items)),
        st.sampled_from(TAGS), st.lists(inner, max_size=4),
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
    assert split_reply(reply_value(b"1", b"[]", milliseconds=7)) == (b"V", 7, b"1\n[]")
    assert split_reply(reply_raised("A", "B", "c\nd")) == (b"R", 0, b"A\0B\0c\nd")
    for reply in (
        b"",
        b"V",
        b"V\n",
        b"V-1\n",
        b"V1",
        b"V1_0\n",
        b"V" + b"9" * 5000 + b"\n",
        b"L1\n",
        b"X1\nx",
    ):
        assert split_reply(reply) is None


def candidates(codes):
    return tuple(Candidate("", code=code) for code in codes)


def find(one):
    async def look():
        async with closing(BehaviourFinder("bwrap", limits=Limits(seconds=UNHURRIED.seconds))) as finder:
            return await finder.find(one)

    return asyncio.run(look())
