"""What a diagnosis looks at: single verdicts on pairs, and how they group by pair and by case."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from caps.core.types import Level, Verdict

SURE = 4 / 9  # between the weights of LOW (2/9) and HIGH (6/9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One verdict on two candidates of a case, seen from `one`; where labels are known, `one` is right.

    An unreadable reply is the tie that strategies take it for.
    """

    case: int
    one: int
    other: int
    level: Level
    first: bool  # `one` sat in slot A
    verdict: Verdict
    sizes: tuple[int, int]
    clusters: tuple[str | int, str | int]
    malformed: bool = False
    attempts: int = 1
    tokens: int = 0

    @property
    def outcome(self) -> float:
        """1 where `one` was preferred, ½ after a tie."""
        return self.verdict.outcome

    @property
    def decided(self) -> bool:
        """Whether anyone was preferred."""
        return self.verdict.a != self.verdict.b

    @property
    def sure(self) -> bool:
        """Whether the verdict was a HIGH one, or weighs as much as one."""
        return self.verdict.weight >= SURE

    @property
    def pair(self) -> tuple[int, int, int]:
        """Which pair of which case."""
        return self.case, self.one, self.other


def at(looks: Iterable[Look], level: Level) -> list[Look]:
    """The looks of one level."""
    return [look for look in looks if look.level == level]


def by_case(looks: Iterable[Look]) -> list[list[Look]]:
    """The looks of each case, in the order in which cases were asked."""
    grouped: dict[int, list[Look]] = defaultdict(list)
    for look in looks:
        grouped[look.case].append(look)
    return list(grouped.values())


def case_means(looks: Iterable[Look], value: Callable[[Look], float]) -> list[float]:
    """One number a case, so that cases with many pairs do not outvote the others."""
    return [fmean(map(value, own)) for own in by_case(looks)]


def swapped(looks: Iterable[Look]) -> list[tuple[Look, Look]]:
    """Both orders of each pair at each level, slot A first for `one` in the first."""
    seats: dict[tuple[tuple[int, int, int], Level], dict[bool, Look]] = defaultdict(dict)
    for look in looks:
        seats[look.pair, look.level][look.first] = look
    return [(seat[True], seat[False]) for seat in seats.values() if len(seat) == 2]


def complete(looks: Sequence[Look], per_pair: int) -> list[Look]:
    """Only pairs of which every look was answered, so that all figures are about the same pairs."""
    count: dict[tuple[int, int, int], int] = defaultdict(int)
    for look in looks:
        count[look.pair] += 1
    return [look for look in looks if count[look.pair] == per_pair]
