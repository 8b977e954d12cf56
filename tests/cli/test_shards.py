"""`caps select --shard K/N`: the shards of a run together are the run."""

import json

import pytest

import caps as library
from caps.cli.report import open_run
from caps.reports.report import load_report
from caps.testing import write_cases
from support.shell import caps, json_lines, start

EXPORTS = (("best",), ("preferences", "--full-evidence"), ("verdicts",))


@pytest.fixture
def cases(tmp_path):
    """Nine cases, of which the fifth cannot be read."""
    file = write_cases(tmp_path / "cases.jsonl", 8, n=6)
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:4], "no case", *lines[4:]]) + "\n")
    return file


@pytest.fixture
def sharded(server, cases, tmp_path):
    """Run `caps select` into a folder, in shards or whole; each journal has a name."""

    def run(*words, out="run", journal="journal", process=caps):
        return process(
            "select", cases, "--model", "stub", "--base-url", server.url, "--journal", tmp_path / journal,
            "--out", tmp_path / out, "--strategy", "caps", "--price-input", 2, "--price-output", 8, *words,
        )  # fmt: skip

    return run


def exported(folder, *words):
    done = caps("export", folder, "--format", *words)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "journals", [("shared", "shared"), pytest.param(("first", "second"), marks=pytest.mark.slow)]
)
def test_shards_together_are_the_whole_run_with_one_journal_and_with_two(server, sharded, journals, tmp_path):
    whole = sharded(out="whole")
    asked = server.requests
    assert whole.returncode == 1, whole.stderr
    shards = [
        sharded("--shard", f"{number}/2", journal=journal, process=start)
        for number, journal in enumerate(journals, 1)
    ]
    printed = [process.communicate()[0] for process in shards]
    assert server.requests == 2 * asked
    assert sum(len(text.splitlines()) for text in printed) == 8
    run, other = tmp_path / "run", tmp_path / "whole"
    assert sorted(path.name for path in run.iterdir()) == ["shard-1-of-2", "shard-2-of-2"]
    assert json.loads((run / "shard-2-of-2" / "run.json").read_text())["shard"] == "2/2"

    replayed, expected = caps("replay", run), caps("replay", other)
    assert (replayed.returncode, replayed.stdout) == (expected.returncode, expected.stdout)
    assert [line["id"] for line in json_lines(replayed)] == [f"case {number}" for number in range(8)]
    for words in EXPORTS:
        assert exported(run, *words) == exported(other, *words)
    loaded, expected = library.load_run(run), library.load_run(other)
    assert [result.id for result in loaded.results] == [result.id for result in expected.results]
    assert loaded.results[4].id == "unreadable case 5"
    assert loaded.summary.keys() == expected.summary.keys()
    for name, value in loaded.summary.items():
        approximate = isinstance(value, float)
        assert (pytest.approx(value) if approximate else value) == expected.summary[name], name

    with open_run(run) as rebuilt, open_run(other) as unsplit:
        page, expected = load_report(rebuilt), load_report(unsplit)
        assert list(page.selections) == list(expected.selections)
        assert page.figures.outcomes.right == expected.figures.outcomes.right
        assert rebuilt.finished
        assert rebuilt.notes == unsplit.notes
        assert all(rebuilt.play(rebuilt.prepared(case)) for case in rebuilt.cases())
    assert caps("report", run).returncode == 0
    assert (run / "report.html").is_file()
    before = server.requests
    assert sharded("--shard", "2/2", journal=journals[1]).returncode == 0
    assert server.requests == before, "a shard that is run again asks nothing"


def test_missing_shards_are_named_and_a_shard_is_a_run_of_its_own(sharded, tmp_path, caplog):
    assert sharded("--shard", "2/3").returncode in (0, 1)
    run = tmp_path / "run"
    missing = "2 shards of 3 missing: 1, 3"
    replayed = caps("replay", run)
    assert replayed.returncode == 1
    assert missing in replayed.stderr
    assert missing in caps("export", run, "--format", "verdicts").stderr
    assert missing in caps("report", run).stderr
    assert library.load_run(run).summary == {}
    assert missing in caplog.text
    alone = caps("replay", run / "shard-2-of-3")
    assert (alone.returncode, alone.stdout) == (1, replayed.stdout)
    assert exported(run / "shard-2-of-3", "best")[1] == exported(run, "best")[1] != ""
    assert "one shard at a time" in caps("report", run, "--serve").stderr


def test_shards_of_different_runs_are_refused_when_run_and_when_read(sharded, tmp_path):
    run = tmp_path / "run"
    assert sharded("--shard", "1/2").returncode == 1
    for words, what in (
        (("--shard", "2/2", "--seed", "5"), "shard-1-of-2 is of a run with another 'seed'"),
        (("--shard", "2/2", "--limit", "4"), "shard-1-of-2 is of a run with another 'limit'"),
        (("--shard", "2/3"), "shard-1-of-2 is of a run with another 'number of shards'"),
        ((), "holds a run in shards"),
    ):
        refused = sharded(*words)
        assert refused.returncode == 2
        assert what in refused.stderr
    for words, what in (
        (("--shard", "2/2", "--seed", "5"), "another 'seed'"),
        (("--shard", "2/2", "--limit", "4"), "another 'limit'"),
    ):
        sharded(*words, "--force")
        for command in (("replay", run), ("report", run), ("export", run, "--format", "best")):
            refused = caps(*command)
            assert refused.returncode == 2
            assert f"shard-2-of-2 is of another run than shard-1-of-2: it has {what}" in refused.stderr
    assert sharded("--limit", "2", out="plain").returncode == 0
    assert "not split into shards" in sharded("--shard", "1/2", out="plain").stderr


def test_a_total_budget_is_that_of_a_shard_and_wrong_shards_are_refused(sharded, invoke, cases):
    said = sharded("--shard", "1/2", "--budget-total-tokens", "100000").stderr
    assert "--budget-total-tokens is the budget of shard 1/2 alone; each shard has its own" in said
    for wrong in ("0/2", "3/2", "2", "1/0", "a/b", "1/2/3", "-1/2"):
        with pytest.raises(library.SettingError, match="--shard"):
            invoke("select", cases, f"--shard={wrong}")
    with pytest.raises(library.SettingError, match="--calibrate"):
        invoke("select", cases, "--shard", "1/2", "--calibrate", 2)
