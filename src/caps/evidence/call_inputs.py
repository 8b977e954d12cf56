"""Further arguments of functions: edge cases, mutations and related arguments; see `input_values`."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, zip_longest
from random import Random
from typing import Any

from caps.evidence.input_hints import Hints
from caps.evidence.input_values import Values

EXAMPLES = 3  # examples whose edge cases and related arguments are tried
RELATED_EVERY = 4  # changes of an input, one of which makes an argument fit the others


class CallInputs:
    """Changes lists of arguments."""

    def __init__(self, examples: Sequence[Sequence[Any]], hints: Hints, rng: Random) -> None:
        self._examples, self._limits, self._rng = list(examples), hints.limits, rng
        self._values = Values(examples, hints, rng)

    def edges(self) -> Iterator[list[Any]]:
        """Each argument of the examples replaced by edge cases, one at a time."""
        for basis in self._different()[:EXAMPLES]:
            for place, value in enumerate(basis):
                for edge in self._values.edges(value, self._limits):
                    yield _with(basis, place, edge)

    def related(self) -> Iterator[list[Any]]:
        """Examples with two arguments exchanged, or one made from the others; in turn for all places."""
        kinds = list[list[list[Any]]]()
        for basis in self._different()[:EXAMPLES]:
            for place in range(len(basis)):
                kinds.append([_with(basis, place, value) for value in self._made_from_others(basis, place)])
            kinds.append(list(_exchanged(basis)))
        yield from (values for row in zip_longest(*kinds) for values in row if values is not None)

    def change(self, basis: Sequence[Any]) -> list[Any]:
        """Change one to all of the arguments; or change all, then make one fit the others."""
        rng, count = self._rng, len(basis)
        if not count:
            return []
        changed = list(basis)
        for place in rng.sample(range(count), rng.randint(1, count)):
            changed[place] = self._values.mutate(changed[place], self._limits)
        place = rng.randrange(count)
        fitting = list(self._made_from_others(changed, place))
        if fitting and rng.randrange(RELATED_EVERY) == 0:
            changed[place] = rng.choice(fitting)
        return changed

    def _different(self) -> list[Sequence[Any]]:
        """The examples, first one of each combination of types."""
        first = dict[tuple[type, ...], Sequence[Any]]()
        for example in self._examples:
            first.setdefault(tuple(map(type, example)), example)
        chosen = list(first.values())
        return chosen + [
            example for example in self._examples if not any(example is other for other in chosen)
        ]

    def _made_from_others(self, values: Sequence[Any], place: int) -> Iterator[Any]:
        """What may stand in a place, of the same type: made from the other arguments."""
        value, others = values[place], [*values[:place], *values[place + 1 :]]
        limits = self._limits.including(value) if type(value) is int else None
        for related in _related_to(value, others, self._rng):
            if type(related) is type(value) and (limits is None or related in limits):
                yield related


def _related_to(value: Any, others: Sequence[Any], rng: Random) -> Iterator[Any]:
    """Values in place of one that programs may compare with the other arguments, or look up in them."""
    sequences = [other for other in others if isinstance(other, list | tuple)]
    sized = [other for other in others if isinstance(other, list | tuple | str)]
    numbers = [other for other in others if type(other) in (int, float)]
    if type(value) in (int, float):
        for items in sequences:
            pair = rng.sample(list(items), min(2, len(items)))
            yield from [sum(pair)] if {*map(type, pair)} <= {int, float} else []
        yield from map(len, sized)
        yield from (sum(numbers), *(a - b for a, b in pairwise(numbers)), *numbers, *(2 * a for a in numbers))
        yield from (rng.randint(0, len(other)) for other in sized)
    elif isinstance(value, str):
        for text in (other for other in others if isinstance(other, str)):
            yield from (text, text[::-1], text[: len(text) // 2], text + value)
    elif isinstance(value, list | tuple):
        yield from (type(value)([*value[: rng.randint(0, len(value))], *items]) for items in sequences)
        yield from (
            type(value)([*value[:-1], other]) for other in others if value and type(other) is type(value[0])
        )
    if isinstance(value, int | float | str):
        yield from (rng.choice(items) for items in sequences if items)


def _exchanged(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Two arguments of the same type in each other's place."""
    for a, b in combinations(range(len(values)), 2):
        if type(values[a]) is type(values[b]):
            yield _with(_with(values, a, values[b]), b, values[a])


def _with(values: Sequence[Any], place: int, value: Any) -> list[Any]:
    return [*values[:place], value, *values[place + 1 :]]
