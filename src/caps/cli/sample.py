"""`caps sample`: draw candidates for problems."""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Annotated, Any

import msgspec
import typer
from platformdirs import user_cache_path, user_data_path

from caps.assemble import Setup, load_templates, reply_for
from caps.cli import given, options
from caps.cli.config_file import ConfigFile
from caps.cli.output import JsonFlag, SetOption, print_json, say, stdout, telling
from caps.cli.sample_run import SampleRun
from caps.config import parse_assignments
from caps.core.errors import InputError, SettingError
from caps.core.secrets import recorded_extra
from caps.core.settings import share_out
from caps.core.types import Case
from caps.datasets.jsonl import count_lines, read_cases
from caps.engines.budget import Budget
from caps.journal.store import default_path
from caps.judges.llm import JudgeSettings
from caps.models.base import Request
from caps.models.fleet_addresses import join_addresses
from caps.models.scripted import ScriptedModel
from caps.models.wire import encode_body
from caps.sampling.making import make_method, make_preset, usual_preset
from caps.sampling.presets import Preset
from caps.sampling.sampler import Sampler
from caps.solving import judge_endpoint

Problems = Annotated[
    str, typer.Argument(metavar="PROBLEMS", help="Problems, one JSON object a line; - is standard input.")
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where cases go; - is stdout.")]
Logprobs = Annotated[bool, typer.Option("--logprobs", help="Keep the mean log-probability of each answer.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask nothing: show the first request.")]


def sample(
    problems: Problems,
    samples: options.Samples = 16,
    output: Output = "-",
    model: options.SampleModel = None,
    base_url: options.SampleBaseUrl = None,
    api_key: options.ApiKey = None,
    preset: options.Preset = "default",
    method: options.Method = "independent",
    set_: SetOption = None,
    seed: options.SampleSeed = None,
    logprobs: Logprobs = False,
    prompts: options.Prompts = None,
    extra: options.Extra = None,
    judge_model: options.JudgeModel = None,
    judge_base_url: options.JudgeBaseUrl = None,
    judge_api_key: options.JudgeApiKey = None,
    max_connections: options.Connections = "auto",
    timeout: options.Timeout = 600,
    journal: options.JournalFile = None,
    no_journal: options.NoJournal = False,
    durable: options.Durable = False,
    price_input: options.PriceInput = None,
    price_output: options.PriceOutput = None,
    price_cached: options.PriceCached = None,
    budget_total_tokens: options.BudgetTotalTokens = None,
    budget_total_usd: options.BudgetTotalUsd = None,
    limit: options.Limit = None,
    dry_run: DryRun = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
    config: ConfigFile = None,
) -> None:
    """Draw candidates for each problem, ready for caps select.

    Cases go to FILE or standard output, one JSON object a line. What was paid for is kept in the journal:
    run the same command again and only what is missing is drawn. --set changes the method or the preset.
    """
    changes = parse_assignments(set_ or []) | ({} if seed is None else {"seed": str(seed)})
    preset = usual_preset(preset, model)
    of_method, of_preset = share_out(changes, make_method(method), make_preset(preset))
    chosen, drawn = make_method(method, of_method), make_preset(preset, of_preset)
    source = _opened(problems, limit)
    if dry_run:
        _rehearse(source, drawn, model or "MODEL", given.parse_extra(extra or []), prompts, as_json=as_json)
        return
    budget = Budget(tokens=budget_total_tokens, usd=budget_total_usd)
    if budget.spends and getattr(chosen, "fitness", None):
        raise SettingError("a budget would not hold with a fitness, whose judge it does not count: drop one")
    setup = Setup(
        endpoint=given.endpoint_of(model, base_url, api_key, quiet=quiet),
        extra=given.parse_extra(extra or []),
        prompts=prompts,
        connections=given.parse_connections(max_connections),
        timeout=timeout,
        journal=None if no_journal else journal or default_path(user_data_path("caps")),
        durable=durable,
        price=given.price_of(price_input, price_output, price_cached),
        total_budget=budget,
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
    run = SampleRun(
        setup, replace(setup, endpoint=judge, judge=JudgeSettings(reply=reply_for(judge))), drawn, chosen,
        n=samples, logprobs=logprobs, out=output, quiet=quiet, as_json=as_json,
    )  # fmt: skip
    counted = None if problems == "-" else min(count_lines(problems), limit or sys.maxsize)
    raise typer.Exit(asyncio.run(run.until_done_or_stopped(source, counted)))


def _opened(problems: str, limit: int | None) -> Iterator[Case | InputError]:
    """The problems; a file that cannot be read at all is found before anything is opened or asked."""
    source = read_cases(problems, bare=True)
    first = list(islice(source, 1))
    return islice(chain(first, source), limit)


def _rehearse(
    source: Iterator[Case | InputError], preset: Preset, model: str, extra: dict[str, Any], prompts: Any,
    *, as_json: bool,
) -> None:  # fmt: skip
    """Show the request of the first sample of the first problem that can be read."""
    templates = load_templates(prompts, shelf="generation")
    desk = Sampler(ScriptedModel([]), model, preset, templates, capacity=lambda: 1, extra=extra)
    for problem in source:
        if isinstance(problem, InputError):
            say(f"failed: {problem}", "red")
            continue
        request = desk.request(problem, 0)
        request = msgspec.structs.replace(request, extra=recorded_extra(request.extra))
        if as_json:
            print_json(msgspec.json.decode(encode_body(request)))
        else:
            _show(request)
        return
    raise SettingError("there is no problem that could be shown")


def _show(request: Request) -> None:
    body = msgspec.json.decode(encode_body(request))
    told = ", ".join(f"{name} = {value}" for name, value in body.items() if name != "messages")
    console = stdout()
    console.print(f"{request.template}: {told}", markup=False, soft_wrap=True)
    for message in request.messages:
        console.print(f"\n[{message.role}]\n{message.content}", markup=False, soft_wrap=True)
