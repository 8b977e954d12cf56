"""`caps replay`: redo a run from its journal, with no model."""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from caps.cli import options
from caps.cli.output import SetOption, put, say
from caps.cli.select import select_cases
from caps.config import Keys, RunConfig, parse_assignments
from caps.core.errors import InputError, JournalError, NotRecordedError
from caps.core.secrets import is_masked, unrecorded
from caps.core.text import number
from caps.datasets.imports import open_cases
from caps.engines.base import CaseRun
from caps.engines.budget import BudgetLimits, CaseBudget, RunBudget
from caps.engines.local import fast_forward
from caps.findings.base import recall
from caps.journal.store import Journal
from caps.runner import Runner
from caps.runs.folder import RunRecord, read_run
from caps.runs.result_lines import json_lines, selection_line
from caps.runs.run_file import check_prompts

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, made with --out.")]
Other = Annotated[str | None, typer.Option("--strategy", help="Another strategy over the same journal.")]
Profile = Annotated[
    Path | None, typer.Option("--judge-profile", help="What caps diagnose --save measured of the judge.")
]
Ask = Annotated[bool, typer.Option("--ask", help="Ask the run's endpoint what the journal does not hold.")]


def replay(
    run: Run,
    strategy: Other = None,
    set_: SetOption = None,
    judge_profile: Profile = None,
    ask: Ask = False,
    api_key: options.ApiKey = None,
    out: options.Out = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Redo a run from its journal and print the same selections; no model is asked.

    With --strategy or --set, another choice is made from the same replies; what that needs beyond them is
    counted, and asked only with --ask.
    """
    record = read_run(run)
    config = record.file.config
    other = strategy is not None or bool(set_) or judge_profile is not None
    if other:
        config = replace(
            config,
            strategy=strategy or config.strategy,
            settings=parse_assignments(set_ or []),
            skip_failing=config.skip_failing and strategy is None,
            judge_profile=None if judge_profile is None else str(judge_profile),
            calibrate=None,
        )
    if record.file.cases == "-":
        raise InputError(f"{run}: this run read standard input; save the cases to a file to replay them")
    if ask:
        _refuse_unrecorded(config)
        config = replace(config, engine="local", budget_seconds=None, calibrate=None)
        keys = Keys.find(config, api_key=api_key)
        select_cases(
            record.file.cases, config, keys, out=out, force=force, limit=record.file.limit, quiet=quiet,
            as_json=True,
        )  # fmt: skip
    runner = Runner(replace(config, budget_seconds=None), offline=True)
    _ = runner.strategy  # raises what is wrong with it
    if runner.journal_path is None or not runner.journal_path.is_file():
        raise JournalError(
            f"{runner.journal_path}: the journal of this run is not there: nothing can be replayed"
        )
    check_prompts(record.file, runner)
    with Journal.open(runner.journal_path) as journal:
        replayed = _Replay(record, runner, journal, other=other)
        replayed.play()
    raise typer.Exit(replayed.close(quiet=quiet))


class _Replay:
    """Fast-forwards every case of a run and keeps count of what is open and what came out differently."""

    def __init__(self, record: RunRecord, runner: Runner, journal: Journal, *, other: bool) -> None:
        self._record, self._runner, self._other = record, runner, other
        self._price, self._journal = runner.price, journal
        self._judge = runner.replayed_judge(journal, {} if other else record.unanswered)
        self._lines: list[dict[str, Any]] = []
        self._open: list[str] = []
        self._failed: list[str] = []
        self._different: list[str] = []
        self._asks = self._tokens = 0

    def play(self) -> None:
        """Play every case as far as the journal reaches."""
        file, runner = self._record.file, self._runner
        for place, case in enumerate(islice(open_cases(file.cases), file.limit)):
            if isinstance(case, InputError):
                self._failed.append(str(case))
                continue
            budget = CaseBudget(runner.case_budget, self._price, RunBudget(BudgetLimits(), self._price))
            try:
                known = recall(self._journal, file.findings, case)
            except NotRecordedError:  # the run did not come that far
                self._open.append(case.id)
                continue
            play = CaseRun(place, runner.prepare(known), runner.strategy, runner.config.seed, budget)
            missing = fast_forward(play, self._judge)
            if missing:
                self._open.append(case.id)
                self._asks += len(missing)
                asks = [play.round.asks[i] for i in missing] if play.round else []
                sizes = {entrant.id: entrant.sizes for entrant in play.prepared.evidence.entrants}
                shown = [sizes[one][ask.level] for ask in asks for one in ask.entrants]
                self._tokens += sum(shown) + len(asks) * play.prepared.statement
                continue
            line = selection_line(play.outcome, runner.config, price=self._price)
            if play.outcome.failure is not None:
                self._failed.append(f"case {case.id!r}: {play.outcome.failure}")
                continue
            was = self._record.selections.get(case.id)
            if was is not None and not self._other and was.get("order") != list(line["order"]):
                self._different.append(case.id)
            self._lines.append(line)

    def close(self, *, quiet: bool) -> int:
        """Print what was selected and what is missing; the exit code."""
        for words in self._failed:
            say(f"failed: {words}", "red")
        if self._open and self._other:
            raise JournalError(
                f"{self._asks} asks of the next rounds of {len(self._open)} cases are not in the journal, "
                f"about {number(self._tokens, 0)} tokens of candidates ({self._money()}), and what they "
                "lead to comes on top: add --ask to send them"
            )
        for line in self._lines:
            put(json_lines([line]))
        if not quiet:
            for name in self._open:
                say(f"unfinished: case {name!r}", "yellow")
            for name in self._different:
                say(f"different from the run: case {name!r}", "red")
            same = "" if self._other or self._different else ", all as in the run"
            say(f"{len(self._lines)} cases replayed without a call{same}")
        return 1 if self._open or self._failed or self._different else 0

    def _money(self) -> str:
        return (
            "price unknown" if self._price is None else f"${self._price.of(self._tokens, 0):.4f} to read them"
        )


def _refuse_unrecorded(config: RunConfig) -> None:
    """A run's folder holds no credentials, so what was asked with some cannot be asked from there."""
    lacking = [f"extra {name!r}" for name in unrecorded(config.extra)]
    for name in ("base_url", "judge_base_url", "judge_base_url_e1"):
        lacking += [name] if any(map(is_masked, getattr(config, name))) else []
    if lacking:
        raise InputError(
            f"run.json holds no values that may be secret, and {lacking[0]} has one, so --ask cannot "
            "send it: run the command of the run again; its journal answers what was asked already"
        )
