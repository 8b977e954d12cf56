"""Recursive self-aggregation (Venkatraman et al. 2025): a population rewritten from its own groups."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from caps.core.errors import SettingError
from caps.core.settings import check_settings, setting
from caps.core.types import Candidate, Case
from caps.sampling.aggregate import SHOWS, first_population, group_texts
from caps.sampling.base import Aids, Desk, Sampled, take_step


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

    async def sample(self, case: Case, n: int, desk: Desk, aids: Aids) -> Sampled:
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
