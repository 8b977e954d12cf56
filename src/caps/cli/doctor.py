"""`caps doctor`: what works on this machine, and how to install the rest."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_cache_path, user_data_path

from caps.cli import options
from caps.cli.doctor_checks import Check, examine
from caps.cli.options import JsonFlag
from caps.cli.output import print_json, stdout
from caps.cli.progress import fetch_bar
from caps.config import RunConfig
from caps.config.judges import JudgeTable
from caps.config.sources import read_environment
from caps.core.secrets import split_addresses
from caps.journal.store import default_path
from caps.models.endpoints import ServerAddress
from caps.models.rewards import Form
from caps.models.weights import default_weights
from caps.registry import REWARD_JUDGE
from caps.reports.console import table
from caps.session.judges import JudgeSpec

Fetch = Annotated[bool, typer.Option("--fetch", help="Download the default model first (93 MB).")]


def doctor(
    ctx: typer.Context,
    fetch: Fetch = False,
    judge: options.Judges = None,
    config_file: options.JUDGES_FILE = None,
    as_json: JsonFlag = False,
) -> None:
    """Check what works on this machine, and how to install the rest.

    Checks Python, optional packages, the default model, servers, the journal, the sandbox and the browser,
    and several judges (--judge, or [[judge]] tables of --config).
    Everything that is missing is optional. The exit code is 1 only if something that exists does not work.
    """
    cache = user_cache_path("caps")
    if fetch:
        with fetch_bar() as report:
            default_weights(cache, report)
    journal = os.environ.get("CAPS_JOURNAL")
    places = environment_places()
    checks = examine(
        cache=cache,
        journal=Path(journal) if journal else default_path(user_data_path("caps")),
        endpoints=[place for place in places if place.kind == places[0].kind],
        model=os.environ.get("CAPS_MODEL"),
        judges=options.judge_tables(ctx, judge),
        environment=os.environ,
        reward=_reward_form(),
    )
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        stdout().print(
            table("", ("", "state", "what was found", "how to fix it"), _rows(checks), numbers_from=9)
        )
    raise typer.Exit(any(check.state == "broken" for check in checks))


def _reward_form() -> Form | None:
    """How the reward server that the environment names is asked, if it names one."""
    names = ("reward_api", "reward_template", "reward_steps", "reward_class")
    config = RunConfig(**read_environment(names), judge=REWARD_JUDGE)
    return None if config.reward_api is None else JudgeSpec(table=JudgeTable(), config=config).reward_form()


def environment_places() -> list[ServerAddress]:
    """The servers that the environment names, with their keys, in the order of preference."""
    own, general = os.environ.get("CAPS_API_KEY"), os.environ.get("OPENAI_API_KEY")
    urls = (os.environ.get("CAPS_BASE_URL", ""), os.environ.get("OPENAI_BASE_URL", ""))
    keys = (own or general, general if urls[0] else own or general)
    named = list(zip(("CAPS_BASE_URL", "OPENAI_BASE_URL"), urls, keys, strict=True))
    distinct = named[:1] if urls[0] == urls[1] else named
    return [ServerAddress(name, url, key) for name, urls, key in distinct for url in split_addresses(urls)]


def _rows(checks: list[Check]) -> list[tuple[str, ...]]:
    return [(check.name, check.state, check.found, check.mend) for check in checks]
