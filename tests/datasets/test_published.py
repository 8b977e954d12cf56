"""Published problems, from files written here in the formats they are published in."""

import base64
import gzip
import json
import pickle
import re
import sys
import zlib
from datetime import date

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caps.core.errors import InputError, MissingExtraError
from caps.core.types import Case
from caps.datasets.published import Window
from caps.datasets.reading import read_rows
from caps.registry import DATASETS, resolve

TESTS = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]


def packed(tests):
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def lcb(name, day, **more):
    return {
        "question_title": "Sum", "question_content": f"Add, {name}.", "platform": "atcoder",
        "question_id": name, "contest_id": "abc", "contest_date": f"{day}T00:00:00", "starter_code": "",
        "difficulty": "easy", "public_test_cases": json.dumps(TESTS),
        "private_test_cases": packed(TESTS * 2), "metadata": "{}", **more,
    }  # fmt: skip


def contest(i, **more):
    columns = {"input": ["1\n"], "output": ["2\n"]}
    return {
        "name": f"1575_{i}. Task", "description": "Increment.", "public_tests": columns,
        "private_tests": columns, "generated_tests": {"input": ["5\n"], "output": ["6\n"]},
        "source": 2, "difficulty": 7, "cf_rating": 1800, "time_limit": {"seconds": 2, "nanos": 500000000},
        "memory_limit_bytes": 256000000, "solutions": {"language": [3], "solution": ["print()"]}, **more,
    }  # fmt: skip


def humaneval(i, **more):
    return {
        "task_id": f"HumanEval/{i}", "prompt": "def inc(x):\n", "canonical_solution": "    return x + 1\n",
        "entry_point": "inc", "test": "def check(candidate):\n    assert candidate(1) == 2\n", **more,
    }  # fmt: skip


def humaneval_plus(i):
    row = humaneval(i, base_input=[[1]], plus_input=[[2], [10**12]], atol=0, contract="")
    del row["test"]
    return row


def mbpp(i):
    return {
        "text": "Increment.", "code": "def bump(x):\n  return x+1", "task_id": i, "test_setup_code": "import math",
        "test_list": ["assert bump(1) == 2"], "challenge_test_list": ["assert bump(math.floor(2.5)) == 3"],
    }  # fmt: skip


def sanitized(i):
    return {
        "source_file": "a.ipynb", "task_id": i, "prompt": "Increment.", "code": "def bump(x):\n  return x+1",
        "test_imports": ["import math"], "test_list": ["assert bump(math.floor(1.5)) == 2"],
    }  # fmt: skip


SETS = {
    "livecodebench-v5": [lcb(f"q{i}", "2024-12-01") for i in range(279)],
    "livecodebench-v6": [lcb(f"q{i}", "2025-03-01") for i in range(131)],
    "codecontests": [contest(i) for i in range(165)],
    "aime-2025": [{"question": f"Find {i}.", "answer": str(i)} for i in range(30)],
    "hmmt-feb-2025": [
        {"problem_idx": i, "problem": "?", "answer": "\\frac{1}{2}", "problem_type": ["Algebra"]}
        for i in range(1, 31)
    ],
    "humaneval": [humaneval(i) for i in range(164)],
    "humaneval-plus": [humaneval_plus(i) for i in range(164)],
    "mbpp": [mbpp(i) for i in range(1, 975)],
    "mbpp-sanitized": [sanitized(i) for i in range(427)],
    "math-500": [
        {"problem": "?", "solution": "Well.", "answer": "7", "subject": "Algebra", "level": 3, "unique_id": f"test/{i}.json"}
        for i in range(500)
    ],
    "gsm8k": [{"question": "How many?", "answer": "So.\n#### 1,234"} for _ in range(1319)],
}  # fmt: skip


def write(path, rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode(), 1) if path.name.endswith(".gz") else text.encode())
    return str(path)


def read(name, path, **more):
    return list(resolve(DATASETS, name).read(str(path), **more))


@pytest.mark.parametrize("name", DATASETS.table)
def test_every_dataset_is_read_with_as_many_problems_as_it_is_known_to_have(tmp_path, name):
    found = read(name, write(tmp_path / "data.jsonl", SETS[name]))
    assert [type(one) for one in found] == [Case] * resolve(DATASETS, name).expected
    assert len({one.id for one in found}) == len(found)
    assert all(one.candidates == () and one.problem.text and not one.guessed for one in found)
    truth = "answer" if found[0].domain == "math" else "tests"
    assert all(one.extra[truth] for one in found)


@pytest.mark.parametrize("name", DATASETS.table)
def test_another_count_is_another_version_and_says_what_was_expected(tmp_path, name):
    path = write(tmp_path / "data.jsonl", SETS[name][:-500] or SETS[name][:-1])
    with pytest.raises(InputError, match=f"{resolve(DATASETS, name).expected} are expected"):
        read(name, path)
    assert all(isinstance(one, Case) for one in read(name, path, any_count=True))


