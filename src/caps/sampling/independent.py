"""N answers, each drawn without sight of the others."""

from dataclasses import dataclass, replace

from caps.core.errors import InputError
from caps.core.types import Case
from caps.sampling.base import Aids, Desk, Sampled


@dataclass(frozen=True, slots=True)
class Independent:
    """The i-th candidate is the i-th draw."""

    async def sample(self, case: Case, n: int, desk: Desk, aids: Aids) -> Sampled:  # noqa: ARG002
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
