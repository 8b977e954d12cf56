"""A judge that repeats a run: replies from the journal, unanswered asks as recorded."""

from collections.abc import Mapping

from caps.core.types import Ask, Unanswered, Usage
from caps.costs.budget import Budget
from caps.judging.base import Judge, PreparedCase, Ruling


class ReplayedJudge:
    """Leaves asks unanswered that a run left unanswered, and passes the rest to a judge on the journal."""

    def __init__(self, inner: Judge, unanswered: Mapping[tuple[str, Ask], str]) -> None:
        self._inner, self._unanswered = inner, unanswered

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:
        """Answer as the run did."""
        reason = self._unanswered.get((prepared.case.id, ask))
        if reason is not None:
            return Ruling(Unanswered(reason))
        return await self._inner.rule(prepared, ask, budget)

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:
        """The most that the ask may have cost."""
        return self._inner.max_usage(prepared, ask)
