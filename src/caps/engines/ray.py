"""The engine on a Ray cluster: workers play the cases; the driver keeps the journal and the budget.

Rules that must not be broken:

* A reply is in the driver's journal before a worker does anything with it.
* A worker that dies is replaced and its cases are played again from the journal: only what was in flight is
  asked twice.
* Cases are read only as far as they are needed, and forgotten once they are handed on, in the order of input.
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
from caps.engines.base import Outcome, PerCase, Prepare
from caps.engines.budget import BudgetLimits
from caps.engines.remote import CaseResult, Coordinator, Equip, Job, Worker, heard, rebuild
from caps.judging.base import Ruling
from caps.text_workers import TextWorkers

# Joining a Ray cluster: the only place that knows the package `ray`.


KNOCK_SECONDS = 5.0
HERE = (None, "", "local")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where workers run: a cluster's address, or one that is started on this machine; and how many."""

    address: str | None = None
    workers: int = 2


def connect(cluster: Cluster) -> Any:
    """Join the cluster, or start one here, unless that was done before; the package `ray`."""
    if cluster.address not in HERE:
        _knock(str(cluster.address))
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
        if cluster.address in HERE:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a run tells nobody about itself
            ray.init(address="local", include_dashboard=False, **quiet)
        else:
            ray.init(address=cluster.address, **quiet)
    except Exception as error:  # of many kinds, plain ones among them
        said = str(error).partition(". ")[0].partition("\n")[0]
        what = "cannot start one here" if cluster.address in HERE else f"cannot join {cluster.address!r}"
        raise SettingError(f"--ray-address: Ray {what} ({said})") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # Ray tells of dead workers on standard output, where results go; there is no public switch for it.
    ray._private.worker._worker_logs_enabled = False
    return ray


def on_this_machine(ray: Any) -> Any:
    """Where something has to run that needs this machine's files."""
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    return affinity(ray.get_runtime_context().get_node_id(), soft=False)


