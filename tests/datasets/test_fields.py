"""Files under other names than ours: what is understood, what is asked back, and what is said."""

import csv
import gzip
import importlib.util
import json
from pathlib import Path

import pytest

from caps.core.errors import InputError, SettingError
from caps.core.types import Case
from caps.datasets.imports import count_cases, open_cases

ROOT = Path(__file__).parents[2]
CHAT = [{"role": "user", "content": "2+2?"}]


def written(folder, name, *rows):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def table(folder, name, *rows, delimiter=","):
    with (folder / name).open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return str(folder / name)


def understood(path, fields="", *, bare=False):
    """The cases as (id, problem, texts), and what was said of the fields."""
    said = []
    cases = list(open_cases(path, fields=fields, bare=bare, say=said.append))
    assert all(isinstance(case, Case) for case in cases), cases
    found = [(case.id, case.problem.text, [one.text for one in case.candidates]) for case in cases]
    return found, " ".join(said).removeprefix(f"{path}: ")


@pytest.mark.parametrize("problem", ["prompt", "question", "instruction", "query", "input"])
@pytest.mark.parametrize(
    "candidates", ["responses", "completions", "outputs", "generations", "answers", "samples"]
)
def test_common_names_are_read_as_they_are(tmp_path, problem, candidates):
    path = written(tmp_path, "c.jsonl", {problem: "2+2?", candidates: ["4", "5"]})
    assert understood(path) == (
        [("1", "2+2?", ["4", "5"])],
        f"problem from {problem}, candidates from {candidates}",
    )


@pytest.mark.parametrize(
    ("row", "fields", "case"),
    [
        ({"task_id": "t", "prompt": "2+2?", "outputs": ["4"]}, "", ("t", "2+2?", ["4"])),
        ({"messages": CHAT, "choices": [{"index": 0, "message": {"role": "assistant", "content": "4"}}]}, "",
         ("1", "2+2?", ["4"])),
        ({"prompt": "2+2?", "choices": [{"text": "4"}, {"text": "5"}]}, "", ("1", "2+2?", ["4", "5"])),
        ({"request": {"messages": CHAT}, "response": {"choices": [{"message": {"content": "4"}}]}}, "",
         ("1", "2+2?", ["4"])),
        ({"question": "2+2?", "generations": [{"generated_text": "4"}, {"output": "5"}]}, "",
         ("1", "2+2?", ["4", "5"])),
        ({"prompt": "2+2?", "question": "2+2?", "outputs": ["4"]}, "", ("1", "2+2?", ["4"])),
        ({"prompt": "2+2?", "response_1": "4", "response_2": "5", "response_10": "6"}, "",
         ("1", "2+2?", ["4", "5", "6"])),
        ({"a": "2+2?", "b": ["4"]}, "problem=a,candidates=b", ("1", "2+2?", ["4"])),
        ({"instruction": "Add.", "input": "2+2", "outputs": ["4"]}, "problem=instruction+input",
         ("1", "Add.\n\n2+2", ["4"])),
        ({"key": "k", "q": {"text": "2+2?"}, "outputs": [{"body": "4"}]},
         "id=key,problem=q.text,candidates.text=body", ("k", "2+2?", ["4"])),
        ({"problem": "2+2?", "outputs": ["4"], "domain": "math"}, "", ("1", "2+2?", ["4"])),
        ({"id": 7, "prompt": "2+2?", "left": "4", "right": "5"}, "candidates=left+right", ("7", "2+2?", ["4", "5"])),
    ],
)  # fmt: skip
def test_a_row_becomes_a_case(tmp_path, row, fields, case):
    assert understood(written(tmp_path, "c.jsonl", row), fields)[0] == [case]


