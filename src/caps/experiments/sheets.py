"""The results of one method on one suite, as metrics look at them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, comb
from statistics import fmean
from typing import NamedTuple

from caps.costs.closed_form import caps_calls
from caps.experiments.results import Result


class Figure(NamedTuple):
    """A number and its interval, if it has one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Cascade:
    """The settings of a literal cascade that its closed form needs."""

    finalists: int
    dedup: bool


@dataclass(frozen=True)
class Sheet:
    """The results of one method on one suite, and those it is compared with."""

    results: Sequence[Result]
    reference: Sequence[Result] = ()
    baseline: Sequence[Result] = ()
    cascade: Cascade | None = None
    by_case: Mapping[str, list[Result]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_case", by_case(self.results))

    @property
    def problems(self) -> int:
        """How many different problems were played."""
        return len(self.by_case)

    @cached_property
    def pools(self) -> list[Result]:
        """One result a problem, for what is true of its candidates."""
        return [some[0] for some in self.by_case.values()]

    @cached_property
    def rates(self) -> dict[str, float]:
        """How often each problem was right over the repeats."""
        return {case: fmean(one.right for one in some) for case, some in self.by_case.items()}


def by_case(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results by problem, in the order given."""
    found: dict[str, list[Result]] = {}
    for one in results:
        found.setdefault(one.case, []).append(one)
    return found


def mean_pair(results: Sequence[Result], level: int) -> float | None:
    """Mean input of a pair at a level; none where none was asked."""
    games = sum(one.pairs[level] for one in results)
    return sum(one.pair_tokens[level] for one in results) / games if games else None


def cascade_cost(one: Result, cascade: Cascade, ratio: float) -> float:
    """Eq. 6 for one problem in units of T_2, and the games of those who were really rescued."""
    entrants = one.clusters if cascade.dedup else one.n
    last = ceil(entrants / 2)
    while last > cascade.finalists:
        last = ceil(last / 2)
    added = comb(last + one.rescued, 2) - comb(last, 2)
    return caps_calls(entrants, cascade.finalists).tokens(ratio) + added
