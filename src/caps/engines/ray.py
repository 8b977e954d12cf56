"""The engine on a Ray cluster: workers run the cases; the driver's machine has journal and budget.

Rules that must not be broken:

* A reply is in the driver's journal before a worker does anything with it.
* A worker that dies is replaced and its cases are run again from the journal: only calls in flight are made
  twice.
* Cases are read only as far as they are needed, and forgotten once handed on, in input order.
"""

import asyncio
import logging
import os
import socket
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from caps.core.errors import CapsError, InputError, MissingExtraError, SettingError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.costs.prices import Price
from caps.datasets.case_files import cases_in, cases_in_rows
from caps.datasets.reading import lines, lines_at
from caps.engines.base import Outcome, PerCase, Prepare, strategy_for
from caps.engines.budget import BudgetLimits
from caps.engines.remote import CaseResult, Coordinator, Job, MakeContext, Worker, rebuild, remote_result
from caps.judging.base import Ruling
from caps.text_workers import TextWorkers

CONNECT_SECONDS = 5.0
LOCAL = (None, "", "local")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where workers run and how many: the address of a cluster, or None for one started on this machine."""

    address: str | None = None
    workers: int = 2


def connect(cluster: Cluster) -> Any:
    """Join the cluster, or start one here, unless connected already; returns the package `ray`."""
    if cluster.address not in LOCAL:
        _check_address(str(cluster.address))
    try:
        import ray  # noqa: PLC0415
        import ray.data.datasource  # noqa: PLC0415
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
        what = "cannot start one here" if cluster.address in LOCAL else f"cannot join {cluster.address!r}"
        raise SettingError(f"--ray-address: Ray {what} ({reason})") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # Ray reports dead workers on standard output, where results go; there is no public switch for it.
    ray._private.worker._worker_logs_enabled = False
    return ray


def on_this_machine(ray: Any) -> Any:
    """The scheduling strategy for an actor that needs this machine's files."""
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    return affinity(ray.get_runtime_context().get_node_id(), soft=False)


