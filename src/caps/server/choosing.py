"""How answers are selected: one judge for all requests, and a contest with its own limits for each."""

import asyncio
from dataclasses import dataclass, replace

from caps.config import RunConfig
from caps.core.types import Case, Selection
from caps.engines.base import Outcome
from caps.findings.base import Findings
from caps.models.http import Upstream
from caps.runner import Runner
from caps.server.refusals import Refusal, internal
from caps.text_workers import TextWorkers


@dataclass(frozen=True, slots=True)
class Choice:
    """What a contest came to."""

    outcome: Outcome
    selection: Selection


class Selector:
    """Selects from cases with one model server as the judge.

    The judge's name is fixed, or that of the model that generated the candidates.
    """

    def __init__(
        self, runner: Runner, model: Upstream, findings: Findings | None, texts: TextWorkers
    ) -> None:
        self._runner, self._model, self._findings, self._texts = runner, model, findings, texts

    @property
    def judge(self) -> str | None:
        """The judge's name, where it is fixed."""
        config = self._runner.config
        fixed = config.judge_model or config.judge_base_url
        return self._runner.endpoints.full.model or None if fixed else None

    async def choose(self, case: Case, config: RunConfig, *, generator: str, until: float) -> Choice:
        """Run the contest of a case; where time or tokens end, the order so far stands."""
        left = max(0.0, until - asyncio.get_running_loop().time())
        own = replace(config, model=generator, judge_model=self.judge, budget_seconds=left)
        runner = self._runner.with_config(own, model=self._model)
        case = runner.stated(case)
        engine = runner.local_engine(
            dict.fromkeys(runner.endpoints[1:], self._model), texts=self._texts, findings=self._findings
        )
        (outcome,) = [one async for one in engine.run([case], runner.strategy, seed=config.seed)]
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
