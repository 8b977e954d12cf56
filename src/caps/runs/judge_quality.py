"""How good the judge of a run was where labels are known, and how steady it was everywhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from caps.runs.result_lines import Line
from caps.runs.summary import group_by_ask

Labels = Sequence[bool | None]
Label = Callable[[int], bool | None]  # of a candidate


def is_misjudged(preferred: int | None, shown: Sequence[int], right: Label) -> bool:
    """Whether the judge preferred a wrong candidate although a right one was shown."""
    return preferred is not None and right(preferred) is False and any(map(right, shown))


@dataclass(slots=True)
class Mixed:
    """Comparisons of a right with a wrong candidate at one level."""

    asked: int = 0
    right: int = 0
    tied: int = 0


@dataclass(slots=True)
class JudgeQuality:
    """Counts over the questions of a run; pairs were decided, tied or not answered."""

    levels: dict[str, Mixed] = field(default_factory=dict)
    pairs: int = 0
    slot_a: int = 0
    tied: int = 0
    asked_again: int = 0

    @property
    def mixed(self) -> Mixed:
        """Mixed comparisons at all levels."""
        levels = self.levels.values()
        return Mixed(*(sum(getattr(level, name) for level in levels) for name in ("asked", "right", "tied")))

    def add(self, calls: list[Line], labels: Labels) -> bool:
        """Count the questions of a case; return whether a verdict preferred a wrong to a right candidate."""
        misjudged = False
        right = dict(enumerate(labels)).get
        for attempts in group_by_ask(calls):
            line = attempts[-1]
            self.asked_again += sum("attempt" in attempt for attempt in attempts[1:])
            ratings = line.get("ratings")
            if "pair" not in line:
                misjudged |= is_misjudged(line.get("pick"), line["shown"], right)
            elif ratings is not None:
                misjudged |= self._add_verdict(line, ratings, right)
        return misjudged

    def _add_verdict(self, line: Line, ratings: Sequence[float], right: Label) -> bool:
        first = line["a"]
        (second,) = [candidate for candidate in line["pair"] if candidate != first]
        preferred = None if ratings[0] == ratings[1] else first if ratings[0] > ratings[1] else second
        self.pairs += 1
        self.tied += preferred is None
        self.slot_a += preferred == first
        if {right(first), right(second)} == {True, False}:
            mixed = self.levels.setdefault(line["level"], Mixed())
            mixed.asked += 1
            mixed.tied += preferred is None
            mixed.right += preferred is not None and right(preferred) is True
        return is_misjudged(preferred, line["pair"], right)


def count_judge_quality(
    calls: Mapping[str, list[Line]], labels: Mapping[str, Labels]
) -> tuple[JudgeQuality, frozenset[str]]:
    """The quality of the judge over a run, and the cases in which it misjudged a question."""
    quality = JudgeQuality()
    misjudged = frozenset(name for name, lines in calls.items() if quality.add(lines, labels.get(name, ())))
    return quality, misjudged