@pytest.mark.parametrize(
    ("row", "fields", "said"),
    [
        ({"prompt": "a", "question": "b", "outputs": ["4"]}, "",
         "`prompt` and `question` may each hold the problem: say which, --map problem=prompt or --map "
         "problem=question, or --map problem=prompt+question for both"),
        ({"prompt": "a", "outputs": ["4"], "answers": ["5"]}, "",
         "`outputs` and `answers` may each hold the candidates: say which, --map candidates=outputs or --map "
         "candidates=answers"),
        ({"prompt": "a", "respones": ["4"]}, "", "did you mean --map candidates=respones?"),
        ({"promt": "a", "outputs": ["4"]}, "", "did you mean --map problem=promt?"),
        ({"question": "a", "answer": "4"}, "", "if each row holds one candidate: --map candidate=answer"),
        ({"x": 1, "y": 2}, "", "no field holds the problem: name it with --map problem=FIELD; the fields are x, y"),
        ({"prompt": "a", "outputs": ["4"]}, "candidates=output", "there is no field 'output': did you mean 'outputs'?"),
        ({"prompt": "a", "response": "4", "completion": "5"}, "", "say which, --map candidate=response or"),
        ({}, "", "it has no fields"),
    ],
)  # fmt: skip
def test_a_file_with_two_readings_or_none_is_refused_with_the_way_out(tmp_path, row, fields, said):
    path = written(tmp_path, "c.jsonl", row)
    with pytest.raises(InputError) as caught:
        list(open_cases(path, fields=fields))
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "a"}, "outputs: is missing; it holds the candidates"),
        ({"outputs": ["4"]}, "prompt: missing or empty; it holds the problem"),
        ({"prompt": "a", "outputs": "4"}, "outputs: must be a list of candidates, not a text"),
        ({"prompt": "a", "outputs": [3]}, r"candidates\[0\]: must be a text or an object with a text, not a number"),
        ({"prompt": "a", "outputs": []}, "candidates: is empty"),
        (["a list"], "must be an object, not a list"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_named_and_the_others_go_on(tmp_path, row, said):
    good = {"prompt": "2+2?", "outputs": ["4"]}
    path = written(tmp_path, "c.jsonl", good, row, good | {"prompt": "3+3?"})
    first, wrong, last = open_cases(path)
    assert (first.problem.text, last.problem.text) == ("2+2?", "3+3?")
    with pytest.raises(InputError, match=f"c.jsonl:2: {said}"):
        raise wrong


@pytest.mark.parametrize(
    "words", ["problem", "problem=", "solution=x", "candidate=a,candidates=b", "candidates.a.b=c"]
)
def test_a_map_that_cannot_be_read_is_refused(words):
    with pytest.raises(SettingError, match="--map"):
        open_cases("nowhere", fields=words)


def test_rows_of_one_candidate_are_grouped_by_an_id_or_by_their_problem(tmp_path):
    rows = [
        {"id": i, "question": q, "response": r, "score": s, "correct": r == "4", "answer": "4"}
        for i, (q, r, s) in enumerate([("2+2?", "4", 0.5), ("1+3?", "5", 1), ("2+2?", "5", 0)])
    ]
    path = written(tmp_path, "rows.jsonl", *rows)
    first, second = open_cases(path)
    assert [one.text for one in first.candidates] == ["4", "5"]
    assert [(one.score, one.correct) for one in first.candidates] == [(0.5, True), (0, False)]
    assert first.extra == {"answer": "4"}
    assert (first.id, second.id) == ("1", "2")  # the number of their first rows, since `id` names rows
    assert count_cases(path) is None

    named = written(tmp_path, "named.jsonl", *({**row, "task_id": row["question"][0]} for row in rows))
    assert [case.id for case in open_cases(named)] == ["2", "1"]


def test_rows_of_one_group_with_different_problems_are_named(tmp_path):
    rows = [{"task_id": 1, "prompt": p, "response": "4"} for p in ("2+2?", "3+3?", "2+2?")]
    wrong, case = open_cases(written(tmp_path, "rows.jsonl", *rows))
    assert "rows.jsonl:2: task_id: rows of the same value have different problems" in str(wrong)
    assert len(case.candidates) == 2


@pytest.mark.parametrize(("name", "delimiter"), [("c.csv", ","), ("c.tsv", "\t"), ("semicolons.csv", ";")])
def test_tables_are_read(tmp_path, name, delimiter):
    rows = [("prompt", "outputs", "answer"), ("2+2?\nthink", '["4", "5"]', "4")]
    path = table(tmp_path, name, *rows, delimiter=delimiter)
    (case,) = open_cases(path)
    assert (case.problem.text, [one.text for one in case.candidates]) == ("2+2?\nthink", ["4", "5"])
    assert case.extra == {"answer": "4"}


def test_a_table_of_samples_has_numbers_and_truths(tmp_path):
    rows = [
        ("question", "response", "correct", "score"),
        ("2+2?", "4", "TRUE", "0.5"),
        ("2+2?", "5", "no", ""),
    ]
    (case,) = open_cases(table(tmp_path, "c.csv", *rows))
    assert [(one.correct, one.score) for one in case.candidates] == [(True, 0.5), (False, None)]
    (wrong, _) = open_cases(table(tmp_path, "d.csv", rows[0], ("2+2?", "4", "perhaps", "1"), rows[1]))
    assert "d.csv:2: correct: must be true or false, not 'perhaps'" in str(wrong)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"prompt,outputs\na,b,c\n", "c.csv:2: has 3 cells, but the header 2"),
        (b"prompt,prompt\na,b\n", "two columns have the same name"),
        (b"prompt,outputs\n", "has no rows"),
        (b"prompt,outputs\n\xff,b\n", "c.csv:2: is not UTF-8"),
        (b'prompt,outputs\n"a,b\n', "cannot be read as a table"),
    ],
)
def test_a_table_that_cannot_be_read_says_where(tmp_path, content, said):
    (tmp_path / "c.csv").write_bytes(content)
    with pytest.raises(InputError, match=said):
        list(open_cases(str(tmp_path / "c.csv")))


