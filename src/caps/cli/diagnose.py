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

from caps.cli import options
from caps.cli.figures import Html, Plots, write_figures
from caps.cli.help import FILES, JUDGE, STRATEGY
from caps.cli.options import JsonFlag, configured, loaded_settings
from caps.cli.output import FailureLog, print_json, say, stdout
from caps.cli.preflight import resolved_for
from caps.cli.progress import Progress
from caps.cli.signals import report_interrupted, run_until_signal
from caps.config import JUDGING, Keys, RunConfig, command_words
from caps.config import options as options_of
from caps.core.errors import InputError, SettingError
from caps.core.settings import override
from caps.core.text import printable
from caps.datasets.imports import open_cases
from caps.evidence.domains import with_stated_domain
from caps.files import write_file
from caps.judging.simulated import PRESETS
from caps.reports import diagnosis
from caps.reports.diagnosis import JudgeLabel
from caps.reports.diagnosis_page import (
    diagnosis_page,
    diagnosis_pictures,
    proxy_page,
    proxy_pictures,
    stamp_of,
)
from caps.session.parts import make_prepare
from caps.session.resolve import Resolved
from caps.studies.advice import CONTESTS, Conclusion, conclude, measured_of
from caps.studies.diagnosis import (
    DiagnosisRun,
    Plan,
    Subject,
    ask,
    explain_no_pairs,
    of_pools,
    schedule,
    simulate,
    subjects,
)
from caps.studies.simulation import PoolModel, generated_pools

MADE_UP = 300
DEFAULTS = Plan()

