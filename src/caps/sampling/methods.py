"""Ways to generate candidates: independent samples, aggregation, recursive self-aggregation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import cast

from caps.core.errors import InputError, SettingError
from caps.core.settings import check_settings, setting
from caps.core.types import Candidate, Case
from caps.evidence.anatomy import spoken
from caps.evidence.views import thinking
from caps.models.discovery import EMBEDDED
from caps.registry import METHODS, PRESETS, build
from caps.sampling.base import Aids, Generator, Method, Sampled, take_step
from caps.sampling.presets import Preset


@dataclass(frozen=True, slots=True)
class Independent:
    """The i-th candidate is the i-th draw."""

    async def sample(self, case: Case, n: int, desk: Generator, aids: Aids) -> Sampled:  # noqa: ARG002
        """Draw n times."""
        if case.candidates:
            raise InputError(
                "candidates: are there already; take them out, or make new ones of them with "
                "--method aggregate or --method rsa"
            )
        sampled = Sampled(case.id)
        candidates = sampled.add(await desk.fresh(case, range(n)))
        sampled.case = replace(case, candidates=tuple(candidates))
        return sampled


# One more call reads all answers and writes a new one.


SHOWS = ("answer", "all")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Draws n answers, unless the case has some, then a new one from all of them."""

    show: str = setting(
        "answer", "what a call sees of an answer: without its thoughts, or all", choices=SHOWS
    )
    keep: bool = setting(default=False, about="the answers it was made from stay in the case, before it")

    def __post_init__(self) -> None:
        check_settings(self)

    async def sample(self, case: Case, n: int, desk: Generator, aids: Aids) -> Sampled:
        """Draw n times, then once more."""
        sampled = Sampled(case.id)
        pool = await first_population(sampled, case, n, desk)
        await take_step(sampled, case, pool, aids)
        if pool:
            texts = [shown(one, self.show) for one in pool]
            made = sampled.add(await desk.combined(case, [texts], [n]))
            await take_step(sampled, case, made, aids)
            # Where the last call failed, what it should have read is still an answer.
            pool = [*pool, *made] if self.keep else made or pool
        sampled.case = replace(case, candidates=tuple(pool))
        return sampled


async def first_population(sampled: Sampled, case: Case, n: int, desk: Generator) -> list[Candidate]:
    """The candidates of a case, or else n fresh ones."""
    return list(case.candidates) or sampled.add(await desk.fresh(case, range(n)))


def shown(candidate: Candidate, how: str) -> str:
    """What a call may see of a candidate; of one that only thought, its end."""
    if how == "all":
        return candidate.text
    return spoken(candidate.text).strip() or thinking(candidate)


def group_texts(
    population: Sequence[Candidate], groups: Sequence[Sequence[int]], how: str
) -> list[list[str]]:
    """The texts of each group."""
    texts = [shown(one, how) for one in population]
    return [[texts[member] for member in group] for group in groups]


# Recursive self-aggregation (Venkatraman et al. 2025): a population rewritten from its own groups.


@dataclass(frozen=True, slots=True)
class Rsa:
    """n answers; then, in every loop, n new ones, each from a random group of the last: n + loops * n calls.

    With a `fitness`, that strategy orders the population before each loop, and only the best are parents.
    """

    loops: int = setting(3, "how often the population is rewritten", least=0)
    group: int = setting(4, "answers shown to each call", least=1)
    show: str = setting(
        "answer", "what a call sees of an answer: without its thoughts, or all", choices=SHOWS
    )
    fitness: str = setting("", "the strategy that chooses parents; empty: all are")
    survivors: int = setting(8, "how many of the population are parents, with a fitness", least=1)
    keep: bool = setting(default=False, about="earlier populations stay in the case, before the last")

    def __post_init__(self) -> None:
        check_settings(self)

    async def sample(self, case: Case, n: int, desk: Generator, aids: Aids) -> Sampled:
        """Draw the first population, then rewrite it `loops` times."""
        sampled, rng = Sampled(case.id), Random(f"rsa/{desk.seed}/{case.id}")
        population = await first_population(sampled, case, n, desk)
        kept: list[Candidate] = []
        await take_step(sampled, case, population, aids)
        for loop in range(1, self.loops + 1):
            if not population:
                break
            parents = await self._parents(sampled, replace(case, candidates=tuple(population)), aids)
            groups = [rng.sample(range(len(parents)), min(self.group, len(parents))) for _ in range(n)]
            texts = group_texts(parents, groups, self.show)
            numbers = range(loop * n, (loop + 1) * n)
            made = sampled.add(await desk.combined(case, texts, numbers))
            if not made:
                break  # every call of this loop failed: the last population stands
            kept, population = [*kept, *population], made
            await take_step(sampled, case, population, aids)
        sampled.case = replace(case, candidates=tuple([*kept, *population] if self.keep else population))
        return sampled

    async def _parents(self, sampled: Sampled, case: Case, aids: Aids) -> Sequence[Candidate]:
        if not self.fitness or len(case.candidates) == 1:
            return case.candidates
        if aids.rank is None:
            raise SettingError(f"fitness = {self.fitness!r}: nobody was handed in who could rank by it")
        order = await aids.rank(case)
        sampled.unranked += not order
        best = order[: max(self.survivors, self.group)]
        return [case.candidates[one] for one in best] or case.candidates


# Names and words to presets and methods.


def make_method(name: str, changes: Mapping[str, str] | None = None) -> Method:
    """Build a method by name, with some of its fields changed."""
    return cast(Method, build(METHODS, name, changes))


def make_preset(name: str, changes: Mapping[str, str] | None = None) -> Preset:
    """Build a preset by name, with some of its fields changed."""
    return cast(Preset, build(PRESETS, name, changes))


def usual_preset(name: str, model: str | None) -> str:
    """The preset meant by a name; the embedded model gets the one for small models if nobody chose."""
    return "small" if (name, model) == ("default", EMBEDDED) else name
