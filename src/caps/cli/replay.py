"""`caps replay`: repeat a run from its journal, without a model."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from caps.cli import options
from caps.cli.help import JUDGE, STRATEGY
from caps.cli.options import allow_named, named_domain
from caps.cli.output import FailureLog, say, write_result
from caps.cli.select import select_cases
from caps.config import Keys, RunConfig
from caps.config.sources import parse_assignments
from caps.core.errors import InputError, JournalError, NotRecordedError
from caps.core.secrets import is_masked, unrecorded
from caps.core.text import number, plural
from caps.core.types import shown_size
from caps.costs.prices import Price
from caps.engines.base import CaseRun
from caps.engines.budget import BudgetLimits, CaseBudget, RunBudget
from caps.engines.local import fast_forward
from caps.findings.base import recall
from caps.journal.store import Journal
from caps.judging.base import Judge
from caps.models.journaled import ReplayedModel
from caps.registry import STRATEGIES
from caps.runs.adaptive_lines import adaptive_line
from caps.runs.folder import RunRecord, read_rulings, read_run, run_folders
from caps.runs.rebuild import TranscriptJudge
from caps.runs.result_lines import json_lines, selection_line
from caps.runs.run_file import check_prompts
from caps.runs.shards import Shard
from caps.session.engines import case_budget
from caps.session.resolve import Objects, Resolved, resolve
from caps.session.session import replayed_judge, replays_from_journal
from caps.session.solving import question_case, solve_case

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, made with --out.")]
Other = Annotated[
    str | None,
    typer.Option(
        "--strategy", metavar="NAME", help="Choose with another strategy from the same replies.",
        rich_help_panel=STRATEGY, autocompletion=options.completion(STRATEGIES.table),
    ),
]  # fmt: skip
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="Change a field of the strategy. May be repeated.",
        rich_help_panel=STRATEGY,
    ),
]  # fmt: skip
Ask = Annotated[
    bool,
    typer.Option(
        "--ask", help="Ask the judge of the run for replies that the journal does not hold.",
        rich_help_panel=JUDGE,
    ),
]  # fmt: skip


def replay(
    run: Run,
    strategy: Other = None,
    set_: Changes = None,
    judge_profile: options.JudgeProfileFile = None,
    domain: options.RunDomain = None,
    ask: Ask = False,
    api_key: options.ApiKey = None,
    out: options.Out = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Repeat a run from its journal; no model is asked.

    Prints the same selections. With --strategy or --set, another strategy chooses from the same replies; if
    it needs more replies, they are counted, and asked for only with --ask.
    """
    allow_named(strategy)
    named_domain(domain)
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
    if config.samples == "auto" and not other:
        if ask:
            raise InputError(
                f"{run}: this run chose how many answers to generate; to go on, run the same caps solve "
                "command again: its journal answers what was asked before"
            )
        raise typer.Exit(_replay_question(run, record, config, quiet=quiet))
    if ask:
        if len({*record.journals.values()}) > 1:
            raise InputError(
                f"{run}: its shards have journals of their own; use --ask with each shard's folder"
            )
        _refuse_unrecorded(config)
        config = replace(config, engine="local", budget_seconds=None, calibrate=None)
        keys = Keys.find(config, api_key=api_key)
        select_cases(
            record.file.cases, config, keys, out=out, force=force, limit=record.file.limit,
            shard=None if record.file.shard is None else Shard.parse(record.file.shard), quiet=quiet,
            as_json=True, started=record.file.started,
        )  # fmt: skip
    replayed = _Replay(other=other)
    for folder in run_folders(run):  # each shard with its own journal
        part = read_run(folder)
        config = replace(config, budget_seconds=None, journal=part.file.config.journal)
        resolved = resolve(
            config, offline=True, load_judges=replays_from_journal(config), started=part.file.started
        )
        check_prompts(part.file, resolved)
        with _opened_journal(config) as journal:
            replayed.play(folder, part, resolved, journal)
    raise typer.Exit(replayed.close(record.missing, quiet=quiet))


def _opened_journal(config: RunConfig) -> Journal:
    path = None if config.journal is None else Path(config.journal)
    if path is None or not path.is_file():
        raise JournalError(f"{path}: the journal of this run does not exist, so it cannot be replayed")
    return Journal.open(path)


def _replay_question(path: Path, record: RunRecord, config: RunConfig, *, quiet: bool) -> int:
    """Repeat a run that chose how many samples to generate; the journal holds the order of its events."""
    config = replace(config, budget_seconds=None)
    (asked,) = record.file.read_cases()
    if isinstance(asked, InputError):
        raise asked
    with _opened_journal(config) as journal:
        model = Objects(model=ReplayedModel(journal))
        resolved = resolve(config, objects=model, generating=True, started=record.file.started)
        check_prompts(record.file, resolved)
        try:
            solution = asyncio.run(solve_case(resolved, question_case(asked.problem.text, config.domain)))
        except NotRecordedError as error:
            raise JournalError(f"{path}: {error}, so this run cannot be replayed") from None
    if solution.outcome is None or solution.adapted is None:
        raise JournalError(f"{path}: {solution.sampled.failure}")
    line = selection_line(solution.outcome, resolved.config, price=resolved.price)
    line |= adaptive_line(solution.adapted, solution.outcome)
    write_result(json_lines([line]))
    was = record.selections.get(asked.id)
    different = was is not None and was.get("order") != list(line["order"])
    if not quiet:
        say(f"1 case replayed without a call{', and chosen differently' if different else ', as in the run'}")
    return int(different)