Cases = Annotated[
    str | None, typer.Argument(metavar="[CASES]", help="Labelled cases. Not needed with --simulate.")
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        *options_of()["model"].flags,
        envvar=list(options_of()["model"].env),
        metavar="NAME",
        help="Model that judges. Repeat the option to compare several judges in one table.",
        rich_help_panel=JUDGE,
    ),
]
Pairs = Annotated[
    int,
    typer.Option(
        "--pairs",
        min=1,
        metavar="N",
        help="Maximum number of pairs, four calls each.",
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
Precision = Annotated[
    float,
    typer.Option(
        "--precision",
        min=0.001,
        max=1,
        metavar="SHARE",
        help="Stop when the accuracy is known to plus or minus this share, with 90 % confidence.",
        rich_help_panel=STRATEGY,
    ),
]
Ratings = Annotated[
    bool,
    typer.Option(
        "--ratings",
        help="Also ask for a rating of each candidate of these pairs, one call each.",
        rich_help_panel=STRATEGY,
    ),
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
    list[str] | None,
    typer.Option(
        "--simulate",
        metavar="JUDGE",
        rich_help_panel=STRATEGY,
        help="Diagnose a simulated judge: 60, 70, 80 or 90 (% right), strong, reasoning, weak or biased. "
        "May be repeated.",
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
    "judge", "recorded", "asking", "strategy", "evidence", "domain", "performance", "context",
    "journal", "cases", "price", "total budget", "total budget seconds",
    defaults={"hard_evidence": "off"},
    without=("model", "strategy", "skip_failing", "judge_profile"),
)  # fmt: skip
def diagnose(
    ctx: typer.Context,
    config: RunConfig,
    keys: Keys,
    cases: Cases = None,
    model: Models = None,
    pairs: Pairs = DEFAULTS.pairs,
    per_case: PerCase = DEFAULTS.per_case,
    precision: Precision = DEFAULTS.precision,
    no_stop: NoStop = False,
    ratings: Ratings = False,
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
    orders, until the accuracy on full views is known to --precision, or --pairs are asked.
    Replies are stored in the journal, where caps select finds them. Several --model, or several --simulate,
    are compared in one table. --set changes the simulated judge of --simulate: position_bias=0.3. Several
    judges (--judge, or [[judge]] tables of --config) are measured as one.
    """
    plan = Plan(
        pairs=pairs, per_case=per_case, precision=precision, stop=not no_stop, ratings=ratings, proxy=proxy,
        seed=config.seed,
    )  # fmt: skip
    changes = {name: str(value) for name, value in config.settings.items()}
    config = replace(config, settings={})
    if proxy and save is not None:
        raise SettingError("--save needs labels: without them the accuracy of the judge is unknown")
    if changes and not simulate_:
        raise SettingError("--set changes the simulated judge: add --simulate")
    names: list[str | None] = [*dict.fromkeys(simulate_ or model or ())] or [None]
    if model and config.recorded is not None:
        raise SettingError("--recorded answers in place of a model: leave --model out")
    if len(names) > 1 and (proxy or save or plots or html):
        raise SettingError("--proxy, --save, --plots and --html are for one judge: diagnose each by itself")
    found = _subjects(cases, limit, config, plan, simulated=bool(simulate_))
    scheduled = schedule(found, plan)
    if not scheduled:
        raise InputError(f"{cases}: {explain_no_pairs(found, plan)}")
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
    judged = [
        _simulated(name, changes, scheduled, plan)
        if simulate_
        else _live(
            config if name is None else replace(config, model=name),
            keys,
            scheduled,
            plan,
            cases,
            file=loaded_settings(ctx),
            quiet=quiet,
        )
        for name in names
    ]
    raise typer.Exit(output.print(*judged[0]) if len(judged) == 1 else output.compare(judged))


def _live(
    config: RunConfig,
    keys: Keys,
    scheduled: list[Subject],
    plan: Plan,
    cases: str | None,
    *,
    file: tuple[str, str] | None,
    quiet: bool,
) -> tuple[DiagnosisRun, JudgeLabel]:
    with resolved_for(config, keys, quiet=quiet) as resolved:
        answered = asyncio.run(judged_live(resolved, scheduled, plan, quiet=quiet))
        if answered is None:
            raise typer.Exit(130)
        source = f"caps diagnose {cases}"
        if config.recorded is not None and not config.judges:
            source = f"recorded in {config.recorded}"
            config = replace(config, recorded_judge=resolved.judge_name)
        words = command_words(config, JUDGING, file=None if file is None else file[0])
        return answered, JudgeLabel(
            source=source, model=resolved.judge_name, words=tuple(words), price=resolved.price
        )


def _subjects(
    cases: str | None, limit: int | None, config: RunConfig, plan: Plan, *, simulated: bool
) -> list[Subject]:
    if cases is None and not simulated:
        raise SettingError(
            "no cases: name a file of labelled cases, or use --simulate 80 for a simulated judge"
        )
    if simulated and plan.proxy:
        raise SettingError("--proxy is for cases without labels, and a simulated judge needs labels")
    if cases is None:
        return list(of_pools(generated_pools(PoolModel(), limit or MADE_UP, plan.seed)))
    views = {name: str(view) for name, view in config.views.items()}
    source = islice(open_cases(cases, fields=config.map, say=say), limit)
    stated = (with_stated_domain(case, config.domain) for case in source)
    prepare = make_prepare(config.profile, views, context=config.context_tokens, reply=config.max_tokens)
    return list(subjects(stated, prepare))


def _simulated(
    preset: str | None, changes: dict[str, str], scheduled: list[Subject], plan: Plan
) -> tuple[DiagnosisRun, JudgeLabel]:
    if preset not in PRESETS:
        raise SettingError(f"--simulate {preset!r}: must be one of {', '.join(PRESETS)}")
    asked = simulate(scheduled, plan, override(PRESETS[preset], changes))
    return asked, JudgeLabel(source=f"simulated judge {preset}", simulated=True)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


async def judged_live(
    resolved: Resolved, scheduled: Sequence[Subject], plan: Plan, *, quiet: bool
) -> DiagnosisRun | None:
    """Ask the judge; None after Ctrl-C or SIGTERM. Replies stay in the journal."""
    total = sum(len(subject.probe_pairs) for subject in scheduled)
    with Progress("pairs", total, hidden=quiet) as progress:
        answered = await run_until_signal(ask(resolved, scheduled, plan, advance=progress.advance))
    if answered is None:
        report_interrupted(resolved.journal)
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
        if not asked.observations:
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

    def compare(self, several: Sequence[tuple[DiagnosisRun, JudgeLabel]]) -> int:
        """Print several judges in one table; return the exit code."""
        with FailureLog() as failures:
            for asked, judge in several:
                for failure in asked.failures:
                    failures.add(f"{judge.name}: {failure}")
        for asked, judge in several:
            if not asked.observations:
                say(f"{judge.name}: no pair was answered completely, so it cannot be measured", "red")
        answered = [(asked, judge) for asked, judge in several if asked.observations]
        if not answered:
            return 1
        found = [(self._concluded(asked), asked, judge) for asked, judge in answered]
        rows = diagnosis.comparison_rows(found)
        if self.as_json:
            print_json({"judges": rows})
        else:
            stdout().print(diagnosis.comparison(rows))
            _print(f"warning: {row['judge']}: {words}" for row in rows for words in row["warnings"])
        failed = any(asked.failures or not asked.observations for asked, _ in several)
        return 1 if failed else 3 if any(asked.ended for asked, _ in several) else 0

    def _concluded(self, asked: DiagnosisRun) -> Conclusion:
        with Progress("simulated contests", self.contests, hidden=self.quiet) as progress:
            return conclude(
                asked, self.found, seed=self.plan.seed, contests=self.contests, report=progress.advance
            )

    def _print_proxy(self, asked: DiagnosisRun, judge: JudgeLabel) -> None:
        measured = measured_of(asked)
        page = proxy_page(measured, judge, made=self._made(asked, judge))
        write_figures(proxy_pictures(measured), page, plots=self.plots, html=self.html)
        if self.as_json:
            print_json(diagnosis.proxy_row(measured, asked))
            return
        stdout().print(diagnosis.figures(measured, labelled=False))
        _print([*diagnosis.remarks(measured, labelled=False), diagnosis.PROXY])

    def _print_conclusion(self, asked: DiagnosisRun, judge: JudgeLabel) -> None:
        found = self._concluded(asked)
        save = self.save
        if save is None and self.html is not None and found.chosen.profiled:
            save = self.html.with_suffix(".judge.json")  # the command on the page names it
        line = diagnosis.command(
            self.cases or "CASES", found.chosen, judge.words, None if save is None else str(save)
        )
        if save is not None:
            row = diagnosis.kept_row(found, asked, judge, date=self.date, seed=self.plan.seed)
            option = "--save" if self.save is not None else "--html"
            write_file(save, msgspec.json.format(msgspec.json.encode(row)) + b"\n", option=option)
            say(f"profile: {save}")
        pictures = diagnosis_pictures(found.measured, found.options, found.chosen, stamp_of(judge))
        page = diagnosis_page(found, judge, line, pairs_most=self.plan.pairs, made=self._made(asked, judge))
        write_figures(pictures, page, plots=self.plots, html=self.html)
        if self.as_json:
            print_json(diagnosis.diagnosis_row(found, asked, judge, line))
        else:
            self._print_all(found, line, judge)

    def _made(self, asked: DiagnosisRun, judge: JudgeLabel) -> list[tuple[str, str]]:
        """How this diagnosis was made, for its page."""
        plan = self.plan
        facts = {
            "cases": self.cases or "made up", "judge": judge.source, "model": judge.model,
            "confidence": asked.confidence, "date": self.date, "seed": plan.seed, "pairs at most": plan.pairs,
            "pairs of a case": plan.per_case, "stops when settled": "yes" if plan.stop else "no",
            "contests simulated": self.contests,
        }  # fmt: skip
        return [(name, str(value)) for name, value in facts.items() if value is not None]

    def _print_all(self, found: Conclusion, line: str, judge: JudgeLabel) -> None:
        if judge.simulated:
            _print([f"{judge.source}: the figures below are simulated", ""])
        stdout().print(diagnosis.figures(found.measured))
        answer = diagnosis.judged_words(found.measured, pairs_most=self.plan.pairs)
        _print(["", *diagnosis.remarks(found.measured), "", *answer])
        _print([*(f"warning: {words}" for words in found.warnings), ""])
        stdout().print(diagnosis.options_table(found.options, found.chosen))
        measure = diagnosis.paper_measure(found.options)
        advice = diagnosis.advice_words(found.measured, found.chosen)
        _print([*([measure] if measure else []), "", *advice, ""])
        stdout().print(printable(line), markup=False, soft_wrap=True)
        if found.chosen.profiled and "--judge-profile" not in line:
            say("the command assumes an average judge; with --save FILE it uses what was measured")


def _print(lines: Iterable[str]) -> None:
    """Print sentences, wrapped in a terminal only."""
    console = stdout()
    for words in lines:
        console.print(printable(words), markup=False, soft_wrap=not console.is_terminal)
