"""The grader protocol: a case and a candidate go in, a grade with a reason comes out."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from caps.core.domains import Grade, Grader

__all__ = ["Grade", "Grader", "Opening"]

Opening: TypeAlias = Callable[[], Awaitable[Grader]]
