"""Cases where two methods choose differently, and one of them is right."""

from collections.abc import Sequence
from typing import NamedTuple

from caps.experiments.results import Result


class Disagreement(NamedTuple):
    """One case and seed on which two methods part."""

    suite: str
    case: str
    seed: int
    first: Result
    second: Result


def disagreements(suite: str, first: Sequence[Result], second: Sequence[Result]) -> list[Disagreement]:
    """Where exactly one of two methods is right, in the order of the first."""
    other = {(one.case, one.seed): one for one in second}
    pairs = [(one, other[one.case, one.seed]) for one in first if (one.case, one.seed) in other]
    return [Disagreement(suite, a.case, a.seed, a, b) for a, b in pairs if a.right != b.right]
