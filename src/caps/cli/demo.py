"""`caps demo`: the main job with nothing configured: shipped cases, the embedded model, a journal."""

import asyncio
import time
from importlib.resources import as_file, files
from typing import Annotated

import typer
from platformdirs import user_data_path
from rich.markup import escape

from caps.building import load_templates, make_prepare, make_strategy
from caps.cli import options
from caps.cli.demo_simulated import show_simulated
from caps.cli.meter import Meter
from caps.cli.output import say, stdout
from caps.cli.running import runner_for
from caps.cli.stopping import say_stopped, unless_stopped
from caps.config import Keys, RunConfig
from caps.core.text import number
from caps.core.types import Case
from caps.datasets.case_files import read_cases
from caps.engines.base import Outcome, in_order
from caps.evidence.domains import domain_named
from caps.models.weights import NAME as SMALL
from caps.reports.bracket import draw
from caps.reports.console import shown, table
from caps.reports.demo import judge_words, result_row
from caps.runner import Runner
from caps.runs.summary import Summary
from caps.studies.planning import BASELINE, forecast_case

STRATEGY = "caps-r"
COMPARED = (STRATEGY, "pointwise", BASELINE)
SEED = 1234
NEXT = """
Next, with a judge that can judge (vLLM, SGLang, llama.cpp, Ollama, an API):
  caps select cases.jsonl --model NAME --base-url http://localhost:8000/v1 --out run
  caps report run                                          # one page: what was chosen, how, and what it cost
  caps diagnose cases.jsonl --model NAME --base-url URL    # is it good enough, and at which evidence?
  caps list models                                         # what can be reached from here"""

Simulated = Annotated[bool, typer.Option("--simulated", help="No model: one contest with a simulated judge.")]
Model = Annotated[str, typer.Option("--model", help="Another judge for the same cases.")]
BaseUrl = Annotated[str | None, typer.Option("--base-url", help="Where that judge is found.")]
Seed = Annotated[int, typer.Option(help="With --simulated: another seed, another contest.")]


def demo(
    simulated: Simulated = False,
    seed: Seed = 3,
    model: Model = "embedded",
    base_url: BaseUrl = None,
    api_key: options.ApiKey = None,
    journal: options.JournalFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Do the main job with nothing configured: a small model in this process judges the shipped cases.

    The first time, its weights are fetched (93 MB). Run it again: the journal answers, in seconds.
    """
    if simulated:
        show_simulated(seed)
        return
    config = RunConfig(
        model=model,
        base_url=() if base_url is None else (base_url,),
        strategy=STRATEGY,
        skip_failing=True,
        seed=SEED,
        journal=str(journal or user_data_path("caps") / "demo.sqlite"),
    )
    with runner_for(config, Keys.find(config, api_key=api_key), quiet=quiet) as runner:
        code = asyncio.run(unless_stopped(_Tour(runner, quiet=quiet).play()))
        if code is None:
            say_stopped(runner.journal_path)
    raise typer.Exit(130 if code is None else code)


class _Tour:
    """Plans, plays and tells."""

    def __init__(self, runner: Runner, *, quiet: bool) -> None:
        self._runner, self._quiet = runner, quiet
        self._cases = _shipped()
        self._console = stdout()
        self._whole = 0.0  # tokens V1-Infer would read

    async def play(self) -> int:
        """The whole tour; the exit code."""
        self._introduce()
        self._plan()
        started = time.perf_counter()
        outcomes: list[Outcome] = []
        async with self._runner.session(probe=False) as ready:
            with Meter(len(self._cases), None, hidden=self._quiet) as meter:
                ready.engine.watch = meter.hear
                async for outcome in in_order(ready.run(self._cases)):
                    outcomes.append(outcome)
                    meter.advance()
            without = {} if ready.findings is None else ready.findings.unusable
        for why, count in without.items():
            say(
                f"{count} cases were judged without running their programs: {why} (see caps doctor)", "yellow"
            )
        self._tell(outcomes, time.perf_counter() - started)
        return 1 if any(outcome.failure is not None for outcome in outcomes) else 0

    def _introduce(self) -> None:
        math = sum(domain_named(case.domain).short_answers for case in self._cases)
        answers = sum(len(case.candidates) for case in self._cases)
        self._console.print(
            f"[bold]{len(self._cases)} problems, {answers} candidate answers: which one is right?[/bold]\n"
            f"{math} problems of mathematics, with answers a small model (SmolLM2, 135M) really wrote, and "
            f"{len(self._cases) - math} of programming.\n"
            f"The judge is {self._judge()}. Equal answers count as one; programs are run on their\n"
            "public examples first, and what fails one is not judged.\n"
        )

    def _judge(self) -> str:
        where = self._runner.endpoints.full
        return "the same small model, in this process" if where.model == SMALL else escape(shown(where.model))

    def _plan(self) -> None:
        """What strategies would ask here at most of the time, from the prompts as they are rendered."""
        templates, prepare, rows = load_templates(), make_prepare(), []
        prepared_cases = [prepare(case) for case in self._cases]
        for name in COMPARED:
            forecasts = [
                forecast_case(prepared, make_strategy(name), templates, seed=SEED)
                for prepared in prepared_cases
            ]
            self._whole = sum(one.mean for one in forecasts)  # V1-Infer stands last
            calls = sum(one.partial + one.full for one in forecasts)
            rows.append((name, number(calls, 0), number(self._whole, 0)))
        self._console.print(table("Forecast", ("strategy", "judge calls", "tokens to read"), rows))
        self._console.print()

    def _tell(self, outcomes: list[Outcome], seconds: float) -> None:
        played = [outcome for outcome in outcomes if outcome.selection is not None]
        self._draw(max(played, key=lambda one: len(one.judged), default=None))
        columns = ("case", "answers", "different", "chosen", "calls E1 + E2", "tokens", "right?")
        rows = [result_row(outcome) for outcome in played]
        self._console.print(table("What was chosen", columns, rows, numbers_from=1))
        for outcome in outcomes:
            if outcome.failure is not None:
                say(f"failed: case {outcome.name!r}: {outcome.failure}", "red")
        summary = Summary()
        for outcome in outcomes:
            summary.add(outcome)
        total = summary.ledger.total()
        paid = (
            "all of them from the journal" if not total.billed else f"{number(total.billed, 0)} of them new"
        )
        self._console.print(
            f"\n{number(total.asked, 0)} tokens read in {seconds:.0f} s ({paid}): "
            f"{total.asked / self._whole:.0%} of what V1-Infer would read.",
            style="bold",
        )
        for words in (*summary.findings.as_text(), *judge_words(played)):
            self._console.print(shown(words), markup=False)
        if self._runner.endpoints.full.model == SMALL:
            self._console.print("A model this small lets you see everything work; it is no judge to rely on.")
        self._console.print(NEXT, markup=False)

    def _draw(self, outcome: Outcome | None) -> None:
        if outcome is None or outcome.contest is None or outcome.prepared is None:
            return
        right = [one.correct for one in outcome.prepared.case.candidates]
        self._console.print(
            f"The contest of case {outcome.name!r}: ✓ is right; the upper of two sat in slot A; in the table "
            "+ won, - lost, = tied, doubled where sure\n"
        )
        for line in draw(outcome.contest, lambda one: f"{one}{'✓' if right[one] else '✗'}"):
            self._console.print(line)
        self._console.print()


def _shipped() -> list[Case]:
    with as_file(files("caps.cli") / "demo_cases.jsonl") as path:
        return [case for case in read_cases(str(path)) if isinstance(case, Case)]
