import json

import pytest
from typer.testing import CliRunner

from caps.cli.main import make_app
from caps.core.errors import InputError, SettingError
from caps.testing import ScriptedEndpoint, better_quality_wins, write_cases
from support.fileserver import serving
from support.logs import archive, lm_eval, reply, request, sample, write
from support.shell import caps, read_lines


def run(*words):
    """The command in this process: its standard output, standard error and exit code."""
    done = CliRunner().invoke(make_app(), [str(word) for word in words])
    if isinstance(done.exception, InputError | SettingError):
        raise done.exception
    return done


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_logs_of_other_tools_become_cases(tmp_path):
    asked = write(tmp_path / "in.jsonl", request("a"))
    out = write(tmp_path / "out.jsonl", reply("a", "2", "3"))
    done = run("import", out, "--requests", asked, "-o", tmp_path / "cases.jsonl", "--domain", "math")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "1 case, 2 candidates, written to" in done.stderr
    (case,) = read_lines(tmp_path / "cases.jsonl")
    assert (case["id"], case["domain"], case["candidates"]) == ("a", "math", ["2", "3"])


def test_several_logs_are_put_together_and_bad_lines_end_in_exit_1(tmp_path):
    one = write(tmp_path / "1.jsonl", lm_eval(1, "a", filter=None))
    two = write(tmp_path / "2.jsonl", lm_eval(1, "b", filter=None), {"doc_id": 2, "resps": []})
    done = run("import", one, two)
    assert done.exit_code == 1
    assert [c["text"] for c in lines(done.stdout)[0]["candidates"]] == ["a", "b"]
    assert "2.jsonl:2: resps: is empty" in done.stderr


def test_a_published_dataset_becomes_problems_and_a_wrong_one_leaves_no_file(tmp_path):
    rows = [{"question": f"{i}?", "answer": i} for i in range(30)]
    path, out = tmp_path / "aime.jsonl", tmp_path / "problems.jsonl"
    write(path, *rows)
    assert run("import", "--dataset", "aime-2025", path, "-o", out).exit_code == 0
    problems = read_lines(out)
    assert (len(problems), problems[4]["id"], problems[4]["answer"]) == (30, "aime-2025-5", "4")
    assert "candidates" not in problems[0]
    out.unlink()
    write(path, *rows[:29])
    done = caps("import", "--dataset", "aime-2025", path, "-o", out)
    assert done.returncode == 2
    assert "29 problems of aime-2025 among 29 rows; 30 are expected" in done.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["aime.jsonl"]


def test_a_dataset_is_fetched_once(tmp_path):
    with serving() as files:
        files.content = b'{"question": "?", "answer": 1}\n' * 15
        words = ("import", "--dataset", "aime-2025", "--fetch", "--mirror", files.url, "--cache", tmp_path)
        assert [len(lines(run(*words).stdout)) for _ in range(2)] == [30, 30]
    assert [path.rpartition("/")[2] for path in files.asked] == ["aime2025-I.jsonl", "aime2025-II.jsonl"]


def test_datasets_are_listed_with_counts_and_dates():
    rows = {row["dataset"]: row for row in json.loads(run("list", "datasets", "--json").stdout)}
    assert rows["livecodebench-v5"]["problems"] == "279"
    assert rows["livecodebench-v6"]["dates"] == "2025-02-01 to before 2025-05-01"
    assert rows["gsm8k"]["licence"] == "MIT"


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """A run of three cases, made once."""
    folder = tmp_path_factory.mktemp("run")
    cases = write_cases(folder / "cases.jsonl", 3, 4)
    with ScriptedEndpoint(better_quality_wins, models=("stub",)) as judge:
        where = ("--base-url", judge.url, "--model", "stub", "--no-journal", "--out", folder / "out")
        done = caps("select", cases, *where, "--strategy", "caps")
    assert done.returncode == 0, done.stderr
    return folder


def test_winners_of_a_run_are_exported_and_cases_with_all_their_candidates(chosen):
    won = [line["text"] for line in read_lines(chosen / "out" / "selections.jsonl")]
    batch = lines(run("export", chosen / "out", "--format", "openai-batch").stdout)
    assert [row["response"]["body"]["choices"][0]["message"]["content"] for row in batch] == won
    everyone = lines(run("export", chosen / "cases.jsonl", "--format", "openai-batch").stdout)
    assert [len(row["response"]["body"]["choices"]) for row in everyone] == [4, 4, 4]
    assert (
        json.loads(run("export", chosen / "out", "--format", "livecodebench").stdout)[0]["output_list"]
        == won[:1]
    )


def test_the_judged_pairs_of_a_run_are_preferences(chosen, tmp_path):
    done = run("export", chosen / "out", "--format", "preferences", "-o", tmp_path / "pairs.jsonl")
    pairs = read_lines(tmp_path / "pairs.jsonl")
    decided = [r for r in read_lines(chosen / "out" / "rulings.jsonl") if r["verdict"] in "AB"]
    assert len(pairs) == len(decided) > 6
    assert f"{len(pairs)} pairs exported" in done.stderr
    quality = [
        [float(row[side].partition("quality=")[2].partition(",")[0]) for side in ("chosen", "rejected")]
        for row in pairs
    ]
    assert all(better > worse for better, worse in quality)
    full = lines(run("export", chosen / "out", "--format", "preferences", "--full-evidence").stdout)
    assert 0 < len(full) < len(pairs)
    assert {row["level"] for row in full} == {"E2"}


def test_cases_that_changed_since_the_run_are_refused(chosen, tmp_path):
    moved = tmp_path / "moved.jsonl"
    moved.write_text((chosen / "cases.jsonl").read_text())
    assert run("export", chosen / "out", "--format", "text", "--cases", moved).exit_code == 0
    moved.write_text(moved.read_text().replace("I reckon", "I guess"))
    with pytest.raises(InputError, match="has changed since the run"):
        run("export", chosen / "out", "--format", "text", "--cases", moved)


def test_select_takes_the_log_of_another_tool_as_it_is(tmp_path):
    members = {
        f"samples/s_epoch_{epoch}.json": sample("s", epoch, f"quality=0.{epoch} \\boxed{{{epoch}}}")
        for epoch in range(1, 5)
    }
    log = archive(tmp_path / "log.eval", members)
    with ScriptedEndpoint(better_quality_wins, models=("stub",)) as judge:
        done = caps("select", log, "--base-url", judge.url, "--model", "stub", "--no-journal", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["winner"] == 3
