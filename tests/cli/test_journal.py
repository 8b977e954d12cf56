import json
import os
import pty
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caps.cli.main import make_app
from caps.journal.maintenance import read_stats
from caps.testing import ScriptedEndpoint, better_quality_wins, write_cases
from support.shell import CAPS, caps, caps_json
from support.waiting import PATIENCE

WORDS = b"Both were read."


@pytest.fixture(scope="module")
def server():
    with ScriptedEndpoint(better_quality_wins, models=("stub",)) as running:
        yield running


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return write_cases(tmp_path_factory.mktemp("cases") / "cases.jsonl", 2, n=4)


@pytest.fixture(scope="module")
def select(server, cases):
    """Run `caps select` on two cases against the stub; how many requests that took."""

    def run(journal, model="stub"):
        before = server.requests
        where = ("--base-url", server.url, "--model", model, "--journal", journal)
        done = caps("select", cases, *where, "--strategy", "caps", "--quiet")
        assert done.returncode == 0, done.stderr
        return server.requests - before

    return run


@pytest.fixture(scope="module")
def original(select, server, tmp_path_factory):
    """A journal with six replies of `stub` and six of `other`, and the tokens the server counted for them."""
    path = tmp_path_factory.mktemp("original") / "j"
    assert select(path) == select(path, "other") == 6
    return path, sum(server.tokens.values())


@pytest.fixture
def path(original, tmp_path):
    return Path(shutil.copy(original[0], tmp_path / "j"))


def journal(*words, **environment):
    """Run `caps journal` inside this process, which is faster; it must go well."""
    done = CliRunner().invoke(
        make_app(), ["journal", *map(str, words)], env={"CAPS_JOURNAL": "", **environment}
    )
    assert done.exit_code == 0, done.output
    return done


def made_older(path, days):
    """Date the replies of `other` back."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE replies SET at = at - ? WHERE model = 'other'", [days * 86400])
        connection.commit()


def raw(path):
    return b"".join(file.read_bytes() for file in path.parent.glob(path.name + "*"))


def at_terminal(answer, *words):
    """Run `caps` with a terminal as its standard input, at which someone types an answer."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer.encode())
        return subprocess.run(
            [str(CAPS), *map(str, words)],
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)


def test_stats_are_figures_by_model(path, original):
    told = json.loads(journal("stats", "--json", "--journal", path).stdout)
    assert (told["path"], told["schema"], told["replies"], told["redacted"]) == (str(path), 2, 12, 0)
    assert told["bytes"] == path.stat().st_size
    assert told["first"] <= told["last"]
    assert [(row["model"], row["replies"]) for row in told["models"]] == [("other", 6), ("stub", 6)]
    assert sum(told["tokens"].values()) == original[1]
    assert told["tokens"]["read"] == sum(row["tokens"]["read"] for row in told["models"])


def test_stats_are_a_table_and_the_environment_may_name_the_journal(path):
    said = journal("stats", CAPS_JOURNAL=str(path), COLUMNS="200").stdout
    for words in (str(path), "version 2", "tokens written", "stub"):
        assert words in said


def test_the_default_journal_is_the_one_of_the_data_folder(path, tmp_path):
    (tmp_path / "caps").mkdir()
    path.rename(tmp_path / "caps" / "journal.sqlite")
    assert json.loads(journal("stats", "--json", XDG_DATA_HOME=str(tmp_path)).stdout)["replies"] == 12


def test_prune_takes_out_the_replies_of_a_model_and_only_those_are_asked_again(path, select):
    done = journal("prune", "--model", "other", "--yes", "--journal", path)
    assert done.stderr == ""
    assert "deleted: 6 replies; " in done.stdout
    assert "bytes freed" in done.stdout
    assert (select(path), select(path, "other")) == (0, 6)


