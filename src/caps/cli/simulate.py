"""`caps simulate`: compare strategies on a simulated judge."""

import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from caps.cli.figures import Html, Plots, write_figures
from caps.cli.help import JUDGE, SIZES, STRATEGY
from caps.cli.options import Fields, JsonFlag, Processes, allow_named, complete_strategies, completion
from caps.cli.output import print_json, say, stdout
from caps.cli.progress import Progress
from caps.config.sources import parse_assignments
from caps.core.errors import SettingError
from caps.core.settings import override, share_out
from caps.core.text import percent
from caps.datasets.imports import open_cases
from caps.judging.simulated import PRESETS, JudgeModel, judge_of
from caps.reports.simulation_page import simulation_page, simulation_picture, simulation_table
from caps.session.parts import make_strategy
from caps.studies import play
from caps.studies.metrics import MethodResults, summary
from caps.studies.results import Result
from caps.studies.simulation import LabelledPool, PoolModel, generated_pools, labelled, view_sizes

BASELINE = "v1-infer"
DEFAULT_STRATEGIES = (
    "posterior,vanilla,majority,pointwise,random-pairs,knockout,caps,caps-r,caps-plus,v1-infer"
)
WORTH_MORE_PROCESSES = 400


def simulate(
    problems: Annotated[
        int,
        typer.Option(
            "--problems", min=1, metavar="N", help="Number of made-up problems.", rich_help_panel=SIZES
        ),
    ] = 1000,
    n: Annotated[
        int | None,
        typer.Option(
            "--n",
            min=1,
            metavar="N",
            help="Candidates per problem. Default: 16, or all of --cases.",
            rich_help_panel=SIZES,
        ),
    ] = None,
    strategies: Annotated[
        str,
        typer.Option(
            "--strategies",
            metavar="NAMES",
            help="Strategies to compare, separated by commas.",
            rich_help_panel=STRATEGY,
            autocompletion=complete_strategies,
        ),
    ] = DEFAULT_STRATEGIES,
    judge: Annotated[
        str,
        typer.Option(
            "--judge",
            metavar="JUDGE",
            help="Simulated judge: 60, 70, 80 or 90 (% right at E2), strong, reasoning, weak or biased.",
            rich_help_panel=JUDGE,
            autocompletion=completion(PRESETS),
        ),
    ] = "80",
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change the simulated judge (accuracy=0.75, noise=0.1) or the made-up problems "
            "(solve_rate=0.2, full_tokens=1500). May be repeated.",
            rich_help_panel=JUDGE,
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            metavar="NAME",
            help="Made-up problems: code (all candidates differ) or math (some answers are equal).",
            rich_help_panel=SIZES,
            autocompletion=completion(("code", "math")),
        ),
    ] = "code",
    cases: Annotated[
        str | None,
        typer.Option(
            "--cases",
            metavar="FILE",
            help="Use labelled cases instead of made-up problems; only verdicts are simulated.",
            rich_help_panel=SIZES,
        ),
    ] = None,
    fields: Fields = "",
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="N",
            help="Random seed; the same seed gives the same figures.",
            rich_help_panel=STRATEGY,
        ),
    ] = 1234,
    processes: Processes = None,
    plots: Plots = None,
    html: Html = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare strategies on a simulated judge; no model is asked.

    Prints how often each strategy is right, and how many calls and tokens it needs. To compare strategies on
    the verdicts of a real judge, see caps bench CASES --strategies.
    """
    names = [name.strip() for name in strategies.split(",") if name.strip()]
    allow_named(*names)
    if not names:
        raise SettingError(f"--strategies {strategies!r}: name at least one strategy")
    model, shape = _judge_and_pools(judge, PoolModel(n=n or 16, kind=kind), changes or ())
    if cases is None:
        pools = generated_pools(shape, problems, seed)
        source: dict[str, Any] = {"made_up": asdict(shape)}
    else:
        pools = list(labelled(open_cases(cases, fields=fields, say=say), n=n))
        source = {"cases": cases}
    results = _run(pools, names, model, seed=seed, processes=processes)
    sheets = {name: MethodResults(results[name], reference=results[BASELINE]) for name in names}
    rows = [{"strategy": name, **summary(sheet)} for name, sheet in sheets.items()]
    simulated = "pools and verdicts" if cases is None else "verdicts; pools, clusters and labels are real"
    about = {"simulated": simulated, **_about(pools, seed, source, asdict(model))}
    _write(about, rows, plots=plots, html=html, as_json=as_json)


def _write(
    about: dict[str, Any], rows: list[dict[str, Any]], *, plots: Path | None, html: Path | None, as_json: bool
) -> None:
    picture = simulation_picture(about, rows)
    write_figures([picture], simulation_page(about, rows, picture, baseline=BASELINE), plots=plots, html=html)
    if as_json:
        print_json({**about, "strategies": rows})
        return
    _print(about, rows)


def _judge_and_pools(
    preset: str, pools: PoolModel, assignments: Iterable[str]
) -> tuple[JudgeModel, PoolModel]:
    """The simulated judge and the made-up problems; an accuracy replaces the preset."""
    if preset not in PRESETS:
        raise SettingError(f"--judge {preset!r}: must be one of {', '.join(PRESETS)}; or --set accuracy=0.75")
    model = PRESETS[preset]
    of_judge, of_pools = share_out(parse_assignments(assignments, option="--set"), model, pools)
    if "accuracy" in of_judge:
        model = judge_of(override(model, {"accuracy": of_judge["accuracy"]}).accuracy)
    return override(model, of_judge), override(pools, of_pools)


def _run(
    pools: list[LabelledPool], names: Iterable[str], model: JudgeModel, *, seed: int, processes: int | None
) -> dict[str, list[Result]]:
    """Run all strategies, and always the baseline, which the token shares need."""
    strategies = {name: make_strategy(name) for name in dict.fromkeys([*names, BASELINE])}
    if processes is None:
        processes = (os.cpu_count() or 1) if len(pools) >= WORTH_MORE_PROCESSES else 1
    with Progress("problems", len(pools)) as progress:
        return play.simulate(
            pools, strategies, model, seed=seed, processes=processes, report=progress.advance
        )


def _about(
    pools: list[LabelledPool], seed: int, source: dict[str, Any], judge: dict[str, Any]
) -> dict[str, Any]:
    sizes = view_sizes(pools)
    return {
        "seed": seed,
        "judge": judge,
        "pools": source,
        "problems": len(pools),
        "pass_at_n": sum(any(pool.correct) for pool in pools) / len(pools),
        "mean_correct": sum(sum(pool.correct) / len(pool.correct) for pool in pools) / len(pools),
        "rho": sizes.rho,
    }


def _print(about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    console = stdout()
    console.print(simulation_table(about, rows))
    console.print(
        f"mean candidate {percent(about['mean_correct'])} %, some candidate right "
        f"{percent(about['pass_at_n'])} %, rho {about['rho']:.3f}; 95 % intervals; T% against {BASELINE}",
        style="dim",
    )
