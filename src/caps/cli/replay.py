"""`caps replay`: redo a run from its journal, with no model."""

import sys
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from caps.assemble import Setup, make_strategy, prepare_for, remembering
from caps.cli import given, options
from caps.cli.output import SetOption, say
from caps.cli.select import select
from caps.config import parse_assignments
from caps.core.errors import InputError, JournalError, NotRecordedError
from caps.core.play import Strategy
from caps.costs.prices import Price
from caps.datasets.imports import open_cases
from caps.engines.base import Play
from caps.engines.budget import Budget, CasePurse, Total
from caps.engines.forward import fast_forward
from caps.findings.kept import recall
from caps.journal.store import Journal
from caps.reports.console import number
from caps.reports.lines import selection_line
from caps.reports.remade import (
    check_prompts,
    price_of_run,
    prompt_version_of_run,
    settings_of_run,
    setup_of_run,
)
from caps.reports.rundir import Record, read_run

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, made with --out.")]
Other = Annotated[str | None, typer.Option("--strategy", help="Another strategy over the same journal.")]
Ask = Annotated[bool, typer.Option("--ask", help="Ask the run's endpoint what the journal does not hold.")]


def replay(
    run: Run,
    strategy: Other = None,
    set_: SetOption = None,
    judge_profile: options.JudgeProfileFile = None,
    ask: Ask = False,
    api_key: options.ApiKey = None,
    out: options.Out = None,
    quiet: options.Quiet = False,
) -> None:
    """Redo a run from its journal and print the same selections; no model is asked.

    With --strategy or --set, another choice is made from the same replies; what that needs beyond them is
    counted, and asked only with --ask.
    """
    record = read_run(run)
    made = record.made_of
    if ask:
        _ask_again(made, strategy, set_ or [], judge_profile, api_key, out, quiet=quiet)
    other = strategy is not None or bool(set_) or judge_profile is not None
    name = strategy or made["strategy"]["name"]
    changes = parse_assignments(set_ or []) if other else settings_of_run(made)
    chosen = make_strategy(name, changes, given.known_judge(judge_profile))
    setup, price = setup_of_run(made), price_of_run(made)
    if setup.journal is None or not setup.journal.is_file():
        raise JournalError(f"{setup.journal}: the journal of this run is not there: nothing can be replayed")
    if made["cases"] == "-":
        raise InputError(f"{run}: this run read standard input; save the cases to a file to replay them")
    check_prompts(made, setup)
    with Journal.open(setup.journal) as journal:
        replayed = _Replay(record, setup, price, journal, name=name, other=other)
        replayed.play(chosen)
    raise typer.Exit(replayed.close(quiet=quiet))


class _Replay:
    """Fast-forwards every case of a run and keeps count of what is open and what came out differently."""

    def __init__(
        self, record: Record, setup: Setup, price: Price | None, journal: Journal, *, name: str, other: bool
    ) -> None:
        self._record, self._setup, self._price, self._name, self._other = record, setup, price, name, other
        self._journal = journal
        self._judge = remembering(setup, journal, {} if other else record.unanswered)
        self._lines: list[dict[str, Any]] = []
        self._open: list[str] = []
        self._failed: list[str] = []
        self._different: list[str] = []
        self._asks = self._tokens = 0

    def play(self, strategy: Strategy) -> None:
        """Play every case as far as the journal reaches."""
        made = self._record.made_of
        prepare, versions = prepare_for(self._setup), made.get("findings") or {}
        for place, case in enumerate(islice(open_cases(made["cases"]), made["limit"])):
            if isinstance(case, InputError):
                self._failed.append(str(case))
                continue
            purse = CasePurse(self._setup.case_budget, self._price, Total(Budget(), self._price))
            try:
                known = recall(self._journal, versions, case)
            except NotRecordedError:  # the run did not come that far
                self._open.append(case.id)
                continue
            play = Play(place, prepare(known), strategy, made["seed"], purse)
            missing = fast_forward(play, self._judge)
            if missing:
                self._open.append(case.id)
                self._asks += len(missing)
                asks = [play.round.asks[i] for i in missing] if play.round else []
                sizes = {entrant.id: entrant.sizes for entrant in play.bout.described.entrants}
                shown = [sizes[one][ask.level] for ask in asks for one in ask.entrants]
                self._tokens += sum(shown) + len(asks) * play.bout.statement
                continue
            line = selection_line(play.outcome, strategy=self._name, seed=made["seed"], price=self._price)
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
            sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
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


def _ask_again(
    made: dict[str, Any],
    strategy: str | None,
    set_: list[str],
    judge_profile: Path | None,
    api_key: str | None,
    out: Path | None,
    *,
    quiet: bool,
) -> None:
    """The same as `select` with what the run was made with: the journal answers what it can."""
    changes = (
        set_
        if strategy or set_ or judge_profile
        else [f"{name}={value}" for name, value in settings_of_run(made).items()]
    )
    price = made["price"] or {}
    budget = made["budget"]["case"]
    select(
        cases=made["cases"],
        model=made["model"],
        base_url=[made["base_url"]],
        api_key=api_key,
        judge_model_e1=made["model_e1"],
        judge_base_url_e1=[made["base_url_e1"]] if made["base_url_e1"] else None,
        strategy=strategy or made["strategy"]["name"],
        set_=changes,
        judge_profile=judge_profile,
        profile=made["profile"],
        view=[f"{slot}={view}" for slot, view in made["views"].items()],
        prompts=None if made["prompts_folder"] is None else Path(made["prompts_folder"]),
        prompt_version=prompt_version_of_run(made),
        confidence=made["judge"]["confidence"],
        max_tokens=made["judge"]["max_tokens"],
        reply=made["judge"].get("reply"),
        hard_evidence="auto" if made.get("findings") else "off",
        extra=[f"{name}={msgspec.json.encode(value).decode()}" for name, value in made["extra"].items()],
        seed=made["seed"],
        journal=None if made["journal"] is None else Path(made["journal"]),
        price_input=price.get("input"),
        price_output=price.get("output"),
        price_cached=price.get("cached"),
        budget_tokens=budget["tokens"],
        budget_usd=budget["usd"],
        out=out,
        limit=made["limit"],
        quiet=quiet,
        as_json=True,
    )
