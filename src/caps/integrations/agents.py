"""mini-swe-agent and SWE-agent: run an agent N times on a task and keep the best patch.

    best = best_patch(task, make_agent, n=4, model="qwen3-14b", base_url="http://localhost:8000/v1")
    best.patch

`make_agent(number)` makes an agent with an environment of its own, since each changes its files. It needs a
method `run(task)` that returns the submitted patch: a text, a mapping with `submission`, or a pair of exit
status and patch. With `case={"repository": ..., "test_command": ...}` and `repositories`, patches are also
applied and tested before a judge is asked.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, Unpack

from caps.api import Selected, SelectOptions, select_sync
from caps.core.errors import CapsError

Submission: TypeAlias = str | Mapping[str, Any] | Sequence[Any]


class Agent(Protocol):
    """What is needed of an agent."""

    def run(self, task: str) -> Submission:
        """Work on the task and return the submitted patch."""
        ...


@dataclass(frozen=True, slots=True)
class AgentRun:
    """A run of an agent: its patch, or the error that ended it."""

    number: int
    patch: str = ""
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class BestPatch:
    """The chosen patch, the number of its run, all runs, and how it was chosen (None for a single patch)."""

    patch: str
    number: int
    runs: tuple[AgentRun, ...] = field(repr=False)
    selected: Selected | None = field(default=None, repr=False)


class PatchError(CapsError):
    """No patch was chosen; `runs` has every run, so that no patch is lost."""

    def __init__(self, message: str, runs: Sequence[AgentRun]) -> None:
        super().__init__(message)
        self.runs = tuple(runs)


def best_patch(
    task: str,
    make_agent: Callable[[int], Agent],
    n: int = 4,
    *,
    at_once: int = 1,
    case: Mapping[str, Any] | None = None,
    **options: Unpack[SelectOptions],
) -> BestPatch:
    """Run N agents, `at_once` of them at the same time, and choose among their patches.

    A run that fails or submits nothing is left out. `case` are further fields of the case, the keywords those
    of `caps.select`. Raises `PatchError` if there is no patch, or nothing could be judged.
    """
    if n < 1 or at_once < 1:
        raise ValueError(f"n = {n!r}, at_once = {at_once!r}: must be at least 1")
    with ThreadPoolExecutor(at_once) as pool:
        runs = list(pool.map(lambda number: _run(task, make_agent, number), range(n)))
    found = [one for one in runs if one.patch.strip()]
    if not found:
        failure = next((one.error for one in runs if one.error is not None), None)
        why = "no run submitted one" if failure is None else f"{type(failure).__name__}: {failure}"
        raise PatchError(f"{n} runs, and no patch: {why}", runs) from failure
    if len(found) == 1:
        return BestPatch(found[0].patch, found[0].number, tuple(runs))
    row = {**(case or {}), "domain": "patch", "problem": task, "candidates": [one.patch for one in found]}
    try:
        selected = select_sync(row, **options)
    except CapsError as error:
        raise PatchError(f"the patches could not be judged: {error}", runs) from error
    chosen = found[selected.winner or 0]
    return BestPatch(chosen.patch, chosen.number, tuple(runs), selected)


def _run(task: str, make_agent: Callable[[int], Agent], number: int) -> AgentRun:
    try:
        return AgentRun(number, _patch_of(make_agent(number).run(task)))
    except Exception as error:
        return AgentRun(number, error=error)


def _patch_of(submitted: Submission) -> str:
    if isinstance(submitted, str):
        return submitted
    if isinstance(submitted, Mapping):
        return str(submitted.get("submission") or "")
    return str(submitted[-1] or "")