def _knock(address: str) -> None:
    """Refuse an address where nobody is: Ray itself would try for minutes, and then end the process."""
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
            f"--ray-address {address!r}: must be HOST:PORT, or auto for the one on this machine"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise SettingError(
            f"--ray-address {address!r}: nobody answers there ({error}): start one with  ray start --head"
        ) from None


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
        total_budget: BudgetLimits | None = None,
        price: Price | None = None,
        grace: float = 0.0,
        unusable: Counter[str] | None = None,
        texts: TextWorkers | None = None,
    ) -> None:
        self._equip, self._prepare, self._cluster, self._room = equip, prepare, cluster, room
        self._journal, self._durable = journal, durable
        self._budget, self._price, self._grace = total_budget or BudgetLimits(), price, grace
        self._unusable, self._texts = Counter() if unusable is None else unusable, texts
        self.workers: list[Any] = []
        self.watch: Callable[[Ruling], object] = lambda _: None

    async def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Play all cases and yield what became of each, in the order of input."""
        most = AHEAD * self._room * self._cluster.workers
        whole = self._budget.seconds
        async with self._staff() as worker_pool:
            ends = None if whole is None else time.time() + whole
            trouble: asyncio.Future[CapsError] = asyncio.get_running_loop().create_future()
            jobs = enumerate(_jobs(cases, strategy, seed, ends))
            known: deque[asyncio.Task[Outcome]] = deque()
            try:
                while True:
                    for number, job in islice(jobs, most - len(known)):
                        known.append(asyncio.ensure_future(self._played(worker_pool, number, job, trouble)))
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
        self,
        worker_pool: "WorkerPool",
        number: int,
        job: Job | InputError,
        trouble: "asyncio.Future[CapsError]",
    ) -> Outcome:
        """What became of a case; whatever would stop all others too is `trouble`."""
        if isinstance(job, InputError):
            return Outcome(number, "", failure=str(job))
        try:
            told = await worker_pool.play(job)
        except CapsError as error:
            if not trouble.done():
                trouble.set_result(error)
            raise
        except Exception as error:  # Ray's own: a worker that died over it again and again
            return Outcome(number, job.case.id, failure=f"its worker did not come through: {_brief(error)}")
        self._unusable.update(told.unusable)
        for ruling in told.rulings:
            self.watch(ruling)
        return await rebuild(job, told, self._prepare, self._texts)

    @asynccontextmanager
    async def _staff(self) -> AsyncIterator["WorkerPool"]:
        """Start the clerk on this machine and the workers anywhere; end them all when the run is over."""
        ray = connect(self._cluster)
        coordinator = (
            ray.remote(Coordinator)
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
            await self._ready(coordinator)
            yield WorkerPool(coordinator, self.workers, self._room)
        finally:
            with suppress(Exception):  # whoever does not leave by itself is made to
                await self._all("leave", seconds=self._grace + LEAVE_SECONDS)
                await asyncio.wait_for(heard(coordinator.leave.remote()), LEAVE_SECONDS)
            for actor in (*self.workers, coordinator):
                ray.kill(actor)
            self.workers = []

    async def _ready(self, coordinator: Any) -> None:
        try:
            await self._all("ready", coordinator, seconds=START_SECONDS)
        except TimeoutError:
            raise SettingError(
                f"--ray-workers {len(self.workers)}: not all of them started within {START_SECONDS:g} s: "
                "ask for fewer, or look at the cluster with  ray status"
            ) from None

    async def _all(self, method: str, *words: Any, seconds: float) -> None:
        """Call a method of every worker and wait for all of them."""
        calls = [heard(getattr(worker, method).remote(*words)) for worker in self.workers]
        await asyncio.wait_for(asyncio.gather(*calls), seconds)


class WorkerPool:
    """Workers with their clerk, and how many cases each has: whoever has fewest gets the next."""

    def __init__(self, coordinator: Any, workers: Sequence[Any], room: int) -> None:
        self._clerk, self._workers, self._cases = coordinator, workers, [0] * len(workers)
        self._free = asyncio.Semaphore(room * len(workers))

    async def play(self, job: Job) -> CaseResult:
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


# Cases read by Ray Data: JSONL or Parquet at an address such as `s3://…`, or in a folder.
#
# Tasks anywhere on the cluster read, so every machine of it must see the files; a file of this machine
# alone is better read here. Blocks come to the driver in order and as fast as cases are taken: never a
# list of them all.


LINES = (".jsonl", ".jsonl.gz")


def is_for_ray(path: str) -> bool:
    """Whether cases are where a whole cluster can read them."""
    return "://" in path or Path(path).is_dir()


def read_with_ray(path: str, cluster: Cluster) -> Iterator[Case | InputError]:
    """Read cases in order, just as they would be read from one file; numbers run on from file to file."""
    data = connect(cluster).data
    files = _files(path)
    if files[0].endswith(LINES):
        listed = [{"file": one} for one in files]
        return cases_in(_whole(_taken(path, lambda: data.from_items(listed).flat_map(_lines_of))), path)
    return cases_in_rows(_taken(path, lambda: data.read_parquet(files, partitioning=None)), path)


def _files(path: str) -> list[str]:
    """The files meant, in the order of their names; an address that names no lines is left to Ray."""
    if "://" in path:
        return [path]
    found = sorted(str(one) for one in Path(path).resolve().iterdir())
    tables = [name for name in found if name.endswith(".parquet")]
    files = tables or [name for name in found if name.endswith(LINES)]
    if not files:
        raise InputError(f"{path}: no file in it ends in .parquet, {' or '.join(LINES)}")
    return files


def _lines_of(row: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The lines of a file, read in a task; what is wrong is told, not raised: Ray would try again."""
    try:
        for line in (lines_at if "://" in row["file"] else lines)(row["file"]):
            yield {"line": line, "wrong": ""}
    except InputError as error:
        yield {"line": b"", "wrong": str(error)}


def _whole(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for row in rows:
        if row["wrong"]:
            raise InputError(row["wrong"])
        yield row["line"]


def _taken(path: str, made: Callable[[], Any]) -> Iterator[dict[str, Any]]:
    """The rows of a dataset, in order and without a word; what cannot be read is the file's fault."""
    try:
        dataset = made()
        dataset.context.execution_options.preserve_order = True
        dataset.context.enable_progress_bars = dataset.context.print_on_execution_start = False
        yield from dataset.iter_rows()
    except CapsError:
        raise
    except Exception as error:
        raise InputError(f"{path}: Ray Data cannot read it ({_last(error)})") from None


def _last(error: Exception) -> str:
    """The last line of what Ray says, which may be a whole traceback."""
    said = str(error).strip().splitlines()
    return said[-1] if said else type(error).__name__
