"""Which lines of a program were reached; where `sys.monitoring` exists (Python 3.12), almost for free.

Before that, `sys.settrace` calls a function for each line, so a run is traced only for its first `EVENTS`
lines. A program can falsify what it reached; it only decides which inputs are tried next.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any

EVENTS = 2_000
_FILE = "main.py"


class Coverage:
    """The lines of a program that were reached so far."""

    def __init__(self, code: CodeType) -> None:
        self.lines: set[int] = set()
        self._all = _lines_of(code)
        self._events = 0
        self._monitoring = getattr(sys, "monitoring", None)
        if self._monitoring is not None:
            self._monitoring.use_tool_id(self._monitoring.COVERAGE_ID, "caps")
            line = self._monitoring.events.LINE
            self._monitoring.register_callback(self._monitoring.COVERAGE_ID, line, self._reached)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to reach."""
        return self._all <= self.lines

    def start(self) -> None:
        """Begin a run."""
        self._events = 0
        if self._monitoring is None:
            sys.settrace(self._enter)
        else:
            self._monitoring.set_events(self._monitoring.COVERAGE_ID, self._monitoring.events.LINE)

    def stop(self) -> None:
        """End a run."""
        if self._monitoring is None:
            sys.settrace(None)
        else:
            self._monitoring.set_events(self._monitoring.COVERAGE_ID, 0)

    def _reached(self, code: CodeType, line: int) -> object:
        if code.co_filename == _FILE:
            self.lines.add(line)
        return self._monitoring.DISABLE  # type: ignore[union-attr]

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:  # noqa: ARG002
        return self._trace if frame.f_code.co_filename == _FILE else None

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:  # noqa: ARG002
        if event == "line":
            self._events += 1
            self.lines.add(frame.f_lineno)
            if self._events >= EVENTS:
                sys.settrace(None)
                return None
        return self._trace


def _lines_of(code: CodeType) -> set[int]:
    """The lines of a program and of the functions in it."""
    lines = {line for _, _, line in code.co_lines() if line and line != code.co_firstlineno}
    for constant in code.co_consts:
        if hasattr(constant, "co_lines"):
            lines |= _lines_of(constant)
    return lines
