"""`caps sample`: generate candidates for problems."""

import asyncio
import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import Annotated

import msgspec
import typer

from caps.building import load_templates
from caps.cli import options
from caps.cli.config_options import configured
from caps.cli.output import JsonFlag, print_json, say, stdout
from caps.cli.running import runner_for
from caps.cli.sample_run import SampleRun
from caps.config import Keys, RunConfig
from caps.core.errors import InputError, SettingError
from caps.core.secrets import recorded_extra
from caps.core.types import Case
from caps.datasets.case_files import count_lines, read_cases
from caps.files import Output as OutputFile
from caps.files import is_stream
from caps.models.base import Request
from caps.models.scripted import ScriptedModel
from caps.models.wire import encode_body
from caps.reports.console import shown
from caps.runner import Runner
from caps.sampling.sampler import Sampler

Problems = Annotated[
    str, typer.Argument(metavar="PROBLEMS", help="Problems, one JSON object a line; - is standard input.")
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where cases go; - is stdout.")]
Logprobs = Annotated[bool, typer.Option("--logprobs", help="Keep the mean log-probability of each answer.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask nothing: show the first request.")]


@configured(
    "judge", "asking", "strategy", "domain", "findings", "generation", "performance", "embedded", "journal",
    "price", "total budget",
    defaults={"strategy": "vanilla"},
    without=("strategy", "skip_failing", "judge_profile", "confidence", "reply", "max_tokens"),
)  # fmt: skip
def sample(
    problems: Problems,
    config: RunConfig,
    keys: Keys,
    output: Output = "-",
    logprobs: Logprobs = False,
    limit: options.Limit = None,
    dry_run: DryRun = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Generate candidates for each problem, ready for caps select.

    Cases go to FILE or standard output, one JSON object a line. What was paid for is kept in the journal:
    run the same command again and only what is missing is generated. --set changes the method or the preset.
    """
    source = _opened(problems, limit)
    if dry_run:
        offline = Runner(config, keys=keys, generating=True, offline=True)
        _rehearse(map(offline.stated, source), offline, as_json=as_json)
        return
    with runner_for(config, keys, generating=True, quiet=quiet) as runner:
        if runner.total_budget.spends and getattr(runner.method, "fitness", None):
            raise SettingError(
                "a budget would not hold with a fitness, whose judge it does not count: drop one"
            )
        counted = None if is_stream(problems) else min(count_lines(problems), limit or sys.maxsize)
        with OutputFile(output, option="--output", keep=True, inputs=[problems]) as sink:
            run = SampleRun(runner, logprobs=logprobs, out=sink, quiet=quiet, as_json=as_json)
            code = asyncio.run(run.until_done_or_stopped(map(runner.stated, source), counted))
    raise typer.Exit(code)


def _opened(problems: str, limit: int | None) -> Iterator[Case | InputError]:
    """The problems; a file that cannot be read at all is found before anything is opened or asked."""
    source = read_cases(problems, bare=True)
    first = list(islice(source, 1))
    return islice(chain(first, source), limit)


def _rehearse(source: Iterator[Case | InputError], runner: Runner, *, as_json: bool) -> None:
    """Show the request of the first sample of the first problem that can be read."""
    templates = load_templates(runner.prompts_folder, shelf="generation")
    model = runner.config.model or "MODEL"
    desk = Sampler(
        ScriptedModel([]), model, runner.preset, templates, capacity=lambda: 1, extra=runner.config.extra
    )
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
    console.print(shown(f"{request.template}: {told}"), markup=False, soft_wrap=True)
    for message in request.messages:
        console.print(shown(f"\n[{message.role}]\n{message.content}"), markup=False, soft_wrap=True)
