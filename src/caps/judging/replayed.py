"""A judge that repeats what was ruled: replies from the journal, silence where there was silence."""

from collections.abc import Mapping

from caps.core.types import Ask, Unanswered, Usage
from caps.judging.base import Budget, Judge, PreparedCase, Ruling


class ReplayedJudge:
    """Leaves unanswered what a run left unanswered, and passes the rest on to a judge over the journal."""

    def __init__(self, inner: Judge, unanswered: Mapping[tuple[str, Ask], str]) -> None:
        self._inner, self._unanswered = inner, unanswered

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:
        """Answer as it was answered."""
        reason = self._unanswered.get((prepared.case.id, ask))
        return (
            Ruling(Unanswered(reason))
            if reason is not None
            else await self._inner.rule(prepared, ask, budget)
        )

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:
        """What the ask might have cost."""
        return self._inner.max_usage(prepared, ask)
