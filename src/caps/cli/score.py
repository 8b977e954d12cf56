"""`caps score`: write the scores of a reward server into the candidates of cases."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, aclosing
from dataclasses import fields, replace
from typing import Annotated

import typer

from caps.cli import options
from caps.cli.help import FILES
from caps.cli.options import Cases, configured
from caps.cli.output import FailureLog, say
from caps.cli.preflight import counted_source, resolved_for
from caps.cli.progress import JudgeProgress
from caps.cli.signals import run_paid_work
from caps.config import Keys, RunConfig
from caps.core.errors import InputError, SettingError
from caps.core.text import number, plural
from caps.core.types import Candidate, Case
from caps.datasets.case_files import write_case
from caps.engines.base import Outcome, in_order
from caps.files import Output as OutputFile
from caps.files import join_paths
from caps.registry import REWARD_JUDGE
from caps.runs.summary import Summary
from caps.session.resolve import Resolved
from caps.session.session import open_session

Field = Annotated[
    str,
    typer.Option(
        "--field", metavar="NAME", rich_help_panel=FILES,
        help="Field of candidates that receives the score.",
    ),
]  # fmt: skip


@configured(
    "judge", "asking", "evidence", "domain", "performance", "journal", "cases", "price", "budget",
    "budget seconds", "total budget",
    defaults={"judge": REWARD_JUDGE},
    without=(
        "confidence", "reply", "max_tokens", "prompts", "criteria",
        "vision", "warm_prefix", "cache_hints",
    ),
)  # fmt: skip
def score(
    cases: Cases,
    config: RunConfig,
    keys: Keys,
    output: options.CasesOutput = "-",
    field: Field = "rm_score",
    limit: options.Limit = None,
    quiet: options.Quiet = False,
) -> None:
    """Score every candidate with a reward or classifier server.

    The scores are written into the candidates as they are, in the field that --field names. Strategies use
    them with --set feature=NAME: reward takes the highest, and posterior counts them as evidence before the
    judge is asked. Scores are stored in the journal, so nothing is scored twice.
    """
    if config.judge != REWARD_JUDGE:
        raise SettingError(f"--judge {config.judge}: caps score asks a reward server; leave it out")
    taken = {one.name for one in fields(Candidate)} - {"score"}
    if field in taken or not field.strip():
        raise SettingError(f"--field {field!r}: is another field of candidates; choose a new name, or score")
    config = replace(config, strategy="pointwise", settings={}, hard_evidence="off")
    source, total = counted_source(join_paths(cases), config.map, limit)
    with (
        resolved_for(config, keys, quiet=quiet) as resolved,
        OutputFile(output, option="--output", keep=True, inputs=cases) as sink,
    ):
        scoring = Scoring(resolved, field, sink, quiet=quiet)
        code = run_paid_work(scoring.play(source, total), resolved.journal, scoring.so_far)
    raise typer.Exit(code)


class Scoring:
    """Scores a stream of cases, and writes them in their order."""

    def __init__(self, resolved: Resolved, field: str, out: OutputFile, *, quiet: bool) -> None:
        self._resolved, self._field, self._out, self._quiet = resolved, field, out, quiet
        self._failures, self._summary = FailureLog(), Summary()
        self._scored = self._unscored = 0

    def so_far(self) -> str:
        """How many cases are done, for the message of a run that is interrupted."""
        return f" after {plural(self._summary.cases, 'case')}"

    async def play(self, source: Iterable[Case | InputError], total: int | None) -> int:
        """Score all cases; return the exit code."""
        async with open_session(self._resolved, paid=self._summary.add_trial) as session:
            with ExitStack() as stack:
                stack.enter_context(self._failures)
                meter = stack.enter_context(JudgeProgress(total, self._resolved.price, hidden=self._quiet))
                session.engine.watch = meter.count
                async with aclosing(in_order(session.run(source))) as outcomes:
                    async for outcome in outcomes:
                        self._deliver(outcome)
                        meter.advance()
                self._out.finish()
        if not self._quiet:
            tokens = number(self._summary.ledger.total().asked, 0)
            lacking = f", {self._unscored} without a score" if self._unscored else ""
            scored = plural(self._scored, "candidate")
            say(f"{scored} scored, field {self._field!r}{lacking}; {tokens} tokens read")
        return 1 if self._failures.count else 3 if self._unscored else 0

    def _deliver(self, outcome: Outcome) -> None:
        self._summary.add(outcome)
        if outcome.failure is not None:
            self._failures.add_case(outcome.name, outcome.failure)
        if outcome.prepared is None:
            return
        case = outcome.prepared.case
        found = {
            one.ask.entrants[0]: one.ruling.score for one in outcome.judged if one.ruling.score is not None
        }
        self._scored += len(found)
        self._unscored += len(case.candidates) - len(found)
        self._out.write(write_case(with_scores(case, found, self._field)) + b"\n")


def with_scores(case: Case, scores: Mapping[int, float], field: str) -> Case:
    """The case with these scores of its candidates in a field; a candidate without one has none there."""

    def changed(candidate: Candidate, value: float | None) -> Candidate:
        if field == "score":
            return replace(candidate, score=value)
        others = {name: x for name, x in candidate.numbers.items() if name != field}
        return replace(candidate, numbers=others if value is None else {**others, field: value})

    candidates = tuple(changed(one, scores.get(k)) for k, one in enumerate(case.candidates))
    return replace(case, candidates=candidates)
