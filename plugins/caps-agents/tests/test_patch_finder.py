import asyncio
import json
import subprocess
import tarfile
from dataclasses import replace
from random import Random

import pytest

import caps
from caps import Candidate, InputError, UserError
from caps.datasets.case_files import parse_row
from caps.sandbox import JobResult
from caps_agents import PATCH, patches_in
from caps_agents.domains import VARIABLE
from caps_agents.patch_finder import PatchFinder, read_tests
from caps_agents.patches import patch_full, patch_summary
from caps_agents.repositories import copy_repository, digest_of, locate
from small_repositories import (
    BUGS,
    MODULES,
    TEST_COMMAND,
    case_row,
    diff,
    files_with,
    patches_for,
    write_repository,
)
from support.closing import closing
from support.sandboxing import needs_bubblewrap


def case_of(row):
    return parse_row({"problem": "p", "domain": "patch", **row}, default_id="1")


def look(root, row):
    async def play():
        async with closing(PatchFinder("auto", str(root))) as finder:
            return await finder.find(case_of(row))

    return asyncio.run(play())


@needs_bubblewrap
def test_what_a_patch_does_is_found_whatever_its_form(tmp_path):
    row, truths = case_row(3, tmp_path)
    findings = list(zip(look(tmp_path, row), truths, strict=True))
    for finding, truth in findings:
        runs = truth.applies and truth.parses
        assert finding.parses == runs, truth
        assert (finding.passed == finding.examples) == truth.right, truth
        assert ("does not apply" in finding.note) == (not truth.applies), finding.note
        assert finding.note.startswith("fixes 1 of 1") == (truth.fixes and runs), finding.note
        assert ("breaks 0" in finding.note or not finding.parses) == (not truth.breaks), finding.note
    assert len({finding.cluster for finding, truth in findings if truth.right}) == 1
    assert not list(tmp_path.glob("**/__pycache__")), "the repository itself is left alone"
    assert (tmp_path / "shop-3" / BUGS[3][0]).read_text() == files_with(3)[BUGS[3][0]]


@needs_bubblewrap
def test_a_patch_that_rewrites_the_tests_gains_nothing_and_is_marked(tmp_path):
    row, _ = case_row(0, tmp_path, count=1)
    tests = (tmp_path / "shop-0/tests/test_prices.py").read_text()
    cheated = tests.replace("total([1, 2, 3]), 6", "1, 1").replace("total([]), 0", "1, 1")
    cheating = diff(tests, cheated, path="tests/test_prices.py")
    conftest = "diff --git a/tests/__init__.py b/tests/__init__.py\n--- a/tests/__init__.py\n+++ b/tests/__init__.py\n@@ -0,0 +1 @@\n+import shop.prices; shop.prices.total = sum\n"
    for finding in look(tmp_path, {**row, "candidates": [cheating, conftest]}):
        assert finding.note.startswith("fixes 0 of 1"), finding.note
        assert "changes files of tests" in finding.note


@needs_bubblewrap
def test_a_full_view_has_the_lines_around_a_change(tmp_path):
    row, _ = case_row(1, tmp_path)
    module = BUGS[1][0]
    short = diff(files_with(1)[module], MODULES[module], context=0, path=module)
    (finding,) = look(tmp_path, {**row, "candidates": [short]})
    candidate = Candidate(short, found=finding)
    assert "def cheapest(prices)" not in short
    assert "def cheapest(prices)" in patch_full(candidate)
    assert "def cheapest(prices)" not in patch_summary(candidate)


@needs_bubblewrap
def test_findings_are_kept_for_these_files_of_a_repository_only(tmp_path):
    row, truths = case_row(2, tmp_path / "repositories")
    looked_at = []

    class CountingFinder(PatchFinder):
        async def find(self, case, until=None):
            looked_at.append(case.id)
            return await super().find(case, until)

    def counting(resources):
        return CountingFinder(resources.sandbox, str(tmp_path / "repositories"))

    caps.register_domain(replace(patches_in(str(tmp_path / "repositories")), finder=counting))
    try:
        for changed, times in ((False, 1), (False, 1), (True, 2)):
            if changed:
                (tmp_path / "repositories/shop-2/shop/new.py").write_text("")
            result = caps.select_sync(row, strategy="tests-first", journal=str(tmp_path / "journal.db"))
            assert truths[result.winner].right
            assert len(looked_at) == times
    finally:
        caps.register_domain(PATCH)


@needs_bubblewrap
def test_a_commit_and_an_archive_are_repositories_too(tmp_path):
    files = files_with(4)
    write_repository(tmp_path / "git", files)
    options = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    for command in ("init -q", "add .", "commit -q -m first", "rev-parse HEAD"):
        words = ["git", *options, *command.split()]
        done = subprocess.run(words, check=True, capture_output=True, text=True, cwd=tmp_path / "git")
    commit = done.stdout.strip()
    (tmp_path / "git/shop/stock.py").write_text("later = True\n")
    with tarfile.open(tmp_path / "shop.tar.gz", "w:gz") as archive:
        write_repository(tmp_path / "plain", files)
        archive.add(tmp_path / "plain", "shop-1.0")
    good = next(patch for patch, truth in patches_for(4, Random(4)) if truth.right)
    for place in ({"repository": "git", "commit": commit}, {"repository": "shop.tar.gz"}):
        (finding,) = look(tmp_path, {"candidates": [good], "test_command": TEST_COMMAND, **place})
        assert finding.note == "fixes 1 of 1 failing tests; breaks 0 of 11 passing tests", place


