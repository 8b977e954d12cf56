"""Small repositories with seeded bugs, and patches for them whose effect is known by construction.

A bug in one function fails one unittest test. Every case gets the same kinds of patches: the right one (also in
other forms), wrong ones, ones that break something else, and ones that do not apply or parse.
"""

import difflib
import json
from dataclasses import dataclass
from random import Random

MODULES = {
    "shop/prices.py": (
        '"""Prices."""\n\n\n'
        "def total(prices):\n    result = 0\n    for price in prices:\n        result += price\n    return result\n\n\n"
        "def discounted(price, percent):\n    return price - price * percent / 100\n\n\n"
        "def cheapest(prices):\n    if not prices:\n        return None\n    return min(prices)\n"
    ),
    "shop/stock.py": (
        '"""What is in stock."""\n\n\n'
        "class Stock:\n    def __init__(self):\n        self.items = {}\n\n"
        "    def add(self, name, count=1):\n        self.items[name] = self.items.get(name, 0) + count\n\n"
        "    def take(self, name, count=1):\n        if self.items.get(name, 0) < count:\n"
        "            raise ValueError(f'not enough {name}')\n        self.items[name] -= count\n        return count\n\n"
        "    def missing(self, wanted):\n        return sorted(name for name in wanted if not self.items.get(name))\n"
    ),
    "shop/words.py": (
        '"""Names and labels."""\n\n\n'
        "def slug(title):\n    return '-'.join(title.lower().split())\n\n\n"
        "def initials(name):\n    return ''.join(word[0].upper() for word in name.split())\n\n\n"
        "def shorten(text, limit):\n    if len(text) <= limit:\n        return text\n    return text[: limit - 1] + '.'\n"
    ),
}
TESTS = {
    "tests/__init__.py": "",
    "tests/test_prices.py": (
        "import unittest\nfrom shop.prices import cheapest, discounted, total\n\n\nclass Prices(unittest.TestCase):\n"
        "    def test_total(self):\n        self.assertEqual(total([1, 2, 3]), 6)\n        self.assertEqual(total([]), 0)\n\n"
        "    def test_discounted(self):\n        self.assertEqual(discounted(200, 10), 180)\n\n"
        "    def test_cheapest(self):\n        self.assertEqual(cheapest([3, 1, 2]), 1)\n\n"
        "    def test_cheapest_of_none(self):\n        self.assertIsNone(cheapest([]))\n"
    ),
    "tests/test_stock.py": (
        "import unittest\nfrom shop.stock import Stock\n\n\nclass Stocks(unittest.TestCase):\n"
        "    def setUp(self):\n        self.stock = Stock()\n        self.stock.add('tea', 2)\n\n"
        "    def test_add(self):\n        self.stock.add('tea')\n        self.assertEqual(self.stock.items['tea'], 3)\n\n"
        "    def test_take(self):\n        self.assertEqual(self.stock.take('tea', 2), 2)\n        self.assertEqual(self.stock.items['tea'], 0)\n\n"
        "    def test_take_too_much(self):\n        with self.assertRaises(ValueError):\n            self.stock.take('tea', 3)\n\n"
        "    def test_missing(self):\n        self.assertEqual(self.stock.missing(['milk', 'tea', 'jam']), ['jam', 'milk'])\n"
    ),
    "tests/test_words.py": (
        "import unittest\nfrom shop.words import initials, shorten, slug\n\n\nclass Words(unittest.TestCase):\n"
        "    def test_slug(self):\n        self.assertEqual(slug('Green  Tea'), 'green-tea')\n\n"
        "    def test_initials(self):\n        self.assertEqual(initials('ada lovelace'), 'AL')\n\n"
        "    def test_short_text(self):\n        self.assertEqual(shorten('tea', 3), 'tea')\n\n"
        "    def test_long_text(self):\n        self.assertEqual(shorten('teapot', 4), 'tea.')\n"
    ),
}
#: Module, the right line, the seeded bug, a repair that is still wrong, and the tests that the bug fails.
BUGS = (
    ("shop/prices.py", "        result += price\n", "        result = price\n", "        result -= price\n", "test_total"),
    ("shop/prices.py", "    result = 0\n", "    result = 1\n", "    result = -1\n", "test_total"),
    ("shop/prices.py", "    return price - price * percent / 100\n", "    return price - percent / 100\n", "    return price * percent / 100\n", "test_discounted"),
    ("shop/prices.py", "    return min(prices)\n", "    return max(prices)\n", "    return prices[0]\n", "test_cheapest"),
    ("shop/stock.py", "self.items.get(name, 0) + count\n", "count\n", "max(count, 1)\n", "test_add"),
    ("shop/stock.py", "        self.items[name] -= count\n", "        self.items[name] -= 1\n", "        self.items[name] += count\n", "test_take"),
    ("shop/words.py", "'-'.join(title.lower().split())\n", "'-'.join(title.lower().split(' '))\n", "'-'.join(title.split())\n", "test_slug"),
)  # fmt: skip
TEST_COMMAND = "python3 -m unittest -v"


