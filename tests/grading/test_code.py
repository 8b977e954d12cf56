"""Programs are graded by their tests, and those that fake a result are merely wrong."""

import asyncio
from dataclasses import replace

import pytest

from caps.core.domains import Resources
from caps.core.errors import InputError
from caps.core.types import Candidate
from caps.grading.code import CodeGrader, program_text
from caps.grading.results import ResultReader
from caps.registry import GRADERS, resolve
from caps.sandbox.base import Limits
from caps.sandbox.launchers import find_sandbox
from caps.sandbox.programs import Program, ProgramSession
from support.sandboxing import UNHURRIED, case, grade, needs_bubblewrap

pytestmark = needs_bubblewrap
SUMS = case(
    {
        "public": [{"input": "1 1", "output": "2"}],
        "hidden": [{"input": "1 2\n", "output": "3\n"}, {"input": "40 2", "output": "42"}],
    }
)
CALLS = case(
    [{"input": [[3, 1, 2]], "output": [1, 2, 3]}, {"input": [[]], "output": []}], entry_point="order"
)
PROGRAM = case(
    "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 9\n",
    entry_point="square",
)
RIGHT_SUM = "a, b = map(int, input().split())\nprint(a + b)"


def limits_for(reason):
    """Little time for what needs it all, much for what must not be cut off on a busy machine."""
    return Limits(seconds=0.7) if reason == "time limit" else UNHURRIED


def test_a_program_that_passes_every_hidden_test_is_right():
    assert grade(SUMS, RIGHT_SUM).correct is True


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print(3)", "wrong answer"),
        ("print(int(input()))", "runtime error"),
        ("def f(:", "does not parse"),
        ("(" * 5000, "does not parse"),
        ("while True: pass", "time limit"),
        ("x = bytearray(1 << 40)", "memory limit"),
        ("while True: print('x' * 10000)", "output limit"),
        ("import sys; sys.exit(3)", "runtime error"),
        ("import os; os._exit(0)", "wrong answer"),
        ("import os\nos.kill(os.getppid(), 9)\nos.kill(os.getpid(), 9)", "runtime error"),
        ("", "wrong answer"),
    ],
)
def test_every_way_to_fail_has_its_word(code, reason):
    found = grade(SUMS, code, limits=replace(limits_for(reason), output=100_000))
    assert (found.correct, found.reason) == (False, reason)


def test_a_failure_names_its_test_with_input_expected_and_got():
    found = grade(SUMS, "print(3)")
    assert found.detail == r"test 2: input '40 2', expected '42', got '3\n'"


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("3\n", "3", True), ("a b\nc", "a  b \nc\n\n", True), ("0.5", "0.50", True), ("1 2", "1.0 2", True),
        ("a b", "a c", False), ("1\n2", "1 2", False), ("0.5", "0.51", False), ("nan", "nan", True), ("", " \n", True),
    ],
)  # fmt: skip
def test_outputs_are_compared_line_by_line_and_numbers_by_value(expected, printed, same):
    assert grade(case([{"input": "", "output": expected}]), f"print({printed!r})").correct is same


def test_each_test_starts_afresh_and_may_exit():
    tests = [{"input": str(n), "output": f"{n} main"} for n in range(5)]
    code = "import sys\nopen('/tmp/seen', 'x') if not hasattr(sys, 'seen') else 1/0\nsys.seen = 1\nimport os; os.remove('/tmp/seen')\nif __name__ == '__main__': print(input(), 'main')\nexit()"
    assert grade(case(tests), code).correct is True


def test_what_a_program_does_at_its_end_counts():
    code = (
        "import atexit, threading, time\n"
        "atexit.register(print, 3)\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), print(2))).start()\n"
        "print(1)"
    )
    assert grade(case([{"input": "", "output": "1\n2\n3"}]), code).correct is True


def test_common_imports_are_lent_to_contest_programs():
    code = "class Solution:\n    def order(self, xs: List[int]) -> List[int]:\n        return [heappop(h) for h in [sorted(xs)] for _ in xs] if math.pi else deque()"
    assert grade(CALLS, code).correct is True


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def order(xs): return sorted(xs)", ""),
        ("def order(xs): return tuple(sorted(xs))", ""),
        ("def order(xs): return xs", "wrong answer"),
        ("def order(xs): return (x for x in sorted(xs))", "wrong answer"),
        ("def other(xs): return sorted(xs)", "runtime error"),
        ("def order(xs): raise SystemExit(0)", "runtime error"),
        ("def order(xs):\n    while True: pass", "time limit"),
        ("def order(xs): return [0] * (1 << 40)", "memory limit"),
        ("def order(xs):\n    xs.append(xs)\n    return xs", "runtime error"),
        ("class L(list):\n    def __eq__(self, other): return True\ndef order(xs): return L()", "wrong answer"),
        ("import os\ndef order(xs):\n    for fd in range(3, 20):\n        try: os.write(fd, b'16\\nl3:s5:valueb1:s2:4e')\n        except OSError: pass\n    os._exit(0)", "runtime error"),
    ],
)  # fmt: skip
def test_functions_are_called_with_plain_data(code, reason):
    found = grade(CALLS, code, limits=limits_for(reason))
    assert (found.correct, found.reason) == (not reason, reason)


