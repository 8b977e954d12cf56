"""`caps select`: choose the best candidate of each case."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from platformdirs import user_data_path
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from caps.assemble import Endpoint, Setup, load_templates, make_prepare, make_strategy, session
from caps.cli import options
from caps.cli.config_file import ConfigFile
from caps.cli.output import JsonFlag, SetOption, stderr, stdout
from caps.config import parse_assignments
from caps.core.contest import Contest
from caps.core.errors import InputError, SettingError
from caps.core.play import Strategy
from caps.core.settings import settings_of
from caps.core.types import Case
from caps.costs.prices import Price
from caps.datasets.jsonl import count_lines, read_cases
from caps.engines.base import Outcome
from caps.journal.store import default_path
from caps.judges.base import Ruling
from caps.judges.llm import JudgeSettings
from caps.reports.bracket import draw
from caps.reports.console import number, table
from caps.reports.lines import selection_line
from caps.reports.rundir import RunFolder, digests, versions
from caps.reports.summary import Summary

Cases = Annotated[
    str, typer.Argument(metavar="CASES", help="Cases, one JSON object a line; - is standard input.")
]
Bracket = Annotated[bool, typer.Option("--bracket", help="Draw the bracket of every case.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask nothing: show what the first round would ask.")]


def select(
    cases: Cases,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    judge_model_e1: options.ModelE1 = None,
    judge_base_url_e1: options.BaseUrlE1 = None,
    judge_api_key_e1: options.ApiKeyE1 = None,
    strategy: options.Strategy = "caps-r",
    set_: SetOption = None,
    profile: options.Profile = None,
    view: options.View = None,
    prompts: options.Prompts = None,
    confidence: options.Confidence = "verbal",
    max_tokens: options.MaxTokens = 4096,
    extra: options.Extra = None,
    seed: options.Seed = 1234,
    max_connections: options.Connections = "auto",
    timeout: options.Timeout = 600,
    journal: options.JournalFile = None,
    no_journal: options.NoJournal = False,
    durable: options.Durable = False,
    price_input: options.PriceInput = None,
    price_output: options.PriceOutput = None,
    price_cached: options.PriceCached = None,
    gpu_hour_usd: options.GpuHour = None,
    out: options.Out = None,
    limit: options.Limit = None,
    bracket: Bracket = False,
    dry_run: DryRun = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
    config: ConfigFile = None,
) -> None:
    """Choose the best candidate of each case, with any OpenAI-compatible endpoint as the judge.

    Results go to standard output, one JSON object a line (a table in a terminal, unless --json). What was
    paid for is kept in the journal: run the same command again and only what is missing is asked.
    """
    chosen = make_strategy(strategy, parse_assignments(set_ or []))
    views = parse_assignments(view or [], option="--view")
    source = _opened(cases, limit)
    if dry_run:
        _rehearse(source, chosen, make_prepare(profile, views), seed)
        return
    setup = Setup(
        endpoint=_endpoint(model, base_url, api_key),
        endpoint_partial=_partial_endpoint(
            model, base_url, api_key, judge_model_e1, judge_base_url_e1, judge_api_key_e1
        ),
        judge=JudgeSettings(max_tokens=max_tokens),
        confidence=_confidence(confidence),
        extra=options.parse_extra(extra or []),
        profile=profile,
        views=views,
        prompts=prompts,
        connections=options.parse_connections(max_connections),
        timeout=timeout,
        journal=None if no_journal else journal or default_path(user_data_path("caps")),
        durable=durable,
        price=_price(price_input, price_output, price_cached),
    )
    run = _Run(
        setup, strategy, chosen, seed, gpu_hour_usd,
        quiet=quiet, bracket=bracket, lines=as_json or not sys.stdout.isatty(),
    )  # fmt: skip
    code = asyncio.run(run.play(source, _total(cases, limit), out, cases))
    raise typer.Exit(code)


class _Run:
    """One run of `select`: where results, progress and files go."""

    def __init__(
        self,
        setup: Setup,
        name: str,
        strategy: Strategy,
        seed: int,
        gpu_hour_usd: float | None,
        *,
        quiet: bool,
        bracket: bool,
        lines: bool,
    ) -> None:
        self._setup, self._name, self._strategy, self._seed = setup, name, strategy, seed
        self._gpu_hour_usd, self._quiet, self._bracket, self._lines = gpu_hour_usd, quiet, bracket, lines
        self._summary = Summary()
        self._rows: list[tuple[str, ...]] = []
        self._guessed: Counter[str] = Counter()
        self._price: Price | None = None

    async def play(
        self, source: Iterable[Case | InputError], total: int | None, out: Path | None, cases: str
    ) -> int:
        """Play all cases; the exit code."""
        started = time.perf_counter()
        async with session(self._setup) as ready:
            self._price = ready.price
            with ExitStack() as stack:
                meter = stack.enter_context(_Meter(total, self._price, hidden=self._quiet))
                folder = None
                if out is not None:
                    folder = stack.enter_context(RunFolder(out, self._made_of(cases, ready.confidence)))
                ready.engine.watch = meter.hear
                async for outcome in ready.engine.run(source, self._strategy, seed=self._seed):
                    self._deliver(outcome, folder)
                    meter.advance()
                if folder is not None:
                    folder.finish(self._summary.as_line(self._price))
        self._close(time.perf_counter() - started)
        return 1 if self._summary.failed else 3 if self._summary.provisional else 0

    def _deliver(self, outcome: Outcome, folder: RunFolder | None) -> None:
        self._summary.add(outcome)
        if outcome.bout is not None and outcome.bout.case.guessed:
            self._guessed[outcome.bout.case.domain] += 1
        line = selection_line(outcome, strategy=self._name, seed=self._seed, price=self._price)
        if folder is not None:
            folder.add(outcome, line)
        if outcome.failure is not None:
            named = f"case {outcome.name!r}: " if outcome.name else ""
            stderr().print(f"failed: {named}{outcome.failure}", style="red", markup=False, soft_wrap=True)
            return
        if self._bracket and outcome.contest is not None:
            stderr().print(f"case {outcome.name}", style="bold", markup=False)
            for drawn in draw(outcome.contest):
                stderr().print(drawn)
        if self._lines:
            sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
            sys.stdout.buffer.flush()
        else:
            self._rows.append(_row(line))

    def _close(self, seconds: float) -> None:
        if self._rows:
            columns = ("case", "answer", "winner", "clusters", "calls E1 + E2", "tokens", "note")
            stdout().print(table("", columns, self._rows, numbers_from=2))
        if not self._quiet:
            words = self._summary.as_text(self._price, seconds, self._gpu_hour_usd)
            stderr().print(words, style="dim", markup=False, soft_wrap=True)
        if self._guessed and not self._quiet:
            guesses = ", ".join(f"{domain} {count}" for domain, count in self._guessed.items())
            stderr().print(
                f'domain guessed: {guesses}; say "domain" in a case to be sure', style="dim", markup=False
            )

    def _made_of(self, cases: str, confidence: str) -> dict[str, Any]:
        """Everything that made this run, without the keys."""
        setup, strategy = self._setup, self._strategy
        partial = setup.endpoint_partial
        return {
            "cases": cases,
            "strategy": {"name": self._name, **settings_of(strategy)},
            "seed": self._seed,
            "model": setup.endpoint.model,
            "base_url": setup.endpoint.base_url,
            "model_e1": None if partial is None else partial.model,
            "judge": asdict(setup.judge) | {"confidence": confidence},
            "extra": dict(setup.extra),
            "profile": setup.profile,
            "views": dict(setup.views),
            "journal": None if setup.journal is None else str(setup.journal),
            "prompts": digests(load_templates(setup.prompts)),
            "versions": versions(),
        }


class _Meter:
    """The progress bar: cases, calls, tokens, money, time left."""

    def __init__(self, total: int | None, price: Price | None, *, hidden: bool) -> None:
        self._price, self._calls, self._tokens, self._dollars = price, 0, 0, 0.0
        self._progress = Progress(
            TextColumn("cases"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[spent]}"),
            TimeElapsedColumn(), TimeRemainingColumn(), console=stderr(), transient=True, disable=hidden,
        )  # fmt: skip
        self._bar = self._progress.add_task("cases", total=total, spent="")

    def __enter__(self) -> "_Meter":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def hear(self, ruling: Ruling) -> None:
        """Count a ruling."""
        self._calls += 1
        for attempt in ruling.attempts:
            self._tokens += attempt.usage.prompt
            if self._price is not None and not attempt.replayed:
                usage = attempt.usage
                self._dollars += self._price.of(usage.prompt, usage.output, usage.cached)
        money = "" if self._price is None else f", ${self._dollars:.3f}"
        spent = f"{number(self._calls, 0)} calls, {number(self._tokens, 0)} tokens{money}"
        self._progress.update(self._bar, spent=spent)

    def advance(self) -> None:
        """Count a case."""
        self._progress.advance(self._bar)


def _opened(cases: str, limit: int | None) -> Iterator[Case | InputError]:
    """The cases; a file that cannot be read at all is found before anything is opened or asked."""
    source = iter(read_cases(cases))
    first = list(islice(source, 1))
    return islice(chain(first, source), limit)


def _total(cases: str, limit: int | None) -> int | None:
    counted = None if cases == "-" else count_lines(cases)
    return limit if counted is None else min(counted, limit or counted)


def _endpoint(model: str | None, base_url: str | None, api_key: str | None) -> Endpoint:
    if not base_url:
        raise SettingError("no endpoint: give --base-url http://localhost:8000/v1, or set CAPS_BASE_URL")
    if not model:
        raise SettingError("no model: give --model NAME, or set CAPS_MODEL")
    return Endpoint(base_url, model, api_key or None)


def _partial_endpoint(
    model: str | None,
    base_url: str | None,
    api_key: str | None,
    model_e1: str | None,
    base_url_e1: str | None,
    api_key_e1: str | None,
) -> Endpoint | None:
    """Another judge for partial views; a key is not carried to another address."""
    if not model_e1 and not base_url_e1:
        return None
    key = api_key_e1 or (None if base_url_e1 else api_key)
    return _endpoint(model_e1 or model, base_url_e1 or base_url, key)


def _confidence(word: str) -> Any:
    if word not in ("verbal", "logprobs", "auto"):
        raise SettingError(f"--confidence {word!r}: must be one of verbal, logprobs, auto")
    return word


def _price(read: float | None, written: float | None, reread: float | None) -> Price | None:
    if read is None and written is None and reread is None:
        return None
    if read is None or written is None:
        raise SettingError("a price needs both --price-input and --price-output")
    return Price(read, written, reread)


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    notes = [word for word in ("provisional",) if line[word]]
    if line["rescued"] is not None:
        notes.append("rescue")
    if line["malformed"]:
        notes.append(f"{line['malformed']} unreadable")
    last = line["text"].strip().splitlines()[-1] if line["text"].strip() else ""
    calls = line["calls"]
    return (
        line["id"], last[:60], str(line["winner"]), str(line["clusters"]), f"{calls['E1']} + {calls['E2']}",
        number(line["tokens"]["asked"], 0), ", ".join(notes),
    )  # fmt: skip


def _rehearse(source: Iterable[Case | InputError], strategy: Strategy, prepare: Any, seed: int) -> None:
    """Show what the first round of each case would ask, without asking."""
    rows, failed = [], 0
    for case in source:
        if isinstance(case, InputError):
            stderr().print(f"failed: {case}", style="red", markup=False, soft_wrap=True)
            failed += 1
            continue
        bout = prepare(case)
        contest = Contest(strategy, bout.described.entrants, seed=f"{seed}/{case.id}")
        asks = () if contest.pending is None else contest.pending.asks
        sizes = {entrant.id: entrant.sizes for entrant in bout.described.entrants}
        tokens = sum(bout.statement + sum(sizes[one][ask.level] for one in ask.entrants) for ask in asks)
        clusters = len({e.signature or e.id for e in bout.described.entrants})
        rows.append(
            (
                case.id,
                case.domain,
                str(len(case.candidates)),
                str(clusters),
                str(len(asks)),
                number(tokens, 0),
            )
        )
    columns = ("case", "domain", "candidates", "clusters", "first calls", "tokens shown (estimate)")
    stdout().print(table("", columns, rows, numbers_from=2))
    raise typer.Exit(1 if failed else 0)
