"""Patches and repositories that try to change or read something outside the copy they are applied to."""

import asyncio
import json
import socket
from random import Random

import pytest

from caps import Candidate, Case, Problem
from caps_agents.patch_finder import PatchFinder
from caps_agents.patches import patch_full, patch_signature, patch_summary
from caps_agents.repositories import copy_repository
from small_repositories import TEST_COMMAND, files_with, patches_for, write_repository
from support.closing import closing
from support.sandboxing import needs_bubblewrap

pytestmark = needs_bubblewrap


def new_file(path, text="owned\n", mode="100644"):
    lines = text.splitlines()
    body = "".join(f"+{line}\n" for line in lines)
    end = "" if text.endswith("\n") else "\\ No newline at end of file\n"
    return f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n{body}{end}"


HOSTILE = {
    "a path above": new_file("../../owned.txt"),
    "a path above in a list": json.dumps({"files": {"../owned.txt": "owned"}}),
    "an absolute path": new_file("/tmp/owned.txt").replace("b//tmp", "/tmp"),
    "an absolute path in a list": json.dumps({"files": {"{root}/owned.txt": "owned"}}),
    "a link and a file behind it": new_file("out", "{root}", "120000") + new_file("out/owned.txt"),
    "a link and a file of a list behind it": json.dumps({"files": {"link/owned.txt": "owned"}}),
    "a hook of git": new_file(".git/hooks/post-checkout", "#!/bin/sh\ntouch {root}/owned.txt\n", "100755"),
    "a hook of git in a list": json.dumps({"files": {".git/hooks/pre-commit": "owned"}}),
    "the settings of git": new_file(".git/config", "[core]\n\tfsmonitor = touch {root}/owned.txt\n"),
    "a submodule": "diff --git a/sub b/sub\nnew file mode 160000\nindex 0000000..1234567\n--- /dev/null\n+++ b/sub\n"
    "@@ -0,0 +1 @@\n+Subproject commit 1234567890123456789012345678901234567890\n",
    "a submodule's settings": new_file(".gitmodules", '[submodule "x"]\n\tpath = x\n\turl = {root}\n\tupdate = !touch {root}/owned.txt\n'),
    "a binary patch": "diff --git a/x.bin b/x.bin\nnew file mode 100644\nindex 0000000..e69de29\nGIT binary patch\nliteral 9999999999\n"
     "zcmV" + "0" * 60 + "\n\nliteral 0\nHcmV?d00001\n\n",
    "a rename out of the tree": "diff --git a/shop/prices.py b/../owned.txt\nsimilarity index 100%\nrename from shop/prices.py\nrename to ../owned.txt\n",
    "a device": new_file("dev", "x", "060644"),
    "a carriage return in a path": new_file("shop/\r../../owned.txt"),
}  # fmt: skip
GOOD = next(patch for patch, truth in patches_for(0, Random(0)) if truth.kind == "right")
TESTS_THAT_REACH_OUT = (
    "import os, socket, unittest\n\n\nclass Reach(unittest.TestCase):\n"
    "    def test_files(self):\n        for place in ('{root}', '/base', '/root', '/etc', '/usr'):\n"
    "            try:\n                open(os.path.join(place, 'owned.txt'), 'w').close()\n            except OSError:\n                pass\n\n"
    "    def test_secret(self):\n        self.assertFalse(os.path.exists('{root}/secret.txt'))\n\n"
    "    def test_network(self):\n        with self.assertRaises(OSError):\n            socket.create_connection(('127.0.0.1', {port}), 1)\n"
)


@pytest.fixture
def place(tmp_path):
    """A repository beside a secret; what is there afterwards is compared with what was there before."""
    write_repository(tmp_path / "repositories/shop", files_with(0))
    (tmp_path / "repositories/shop/link").symlink_to(tmp_path)
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path


def state(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
    }


def find(place, *texts):
    case = Case(
        "1", Problem.of("p"), tuple(Candidate(text) for text in texts), "patch",
        extra={"repository": "shop", "test_command": TEST_COMMAND},
    )  # fmt: skip

    async def play():
        async with closing(PatchFinder("bwrap", str(place / "repositories"))) as finder:
            return await finder.find(case)

    return asyncio.run(play())


def test_no_patch_changes_anything_outside_its_copy(place):
    before = state(place)
    texts = [text.replace("{root}", str(place)) for text in HOSTILE.values()]
    *hostile, last = find(place, *texts, GOOD)
    assert state(place) == before
    assert last.note == "fixes 1 of 1 failing tests; breaks 0 of 11 passing tests", (
        "one does not harm another"
    )
    for name, finding in zip(HOSTILE, hostile, strict=True):
        assert finding.passed < finding.examples, name


def test_tests_of_a_patch_reach_neither_files_nor_the_network(place):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        tests = TESTS_THAT_REACH_OUT.replace("{root}", str(place)).replace("{port}", str(port))
        (place / "repositories/shop/tests/test_reach.py").write_text(tests)
        before = state(place)
        (finding,) = find(place, GOOD)
    assert state(place) == before
    assert finding.note == "fixes 1 of 1 failing tests; breaks 0 of 14 passing tests"


def test_a_patch_of_100_mb_is_refused_quickly_and_a_test_that_writes_without_end_is_stopped(place):
    huge = new_file("big.txt", "x" * 99 + "\n") + "+" + "y" * 100_000_000 + "\n"
    endless = diff_that("import sys\nwhile True: sys.stdout.write('x' * 100000)\n")
    before = state(place)
    found = find(place, huge, endless)
    assert state(place) == before
    assert found[0].note == "does not apply: it is not a patch"
    assert found[1].passed == 0


def diff_that(text):
    """A patch that does something as soon as the package is imported."""
    lines = "".join(f"+{line}\n" for line in text.splitlines())
    return f"diff --git a/shop/__init__.py b/shop/__init__.py\n--- a/shop/__init__.py\n+++ b/shop/__init__.py\n@@ -0,0 +1,{text.count(chr(10))} @@\n{lines}"


def test_views_of_hostile_patches_are_bounded_and_a_copy_follows_no_link(place):
    for text in HOSTILE.values():
        candidate = Candidate(text)
        assert len(patch_summary(candidate)) <= max(len(text), 4_100)
        assert patch_full(candidate) or not text
        assert patch_signature(candidate)
    case = Case("1", Problem.of("p"), (Candidate("x"),), "patch", extra={"repository": "shop"})
    copy_repository(str(place / "repositories"), case, place / "copy")
    assert (place / "copy/link").is_symlink()
    assert not any("secret" in str(path) for path in (place / "copy").rglob("*"))
