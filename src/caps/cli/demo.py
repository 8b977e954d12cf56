"""`caps demo`: the main job on shipped cases with the embedded model."""

import asyncio
import time
from importlib.resources import as_file, files
from typing import Annotated

import typer
from platformdirs import user_data_path
from rich.markup import escape

from caps.building import load_templates, make_prepare, make_strategy
from caps.cli import options
from caps.cli.output import FailureLog, say, stdout
from caps.cli.preflight import runner_for
from caps.cli.progress import JudgeProgress
from caps.cli.signals import report_interrupted, run_until_signal
from caps.config import Keys, RunConfig
from caps.core.contest import Contest
from caps.core.text import number, plural, printable
from caps.core.types import Case, Level
from caps.costs.closed_form import ViewSizes, v1_infer_calls
from caps.datasets.case_files import read_cases
from caps.engines.base import Outcome, in_order
from caps.evidence.domains import domain_named
from caps.judging.simulated import PRESETS, SimulatedJudge
from caps.models.weights import NAME as SMALL
from caps.reports.bracket import draw
from caps.reports.console import table
from caps.reports.demo import judge_text, result_row
from caps.runner import Runner
from caps.runs.summary import Summary
from caps.studies.planning import BASELINE, forecast_case
from caps.studies.simulation import LabelledPool, PoolModel

STRATEGY = "caps-r"
COMPARED = (STRATEGY, "pointwise", BASELINE)
SEED = 1234
NEXT = """
Next, with an accurate judge (vLLM, SGLang, llama.cpp, Ollama, an API):
  caps select cases.jsonl --model NAME --base-url http://localhost:8000/v1 --out run
  caps report run                                          # one page: choices, contests and costs
  caps diagnose cases.jsonl --model NAME --base-url URL    # is it accurate enough, and on which views?
  caps list models                                         # the models you can use here"""

Simulated = Annotated[
    bool, typer.Option("--simulated", help="Use a simulated judge and no model; show one contest.")
]
Model = Annotated[str, typer.Option("--model", metavar="NAME", help="Model that judges the cases.")]
BaseUrl = Annotated[str | None, typer.Option("--base-url", metavar="URL", help="Address of its server.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Random seed of --simulated.")]