@dataclass(frozen=True)
class Truth:
    """What a patch does: whether it applies and parses, fixes the bug, breaks something, and is right."""

    kind: str
    applies: bool = True
    parses: bool = True
    fixes: bool = False
    breaks: bool = False

    @property
    def right(self):
        return self.applies and self.parses and self.fixes and not self.breaks


def write_repository(folder, files):
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def files_with(bug):
    """The repository with a bug."""
    module, right, wrong, _, _ = BUGS[bug]
    assert MODULES[module].count(right) == 1, (bug, right)
    return {"shop/__init__.py": "", **MODULES, module: MODULES[module].replace(right, wrong), **TESTS}


def diff(before, after, *, context=3, path):
    """A unified diff of one file, as git writes it."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}", n=context
    )
    return f"diff --git a/{path} b/{path}\n" + "".join(lines)


def patches_for(bug, rng):
    """Patches with their truths: five kinds, and three forms of the right one, in random order."""
    module, _, _, still, _ = BUGS[bug]
    buggy, right = files_with(bug)[module], MODULES[module]
    wrong = MODULES[module].replace(BUGS[bug][1], still)
    other = rng.choice([name for name in MODULES if name != module])
    _, good, bad, _, _ = rng.choice([one for one in BUGS if one[0] == other])
    breaking = diff(MODULES[other], MODULES[other].replace(good, bad), path=other)
    fix = diff(buggy, right, path=module)
    elsewhere = "\n".join(
        f" other{line}" if line[:1] == " " and line.strip() else line for line in fix.split("\n")
    )
    unparsed = diff(buggy, right + "\n\ndef broken(:\n", path=module)
    found = [
        (fix, Truth("right", fixes=True)),
        (f"The bug is in {module}.\n\n```diff\n{diff(buggy, right, context=1, path=module)}```\n", Truth("right, other form", fixes=True)),
        (json.dumps({"files": {module: right}}), Truth("right, as a file", fixes=True)),
        (diff(buggy, wrong, path=module), Truth("wrong")),
        (diff(buggy, buggy + "\n\ndef unused():\n    return None\n", path=module), Truth("beside the point")),
        (fix + breaking, Truth("fixes and breaks", fixes=True, breaks=True)),
        (breaking, Truth("breaks", breaks=True)),
        (elsewhere, Truth("does not apply", applies=False)),
        (unparsed, Truth("does not parse", parses=False)),
    ]  # fmt: skip
    rng.shuffle(found)
    return found


def case_row(number, folder, *, count=None):
    """A case about one bug with its repository written to a folder, and the truth of each candidate."""
    rng = Random(number)
    bug = number % len(BUGS)
    name = f"shop-{number}"
    write_repository(folder / name, files_with(bug))
    found = patches_for(bug, rng)[:count]
    row = {
        "id": name,
        "domain": "patch",
        "problem": f"The test {BUGS[bug][4]} fails. Repair the code.",
        "repository": name,
        "test_command": TEST_COMMAND,
        "candidates": [{"text": text, "correct": truth.right} for text, truth in found],
    }
    return row, [truth for _, truth in found]
