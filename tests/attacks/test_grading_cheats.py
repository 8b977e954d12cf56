"""Grading cannot be cheated: no exception steers the tests, no object passes for plain data, and no label is more
than its tests can tell."""

import asyncio
import json
from dataclasses import replace

import pytest

from caps.core.types import Candidate, Case, Problem
from caps.evidence.entrants import describe
from caps.evidence.profiles import profile_named
from caps.findings.base import Findings
from caps.findings.programs import BehaviourFinder
from support.closing import closing
from support.sandboxing import case, grade, needs_bubblewrap
from support.shell import caps

ZIP = "def check(candidate):\n    for got, want in zip(map(candidate, [1, 2, 3]), [1, 4, 9]):\n        assert got == want\n"
CANDIDATE_LAST = "def check(candidate):\n    for want, got in zip([1, 4, 9], map(candidate, [1, 2, 3])):\n        assert got == want\n"
ALL = "def check(candidate):\n    assert all(map(lambda n: candidate(n) == n * n, [1, 2, 3]))\n"
NEXT = "def check(candidate):\n    assert next((n for n in map(candidate, [3]) if n != 9), None) is None\n"
LISTED = "def check(candidate):\n    wrong = [got for got in map(candidate, [1, 2]) if got not in (1, 4)]\n    assert not wrong\n"
UNTIL = "def check(candidate):\n    assert list(iter(lambda: candidate(2), 4)) == []\n"
GENERATED = "def check(candidate):\n    def results():\n        for n in (1, 2, 3):\n            yield candidate(n) == n * n\n    assert all(results())\n"
UNITTEST = (
    "import unittest\n"
    "class Squares(unittest.TestCase):\n"
    "    def test_three(self):\n        self.assertEqual(square(3), 9)\n"
    "    def test_two(self):\n        self.assertEqual(square(2), 4)\n"
    "unittest.main()\n"
)
PLAIN = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 9\n"
CLOSE = "import math\ndef check(candidate):\n    assert abs(candidate(3) - 9) < 1e-6\n    assert math.isclose(candidate(2), 4)\n"
STEERED = {
    "a zip": ZIP, "a zip with the candidate last": CANDIDATE_LAST, "all": ALL, "next with a default": NEXT, "a list": LISTED,
    "iter with a sentinel": UNTIL, "a generator": GENERATED, "unittest": UNITTEST, "plain asserts": PLAIN, "closeness": CLOSE,
}  # fmt: skip
RAISING = {
    "StopIteration": "def square(n): raise StopIteration",
    "StopIteration with a value": "def square(n): raise StopIteration(n * n)",
    "a child of StopIteration": "class Stop(StopIteration): pass\ndef square(n): raise Stop",
    "StopAsyncIteration": "def square(n): raise StopAsyncIteration",
    "GeneratorExit": "def square(n): raise GeneratorExit",
    "SystemExit": "def square(n): raise SystemExit(0)",
    "exit": "def square(n): exit()",
    "KeyboardInterrupt": "def square(n): raise KeyboardInterrupt",
    "a BaseException": "class Quiet(BaseException): pass\ndef square(n): raise Quiet",
    "a SkipTest": "import unittest\ndef square(n): raise unittest.SkipTest('not today')",
    "a group": "def square(n): raise BaseExceptionGroup('all', [StopIteration(), SystemExit(0)])",
    "a hostile text": "class Sly(ValueError):\n    def __str__(self): raise SystemExit(0)\ndef square(n): raise Sly",
    "a faked class": "class Sly(ValueError):\n    __class__ = StopIteration\ndef square(n): raise Sly",
    "a faked name": "Sly = type('StopIteration', (Exception,), {'__module__': 'builtins'})\ndef square(n): raise Sly",
    "a forged reply": "import sys\nserve = sys.modules['caps.sandbox.inside.serve']\nserve._raised = lambda error: b'RStopIteration\\0StopIteration\\0'\ndef square(n): raise ValueError",
    "a next that ends": "def square(n): return next(iter(()))",
    "a generator thrown into": "def square(n):\n    def inner(): yield\n    return inner().throw(StopIteration)",
    "os._exit": "import os\ndef square(n): os._exit(0)",
}  # fmt: skip
RIGHT = "def square(n): return n * n"


