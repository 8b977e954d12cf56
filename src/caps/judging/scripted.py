"""A judge for tests, docs and benchmarks that answers with a function, at no cost."""

from collections.abc import Callable

from caps.core.types import Answer, Ask, Usage
from caps.costs.budget import Budget
from caps.judging.base import PreparedCase, Ruling


class ScriptedJudge:
    """Answers with a function of the prepared case and the ask."""

    def __init__(self, answer: Callable[[PreparedCase, Ask], Answer]) -> None:
        self._answer = answer

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:  # noqa: ARG002
        """Answer an ask about a case, for nothing."""
        return Ruling(self._answer(prepared, ask))

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:  # noqa: ARG002
        """Nothing."""
        return Usage(0, 0)
