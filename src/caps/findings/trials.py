"""Trials: the public examples of a case, and further inputs whose right output is unknown."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from caps.graders.test_suites import Example, Examples, arguments, function_of, read_suite

MAX_CHARACTERS = 20_000  # of a further input
ATTEMPTS = 8  # changes tried for each new input; most that fail were made before
MAX_HEADERS = 16  # programs that are searched for annotations
LARGEST = 3  # inputs as large as the statement allows
EDGES = 0.5  # share of edge cases in the first inputs
RELATED = 0.25  # share of those in which arguments have to do with each other


@dataclass(frozen=True, slots=True)
class Trial:
    """Examples with their outputs; without any, `seeds` are inputs made from the types of a function."""

    examples: tuple[Example, ...]
    entry_point: str | None
    style: Literal["stdin", "call", "either"]
    seeds: tuple[Any, ...] = ()
    parameters: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[Any, ...]:
        """The inputs that further ones are made from."""
        return tuple(one.input for one in self.examples) or self.seeds


def trial_of(case: Case) -> Trial | None:
    """The trial of a case, None if it has no inputs; never hidden tests. `InputError` names bad tests."""
    public = _public(case)
    name = function_of(case.extra) if public is None else public.entry_point
    heads = f"{case.extra.get('starter_code') or ''}\n{case.problem.text}"
    parameters = tuple(parameters_of(heads, name)) if name else ()
    if public is not None:
        return Trial(public.tests, public.entry_point, public.style, parameters=parameters)
    if name is None:
        return None
    text = case.problem.text
    calls = shown_calls(text, name) or labelled_examples(text, parameters)
    if calls:
        examples = tuple(Example(call.arguments, call.value) for call in calls)
        return Trial(examples, name, "call", parameters=parameters)
    made = shown_arguments(text, name) or _made_arguments(case, heads, name)
    return Trial((), name, "call", tuple(made), parameters) if made else None


def _made_arguments(case: Case, heads: str, name: str) -> list[list[Any]]:
    """Arguments made from the annotations in the statement, else from those that a program states."""
    for source in (heads, *(one.code or one.text for one in case.candidates[:MAX_HEADERS])):
        made = generated_arguments(source, name, _random(case))
        if made:
            return made
    return []


def _public(case: Case) -> Examples | None:
    tests = case.extra.get("tests")
    public = tests.get("public") if isinstance(tests, Mapping) else None
    if not public or not isinstance(tests, Mapping):
        return None
    known = {name: value for name, value in tests.items() if name != "hidden"}
    suite = read_suite(replace(case, extra={**case.extra, "tests": known}))
    return suite if isinstance(suite, Examples) else None


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
