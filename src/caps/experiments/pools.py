"""Candidate pools with true labels: made up, or taken from labelled cases."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

from caps.core.counting import estimate_tokens
from caps.core.errors import InputError
from caps.core.settings import check_settings, setting
from caps.core.types import Case, Entrant
from caps.evidence.entrants import describe
from caps.evidence.profiles import profile_named

INSTRUCTION_TOKENS = 250


@dataclass(frozen=True, slots=True)
class LabelledPool:
    """Entrants and which of them are right."""

    number: int
    entrants: tuple[Entrant, ...]
    correct: tuple[bool, ...]
    overhead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolModel:
    """How made-up pools look: a problem's solve rate is Beta distributed, so many are easy or hopeless.

    Math: right candidates share one answer, wrong ones join a wrong answer with odds that grow with its
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
        """Make the pool of one problem; a function of its number and the seed."""
        rng = Random(f"pool {seed} {number}")
        rate = rng.betavariate(self.solve_rate * self.spread, (1 - self.solve_rate) * self.spread)
        correct = tuple(rng.random() < rate for _ in range(self.n))
        names: list[str] = []
        for place, right in enumerate(correct):
            names.append(self._name(place, names, correct, rng, right=right))
        sizes = (0, self.partial_tokens, self.full_tokens)
        entrants = tuple(Entrant(i, name, sizes, {"score": 0.0}) for i, name in enumerate(names))
        return LabelledPool(number, entrants, correct, self.overhead)

    def _name(
        self, place: int, names: list[str], correct: tuple[bool, ...], rng: Random, *, right: bool
    ) -> str:
        alike = [name for name, label in zip(names, correct, strict=False) if label == right]
        if self.kind == "math":
            if right:
                return "right"
            new = rng.random() * (self.new_wrong + len(alike)) < self.new_wrong
            return f"wrong {place}" if new or not alike else rng.choice(alike)
        return rng.choice(alike) if alike and rng.random() < self.duplicates else f"program {place}"


def made_up(model: PoolModel, count: int, seed: int) -> list[LabelledPool]:
    """Make `count` pools."""
    return [model.pool(number, seed) for number in range(count)]


def labelled(cases: Iterable[Case | InputError], *, n: int | None) -> Iterator[LabelledPool]:
    """Take pools from cases whose candidates all carry `correct`; the first `n` candidates of each."""
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
        described = describe(pool, profile_named(case.domain), estimate_tokens)
        overhead = INSTRUCTION_TOKENS + estimate_tokens(case.problem.text)
        yield LabelledPool(number, described.entrants, tuple(bool(label) for label in labels)[:n], overhead)
