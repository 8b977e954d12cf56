"""The domain of cases that state none: one decision about a file, the same at every entry point."""

import json

import caps
from caps.core.types import Candidate, Case, Problem
from caps.datasets.imports import open_cases
from caps.evidence.domains import agree_on_domain, guess_domain
from shell import caps as command
from shell import caps_json, json_lines

DIFF = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a = {0}\n+a = {0} + 1\n"
PROGRAM = "```python\nprint({0})\n```"
BOXED = "It is \\boxed{{{0}}}."


def case(number, text):
    candidates = tuple(Candidate(text.format(f"{number}{which}")) for which in (1, 2))
    return Case(str(number), Problem.of("p"), candidates, guess_domain({}, candidates), guessed=True)


def decided(*texts):
    return list(agree_on_domain(case(number, text) for number, text in enumerate(texts)))


def test_diffs_in_fences_are_not_taken_for_code():
    (one,) = decided(f"I changed it:\n```diff\n{DIFF}```")
    assert (one.domain, one.reason) == ("patch", "the case: most candidates are diffs")


def test_a_single_odd_case_is_judged_like_the_others_of_its_file():
    found = decided(*[DIFF] * 6, PROGRAM, *[DIFF] * 6)
    assert {one.domain for one in found} == {"patch"}
    assert {one.reason for one in found} == {"12 of the first 13 cases: most candidates are diffs"}


def test_in_a_mixed_file_each_case_has_its_own_domain_and_the_reason_says_so():
    found = decided(BOXED, PROGRAM, DIFF)
    assert [one.domain for one in found] == ["math", "code", "patch"]
    assert found[0].reason == "each case by itself, since the first 3 differ: math 1, code 1, patch 1"


def test_a_stated_domain_is_left_alone_and_waits_for_nothing():
    stated = Case.of("p", ["x"], domain="math")

    def endless():
        yield stated
        raise AssertionError("read ahead")

    assert next(agree_on_domain(endless())) == stated


def test_all_entry_points_guess_alike(tmp_path):
    rows = [
        {
            "id": str(number),
            "problem": "p",
            "candidates": [text.format(f"{number}{which}") for which in (1, 2)],
        }
        for number, text in enumerate([*[DIFF] * 10, PROGRAM])
    ]
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert {one.domain for one in open_cases(str(path))} == {"patch"}
    done = command("select", path, "--strategy", "majority", "--no-journal")
    assert "guessed domains: patch 11 (10 of the first 11 cases: most candidates are diffs)" in done.stderr
    chosen = [
        line["text"]
        for line in json_lines(command("select", path, "--strategy", "majority", "--no-journal", "--json"))
    ]
    many = caps.select_many_sync(rows, strategy="majority", journal=None)
    assert [one.text for one in many] == chosen
    overridden = command("select", path, "--strategy", "majority", "--no-journal", "--domain", "general")
    assert "guessed" not in overridden.stderr
    costs = [
        caps_json("plan", path, "--strategy", "v1-infer", *more)[0]["tokens"]["mean"]
        for more in ([], ["--domain", "patch"], ["--domain", "general"])
    ]
    assert costs[0] == costs[1] != costs[2]
