"""Sampling methods: independent samples, aggregation, recursive self-aggregation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import cast

from caps.core.errors import InputError, SettingError
from caps.core.settings import check_settings, setting
from caps.core.types import Candidate, Case
from caps.evidence.anatomy import spoken
from caps.evidence.views import thinking
from caps.models.endpoints import EMBEDDED
from caps.registry import METHODS, PRESETS, build
from caps.sampling.base import Generator, Method, Preset, Sampled, SamplingTools, record_step


@dataclass(frozen=True, slots=True)
class Independent:
    """n independent answers."""

    async def sample(self, case: Case, n: int, generator: Generator, tools: SamplingTools) -> Sampled:  # noqa: ARG002
        """Generate n answers."""
        if case.candidates:
            raise InputError(
                "candidates: the case has some already; remove them, or generate new ones from them with "
                "--method aggregate or --method rsa"
            )
        sampled = Sampled(case.id)
        candidates = sampled.add(await generator.generate(case, range(n)))
        sampled.case = replace(case, candidates=tuple(candidates))
        return sampled


SHOWS = ("answer", "all")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """n answers, unless the case has some, then one call that writes a new answer from all of them."""

    show: str = setting(
        "answer", "what a call sees of an answer: without its reasoning, or all", choices=SHOWS
    )
    keep: bool = setting(default=False, about="keep the answers it was written from in the case, before it")

    def __post_init__(self) -> None:
        check_settings(self)

    async def sample(self, case: Case, n: int, generator: Generator, tools: SamplingTools) -> Sampled:
        """Generate n answers, then one from all of them."""
        sampled = Sampled(case.id)
        pool = await _initial_population(sampled, case, n, generator)
        await record_step(sampled, case, pool, tools)
        if pool:
            texts = [visible_text(one, self.show) for one in pool]
            new = sampled.add(await generator.aggregate(case, [texts], [n]))
            await record_step(sampled, case, new, tools)
            # If the last call failed, the answers it should have read remain.
            pool = [*pool, *new] if self.keep else new or pool
        sampled.case = replace(case, candidates=tuple(pool))
        return sampled


async def _initial_population(sampled: Sampled, case: Case, n: int, generator: Generator) -> list[Candidate]:
    """The candidates of a case, or n new ones if it has none."""
    return list(case.candidates) or sampled.add(await generator.generate(case, range(n)))


def visible_text(candidate: Candidate, show: str) -> str:
    """What a call may see of a candidate; if that has only reasoning, the end of it."""
    if show == "all":
        return candidate.text
    return spoken(candidate.text).strip() or thinking(candidate)


@dataclass(frozen=True, slots=True)
class Rsa:
    """Recursive self-aggregation (Venkatraman et al. 2025): n + loops * n calls.

    Each loop writes n new answers, each from a random group of the last population. With a `fitness`, that
    strategy ranks the population before each loop, and only the best are parents.
    """

    loops: int = setting(3, "how often the population is rewritten", least=0)
    group: int = setting(4, "answers shown to each call", least=1)
    show: str = setting(
        "answer", "what a call sees of an answer: without its reasoning, or all", choices=SHOWS
    )
    fitness: str = setting("", "strategy that chooses parents; empty: all candidates are parents")
    survivors: int = setting(8, "number of parents, with a fitness", least=1)
    keep: bool = setting(default=False, about="keep earlier populations in the case, before the last")

    def __post_init__(self) -> None:
        check_settings(self)

    async def sample(self, case: Case, n: int, generator: Generator, tools: SamplingTools) -> Sampled:
        """Generate the first population, then rewrite it `loops` times."""
        sampled, rng = Sampled(case.id), Random(f"rsa/{generator.seed}/{case.id}")
        population = await _initial_population(sampled, case, n, generator)
        earlier: list[Candidate] = []
        await record_step(sampled, case, population, tools)
        for loop in range(1, self.loops + 1):
            if not population:
                break
            parents = await self._parents(sampled, replace(case, candidates=tuple(population)), tools)
            groups = [rng.sample(range(len(parents)), min(self.group, len(parents))) for _ in range(n)]
            texts = [visible_text(one, self.show) for one in parents]
            grouped = [[texts[member] for member in group] for group in groups]
            numbers = range(loop * n, (loop + 1) * n)
            new = sampled.add(await generator.aggregate(case, grouped, numbers))
            if not new:
                break  # every call of this loop failed: the last population stands
            earlier, population = [*earlier, *population], new
            await record_step(sampled, case, population, tools)
        sampled.case = replace(case, candidates=tuple([*earlier, *population] if self.keep else population))
        return sampled

    async def _parents(self, sampled: Sampled, case: Case, tools: SamplingTools) -> Sequence[Candidate]:
        if not self.fitness or len(case.candidates) == 1:
            return case.candidates
        if tools.rank is None:
            raise SettingError(f"fitness = {self.fitness!r}: no judge was given that could rank by it")
        order = await tools.rank(case)
        sampled.unranked += not order
        best = order[: max(self.survivors, self.group)]
        return [case.candidates[one] for one in best] or case.candidates


def make_method(name: str, changes: Mapping[str, str] | None = None) -> Method:
    """Build a method by name, with some of its fields changed."""
    return cast(Method, build(METHODS, name, changes))


def make_preset(name: str, changes: Mapping[str, str] | None = None) -> Preset:
    """Build a preset by name, with some of its fields changed."""
    return cast(Preset, build(PRESETS, name, changes))


def resolve_preset(name: str, model: str | None) -> str:
    """The preset to use; the default for the embedded model is the one for small models."""
    return "small" if (name, model) == ("default", EMBEDDED) else name
