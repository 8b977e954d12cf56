"""`caps solve`: sample, then select, one question."""

import asyncio
import sys
import time
from dataclasses import replace
from typing import Annotated, Any

import typer
from platformdirs import user_cache_path, user_data_path

from caps.assemble import Setup, make_strategy, reply_for
from caps.cli import given, options
from caps.cli.config_file import ConfigFile
from caps.cli.output import JsonFlag, SetOption, put, say, telling
from caps.cli.sample_run import SampleMeter
from caps.cli.stopping import say_stopped, unless_stopped
from caps.config import parse_assignments
from caps.core.errors import InputError, SettingError
from caps.core.settings import share_out
from caps.core.types import Case
from caps.costs.prices import Price, listed_price
from caps.datasets.jsonl import DOMAINS
from caps.datasets.writing import candidate_row
from caps.engines.base import Outcome
from caps.evidence.anatomy import final_answer, spoken
from caps.files import read_text
from caps.journal.store import default_path
from caps.judges.llm import JudgeSettings
from caps.models.fleet_addresses import join_addresses
from caps.registry import DEFAULT_STRATEGY
from caps.reports.console import number, shown
from caps.reports.lines import json_lines, selection_line
from caps.reports.sampled import Tally
from caps.sampling.base import Sampled
from caps.sampling.making import make_method, make_preset, usual_preset
from caps.solving import Solving, judge_endpoint, question_case

Question = Annotated[str | None, typer.Argument(help="The question; - is standard input.")]
File = Annotated[str | None, typer.Option("--file", metavar="FILE", help="Read it from a file; - likewise.")]
Domain = Annotated[
    str | None, typer.Option("--domain", help="code, math or general; guessed from the answers if absent.")
]


def solve(
    question: Question = None,
    file: File = None,
    domain: Domain = None,
    samples: options.Samples = 16,
    model: options.SampleModel = None,
    base_url: options.SampleBaseUrl = None,
    api_key: options.ApiKey = None,
    judge_model: options.JudgeModel = None,
    judge_base_url: options.JudgeBaseUrl = None,
    judge_api_key: options.JudgeApiKey = None,
    preset: options.Preset = "default",
    method: options.Method = "independent",
    strategy: options.Strategy = DEFAULT_STRATEGY,
    set_: SetOption = None,
    judge_profile: options.JudgeProfileFile = None,
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
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
    config: ConfigFile = None,
) -> None:
    """Draw answers to one question and print the best.

    The answer goes to standard output, what it took to standard error; where all answers agree, no judge is
    asked. --set changes the strategy, the method or the preset, whichever has the field.
    """
    plain = make_strategy(strategy)
    preset = usual_preset(preset, model)
    changes = parse_assignments(set_ or []) | {"seed": str(seed)}
    of_strategy, of_method, of_preset = share_out(changes, plain, make_method(method), make_preset(preset))
    setup = Setup(
        endpoint=given.endpoint_of(model, base_url, api_key, quiet=quiet),
        judge=JudgeSettings(max_tokens=max_tokens),
        confidence=given.confidence_of(confidence),
        extra=given.parse_extra(extra or []),
        profile=profile,
        views=parse_assignments(view or [], option="--view"),
        prompts=prompts,
        connections=given.parse_connections(max_connections),
        timeout=timeout,
        journal=None if no_journal else journal or default_path(user_data_path("caps")),
        durable=durable,
        price=given.price_of(price_input, price_output, price_cached),
        grace=given.GRACE_SECONDS,
        tell=telling(quiet=quiet),
    )
    judge = judge_endpoint(
        setup.endpoint,
        judge_model,
        join_addresses(judge_base_url),
        judge_api_key,
        cache=user_cache_path("caps"),
    )
    solving = Solving(
        writing=setup,
        judging=replace(
            setup, endpoint=judge, judge=replace(setup.judge, reply=reply_for(judge)), hard_evidence="auto"
        ),
        preset=make_preset(preset, of_preset),
        method=make_method(method, of_method),
        strategy=make_strategy(strategy, of_strategy, given.known_judge(judge_profile)),
        n=samples,
        seed=seed,
    )
    case = question_case(_question(question, file), _domain(domain))
    told = asyncio.run(_until_done_or_stopped(solving, case, strategy, quiet=quiet, as_json=as_json))
    raise typer.Exit(told)


