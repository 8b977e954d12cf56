"""What programs do: each is run on the examples of its problem and on more inputs, in the sandbox."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from hashlib import sha256
from typing import Any

from caps.core.types import Case, Found
from caps.findings.trials import Trial, trial_of
from caps.graders.behaviour import Outcome, Program, outcomes_of
from caps.graders.code import entry_of, passes, program_text
from caps.graders.outputs import normalised
from caps.graders.sandbox import Limits, Sandbox, find_sandbox
from caps.graders.suites import Examples, arguments

PATIENCE = 2


class BehaviourFinder:
    """Runs every program of a case once; programs that print or return the same everywhere form a cluster.

    The sandbox is looked for when the first program is to run: where there is none, that is a `UserError`.
    """

    def __init__(self, sandbox: str = "auto", *, limits: Limits | None = None) -> None:
        self._name, self._limits = sandbox, limits or Limits(seconds=4.0)
        self._sandbox: Sandbox | None = None
        self._lock = asyncio.Lock()

    @property
    def version(self) -> str:
        """How programs are tried, and for how long."""
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return f"behaviour-1 {python} {self._limits.seconds:g}s {self._limits.memory >> 20}MiB"

    async def find(self, case: Case, until: float | None = None) -> Sequence[Found]:
        """Run all programs of a case; equal ones once. `TimeoutError` where they take too long together."""
        trial = trial_of(case)
        if trial is None:
            return ()
        sources = [program_text(case, candidate) for candidate in case.candidates]
        different = list(dict.fromkeys(sources))
        async with asyncio.timeout_at(until):
            sandbox = await self._found_sandbox()
            ran = await asyncio.gather(*(self._run(sandbox, trial, source) for source in different))
        known = dict(zip(different, ran, strict=True))
        return [known[source] for source in sources]

    async def close(self) -> None:
        """Nothing is kept between cases."""

    async def _found_sandbox(self) -> Sandbox:
        async with self._lock:
            if self._sandbox is None:
                self._sandbox = await find_sandbox(self._name)
            return self._sandbox

    async def _run(self, sandbox: Sandbox, trial: Trial, source: str) -> Found:
        entry = entry_of(Examples(trial.examples, trial.entry_point, trial.style), source)
        inputs = [one if entry is None else arguments(one) for one in trial.inputs]
        outcomes = await self._outcomes(sandbox, Program(source, entry), inputs)
        passed = sum(
            passes(outcome, example, entry)
            for outcome, example in zip(outcomes, trial.examples, strict=False)
        )
        parses = any(outcome.status != "unparsed" for outcome in outcomes)
        known = len(trial.examples)
        return Found(_signature(outcomes), passed if known else None, known, parses)

    async def _outcomes(self, sandbox: Sandbox, program: Program, inputs: Sequence[Any]) -> list[Outcome]:
        """What comes out of each input; a program that has hung twice is taken to hang on."""
        outcomes: list[Outcome] = []
        hung = 0
        async with (
            sandbox.core(),
            aclosing(outcomes_of(sandbox, program, inputs, limits=self._limits)) as coming,
        ):
            async for outcome in coming:
                outcomes.append(outcome)
                hung += outcome.status == "timeout"
                if hung == PATIENCE:
                    break
        rest = len(inputs) - len(outcomes)
        return [replace(one, output=normalised(one.output)) for one in outcomes] + rest * [Outcome("timeout")]


def _signature(outcomes: Sequence[Outcome]) -> str | None:
    """A digest of what came out; none where nothing did: two programs that always fail need not be alike."""
    if all(outcome.status != "ok" for outcome in outcomes):
        return None
    digest = sha256()
    for outcome in outcomes:
        words = f"{outcome.status}\0{outcome.output if outcome.status == 'ok' else ''}"
        digest.update(b"%d:" % len(words) + words.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]
