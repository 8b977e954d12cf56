"""A stub judge, and `caps select` against it."""

import pytest

from caps.testing import ScriptedEndpoint, better_quality_wins
from shell import caps


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
