"""`caps sample`: generate candidates for problems."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing
from dataclasses import replace
from functools import partial
from typing import Annotated

import msgspec
import typer

from caps.cli import options
from caps.cli.help import FILES
from caps.cli.options import JsonFlag, configured
from caps.cli.output import FailureLog, print_json, say, stdout
from caps.cli.preflight import checked_source, resolved_for
from caps.cli.progress import SampleProgress
from caps.cli.signals import run_paid_work
from caps.config import Keys, RunConfig
from caps.core.errors import InputError, SettingError
from caps.core.secrets import recorded_extra
from caps.core.text import number, plural, printable
from caps.core.types import Case
from caps.costs.ledger import Ledger
from caps.datasets.case_files import count_lines, write_case
from caps.datasets.imports import open_cases
from caps.evidence.domains import domain_named
from caps.files import Output as OutputFile
from caps.files import is_stream
from caps.models.base import Request
from caps.models.scripted import ScriptedModel
from caps.models.wire import encode_body
from caps.runs.summary import SamplingSummary
from caps.sampling.base import Method, Sampled, SamplingTools
from caps.sampling.sampler import Sampler, sample_all
from caps.session.engines import total_budget
from caps.session.parts import generation_templates, make_graders
from caps.session.resolve import Resolved, generation_of, resolve
from caps.session.session import open_samplers
from caps.session.solving import AutoMethod, open_solver, sampling_tools
from caps.studies.grading import GradeStore

Problems = Annotated[
    str,
    typer.Argument(
        metavar="PROBLEMS", help="File of problems, one JSON object per line; - reads standard input."
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Ask nothing; show the first request.", rich_help_panel=FILES),
]


@configured(
    "judge", "asking", "strategy", "domain", "findings", "generation", "performance", "context", "journal",
    "cases", "price", "total budget",
    defaults={"strategy": "vanilla"},
    without=(
        "strategy", "skip_failing", "judge_profile", "confidence", "reply", "max_tokens", "criteria",
        "vision", "warm_prefix", "cache_hints",
    ),
)  # fmt: skip
def sample(
    problems: Problems,
    config: RunConfig,
    keys: Keys,
    output: options.CasesOutput = "-",
    limit: options.Limit = None,
    dry_run: DryRun = False,
    quiet: options.Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Generate candidates for each problem, as input of caps select.

    Cases are written one JSON object per line. Replies are stored in the journal: run the same command again,
    and only what is missing is generated. --set changes a field of the method or the preset.
    """
    read = partial(open_cases, problems, fields=config.map, bare=True, say=say)
    source = checked_source(read, limit)
    if dry_run:
        offline = resolve(config, keys=keys, generating=True, offline=True)
        _rehearse(map(offline.cases.apply, source), offline, as_json=as_json)
        return
    with resolved_for(config, keys, generating=True, quiet=quiet) as resolved:
        if total_budget(resolved.config).spends and getattr(generation_of(resolved).method, "fitness", None):
            raise SettingError(
                "a total budget does not count the judge of a fitness: leave out the budget or the fitness"
            )
        counted = None if is_stream(problems) else min(count_lines(problems), limit or sys.maxsize)
        with OutputFile(output, option="--output", keep=True, inputs=[problems]) as sink:
            run = SampleRun(resolved, out=sink, quiet=quiet, as_json=as_json)
            code = run.play(map(resolved.cases.apply, source), counted)
    raise typer.Exit(code)


def _rehearse(source: Iterator[Case | InputError], resolved: Resolved, *, as_json: bool) -> None:
    """Print the request of the first sample of the first readable problem."""
    templates = generation_templates(resolved.config)
    model = resolved.config.model or "MODEL"
    sampler = Sampler(
        ScriptedModel([]),
        model,
        generation_of(resolved).sources[0].preset,
        templates,
        capacity=lambda: 1,
        logprobs=resolved.config.logprobs,
        extra=resolved.config.extra,
    )
    failures = FailureLog()
    for problem in source:
        if isinstance(problem, InputError):
            failures.add(str(problem))
            continue
        request = sampler.request(problem, 0)
        request = msgspec.structs.replace(request, extra=recorded_extra(request.extra))
        if as_json:
            print_json(msgspec.json.decode(encode_body(request)))
        else:
            _show(request)
        return
    failures.close()
    raise SettingError("no problem can be shown: every line of the file is wrong")