def test_lists_single_objects_and_folders_are_read(tmp_path):
    row = {"prompt": "2+2?", "outputs": ["4"]}
    (tmp_path / "a.json").write_text(json.dumps([row, row], indent=1))
    (tmp_path / "b.json").write_text(json.dumps(row, indent=1))
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(json.dumps({**row, "id": "own"}).encode()))
    (tmp_path / "notes.md").write_text("not read")
    assert [case[0] for case in understood(str(tmp_path / "a.json"))[0]] == ["1", "2"]
    assert [case[0] for case in understood(str(tmp_path / "b.json"))[0]] == ["1"]
    assert [case[0] for case in understood(str(tmp_path))[0]] == ["a-1", "a-2", "b-1", "own"]
    lines = tmp_path / "lines"
    lines.mkdir()
    written(lines, "x.jsonl", row, row)
    written(lines, "y.jsonl", row)
    assert [case[0] for case in understood(str(lines))[0]] == ["1", "2", "3"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"holds no file that ends in .jsonl"):
        list(open_cases(str(tmp_path / "empty")))


def test_plain_text_holds_problems(tmp_path):
    (tmp_path / "p.txt").write_text("2+2?\n\n3+3?\n")
    path = str(tmp_path / "p.txt")
    assert understood(path, bare=True) == ([("1", "2+2?", []), ("3", "3+3?", [])], "a problem per line")
    with pytest.raises(InputError, match="plain text holds problems, not candidates: caps sample reads it"):
        list(open_cases(path))


def test_our_own_files_are_read_without_a_word(tmp_path):
    path = written(tmp_path, "c.jsonl", {"problem": "2+2?", "candidates": ["4"], "prompt": "other"})
    assert understood(path) == ([("1", "2+2?", ["4"])], "")


def test_the_page_of_odd_files_is_what_the_program_says():
    spec = importlib.util.spec_from_file_location("odd_files", ROOT / "scripts" / "odd_files.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert len(script.FILES) == 50
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run make docs"