def test_a_repository_is_inside_the_folder_that_was_allowed(tmp_path, monkeypatch):
    (tmp_path / "allowed").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "allowed/link").symlink_to(tmp_path / "secret")
    for name in ("../secret", str(tmp_path / "secret"), "link", "", 3, "a\0b", "missing"):
        with pytest.raises(InputError, match="repository: "):
            locate(str(tmp_path / "allowed"), name)
    row = {"problem": "p", "candidates": ["x"], "domain": "patch", "repository": "../secret"}
    monkeypatch.setenv(VARIABLE, str(tmp_path / "allowed"))
    with pytest.raises(caps.CapsError, match=r"case '1': repository: '\.\./secret' is outside"):
        caps.select_sync(row, strategy="tests-first", journal=None)


def test_without_permission_nothing_is_read_and_the_variable_is_named():
    case = case_of({"candidates": ["x"], "repository": "here"})
    with pytest.raises(UserError, match="CAPS_REPOSITORIES=DIR"):
        asyncio.run(PatchFinder("auto", None).find(case))
    assert asyncio.run(PatchFinder("auto", None).find(replace(case, extra={}))) == ()


def test_a_digest_of_files_changes_with_them_and_not_with_git(tmp_path):
    write_repository(tmp_path / "a", {"x.py": "1\n", ".git/config": "2\n"})
    case = case_of({"candidates": ["x"], "repository": "a"})
    first = digest_of(str(tmp_path), case)
    (tmp_path / "a/.git/config").write_text("3\n")
    assert digest_of(str(tmp_path), case) == first
    (tmp_path / "a/x.py").write_text("2\n")
    assert digest_of(str(tmp_path), case) != first
    assert copy_repository(str(tmp_path), case, tmp_path / "copy") == 2
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["x.py"]


RUNNERS = {
    "unittest": ("test_a (t.T.test_a) ... ok\ntest_b (t.T.test_b) ... FAIL\ntest_c (t.T.test_c) ... skipped 'x'\n", {"test_a (t.T.test_a)"}, {"test_b (t.T.test_b)"}),
    "pytest -v": ("t.py::test_a PASSED   [ 50%]\nt.py::test_b[x y] FAILED [100%]\n", {"t.py::test_a"}, {"t.py::test_b[x y]"}),
    "pytest -rA": ("PASSED t.py::test_a\nFAILED t.py::test_b - assert 0\n", {"t.py::test_a"}, {"t.py::test_b"}),
    "go": ("--- PASS: TestA (0.00s)\n    --- FAIL: TestB/x (0.00s)\n", {"TestA"}, {"TestB/x"}),
    "cargo": ("test a::b ... ok\ntest a::c ... FAILED\n", {"a::b"}, {"a::c"}),
    "tap": ("1..2\nok 1 - adds\nnot ok 2 - takes # TODO\n", {"adds"}, {"takes"}),
    "twice": ("test a ... ok\ntest a ... FAILED\n", set(), {"a"}),
    "nothing": ("hello\n", {"the test command"}, set()),
}  # fmt: skip


@pytest.mark.parametrize(("printed", "passed", "failed"), RUNNERS.values(), ids=RUNNERS)
def test_the_results_of_test_runners_are_read(printed, passed, failed):
    ran = read_tests(JobResult("ok", 0, printed.encode(), b"", 1.0))
    assert (ran.passed, ran.failed) == (passed, failed)


@needs_bubblewrap
def test_a_case_that_names_what_cannot_be_used_says_which_field(tmp_path):
    write_repository(tmp_path / "a", {"x.py": ""})
    wrong = {"commit": "main; rm", "test_command": ["x"], "test_seconds": 0, "environment": "../x"}
    for field, value in wrong.items():
        with pytest.raises((InputError, UserError), match=field):
            look(tmp_path, {"candidates": ["x"], "repository": "a", field: value})


def test_lists_of_files_may_be_candidates_of_a_case():
    case = case_of({"candidates": [{"files": {"a.py": "x\n"}}]})
    assert json.loads(case.candidates[0].text) == {"files": {"a.py": "x\n"}}


@needs_bubblewrap
def test_patches_that_fail_are_left_out_even_where_the_judge_prefers_them(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    row, truths = case_row(6, tmp_path)

    def misled(problem, a, b):
        """Prefer the shorter patch, which is never the one in a list of files."""
        return "A" if len(a) < len(b) else "B"

    for strategy, more in (("tests-first", {}), ("caps-r", {"skip_failing": True}), ("posterior", {})):
        best = caps.select_sync(row, strategy=strategy, judge=misled, journal=None, **more)
        assert truths[best.winner].right, strategy
