"""A model of another tool as the judge, so that the tool makes, counts and limits the calls.

The prompts, the journal, budgets and the reading of replies stay those of caps. A failed call of the tool is
a `ModelError` with its words; `reported` raises it again as the error that the tool knows.
"""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from msgspec.structs import replace

from caps.core.errors import AccessError, CapsError, ModelError
from caps.core.text import printable_line
from caps.core.types import Usage
from caps.models.base import Completion, Request, estimate_usage

Complete: TypeAlias = Callable[[Request], Awaitable[Completion]]
LONGEST_REASON = 300  # characters


class ToolModel:
    """A `caps.Model` whose calls another tool makes.

    `fatal` are errors after which no further call is worth making, such as a limit of the tool.
    `last_error` is what the tool raised last.
    """

    def __init__(
        self,
        name: str,
        complete: Complete,
        *,
        fatal: tuple[type[Exception], ...] = (),
        connections: int = 16,
    ) -> None:
        self.name, self.connections = name, connections
        self.last_error: Exception | None = None
        self._complete, self._fatal = complete, fatal

    async def complete(self, request: Request) -> Completion:
        """Let the tool answer a request."""
        started, failure = time.perf_counter(), None
        try:
            completion = await self._complete(request)
        except CapsError:
            raise
        except Exception as error:
            failure = self.last_error = error
        if failure is not None:  # raised out here: `reported` raises the tool's error from this one
            kind = AccessError if isinstance(failure, self._fatal) or _is_refusal(failure) else ModelError
            raise kind(reason_of(failure), attempts=1)
        latency = completion.latency or time.perf_counter() - started
        return replace(completion, latency=latency, model=completion.model or self.name)

    async def close(self) -> None:
        """Nothing is held: the tool closes its connections."""


def _is_refusal(error: Exception) -> bool:
    """Whether the key was refused, as clients of HTTP say it."""
    return any(getattr(error, name, None) in (401, 403) for name in ("status_code", "status", "code"))


def reason_of(error: BaseException) -> str:
    """What went wrong, on one line."""
    line = printable_line(f"{type(error).__name__}: {error}")
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 3] + "..."


def usage_of(
    request: Request,
    text: str,
    prompt: int | None,
    output: int | None,
    *,
    cached: int = 0,
    reasoning: int = 0,
) -> Usage:
    """The usage that a tool reported, or an estimate if it reported none."""
    if not prompt and not output:
        return estimate_usage(request.messages, text)
    return Usage(prompt or 0, output or 0, cached, reasoning)


@contextmanager
def reported(own: Callable[[str], Exception], model: ToolModel) -> Iterator[None]:
    """Raise an error of caps as the tool's: the one that its own call raised, else `own(reason)`."""
    try:
        yield
    except CapsError as error:
        if model.last_error is not None:
            model.last_error.add_note(f"caps: {error}")
            raise model.last_error from error
        raise own(str(error)) from error
