"""Who chooses: one judge for all requests, and for each request a contest with limits of its own."""

import asyncio
from dataclasses import dataclass

from caps.assemble import Setup, make_prepare, templates_for
from caps.core.types import Case, Level, Selection
from caps.engines.base import Outcome
from caps.engines.budget import Budget
from caps.engines.local import LocalEngine
from caps.judges.llm import LlmJudge, Seat
from caps.models.upstream import Upstream
from caps.server.options import Options
from caps.server.refusals import Refusal, internal


@dataclass(frozen=True, slots=True)
class Choice:
    """What a contest came to."""

    outcome: Outcome
    selection: Selection


class Bench:
    """Judges cases with one model server; the judge's name is fixed, or that of the model that wrote."""

    def __init__(self, model: Upstream, setup: Setup, name: str | None) -> None:
        self._model, self._setup, self.name = model, setup, name
        self._templates = templates_for(setup)
        self._prepare = make_prepare(setup.profile, setup.views)

    async def choose(self, case: Case, options: Options, *, writer: str, until: float) -> Choice:
        """Play the contest of a case; where time or tokens end, the order so far stands."""
        seat = Seat(self._model, self.name or writer, self._setup.extra)
        judge = LlmJudge({Level.PARTIAL: seat, Level.FULL: seat}, self._templates, self._setup.judge)
        left = max(0.0, until - asyncio.get_running_loop().time())
        engine = LocalEngine(
            judge,
            self._prepare,
            capacity=lambda: self._model.connections,
            case_budget=Budget(tokens=options.tokens, seconds=left),
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
