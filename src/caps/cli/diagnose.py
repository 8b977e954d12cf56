"""`caps diagnose`: is this judge good enough, at which evidence, and what should be run?"""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from caps.building import make_prepare
from caps.cli import options
from caps.cli.config_options import configured
from caps.cli.diagnose_run import Told, judged_live
from caps.cli.output import JsonFlag
from caps.cli.picturing import Html, Plots
from caps.cli.running import runner_for
from caps.config import Keys, RunConfig
from caps.core.errors import InputError, SettingError
from caps.core.settings import override
from caps.datasets.imports import open_cases
from caps.judging.simulated import PRESETS
from caps.models.fleet import join_addresses
from caps.reports.diagnosis import JudgeLabel
from caps.studies.advice import CONTESTS
from caps.studies.diagnosis import (
    DiagnosisRun,
    Plan,
    Subject,
    explain_nothing,
    of_pools,
    schedule,
    simulate,
    subjects,
)
from caps.studies.simulation import PoolModel, generated_pools

MADE_UP = 300

Cases = Annotated[
    str | None, typer.Argument(metavar="[CASES]", help="Labelled cases; made-up ones with --simulate alone.")
]
Pairs = Annotated[int, typer.Option("--pairs", min=1, help="Pairs at most, four calls each.")]
PerCase = Annotated[
    int, typer.Option("--per-case", min=1, help="Pairs of a case; more where cases are too few.")
]
NoStop = Annotated[bool, typer.Option("--no-stop", help="Ask all pairs, even where fewer settle it.")]
Proxy = Annotated[
    bool, typer.Option("--proxy", help="Without labels: how often E1 agrees with E2, which is no accuracy.")
]
Simulate = Annotated[
    str | None, typer.Option("--simulate", help="No model: a synthetic judge, right in 60, 70, 80 or 90 %.")
]
Contests = Annotated[
    int, typer.Option("--contests", min=1, help="Contests simulated for the expected figures.")
]
Save = Annotated[
    Path | None, typer.Option("--save", help="Keep the profile in this file, for --judge-profile.")
]


@configured(
    "judge", "levels", "asking", "strategy", "evidence", "performance", "embedded", "journal", "price",
    "total budget", "total budget seconds",
    defaults={"hard_evidence": "off"},
    without=("strategy", "skip_failing", "judge_profile"),
)  # fmt: skip
def diagnose(
    config: RunConfig,
    keys: Keys,
    cases: Cases = None,
    pairs: Pairs = 100,
    per_case: PerCase = 3,
    no_stop: NoStop = False,
    proxy: Proxy = False,
    simulate_: Simulate = None,
    contests: Contests = CONTESTS,
    save: Save = None,
    plots: Plots = None,
    html: Html = None,
    limit: options.Limit = None,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure a judge on pairs of a right and a wrong candidate, and say which strategy to use with it.

    Each pair is asked on partial and on full views, in both orders, until both levels are told from chance or
    --pairs are asked. Replies are kept in the journal, where caps select finds them again. --set changes the
    synthetic judge of --simulate, such as position_bias=0.3.
    """
    plan = Plan(pairs=pairs, per_case=per_case, stop=not no_stop, proxy=proxy, seed=config.seed)
    changes = {name: str(value) for name, value in config.settings.items()}
    config = replace(config, settings={})
    if proxy and save is not None:
        raise SettingError("--save needs labels: without them nobody knows how often the judge is right")
    if changes and simulate_ is None:
        raise SettingError("--set changes the synthetic judge: it goes with --simulate")
    found = _subjects(cases, limit, config, plan, simulated=simulate_ is not None)
    scheduled = schedule(found, plan)
    if not scheduled:
        raise InputError(f"{cases}: {explain_nothing(found, plan)}")
    told = Told(
        cases=cases,
        plan=plan,
        found=found,
        contests=contests,
        save=save,
        plots=plots,
        html=html,
        date=_today(),
        as_json=as_json,
        quiet=quiet,
    )
    if simulate_ is not None:
        asked = _simulated(simulate_, changes, scheduled, plan)
        raise typer.Exit(told.tell(asked, JudgeLabel(source=f"simulated judge {simulate_}", simulated=True)))
    with runner_for(config, keys, quiet=quiet) as runner:
        answered = asyncio.run(judged_live(runner, scheduled, plan, quiet=quiet))
        if answered is None:
            raise typer.Exit(130)
        _, full, at_partial = runner.endpoints
    named = JudgeLabel(
        source=f"caps diagnose {cases}",
        model=full.model,
        model_e1=None if at_partial == full else at_partial.model,
        words=_again(config),
    )
    raise typer.Exit(told.tell(answered, named))


def _subjects(
    cases: str | None, limit: int | None, config: RunConfig, plan: Plan, *, simulated: bool
) -> list[Subject]:
    if cases is None and not simulated:
        raise SettingError(
            "give CASES to try a judge on; or --simulate 80 for made-up cases and a made-up judge"
        )
    if simulated and plan.proxy:
        raise SettingError("--proxy is for cases without labels: a synthetic judge reads the labels")
    if cases is None:
        return list(of_pools(generated_pools(PoolModel(), limit or MADE_UP, plan.seed)))
    views = {name: str(view) for name, view in config.views.items()}
    return list(subjects(islice(open_cases(cases), limit), make_prepare(config.profile, views)))


def _simulated(preset: str, changes: dict[str, str], scheduled: list[Subject], plan: Plan) -> DiagnosisRun:
    if preset not in PRESETS:
        raise SettingError(f"--simulate {preset!r}: must be one of {', '.join(PRESETS)}")
    return simulate(scheduled, plan, override(PRESETS[preset], changes))


def _again(config: RunConfig) -> tuple[str, ...]:
    """Options of this command that `select` needs too."""
    given = (
        ("--model", config.model),
        ("--base-url", join_addresses(config.base_url)),
        ("--judge-model", config.judge_model),
        ("--judge-base-url", join_addresses(config.judge_base_url)),
        ("--judge-model-e1", config.judge_model_e1),
        ("--judge-base-url-e1", join_addresses(config.judge_base_url_e1)),
        ("--profile", config.profile),
        ("--reply", config.reply),
        ("--confidence", None if config.confidence == "verbal" else config.confidence),
    )
    return tuple(word for option, value in given if value for word in (option, value))


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
