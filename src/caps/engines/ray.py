"""The engine on a Ray cluster: workers run the cases; the driver's machine has journal and budget.

Rules that must not be broken:

* A reply is in the driver's journal before a worker does anything with it.
* A worker that dies is replaced and its cases are run again from the journal: only calls in flight are made
  twice.
* Cases are read only as far as they are needed, and forgotten once handed on, in input order.
"""

import asyncio
import os
import socket
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from caps.core.errors import CapsError, InputError, JournalError, MissingExtraError, SettingError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.costs.prices import Price
from caps.engines.base import Cluster, Outcome, PerCase, strategy_for, unreadable_case
from caps.engines.budget import BudgetLimits
from caps.engines.readability import ReplyCheck
from caps.engines.remote import CaseResult, Coordinator, Job, OpenContext, Worker, remote_result
from caps.judging.base import Ruling
from caps.judging.preparation import CasePreparation

LOCAL = (None, "", "local")
CONNECT_SECONDS = 5.0
START_SECONDS = 120.0
CLOSE_SECONDS = 5.0
HEAD_SECONDS, HEAD_CHECKS = 4.0, 3  # between two looks at the head, and how many have to fail
HEAD_TIMEOUT = 20.0  # seconds: on a busy machine, this process may come to it late
MAX_DEATHS = 3  # of its worker before a case counts as failed
READ_AHEAD = 4  # cases read, as a multiple of those running: one slow case holds up no worker


def connect(cluster: Cluster) -> Any:
    """Join the cluster, or start one here, unless connected already; returns the package `ray`."""
    if cluster.address not in LOCAL:
        _check_address(str(cluster.address))
    try:
        import ray  # noqa: PLC0415
        import ray.util.scheduling_strategies  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("ray", "ray", "the engine 'ray'") from None
    if ray.is_initialized():
        return ray
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        if cluster.address in LOCAL:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
            ray.init(address="local", include_dashboard=False, **quiet)
        else:
            ray.init(address=cluster.address, **quiet)
    except Exception as error:  # Ray raises many types
        reason = str(error).partition(". ")[0].partition("\n")[0]
        if cluster.address in LOCAL:
            raise SettingError(f"ray_address: Ray cannot start a cluster here ({reason})") from None
        raise SettingError(
            f"ray_address: Ray cannot join {cluster.address!r} ({reason}): if it asks for a token, "
            "set RAY_AUTH_MODE=token and have the token of its first machine here (~/.ray/auth_token)"
        ) from None
    # Ray reports dead workers on standard output, where results go; there is no public switch for it.
    ray._private.worker._worker_logs_enabled = False
    return ray


