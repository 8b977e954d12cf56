"""Files that pandas writes."""

import gzip
import json
import pickle

import pandas
import pytest

from caps.core.errors import InputError
from caps.datasets.imports import open_cases
from caps.datasets.reading import decode_list

LABELLED = {"responses": ["It's 1.", 'say "2"\n'], "is_correct": [False, True]}
ROWS = [{"question": f"{n} + 1?", **LABELLED, "ground_truth": n} for n in range(2)]


@pytest.mark.parametrize("arrays", [False, True])
def test_lists_as_pandas_and_arrays_as_numpy_writes_them_into_csv_are_read(tmp_path, arrays):
    frame, path = pandas.DataFrame(ROWS), tmp_path / "lists.csv"
    if arrays:
        frame.to_parquet(tmp_path / "a.parquet")
        frame = pandas.read_parquet(tmp_path / "a.parquet")
    frame.to_csv(path, index=False)
    cases = list(open_cases(str(path)))
    assert [case.id for case in cases] == ["1", "2"]
    assert [[one.text for one in case.candidates] for case in cases] == [ROWS[0]["responses"]] * 2
    assert [[one.correct for one in case.candidates] for case in cases] == [[False, True]] * 2
    assert [str(case.extra["answer"]) for case in cases] == ["0", "1"]


def test_lists_of_objects_in_csv_are_explained(tmp_path):
    table = pandas.DataFrame([{"question": "?", "responses": [{"text": "a"}, {"text": "b"}]}])
    table.to_csv(tmp_path / "objects.csv", index=False)
    (error,) = open_cases(str(tmp_path / "objects.csv"))
    assert (
        "objects.csv:2: responses: is a list, but neither JSON nor a list of texts as pandas writes it"
        in str(error)
    )


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "['a'", "['a', f'b']", "[__import__('os')]", "['a' + 'b']", "[" + " " * 500_000 + "x]", "[1..2]"],
)  # fmt: skip
def test_a_cell_that_is_no_list_of_texts_is_refused_quickly(text):
    with pytest.raises(InputError, match="responses: is a list, but neither JSON nor"):
        decode_list(text, "responses")


@pytest.mark.parametrize("name", ["data.pkl", "data.jsonl", "data.csv", "old.pickle", "data.pkl.gz"])
def test_a_pickle_is_named_as_one_and_never_loaded(tmp_path, name):
    data = pickle.dumps(ROWS, protocol=0 if name == "old.pickle" else 5)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(InputError, match="is a pickle, and reading one can run any code"):
        list(open_cases(str(tmp_path / name)))


def test_ids_of_a_wide_table_start_at_1_and_errors_name_the_line(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("prompt,response_1,response_2\na,b,c\n,b,c\nd,e,f\n")
    first, error, last = open_cases(str(path))
    assert (first.id, last.id) == ("1", "3")
    assert "wide.csv:3: prompt: missing" in str(error)


def test_columns_that_are_left_out_are_said(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("prompt,response,model,level\na,b,x,easy\na,c,y,easy\nd,e,x,hard\n")
    said = []
    first, second = open_cases(str(path), say=said.append)
    assert (first.id, second.id) == ("1", "2")
    assert (first.extra, second.extra) == ({"level": "easy"}, {"level": "hard", "model": "x"})
    assert "left out, since rows of the same problem differ in them: model" in said[1]


def test_labels_under_other_names_are_read_from_json_lines_too(tmp_path):
    path = tmp_path / "cases.jsonl"
    labelled = [{"text": "a", "is_correct": True}, {"text": "b", "is_correct": 0}]
    for row in (
        {"problem": "?", "candidates": ["a", "b"], "is_correct": [True, False], "gold": "a"},
        {"problem": "?", "candidates": labelled, "ground_truth": "a"},
    ):
        path.write_text(json.dumps(row))
        (case,) = open_cases(str(path))
        assert ([one.correct for one in case.candidates], case.extra["answer"]) == ([True, False], "a")
    assert case.extra["ground_truth"] == "a"  # what the file says is written back
    path.write_text(json.dumps({"problem": "?", "candidates": ["a", "b"], "is_correct": [True]}))
    (error,) = open_cases(str(path))
    assert "is_correct: has 1 values for 2 candidates" in str(error)