def test_too_many_are_another_version_too(tmp_path):
    rows = [*SETS["livecodebench-v5"], *(lcb(f"new{i}", "2025-01-20") for i in range(44))]
    with pytest.raises(InputError, match="323 problems .* 279 are expected.*test5.jsonl"):
        read("livecodebench-v5", write(tmp_path / "data.jsonl", rows))


@pytest.mark.parametrize("name", DATASETS.table)
def test_every_dataset_refuses_the_files_of_the_others(tmp_path, name):
    for other, rows in SETS.items():
        if name != other:
            with pytest.raises(InputError, match=f"not {name}|are expected"):
                read(name, write(tmp_path / "data.jsonl", rows))


def test_a_row_of_another_dataset_is_named_with_the_set_it_looks_like(tmp_path):
    path = write(tmp_path / "data.jsonl", SETS["math-500"])
    with pytest.raises(InputError, match="a row of it has .*question_content.*; it looks like .*math-500"):
        read("livecodebench-v5", path)


def test_the_windows_of_livecodebench_hold_at_the_ends_of_months(tmp_path):
    days = ["2024-07-31", "2024-08-01", "2025-01-31", "2025-02-01", "2025-04-30", "2025-05-01"]
    path = write(tmp_path / "all.jsonl", [lcb(day, day) for day in days])
    assert [one.id for one in read("livecodebench-v5", path, any_count=True)] == days[1:3]
    assert [one.id for one in read("livecodebench-v6", path, any_count=True)] == days[3:5]
    own = Window(date(2025, 1, 31), date(2025, 5, 1))
    assert [one.id for one in read("livecodebench-v5", path, window=own)] == days[2:5]
    with pytest.raises(InputError, match="dates 2024-07-31 to 2025-05-01"):
        read("livecodebench-v5", path, window=Window(date(2030, 1, 1)))


def test_version_5_is_its_own_five_files_and_279_of_their_problems(tmp_path):
    outside = [lcb(f"old{i}", "2024-07-31") for i in range(20)]
    rows = [*outside, *SETS["livecodebench-v5"]]
    for number, name in enumerate(["test", "test2", "test3", "test4", "test5"]):
        write(tmp_path / f"{name}.jsonl", rows[number::5])
    write(tmp_path / "test6.jsonl", [lcb(f"new{i}", "2025-01-20") for i in range(44)])
    assert len(read("livecodebench-v5", tmp_path)) == 279
    (tmp_path / "test3.jsonl").unlink()
    with pytest.raises(InputError, match="test3.jsonl is missing"):
        read("livecodebench-v5", tmp_path)


def test_hidden_tests_are_unpacked_and_a_function_has_its_entry_point(tmp_path):
    row = lcb(
        "q", "2024-09-01", metadata='{"func_name": "add"}', starter_code="class Solution:\n  def add(self):"
    )
    plain = lcb("p", "2024-09-01", private_test_cases=json.dumps(TESTS))
    found, other = read("livecodebench-v5", write(tmp_path / "d.jsonl", [row, plain]), any_count=True)
    assert found.extra["tests"] == {"public": TESTS, "hidden": TESTS * 2}
    assert (found.extra["entry_point"], found.extra["difficulty"]) == ("add", "easy")
    assert other.extra["tests"]["hidden"] == TESTS
    assert "entry_point" not in other.extra


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("private_test_cases", "%%%", "private_test_cases: not base64"),
        ("private_test_cases", base64.b64encode(b"x").decode(), "private_test_cases: cannot be unpacked"),
        ("private_test_cases", packed({}), "private_test_cases: must be a list, not an object"),
        ("private_test_cases", None, "private_test_cases: must be a text, not null"),
        ("private_test_cases", "[" * 10**5, "private_test_cases: not JSON"),
        (
            "public_test_cases",
            '[{"input": 1}]',
            r"public_test_cases\[0\].input: must be a text, not a number",
        ),
        ("public_test_cases", "[3]", r"public_test_cases\[0\]: must be an object"),
        ("contest_date", "soon", "contest_date: 'soon' is not a date"),
        ("contest_date", 1e300, "contest_date: 1e[+]300 is not a date"),
        ("question_content", 3, "question_content: must be a text, not a number"),
        ("metadata", "[]", "metadata: must be an object, not a list"),
    ],
)
def test_a_bad_row_is_named_down_to_the_field_and_the_others_delivered(tmp_path, field, value, said):
    rows = [lcb("a", "2024-09-01"), lcb("b", "2024-09-01", **{field: value}), lcb("c", "2024-09-01")]
    path = write(tmp_path / "d.jsonl", rows)
    one, wrong, three = read("livecodebench-v5", path, any_count=True)
    assert (one.id, three.id) == ("a", "c")
    assert re.search(f"d.jsonl:2: {said}", str(wrong))


