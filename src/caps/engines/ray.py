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
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from caps.core.errors import CapsError, InputError, JournalError, MissingExtraError, SettingError
from caps.core.types import Case
from caps.costs.prices import Price
from caps.datasets.case_files import cases_in, cases_in_rows
from caps.datasets.reading import lines, lines_at
from caps.engines.base import Cluster, Prepare
from caps.engines.budget import BudgetLimits
from caps.engines.remote import (
    MAX_DEATHS,
    Coordinator,
    MakeContext,
    RemoteEngine,
    Worker,
    WorkerPool,
    remote_result,
)
from caps.workers.texts import TextWorkers

CONNECT_SECONDS = 5.0
LOCAL = (None, "", "local")


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
        if cluster.address in LOCAL:
            raise SettingError(f"--ray-address: Ray cannot start a cluster here ({reason})") from None
        raise SettingError(
            f"--ray-address: Ray cannot join {cluster.address!r} ({reason}): if it asks for a token, "
            "set RAY_AUTH_MODE=token and have the token of its first machine here (~/.ray/auth_token)"
        ) from None
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
HEAD_SECONDS, HEAD_CHECKS = 4.0, 3  # between two looks at the head, and how many have to fail
HEAD_TIMEOUT = 20.0  # seconds: on a busy machine, this process may come to it late


class RayEngine(RemoteEngine):
    """Runs a stream of cases with several workers, each of which runs up to `capacity` at once.

    `workers` are those of the current run.
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
        keep_going: bool = True,
    ) -> None:
        super().__init__(
            prepare, workers=cluster.workers, capacity=capacity, total_budget=total_budget, unusable=unusable,
            texts=texts, keep_going=keep_going,
        )  # fmt: skip
        self._make_context, self._cluster = make_context, cluster
        self._journal, self._durable = journal, durable
        self._price, self._grace = price, grace
        self.workers: list[Any] = []

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
        head = asyncio.ensure_future(_lost(ray.get_runtime_context().gcs_address))
        try:
            await self._wait_ready(coordinator)
            pool = WorkerPool(coordinator, self.workers, self._capacity)
            head.add_done_callback(partial(_end, pool.fatal))
            yield pool
        finally:
            if not head.done():  # else nothing can be called any more
                head.cancel()
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


async def _lost(address: str) -> CapsError:
    """Wait until the head of the cluster is gone; a minute later Ray itself ends the process."""
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
    return JournalError(
        f"the head of the Ray cluster at {address} is gone: start the cluster again, then run the same "
        "command; every reply so far is in the journal"
    )


def _end(fatal: "asyncio.Future[CapsError]", head: "asyncio.Future[CapsError]") -> None:
    """End a run whose cluster was lost."""
    if not head.cancelled() and not fatal.done():
        fatal.set_result(head.result())


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
