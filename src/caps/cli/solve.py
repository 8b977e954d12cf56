"""`caps solve`: sample, then select, one question."""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from caps.cli import options
from caps.cli.help import FILES
from caps.cli.options import JsonFlag, configured, named_domain
from caps.cli.output import say, write_result
from caps.cli.preflight import resolved_for
from caps.cli.progress import SampleProgress
from caps.cli.signals import run_paid_work
from caps.config import Keys, RunConfig
from caps.core.errors import InputError, SettingError
from caps.core.text import number, plural, printable
from caps.core.types import Case
from caps.costs.prices import Price
from caps.datasets.case_files import candidate_row
from caps.engines.base import Outcome
from caps.evidence.anatomy import final_answer, spoken
from caps.evidence.domains import domain_named
from caps.files import read_text
from caps.runs.adaptive_lines import adaptive_line, adaptive_text
from caps.runs.folder import claim_single_run, write_single_run
from caps.runs.progress_file import ProgressFile
from caps.runs.result_lines import json_lines, selection_line
from caps.runs.run_file import started_in
from caps.runs.summary import SamplingSummary
from caps.sampling.base import Sample, Sampled
from caps.session.resolve import Resolved
from caps.session.solving import question_case, solve_case

Keep = Callable[[Case, Outcome, dict[str, Any]], None]
Question = Annotated[
    str | None, typer.Argument(metavar="[QUESTION]", help="The question; - reads standard input.")
]
File = Annotated[
    str | None,
    typer.Option(
        "--file", metavar="FILE", help="Read the question from a file; - reads standard input.",
        rich_help_panel=FILES,
    ),
]  # fmt: skip


@configured(
    "judge", "asking", "strategy", "evidence", "findings", "generation", "domain", "performance", "context",
    "journal", "price", "budget", "budget seconds",
)  # fmt: skip
def solve(
    config: RunConfig,
    keys: Keys,
    question: Question = None,
    file: File = None,
    out: options.Out = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Generate answers to one question and print the best.

    The answer goes to standard output, and the costs to standard error. If all answers agree, no judge is
    asked. --set changes a field of the strategy, the method or the preset, whichever has it. With --n auto,
    samples are generated and judged as long as that is worth its price.
    """
    case = question_case(_question(question, file), named_domain(config.domain))
    started = started_in(out, force=force)
    with resolved_for(config, keys, generating=True, quiet=quiet, started=started) as resolved:
        if out is not None:
            claim_single_run(out, resolved, force=force)
        keep = None if out is None else partial(write_single_run, out, resolved, force=force)
        work = _solve(resolved, case, keep, out, quiet=quiet, as_json=as_json)
        code = run_paid_work(work, resolved.journal)
    raise typer.Exit(code)


def _question(question: str | None, file: str | None) -> str:
    if (question is None) == (file is None):
        raise SettingError('give one question: caps solve "What is 17 * 23?", or --file problem.txt')
    where = file or ("-" if question == "-" else None)
    text = question if where is None else read_text(where, option="--file")
    if not text or not text.strip():
        raise InputError("the question is empty")
    return text


async def _solve(
    resolved: Resolved, case: Case, keep: Keep | None, out: Path | None, *, quiet: bool, as_json: bool
) -> int:
    started, tally = time.perf_counter(), SamplingSummary()
    samples = resolved.config.samples if isinstance(resolved.config.samples, int) else None
    with (
        SampleProgress(1, tally, hidden=quiet) as meter,
        ProgressFile(out, samples, what="samples") as live,
    ):

        def count(sample: Sample) -> None:
            meter.count(sample)
            live.finish()

        live.write()
        solution = await solve_case(resolved, case, watch=count, progress=meter.follow)
    sampled, outcome = solution.sampled, solution.outcome
    tally.add(sampled)
    failure = sampled.failure if outcome is None else outcome.failure
    if sampled.case is None or outcome is None or outcome.selection is None:
        say(f"failed: {failure}", "red")
        return 1
    price = resolved.price
    line = selection_line(outcome, resolved.config, price=price)
    if solution.adapted is not None:
        for ledger in solution.adapted.ledgers:
            tally.add_usage(ledger.cancelled_usage)
        line |= adaptive_line(solution.adapted, outcome)
    if keep is not None:
        keep(sampled.case, outcome, line)
    if as_json:
        drawn = {"candidates": [candidate_row(one) for one in sampled.case.candidates]}
        sampling = {"sampling": tally.as_line(price)}
        write_result(json_lines([line | drawn | sampling]))
    else:
        _answer(sampled.case, line["winner"])
    if not quiet:
        _report(sampled, outcome, line, tally, price, time.perf_counter() - started)
        if solution.adapted is not None:
            for words in adaptive_text(solution.adapted, line):
                say(words)
    return 3 if outcome.selection.provisional else 0


def _answer(case: Case, winner: int) -> None:
    """Print the winner without its reasoning, and a short final answer once more."""
    chosen = case.candidates[winner]
    text = spoken(chosen.text).strip() or chosen.text.strip()
    last = final_answer(chosen) if domain_named(case.domain).short_answers else None
    words = text + (f"\n\nanswer: {last}" if last else "")
    if sys.stdout.isatty():
        words = printable(words)
    write_result(words.encode("utf-8", "replace") + b"\n")


def _report(
    sampled: Sampled,
    outcome: Outcome,
    line: dict[str, Any],
    tally: SamplingSummary,
    price: Price | None,
    seconds: float,
) -> None:
    for sample in sampled.samples:
        if sample.failure:
            say(f"sample {sample.number} failed: {sample.failure}", "yellow")
    calls, tokens = line["calls"], line["tokens"]
    count = len(sampled.case.candidates) if sampled.case else 0
    say(
        f"answer {line['winner'] + 1} of {plural(count, 'candidate')}, {line['clusters']} distinct; judge: "
        f"{plural(calls['E1'], 'call')} on partial views (E1), {calls['E2']} on full views (E2), "
        f"{number(tokens['asked'], 0)} tokens read"
    )
    say(tally.as_text(price, seconds))
    if sampled.case is not None and sampled.case.guessed:
        say(f"guessed the domain: {sampled.case.domain}; set it with --domain")