def test_a_name_that_stands_twice_is_reported(tmp_path):
    found = read(
        "codecontests", write(tmp_path / "d.jsonl", [contest(1), contest(2), contest(1)]), any_count=True
    )
    assert "is on an earlier row" in str(found[2])


def test_contests_carry_words_for_numbers_and_hidden_tests_of_both_kinds(tmp_path):
    pairs = [{"input": "1\n", "output": "2\n"}]
    rows = [contest(1), contest(2, public_tests=pairs, time_limit=None, difficulty=0, generated_tests=None)]
    one, two = read("codecontests", write(tmp_path / "d.jsonl", rows), any_count=True)
    assert [len(one.extra["tests"][kind]) for kind in ("public", "hidden")] == [1, 2]
    assert one.extra.items() >= {"difficulty": "A", "platform": "codeforces", "time_limit": 2.5}.items()
    assert two.extra["tests"] == {"public": pairs, "hidden": pairs}
    assert "time_limit" not in two.extra


def test_parquet_json_lists_gzip_and_lines_are_the_same_rows(tmp_path, monkeypatch):
    rows = SETS["hmmt-feb-2025"]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "d.parquet")
    (tmp_path / "d.json").write_text(json.dumps(rows, indent=1))
    paths = [write(tmp_path / "d.jsonl", rows), write(tmp_path / "d.jsonl.gz", rows)]
    first, *others = [
        read("hmmt-feb-2025", path) for path in [*paths, tmp_path / "d.json", tmp_path / "d.parquet"]
    ]
    assert others == [first] * 3
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "d.parquet").read_bytes()[:-9])
    with pytest.raises(InputError, match="cut.parquet: cannot be read as Parquet"):
        read("hmmt-feb-2025", tmp_path / "cut.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"caps-select\[parquet\]"):
        read("hmmt-feb-2025", tmp_path / "d.parquet")


def test_both_halves_of_aime_lie_in_one_folder_and_other_years_are_refused(tmp_path):
    write(tmp_path / "aime2025-I.jsonl", SETS["aime-2025"][:15])
    write(
        tmp_path / "aime2025-II.jsonl", [{"problem": "?", "answer": i, "problem_idx": i} for i in range(15)]
    )
    found = read("aime-2025", tmp_path)
    assert [found[0].id, found[29].id, found[29].extra["answer"]] == ["aime-2025-1", "aime-2025-30", "14"]
    rows = [{"problem": "?", "answer": "1", "year": 2024}]
    with pytest.raises(InputError, match="1 of 1 rows"):
        read("aime-2025", write(tmp_path / "old.jsonl", rows))


@pytest.mark.parametrize("name", ["humaneval", "humaneval-plus", "mbpp", "mbpp-sanitized"])
def test_the_test_programs_pass_what_is_right_and_fail_what_is_wrong(tmp_path, name):
    case = read(name, write(tmp_path / "d.jsonl", SETS[name][10:12]), any_count=True)[-1]
    scope = {}
    exec(case.extra["tests"], scope)
    scope["check"](lambda x: x + 1)
    with pytest.raises(AssertionError):
        scope["check"](lambda x: x + 2)
    assert case.extra["entry_point"] in ("inc", "bump")


def test_the_final_number_of_gsm8k_stands_without_commas(tmp_path):
    found = read("gsm8k", write(tmp_path / "d.jsonl", SETS["gsm8k"][:2]), any_count=True)
    assert [(one.id, one.extra["answer"]) for one in found] == [("gsm8k-1", "1234"), ("gsm8k-2", "1234")]


def test_an_empty_file_or_folder_is_named(tmp_path):
    (tmp_path / "e.jsonl").write_text("\n")
    (tmp_path / "folder").mkdir()
    said_of = {"e.jsonl": "the file is empty", "folder": "no file of gsm8k", "none": "No such file"}
    for path, said in said_of.items():
        with pytest.raises(InputError, match=said):
            read("gsm8k", tmp_path / path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(name=st.sampled_from(sorted(SETS)), data=st.data())
def test_any_row_is_a_problem_or_an_input_error(name, data):
    dataset = resolve(DATASETS, name)
    row = dict(SETS[name][0])
    for field in data.draw(st.sets(st.sampled_from(sorted(row)), max_size=3)):
        row[field] = data.draw(JSON)
    try:
        assert isinstance(dataset.parse(row), Case | None)
    except InputError as error:
        assert str(error)


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_any_bytes_are_rows_or_input_errors(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(content)
    try:
        assert all(isinstance(row, dict | InputError) for _, row in read_rows(str(path)))
    except InputError as error:
        assert str(path) in str(error)
