"""The engine on a Ray cluster: workers play the cases, the driver keeps the journal and the order.

Rules that must not be broken:

* A reply is in the driver's journal before a worker does anything with it.
* A worker that dies is replaced and its cases are played again from the journal: only what was in flight is
  asked twice.
* Cases are read only as far as they are needed, and forgotten once they are handed on, in the order of input.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from caps.core.errors import CapsError, InputError, SettingError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.costs.prices import Price
from caps.engines.base import Outcome, PerCase, Prepare
from caps.engines.bench import Equip
from caps.engines.budget import Budget
from caps.engines.clerk import Clerk, heard
from caps.engines.cluster import Cluster, connect, on_this_machine
from caps.engines.told import Job, Told, retell
from caps.engines.worker import Worker
from caps.judges.base import Ruling
from caps.text_workers import TextWorkers

START_SECONDS = 120.0
LEAVE_SECONDS = 5.0
DEATHS = 3  # how often a case may see its worker die before it counts as failed
AHEAD = 4  # cases known at once, as a multiple of those in play: one slow case holds up no worker


class RayEngine:
    """Plays a stream of cases with several workers, each of which plays up to `room` at once.

    `unusable` is told why cases were not looked into. `workers` are those of the run under way.
    """

    def __init__(
        self,
        equip: Equip,
        prepare: Prepare,
        *,
        cluster: Cluster,
        room: int,
        journal: Path | None,
        durable: bool = False,
        total_budget: Budget | None = None,
        price: Price | None = None,
        grace: float = 0.0,
        unusable: Counter[str] | None = None,
        texts: TextWorkers | None = None,
    ) -> None:
        self._equip, self._prepare, self._cluster, self._room = equip, prepare, cluster, room
        self._journal, self._durable = journal, durable
        self._budget, self._price, self._grace = total_budget or Budget(), price, grace
        self._unusable, self._texts = Counter() if unusable is None else unusable, texts
        self.workers: list[Any] = []
        self.watch: Callable[[Ruling], object] = lambda _: None

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Play all cases and yield what became of each, in the order of input."""
        most = AHEAD * self._room * self._cluster.workers
        whole = self._budget.seconds
        async with self._staff() as crew:
            ends = None if whole is None else time.time() + whole
            trouble: asyncio.Future[CapsError] = asyncio.get_running_loop().create_future()
            jobs = enumerate(_jobs(cases, strategy, seed, ends))
            known: deque[asyncio.Task[Outcome]] = deque()
            try:
                while True:
                    for number, job in islice(jobs, most - len(known)):
                        known.append(asyncio.ensure_future(self._played(crew, number, job, trouble)))
                    if not known:
                        return
                    await asyncio.wait((known[0], trouble), return_when=asyncio.FIRST_COMPLETED)
                    if trouble.done():
                        raise trouble.result()
                    yield known.popleft().result()
            finally:
                for task in known:
                    task.cancel()
                await asyncio.gather(*known, return_exceptions=True)

    async def _played(
        self, crew: "Crew", number: int, job: Job | InputError, trouble: "asyncio.Future[CapsError]"
    ) -> Outcome:
        """What became of a case; whatever would stop all others too is `trouble`."""
        if isinstance(job, InputError):
            return Outcome(number, "", failure=str(job))
        try:
            told = await crew.play(job)
        except CapsError as error:
            if not trouble.done():
                trouble.set_result(error)
            raise
        except Exception as error:  # Ray's own: a worker that died over it again and again
            return Outcome(number, job.case.id, failure=f"its worker did not come through: {_brief(error)}")
        self._unusable.update(told.unusable)
        for ruling in told.rulings:
            self.watch(ruling)
        return await retell(job, told, self._prepare, self._texts)

    @asynccontextmanager
    async def _staff(self) -> AsyncIterator["Crew"]:
        """Start the clerk on this machine and the workers anywhere; end them all when the run is over."""
        ray = connect(self._cluster)
        clerk = (
            ray.remote(Clerk)
            .options(num_cpus=0, scheduling_strategy=on_this_machine(ray))
            .remote(self._equip, self._journal, self._budget, self._price, durable=self._durable)
        )
        hire = ray.remote(Worker).options(
            num_cpus=0,  # it mostly waits; a CPU of its own would be one taken from whoever reads the cases
            scheduling_strategy="SPREAD",
            max_restarts=-1,
            max_task_retries=DEATHS,
            max_concurrency=self._room + 1,
        )
        self.workers = [hire.remote(f"worker {i}") for i in range(self._cluster.workers)]
        try:
            await self._ready(clerk)
            yield Crew(clerk, self.workers, self._room)
        finally:
            with suppress(Exception):  # whoever does not leave by itself is made to
                await self._all("leave", seconds=self._grace + LEAVE_SECONDS)
                await asyncio.wait_for(heard(clerk.leave.remote()), LEAVE_SECONDS)
            for actor in (*self.workers, clerk):
                ray.kill(actor)
            self.workers = []

    async def _ready(self, clerk: Any) -> None:
        try:
            await self._all("ready", clerk, seconds=START_SECONDS)
        except TimeoutError:
            raise SettingError(
                f"--ray-workers {len(self.workers)}: not all of them started within {START_SECONDS:g} s: "
                "ask for fewer, or look at the cluster with  ray status"
            ) from None

    async def _all(self, method: str, *words: Any, seconds: float) -> None:
        """Call a method of every worker and wait for all of them."""
        calls = [heard(getattr(worker, method).remote(*words)) for worker in self.workers]
        await asyncio.wait_for(asyncio.gather(*calls), seconds)


class Crew:
    """Workers with their clerk, and how many cases each has: whoever has fewest gets the next."""

    def __init__(self, clerk: Any, workers: Sequence[Any], room: int) -> None:
        self._clerk, self._workers, self._cases = clerk, workers, [0] * len(workers)
        self._free = asyncio.Semaphore(room * len(workers))

    async def play(self, job: Job) -> Told:
        """Have a case played, as soon as there is room for it."""
        async with self._free:
            place = self._cases.index(min(self._cases))
            self._cases[place] += 1
            try:
                return await heard(self._workers[place].play.remote(self._clerk, job))
            finally:
                self._cases[place] -= 1


def _jobs(
    cases: Iterable[Case | InputError], strategy: Strategy | PerCase, seed: int, ends: float | None
) -> Iterator[Job | InputError]:
    """What is to be played; a source that breaks off ends with the reason as its last."""
    try:
        for number, case in enumerate(cases):
            if isinstance(case, InputError):
                yield case
                continue
            chosen = strategy.strategies[number] if isinstance(strategy, PerCase) else strategy
            yield Job(number, case, chosen, seed, ends)
    except InputError as error:
        yield error


def _brief(error: Exception) -> str:
    """The first line of what Ray says, which may be many."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
