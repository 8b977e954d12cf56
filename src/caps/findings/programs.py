"""Program behaviour: each program is run on the examples of its problem and on further inputs."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from hashlib import sha256
from random import Random
from typing import Any, Literal

import msgspec

from caps.core.domains import Resources
from caps.core.types import Case, Found
from caps.evidence.examples import generated_inputs, mutate_arguments, mutate_text, shown_calls
from caps.graders.code import entry_of, program_text
from caps.graders.results import ResultReader
from caps.graders.test_suites import (
    Example,
    Examples,
    arguments,
    expected_text,
    expected_values,
    function_of,
    read_suite,
)
from caps.sandbox.base import Limits, Sandbox, find_sandbox
from caps.sandbox.programs import Outcome, OutcomeStatus, Program, outcomes_of

FURTHER = 12


@dataclass(frozen=True, slots=True)
class Trial:
    """Examples with their outputs, then inputs whose right output is unknown."""

    examples: tuple[Example, ...]
    further: tuple[Any, ...]
    entry_point: str | None
    style: Literal["stdin", "call", "either"]

    @property
    def inputs(self) -> tuple[Any, ...]:
        """All inputs, the examples' first."""
        return (*(one.input for one in self.examples), *self.further)


def trial_of(case: Case) -> Trial | None:
    """The trial of a case, None if it has no inputs; never hidden tests. `InputError` names bad tests."""
    rng = Random(sha256(case.problem.text.encode("utf-8", "replace")).digest())
    public = _public(case)
    if public is not None:
        return Trial(public.tests, tuple(_further(public, rng)), public.entry_point, public.style)
    name = function_of(case.extra)
    if name is None:
        return None
    text = case.problem.text
    calls = [Example(call.arguments, call.value) for call in shown_calls(text, name)]
    shown = Examples(tuple(calls), name, "call")
    if calls:
        return Trial(shown.tests, tuple(_further(shown, rng)), name, "call")
    heads = f"{case.extra.get('starter_code') or ''}\n{text}"
    inputs = generated_inputs(heads, name, rng, FURTHER)
    return Trial((), tuple(inputs), name, "call") if inputs else None


def _public(case: Case) -> Examples | None:
    tests = case.extra.get("tests")
    public = tests.get("public") if isinstance(tests, Mapping) else None
    if not public or not isinstance(tests, Mapping):
        return None
    known = {name: value for name, value in tests.items() if name != "hidden"}
    suite = read_suite(replace(case, extra={**case.extra, "tests": known}))
    return suite if isinstance(suite, Examples) else None


def _further(examples: Examples, rng: Random) -> list[Any]:
    """Mutated inputs of the examples, without duplicates."""
    seen = {repr(one.input) for one in examples.tests}
    inputs = []
    for number in range(4 * FURTHER):
        basis = examples.tests[number % len(examples.tests)].input
        mutant = _mutant(basis, examples.style, rng)
        if mutant is not None and repr(mutant) not in seen:
            seen.add(repr(mutant))
            inputs.append(mutant)
        if len(inputs) == FURTHER:
            break
    return inputs


def _mutant(basis: Any, style: str, rng: Random) -> Any:
    if style == "stdin":
        return mutate_text(basis, rng)
    if not isinstance(basis, str):
        return mutate_arguments(arguments(basis), rng)
    try:  # arguments as the lines of a text
        changed = mutate_arguments(arguments(basis), rng)
        return "\n".join(msgspec.json.encode(one).decode() for one in changed)
    except TypeError:
        return None


MAX_TIMEOUTS = 2
MIN_FURTHER = 3  # further inputs on which a program must run before it can join a cluster


@dataclass(frozen=True, slots=True)
class _Observed:
    """The result of one input, reduced to what is compared."""

    status: OutcomeStatus
    digest: str = ""
    passed: bool = False
    unreadable: bool = False