def _question(question: str | None, file: str | None) -> str:
    if (question is None) == (file is None):
        raise SettingError('give one question: caps solve "What is 17 * 23?", or --file problem.txt')
    where = file or ("-" if question == "-" else None)
    text = question if where is None else read_text(where, option="--file")
    if not text or not text.strip():
        raise InputError("the question is empty")
    return text


def _domain(word: str | None) -> str | None:
    if word is not None and word not in DOMAINS:
        raise SettingError(f"--domain {word!r}: must be one of {', '.join(DOMAINS)}")
    return word


async def _until_done_or_stopped(
    solving: Solving, case: Case, strategy: str, *, quiet: bool, as_json: bool
) -> int:
    """Solve; on Ctrl-C or SIGTERM keep what was paid."""
    code = await unless_stopped(_solve(solving, case, strategy, quiet=quiet, as_json=as_json))
    if code is None:
        say_stopped(solving.writing.journal)
    return 130 if code is None else code


async def _solve(solving: Solving, case: Case, strategy: str, *, quiet: bool, as_json: bool) -> int:
    started, tally = time.perf_counter(), Tally()
    with SampleMeter(1, tally, hidden=quiet) as meter:
        sampled, outcome = await solving.run(case, watch=meter.hear)
    tally.add(sampled)
    failure = sampled.failure if outcome is None else outcome.failure
    if sampled.case is None or outcome is None or outcome.selection is None:
        say(f"failed: {failure}", "red")
        return 1
    endpoint = solving.judging.endpoint
    price = solving.judging.price or listed_price(endpoint.model, endpoint.base_url)
    line = selection_line(outcome, strategy=strategy, seed=solving.seed, price=price)
    if as_json:
        drawn = {"candidates": [candidate_row(one) for one in sampled.case.candidates]}
        sampling = {"sampling": tally.as_line(price)}
        put(json_lines([line | drawn | sampling]))
    else:
        _answer(sampled.case, line["winner"])
    if not quiet:
        _report(sampled, outcome, line, tally, price, time.perf_counter() - started)
    return 3 if outcome.selection.provisional else 0


def _answer(case: Case, winner: int) -> None:
    """Print what the winner says outside its thoughts, and for math its final answer once more."""
    chosen = case.candidates[winner]
    text = spoken(chosen.text).strip() or chosen.text.strip()
    last = final_answer(chosen) if case.domain == "math" else None
    words = text + (f"\n\nanswer: {last}" if last else "")
    if sys.stdout.isatty():
        words = shown(words)
    put(words.encode("utf-8", "replace") + b"\n")


def _report(
    sampled: Sampled,
    outcome: Outcome,
    line: dict[str, Any],
    tally: Tally,
    price: Price | None,
    seconds: float,
) -> None:
    for sample in sampled.samples:
        if sample.failure:
            say(f"sample {sample.number} failed: {sample.failure}", "yellow")
    calls, tokens = line["calls"], line["tokens"]
    count = len(sampled.case.candidates) if sampled.case else 0
    say(
        f"answer {line['winner'] + 1} of {count} candidates, {line['clusters']} different; judge: "
        f"{calls['E1']} calls at E1, {calls['E2']} at E2, {number(tokens['asked'], 0)} tokens asked"
    )
    say(tally.as_text(price, seconds))
    if sampled.case is not None and sampled.case.guessed:
        say(f"domain guessed: {sampled.case.domain}; say --domain to be sure")
