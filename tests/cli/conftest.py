"""A stub judge; `caps select` against it, and any command in this process."""

import os

import pytest
from typer.testing import CliRunner

from caps.cli.main import make_app
from caps.core.errors import CapsError
from caps.testing import ScriptedEndpoint, better_quality_wins
from support.shell import caps


@pytest.fixture
def server():
    with ScriptedEndpoint(better_quality_wins, models=("stub",)) as running:
        yield running


@pytest.fixture
def select(server, tmp_path):
    """Run `caps select` against the stub, with a journal of its own."""

    def run(cases, *words, **environment):
        where = ("--base-url", server.url, "--model", "stub", "--journal", tmp_path / "journal.sqlite")
        return caps("select", cases, *where, *words, **environment)

    return run


@pytest.fixture
def invoke(server, tmp_path, monkeypatch):
    """Run a command in this process; what is wrong is raised."""
    for name in list(os.environ):
        if name.startswith(("CAPS_", "OPENAI_")):
            monkeypatch.delenv(name)

    def run(*words, stdin=None):
        where = ["--model", "stub", "--journal", tmp_path / "j.sqlite"]
        where += [] if "--base-url" in words else ["--base-url", server.url]
        done = CliRunner().invoke(
            make_app(), [str(word) for word in [words[0], *where, *words[1:]]], input=stdin
        )
        if isinstance(done.exception, CapsError):
            raise done.exception
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return run
