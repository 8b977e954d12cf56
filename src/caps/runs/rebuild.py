"""Stored runs rebuilt from their folders: cases, judge calls, and contests played again."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from caps.core.errors import CapsError, InputError, NotRecordedError, SettingError
from caps.core.play import Strategy
from caps.core.types import Ask, Case, Usage
from caps.costs.budget import Budget
from caps.engines.base import CaseRun
from caps.engines.local import fast_forward
from caps.findings.base import recall
from caps.journal.store import Journal
from caps.judging.base import NOTHING, Attempt, PreparedCase, Ruling
from caps.judging.llm import LlmJudge
from caps.judging.preparation import CasePreparation
from caps.models.base import Completion, Request
from caps.registry import DEFAULT_STRATEGY
from caps.runs.folder import read_rulings, read_run
from caps.runs.result_lines import Line, answer_of, ask_of, opinions_of
from caps.runs.summary import malformed_cause
from caps.session.judges import is_model, judge_of
from caps.session.resolve import Resolved, resolve


class TranscriptJudge:
    """A judge that repeats the recorded calls of a case."""

    def __init__(self, lines: list[Line]) -> None:
        self._attempts: dict[Ask, list[Line]] = {}
        for line in lines:
            self._attempts.setdefault(ask_of(line), []).append(line)

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:  # noqa: ARG002
        """Return the recorded ruling."""
        lines = self._attempts.get(ask)
        answer = None if lines is None else answer_of(lines[-1])
        if lines is None or answer is None:
            raise NotRecordedError(f"the run holds no answer to {ask!r}")
        attempts = tuple(_attempt(line) for line in lines if "attempt" in line)
        said = lines[-1].get("criteria") or {}
        apart = tuple(said.get(name) for name in prepared.case.criteria) if said else ()
        opinions = opinions_of(lines[-1])
        return Ruling(answer, attempts, malformed_cause(lines), opinions=opinions, criteria=apart)

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:  # noqa: ARG002
        """Return zero: recorded calls cost nothing."""
        return NOTHING


class NoModel:
    """The model of a judge that only renders prompts."""

    async def complete(self, request: Request) -> Completion:
        """Refuse every request."""
        raise NotRecordedError(f"no model is connected for the {request.template!r} prompt")

    async def close(self) -> None:
        """Do nothing."""


def _prompting_judge(resolved: Resolved) -> LlmJudge | None:
    """The first model that judges, to show its prompts; those of other judges are unknown."""
    models = tuple(spec for spec in resolved.judges if is_model(spec))[:1]
    if not resolved.asks_model or not models:
        return None
    judge = judge_of(replace(resolved, judges=models), lambda _: NoModel())
    return judge if isinstance(judge, LlmJudge) else None


class RebuiltRun:
    """A stored run with its cases and journals, as far as they still exist; `notes` lists what is missing.

    `journals` are those of its shards, by their paths.
    """

    def __init__(self, path: Path, journals: Mapping[str, Journal]) -> None:
        record = read_run(path)
        self.path, self.file, self.selections = path, record.file, record.selections
        self.journals, self._journal_paths = journals, record.journals
        self.calls: dict[str, list[Line]] = {}
        for line in read_rulings(path):
            self.calls.setdefault(line["case"], []).append(line)
        self.notes: list[str] = [record.missing] if record.missing else []
        if not journals or not {*record.journals.values()} <= journals.keys():
            self._note("the journal of the run is not available, so the replies of the judge cannot be shown")
        self.judge: LlmJudge | None = None
        self.strategy: Strategy | None = None
        config = self.file.config
        try:
            self.resolved = resolve(config, offline=True, load_judges=False)
            self.strategy = self.resolved.strategy
            self.judge = _prompting_judge(self.resolved)
        except CapsError as error:  # custom prompts or a custom strategy that are missing
            self._note(f"contests cannot be replayed: {error}")
            plain = replace(config, strategy=DEFAULT_STRATEGY, settings={}, skip_failing=False, prompts=None)
            self.resolved = resolve(plain, offline=True, load_judges=False)

    @property
    def finished(self) -> bool:
        """Whether the run ended normally."""
        return bool(self.file.summary)

    def cases(self) -> Iterator[Case]:
        """Read the cases of the run, with their labels, as far as possible."""
        source = self.file.cases
        if source == "-":
            self._note("the run read standard input, so its cases are not available")
            return
        try:
            for case in map(self.resolved.cases.apply, self.file.read_cases()):
                if isinstance(case, Case):
                    yield case
        except (InputError, SettingError, OSError) as error:
            self._note(f"the cases cannot be read: {error}")

    def journal_of(self, name: str) -> Journal | None:
        """The journal of a case, if it is available."""
        return self.journals.get(self._journal_paths.get(name) or self.file.config.journal or "")

    def with_findings(self, case: Case) -> Case:
        """The case with the findings of the run, as far as the journal holds them."""
        journal = self.journal_of(case.id)
        try:
            return case if journal is None else recall(journal, self.file.findings, case)
        except NotRecordedError:
            return case

    @property
    def prepare(self) -> CasePreparation:
        """The preparation of cases, also if the prompts of the run are gone."""
        return self.resolved.preparation(findings=self.resolved.merges_equal)

    def prepared(self, case: Case) -> PreparedCase:
        """Prepare a case as the run did; without the journal, it lacks its findings."""
        return self.prepare(self.with_findings(case))

    def play(self, prepared: PreparedCase) -> CaseRun | None:
        """Replay the contest of a case; None if that fails or gives another result."""
        if self.strategy is None:
            return None
        name = prepared.case.id
        try:
            play = CaseRun(0, prepared, self.strategy, self.file.config.seed)
            if fast_forward(play, TranscriptJudge(self.calls.get(name, []))):
                return None
        except CapsError:
            return None
        chosen = play.outcome.selection
        recorded = self.selections.get(name, {}).get("order")
        return play if chosen is not None and list(chosen.order) == recorded else None

    def _note(self, message: str) -> None:
        if message not in self.notes:
            self.notes.append(message)


def _attempt(line: dict[str, Any]) -> Attempt:
    usage = Usage(line["tokens"], line["output"], line["cached"], usd=line.get("usd"))
    return Attempt(
        line["key"], usage, line["finish"], line["how"], line["cause"], line["latency"],
        replayed=line["replayed"], requests=line["requests"], judge=line.get("judge", ""),
    )  # fmt: skip
