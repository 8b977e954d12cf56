"""Patches as a judge sees them, and which of them are equal."""

import json
import re

import pytest

from caps import Candidate, Found
from caps_agents.patches import (
    PARTIAL_CHARACTERS,
    changes_of,
    patch_full,
    patch_signature,
    patch_summary,
    read_patch,
)
from small_repositories import MODULES, diff

BEFORE = MODULES["shop/stock.py"]
AFTER = BEFORE.replace("        return count\n", "        return int(count)\n")
PATCH = diff(BEFORE, AFTER, path="shop/stock.py")


def signature(text):
    return patch_signature(Candidate(text))


SAME = {
    "other line numbers": PATCH.replace("@@ -1", "@@ -4"),
    "less context": diff(BEFORE, AFTER, context=1, path="shop/stock.py"),
    "a heading": PATCH.replace(" @@\n", " @@ class Stock:\n"),
    "trailing spaces": PATCH.replace("+        return int(count)\n", "+        return int(count)  \n"),
    "line ends of Windows": PATCH.replace("\n", "\r\n"),
    "no header of git": PATCH.partition("\n")[2],
    "no prefixes": PATCH.partition("\n")[2].replace("a/shop", "shop").replace("b/shop", "shop"),
    "a fenced block": f"I return a number.\n\n```diff\n{PATCH}```\n\nDone.",
    "an open block": f"```diff\n{PATCH}",
    "thoughts": f"<think>\n{PATCH.replace('int', 'float')}\n</think>\n{PATCH}",
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_equal_patches_are_one_answer_whatever_their_form(text):
    assert signature(text) == signature(PATCH)


DIFFERENT = {
    "another line": PATCH.replace("int(count)", "float(count)"),
    "another file": PATCH.replace("stock.py", "prices.py"),
    "another place": diff(BEFORE, BEFORE.replace("count=1):\n        self", "count=1):\n        return int(count)\n        self"), path="shop/stock.py"),
    "another indentation": PATCH.replace("+        return", "+    return"),
    "more": PATCH + diff("a\n", "b\n", path="x"),
}  # fmt: skip


@pytest.mark.parametrize("text", DIFFERENT.values(), ids=DIFFERENT)
def test_different_patches_are_different_answers(text):
    assert signature(text) not in (None, signature(PATCH))


def test_what_is_no_patch_has_no_signature():
    for text in ("", "--- a rule\n+++ another", "```python\nprint(1)\n```", '{"files": 3}'):
        assert signature(text) is None


def test_a_partial_view_has_files_sizes_headers_and_changed_lines_only():
    renamed = "diff --git a/old.py b/new.py\nsimilarity index 100%\nrename from old.py\nrename to new.py\n"
    view = patch_summary(Candidate(PATCH + renamed))
    assert view.startswith(
        "2 files, 1 hunks, +1 -1 lines\nshop/stock.py: changed, +1 -1\nnew.py: renamed from old.py, +0 -0\n"
    )
    assert "-        return count\n+        return int(count)" in view
    assert "raise ValueError" not in view
    assert len(patch_summary(Candidate(diff("", "x = 1\n" * 10_000, path="x.py")))) < PARTIAL_CHARACTERS + 100


def test_files_and_context_are_shown_as_they_are():
    files = [{"path": "x.py", "content": "x = 1\n"}, {"path": "y.py", "content": None}]
    written = Candidate(json.dumps({"files": files}))
    assert patch_full(written) == "=== x.py\nx = 1\n\n=== y.py\n(deleted)"
    tried = Candidate(f"Why.\n{PATCH}", found=Found(context="diff of all"))
    assert patch_full(tried) == "Why.\n\ndiff of all"
    assert patch_full(Candidate("no patch")) == "no patch"


def test_hunks_that_are_miscounted_are_read_to_their_end():
    miscounted = re.sub(r"@@ -.* @@", "@@ -1,1 +1,1 @@", PATCH)
    (change,) = changes_of(read_patch(Candidate(miscounted)))
    assert (change.added, change.removed) == (1, 1)
