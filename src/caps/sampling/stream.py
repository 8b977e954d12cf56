"""Many problems under one limit: read as far as needed, sampled side by side, handed on in order.

Rules that must not be broken:

* While a draw may start and a problem is left, a draw starts; memory stays flat, however many there are.
* One failed problem does not stop the others.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator

from caps.core.errors import InputError
from caps.core.types import Case
from caps.sampling.base import Aids, Method, Sampled
from caps.sampling.sampler import Sampler

MOST_WAITING = 256  # problems that may wait for an earlier one; their candidates are in memory


async def sample_all(
    problems: Iterable[Case | InputError],
    method: Method,
    sampler: Sampler,
    *,
    n: int,
    aids: Aids | None = None,
    grace: float = 0.0,
) -> AsyncGenerator[Sampled, None]:
    """Sample all problems and yield what became of each, in the order of input."""
    source, aids = _told(iter(problems)), aids or Aids()
    under: deque[asyncio.Task[Sampled]] = deque()
    broken: list[BaseException] = []

    def end(task: "asyncio.Task[Sampled]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            broken.append(error)
        sampler.news.set()

    more = True
    try:
        while more or under:
            if broken:
                raise broken[0]
            while under and under[0].done():
                yield under.popleft().result()
            if more and len(under) < MOST_WAITING and sampler.pending < sampler.capacity():
                problem = next(source, None)
                more = problem is not None
                if problem is not None:
                    under.append(asyncio.ensure_future(_sample(problem, method, sampler, n, aids)))
                    under[-1].add_done_callback(end)
                    await asyncio.sleep(0)  # its draws are counted once it has begun
            elif under and not under[0].done():
                await sampler.news.wait()
                sampler.news.clear()
    finally:
        await sampler.stop(grace)
        for task in under:
            task.cancel()
        await asyncio.gather(*under, return_exceptions=True)


async def _sample(
    problem: Case | InputError, method: Method, sampler: Sampler, n: int, aids: Aids
) -> Sampled:
    if isinstance(problem, InputError):
        return Sampled("", failure=str(problem))
    try:
        sampled = await method.sample(problem, n, sampler, aids)
    except InputError as error:
        return Sampled(problem.id, failure=str(error))
    if sampled.case is None or not sampled.case.candidates:
        first = next((sample.failure for sample in sampled.samples if sample.failure), "nothing was drawn")
        sampled.case, sampled.failure = None, f"none of its {len(sampled.samples)} samples came in: {first}"
    return sampled


def _told(source: Iterator[Case | InputError]) -> Iterator[Case | InputError]:
    """The problems; a source that breaks off ends with the reason as its last."""
    try:
        yield from source
    except InputError as error:
        yield error
