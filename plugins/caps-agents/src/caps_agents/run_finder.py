"""Runs of agents: whether each ended by itself, from its log; final diffs are tried out like patches."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from caps import Candidate, Case, Found
from caps_agents.patch_finder import PatchFinder
from caps_agents.runs import Run, read_run


class RunFinder:
    """Reads from the log of each run how it ended; tries out final diffs if the case names a repository.

    `texts` of `caps.Resources` reads long logs in worker processes.
    """

    def __init__(self, patches: PatchFinder | None = None, texts: Any = None) -> None:
        self._patches, self._texts = patches, texts

    @property
    def version(self) -> str:
        """The version of what is read, and of the finder of patches."""
        return "runs-1" if self._patches is None else f"runs-1 {self._patches.version}"

    async def find(self, case: Case, until: float | None = None) -> Sequence[Found]:
        """Findings about each run; empty if no candidate is a run."""
        work = partial(read_endings, case.candidates)
        size = sum(len(candidate.text) for candidate in case.candidates)
        endings: Endings = (
            work() if self._texts is None else await self._texts.run(work, size=size, until=until)
        )
        if self._patches is None or not case.extra.get("repository"):
            return endings.findings
        return await self._patches.find(replace(case, candidates=endings.patches), until)

    async def close(self) -> None:
        """Remove the copies of repositories."""
        if self._patches is not None:
            await self._patches.close()


class Endings(NamedTuple):
    """How runs ended, and their final diffs as patches."""

    findings: list[Found]
    patches: tuple[Candidate, ...]


def read_endings(candidates: Sequence[Candidate]) -> Endings:
    """Read from the log of each run how it ended."""
    runs = [read_run(candidate.text) for candidate in candidates]
    patches = tuple(
        Candidate(candidate.answer or (candidate.text if run is None else run.final_diff))
        for candidate, run in zip(candidates, runs, strict=True)
    )
    return Endings([_ending(run) for run in runs] if any(runs) else [], patches)


def _ending(run: Run | None) -> Found:
    if run is None:
        return Found(parses=False, note="is no run")
    errors = sum(len(step.errors) for step in run.steps)
    how = "ended by itself" if run.finished else "did not end by itself"
    return Found(
        parses=run.finished, note=f"{how}; {errors} {'result' if errors == 1 else 'results'} with errors"
    )
