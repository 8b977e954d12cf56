"""Judges for tests, docs and benchmarks: they answer from a function, at once and for free."""

from collections.abc import Callable

from caps.core.types import Answer, Ask
from caps.judges.base import Bout, Ruling


class ScriptedJudge:
    """Rules as a function says."""

    def __init__(self, answer: Callable[[Bout, Ask], Answer]) -> None:
        self._answer = answer

    async def rule(self, bout: Bout, ask: Ask) -> Ruling:
        """Answer an ask about a case."""
        return Ruling(self._answer(bout, ask))
