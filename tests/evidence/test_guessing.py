"""The domain of cases that state none: one decision about a file, the same at every entry point."""

import json
import logging

import pytest

import caps
from caps.core.types import Candidate, Case, Problem
from caps.datasets.imports import open_cases
from caps.evidence.domains import agree_on_domain, guess_domain
from support.shell import caps as command
from support.shell import caps_json, json_lines

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
    assert (one.domain, one.reason) == ("general", "the case: nothing else fits")


def test_a_single_odd_case_is_judged_like_the_others_of_its_file():
    found = decided(*[PROGRAM] * 6, DIFF, *[PROGRAM] * 6)
    assert {one.domain for one in found} == {"code"}
    assert {one.reason for one in found} == {"12 of the first 13 cases: most candidates contain code"}


def test_in_a_mixed_file_each_case_has_its_own_domain_and_the_reason_says_so():
    found = decided(BOXED, PROGRAM, DIFF)
    assert [one.domain for one in found] == ["math", "code", "general"]
    assert found[0].reason == "each case by itself, since the first 3 differ: math 1, code 1, general 1"


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
        for number, text in enumerate([*[BOXED] * 10, PROGRAM])
    ]
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert {one.domain for one in open_cases(str(path))} == {"math"}
    done = command("select", path, "--strategy", "majority", "--no-journal")
    assert (
        "guessed domains: math 11 (10 of the first 11 cases: most candidates state or box an answer)"
        in done.stderr
    )
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
        for more in ([], ["--domain", "math"], ["--domain", "general"])
    ]
    assert costs[0] == costs[1] != costs[2]


def solution(answer, number=0, fence="```json"):
    return f'{fence}\n{{"reasoning": "Way {number}.", "answer": "{answer}"}}\n```'


def guessed(row, *texts):
    return guess_domain(row, tuple(map(Candidate, texts)))


def test_the_label_of_a_fence_tells_programs_from_data_and_text():
    for fence in ("```json", "```JSON", "~~~json", "```jsonc", "```", "Here it is:\n```json"):
        for value in ('{"total": 12}', '[{"total": 12}, {"total": 3}]'):
            text = f"{fence}\n{value}\n```"
            assert (fence, guessed({}, text, text)) == (fence, "general")
    for label in ("yaml", "xml", "csv", "text", "markdown", "latex", "toml"):
        assert (label, guessed({}, f"```{label}\na: 1\n```")) == (label, "general")
    for label in ("python", "py", "cpp", "", "sql", "Java"):
        assert (label, guessed({}, f"```{label}\nprint(1)\n```")) == (label, "code")


@pytest.mark.parametrize("answer", ["36", 36, "x = 3", r"\frac{1}{2}", "25 apples", ["36", 36.0]])
@pytest.mark.parametrize("text", [PROGRAM.format(36), "It must be 36.", solution("36")])
def test_a_known_value_without_tests_makes_a_case_of_values_and_not_of_code(answer, text):
    assert guessed({"answer": answer}, text, text) == "math"
    assert guessed({"answer": answer, "tests": "assert f(1) == 36"}, PROGRAM) == "code"


def test_a_known_answer_in_words_is_compared_where_candidates_announce_theirs():
    assert guessed({"answer": "Paris"}, "The answer is Paris.", solution("Paris")) == "math"
    assert guessed({"answer": "Paris"}, "Paris, which is on the Seine.", "It should be Paris.") == "general"
    assert guessed({"answer": {"city": "Paris"}}, '{"city": "Paris"}') == "general"


def test_answers_in_json_fences_are_grouped_and_graded_by_their_answer(tmp_path):
    answers = ["36"] * 9 + ["35"] * 4 + ["72/2"] * 3
    texts = [solution(answer, number) for number, answer in enumerate(answers)]
    row = {"id": "1", "problem": "What is 6 * 6?", "answer": "36", "candidates": texts}
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(row))
    (line,) = json_lines(command("select", path, "--strategy", "majority", "--no-journal", "--json"))
    assert (line["clusters"], line["winner"] in range(9)) == (2, True)
    done = command("grade", path, "--no-journal")
    (graded,) = json_lines(done)
    assert [one["correct"] for one in graded["candidates"]] == [answer != "35" for answer in answers]
    unlabelled = {name: value for name, value in row.items() if name != "answer"}
    assert guessed(unlabelled, *texts) == "math"


def test_json_and_stated_answers_are_graded_and_prose_stays_undecided(tmp_path):
    rows = [
        {
            "problem": "Extract the total and the day.",
            "answer": {"total": 12, "day": 3},
            "candidates": ['```json\n{"day": 3, "total": 12.0}\n```', '{"total": 21, "day": 3}', "No idea."],
        },
        {
            "problem": "What is the capital of France?",
            "answer": "Paris",
            "candidates": [
                "Paris",
                "It is Paris, I think.",
                "London is the capital.",
                "The answer is London.",
            ],
        },
    ]
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    graded = [
        [candidate["correct"] if isinstance(candidate, dict) else None for candidate in line["candidates"]]
        for line in json_lines(command("grade", path, "--no-journal"))
    ]
    assert graded == [[True, False, False], [True, None, None, False]]


def test_python_logs_the_guess_once_and_a_stated_domain_not_at_all(caplog):
    caplog.set_level(logging.INFO, logger="caps")
    rows = [{"problem": "p", "candidates": [BOXED.format(1), BOXED.format(2)]}] * 3
    caps.select_many_sync(rows, strategy="majority", journal=None)
    caps.best_sync("p", [PROGRAM, PROGRAM], strategy="majority", journal=None)
    lines = [record.getMessage() for record in caplog.records if record.name == "caps"]
    assert [line.partition(";")[0] for line in lines if line.startswith("guessed")] == [
        "guessed the domain math (3 of the first 3 cases: most candidates state or box an answer)",
        "guessed the domain code (the case: most candidates contain code)",
    ]
    caplog.clear()
    caps.best_sync("p", [PROGRAM, PROGRAM], domain="general", strategy="majority", journal=None)
    caps.select_sync({**rows[0], "domain": "math"}, strategy="majority", journal=None)
    assert not [record for record in caplog.records if "guessed" in record.getMessage()]
