"""Having pairs judged with a bar to look at, and telling what came of it."""

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from caps.assemble import Setup
from caps.cli.output import bar, print_json, say, stdout
from caps.cli.sink import write_all
from caps.core.judging import JudgeProfile
from caps.core.types import Level
from caps.diagnostics.looks import at
from caps.diagnostics.measured import Measured, measure, profile_of
from caps.diagnostics.suitability import REASON, RULE, usable
from caps.experiments.advice import CONTESTS, Expected, advise, expectations, has_tests
from caps.experiments.diagnosis import Asked, Plan, Subject, ask
from caps.experiments.fitting import fitted
from caps.experiments.pools import LabelledPool
from caps.judges.profiles import profile_row
from caps.reports import diagnosed


async def judged_live(setup: Setup, scheduled: Sequence[Subject], plan: Plan, *, quiet: bool) -> Asked | None:
    """Ask; none on Ctrl-C or SIGTERM, with everything paid for in the journal."""
    columns = (TextColumn("pairs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with bar(*columns, hidden=quiet) as progress:
        pairs = progress.add_task("pairs", total=sum(len(subject.duels) for subject in scheduled))
        work = asyncio.ensure_future(
            ask(setup, scheduled, plan, advance=lambda more: progress.advance(pairs, more))
        )
        loop = asyncio.get_running_loop()
        for signal_ in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signal_, work.cancel)
        try:
            return await work
        except asyncio.CancelledError:
            kept = "every reply so far is in the journal" if setup.journal else "no journal was kept"
            say(f"interrupted; {kept}: run the same command again to go on", "yellow")
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Where the findings of a diagnosis go: a terminal, JSON, a profile file."""

    cases: str
    plan: Plan
    found: Sequence[Subject]
    save: Path | None
    date: str
    as_json: bool
    quiet: bool

    def tell(
        self,
        asked: Asked,
        *,
        simulated: str | None = None,
        setup: Setup | None = None,
        base_url: str | None = None,
    ) -> int:
        """Say everything; the exit code."""
        for failure in asked.failures:
            say(f"failed: {failure}", "red")
        if not asked.looks:
            say("no pair was answered in full: nothing can be said of this judge", "red")
            return 3 if asked.ended else 1
        measured = measure(asked.looks, probabilities=asked.confidence == "logprobs")
        about: dict[str, Any] = {
            "judge": "simulated" if simulated is not None else "measured",
            "counts": {
                "pairs": measured.pairs, "cases": measured.cases, "looks": len(asked.looks),
                "unanswered": asked.unanswered, "beyond": asked.beyond,
            },
        }  # fmt: skip
        if self.plan.proxy:
            self._tell_proxy(measured, about)
        else:
            self._tell_all(asked, measured, about, simulated, setup, base_url)
        if asked.ended:
            say(
                f"the {asked.ended} ended before all pairs were asked; the figures are about the rest",
                "yellow",
            )
        return 1 if asked.failures else 3 if asked.ended else 0

    def _tell_proxy(self, measured: Measured, about: dict[str, Any]) -> None:
        if self.as_json:
            row = diagnosed.as_row(measured)
            for level in row["levels"].values():
                for name in ("accuracy", "bounds", "standing", "brier", "calibration_error"):
                    level.pop(name)  # of nothing: there are no labels
                level["confidence"] = {"sure": level["confidence"]["sure"]}
            for name in ("difference", "repeats", "settled_after"):
                row.pop(name)
            print_json({**about, "proxy": "agreement of E1 with E2; not an accuracy", **row})
            return
        console = stdout()
        console.print(diagnosed.proxy_figures(measured))
        for line in diagnosed.remarks(measured, labelled=False):
            console.print(line, markup=False, soft_wrap=True)
        console.print(diagnosed.PROXY, markup=False, soft_wrap=True)

    def _tell_all(
        self, asked: Asked, measured: Measured, about: dict[str, Any], simulated: str | None,
        setup: Setup | None, base_url: str | None,
    ) -> None:  # fmt: skip
        profile, assumed = profile_of(asked.looks, measured)
        options = self._expected(asked, measured, profile)
        chosen = advise(
            options,
            usable=usable(measured.levels["E2"].bounds),
            tested=has_tests(one.case for one in self.found),
        )
        line = diagnosed.command(self.cases, chosen, _judge_words(setup, base_url, asked), self._saved())
        if self.save is not None:
            row = self._kept(profile, assumed, measured, about, simulated, setup, asked)
            write_all([msgspec.json.format(msgspec.json.encode(row)) + b"\n"], self.save)
        if self.as_json:
            advice = {
                "rule": RULE, "reason": REASON, "use": asdict(chosen), "command": line,
                "expected": {"simulated": True, "judge": asdict(fitted(measured))},
                "options": [asdict(one) for one in options],
            }  # fmt: skip
            print_json({**about, **diagnosed.as_row(measured), "profile": asdict(profile), "assumed": assumed,
                        "advice": advice})  # fmt: skip
            return
        self._print(measured, options, chosen, line, simulated)

    def _print(
        self, measured: Measured, options: list[Expected], chosen: Expected, line: str, simulated: str | None
    ) -> None:
        console = stdout()
        if simulated is not None:
            console.print(
                f"simulated judge {simulated}: nothing below is about a model\n", style="yellow", markup=False
            )
        console.print(diagnosed.figures(measured))
        lines = ["", *diagnosed.remarks(measured), ""]
        lines += [*diagnosed.judged_words(measured, pairs_most=self.plan.pairs), ""]
        for words in lines:
            console.print(words, markup=False, soft_wrap=True)
        console.print(diagnosed.options_table(options, chosen))
        last = [
            diagnosed.paper_measure(options) or "",
            "",
            *diagnosed.advice_words(measured, chosen),
            "",
            line,
        ]
        for words in last:
            console.print(words, markup=False, soft_wrap=True)
        if self.save is not None:
            say(f"profile: {self.save}")

    def _expected(self, asked: Asked, measured: Measured, profile: JudgeProfile) -> list[Expected]:
        with bar(hidden=self.quiet) as progress:
            counted = progress.add_task("simulated contests", total=CONTESTS)
            return expectations(
                self._pools(),
                fitted(measured),
                profile,
                seed=self.plan.seed,
                scale=_scale(asked, self.found),
                report=lambda done: progress.advance(counted, done),
            )

    def _pools(self) -> list[LabelledPool]:
        """Every pool with labels, told apart or not: all of them count for Pass@1."""
        return [one.pool for one in self.found if one.pool.correct]

    def _saved(self) -> str | None:
        return None if self.save is None else str(self.save)

    def _kept(
        self, profile: JudgeProfile, assumed: tuple[str, ...], measured: Measured, about: dict[str, Any],
        simulated: str | None, setup: Setup | None, asked: Asked,
    ) -> dict[str, Any]:  # fmt: skip
        partial = None if setup is None else setup.endpoint_partial
        intervals = {
            level: {
                "accuracy": [found.accuracy.value, found.accuracy.low, found.accuracy.high],
                "at_every_look": [found.bounds.low, found.bounds.high],
            }
            for level, found in measured.levels.items()
        }
        source = f"caps diagnose {self.cases}" if simulated is None else f"simulated judge {simulated}"
        return profile_row(
            profile,
            {
                "source": source,
                "model": None if setup is None else setup.endpoint.model,
                "model_e1": None if partial is None else partial.model,
                "confidence": asked.confidence,
                "date": self.date,
                "seed": self.plan.seed,
                "counts": about["counts"],
                "intervals": intervals,
                "assumed": list(assumed),
            },
        )


def _judge_words(setup: Setup | None, base_url: str | None, asked: Asked) -> list[str]:
    """The options of `select` that name this judge again."""
    if setup is None:
        return []
    words = ["--model", setup.endpoint.model]
    words += ["--base-url", base_url] if base_url else []
    return words + (["--confidence", asked.confidence] if asked.confidence != "verbal" else [])


def _scale(asked: Asked, found: Sequence[Subject]) -> dict[str, float]:
    """Tokens the server counted, against our estimate from characters, by level."""
    overhead = {one.pool.number: one.pool.overhead for one in found}
    scale = {}
    for level in (Level.PARTIAL, Level.FULL):
        looks = at(asked.looks, level)
        reckoned = fmean(overhead[look.case] + sum(look.sizes) for look in looks)
        scale[str(level)] = fmean(look.tokens for look in looks) / reckoned
    return scale