def _check_address(address: str) -> None:
    """Refuse an address without a server: Ray itself would try for minutes, then end the process."""
    if address == "auto":
        return
    if address.startswith("ray://"):
        raise SettingError(
            f"--ray-address {address!r}: a Ray client cannot keep the journal: run caps on a machine of the "
            "cluster, with its address as HOST:PORT, or auto"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise SettingError(
            f"--ray-address {address!r}: must be HOST:PORT, or auto for the cluster on this machine"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise SettingError(
            f"--ray-address {address!r}: nothing answers there ({error}): "
            "start a cluster with  ray start --head"
        ) from None


START_SECONDS = 120.0
CLOSE_SECONDS = 5.0
MAX_DEATHS = 3  # of its worker before a case counts as failed
READ_AHEAD = 4  # cases read, as a multiple of those running: one slow case holds up no worker


class RayEngine:
    """Runs a stream of cases with several workers, each of which runs up to `capacity` at once.

    `unusable` counts why findings were not possible. `workers` are those of the current run.
    """

    def __init__(
        self,
        make_context: MakeContext,
        prepare: Prepare,
        *,
        cluster: Cluster,
        capacity: int,
        journal: Path | None,
        durable: bool = False,
        total_budget: BudgetLimits | None = None,
        price: Price | None = None,
        grace: float = 0.0,
        unusable: Counter[str] | None = None,
        texts: TextWorkers | None = None,
    ) -> None:
        self._make_context, self._prepare = make_context, prepare
        self._cluster, self._capacity = cluster, capacity
        self._journal, self._durable = journal, durable
        self._budget, self._price, self._grace = total_budget or BudgetLimits(), price, grace
        self._unusable, self._texts = Counter() if unusable is None else unusable, texts
        self.workers: list[Any] = []
        self.watch: Callable[[Ruling], object] = lambda _: None

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Run all cases and yield each outcome, in input order."""
        max_tasks = READ_AHEAD * self._capacity * self._cluster.workers
        seconds = self._budget.seconds
        async with self._start_workers() as worker_pool:
            deadline = None if seconds is None else time.time() + seconds
            fatal: asyncio.Future[CapsError] = asyncio.get_running_loop().create_future()
            jobs = enumerate(_jobs(cases, strategy, seed, deadline))
            tasks: deque[asyncio.Task[Outcome]] = deque()
            try:
                while True:
                    for number, job in islice(jobs, max_tasks - len(tasks)):
                        tasks.append(asyncio.ensure_future(self._run_job(worker_pool, number, job, fatal)))
                    if not tasks:
                        return
                    await asyncio.wait((tasks[0], fatal), return_when=asyncio.FIRST_COMPLETED)
                    if fatal.done():
                        raise fatal.result()
                    yield tasks.popleft().result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_job(
        self,
        worker_pool: "WorkerPool",
        number: int,
        job: Job | InputError,
        fatal: "asyncio.Future[CapsError]",
    ) -> Outcome:
        """The outcome of a case; an error that would stop all others too becomes the result of `fatal`."""
        if isinstance(job, InputError):
            return Outcome(number, "", failure=str(job))
        try:
            result = await worker_pool.run(job)
        except CapsError as error:
            if not fatal.done():
                fatal.set_result(error)
            raise
        except Exception as error:  # Ray's own: the worker died repeatedly
            reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            return Outcome(number, job.case.id, failure=f"its worker failed repeatedly: {reason}")
        self._unusable.update(result.unusable)
        for ruling in result.rulings:
            self.watch(ruling)
        return await rebuild(job, result, self._prepare, self._texts)

    @asynccontextmanager
    async def _start_workers(self) -> AsyncIterator["WorkerPool"]:
        """Start the coordinator on this machine and the workers anywhere; end all after the run."""
        ray = connect(self._cluster)
        coordinator = (
            ray.remote(Coordinator)
            .options(num_cpus=0, scheduling_strategy=on_this_machine(ray))
            .remote(self._make_context, self._journal, self._budget, self._price, durable=self._durable)
        )
        worker_actor = ray.remote(Worker).options(
            num_cpus=0,  # it mostly waits; a reserved CPU would be missing for reading cases
            scheduling_strategy="SPREAD",
            max_restarts=-1,
            max_task_retries=MAX_DEATHS,
            max_concurrency=self._capacity + 1,
        )
        self.workers = [worker_actor.remote(f"worker {i}") for i in range(self._cluster.workers)]
        try:
            await self._wait_ready(coordinator)
            yield WorkerPool(coordinator, self.workers, self._capacity)
        finally:
            with suppress(Exception):  # an actor that does not close in time is killed
                await self._call_all("close", seconds=self._grace + CLOSE_SECONDS)
                await asyncio.wait_for(remote_result(coordinator.close.remote()), CLOSE_SECONDS)
            for actor in (*self.workers, coordinator):
                ray.kill(actor)
            self.workers = []

    async def _wait_ready(self, coordinator: Any) -> None:
        try:
            await self._call_all("ready", coordinator, seconds=START_SECONDS)
        except TimeoutError:
            raise SettingError(
                f"--ray-workers {len(self.workers)}: not all of them started within {START_SECONDS:g} s: "
                "ask for fewer, or look at the cluster with  ray status"
            ) from None

    async def _call_all(self, method: str, *arguments: Any, seconds: float) -> None:
        """Call a method of every worker and wait for all."""
        calls = [remote_result(getattr(worker, method).remote(*arguments)) for worker in self.workers]
        await asyncio.wait_for(asyncio.gather(*calls), seconds)


class WorkerPool:
    """Workers with their coordinator; the worker with the fewest cases gets the next."""

    def __init__(self, coordinator: Any, workers: Sequence[Any], capacity: int) -> None:
        self._coordinator, self._workers, self._running = coordinator, workers, [0] * len(workers)
        self._slots = asyncio.Semaphore(capacity * len(workers))

    async def run(self, job: Job) -> CaseResult:
        """Run a case as soon as a worker has capacity for it."""
        async with self._slots:
            index = self._running.index(min(self._running))
            self._running[index] += 1
            try:
                return await remote_result(self._workers[index].run.remote(self._coordinator, job))
            finally:
                self._running[index] -= 1


def _jobs(
    cases: Iterable[Case | InputError], strategy: Strategy | PerCase, seed: int, deadline: float | None
) -> Iterator[Job | InputError]:
    """The jobs of a source; one that breaks off ends with the reason as its last item."""
    try:
        for number, case in enumerate(cases):
            if isinstance(case, InputError):
                yield case
                continue
            yield Job(number, case, strategy_for(number, strategy), seed, deadline)
    except InputError as error:
        yield error


# Cases read by Ray Data: JSONL or Parquet at an address such as `s3://…`, or in a folder. Any machine of the
# cluster may read them. Blocks reach the driver in order, as fast as cases are consumed.

LINES = (".jsonl", ".jsonl.gz")


def is_for_ray(path: str) -> bool:
    """Whether a path is read with Ray: an address or a folder, but not a single local file."""
    return "://" in path or Path(path).is_dir()


def read_with_ray(path: str, cluster: Cluster) -> Iterator[Case | InputError]:
    """Read cases in order, as if all files were one."""
    data = connect(cluster).data
    files = _files(path)
    if files[0].endswith(LINES):
        listed = [{"file": one} for one in files]
        return cases_in(_checked(_rows(path, lambda: data.from_items(listed).flat_map(_lines_of))), path)
    rows = _rows(path, lambda: data.read_parquet(files, partitioning=None))
    return cases_in_rows(enumerate(rows, start=1), path)


def _files(path: str) -> list[str]:
    """The files at a path, in the order of their names; an address is left to Ray."""
    if "://" in path:
        return [path]
    names = sorted(str(one) for one in Path(path).resolve().iterdir())
    tables = [name for name in names if name.endswith(".parquet")]
    files = tables or [name for name in names if name.endswith(LINES)]
    if not files:
        raise InputError(f"{path}: no file in it ends in .parquet, {' or '.join(LINES)}")
    return files


def _lines_of(row: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The lines of a file, read in a Ray task; an error becomes a row, because Ray would retry on a raise."""
    try:
        for line in (lines_at if "://" in row["file"] else lines)(row["file"]):
            yield {"line": line, "error": ""}
    except InputError as error:
        yield {"line": b"", "error": str(error)}


def _checked(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for row in rows:
        if row["error"]:
            raise InputError(row["error"])
        yield row["line"]


def _rows(path: str, make_dataset: Callable[[], Any]) -> Iterator[dict[str, Any]]:
    """The rows of a dataset, in order and without progress output; failures are `InputError`s."""
    try:
        dataset = make_dataset()
        dataset.context.execution_options.preserve_order = True
        dataset.context.enable_progress_bars = dataset.context.print_on_execution_start = False
        yield from dataset.iter_rows()
    except CapsError:
        raise
    except Exception as error:
        message = str(error).strip().splitlines()  # may be a whole traceback
        reason = message[-1] if message else type(error).__name__
        raise InputError(f"{path}: Ray Data cannot read it ({reason})") from None