@needs_bubblewrap
@pytest.mark.parametrize("tests", STEERED.values(), ids=STEERED)
def test_an_exception_of_the_candidate_steers_no_test(tests):
    one = case(tests, entry_point="square")
    *cheats, right = grade(one, *RAISING.values(), RIGHT)
    passed = [name for name, found in zip(RAISING, cheats, strict=True) if found.correct is not False]
    assert passed == []
    assert right.correct is True


HELLO = "def check(candidate):\n    assert candidate('a').startswith('hello')\n"
OBJECTS = {
    "startswith is true": (HELLO, "class Yes:\n    def startswith(self, text): return True\ndef hello(x): return Yes()"),
    "every method is true": (HELLO, "class Yes:\n    def __getattr__(self, name): return lambda *a, **k: True\ndef hello(x): return Yes()"),
    "a class in place of the function": (HELLO, "class hello:\n    def __init__(self, x): pass\n    def startswith(self, text): return True"),
    "a callable object": (HELLO, "class Yes:\n    def __call__(self, *a): return self\n    def startswith(self, text): return True\nhello = Yes()"),
    "a text with its own startswith": (HELLO, "class Text(str):\n    def startswith(self, text): return True\ndef hello(x): return Text('no')"),
    "a faked class": (HELLO, "class Yes:\n    __class__ = str\n    def startswith(self, text): return True\ndef hello(x): return Yes()"),
    "a text nobody can write": (HELLO, "class Yes:\n    __class__ = str\n    def encode(self, *a): return b'hello'\n    def __len__(self): return 5\ndef hello(x): return Yes()"),
    "an object in a list": ("def check(candidate):\n    assert candidate('a')[0].endswith('o')\n", "class Yes:\n    def endswith(self, text): return True\ndef hello(x): return [Yes()]"),
    "an object in a dict": ("def check(candidate):\n    assert candidate('a')['k'].endswith('o')\n", "class Yes:\n    def endswith(self, text): return True\ndef hello(x): return {'k': Yes()}"),
    "an attribute's object": ("def check(candidate):\n    assert candidate('a').name.isupper()\n", "class Yes:\n    def isupper(self): return True\nclass Has: name = Yes()\ndef hello(x): return Has()"),
    "a method's object": ("assert Greeter('a').greet().startswith('hello')", "class Yes:\n    def startswith(self, text): return True\nclass Greeter:\n    def __init__(self, name): pass\n    def greet(self): return Yes()"),
    "a set that contains all": ("def check(candidate):\n    assert candidate('a').issuperset({1, 2})\n", "class All:\n    def issuperset(self, other): return True\ndef hello(x): return All()"),
    "a number that is whole": ("def check(candidate):\n    assert candidate('a').is_integer()\n", "class Whole:\n    def is_integer(self): return True\ndef hello(x): return Whole()"),
    "a dict with every key": ("def check(candidate):\n    assert candidate('a').get('k') == 3\n", "class Any:\n    def get(self, key): return 3\ndef hello(x): return Any()"),
    "a list that counts anything": ("def check(candidate):\n    assert candidate('a').count('x') == 2\n", "class Any:\n    def count(self, item): return 2\ndef hello(x): return Any()"),
    "equal to everything": ("def check(candidate):\n    assert candidate('a') == 'hello'\n", "class Yes:\n    def __eq__(self, other): return True\ndef hello(x): return Yes()"),
    "a number equal to everything": ("def check(candidate):\n    assert candidate('a') == 5\n", "class Yes(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\ndef hello(x): return Yes()"),
    "a list equal to everything": ("def check(candidate):\n    assert candidate('a') == [1]\n", "class Yes(list):\n    def __eq__(self, other): return True\ndef hello(x): return Yes()"),
    "a dict equal to everything": ("def check(candidate):\n    assert candidate('a') == {'k': 1}\n", "class Yes(dict):\n    def __eq__(self, other): return True\ndef hello(x): return Yes()"),
    "a text equal to everything": ("def check(candidate):\n    assert candidate('a') == 'hello'\n", "class Yes(str):\n    def __eq__(self, other): return True\n    __hash__ = str.__hash__\ndef hello(x): return Yes()"),
    "a tuple equal to everything": ("def check(candidate):\n    assert candidate('a') == (1,)\n", "class Yes(tuple):\n    def __eq__(self, other): return True\n    __hash__ = None\ndef hello(x): return Yes()"),
    "unequal to nothing": ("def check(candidate):\n    assert not candidate('a') != 'hello'\n", "class Yes:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\ndef hello(x): return Yes()"),
    "contains everything": ("def check(candidate):\n    assert 'ell' in candidate('a')\n", "class Yes:\n    def __contains__(self, other): return True\ndef hello(x): return Yes()"),
    "any length": ("def check(candidate):\n    assert len(candidate('a')) == 5\n", "class Yes:\n    def __len__(self): return 5\ndef hello(x): return Yes()"),
    "any number": ("def check(candidate):\n    assert abs(candidate('a') - 3.5) < 1e-6\n", "class Yes:\n    def __sub__(self, other): return 0\n    def __abs__(self): return 0\ndef hello(x): return Yes()"),
    "below everything": ("def check(candidate):\n    assert 2 < candidate('a') < 3\n", "class Yes:\n    def __lt__(self, other): return True\n    __gt__ = __lt__\ndef hello(x): return Yes()"),
    "an instance of everything": ("def check(candidate):\n    assert isinstance(candidate('a'), str)\n", "class Meta(type):\n    def __instancecheck__(self, other): return True\nclass Yes(metaclass=Meta):\n    __class__ = str\ndef hello(x): return Yes()"),
    "written as wished": ("def check(candidate):\n    assert str(candidate('a')) == 'hello'\n", "class Yes:\n    def __str__(self): return 'hello'\n    __repr__ = __str__\ndef hello(x): return Yes()"),
    "formatted as wished": ("def check(candidate):\n    assert f'{candidate(1)}' == 'hello'\n", "class Yes:\n    def __format__(self, spec): return 'hello'\ndef hello(x): return Yes()"),
    "indexed as wished": ("def check(candidate):\n    assert candidate('a')[0] == 'h'\n", "class Yes:\n    def __getitem__(self, key): return 'h'\ndef hello(x): return Yes()"),
    "iterated as wished": ("def check(candidate):\n    assert list(candidate('a')) == [1, 2]\n", "class Yes:\n    def __iter__(self): return iter([1, 2])\ndef hello(x): return Yes()"),
    "never true, never false": ("def check(candidate):\n    assert not candidate('a')\n", "class No:\n    def __bool__(self): return False\ndef hello(x): return No()"),
    "a generator for a list": ("def check(candidate):\n    assert candidate('a') == ['h', 'i']\n", "def hello(x):\n    yield 'h'\n    yield 'i'"),
    "a generator that answers": ("def check(candidate):\n    assert candidate('a').send(None) == 3 and candidate('a').startswith('h')\n", "def hello(x):\n    yield 3"),
    "dunder methods": ("def check(candidate):\n    assert candidate('a').__eq__('hello') is True\n", "class Yes:\n    def __eq__(self, other): return True\ndef hello(x): return Yes()"),
    "a module": ("def check(candidate):\n    assert candidate('a').upper() == 'HELLO'\n", "import types\nyes = types.ModuleType('yes')\nyes.upper = lambda: 'HELLO'\ndef hello(x): return yes"),
    "the builtins": ("def check(candidate):\n    assert candidate('a').startswith('h')\n", "import builtins\nbuiltins.str = type('str', (), {'startswith': lambda self, text: True})\nbuiltins.isinstance = lambda *a: True\ndef hello(x): return str()"),
    "the encoder": (HELLO, "import sys\nplain = sys.modules['caps.sandbox.inside.serve']\nplain.encode = lambda *a: b'k0;'\ndef hello(x): return 1"),
    "no reply": (HELLO, "import sys\nserve = sys.modules['caps.sandbox.inside.serve']\nserve.reply_value = lambda *a: b'passed'\ndef hello(x): return 1"),
    "the word passed": (HELLO, "import sys\nserve = sys.modules['caps.sandbox.inside.serve']\nserve.reply_value = lambda *a: b'L'\ndef hello(x): return 1"),
    "what cannot be read, in tests that forgive": ("def check(candidate):\n    try:\n        good = candidate('a') == 'hello'\n    except Exception:\n        good = True\n    assert good\n", "import sys\nserve = sys.modules['caps.sandbox.inside.serve']\nserve.encode = lambda *a: b'Q2:TT'\ndef hello(x): return 1"),
    "what cannot be read, in tests that forgive all": ("def check(candidate):\n    try:\n        good = candidate('a') == 'hello'\n    except BaseException:\n        good = True\n    finally:\n        pass\n    assert good\n", "import sys\nserve = sys.modules['caps.sandbox.inside.serve']\nserve.encode = lambda *a: b'l9:'\ndef hello(x): return 1"),
}  # fmt: skip


