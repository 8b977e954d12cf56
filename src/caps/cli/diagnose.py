"""`caps diagnose`: measure how accurate a judge is, and recommend a strategy."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from caps.building import make_prepare
from caps.cli import options
from caps.cli.figures import Html, Plots, write_figures
from caps.cli.help import FILES, STRATEGY
from caps.cli.options import JsonFlag, configured
from caps.cli.output import FailureLog, print_json, say, stdout
from caps.cli.preflight import runner_for
from caps.cli.progress import Progress
from caps.cli.signals import report_interrupted, run_until_signal
from caps.config import Keys, RunConfig
from caps.core.errors import InputError, SettingError
from caps.core.settings import override
from caps.datasets.imports import open_cases
from caps.files import write_file
from caps.judging.simulated import PRESETS
from caps.models.fleet import join_addresses
from caps.reports import diagnosis as diagnosed
from caps.reports import diagnosis as diagnosed_rows
from caps.reports.console import shown
from caps.reports.diagnosis import JudgeLabel
from caps.reports.diagnosis_page import (
    diagnosis_page,
    diagnosis_pictures,
    proxy_page,
    proxy_pictures,
    stamp_of,
)
from caps.runner import Runner
from caps.studies.advice import CONTESTS, Conclusion, conclude, measured_of
from caps.studies.diagnosis import (
    DiagnosisRun,
    Plan,
    Subject,
    ask,
    explain_nothing,
    of_pools,
    schedule,
    simulate,
    subjects,
)
from caps.studies.simulation import PoolModel, generated_pools

MADE_UP = 300

Cases = Annotated[
    str | None, typer.Argument(metavar="[CASES]", help="Labelled cases. Not needed with --simulate.")
]
Pairs = Annotated[
    int,
    typer.Option(
        "--pairs",
        min=1,
        metavar="N",
        help="Most pairs to ask, four calls each.",
        rich_help_panel=STRATEGY,
    ),
]
PerCase = Annotated[
    int,
    typer.Option(
        "--per-case",
        min=1,
        metavar="N",
        rich_help_panel=STRATEGY,
        help="Pairs of one case; more if there are few cases.",
    ),
]
NoStop = Annotated[
    bool,
    typer.Option("--no-stop", help="Ask all pairs, even if fewer are enough.", rich_help_panel=STRATEGY),
]
Proxy = Annotated[
    bool,
    typer.Option(
        "--proxy",
        rich_help_panel=STRATEGY,
        help="Without labels, measure how often verdicts on partial and full views agree (not an accuracy).",
    ),
]
Simulate = Annotated[
    str | None,
    typer.Option(
        "--simulate",
        metavar="PERCENT",
        rich_help_panel=STRATEGY,
        help="Diagnose a synthetic judge that is right in 60, 70, 80 or 90 % of comparisons.",
        autocompletion=options.completion(PRESETS),
    ),
]
Contests = Annotated[
    int,
    typer.Option(
        "--contests",
        min=1,
        metavar="N",
        rich_help_panel=STRATEGY,
        help="Contests to simulate for the expected figures of each strategy.",
    ),
]
Save = Annotated[
    Path | None,
    typer.Option(
        "--save",
        metavar="FILE",
        help="File for the profile of the judge, for --judge-profile.",
        rich_help_panel=FILES,
    ),
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
    """Measure how accurate a judge is, and recommend a strategy.

    The judge compares pairs of a right and a wrong candidate, on partial and on full views and in both
    orders, until both accuracies differ clearly from chance, or --pairs are asked. Replies are stored in the
    journal, where caps select finds them. --set changes the synthetic judge of --simulate: position_bias=0.3.
    """
    plan = Plan(pairs=pairs, per_case=per_case, stop=not no_stop, proxy=proxy, seed=config.seed)
    changes = {name: str(value) for name, value in config.settings.items()}
    config = replace(config, settings={})
    if proxy and save is not None:
        raise SettingError("--save needs labels: without them the accuracy of the judge is unknown")
    if changes and simulate_ is None:
        raise SettingError("--set changes the synthetic judge: add --simulate")
    found = _subjects(cases, limit, config, plan, simulated=simulate_ is not None)
    scheduled = schedule(found, plan)
    if not scheduled:
        raise InputError(f"{cases}: {explain_nothing(found, plan)}")
    output = DiagnosisOutput(
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
        raise typer.Exit(
            output.print(asked, JudgeLabel(source=f"simulated judge {simulate_}", simulated=True))
        )
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
    raise typer.Exit(output.print(answered, named))


def _subjects(
    cases: str | None, limit: int | None, config: RunConfig, plan: Plan, *, simulated: bool
) -> list[Subject]:
    if cases is None and not simulated:
        raise SettingError(
            "no cases: name a file of labelled cases, or use --simulate 80 for a synthetic judge"
        )
    if simulated and plan.proxy:
        raise SettingError("--proxy is for cases without labels, and a synthetic judge needs labels")
    if cases is None:
        return list(of_pools(generated_pools(PoolModel(), limit or MADE_UP, plan.seed)))
    views = {name: str(view) for name, view in config.views.items()}
    return list(subjects(islice(open_cases(cases), limit), make_prepare(config.profile, views)))


def _simulated(preset: str, changes: dict[str, str], scheduled: list[Subject], plan: Plan) -> DiagnosisRun:
    if preset not in PRESETS:
        raise SettingError(f"--simulate {preset!r}: must be one of {', '.join(PRESETS)}")
    return simulate(scheduled, plan, override(PRESETS[preset], changes))


def _again(config: RunConfig) -> tuple[str, ...]:
    """The options of this command that `caps select` needs too."""
    given = (
        ("--model", config.model),
        ("--base-url", join_addresses(config.base_url)),
        ("--judge-model", config.judge_model),
        ("--judge-base-url", join_addresses(config.judge_base_url)),
        ("--judge-model-e1", config.judge_model_e1),
        ("--judge-base-url-e1", join_addresses(config.judge_base_url_e1)),
        ("--profile", config.profile),
        ("--reply-format", config.reply_format),
        ("--confidence", None if config.confidence == "verbal" else config.confidence),
    )
    return tuple(word for option, value in given if value for word in (option, value))


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


async def judged_live(
    runner: Runner, scheduled: Sequence[Subject], plan: Plan, *, quiet: bool
) -> DiagnosisRun | None:
    """Ask the judge; None after Ctrl-C or SIGTERM. Replies stay in the journal."""
    total = sum(len(subject.probe_pairs) for subject in scheduled)
    with Progress("pairs", total, hidden=quiet) as progress:
        answered = await run_until_signal(ask(runner, scheduled, plan, advance=progress.advance))
    if answered is None:
        report_interrupted(runner.journal_path)
    return answered


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisOutput:
    """Prints a diagnosis, and writes its profile, figures and page."""

    cases: str | None
    plan: Plan
    found: Sequence[Subject]
    contests: int
    save: Path | None
    plots: Path | None
    html: Path | None
    date: str
    as_json: bool
    quiet: bool

    def print(self, asked: DiagnosisRun, judge: JudgeLabel) -> int:
        """Print and write everything; return the exit code."""
        with FailureLog() as failures:
            for failure in asked.failures:
                failures.add(str(failure))
        if not asked.looks:
            say(
                "no pair was answered completely, so the judge cannot be measured: see the failures above",
                "red",
            )
            return 3 if asked.ended else 1
        if self.plan.proxy:
            self._print_proxy(asked, judge)
        else:
            self._print_conclusion(asked, judge)
        if asked.ended:
            say(f"the {asked.ended} was used up before all pairs were asked", "yellow")
        return 1 if asked.failures else 3 if asked.ended else 0

    def _print_proxy(self, asked: DiagnosisRun, judge: JudgeLabel) -> None:
        measured = measured_of(asked)
        page = proxy_page(measured, judge, made=self._made(asked, judge))
        write_figures(proxy_pictures(measured), page, plots=self.plots, html=self.html)
        if self.as_json:
            print_json(diagnosed_rows.proxy_row(measured, asked))
            return
        stdout().print(diagnosed.proxy_figures(measured))
        _print([*diagnosed.remarks(measured, labelled=False), diagnosed.PROXY])

    def _print_conclusion(self, asked: DiagnosisRun, judge: JudgeLabel) -> None:
        with Progress("simulated contests", self.contests, hidden=self.quiet) as progress:
            found = conclude(
                asked, self.found, seed=self.plan.seed, contests=self.contests, report=progress.advance
            )
        line = diagnosed.command(
            self.cases or "CASES", found.chosen, judge.words, None if self.save is None else str(self.save)
        )
        if self.save is not None:
            row = diagnosed_rows.kept_row(found, asked, judge, date=self.date, seed=self.plan.seed)
            write_file(self.save, msgspec.json.format(msgspec.json.encode(row)) + b"\n", option="--save")
            say(f"profile: {self.save}")
        pictures = diagnosis_pictures(found.measured, found.options, found.chosen, stamp_of(judge))
        page = diagnosis_page(found, judge, line, pairs_most=self.plan.pairs, made=self._made(asked, judge))
        write_figures(pictures, page, plots=self.plots, html=self.html)
        if self.as_json:
            print_json(diagnosed_rows.diagnosis_row(found, asked, judge, line))
        else:
            self._print_all(found, line, judge)

    def _made(self, asked: DiagnosisRun, judge: JudgeLabel) -> list[tuple[str, str]]:
        """How this diagnosis was made, for its page."""
        plan = self.plan
        facts = {
            "cases": self.cases or "made up", "judge": judge.source, "model": judge.model,
            "model at E1": judge.model_e1,
            "confidence": asked.confidence, "date": self.date, "seed": plan.seed, "pairs at most": plan.pairs,
            "pairs of a case": plan.per_case, "stops when settled": "yes" if plan.stop else "no",
            "contests simulated": self.contests,
        }  # fmt: skip
        return [(name, str(value)) for name, value in facts.items() if value is not None]

    def _print_all(self, found: Conclusion, line: str, judge: JudgeLabel) -> None:
        if judge.simulated:
            _print([f"{judge.source}: the figures below are simulated", ""])
        stdout().print(diagnosed.figures(found.measured))
        answer = diagnosed.judged_words(found.measured, pairs_most=self.plan.pairs)
        _print(["", *diagnosed.remarks(found.measured), "", *answer, ""])
        stdout().print(diagnosed.options_table(found.options, found.chosen))
        measure = diagnosed.paper_measure(found.options)
        advice = diagnosed.advice_words(found.measured, found.chosen)
        _print([*([measure] if measure else []), "", *advice, ""])
        stdout().print(shown(line), markup=False, soft_wrap=True)


def _print(lines: Iterable[str]) -> None:
    """Print sentences, wrapped in a terminal only."""
    console = stdout()
    for words in lines:
        console.print(shown(words), markup=False, soft_wrap=not console.is_terminal)
