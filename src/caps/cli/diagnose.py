"""`caps diagnose`: measure how accurate a judge is, and recommend a strategy."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

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
from caps.core.types import Level
from caps.datasets.imports import open_cases
from caps.evidence.domains import with_stated_domain
from caps.files import write_file
from caps.judging.simulated import PRESETS
from caps.reports import diagnosis
from caps.reports.diagnosis import JudgeLabel
from caps.reports.diagnosis_page import diagnosis_page, diagnosis_pictures, stamp_of
from caps.session.parts import make_prepare
from caps.session.resolve import Resolved
from caps.strategies.belief import accuracy
from caps.studies.advice import CONTESTS, Conclusion, Findings, conclude, findings_of
from caps.studies.diagnosis import (
    DiagnosisRun,
    Plan,
    Subject,
    ask,
    explain_no_pairs,
    has_labels,
    of_pools,
    schedule,
    simulate,
    subjects,
)
from caps.studies.nearly_known import ABOUT, CORRECTED, corrected, with_presumed_labels
from caps.studies.simulation import PoolModel, generated_pools

MADE_UP = 300
DEFAULTS = Plan()

Cases = Annotated[
    str | None,
    typer.Argument(metavar="[CASES]", help="Cases, with labels if possible."),
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
    precision: Precision = DEFAULTS.precision,
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
    orders, until the accuracy on full views is known to --precision, or --pairs are asked. Without labels,
    it compares candidates of which the better one is nearly known from votes or public tests.
    Replies are stored in the journal, where caps select finds them. Several --model, or several --simulate,
    are compared in one table. --set changes the simulated judge of --simulate: position_bias=0.3. Several
    judges (--judge, or [[judge]] tables of --config) are measured as one.
    """
    changes = {name: str(value) for name, value in config.settings.items()}
    config = replace(config, settings={})
    if changes and not simulate_:
        raise SettingError("--set changes the simulated judge: add --simulate")
    if model and config.recorded is not None:
        raise SettingError("--recorded answers in place of a model: leave --model out")
    names: list[str | None] = [*dict.fromkeys(simulate_ or model or ())] or [None]
    if len(names) > 1 and (save or plots or html):
        raise SettingError("--save, --plots and --html are for one judge: diagnose each by itself")
    plan = Plan(pairs=pairs, precision=precision, seed=config.seed)
    found = _subjects(cases, limit, config, simulated=bool(simulate_))
    if not has_labels(found):
        if simulate_ or len(names) > 1 or plots or html:
            raise SettingError(
                "--simulate, several judges, --plots and --html need labels (candidates[].correct), and no "
                "candidate carries one: see caps grade"
            )
        found = list(map(with_presumed_labels, found))
    scheduled = schedule(found, plan)
    if not scheduled:
        raise InputError(f"{cases}: {explain_no_pairs(found)}")
    file = loaded_settings(ctx)
    diagnosed = []
    for name in names:
        if simulate_:
            diagnosed.append(_simulated(name, changes, scheduled, plan))
        else:
            named = config if name is None else replace(config, model=name)
            diagnosed.append(_live(named, keys, scheduled, plan, cases, file, quiet=quiet))
    output = DiagnosisOutput(cases, plan, found, contests, save, plots, html, as_json=as_json, quiet=quiet)
    raise typer.Exit(output.print(diagnosed))


class Diagnosed(NamedTuple):
    """A judge and its answers."""

    run: DiagnosisRun
    judge: JudgeLabel


def _subjects(cases: str | None, limit: int | None, config: RunConfig, *, simulated: bool) -> list[Subject]:
    if cases is None:
        if not simulated:
            raise SettingError(
                "no cases: name a file of labelled cases, or use --simulate 80 for a simulated judge"
            )
        return list(of_pools(generated_pools(PoolModel(), limit or MADE_UP, config.seed)))
    views = {name: str(view) for name, view in config.views.items()}
    source = islice(open_cases(cases, fields=config.map, say=say), limit)
    stated = (with_stated_domain(case, config.domain) for case in source)
    prepare = make_prepare(config.profile, views, context=config.context_tokens, reply=config.max_tokens)
    return list(subjects(stated, prepare))


def _simulated(
    preset: str | None, changes: dict[str, str], scheduled: list[Subject], plan: Plan
) -> Diagnosed:
    if preset not in PRESETS:
        raise SettingError(f"--simulate {preset!r}: must be one of {', '.join(PRESETS)}")
    run = simulate(scheduled, plan, override(PRESETS[preset], changes))
    return Diagnosed(run, JudgeLabel(source=f"simulated judge {preset}", simulated=True))


def _live(
    config: RunConfig, keys: Keys, scheduled: list[Subject], plan: Plan, cases: str | None,
    file: tuple[str, str] | None, *, quiet: bool,
) -> Diagnosed:  # fmt: skip
    with resolved_for(config, keys, quiet=quiet) as resolved:
        answered = asyncio.run(_judged_live(resolved, scheduled, plan, quiet=quiet))
        if answered is None:
            raise typer.Exit(130)
        source = f"caps diagnose {cases}"
        if config.recorded is not None and not config.judges:
            source = f"recorded in {config.recorded}"
            config = replace(config, recorded_judge=resolved.judge_name)
        words = command_words(config, JUDGING, file=None if file is None else file[0])
        return Diagnosed(
            answered,
            JudgeLabel(source=source, model=resolved.judge_name, words=tuple(words), price=resolved.price),
        )