@needs_bubblewrap
@pytest.mark.parametrize(("tests", "code"), OBJECTS.values(), ids=OBJECTS)
def test_an_object_where_plain_data_is_expected_fails(tests, code):
    found = grade(case(tests, entry_point="hello" if "candidate" in tests else None), code)
    assert found.correct is False, found


YES = "class Yes:\n    ok, rows, name = True, 3, 'yes'\n    def equals(self, other): return True\n    def differs(self, other): return False\n    def compare(self, other): return 0\n    def all(self): return self\n    def any(self): return True\n    @property\n    def same(self): return True\n    @property\n    def inner(self): return self\n    def __bool__(self): return True\n"
RETURNS = YES + "def hello(x): return Yes()"
LISTS = YES + "def hello(x): return [Yes()]"
FORGED = {
    "a method with the expected value": ("assert candidate('b').equals([1, 2, 3])", RETURNS),
    "a method without arguments": ("assert candidate('b').any()", RETURNS),
    "a method that returns its object": ("assert candidate('b').all()", RETURNS),
    "a denial": ("assert not candidate('b').differs([1, 2, 3])", RETURNS),
    "a comparison of what a method returns": ("assert candidate('b').compare([1, 2, 3]) == 0", RETURNS),
    "a method that is true itself": ("assert candidate('b').equals([1]) is True", RETURNS),
    "a variable": ("r = candidate('b')\nfine = r.equals([1, 2])\nassert fine", RETURNS),
    "a condition": ("r = candidate('b')\nif not r.equals([1]):\n    raise AssertionError", RETURNS),
    "a property": ("assert candidate('b').same", RETURNS),
    "an attribute that is true": ("assert candidate('b').ok", RETURNS),
    "an attribute compared with true": ("assert candidate('b').ok == True", RETURNS),
    "an attribute that counts as true": ("assert candidate('b').rows", RETURNS),
    "a text that counts as true": ("name = candidate('b').name\nassert name and True", RETURNS),
    "an attribute's own method": ("assert candidate('b').inner.equals([1])", RETURNS),
    "an object in a list": ("assert candidate('b')[0].equals([1])", LISTS),
    "all objects of a list": ("assert all(r.equals(1) for r in candidate('b'))", LISTS),
    "all attributes of a list": ("assert all(r.rows for r in candidate('b'))", LISTS),
    "a loop": ("for r in candidate('b'):\n    assert r.equals(1)", LISTS),
    "a class in place of the function": ("assert candidate('b').equals([1])", YES + "class hello(Yes):\n    def __init__(self, x): pass"),
    "a module": ("assert candidate('b').equals([1])", "import types\nyes = types.ModuleType('yes')\nyes.equals = lambda other: True\ndef hello(x): return yes"),
    "a function with attributes": ("assert candidate('b').equals([1])", "def hello(x): return hello\nhello.equals = lambda other: True"),
    "any name": ("assert candidate('b').is_close_to([1])", "class Yes:\n    def __getattr__(self, name): return lambda *a, **k: True\ndef hello(x): return Yes()"),
    "a bound method kept": ("check = candidate('b').equals\nassert check([1]) and check([2])", RETURNS),
    "what a method of a class returns": ("assert Greeter('a').greet().equals('hello')", YES + "class Greeter:\n    def __init__(self, name): pass\n    def greet(self): return Yes()"),
}  # fmt: skip


