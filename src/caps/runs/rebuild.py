"""A run rebuilt from its folder: its cases, every call, and each contest as it was played."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from caps.core.errors import CapsError, InputError, NotRecordedError, SettingError
from caps.core.play import Strategy
from caps.core.types import Ask, Case, Usage
from caps.datasets.imports import open_cases
from caps.engines.base import CaseRun
from caps.engines.local import fast_forward
from caps.findings.base import recall
from caps.journal.store import Journal
from caps.judging.base import NOTHING, Attempt, Budget, PreparedCase, Ruling
from caps.judging.llm import LlmJudge
from caps.models.base import Completion, Request
from caps.runner import Runner
from caps.runs.folder import read_rulings, read_run
from caps.runs.result_lines import Line, answer_of, ask_of
from caps.runs.summary import malformed


class TranscriptJudge:
    """A judge that repeats the lines of a case's calls."""

    def __init__(self, lines: list[Line]) -> None:
        self.tries: dict[Ask, list[Line]] = {}
        for line in lines:
            self.tries.setdefault(ask_of(line), []).append(line)

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:  # noqa: ARG002
        """Answer as it was answered."""
        tries = self.tries.get(ask)
        answer = None if tries is None else answer_of(tries[-1])
        if tries is None or answer is None:
            raise NotRecordedError(f"no line of the run answers {ask!r}")
        heard = tuple(_attempt(line) for line in tries if "attempt" in line)
        return Ruling(answer, heard, malformed(tries))

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:  # noqa: ARG002
        """Nothing: all is paid."""
        return NOTHING


class SilentModel:
    """A model for seats of a judge that only renders prompts."""

    async def complete(self, request: Request) -> Completion:
        """Refuse."""
        raise NotRecordedError(f"nobody is asked this {request.template!r} prompt")

    async def close(self) -> None:
        """Nothing is held open."""


class RebuiltRun:
    """Reads a run's folder, and what it points to as far as that is still there; `notes` say what is not."""

    def __init__(self, path: Path, journal: Journal | None = None) -> None:
        record = read_run(path)
        self.path, self.file, self.selections = path, record.file, record.selections
        self.calls: dict[str, list[Line]] = {}
        for line in read_rulings(path):
            self.calls.setdefault(line["case"], []).append(line)
        self.notes: list[str] = []
        self.journal = journal
        if journal is None:
            self._note("the journal of the run is not at hand, so what the judge answered cannot be shown")
        self.runner = Runner(self.file.config, offline=True)
        self.judge: LlmJudge | None = None
        self.strategy: Strategy | None = None
        try:
            self.strategy = self.runner.strategy
            if not self.runner.has_own_judge:  # whose prompts nobody knows, so its code need not be here
                judge = self.runner.judge(lambda _: SilentModel())
                self.judge = judge if isinstance(judge, LlmJudge) else None
        except CapsError as error:  # own prompts or an own strategy that are not here
            self._note(f"contests cannot be played again: {error}")

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return bool(self.file.summary)

    def cases(self) -> Iterator[Case]:
        """The cases of the run as far as they can be read; labels are in them."""
        source = self.file.cases
        if source == "-":
            self._note("the run read standard input, so its cases are not at hand")
            return
        try:
            for case in islice(open_cases(source), self.file.limit):
                if isinstance(case, Case):
                    yield self.runner.stated(case)
        except (InputError, SettingError, OSError) as error:
            self._note(f"the cases cannot be read: {error}")

    def prepared(self, case: Case) -> PreparedCase:
        """A case made ready as the run did; without its journal, without what was found of it."""
        try:
            known = case if self.journal is None else recall(self.journal, self.file.findings, case)
        except NotRecordedError:
            known = case
        return self.runner.prepare(known)

    def play(self, prepared: PreparedCase) -> CaseRun | None:
        """The contest of a case, played again; none where it cannot be, or comes out differently."""
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
        told = self.selections.get(name, {}).get("order")
        return play if chosen is not None and list(chosen.order) == told else None

    def _note(self, words: str) -> None:
        if words not in self.notes:
            self.notes.append(words)


def _attempt(line: dict[str, Any]) -> Attempt:
    usage = Usage(line["tokens"], line["output"], line["cached"])
    return Attempt(
        line["key"], usage, line["finish"], line["how"], line["cause"], line["latency"],
        replayed=line["replayed"], requests=line["requests"],
    )  # fmt: skip