def _show(request: Request) -> None:
    body = msgspec.json.decode(encode_body(request))
    fields = ", ".join(f"{name} = {value}" for name, value in body.items() if name != "messages")
    console = stdout()
    console.print(printable(f"{request.template}: {fields}"), markup=False, soft_wrap=True)
    for message in request.messages:
        console.print(printable(f"\n[{message.role}]\n{message.content}"), markup=False, soft_wrap=True)


TEST_SECONDS = 10.0  # limit of one test of a program


class SampleRun:
    """Samples a stream of problems, and writes the cases in their order."""

    def __init__(
        self, resolved: Resolved, *, out: OutputFile, quiet: bool, as_json: bool, what: str = "problems"
    ) -> None:
        self._resolved, self._what = resolved, what
        self._out, self._quiet, self._as_json = out, quiet, as_json
        self._tally, self._judged, self._guessed = SamplingSummary(), Ledger(), Counter[str]()
        self._price = generation_of(resolved).sources[0].price
        self._failures, self._lost = FailureLog(), FailureLog("sample failed")

    def play(self, source: Iterable[Case | InputError], total: int | None) -> int:
        """Sample all problems; return the exit code."""
        kept = "" if self._out.name == "-" else f", the cases so far in {self._out.name}.partial"
        return run_paid_work(self._sample(source, total), self._resolved.journal, self._so_far, kept)

    def _so_far(self) -> str:
        return f" after {plural(self._tally.problems, 'problem')}, {plural(self._tally.samples, 'sample')}"

    async def _sample(self, source: Iterable[Case | InputError], total: int | None) -> int:
        started, truth = time.perf_counter(), GradeStore(make_graders("auto", TEST_SECONDS))
        async with AsyncExitStack() as ending:
            sampler, method, tools = await self._open(ending, truth)
            ending.push_async_callback(truth.close)
            with ExitStack() as stack:
                stack.enter_context(self._failures)
                stack.enter_context(self._lost)
                meter = stack.enter_context(
                    SampleProgress(total, self._tally, hidden=self._quiet, what=self._what)
                )
                sampler.watch = meter.count
                n = self._resolved.config.samples
                all_ = sample_all(
                    source,
                    method,
                    sampler,
                    n=self._resolved.config.max_n if n == "auto" else n,
                    tools=tools,
                    grace=self._resolved.grace,
                )
                async with aclosing(all_) as stream:
                    async for sampled in stream:
                        self._deliver(sampled)
                        meter.advance()
                self._out.finish()
        self._close(time.perf_counter() - started)
        return 3 if self._tally.lost["budget"] else 1 if self._tally.failed else 0

    async def _open(self, stack: AsyncExitStack, truth: GradeStore) -> tuple[Sampler, Method, SamplingTools]:
        """Connect to the models; with --n auto, a method decides how many samples each problem needs."""
        resolved = self._resolved
        if resolved.config.samples == "auto":
            voting = resolved.with_config(replace(resolved.config, strategy="majority"))
            solver = await stack.enter_async_context(open_solver(voting))
            return solver.samplers[0], AutoMethod(solver), SamplingTools(grade=truth.grade)
        (sampler,) = await stack.enter_async_context(open_samplers(resolved))
        tools = await stack.enter_async_context(
            sampling_tools(resolved, grade=truth.grade, paid=self._judged)
        )
        return sampler, generation_of(resolved).method, tools

    def _deliver(self, sampled: Sampled) -> None:
        self._tally.add(sampled)
        named = f"problem {sampled.name!r}: " if sampled.name else ""
        if sampled.case is None:
            self._failures.add(f"{named}{sampled.failure}")
            return
        for sample in sampled.samples:
            if sample.failure:
                self._lost.add(f"{named}sample {sample.number}: {sample.failure}")
        if sampled.case.guessed:
            self._guessed[sampled.case.domain] += 1
        # The prompt depended on the domain, so the case states it, unless it has no prompts of its own.
        case = sampled.case
        unsure = case.guessed and not domain_named(case.domain).has_own_prompts
        self._out.write(write_case(replace(case, guessed=unsure)) + b"\n")

    def _close(self, seconds: float) -> None:
        if self._as_json and self._out.name != "-":
            judged = {"judge": self._judged.total().asked} if self._judged.lines else {}
            print_json(self._tally.as_line(self._price) | judged)
        if self._quiet:
            return
        say(self._tally.as_text(self._price, seconds))
        if self._judged.lines:
            say(f"tokens read by the judge between loops: {number(self._judged.total().asked, 0)}")
        if self._guessed:
            guesses = ", ".join(f"{domain} {count}" for domain, count in self._guessed.items())
            say(f'guessed domains: {guesses}; set "domain" in the problems')
