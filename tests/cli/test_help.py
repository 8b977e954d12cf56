import re
import subprocess
import sys
from importlib import import_module

import pytest
from typer.main import get_command

from caps.cli.help import FILES, MAIN, PANELS
from caps.cli.main import COMMANDS, make_app
from caps.config import options
from caps.registry import STRATEGIES
from support.shell import caps, installed

CONFIGURED = ("select", "solve", "sample", "diagnose", "bench", "serve", "plan", "simulate")


def test_the_overview_lists_every_command_in_panels_with_a_whole_summary():
    said = caps("--help").stdout
    assert all(f"\n{entry.panel}\n" in said for entry in COMMANDS.values())
    flat = " ".join(said.split())
    assert all(f" {name} {entry.summary}" in flat for name, entry in COMMANDS.items())
    assert "..." not in said


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_the_first_line_of_its_help(name):
    summary = COMMANDS[name].summary
    module = import_module(f"caps.cli.{COMMANDS[name].module}")
    first = module.app.info.help if hasattr(module, "app") else getattr(module, COMMANDS[name].module).__doc__
    assert first.strip().partition("\n")[0] == summary
    assert len(summary) <= 75, "it fits into one line of the overview"


def test_the_overview_loads_no_command():
    script = "import sys; sys.argv = ['caps', '--help']\nfrom caps.cli.main import main\n"
    script += "try: main()\nfinally: print([name for name in sys.modules if name.startswith('caps.session')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("[]\n"), done.stdout + done.stderr


@pytest.mark.parametrize("name", CONFIGURED)
def test_the_options_of_a_command_stand_in_panels_with_the_rare_ones_last(name):
    said = caps(name, "--help").stdout
    found = [line for line in said.splitlines() if line in PANELS]
    assert found == [panel for panel in PANELS if panel in found]
    assert len(found) >= 3
    assert "\nOptions\n" not in said


def test_every_option_has_a_help_and_the_placeholder_of_its_value():
    for path, command in walk(get_command(make_app())):
        for param in command.params:
            where = f"{path} {param.opts}"
            assert param.help, where
            if param.param_type_name == "option" and not param.is_flag:
                assert param.metavar, where


def walk(command, path="caps"):
    if hasattr(command, "commands"):
        for name, one in command.commands.items():
            yield from walk(one, f"{path} {name}")
    else:
        yield path, command


def test_what_people_use_comes_first_and_settings_that_few_need_have_no_option():
    said = caps("select", "--help").stdout
    listed = re.findall(r"^  (?:-\w, )?(--[\w-]+)", said, re.MULTILINE)
    assert len(listed) <= 62
    first = re.findall(
        r"^  (?:-\w, )?(--[\w-]+)", said.partition(f"\n{MAIN}\n")[2].partition("\n\n")[0], re.MULTILINE
    )
    assert listed[: len(first)] == first
    assert {"--model", "--base-url", "--strategy", "--set", "--out", "--limit", "--json"} <= set(first)
    assert len(first) <= 22
    assert all(not setting.flags for setting in options().values() if setting.advanced)


def test_an_option_that_is_a_rare_setting_names_the_way_to_set_it():
    done = caps("select", "cases.jsonl", "--warm-prefix", "on")
    assert done.returncode == 2
    assert "--set warm_prefix=VALUE" in done.stderr


def test_help_stands_among_input_and_output():
    part = caps("select", "--help").stdout.partition(f"\n{FILES}\n")[2].partition("\n\n")[0]
    assert "-h, --help" in part


def test_a_group_without_a_command_prints_its_help_and_exits_2():
    done = caps("journal")
    assert done.returncode == 2
    assert "prune" in done.stdout
    assert done.stderr == ""


def completed(line, word, shell="bash"):
    words = line.split()
    place = len(words) - 1 if word else len(words)
    environment = {"COMP_WORDS": line, "COMP_CWORD": str(place), "_CAPS_COMPLETE": f"complete_{shell}"}
    return caps(**environment).stdout.split()


@pytest.mark.parametrize(
    ("line", "word", "offered"),
    [
        ("caps s", "s", ["select", "solve", "sample", "score", "simulate", "serve"]),
        ("caps select cases.jsonl --strategy caps", "caps", [n for n in STRATEGIES.table if n.startswith("caps")]),
        ("caps select cases.jsonl --sandbox b", "b", ["bwrap"]),
        ("caps select --budget-t", "--budget-t", ["--budget-tokens", "--budget-total-tokens", "--budget-total-usd",
                                                  "--budget-total-seconds"]),
        ("caps list str", "str", ["strategies"]),
        ("caps list strategies knock", "knock", ["knockout"]),
        ("caps plan --strategy caps,v1-infer-", "caps,v1-infer-", ["caps,v1-infer-caps"]),
    ],
)  # fmt: skip
def test_a_shell_completes_commands_options_and_names(line, word, offered):
    assert sorted(completed(line, word)) == sorted(offered)


def test_the_script_that_completes_is_printed_for_a_shell():
    done = installed("--show-completion", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 2, "a shell must be named where none is found"
    done = installed("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_CAPS_COMPLETE=complete_bash" in done.stdout
