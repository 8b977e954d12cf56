"""What programs can be tried on: public examples, those the problem statement shows, and further inputs.

Hidden tests are never looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from random import Random
from typing import Any, Literal

import msgspec

from caps.core.types import Case
from caps.evidence.inputs import made_up, mutate_arguments, mutate_text
from caps.evidence.shown import shown_calls
from caps.graders.suites import Example, Examples, arguments, function_of, read_suite

FURTHER = 12


@dataclass(frozen=True, slots=True)
class Trial:
    """Examples with their outputs, then inputs of which nobody knows what should come out."""

    examples: tuple[Example, ...]
    further: tuple[Any, ...]
    entry_point: str | None
    style: Literal["stdin", "call", "either"]

    @property
    def inputs(self) -> tuple[Any, ...]:
        """All inputs, the examples' first."""
        return (*(one.input for one in self.examples), *self.further)


def trial_of(case: Case) -> Trial | None:
    """What a case's programs are tried on, if there is anything; `InputError` names bad tests."""
    rng = Random(sha256(case.problem.text.encode("utf-8", "replace")).digest())
    given = _public(case)
    if given is not None:
        return Trial(given.tests, tuple(_further(given, rng)), given.entry_point, given.style)
    name = function_of(case.extra)
    if name is None:
        return None
    text = case.problem.text
    calls = [Example(call.arguments, call.value) for call in shown_calls(text, name)]
    shown = Examples(tuple(calls), name, "call")
    if calls:
        return Trial(shown.tests, tuple(_further(shown, rng)), name, "call")
    heads = f"{case.extra.get('starter_code') or ''}\n{text}"
    invented = made_up(heads, name, rng, FURTHER)
    return Trial((), tuple(invented), name, "call") if invented else None


def _public(case: Case) -> Examples | None:
    tests = case.extra.get("tests")
    public = tests.get("public") if isinstance(tests, Mapping) else None
    if not public or not isinstance(tests, Mapping):
        return None
    known = {name: value for name, value in tests.items() if name != "hidden"}
    suite = read_suite(replace(case, extra={**case.extra, "tests": known}))
    return suite if isinstance(suite, Examples) else None


def _further(given: Examples, rng: Random) -> list[Any]:
    """Other inputs like the examples', each once."""
    seen = {_key(one.input) for one in given.tests}
    found = []
    for turn in range(4 * FURTHER):
        basis = given.tests[turn % len(given.tests)].input
        made = _mutant(basis, given.style, rng)
        if made is not None and _key(made) not in seen:
            seen.add(_key(made))
            found.append(made)
        if len(found) == FURTHER:
            break
    return found


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


def _key(value: Any) -> str:
    return repr(value)
