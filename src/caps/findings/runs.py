"""Runs of agents: whether each ended by itself, from its log; final diffs are tried out like patches."""

from collections.abc import Sequence
from dataclasses import replace

from caps.core.domains import Resources
from caps.core.text import plural
from caps.core.types import Candidate, Case, Found
from caps.evidence.trajectories import read_run
from caps.findings.patches import PatchFinder


class RunFinder:
    """Reads from the log of each run how it ended; tries out final diffs if the case names a repository."""

    def __init__(self, patches: PatchFinder | None) -> None:
        self._patches = patches

    @property
    def version(self) -> str:
        """The version of what is read, and of the finder of patches."""
        return "runs-1" if self._patches is None else f"runs-1 {self._patches.version}"

    async def find(self, case: Case, until: float | None = None) -> Sequence[Found]:
        """Findings about each run; empty if no candidate is a run."""
        runs = [read_run(candidate.text) for candidate in case.candidates]
        if self._patches is not None and case.extra.get("repository"):
            final = tuple(map(_final_diff, case.candidates))
            return await self._patches.find(replace(case, candidates=final), until)
        if not any(runs):
            return ()
        found = []
        for run in runs:
            if run is None:
                found.append(Found(parses=False, note="is no run"))
                continue
            errors = sum(len(step.errors) for step in run.steps)
            how = "ended by itself" if run.finished else "did not end by itself"
            found.append(Found(parses=run.finished, note=f"{how}; {plural(errors, 'result')} with errors"))
        return found

    async def close(self) -> None:
        """Remove the copies of repositories."""
        if self._patches is not None:
            await self._patches.close()


def make_finder(resources: Resources) -> RunFinder:
    """What reads runs, and tries out their diffs where programs may run."""
    allowed = resources.sandbox != "off"
    return RunFinder(PatchFinder(resources.sandbox, resources.repositories) if allowed else None)


def _final_diff(candidate: Candidate) -> Candidate:
    """The final diff of a run as a patch."""
    run = read_run(candidate.text)
    return Candidate(candidate.answer or (run.final_diff if run is not None else candidate.text))
