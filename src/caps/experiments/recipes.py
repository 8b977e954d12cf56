"""How a simulated suite is made: the flat settings of a study file, shared out to pools, judge and strata."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from caps.core.errors import SettingError
from caps.core.settings import check_settings, nearest, setting
from caps.experiments.pools import LabelledPool, PoolModel
from caps.judges.simulated import JudgeModel

PARTIAL_SKILL = (
    0.7  # of the skill above chance at E2, what is left at E1 if nobody says; as `caps simulate` has it
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """So many problems of one difficulty, and how often a candidate of theirs is right."""

    difficulty: str = setting("", "the label")
    problems: int = setting(1, "how many", least=1)
    solve_rate: float = setting(0.4, "mean share of right candidates", least=0.01, most=0.99)

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Pools to make up, none where `problems` is 0, and the judge that rules on them."""

    problems: int
    seed: int
    pool: PoolModel
    judge: JudgeModel
    strata: tuple[Stratum, ...] = ()

    @property
    def count(self) -> int:
        """How many pools there are."""
        return sum(stratum.problems for stratum in self.strata) or self.problems

    def make(self, numbers: range) -> Iterator[tuple[LabelledPool, str | None]]:
        """The pools of these numbers with their difficulty; each a function of its number and the seed."""
        for number in numbers:
            stratum = self._stratum(number)
            if stratum is None:
                yield self.pool.pool(number, self.seed), None
            else:
                model = replace(self.pool, solve_rate=stratum.solve_rate)
                yield model.pool(number, self.seed), stratum.difficulty

    def _stratum(self, number: int) -> Stratum | None:
        for stratum in self.strata:
            if number < stratum.problems:
                return stratum
            number -= stratum.problems
        return None


def recipe(values: Mapping[str, Any], n: int | None = None) -> Recipe:
    """Read flat settings; an unknown one, or one outside its limits, is a `SettingError` that names it."""
    left = dict(values)
    problems, seed = left.pop("problems", 0), left.pop("seed", 1234)
    strata = tuple(_made(Stratum, row) for row in left.pop("strata", []))
    for name, number in (("problems", problems), ("seed", seed)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise SettingError(f"{name} = {number!r}: must be a whole number of at least 0")
    pool_names, judge_names = _names(PoolModel), _names(JudgeModel)
    known = ["problems", "seed", "strata", *pool_names, *judge_names]
    for name in left:
        if name not in known:
            raise SettingError(f"there is no {name!r}: {nearest(name, known)}there are {', '.join(known)}")
    pool = _made(PoolModel, {k: v for k, v in left.items() if k in pool_names} | ({"n": n} if n else {}))
    judge = {k: v for k, v in left.items() if k in judge_names}
    if "accuracy" in judge and "accuracy_partial" not in judge:
        judge["accuracy_partial"] = 0.5 + PARTIAL_SKILL * (judge["accuracy"] - 0.5)
    return Recipe(problems=problems, seed=seed, pool=pool, judge=_made(JudgeModel, judge), strata=strata)


def _names(kind: Any) -> list[str]:
    return [spec.name for spec in fields(kind)]


def _made(kind: Any, values: Mapping[str, Any]) -> Any:
    for name in values:
        if name not in _names(kind):
            raise SettingError(f"{kind.__name__} has no {name!r}; it has {', '.join(_names(kind))}")
    return kind(**values)