def _check_address(address: str) -> None:
    """Refuse an address without a server: Ray itself would try for minutes, then end the process."""
    if address == "auto":
        return
    if address.startswith("ray://"):
        raise SettingError(
            f"ray_address {address!r}: a Ray client cannot keep the journal: run caps on a machine of the "
            "cluster, with its address as HOST:PORT, or auto"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise SettingError(
            f"ray_address {address!r}: must be HOST:PORT, or auto for the cluster on this machine"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise SettingError(
            f"ray_address {address!r}: nothing answers there ({error}): "
            "start a cluster with  ray start --head"
        ) from None


class RayEngine:
    """Runs a stream of cases with several workers, each of which runs up to `capacity` at once.

    `unusable` counts why findings were not possible. Without `keep_going`, a run stops if most replies of the
    judge cannot be read. `workers` are those of the current run.
    """

    def __init__(
        self,
        open_context: OpenContext,
        prepare: CasePreparation,
        *,
        cluster: Cluster,
        capacity: int,
        journal: Path | None,
        durable: bool,
        total_budget: BudgetLimits,
        price: Price | None,
        grace: float,
        unusable: Counter[str] | None,
        keep_going: bool,
    ) -> None:
        self._open_context, self._prepare, self._keep_going = open_context, prepare, keep_going
        self._cluster, self._capacity, self._grace = cluster, capacity, grace
        self._journal, self._durable = journal, durable
        self._budget, self._price = total_budget, price
        self._unusable = Counter() if unusable is None else unusable
        self._coordinator: Any = None
        self.workers: list[Any] = []
        self._playing: list[int] = []  # cases of each worker
        self.watch: Callable[[Ruling], object] = lambda _: None

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Run all cases and yield each outcome, in input order."""
        max_tasks = READ_AHEAD * self._capacity * self._cluster.workers
        slots = asyncio.Semaphore(self._capacity * self._cluster.workers)
        check = ReplyCheck(keep_going=self._keep_going)
        tasks: deque[asyncio.Task[Outcome]] = deque()
        async with self._started() as fatal:
            seconds = self._budget.seconds
            deadline = None if seconds is None else time.time() + seconds
            jobs = enumerate(_jobs(cases, strategy, seed, deadline))
            try:
                while True:
                    for number, job in islice(jobs, max_tasks - len(tasks)):
                        tasks.append(asyncio.ensure_future(self._outcome(number, job, slots, fatal)))
                    if not tasks or check.error is not None:
                        check.finish()
                        return
                    await asyncio.wait((tasks[0], fatal), return_when=asyncio.FIRST_COMPLETED)
                    if fatal.done():
                        raise fatal.result()
                    outcome = tasks.popleft().result()
                    check.add_outcome(outcome)
                    yield outcome
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _outcome(
        self, number: int, job: Job | InputError, slots: asyncio.Semaphore, fatal: "asyncio.Future[CapsError]"
    ) -> Outcome:
        """The outcome of a case; an error that would stop all others too ends the run."""
        if isinstance(job, InputError):
            return unreadable_case(number, job)
        try:
            async with slots:
                result = await self._play(job)
        except CapsError as error:
            _end(fatal, error)
            raise
        except Exception as error:  # the worker died repeatedly
            reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            return Outcome(number, job.case.id, failure=f"its worker failed repeatedly: {reason}")
        self._unusable.update(result.unusable)
        for ruling in result.rulings:
            self.watch(ruling)
        return result.rebuild(job, self._prepare)

    async def _play(self, job: Job) -> CaseResult:
        """Play a case at the worker that has the fewest; Ray starts a lost worker, and its cases, again."""
        index = self._playing.index(min(self._playing))
        self._playing[index] += 1
        try:
            result: CaseResult = await remote_result(self.workers[index].run.remote(job))
        finally:
            self._playing[index] -= 1
        self._coordinator.mark_reported.remote(result.paid_keys)
        return result

    @asynccontextmanager
    async def _started(self) -> AsyncIterator["asyncio.Future[CapsError]"]:
        """Start the coordinator on this machine and the workers anywhere; end all after the run.

        Yields a future of the error that ends the run, if there is one.
        """
        ray = connect(self._cluster)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        coordinator = ray.remote(Coordinator).options(num_cpus=0, scheduling_strategy=here)
        worker = ray.remote(Worker).options(
            num_cpus=0,  # it mostly waits
            scheduling_strategy="SPREAD",
            max_restarts=-1,
            max_task_retries=MAX_DEATHS,
            max_concurrency=self._capacity + 1,
        )
        self._coordinator = coordinator.remote(
            self._journal, self._budget, self._price, durable=self._durable
        )
        self._playing = [0] * self._cluster.workers
        self.workers = [
            worker.remote(
                f"worker {number}", self._coordinator, self._open_context,
                journaled=self._journal is not None, limited=self._budget.spends,
            )
            for number in range(self._cluster.workers)
        ]  # fmt: skip
        fatal: asyncio.Future[CapsError] = asyncio.get_running_loop().create_future()
        head = asyncio.ensure_future(_watch_head(ray.get_runtime_context().gcs_address, fatal))
        try:
            await self._wait_ready()
            yield fatal
        finally:
            if not head.done():  # else nothing can be called any more
                head.cancel()
                with suppress(Exception):  # an actor that does not close in time is killed
                    await self._call_all("close", self._grace + CLOSE_SECONDS)
                    await asyncio.wait_for(remote_result(self._coordinator.close.remote()), CLOSE_SECONDS)
                for actor in (*self.workers, self._coordinator):
                    ray.kill(actor)
            self.workers = []

    async def _wait_ready(self) -> None:
        try:
            await self._call_all("ready", START_SECONDS)
        except TimeoutError:
            raise SettingError(
                f"ray_workers {len(self.workers)}: not all of them started within {START_SECONDS:g} s: "
                "ask for fewer, or look at the cluster with  ray status"
            ) from None

    async def _call_all(self, method: str, seconds: float) -> None:
        """Call a method of every worker and wait for all."""
        calls = [remote_result(getattr(worker, method).remote()) for worker in self.workers]
        await asyncio.wait_for(asyncio.gather(*calls), seconds)


def _jobs(
    cases: Iterable[Case | InputError], strategy: Strategy | PerCase, seed: int, deadline: float | None
) -> Iterator[Job | InputError]:
    """The jobs of a source; one that breaks off ends with the reason as its last item."""
    try:
        for number, case in enumerate(cases):
            if isinstance(case, InputError):
                yield case
            else:
                yield Job(number, case, strategy_for(number, strategy), seed, deadline)
    except InputError as error:
        yield error


async def _watch_head(address: str, fatal: "asyncio.Future[CapsError]") -> None:
    """End the run once the head of the cluster is gone; a minute later Ray itself ends the process."""
    host, _, port = address.rpartition(":")
    failures = 0
    while failures < HEAD_CHECKS:
        await asyncio.sleep(HEAD_SECONDS)
        try:
            async with asyncio.timeout(HEAD_TIMEOUT):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.close()
            failures = 0
        except (OSError, TimeoutError):
            failures += 1
    message = (
        f"the head of the Ray cluster at {address} is gone: start the cluster again, then run the same "
        "command; every reply so far is in the journal"
    )
    _end(fatal, JournalError(message))


def _end(fatal: "asyncio.Future[CapsError]", error: CapsError) -> None:
    """End the run with an error; the first one counts."""
    if not fatal.done():
        fatal.set_result(error)