def demo(
    simulated: Simulated = False,
    seed: Seed = 3,
    model: Model = "embedded",
    base_url: BaseUrl = None,
    api_key: options.ApiKey = None,
    journal: options.JournalFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Try the main job on shipped cases; nothing needs to be configured.

    A small model, which runs in this process, judges the candidates. Its weights are downloaded once (93 MB).
    A second run takes seconds, since the journal answers.
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
        code = asyncio.run(run_until_signal(_Tour(runner, quiet=quiet).play()))
        if code is None:
            report_interrupted(runner.journal_path)
    raise typer.Exit(130 if code is None else code)


class _Tour:
    """Plans the contests, runs them and prints the results."""

    def __init__(self, runner: Runner, *, quiet: bool) -> None:
        self._runner, self._quiet = runner, quiet
        self._cases = _shipped()
        self._console = stdout()
        self._whole = 0.0  # tokens that V1-Infer would read

    async def play(self) -> int:
        """Run the whole demonstration; return the exit code."""
        self._introduce()
        self._plan()
        started = time.perf_counter()
        outcomes: list[Outcome] = []
        async with self._runner.session() as ready:
            with JudgeProgress(len(self._cases), None, hidden=self._quiet) as meter:
                ready.engine.watch = meter.count
                async for outcome in in_order(ready.run(self._cases)):
                    outcomes.append(outcome)
                    meter.advance()
            without = {} if ready.findings is None else ready.findings.unusable
        for why, count in without.items():
            judged = f"{plural(count, 'case')} judged without running the programs"
            say(f"{judged}: {why} (see caps doctor)", "yellow")
        self._print_results(outcomes, time.perf_counter() - started)
        return 1 if any(outcome.failure is not None for outcome in outcomes) else 0

    def _introduce(self) -> None:
        math = sum(domain_named(case.domain).short_answers for case in self._cases)
        answers = sum(len(case.candidates) for case in self._cases)
        self._console.print(
            f"[bold]{len(self._cases)} problems, {answers} candidate answers: which one is right?[/bold]\n"
            f"{math} problems of mathematics, with real answers of a small model (SmolLM2, 135M), and "
            f"{len(self._cases) - math} of programming.\n"
            f"The judge is {self._judge()}. Equal answers count as one; programs are run on their\n"
            "public examples first, and programs that fail are not judged.\n"
        )

    def _judge(self) -> str:
        where = self._runner.endpoints.full
        return (
            "the same small model, in this process"
            if where.model == SMALL
            else escape(printable(where.model))
        )

    def _plan(self) -> None:
        """Print the forecast of some strategies, from the rendered prompts."""
        templates, prepare, rows = load_templates(), make_prepare(), []
        prepared = [prepare(case) for case in self._cases]
        for name in COMPARED:
            forecasts = [forecast_case(one, make_strategy(name), templates, seed=SEED) for one in prepared]
            self._whole = sum(one.mean for one in forecasts)  # V1-Infer comes last
            calls = sum(one.partial + one.full for one in forecasts)
            rows.append((name, number(calls, 0), number(self._whole, 0)))
        self._console.print(table("Forecast", ("strategy", "judge calls", "tokens to read"), rows))
        self._console.print()

    def _print_results(self, outcomes: list[Outcome], seconds: float) -> None:
        played = [outcome for outcome in outcomes if outcome.selection is not None]
        self._draw(max(played, key=lambda one: len(one.judged), default=None))
        columns = ("case", "answers", "distinct", "chosen", "calls E1 + E2", "tokens", "right?")
        rows = [result_row(outcome) for outcome in played]
        self._console.print(table("What was chosen", columns, rows, numbers_from=1))
        with FailureLog() as failures:
            for outcome in outcomes:
                if outcome.failure is not None:
                    failures.add_case(outcome.name, outcome.failure)
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
        for words in (*summary.findings.as_text(), *judge_text(played)):
            self._console.print(printable(words), markup=False)
        if self._runner.endpoints.full.model == SMALL:
            self._console.print(
                "This model is small enough to run anywhere, and too small to be a reliable judge."
            )
        self._console.print(NEXT, markup=False)

    def _draw(self, outcome: Outcome | None) -> None:
        if outcome is None or outcome.contest is None or outcome.prepared is None:
            return
        right = [one.correct for one in outcome.prepared.case.candidates]
        self._console.print(
            f"The contest of case {outcome.name!r}: ✓ is right; the upper of two was shown first. In "
            "the table: + won, - lost, = tied, doubled if the judge was sure\n"
        )
        for line in draw(outcome.contest, lambda one: f"{one}{'✓' if right[one] else '✗'}"):
            self._console.print(line)
        self._console.print()


def _shipped() -> list[Case]:
    with as_file(files("caps.cli") / "demo_cases.jsonl") as path:
        return [case for case in read_cases(str(path)) if isinstance(case, Case)]


def show_simulated(seed: int) -> None:
    """Run one contest of CAPS-R between 16 made-up candidates, and draw its bracket."""
    pool = _interesting(PoolModel(kind="math", new_wrong=8.0), seed)
    judge = SimulatedJudge(PRESETS["80"], pool.entrants, pool.correct, seed=seed)
    contest = Contest(make_strategy("caps-r"), pool.entrants, seed=seed).play(judge.answer)

    console = stdout()
    clusters = len({entrant.signature for entrant in pool.entrants})
    console.print(
        "[bold]One problem, 16 candidates, a simulated judge (right in 80 % of full comparisons)[/bold]"
    )
    console.print(
        f"Stage 0 merges equal answers without a call: {clusters} distinct ones remain.\n"
        "Stage A halves them on partial views, Stage B on full views; the upper of two was shown first.\n"
        "Stage C compares all finalists: + won, - lost, = tied, doubled if sure, ᴬ shown first.\n"
    )
    for line in draw(contest, lambda one: f"{one}{'✓' if pool.correct[one] else '✗'}"):
        console.print(line)
    _summary(contest, pool)


def _interesting(model: PoolModel, seed: int) -> LabelledPool:
    """The first made-up pool in which the choice is neither trivial nor impossible."""
    number_ = 0
    while True:
        pool = model.pool(number_, seed)
        clusters = len({entrant.signature for entrant in pool.entrants})
        if 2 <= sum(pool.correct) <= 6 and clusters >= 9:
            return pool
        number_ += 1


def _summary(contest: Contest, pool: LabelledPool) -> None:
    sizes = ViewSizes()
    asks = [ask for turn in contest.transcript for ask in turn.round.asks]
    tokens = sum(sizes.tokens(ask) for ask in asks)
    whole = v1_infer_calls(len(pool.entrants)).full * sizes.per_full
    partial = sum(ask.level == Level.PARTIAL for ask in asks)
    winner = contest.selection.winner
    console = stdout()
    console.print(
        f"\nThe winner is {winner}, which is {'right' if pool.correct[winner] else 'wrong'}: "
        f"{partial} calls on partial views (E1) and {len(asks) - partial} on full views (E2) in "
        f"{len(contest.transcript)} rounds, "
        f"{number(tokens, 0)} tokens; V1-Infer would read {number(whole, 0)} ({tokens / whole:.0%} of that).",
        style="bold",
    )
    console.print(
        "Sizes are the paper's means (250, 4,000 and 500 tokens); candidates and judge are simulated."
    )
    console.print("Next:  caps plan --pool 16     caps simulate     caps list strategies", style="dim")