def test_what_is_lent_is_never_the_function_asked_for():
    one = case([{"input": [4, 6], "output": 2}], entry_point="gcd")
    method = "class Solution:\n    def gcd(self, a, b):\n        return gcd(b, a % b) if b else a\ngcd = Solution().gcd"
    lazy, right = grade(one, "x = gcd(1, 1)", method)
    assert (lazy.correct, right.correct) == (False, True)


def test_texts_are_arguments_a_line_each_where_a_function_is_named():
    one = case([{"input": '[1, 2]\n"x"', "output": '"2x"'}], entry_point="join")
    assert grade(one, "def join(xs, s): return str(len(xs)) + s").correct is True
    assert (
        grade(one, "n = len(eval(input()))\nprint(repr(str(n) + input()[1:-1]).replace(\"'\", '\"'))").correct
        is True
    )


@pytest.mark.parametrize(
    "fake",
    [
        "import os\nos._exit(0)",
        "import sys\nsys.exit(0)",
        "import builtins\nbuiltins.AssertionError = type(None)\nbuiltins.print = lambda *a: None\nbuiltins.compile = None\ndef square(x): return 0",
        "import sys\ndef trace(*a):\n    for f in list(sys._current_frames().values()):\n        f.f_locals.update(nonce='x')\n    return trace\nsys.settrace(trace)\ndef square(x): return 0",
        "import atexit, os\natexit.register(os._exit, 0)\ndef square(x): return 0",
        "import sys, gc\ndef square(x):\n    for o in gc.get_objects():\n        if isinstance(o, dict) and 'nonce' in o: print(o)\n    sys.modules['caps.sandbox.inside.plain'].encode = lambda *a: b'passed'\n    return 0",
        "import os\ndef square(x):\n    for fd in range(3, 30):\n        try: os.close(fd)\n        except OSError: pass",
        "import os\ndef square(x):\n    for fd in range(30):\n        try: os.write(fd, b'9\\nl1:s6:passed')\n        except OSError: pass\n    return 0",
        "def check(candidate): pass\ndef square(x): return 0",
        "import threading, os\nthreading.Timer(0.01, os._exit, [0]).start()\ndef square(x):\n    while True: pass",
    ],
)  # fmt: skip
def test_a_faker_is_merely_wrong(fake):
    found = grade(PROGRAM, fake, limits=Limits(seconds=1))
    assert found.correct is False
    assert found.reason in ("wrong answer", "runtime error", "time limit")


def test_a_test_program_sees_a_function_like_any_other():
    tests = (
        "assert f([1, 2]) == (1, 2) and isinstance(f([1, 2]), tuple)\n"
        "xs = [[1], 2]\nalias = xs[0]\nchange(xs)\nassert xs == [[1, 9], 2, 3]\n"
        "d = {}\nchange_dict(d)\nassert d == {'a': {1, 2}}\n"
        "try:\n    f(None)\n    assert False\nexcept ValueError as error:\n    assert 'nothing' in str(error)\n"
        "assert sum(count(4)) == 6 and list(count(2)) == [0, 1] and count(1) != [0]\n"
        "assert make(3)(4) == 7 and make(1) != make(1)\n"
        "c = Counter(5)\nc.add(2)\nassert c.total == 7\n"
        "assert big(400) == 7 ** 400 and math.isnan(big(-1)) and big(0) == 1 + 2j\n"
    )
    code = (
        "class MyError(ValueError): pass\n"
        "def f(xs):\n    if xs is None: raise MyError('nothing')\n    return tuple(xs)\n"
        "def change(xs): xs[0].append(9); xs.append(3)\n"
        "def change_dict(d): d['a'] = {1, 2}\n"
        "def count(n):\n    for i in range(n): yield i\n"
        "def make(n): return lambda m: n + m\n"
        "class Counter:\n    def __init__(self, total): self.total = total\n    def add(self, n): self.total += n\n"
        "def big(n): return 7 ** n if n > 0 else float('nan') if n else 1 + 2j\n"
    )
    found = grade(case(tests), code)
    assert found.correct is True, found