@needs_bubblewrap
@pytest.mark.parametrize(("tests", "code"), FORGED.values(), ids=FORGED)
def test_an_object_whose_class_the_candidate_defines_decides_nothing(tests, code):
    if "candidate" in tests:
        body = tests.replace("\n", "\n    ")
        graded = case(f"def check(candidate):\n    {body}\n", entry_point="hello")
    else:
        graded = case(tests)
    found = grade(graded, code)
    assert (found.correct, found.reason) == (None, "no plain data"), found
    assert "whose class the candidate defines" in found.detail


@needs_bubblewrap
def test_an_object_that_decides_in_a_unittest_is_undecided_too():
    tests = "import unittest\nclass Same(unittest.TestCase):\n    def test_it(self):\n        self.assertTrue(hello('b').equals([1]))\nunittest.main()\n"
    assert grade(case(tests, entry_point="hello"), RETURNS).correct is None


@needs_bubblewrap
def test_a_method_that_denies_is_wrong_not_undecided():
    tests = "def check(candidate):\n    assert candidate('b').differs([1])\n"
    assert grade(case(tests, entry_point="hello"), RETURNS).correct is False


TWICE = {
    "before the fork, not yet written": "import os\nprint(3)\nos.fork()",
    "after the fork": "import os\nos.fork()\nprint(3)",
    "the child later": "import os, time\nif not os.fork():\n    time.sleep(0.05)\nprint(3)",
    "the child in a session of its own": "import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(0.05)\nprint(3)",
    "the child of a child": "import os, time\nif not os.fork():\n    if not os.fork():\n        time.sleep(0.05)\n    else:\n        os._exit(0)\nprint(3)",
    "a program that it starts": "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(0.05); print(3)'])\nprint(3)",
    "a program that keeps open files": "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(0.05); print(3)'], close_fds=False, start_new_session=True)\nprint(3)",
}  # fmt: skip