class _Replay:
    """Replays every case of a run, and counts missing replies and different results."""

    def __init__(self, *, other: bool) -> None:
        self._other = other
        self._price: Price | None = None
        self._lines: dict[int, dict[str, Any]] = {}  # by the place of the case in its file
        self._open: list[str] = []
        self._failed: list[str] = []
        self._different: list[str] = []
        self._asks = self._tokens = 0

    def play(self, path: Path, record: RunRecord, resolved: Resolved, journal: Journal) -> None:
        """Replay every case of a folder as far as the journal reaches."""
        file, self._price = record.file, resolved.price
        shard = Shard(1, 1) if file.shard is None else Shard.parse(file.shard)
        prepare = resolved.preparation(findings=resolved.merges_equal)
        judge: Judge | None = None
        calls: dict[str, list[dict[str, Any]]] = {}
        if not replays_from_journal(resolved.config):
            # Its answers are in the folder of the run, so its code is not needed.
            for line in read_rulings(path):
                calls.setdefault(line["case"], []).append(line)
        else:
            judge = replayed_judge(resolved, journal, {} if self._other else record.unanswered)
        for index, case in enumerate(map(resolved.cases.apply, file.read_cases())):
            if isinstance(case, InputError):
                self._failed.append(str(case))
                continue
            budget = CaseBudget(
                case_budget(resolved.config), self._price, RunBudget(BudgetLimits(), self._price)
            )
            try:
                recalled = recall(journal, file.findings, case)
            except NotRecordedError:  # the run did not come that far
                self._open.append(case.id)
                continue
            play = CaseRun(index, prepare(recalled), resolved.strategy, resolved.config.seed, budget)
            missing = fast_forward(play, judge or TranscriptJudge(calls.get(case.id, [])))
            if missing:
                self._open.append(case.id)
                self._asks += len(missing)
                asks = [play.round.asks[i] for i in missing] if play.round else []
                shown = sum(shown_size(play.prepared.evidence.entrants, ask) for ask in asks)
                self._tokens += shown + len(asks) * play.prepared.statement
                continue
            line = selection_line(play.outcome, resolved.config, price=self._price)
            if play.outcome.failure is not None:
                self._failed.append(f"case {case.id!r}: {play.outcome.failure}")
                continue
            was = record.selections.get(case.id)
            if was is not None and not self._other and was.get("order") != list(line["order"]):
                self._different.append(case.id)
            self._lines[shard.place(index)] = line

    def close(self, missing: str, *, quiet: bool) -> int:
        """Print the selections and what is missing; return the exit code."""
        with FailureLog() as failures:
            for words in self._failed:
                failures.add(words)
        if self._open and self._other:
            raise JournalError(
                f"{plural(self._asks, 'call')} of the next rounds of {plural(len(self._open), 'case')} "
                f"{'is' if self._asks == 1 else 'are'} not in the journal: about {number(self._tokens, 0)} "
                f"tokens of candidates ({self._money()}), and later rounds may need more; add --ask"
            )
        for _, line in sorted(self._lines.items()):
            write_result(json_lines([line]))
        if missing:
            say(missing, "yellow")
        if not quiet:
            with FailureLog("unfinished") as unfinished, FailureLog("different from the run") as different:
                for name in self._open:
                    unfinished.add(f"case {name!r}")
                for name in self._different:
                    different.add(f"case {name!r}")
            same = "" if self._other or self._different else ", all as in the run"
            say(f"{plural(len(self._lines), 'case')} replayed without a call{same}")
        return 1 if self._open or self._failed or self._different or missing else 0

    def _money(self) -> str:
        return (
            "price unknown" if self._price is None else f"${self._price.of(self._tokens, 0):.4f} to read them"
        )


def _refuse_unrecorded(config: RunConfig) -> None:
    """Refuse to ask with settings that the folder does not hold because they may be credentials."""
    lacking = [f"extra {name!r}" for name in unrecorded(config.extra)]
    for name in ("base_url", "judge_base_url"):
        lacking += [name] if any(map(is_masked, getattr(config, name))) else []
    for table in config.judges:
        extra = table.settings.get("extra", {})
        lacking += [f"extra {name!r} of {table.name!r}" for name in unrecorded(extra)]
        lacking += [f"base_url of {table.name!r}"] if any(map(is_masked, table.base_url)) else []
    if lacking:
        raise InputError(
            f"run.json holds no values that may be secret, and {lacking[0]} has one, so --ask cannot send "
            "it: run the original command again; its journal answers what has been asked already"
        )
