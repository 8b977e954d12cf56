"""One run of `sample`: where cases, progress and figures go."""

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack, ExitStack, aclosing
from dataclasses import replace

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from caps.building import make_graders
from caps.cli.output import bar, print_json, say
from caps.cli.stopping import say_stopped, unless_stopped
from caps.core.errors import InputError
from caps.core.text import number
from caps.core.types import Case
from caps.costs.ledger import Ledger
from caps.datasets.case_files import write_case
from caps.evidence.domains import domain_named
from caps.files import Output
from caps.runner import Runner
from caps.runs.summary import Tally
from caps.sampling.base import Sample, Sampled
from caps.sampling.sampler import sample_all
from caps.solving import aids_for
from caps.studies.grading import GradeStore

TEST_SECONDS = 10.0  # a program's for each of its tests


class SampleRun:
    """Samples a stream of problems; every case is written as soon as those before it are."""

    def __init__(self, runner: Runner, *, logprobs: bool, out: Output, quiet: bool, as_json: bool) -> None:
        self._runner = runner
        self._logprobs, self._out, self._quiet, self._as_json = logprobs, out, quiet, as_json
        self._tally, self._judged, self._guessed = Tally(), Ledger(), Counter[str]()
        self._price = runner.generation_price

    async def until_done_or_stopped(self, source: Iterable[Case | InputError], total: int | None) -> int:
        """Sample all problems; on Ctrl-C or SIGTERM keep what was paid, and say how to go on."""
        code = await unless_stopped(self._sample(source, total))
        if code is not None:
            return code
        kept = "" if self._out.name == "-" else f", the cases so far in {self._out.name}.partial"
        after = f" after {self._tally.problems} problems, {self._tally.samples} samples"
        say_stopped(self._runner.journal_path, after, kept)
        return 130

    async def _sample(self, source: Iterable[Case | InputError], total: int | None) -> int:
        started, truth = time.perf_counter(), GradeStore(make_graders("auto", TEST_SECONDS))
        async with (
            AsyncExitStack() as ending,
            self._runner.sampler(logprobs=self._logprobs, paid=self._tally.pay) as sampler,
            aids_for(self._runner, grade=truth.grade, paid=self._judged) as aids,
        ):
            ending.push_async_callback(truth.close)
            with ExitStack() as stack:
                meter = stack.enter_context(SampleMeter(total, self._tally, hidden=self._quiet))
                sampler.watch = meter.hear
                all_ = sample_all(
                    source,
                    self._runner.method,
                    sampler,
                    n=self._runner.config.samples,
                    aids=aids,
                    grace=self._runner.grace,
                )
                async with aclosing(all_) as stream:
                    async for sampled in stream:
                        self._deliver(sampled)
                        meter.advance()
                self._out.finish()
        self._close(time.perf_counter() - started)
        return 3 if self._tally.lost["budget"] else 1 if self._tally.failed else 0

    def _deliver(self, sampled: Sampled) -> None:
        self._tally.add(sampled)
        named = f"problem {sampled.name!r}: " if sampled.name else ""
        if sampled.case is None:
            say(f"failed: {named}{sampled.failure}", "red")
            return
        for sample in sampled.samples:
            if sample.failure:
                say(f"{named}sample {sample.number} failed: {sample.failure}", "yellow")
        if sampled.case.guessed:
            self._guessed[sampled.case.domain] += 1
        # The prompt went by the domain, so it is stated, unless it said nothing.
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
            say(f'domain guessed: {guesses}; say "domain" in a problem to be sure')


class SampleMeter:
    """The progress bar: problems, samples, tokens written, time left."""

    def __init__(self, total: int | None, tally: Tally, *, hidden: bool) -> None:
        self._tally = tally
        self._progress = bar(
            TextColumn("problems"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[spent]}"),
            TimeElapsedColumn(), TimeRemainingColumn(), hidden=hidden,
        )  # fmt: skip
        self._bar = self._progress.add_task("problems", total=total, spent="")

    def __enter__(self) -> "SampleMeter":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def hear(self, sample: Sample) -> None:
        """Count a sample."""
        self._tally.hear(sample)
        samples, written = number(self._tally.samples, 0), number(self._tally.paid.output, 0)
        self._progress.update(self._bar, spent=f"{samples} samples, {written} tokens written")

    def advance(self) -> None:
        """Count a problem."""
        self._progress.advance(self._bar)
