"""The page on how a run works names the modules that one question passes, in their order."""

import re
import sys
from pathlib import Path

from typer.testing import CliRunner

from caps.cli.main import make_app
from caps.testing import ScriptedEndpoint
from caps.testing.cases import better_quality_wins, write_cases

PAGE = Path(__file__).parents[2] / "docs" / "design" / "0008-how-a-run-works.md"
PACKAGE = Path(sys.modules["caps"].__file__).parent


def test_the_page_names_the_modules_of_a_run_in_the_order_of_their_first_call(tmp_path, monkeypatch):
    picture = PAGE.read_text().split("```")[1]
    named = re.findall(r"\b(\w+/\w+\.py)\b", picture)
    assert len(named) == len(set(named)) > 10
    monkeypatch.chdir(tmp_path)
    write_cases(Path("cases.jsonl"), 1, 4)
    called: dict[str, None] = {}

    def note(frame, event, _):
        path = frame.f_code.co_filename
        if event == "call" and frame.f_code.co_name != "<module>" and path.startswith(str(PACKAGE)):
            called.setdefault(str(Path(path).relative_to(PACKAGE)))

    with ScriptedEndpoint(better_quality_wins) as server:
        words = ["select", "cases.jsonl", "--model", "stub", "--base-url", server.url, "--journal"]
        commands = make_app()
        CliRunner().invoke(commands, [*words, "first.sqlite"])  # loads all modules
        sys.setprofile(note)
        try:
            done = CliRunner().invoke(commands, [*words, "second.sqlite"])
        finally:
            sys.setprofile(None)
    assert done.exit_code == 0, done.output
    order = [module for module in called if module in named]
    assert order == named, f"they are called in this order: {order}"
