"""Pools of labelled candidates for a simulated judge: generated, or taken from cases."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from caps.core.errors import InputError
from caps.core.settings import check_settings, setting
from caps.core.text import estimate_tokens
from caps.core.types import AnswerKind, Ask, Case, Entrant, Level, shown_size
from caps.costs.closed_form import ViewSizes, v1_infer_tokens
from caps.evidence.entrants import describe
from caps.evidence.profiles import profile_for

INSTRUCTION_TOKENS = 250


@dataclass(frozen=True, slots=True)
class LabelledPool:
    """Entrants of a problem with their labels; `case` and `digest` are empty for a generated pool."""

    number: int
    entrants: tuple[Entrant, ...]
    correct: tuple[bool, ...]
    overhead: int
    case: str = ""
    digest: str | None = None
    difficulty: str | None = None
    grades: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """The name of the case, or the number of a generated pool."""
        return self.case or str(self.number)

    def tokens(self, ask: Ask) -> int:
        """Tokens of the prompt of an ask."""
        return self.overhead + shown_size({entrant.id: entrant for entrant in self.entrants}, ask)

    @property
    def v1_infer(self) -> float:
        """Tokens that V1-Infer reads."""
        return v1_infer_tokens([entrant.sizes[Level.FULL] for entrant in self.entrants], self.overhead)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolModel:
    """A model of candidate pools: solve rates are Beta distributed, so that some problems are extreme.

    Math: right candidates share one answer, wrong ones join a wrong answer with odds proportional to its
    size. Code: nearly every program is its own cluster.
    """

    n: int = setting(16, "candidates a problem", least=1)
    kind: str = setting("code", "how answers cluster", choices=("code", "math"))
    solve_rate: float = setting(0.4, "mean share of right candidates", least=0.01, most=0.99)
    spread: float = setting(1.5, "concentration of solve rates; small is extreme", least=0.01)
    new_wrong: float = setting(3.0, "math: weight of a new wrong answer against joining one", least=0.01)
    duplicates: float = setting(
        0.03, "code: chance to repeat an earlier program of the same label", least=0, most=1
    )
    partial_tokens: int = setting(250, "tokens of a partial view", least=0)
    full_tokens: int = setting(4000, "tokens of a full view", least=0)
    overhead: int = setting(500, "tokens of a prompt without its views", least=0)

    def __post_init__(self) -> None:
        check_settings(self)

    def pool(self, number: int, seed: int) -> LabelledPool:
        """Generate the pool of one problem; it depends only on its number and the seed."""
        rng = Random(f"pool {seed} {number}")
        rate = rng.betavariate(self.solve_rate * self.spread, (1 - self.solve_rate) * self.spread)
        correct = tuple(rng.random() < rate for _ in range(self.n))
        names: list[str] = []
        for index, right in enumerate(correct):
            names.append(self._name(index, names, correct, rng, right=right))
        sizes = (0, self.partial_tokens, self.full_tokens)
        kind: AnswerKind = "value" if self.kind == "math" else "open"
        entrants = tuple(
            Entrant(i, name, sizes, {"score": 0.0}, signature_kind=kind) for i, name in enumerate(names)
        )
        return LabelledPool(number, entrants, correct, self.overhead)

    def _name(
        self, index: int, names: list[str], correct: tuple[bool, ...], rng: Random, *, right: bool
    ) -> str:
        alike = [name for name, label in zip(names, correct, strict=False) if label == right]
        if self.kind == "math":
            if right:
                return "right"
            new = rng.random() * (self.new_wrong + len(alike)) < self.new_wrong
            return f"wrong {index}" if new or not alike else rng.choice(alike)
        return rng.choice(alike) if alike and rng.random() < self.duplicates else f"program {index}"


def generated_pools(model: PoolModel, count: int, seed: int) -> list[LabelledPool]:
    """Generate `count` pools."""
    return [model.pool(number, seed) for number in range(count)]


def labelled(cases: Iterable[Case | InputError], *, n: int | None) -> Iterator[LabelledPool]:
    """Pools of the first `n` candidates of labelled cases; `InputError` for a candidate without a label."""
    for number, case in enumerate(cases):
        if isinstance(case, InputError):
            raise case
        labels = [candidate.correct for candidate in case.candidates]
        if any(label is None for label in labels):
            missing = labels.index(None)
            raise InputError(
                f"case {case.id!r}: candidates[{missing}].correct: is missing; a simulation needs labels, "
                "and public tests alone give none"
            )
        pool = replace(case, candidates=case.candidates[:n])
        evidence = describe(pool, profile_for(case.domain), estimate_tokens)
        overhead = INSTRUCTION_TOKENS + estimate_tokens(case.problem.text)
        yield LabelledPool(number, evidence.entrants, tuple(bool(label) for label in labels)[:n], overhead)


def view_sizes(pools: Sequence[LabelledPool]) -> ViewSizes:
    """Mean sizes of views and prompts over all candidates of some pools."""
    sizes = [entrant.sizes for pool in pools for entrant in pool.entrants]
    return ViewSizes(
        partial=fmean(size[Level.PARTIAL] for size in sizes),
        full=fmean(size[Level.FULL] for size in sizes),
        overhead=fmean(pool.overhead for pool in pools),
    )