class BehaviourFinder:
    """Runs every program of a case once; programs with the same results on all inputs form a cluster.

    A program that ran on too few further inputs is in no cluster, nor is one with unreadable results, for
    which the number of passed examples is unknown too. The sandbox is set up before the first program runs;
    a machine without one raises a `UserError`.
    """

    def __init__(self, sandbox: str = "auto", *, limits: Limits | None = None) -> None:
        self._name, self._limits = sandbox, limits or Limits(seconds=4.0)
        self._sandbox: Sandbox | None = None
        self._reader = ResultReader()
        self._lock = asyncio.Lock()

    @property
    def version(self) -> str:
        """The Python version and the limits of a run."""
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return f"behaviour-2 {python} {self._limits.seconds:g}s {self._limits.memory >> 20}MiB"

    async def find(self, case: Case, until: float | None = None) -> Sequence[Found]:
        """Run all distinct programs of a case; `TimeoutError` if they take too long together."""
        trial = trial_of(case)
        if trial is None:
            return ()
        sources = [program_text(case, candidate) for candidate in case.candidates]
        distinct = list(dict.fromkeys(sources))
        async with asyncio.timeout_at(until):
            sandbox = await self._get_sandbox()
            results = await asyncio.gather(*(self._run(sandbox, trial, source) for source in distinct))
        by_source = dict(zip(distinct, results, strict=True))
        return [by_source[source] for source in sources]

    async def close(self) -> None:
        """End the processes that read results."""
        await self._reader.close()

    async def _get_sandbox(self) -> Sandbox:
        async with self._lock:
            if self._sandbox is None:
                self._sandbox = await find_sandbox(self._name)
            return self._sandbox

    async def _run(self, sandbox: Sandbox, trial: Trial, source: str) -> Found:
        entry = entry_of(Examples(trial.examples, trial.entry_point, trial.style), source)
        inputs = [one if entry is None else arguments(one) for one in trial.inputs]
        seen = await self._observe(sandbox, Program(source, entry), inputs, trial.examples)
        known, parses = len(trial.examples), any(one.status != "unparsed" for one in seen)
        shown, further = seen[:known], seen[known:]
        readable = known and not any(one.unreadable for one in shown)
        passed = sum(one.passed for one in shown) if readable else None
        # Programs that agree on the examples, whose outputs they can read, may agree nowhere else.
        tried = sum(one.status == "ok" for one in further) >= MIN_FURTHER
        comparable = tried and not any(one.unreadable for one in seen)
        return Found(_signature(seen) if comparable else None, passed, known, parses)

    async def _observe(
        self, sandbox: Sandbox, program: Program, inputs: Sequence[Any], examples: Sequence[Example]
    ) -> list[_Observed]:
        """The result of each input; after `MAX_TIMEOUTS` the rest count as timeouts too."""
        seen: list[_Observed] = []
        timeouts = 0
        async with (
            sandbox.core(),
            aclosing(outcomes_of(sandbox, program, inputs, limits=self._limits)) as outcomes,
        ):
            async for outcome in outcomes:
                example = examples[len(seen)] if len(seen) < len(examples) else None
                seen.append(await self._read(outcome, example, program.entry_point))
                timeouts += outcome.status == "timeout"
                if timeouts == MAX_TIMEOUTS:
                    break
        return seen + (len(inputs) - len(seen)) * [_Observed("timeout")]

    async def _read(self, outcome: Outcome, example: Example | None, entry: str | None) -> _Observed:
        if outcome.status != "ok":
            return _Observed(outcome.status)
        if entry is None:
            expected = None if example is None else expected_text(example)
            reading = await self._reader.text(outcome.output, expected)
        else:
            reading = await self._reader.value(
                outcome.output, () if example is None else expected_values(example)
            )
        return _Observed("ok", reading.digest, passed=reading.same, unreadable=bool(reading.fault))


def make_finder(resources: Resources) -> BehaviourFinder | None:
    """What runs programs; nothing where they may not run."""
    return None if resources.sandbox == "off" else BehaviourFinder(resources.sandbox)


def _signature(seen: Sequence[_Observed]) -> str | None:
    """A digest of all results; None if every input failed: such programs need not be alike."""
    if all(one.status != "ok" for one in seen):
        return None
    return sha256("\n".join(f"{one.status} {one.digest}" for one in seen).encode()).hexdigest()[:16]