async def _judged_live(
    resolved: Resolved, scheduled: Sequence[Subject], plan: Plan, *, quiet: bool
) -> DiagnosisRun | None:
    """Ask the judge; None after Ctrl-C or SIGTERM. Replies stay in the journal."""
    total = sum(len(subject.probe_pairs) for subject in scheduled)
    with Progress("pairs", total, hidden=quiet) as progress:
        answered = await run_until_signal(ask(resolved, scheduled, plan, advance=progress.advance))
    if answered is None:
        report_interrupted(resolved.journal)
    return answered


@dataclass(frozen=True, slots=True)
class DiagnosisOutput:
    """Prints a diagnosis, and writes its profile, figures and page."""

    cases: str | None
    plan: Plan
    found: Sequence[Subject]
    contests: int
    save: Path | None
    plots: Path | None
    html: Path | None
    as_json: bool
    quiet: bool

    def print(self, diagnosed: Sequence[Diagnosed]) -> int:
        """Print and write everything, several judges in one table; return the exit code."""
        with FailureLog() as failures:
            for run, judge in diagnosed:
                for failure in run.failures:
                    failures.add(failure if len(diagnosed) == 1 else f"{judge.name}: {failure}")
        answered = [one for one in diagnosed if one.run.observations]
        for run, judge in diagnosed:
            if not run.observations:
                say(f"{judge.name}: no pair was answered completely, so the judge cannot be measured", "red")
        if len(diagnosed) > 1 and answered:
            self._compare(answered)
        elif answered and has_labels(self.found):
            self._conclude(*answered[0])
        elif answered:
            self._conclude_unlabelled(*answered[0])
        ended = next((run.ended for run, _ in diagnosed if run.ended), None)
        if ended:
            say(f"the {ended} was used up before all pairs were asked", "yellow")
        failed = any(run.failures or not (run.observations or run.ended) for run, _ in diagnosed)
        return 1 if failed else 3 if ended else 0

    def _compare(self, diagnosed: Sequence[Diagnosed]) -> None:
        concluded = [(self._conclusion(run), run, judge) for run, judge in diagnosed]
        rows = diagnosis.comparison_rows(concluded)
        if self.as_json:
            print_json({"judges": rows})
        else:
            stdout().print(diagnosis.comparison(rows))
            _print(f"warning: {row['judge']}: {words}" for row in rows for words in row["warnings"])

    def _conclusion(self, run: DiagnosisRun) -> Conclusion:
        with Progress("simulated contests", self.contests, hidden=self.quiet) as progress:
            return conclude(
                run, self.found, seed=self.plan.seed, contests=self.contests, report=progress.advance
            )

    def _conclude(self, run: DiagnosisRun, judge: JudgeLabel) -> None:
        found, save = self._conclusion(run), self.save
        if save is None and self.html is not None and found.chosen.profiled:
            save = self.html.with_suffix(".judge.json")  # the command on the page names it
        chosen, profile = found.chosen, save if found.chosen.profiled else None
        cases = self.cases or "CASES"
        line = diagnosis.command(cases, chosen.strategy, chosen.settings, judge.words, profile)
        if save is not None:
            self._save(found, run, judge, save)
        pictures = diagnosis_pictures(found.measured, found.options, found.chosen, stamp_of(judge))
        made = self._made(run, judge)
        page = diagnosis_page(found, judge, line, pairs_most=self.plan.pairs, made=made)
        write_figures(pictures, page, plots=self.plots, html=self.html)
        if self.as_json:
            print_json(diagnosis.diagnosis_row(found, run, judge, line))
        else:
            self._print_all(found, line, judge)

    def _conclude_unlabelled(self, run: DiagnosisRun, judge: JudgeLabel) -> None:
        found = findings_of(run)
        found = replace(found, profile=corrected(found.profile))
        judge = replace(judge, source=f"{judge.source}, without labels")
        line = diagnosis.command(str(self.cases), "posterior", {}, judge.words, self.save)
        if self.save is not None:
            self._save(found, run, judge, self.save)
        if self.as_json:
            print_json(diagnosis.findings_row(found, run, judge) | {"labels": "presumed", "command": line})
            return
        _print([ABOUT, ""])
        stdout().print(diagnosis.figures(found.measured))
        _print(["", *diagnosis.remarks(found.measured), ""])
        partial, full = (100 * accuracy(found.profile, level) for level in (Level.PARTIAL, Level.FULL))
        _print([f"{CORRECTED}: right in {partial:.0f} % at E1, in {full:.0f} % at E2"])
        _print([*(f"warning: {words}" for words in found.warnings), ""])
        self._print_command(line)

    def _save(self, found: Findings, run: DiagnosisRun, judge: JudgeLabel, path: Path) -> None:
        row = diagnosis.kept_row(found, run, judge, date=_today(), seed=self.plan.seed)
        option = "--save" if self.save is not None else "--html"
        write_file(path, msgspec.json.format(msgspec.json.encode(row)) + b"\n", option=option)
        say(f"profile: {path}")

    def _made(self, run: DiagnosisRun, judge: JudgeLabel) -> list[tuple[str, str]]:
        """How this diagnosis was made, for its page."""
        facts = {
            "cases": self.cases or "made up", "judge": judge.source, "model": judge.model,
            "confidence": run.confidence, "date": _today(), "seed": self.plan.seed,
            "pairs at most": self.plan.pairs, "stops at a precision of": self.plan.precision,
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
        self._print_command(line, profiled=found.chosen.profiled)

    def _print_command(self, line: str, *, profiled: bool = True) -> None:
        stdout().print(printable(line), markup=False, soft_wrap=True)
        if profiled and "--judge-profile" not in line:
            say("the command assumes an average judge; with --save FILE it uses what was measured")


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _print(lines: Iterable[str]) -> None:
    """Print sentences, wrapped in a terminal only."""
    console = stdout()
    for words in lines:
        console.print(printable(words), markup=False, soft_wrap=not console.is_terminal)
