"""Who chooses: one judge for all requests, and for each request a contest with limits of its own."""

import asyncio
from dataclasses import dataclass

from caps.assemble import Setup, load_templates, make_prepare
from caps.core.types import Case, Level, Selection
from caps.engines.base import Outcome
from caps.engines.budget import Budget
from caps.engines.local import LocalEngine
from caps.judges.llm import LlmJudge, Seat
from caps.models.upstream import Upstream
from caps.server.options import Options
from caps.server.refusals import Refusal, internal
from caps.text_workers import TextWorkers


@dataclass(frozen=True, slots=True)
class Choice:
    """What a contest came to."""

    outcome: Outcome
    selection: Selection


class Bench:
    """Judges cases with one model server; the judge's name is fixed, or that of the model that wrote."""

    def __init__(self, model: Upstream, setup: Setup, name: str | None, texts: TextWorkers) -> None:
        self._model, self._setup, self.name, self._texts = model, setup, name, texts
        self._templates = load_templates(setup.prompts)
        self._prepare = make_prepare(setup.profile, setup.views)

    async def choose(self, case: Case, options: Options, *, writer: str, until: float) -> Choice:
        """Play the contest of a case; where time or tokens end, the order so far stands."""
        seat = Seat(self._model, self.name or writer, self._setup.extra)
        seats = {Level.PARTIAL: seat, Level.FULL: seat}
        judge = LlmJudge(seats, self._templates, self._setup.judge, texts=self._texts)
        left = max(0.0, until - asyncio.get_running_loop().time())
        engine = LocalEngine(
            judge,
            self._prepare,
            capacity=lambda: self._model.connections,
            case_budget=Budget(tokens=options.tokens, seconds=left),
            texts=self._texts,
        )
        (outcome,) = [one async for one in engine.run([case], options.strategy, seed=options.seed)]
        return Choice(outcome, _selection(outcome))


def _selection(outcome: Outcome) -> Selection:
    """The selection, a provisional one too: where no judge answered, there are still answers."""
    if outcome.selection is not None:
        return outcome.selection
    if outcome.contest is None:
        raise Refusal(400, f"nothing could be chosen: {outcome.failure}", code="invalid_value", param="caps")
    if outcome.contest.selection is None:
        raise internal()
    return outcome.contest.selection
