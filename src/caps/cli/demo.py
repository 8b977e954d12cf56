"""`caps demo`: what strategies choose with recorded verdicts, then the same job live with a small model."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_data_path
from rich.markup import escape

from caps.cli import options
from caps.cli.output import FailureLog, say, stdout
from caps.cli.preflight import resolved_for
from caps.cli.progress import JudgeProgress
from caps.cli.report import write_report
from caps.cli.signals import run_paid_work
from caps.config import Keys, RunConfig
from caps.core.contest import Contest
from caps.core.text import number, plural, printable
from caps.core.types import Case, Level
from caps.costs.closed_form import ViewSizes, v1_infer_calls
from caps.datasets.case_files import read_cases
from caps.engines.base import Outcome, in_order
from caps.evidence.domains import domain_named
from caps.files import file_errors
from caps.judging.recorded import FULL_VIEW, NO_CONFIDENCE
from caps.judging.simulated import PRESETS, SimulatedJudge
from caps.models.weights import NAME as SMALL
from caps.reports.answers import answer_text, domain_of, shortened_words
from caps.reports.bracket import draw
from caps.reports.console import table
from caps.runs.folder import RunFolder
from caps.runs.result_lines import json_lines, ruling_lines, selection_line
from caps.runs.run_file import new_run_file
from caps.runs.summary import Summary
from caps.session.parts import make_strategy
from caps.session.resolve import Resolved, resolve
from caps.session.session import open_session
from caps.studies.simulation import LabelledPool, PoolModel

DEFAULT = "posterior"
COMPARED = {
    "vanilla": "the first answer",
    "majority": "majority vote",
    DEFAULT: "posterior (the default)",
    "caps-r": "caps-r (the paper's cascade)",
    "v1-infer": "v1-infer (a tournament)",
}
LIVE = ("pencils", "vowels")  # short cases: the embedded model judges them in seconds
JUDGE = "Qwen2.5-Coder-1.5B-Instruct"
NEXT = """
Next, with your own model (vLLM, SGLang, llama.cpp, Ollama, an API):
  caps select cases.jsonl --model NAME --base-url http://localhost:8000/v1 --out run
  caps report run                                          # one page: choices, contests and costs
  caps diagnose cases.jsonl --model NAME --base-url URL    # is it accurate enough as a judge?"""

Simulated = Annotated[
    bool, typer.Option("--simulated", help="Show one contest with a simulated judge; no model takes part.")
]
Model = Annotated[str, typer.Option("--model", metavar="NAME", help="Model that judges in the live part.")]
BaseUrl = Annotated[str | None, typer.Option("--base-url", metavar="URL", help="Address of its server.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Random seed of --simulated.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Folder for the cases, the run and its report. Default: in your data folder.",
    ),
]


