"""One more call reads all answers and writes a new one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from caps.core.settings import check_settings, setting
from caps.core.types import Candidate, Case
from caps.evidence.anatomy import spoken
from caps.evidence.views import thinking
from caps.sampling.base import Aids, Desk, Sampled, take_step

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

    async def sample(self, case: Case, n: int, desk: Desk, aids: Aids) -> Sampled:
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


async def first_population(sampled: Sampled, case: Case, n: int, desk: Desk) -> list[Candidate]:
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
