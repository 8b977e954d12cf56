"""Shards: one run split among processes, each with a run folder of its own inside that of the run.

Shard 2 of 4 takes the 2nd, 6th, 10th case and so on. Its folder is `shard-2-of-4`, an ordinary run folder.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from caps.core.errors import InputError, SettingError
from caps.core.text import plural
from caps.core.types import Case, Level
from caps.costs.ledger import Ledger, Sums
from caps.runs.outcomes import sum_outcomes

_SHARD = re.compile(r"([1-9]\d{0,5})/([1-9]\d{0,5})")
MOST_NAMED = 20  # shards that are missing
_FOLDER = re.compile(r"shard-([1-9]\d{0,5})-of-([1-9]\d{0,5})")


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Every `count`-th case of a run, from case `number` on; both count from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read a shard such as 2/4."""
        match = _SHARD.fullmatch(text)
        if match is None or int(match[1]) > int(match[2]):
            raise SettingError(
                f"--shard {text!r}: must be K/N with K from 1 to N, such as 2/4 for the second of four"
            )
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def folder(self) -> str:
        """The name of its folder in that of the run."""
        return f"shard-{self.number}-of-{self.count}"

    def place(self, index: int) -> int:
        """The place in the file, from 0, of the case at an index of this shard."""
        return index * self.count + self.number - 1

    def take(self, cases: Iterable[Case | InputError]) -> Iterator[Case | InputError]:
        """The cases of this shard; one that cannot be read keeps its number in the file."""
        for place, case in enumerate(cases):
            if place % self.count == self.number - 1:
                if isinstance(case, InputError):
                    case.case_number = place + 1
                yield case

    def size(self, total: int) -> int:
        """How many of this many cases it takes."""
        return len(range(self.number - 1, total, self.count))


def shard_folders(path: Path) -> dict[Shard, Path]:
    """The folders of the shards in a folder, in order; none if it holds a run itself."""
    if (path / "run.json").is_file() or not path.is_dir():
        return {}
    named = ((match, entry) for entry in path.iterdir() if (match := _FOLDER.fullmatch(entry.name)))
    folders = {Shard(int(match[1]), int(match[2])): entry for match, entry in named}
    return {shard: folders[shard] for shard in sorted(folders) if (folders[shard] / "run.json").is_file()}


def missing_shards(shards: Iterable[Shard]) -> str:
    """Name the shards of a run that are missing; empty if none is."""
    present = set(shards)
    count = max(shard.count for shard in present)
    absent = [number for number in range(1, count + 1) if Shard(number, count) not in present]
    names = ", ".join(map(str, absent[:MOST_NAMED])) + (", …" if len(absent) > MOST_NAMED else "")
    return f"{plural(len(absent), 'shard')} of {count} missing: {names}" if absent else ""


AMOUNTS = ("usd", "seconds_out")  # decimal numbers that can be added; all others are ratios


def sum_summaries(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The summary of a run from those of its shards.

    Counts and amounts are added, and the ratios of the whole run computed from them. Other ratios are left
    out, and so is what was left of a budget, which each shard has for itself.
    """
    total = _sum_rows(summaries)
    total.pop("budget_ended", None)
    outcomes = sum_outcomes(summary["outcomes"] for summary in summaries)
    total["pass_at_1"], total["outcomes"] = outcomes.accuracy, outcomes.as_line()
    measured = [(one["tokens"]["asked"], one["token_share_of_v1_infer"]) for one in summaries]
    baseline = sum(asked / share for asked, share in measured if share)
    total["token_share_of_v1_infer"] = sum(asked for asked, _ in measured) / baseline if baseline else None
    ledger = Ledger()
    for row in total["by_stage"]:
        sums = {name: value for name, value in row.items() if name not in ("stage", "level")}
        ledger.lines[row["stage"], Level(int(row["level"][1:]))] = Sums(**sums)
    total["rho"] = ledger.rho
    return total


def _sum_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _sum(name, [row[name] for row in rows if row.get(name) is not None]) for name in names}


def _sum(name: str, values: list[Any]) -> Any:
    """What several summaries hold under a name, as one; rows of lists belong together by their texts."""
    if all(isinstance(value, Mapping) for value in values):
        return _sum_rows(values) if values else None
    if isinstance(values[0], list):
        alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
        for row in chain.from_iterable(values):
            alike.setdefault(tuple(text for text in row.values() if isinstance(text, str)), []).append(row)
        return [_sum_rows(rows) for rows in alike.values()]
    if isinstance(values[0], bool):
        return any(values)
    if isinstance(values[0], str):
        return values[0]
    return sum(values) if name in AMOUNTS or isinstance(values[0], int) else None
