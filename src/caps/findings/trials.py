"""Trials: the public examples of a case, and further inputs whose right output is unknown."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import islice
from random import Random
from typing import Any, Literal

import msgspec

from caps.core.types import Case
from caps.evidence.call_inputs import CallInputs, generated_arguments, parameters_of
from caps.evidence.examples import labelled_examples, shown_arguments, shown_calls
from caps.evidence.input_hints import Hints
from caps.evidence.text_inputs import TextInputs
from caps.graders.test_suites import (
    Example,
    TestProgram,
    arguments,
    assertions_of,
    function_of,
    read_public_suite,
)

MAX_CHARACTERS = 20_000  # of a further input
ATTEMPTS = 8  # changes tried for each new input; most that fail were made before
MAX_HEADERS = 16  # programs that are searched for annotations
LARGEST = 3  # inputs as large as the statement allows
EDGES = 0.5  # share of edge cases in the first inputs
RELATED = 0.25  # share of those in which arguments have to do with each other


@dataclass(frozen=True)
class Trial:
    """Examples with their outputs, or a test program; `seeds` are inputs where there are no examples."""

    examples: tuple[Example, ...]
    entry_point: str | None
    style: Literal["stdin", "call", "either"]
    seeds: tuple[Any, ...] = ()
    parameters: tuple[str, ...] = ()
    program: TestProgram | None = None

    @cached_property
    def assertions(self) -> tuple[TestProgram, ...]:
        """The tests of the program, which are counted one by one."""
        return () if self.program is None else assertions_of(self.program)

    @property
    def known(self) -> tuple[Any, ...]:
        """The inputs that further ones are made from."""
        return tuple(one.input for one in self.examples) or self.seeds


def trial_of(case: Case) -> Trial | None:
    """The trial of a case, None if it has no inputs; never hidden tests. `InputError` names bad tests."""
    public = read_public_suite(case)
    if isinstance(public, TestProgram):
        return _program_trial(case, public)
    name = function_of(case.extra) if public is None else public.entry_point
    parameters = tuple(parameters_of(_heads(case), name)) if name else ()
    if public is not None:
        return Trial(public.tests, public.entry_point, public.style, parameters=parameters)
    if name is None:
        return None
    text = case.problem.text
    calls = shown_calls(text, name) or labelled_examples(text, parameters)
    if calls:
        examples = tuple(Example(call.arguments, call.value) for call in calls)
        return Trial(examples, name, "call", parameters=parameters)
    made = shown_arguments(text, name) or _made_arguments(case, name)
    return Trial((), name, "call", tuple(made), parameters) if made else None


def _program_trial(case: Case, program: TestProgram) -> Trial:
    """The trial of a case with a test program; further inputs start from the arguments in its calls."""
    name = program.entry_point
    if name is None and len(program.missing) == 1 and not program.classes:
        name = program.missing[0]  # the only name that a candidate defines for the tests
    if name is None:
        return Trial((), None, "call", program=program)
    made = shown_arguments(program.source, name) or shown_arguments(program.source, "candidate")
    made = made or shown_arguments(case.problem.text, name) or _made_arguments(case, name)
    return Trial((), name, "call", tuple(made), tuple(parameters_of(_heads(case), name)), program)


def _heads(case: Case) -> str:
    """Where the function of a case may be defined: its starter code and its statement."""
    return f"{case.extra.get('starter_code') or ''}\n{case.problem.text}"


def _made_arguments(case: Case, name: str) -> list[list[Any]]:
    """Arguments made from the annotations in the statement, else from those that a program states."""
    for source in (_heads(case), *(one.code or one.text for one in case.candidates[:MAX_HEADERS])):
        made = generated_arguments(source, name, _random(case))
        if made:
            return made
    return []


def _random(case: Case) -> Random:
    return Random(sha256(case.problem.text.encode("utf-8", "replace")).digest())


class FurtherInputs:
    """New inputs for a trial, none of them twice."""

    def __init__(self, trial: Trial, case: Case, sources: Iterable[str]) -> None:
        self._trial, self._rng = trial, _random(case)
        self._seen = {repr(one.input) for one in trial.examples}
        hints = Hints.of(case.problem.text, sources)
        self._edges: Callable[[], Iterator[Any]]
        self._related: Callable[[], Iterator[Any]] = lambda: iter(())
        self._largest: Callable[[], Iterator[Any]]
        self._change: Callable[[Any], Any]
        if trial.style == "stdin":
            texts = TextInputs([str(one) for one in trial.known], hints, self._rng)
            self._edges, self._largest, self._change = texts.edges, texts.largest, texts.change
        else:
            calls = CallInputs([arguments(one) for one in trial.known], trial.parameters, hints, self._rng)
            self._edges = lambda: map(self._as_given, calls.edges())
            self._largest = lambda: map(self._as_given, calls.largest())
            self._related = lambda: map(self._as_given, calls.related())
            self._change = lambda basis: self._as_given(calls.change(arguments(basis)))

    def first(self, count: int) -> list[Any]:
        """The seeds of the trial, edge cases, and changed examples."""
        edges = list(self._edges())
        self._rng.shuffle(edges)
        chosen = [*self._new(self._trial.seeds, count)]
        chosen += self._new(self._related(), int(count * RELATED))
        chosen += self._new(edges, int(count * EDGES) - len(chosen) // 2)
        return chosen + self.changed(self._trial.known, count - len(chosen))

    def more(self, parents: Sequence[Any], count: int) -> list[Any]:
        """A few inputs as large as allowed, on which slow programs hang; then changes of these parents."""
        largest = self._new(self._largest(), min(LARGEST, count))
        return largest + self.changed([*parents, *self._trial.known], count - len(largest))

    def changed(self, parents: Sequence[Any], count: int) -> list[Any]:
        """Inputs made from these, in turn."""
        if not parents:
            return []
        attempts = (self._change(parents[k % len(parents)]) for k in range(ATTEMPTS * count))
        return self._new(attempts, count)

    def _new(self, inputs: Iterable[Any], count: int) -> list[Any]:
        return list(islice((one for one in inputs if self._is_new(one)), max(0, count)))

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
        if not any(isinstance(one, str) for one in self._trial.known):
            return values
        try:
            return "\n".join(msgspec.json.encode(one).decode() for one in values)
        except (TypeError, ValueError, msgspec.MsgspecError):
            return None
