"""Trials: the public examples of a case, and further inputs whose right output is unknown."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import islice
from random import Random
from typing import Any

import msgspec

from caps.core.types import Case
from caps.evidence.examples import (
    generated_arguments,
    labelled_examples,
    parameters_of,
    shown_arguments,
    shown_calls,
)
from caps.evidence.inputs import CallInputs, Hints
from caps.evidence.text_inputs import TextInputs
from caps.grading.test_suites import (
    Example,
    Style,
    TestProgram,
    arguments,
    assertions_of,
    function_of,
    read_public_suite,
)

MAX_CHARACTERS = 20_000  # of a further input
ATTEMPTS = 8  # changes tried for each new input; most that fail were made before
MAX_HEADERS = 16  # programs that are searched for annotations
EDGES = 0.5  # share of edge cases in the first inputs
RELATED = 0.25  # share of those in which arguments have to do with each other


@dataclass(frozen=True)
class Trial:
    """Examples with their outputs, or a test program; `seeds` are inputs where there are no examples."""

    examples: tuple[Example, ...]
    entry_point: str | None
    style: Style
    seeds: tuple[Any, ...] = ()
    program: TestProgram | None = None

    @cached_property
    def assertions(self) -> tuple[TestProgram, ...]:
        """The tests of the program, which are counted one by one."""
        return () if self.program is None else assertions_of(self.program)

    @property
    def bases(self) -> tuple[Any, ...]:
        """The inputs that further inputs are made from."""
        return tuple(example.input for example in self.examples) or self.seeds


def trial_of(case: Case) -> Trial | None:
    """The trial of a case, None if it has no inputs; never hidden tests. `InputError` names bad tests."""
    public = read_public_suite(case)
    if isinstance(public, TestProgram):
        return _program_trial(case, public)
    name = function_of(case.extra) if public is None else public.entry_point
    if public is not None:
        return Trial(public.tests, public.entry_point, public.style)
    if name is None:
        return None
    text = case.problem.text
    calls = shown_calls(text, name) or labelled_examples(text, parameters_of(_heads(case), name))
    if calls:
        examples = tuple(Example(call.arguments, call.value) for call in calls)
        return Trial(examples, name, "call")
    seeds = shown_arguments(text, name) or _made_arguments(case, name)
    return Trial((), name, "call", tuple(seeds)) if seeds else None


def _program_trial(case: Case, program: TestProgram) -> Trial:
    """The trial of a case with a test program; further inputs start from the arguments in its calls."""
    name = program.entry_point
    if name is None and len(program.missing) == 1 and not program.classes:
        name = program.missing[0]  # the only name that a candidate defines for the tests
    if name is None:
        return Trial((), None, "call", program=program)
    seeds = shown_arguments(program.source, name) or shown_arguments(program.source, "candidate")
    seeds = seeds or shown_arguments(case.problem.text, name) or _made_arguments(case, name)
    return Trial((), name, "call", tuple(seeds), program)


def _heads(case: Case) -> str:
    """Where the function of a case may be defined: its starter code and its statement."""
    return f"{case.extra.get('starter_code') or ''}\n{case.problem.text}"


def _made_arguments(case: Case, name: str) -> list[list[Any]]:
    """Arguments made from the annotations in the statement, else from those that a program states."""
    programs = (candidate.code or candidate.text for candidate in case.candidates[:MAX_HEADERS])
    for source in (_heads(case), *programs):
        values = generated_arguments(source, name, _random(case))
        if values:
            return values
    return []


def _random(case: Case) -> Random:
    return Random(sha256(case.problem.text.encode("utf-8", "replace")).digest())


class FurtherInputs:
    """New inputs for a trial, none of them twice."""

    def __init__(self, trial: Trial, case: Case, sources: Iterable[str]) -> None:
        self._trial, self._rng = trial, _random(case)
        self._seen = {repr(example.input) for example in trial.examples}
        hints = Hints.of(case.problem.text, sources)
        bases, rng = trial.bases, self._rng
        self._read: Callable[[Any], Any] = str if trial.style == "stdin" else arguments
        self._write: Callable[[Any], Any] = str if trial.style == "stdin" else self._as_given
        self._source: Any = (
            TextInputs(list(map(str, bases)), hints, rng)
            if trial.style == "stdin"
            else CallInputs(list(map(arguments, bases)), hints, rng)
        )

    def first(self, count: int) -> list[Any]:
        """The seeds of the trial, edge cases, and changed examples."""
        edges = list(self._source.edges())
        self._rng.shuffle(edges)
        chosen = self._new(map(self._read, self._trial.seeds), count)
        chosen += self._new(self._source.related(), int(count * RELATED))
        chosen += self._new(edges, int(count * EDGES) - len(chosen) // 2)
        return chosen + self.changed(self._trial.bases, count - len(chosen))

    def more(self, parents: Sequence[Any], count: int) -> list[Any]:
        """Changes of these parents and of the examples."""
        return self.changed([*parents, *self._trial.bases], count)

    def changed(self, parents: Sequence[Any], count: int) -> list[Any]:
        """Inputs made from these, in turn."""
        if not parents:
            return []
        bases = (self._read(parents[k % len(parents)]) for k in range(ATTEMPTS * count))
        return self._new(map(self._source.change, bases), count)

    def _new(self, inputs: Iterable[Any], count: int) -> list[Any]:
        """The first of these inputs that were not made before, in the form of the examples."""
        return list(islice(filter(self._is_new, map(self._write, inputs)), max(0, count)))

    def _is_new(self, value: Any) -> bool:
        try:
            shown = repr(value)
        except ValueError:  # Python refuses to print very long integers
            return False
        if value is None or shown in self._seen or len(shown) > MAX_CHARACTERS:
            return False
        self._seen.add(shown)
        return True

    def _as_given(self, values: list[Any]) -> Any:
        """Arguments in the form of the examples: a list, or the lines of a text; None if it cannot be."""
        if not any(isinstance(basis, str) for basis in self._trial.bases):
            return values
        try:
            return "\n".join(msgspec.json.encode(value).decode() for value in values)
        except (TypeError, ValueError, msgspec.MsgspecError):
            return None