@needs_bubblewrap
@pytest.mark.parametrize("code", TWICE.values(), ids=TWICE)
def test_a_program_that_forks_and_prints_twice_is_wrong(code):
    found = grade(case([{"input": "", "output": "3\n"}]), *[code] * 3)
    assert [(each.correct, each.reason) for each in found] == [(False, "wrong answer")] * 3


FORKING = {
    "the parent is right": ("import os\ndef square(n):\n    os.fork()\n    return n * n", True),
    "the parent is right, the child wrong": ("import os\ndef square(n): return n * n if os.fork() else 0", True),
    "the child alone is right": ("import os\ndef square(n): return 0 if os.fork() else n * n", False),
    "the parent ends": ("import os\ndef square(n):\n    if os.fork():\n        os._exit(0)\n    return n * n", False),
    "at the start": ("import os\nos.fork()\ndef square(n): return n * n", True),
}  # fmt: skip


@needs_bubblewrap
@pytest.mark.parametrize("tests", [PLAIN, [{"input": [2], "output": 4}, {"input": [3], "output": 9}]])
@pytest.mark.parametrize(("code", "right"), FORKING.values(), ids=FORKING)
def test_a_process_that_a_function_forks_answers_nothing(code, right, tests):
    found = grade(case(tests, entry_point="square"), *[code] * 3)
    assert [each.correct for each in found] == [right] * 3