def test_the_prompt_is_continued_by_a_bare_text_and_lends_its_names_to_the_tests():
    prompt = "import math\n\ndef twice(x):\n    return 2 * x\n\ndef square(x):\n    '''The square.'''\n"
    tests = "def check(candidate):\n    assert candidate(twice(1)) == 4\n"
    one = case(tests, problem=prompt, entry_point="square")
    assert (
        grade(
            one, "    return math.prod((x, x))\n", "def twice(x): return 0\ndef square(x): return twice(x)"
        )[0].correct
        is True
    )
    assert grade(one, "def twice(x): return 0\ndef square(x): return 4 if x == 0 else 1").correct is False
    bare = Candidate("    return x * x\n")
    assert program_text(one, bare) == prompt + "    return x * x\n"


def test_code_is_the_last_block_of_a_text():
    text = "First:\n```python\nprint(0)\n```\nBetter:\n```python\n" + RIGHT_SUM + "\n```\nDone."
    assert program_text(SUMS, Candidate(text)).strip() == RIGHT_SUM


def test_a_failed_assertion_is_shown_with_the_call():
    found = grade(PROGRAM, "def square(x): return x + 2")
    assert (found.correct, found.reason) == (False, "wrong answer")
    assert found.detail.startswith("assert candidate(3) == 9: called square[3], got 5")
    crashed = grade(PROGRAM, "def square(x): return y")
    assert crashed.reason == "runtime error"
    assert "NameError" in crashed.detail


def test_tests_that_pass_what_is_no_plain_data_leave_it_undecided():
    found = grade(case("assert apply(lambda x: x, 1) == 1"), "def apply(f, x): return f(x)")
    assert (found.correct, found.reason) == (None, "no plain data")


@pytest.mark.parametrize(
    ("tests", "field"),
    [
        (None, "tests"), ([], "tests"), ({"hidden": [], "public": []}, "tests.public"), (7, "tests"), ({"x": 1}, "tests"),
        ([{"input": "1"}], r"tests\[0\]"), ({"hidden": [{"input": "1", "output": "1"}, {"input": [1], "output": 1}]}, "tests.hidden"),
        ([{"input": [1], "output": 1}], "entry_point"), ("def check(:", "tests"), ("x = 1", "tests"), ("import nowhere\nassert f(1)", "tests"),
    ],
)  # fmt: skip
def test_tests_that_cannot_run_are_the_cases_fault(tests, field):
    with pytest.raises(InputError, match=field):
        grade(case(tests), "def f(x): return x")


def test_a_function_may_have_the_name_of_a_module():
    one = case(["assert bisect(4) == 2 and math.isclose(1, 1)"])
    assert grade(one, "def bisect(n): return n // 2").correct is True


def test_asserts_in_a_list_and_tests_of_other_collections_are_read():
    assert grade(case(["assert f(1) == 2", "assert f(2) == 3"]), "def f(x): return x + 1").correct is True
    foreign = {"fn_name": "f", "inputs": [[1], [2]], "outputs": [2, 3]}
    assert grade(case(foreign), "def f(x): return x + 1", "def f(x): return 2")[1].correct is False


@pytest.mark.slow
def test_behaviour_on_many_inputs_survives_a_crash_and_a_hang():
    async def play(program, inputs):
        reader, limits = ResultReader(), Limits(seconds=1.5)
        kind = "text" if program.entry_point is None else "value"
        try:
            async with ProgramSession(await find_sandbox(), program, limits) as session:
                ran = [await session.run(value, limits.seconds) for value in inputs]
            shown = [(await reader.read(kind, one.output)).shown if one.status == "ok" else "" for one in ran]
            return [(one.status, text) for one, text in zip(ran, shown, strict=True)]
        finally:
            await reader.close()

    fed = asyncio.run(
        play(Program("n = int(input())\nwhile n == 2: pass\nprint( 10 // n, ' ')"), ["1", "0", "2", "5"])
    )
    assert fed == [("ok", r"'10  \n'"), ("crashed", ""), ("timeout", ""), ("ok", r"'2  \n'")]
    called = asyncio.run(
        play(
            Program("import os\ndef f(n):\n    if n == 2: os._exit(0)\n    return {n, 'a', 7 ** 2}", "f"),
            [[1], [2], ["x"]],
        )
    )
    assert [status for status, _ in called] == ["ok", "crashed", "ok"]
    assert called[0][1] == """\"set({'a', 1, 49})\""""


async def test_a_grader_keeps_a_version_and_stands_in_the_registry():
    grader = await resolve(GRADERS, "code")(Resources(seconds=3.0))
    await grader.close()
    made = grader
    assert isinstance(made, CodeGrader)
    assert made.version.startswith("code-3 python3.")
    assert made.limits.seconds == 3.0
