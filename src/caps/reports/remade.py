"""What made a run, as objects again: its setup, its strategy's settings, its price."""

from pathlib import Path
from typing import Any

from caps.assemble import Endpoint, Setup, templates_for
from caps.core.errors import InputError
from caps.costs.prices import Price
from caps.engines.budget import Budget
from caps.judges.llm import JudgeSettings
from caps.prompts.render import VERSIONS
from caps.reports.rundir import digests


def settings_of_run(made: dict[str, Any]) -> dict[str, str]:
    """The fields of a run's strategy, as a user would write them."""
    return {name: str(value) for name, value in made["strategy"].items() if name != "name"}


def setup_of_run(made: dict[str, Any]) -> Setup:
    """The setup a run was made with, without its keys."""
    at_partial = None
    if made.get("model_e1"):
        at_partial = Endpoint(made.get("base_url_e1") or made["base_url"], made["model_e1"])
    return Setup(
        endpoint=Endpoint(made["base_url"], made["model"]),
        endpoint_partial=at_partial,
        judge=JudgeSettings(**made["judge"]),
        hard_evidence="auto" if made.get("findings") else "off",
        merge_found=made.get("merge_found", False),
        extra=made["extra"],
        profile=made["profile"],
        views=made["views"],
        prompts=None if made["prompts_folder"] is None else Path(made["prompts_folder"]),
        prompt_version=prompt_version_of_run(made),
        journal=None if made["journal"] is None else Path(made["journal"]),
        case_budget=Budget(**{**made["budget"]["case"], "seconds": None}),
    )


def prompt_version_of_run(made: dict[str, Any]) -> str:
    """The version of the prompts of a run; before it was noted, there was one."""
    return str(made.get("prompt_version", VERSIONS[0]))


def price_of_run(made: dict[str, Any]) -> Price | None:
    """What a token cost in a run, where that was known."""
    return None if made["price"] is None else Price(**made["price"])


def check_prompts(made: dict[str, Any], setup: Setup) -> None:
    """Changed words are other prompts: nothing of the journal would be found."""
    now = digests(templates_for(setup))
    changed = [name for name, digest in made["prompts"].items() if now.get(name) != digest]
    if changed:
        raise InputError(
            f"the prompt {changed[0]} has changed since the run: put its old words into --prompts"
        )