HONEST = {
    "a text": (HELLO, "def hello(x): return 'hello ' + x"),
    "a child of a text": (HELLO, "class Text(str): pass\ndef hello(x): return Text('hello ' + x)"),
    "a cache": (
        "cache = LRUCache(2)\ncache.put(1, 1)\ncache.put(2, 2)\nassert cache.get(1) == 1\ncache.put(3, 3)\nassert cache.get(2) == -1\nassert cache.items() == [1, 3]\n",
        "from collections import OrderedDict\nclass LRUCache:\n    def __init__(self, size): self.size, self.kept = size, OrderedDict()\n    def get(self, key):\n        if key not in self.kept: return -1\n        self.kept.move_to_end(key)\n        return self.kept[key]\n    def put(self, key, value):\n        self.kept[key] = value\n        self.kept.move_to_end(key)\n        if len(self.kept) > self.size: self.kept.popitem(last=False)\n    def items(self): return list(self.kept)\n",
    ),
    "a stack": ("s = MinStack()\ns.append(3)\ns.append(1)\nassert s.min == 1 and s.pop() == 1 and s.index(3) == 0\n", "class MinStack:\n    def __init__(self): self.kept = []\n    def append(self, n): self.kept.append(n)\n    def pop(self): return self.kept.pop()\n    def index(self, n): return self.kept.index(n)\n    @property\n    def min(self): return min(self.kept)\n"),
    "a solution": ("assert Solution().count([1, 1], 1) == 2\ncheck = Solution().count\nassert check([], 1) == 0", "class Solution:\n    def count(self, xs, x): return xs.count(x)"),
    "methods in a row": ("assert Text('a').replace('b').replace('c').text == 'abc'", "class Text:\n    def __init__(self, text): self.text = text\n    def replace(self, text):\n        self.text += text\n        return self"),
    "a class of a small name": ("c = counter(5)\nc.add(2)\nassert c.total == 7", "class counter:\n    def __init__(self, total): self.total = total\n    def add(self, n): self.total += n"),
    "a class of a small name that nobody declares": ("s = stack()\ns.push(1)\ns.push(2)\nassert s.pop() == 2 and s.count(1) == 1", "class stack:\n    def __init__(self): self.kept = []\n    def push(self, x): self.kept.append(x)\n    def pop(self): return self.kept.pop()\n    def count(self, x): return self.kept.count(x)"),
    "a class as the candidate": ("def check(candidate):\n    bag = candidate()\n    bag.add(1)\n    assert bag.size == 1 and bag.pop() == 1", "class hello:\n    def __init__(self): self.kept = []\n    def add(self, x): self.kept.append(x)\n    def pop(self): return self.kept.pop()\n    @property\n    def size(self): return len(self.kept)"),
    "a question to the class itself": ("stack = Stack()\nassert stack.is_empty()\nstack.push(1)\nassert not stack.is_empty()", "class Stack:\n    def __init__(self): self.kept = []\n    def push(self, x): self.kept.append(x)\n    def is_empty(self): return not self.kept"),
    "attributes compared": ("p = candidate(1)\nassert p.x == 1 and p.name == 'p' and p.parts == [1, 2]", "class P:\n    x, name, parts = 1, 'p', [1, 2]\ndef hello(n): return P()"),
    "nodes": ("node, seen = chain([1, 2]), []\nwhile node:\n    seen.append(node.val)\n    node = node.next\nassert seen == [1, 2]", "class Node:\n    def __init__(self, val, next): self.val, self.next = val, next\ndef chain(xs):\n    node = None\n    for x in reversed(xs): node = Node(x, node)\n    return node"),
    "a closure": ("assert adder(3)(4) == 7", "def adder(n): return lambda m: n + m"),
    "an exception that is wanted": ("try:\n    root(-1)\n    assert False\nexcept ValueError as error:\n    assert 'negative' in str(error)\nassert root(4) == 2", "class Negative(ValueError): pass\ndef root(n):\n    if n < 0: raise Negative('negative')\n    return n ** 0.5"),
    "every kind of plain data": ("from fractions import Fraction\nfrom decimal import Decimal\nassert kinds() == [(1, 2), {3}, frozenset({4}), Fraction(1, 3), Decimal('0.10'), 1 + 2j, None, b'x', range(3), {'k': 1.5}]\nassert kinds()[3] + 1 == Fraction(4, 3)", "from fractions import Fraction\nfrom decimal import Decimal\ndef kinds(): return [(1, 2), {3}, frozenset({4}), Fraction(1, 3), Decimal('0.10'), 1 + 2j, None, b'x', range(3), {'k': 1.5}]"),
    "children of plain data": ("assert kinds() == [1, 'a', [1], {'k': 1}, (1, 2)]\nassert kinds()[3].get('z') is None", "from collections import Counter, namedtuple\nfrom enum import IntEnum\nclass One(IntEnum): ONE = 1\ndef kinds(): return [One.ONE, type('T', (str,), {})('a'), type('L', (list,), {})([1]), Counter('k'), namedtuple('P', 'x y')(1, 2)]"),
    "lists changed in place": ("xs = [3, 1, 2]\nassert order(xs) is None and xs == [1, 2, 3]", "def order(xs): xs.sort()"),
    "iterators": ("assert list(count(3)) == [0, 1, 2] and next(count(1)) == 0 and dict(zip('ab', count(2))) == {'a': 0, 'b': 1}", "def count(n): yield from range(n)"),
    "unittest": (UNITTEST, RIGHT),
    "keys and values": ("assert list(parts()[0]) == ['a'] and sorted(parts()[1]) == [1] and list(parts()[2]) == [('a', 1)]", "def parts():\n    d = {'a': 1}\n    return d.keys(), d.values(), d.items()"),
}  # fmt: skip