@pytest.mark.parametrize(
    ("limits", "gone"),
    [(("--older-than", 9, "--model", "stub"), 0), (("--all", "--older-than", 9.5), 6)],
)
def test_limits_narrow_one_another(path, limits, gone):
    made_older(path, 10)
    done = journal("prune", "--journal", path, "--yes", "--json", *limits)
    assert json.loads(done.stdout)["replies"] == gone
    assert read_stats(path).replies == 12 - gone


def test_redacted_words_are_gone_from_the_file_and_the_request_is_asked_anew(path, select):
    before = read_stats(path)
    assert WORDS in raw(path)
    told = caps_json("journal", "redact", "--all", "--yes", "--journal", path)
    assert (told["replies"], told["dry_run"]) == (12, False)
    assert WORDS not in raw(path)
    after = read_stats(path)
    assert (after.replies, after.redacted) == (0, 12)
    assert (after.prompt_tokens, after.output_tokens) == (before.prompt_tokens, before.output_tokens)
    assert (select(path), select(path)) == (6, 0)
    stub = read_stats(path).by_model[0]
    assert (stub.model, stub.replies, stub.redacted) == ("stub", 6, 6)


@pytest.mark.parametrize("command", ["prune", "redact"])
def test_a_dry_run_counts_and_changes_nothing(path, command):
    before = path.read_bytes()
    done = journal(command, "--model", "stub", "--dry-run", "--journal", path)
    assert "would" in done.stdout
    assert ": 6 replies; " in done.stdout
    assert path.read_bytes() == before


def test_leave_is_asked_for_at_a_terminal(path):
    before = path.read_bytes()
    done = at_terminal("n\n", "journal", "prune", "--all", "--journal", path)
    assert done.returncode == 1
    assert "12 replies, 2 facts from" in done.stderr
    assert "nothing was changed" in done.stderr
    assert path.read_bytes() == before
    done = at_terminal("y\n", "journal", "redact", "--all", "--journal", path)
    assert done.returncode == 0, done.stderr
    assert "texts of 12 replies from" in done.stderr
    assert read_stats(path).redacted == 12


def test_a_model_that_is_not_there_is_remarked_on(path):
    done = journal("prune", "--model", "stubb", "--yes", "--journal", path)
    assert "'stubb'; models in the journal: 'other', 'stub'" in done.stderr
    assert read_stats(path).replies == 12


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["redact", "--yes"], "--older-than DAYS, --model NAME or --all"),
        (["prune", "--all"], "add --yes"),
        (["prune", "--older-than", "-1", "--yes"], "--older-than"),
    ],
)
def test_bad_use_exits_2_and_changes_nothing(path, words, said):
    before = path.read_bytes()
    # A model to ask, named by the environment, does not choose what is deleted.
    done = caps("journal", *words, "--journal", path, CAPS_MODEL="stub")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("words", [["stats"], ["prune", "--all", "--yes"]])
def test_a_journal_that_is_not_there_exits_2_and_is_not_made(tmp_path, words):
    missing = tmp_path / "no" / "j"
    done = caps("journal", *words, "--journal", missing)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{str(missing)!r} does not exist" in done.stderr
    assert not missing.parent.exists()


def test_a_journal_of_a_newer_version_exits_2_and_stays_as_it_is(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    done = caps("journal", "redact", "--all", "--yes", "--journal", path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "newer version" in done.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("words", [("--yes",), ("--dry-run",)])
def test_redact_states_what_must_be_paid_for_again_before_it_does_anything(path, words):
    done = journal("redact", "--all", *words, "--journal", path)
    assert done.exit_code == 0, done.stderr
    assert "12 replies (" in done.stderr
    assert "have to be paid for again" in done.stderr


def test_no_how_to_takes_replies_away_without_asking():
    pages = Path(__file__).parents[2].joinpath("docs").rglob("*.md")
    commands = [
        line for page in pages for line in page.read_text().splitlines() if line.startswith("caps journal")
    ]
    assert commands
    assert not [line for line in commands if "--yes" in line]