def demo(
    simulated: Simulated = False,
    seed: Seed = 3,
    model: Model = "embedded",
    base_url: BaseUrl = None,
    api_key: options.ApiKey = None,
    out: Out = None,
    journal: options.JournalFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Try the main job on shipped cases; nothing needs to be configured.

    First, strategies choose among real answers with the recorded verdicts of a real judge, which takes
    seconds. Then the default strategy does the same live on two cases with a small model in this process,
    which is downloaded once (93 MB). A second run takes seconds, since the journal answers.
    """
    if simulated:
        show_simulated(seed)
        return
    folder = out or user_data_path("caps") / "demo"
    journal = journal or user_data_path("caps") / "demo.sqlite"
    shipped = write_shipped(folder)
    recorded = RunConfig(
        recorded=str(shipped.verdicts), recorded_judge=JUDGE, journal=str(journal), explain=True
    )
    live = RunConfig(model=model, base_url=() if base_url is None else (base_url,), journal=str(journal))
    keys = Keys.find(live, api_key=api_key)
    raise typer.Exit(run_paid_work(_tour(shipped, recorded, live, keys, quiet=quiet), journal))


async def _tour(shipped: "Shipped", recorded: RunConfig, live: RunConfig, keys: Keys, *, quiet: bool) -> int:
    """Both parts of the demonstration; the exit code."""
    await show_recorded(shipped, recorded, quiet=quiet)
    code = await show_live(shipped.cases, live, keys, quiet=quiet)
    stdout().print(NEXT, markup=False)
    return code


@dataclass(frozen=True, slots=True)
class Shipped:
    """The shipped cases and recorded verdicts, as files that a user can try commands on."""

    folder: Path
    cases: Sequence[Case]

    @property
    def cases_file(self) -> Path:
        """The file of the cases."""
        return self.folder / "cases.jsonl"

    @property
    def verdicts(self) -> Path:
        """The file of the recorded verdicts."""
        return self.folder / "verdicts.jsonl"


def write_shipped(folder: Path) -> Shipped:
    """Write the shipped files into a folder; scripts/record_demo.py at commit 23540313 recorded them."""
    with file_errors(f"--out {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        shipped = Shipped(folder, ())
        for path in (shipped.cases_file, shipped.verdicts):
            path.write_bytes((files("caps.cli") / "demo_data" / path.name).read_bytes())
    return Shipped(folder, [case for case in read_cases(str(shipped.cases_file)) if isinstance(case, Case)])


async def show_recorded(shipped: Shipped, config: RunConfig, *, quiet: bool) -> None:
    """Compare strategies on the recorded verdicts, draw one contest, and write the report of the default."""
    console, cases = stdout(), shipped.cases
    programs = sum(domain_named(case.domain).python_programs for case in cases)
    answers = sum(len(case.candidates) for case in cases)
    right = sum(candidate.correct is True for case in cases for candidate in case.candidates)
    console.print(
        f"[bold]{len(cases)} problems, {answers} answers of a small model: which ones are right?[/bold]\n"
        f"{JUDGE} answered {len(cases) - programs} problems of mathematics and {programs} of programming, 8 "
        f"times each;\n{right} of {answers} answers are right. The judge is the same model: its verdicts on "
        "pairs of these answers\nwere recorded once, and are read from a file here.\n",
        highlight=False,
    )
    rows, substituted = [], Counter[str]()
    for name, label in COMPARED.items():
        resolved = resolve(replace(config, strategy=name))
        played = await _play(resolved, cases, shipped, keep=name == DEFAULT)
        summary = Summary()
        for outcome in played:
            summary.add(outcome)
        total = summary.ledger.total()
        substituted += summary.ledger.substituted
        chosen = sum(_is_right(outcome) for outcome in played)
        calls = sum(summary.ledger.calls.values())
        rows.append((label, f"{chosen} of {len(cases)}", number(calls, 0), number(total.asked, 0)))
        if name == DEFAULT:
            default = played
    columns = ("strategy", "right", "judge calls", "tokens read")
    console.print(table("", columns, rows, numbers_from=1))
    console.print(
        f"\nRecorded are verdicts on whole answers: {substituted[FULL_VIEW]} questions about excerpts were "
        f"answered with\nthose, and {substituted[NO_CONFIDENCE]} ratings (V1-Infer asks for them) come from "
        "verdicts.\n",
        style="dim",
        highlight=False,
    )
    _draw(default)
    page = write_report(shipped.folder / "run")
    console.print(
        f"The report, with every choice and why: {printable(str(page))}\n", soft_wrap=True, highlight=False
    )


async def _play(resolved: Resolved, cases: Sequence[Case], shipped: Shipped, *, keep: bool) -> list[Outcome]:
    """Choose in all cases; with `keep` the run is written to the folder, as by `caps select --out`."""
    async with open_session(resolved) as session:
        outcomes = [outcome async for outcome in in_order(session.run(cases))]
        if not keep:
            return outcomes
        found = {} if session.findings is None else session.findings.versions
    file = new_run_file(resolved, cases=str(shipped.cases_file), limit=None, findings=found)
    summary = Summary()
    with RunFolder(shipped.folder / "run", file, force=True) as folder:
        for outcome in outcomes:
            summary.add(outcome)
            line = selection_line(outcome, resolved.config, price=None)
            folder.add(json_lines([line]), json_lines(ruling_lines(outcome)))
        folder.finish(summary.as_line(None))
    return outcomes


def _is_right(outcome: Outcome) -> bool:
    if outcome.prepared is None or outcome.selection is None:
        return False
    return outcome.prepared.case.candidates[outcome.selection.winner].correct is True


def _answer(outcome: Outcome, candidate: int) -> str:
    """The answer of a candidate in a line."""
    if outcome.prepared is None:
        return ""
    case = outcome.prepared.case
    return answer_text(case.candidates[candidate], short=domain_of(case).short_answers)


def _probability_and_questions(outcome: Outcome) -> tuple[float, int]:
    facts = {} if outcome.selection is None else outcome.selection.facts
    return facts.get("probability", 0.0), len(outcome.judged)


def _draw(outcomes: Sequence[Outcome]) -> None:
    """Draw the surest right choice, of equals the one with most questions, and name the wrong choices."""
    console = stdout()
    wrong = [outcome.name for outcome in outcomes if not _is_right(outcome)]
    outcome = max(filter(_is_right, outcomes), key=_probability_and_questions)
    if outcome.contest is None or outcome.prepared is None:
        return
    candidates = outcome.prepared.case.candidates

    def label(place: int) -> str:
        mark = "✓" if candidates[place].correct else "✗"
        return f"{place}{mark} {shortened_words(_answer(outcome, place), 24)}"

    title = f"How posterior decided {outcome.name!r} (✓ is right, which no strategy knows)"
    console.print(title, style="bold", highlight=False)
    for line in draw(outcome.contest, label):
        console.print(line)
    reasons = [(influence.what, f"{influence.probability:.0%}") for influence in outcome.contest.explain()]
    console.print()
    console.print(table("", ("what it knew, one after the other", "probability of its choice"), reasons))
    console.print(f"\nIt chose wrongly in {', '.join(wrong) or 'no case'}.", highlight=False)


async def show_live(cases: Sequence[Case], config: RunConfig, keys: Keys, *, quiet: bool) -> int:
    """Let a model in this process, or the one that is named, judge two cases; the exit code."""
    console = stdout()
    chosen = [case for case in cases if case.id in LIVE]
    with resolved_for(config, keys, quiet=quiet) as resolved:
        small = resolved.judge_name == SMALL
        name = "SmolLM2-135M, in this process" if small else printable(resolved.judge_name)
        console.print(f"[bold]The same job live, with {escape(name)}[/bold]", highlight=False)
        started = time.perf_counter()
        async with open_session(resolved) as session:
            with JudgeProgress(len(chosen), None, hidden=quiet) as meter:
                session.engine.watch = meter.count
                outcomes = []
                async for outcome in in_order(session.run(chosen)):
                    outcomes.append(outcome)
                    meter.advance()
            unusable = {} if session.findings is None else session.findings.unusable
    for why, count in unusable.items():
        say(f"{plural(count, 'case')} judged without running the programs: {why} (see caps doctor)", "yellow")
    rows, summary = [], Summary()
    with FailureLog() as failures:
        for outcome in outcomes:
            summary.add(outcome)
            if outcome.failure is not None:
                failures.add_case(outcome.name, outcome.failure)
            elif outcome.prepared is not None and outcome.selection is not None:
                answer = _answer(outcome, outcome.selection.winner)
                calls, tokens = sum(outcome.ledger.calls.values()), outcome.ledger.total().asked
                mark = "right" if _is_right(outcome) else "wrong"
                rows.append((outcome.name, answer, mark, str(calls), number(tokens, 0)))
    columns = ("case", "answer chosen", "right?", "judge calls", "tokens read")
    console.print(table("", columns, rows, numbers_from=3))
    billed = summary.ledger.total().billed
    paid = f"{number(billed, 0)} tokens read" if billed else "every reply came from the journal"
    console.print(f"{paid}, {time.perf_counter() - started:.0f} s", style="dim", highlight=False)
    if small:
        console.print("This model is small enough to run anywhere, and too small to judge: expect a coin.")
    return 1 if summary.failed else 0


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