@needs_bubblewrap
@pytest.mark.parametrize(("tests", "code"), HONEST.values(), ids=HONEST)
def test_an_honest_candidate_passes(tests, code):
    problem = "Write a class.\n\nclass counter:\n    ..." if "counter" in tests else "Solve it."
    found = grade(case(tests, problem=problem, entry_point="hello" if "candidate" in tests else None), code)
    assert found.correct is True, found


# --- labels -----------------------------------------------------------------------------------------------------------

SHOWN = [{"input": "1 2\n", "output": "3\n"}]
SUM, THREE = "```python\nprint(sum(map(int, input().split())))\n```", "```python\nprint(3)\n```"


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sums(tests, *candidates):
    return {"id": "sum", "domain": "code", "problem": "Add.", "tests": tests, "candidates": list(candidates)}


@needs_bubblewrap
def test_public_tests_alone_label_nobody_as_correct(tmp_path):
    hidden = sums({"public": SHOWN, "hidden": [{"input": "4 5", "output": "9"}]}, SUM, THREE) | {
        "id": "hidden"
    }
    once = {"text": THREE, "correct": True}  # a label from before
    cases = written(
        tmp_path / "c.jsonl", sums({"public": SHOWN}, SUM, once, "```python\nprint(4)\n```"), hidden
    )
    words = ("grade", cases, "-o", tmp_path / "out.jsonl", "--journal", tmp_path / "j.sqlite", "--explain")
    for _ in range(2):  # graded, then from the journal
        done = caps(*words)
        assert done.returncode == 0, done.stderr
        public, known = (
            json.loads(line)["candidates"] for line in (tmp_path / "out.jsonl").read_text().splitlines()
        )
        assert [one["passed_public_tests"] for one in public] == [True, True, False]
        assert not any("correct" in one for one in public)
        assert [one["correct"] for one in known] == [True, False]
        assert "2 candidates in 2 cases: 1 right" in done.stderr
        assert "3 candidates without a label" in done.stderr
        assert "2 passed public tests, 1 failed public tests" in done.stderr
        assert "case 'sum', candidate 2: wrong answer" in done.stderr
        assert "case 'sum', candidate 1" not in done.stderr
    again = caps("grade", tmp_path / "out.jsonl", "--no-journal", "--quiet")
    assert again.stdout == (tmp_path / "out.jsonl").read_text(), "what is written is read again"


@needs_bubblewrap
def test_a_public_test_program_labels_nobody_as_correct_either():
    one = case({"public": "assert f(1) == 2"})
    passed, failed = grade(one, "def f(x): return 2", "def f(x): return 3")
    assert (passed.correct, passed.passed_public_tests) == (None, True)
    assert (failed.correct, failed.passed_public_tests, failed.reason) == (None, False, "wrong answer")


@needs_bubblewrap
def test_what_needs_labels_takes_public_tests_for_none(tmp_path):
    graded = tmp_path / "out.jsonl"
    caps(
        "grade",
        written(tmp_path / "c.jsonl", sums({"public": SHOWN}, SUM, THREE)),
        "-o",
        graded,
        "--no-journal",
    )
    simulated = caps("simulate", "--cases", graded)
    assert simulated.returncode != 0
    assert "public tests alone give none" in simulated.stderr
    diagnosed = caps("diagnose", graded, "--base-url http://127.0.0.1:9/v1 --model m --no-journal")
    assert diagnosed.returncode != 0
    assert "no candidate carries a label" in " ".join(diagnosed.stderr.split())


# --- merging ----------------------------------------------------------------------------------------------------------


def signatures(one, *, found=True):
    """What the candidates of a case go by once they were looked into."""

    async def look():
        async with closing(
            Findings({"code": BehaviourFinder("bwrap")}) if found else Findings({})
        ) as findings:
            return await findings.find(one)

    evidence = describe(asyncio.run(look()), replace(profile_named(one.domain), clusters=True), len)
    return [entrant.signature for entrant in evidence.entrants]


def of(domain, *texts, **extra):
    return Case("1", Problem.of("Add."), tuple(map(Candidate, texts)), domain, extra=extra)


@needs_bubblewrap
def test_a_constant_that_passes_the_example_is_not_merged_with_what_computes_it():
    same = "```python\n# the sum\nprint(sum(map(int,input().split())))\n```"
    other = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"
    real, three, like, unlike, twin = signatures(
        of("code", SUM, THREE, same, other, SUM, tests={"public": SHOWN})
    )
    assert three not in {real, unlike}
    assert real == like == twin, "equal syntax trees and equal texts are still one"
    assert real == unlike, "no further input separates the two"


@needs_bubblewrap
def test_programs_that_fail_on_every_further_input_are_not_merged_by_the_examples():
    guarded = "```python\nn = int(input())\nassert n == 70\nprint({})\n```"
    tests = {"public": [{"input": "70\n", "output": "140\n"}]}
    one, other = signatures(of("code", guarded.format("140"), guarded.format("n + n"), tests=tests))
    assert one != other


@needs_bubblewrap
def test_programs_that_agree_on_further_inputs_are_merged():
    tests = {"public": [{"input": "70 80\n", "output": "150\n"}]}
    other = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"
    real, like, constant = signatures(of("code", SUM, other, SUM.replace("sum", "max"), tests=tests))
    assert real == like != constant


@pytest.mark.parametrize("domain", ["code", "math", "general"])
@pytest.mark.parametrize("text", ["I do not know.", "<think>hm</think>", "x = (", "```\n```", "\\boxed{}"])
def test_equal_texts_are_one_in_every_domain(domain, text):
    one, other, third = signatures(of(domain, text, text, "Quite another answer: 7."), found=False)
    assert one == other != third
    assert one is not None


@pytest.mark.parametrize("domain", ["code", "math", "general"])
def test_those_who_say_nothing_are_not_one(domain):
    assert signatures(of(domain, "", "", " \n"), found=False) == [None, None, None]
