"""The engine in several processes of this machine: they share the cases, the journal's file and the budget.

Rules that must not be broken:

* A reply is in the journal before a worker does anything with it: each worker has the file open.
* A worker that dies is replaced and its cases are run again from the journal: only calls in flight are made
  twice.
* A worker does not outlive this process: the end of its connection ends it.

Messages go over a pair of sockets, in the encoding of `codec`: no pickles. Both sides call methods of
the other: this one runs cases there, and workers reserve from the budget here.
"""

import asyncio
import gc
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from caps.child_python import with_environment
from caps.core.errors import CapsError, InputError, SettingError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.costs.prices import Price
from caps.engines.base import Outcome, PerCase, Prepare
from caps.engines.budget import BudgetLimits
from caps.engines.codec import Codec
from caps.engines.remote import (
    MAX_DEATHS,
    CaseResult,
    Coordinator,
    Job,
    MakeContext,
    RemoteEngine,
    Worker,
    WorkerPool,
)
from caps.workers.texts import TextWorkers

START_SECONDS = 120.0
CLOSE_SECONDS = 5.0
LONGEST_MESSAGE = 1 << 30  # bytes
BUFFER = 1 << 20  # bytes read ahead: many messages at once
_CODEC = Codec()
_PROGRAM = "from caps.engines.processes import serve; serve(int(sys.argv[1]))"


class WorkerDiedError(Exception):
    """The process at the other end is gone."""


class Peer:
    """One end of a connection: calls methods of the object at the other end, and serves its own object.

    `peer.name.remote(*arguments)` calls, as with a Ray actor, and returns a future of the result.
    """

    def __init__(self, served: object, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._served, self._reader, self._writer = served, reader, writer
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._gone = False

    def __getattr__(self, name: str) -> "_Method":
        return _Method(self, name)

    @classmethod
    async def over(cls, end: socket.socket, served: object) -> "Peer":
        """Connect over one socket of a pair."""
        return cls(served, *await asyncio.open_unix_connection(sock=end, limit=BUFFER))

    def call(self, name: str, arguments: tuple[Any, ...]) -> "asyncio.Future[Any]":
        """Call a method at the other end."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._gone:
            future.set_exception(WorkerDiedError("the process is gone"))
            return future
        number = next(self._numbers)
        self._waiting[number] = future
        self._send(("call", number, name, arguments))
        return future

    async def listen(self) -> None:
        """Process messages until the connection ends; then all calls that wait fail."""
        try:
            while True:
                kind, number, *rest = await _CODEC.load(self._reader, LONGEST_MESSAGE)
                if kind == "call":
                    task = asyncio.ensure_future(self._answer(number, *rest))
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)
                else:
                    self._resolve(self._waiting.pop(number), kind, *rest)
        except (EOFError, OSError):
            pass
        finally:
            self._gone = True
            for future in self._waiting.values():
                self._resolve(future, "raised", WorkerDiedError("the process is gone"))
            for task in self._answering:
                task.cancel()
            self._writer.close()

    async def _answer(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        try:
            self._send(("returned", number, await getattr(self._served, name)(*arguments)))
        except CapsError as error:
            self._send(("raised", number, error))
        except Exception as error:
            self._send(("raised", number, RuntimeError(f"{type(error).__name__}: {error}"[:500])))

    def _send(self, message: tuple[Any, ...]) -> None:
        self._writer.write(_CODEC.dump(message))

    @staticmethod
    def _resolve(future: "asyncio.Future[Any]", kind: str, value: Any) -> None:
        if future.done():
            return
        if kind == "raised":
            future.set_exception(value)
            future.exception()  # marks it as retrieved: settlements are not waited for
        else:
            future.set_result(value)


class _Method:
    def __init__(self, peer: Peer, name: str) -> None:
        self._peer, self._name = peer, name

    def remote(self, *arguments: Any) -> "asyncio.Future[Any]":
        """Call the method at the other end."""
        return self._peer.call(self._name, arguments)


class WorkerProcess:
    """A worker in a process of its own, which is started again when it dies; called as a Ray actor is."""

    def __init__(self, name: str, coordinator: Coordinator) -> None:
        self._name, self._coordinator = name, coordinator
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._peer: Peer | None = None
        self._listening: asyncio.Future[None] | None = None
        self.run = _Calls(self._run)

    @property
    def pid(self) -> int | None:
        """The number of the process, once it runs."""
        return None if self._process is None else self._process.pid

    async def ready(self) -> Peer:
        """The connection to the process, which is started if there is none, or no longer."""
        async with self._starting:
            if self._peer is None or self._listening is None or self._listening.done():
                await self._start()
            assert self._peer is not None  # noqa: S101
            return self._peer

    async def close(self, seconds: float) -> None:
        """Let the process end what it does, then end it."""
        if self._process is None or self._peer is None or self._listening is None:
            return
        with suppress(Exception):  # one that does not close in time is killed
            await asyncio.wait_for(self._peer.close.remote(), seconds)
        self._kill()
        await self._process.wait()
        await self._listening

    async def _start(self) -> None:
        here, there = socket.socketpair()
        child = with_environment(_PROGRAM, str(there.fileno()))
        with there:
            self._process = await asyncio.create_subprocess_exec(
                *child.argv, env=child.env,
                stdin=asyncio.subprocess.DEVNULL, stdout=_errors(), pass_fds=(there.fileno(),),
                start_new_session=True,
            )  # fmt: skip
        self._peer = await Peer.over(here, self._coordinator)
        self._listening = asyncio.ensure_future(self._peer.listen())
        try:
            await asyncio.wait_for(self._peer.ready.remote(self._name), START_SECONDS)
        except (WorkerDiedError, TimeoutError) as error:
            self._kill()
            raise SettingError(f"--processes: a worker process did not start ({error})") from None

    async def _run(self, _: object, job: Job) -> CaseResult:
        for left in reversed(range(MAX_DEATHS)):
            peer = await self.ready()
            try:
                result: CaseResult = await peer.run.remote(job)
            except WorkerDiedError:
                if not left:
                    raise
            else:
                return result
        raise AssertionError  # not reached

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()


class _Calls:
    """A coroutine function, called as a method of a Ray actor is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.remote = function


class ProcessEngine(RemoteEngine):
    """Runs a stream of cases in several processes of this machine; `workers` are those of the current run."""

    def __init__(
        self,
        make_context: MakeContext,
        prepare: Prepare,
        *,
        processes: int,
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
            prepare, workers=processes, capacity=capacity, total_budget=total_budget, unusable=unusable,
            texts=texts, keep_going=keep_going,
        )  # fmt: skip
        try:
            _CODEC.dump(make_context)
        except Exception as error:
            raise SettingError(
                f"--processes: an object of this run cannot be sent to another process ({error}): "
                "leave the setting out, or give the object by its name"
            ) from None
        self._grace, self.workers = grace, list[WorkerProcess]()
        self._new_coordinator = partial(
            Coordinator, make_context, journal, self._budget, price, durable=durable, on_this_machine=True
        )

    def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase, *, seed: int
    ) -> AsyncGenerator[Outcome, None]:
        """Run all cases and yield each outcome, in input order."""
        for one in strategy.strategies if isinstance(strategy, PerCase) else (strategy,):
            if type(one).__module__.partition(".")[0] != "caps":
                raise SettingError(
                    f"--processes: the strategy {type(one).__name__} of a plug-in runs in one process only: "
                    "leave the setting out"
                )
        return super().run(cases, strategy, seed=seed)

    @asynccontextmanager
    async def _start_workers(self) -> AsyncIterator[WorkerPool]:
        coordinator = self._new_coordinator()
        self.workers = [WorkerProcess(f"worker {i}", coordinator) for i in range(self._count)]
        try:
            await asyncio.gather(*(worker.ready() for worker in self.workers))
            yield WorkerPool(coordinator, self.workers, self._capacity)
        finally:
            seconds = self._grace + CLOSE_SECONDS
            await asyncio.gather(*(worker.close(seconds) for worker in self.workers), return_exceptions=True)
            self.workers = []


def _errors() -> int:
    """Where a worker process prints to: standard output has results; a plug-in may print."""
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return asyncio.subprocess.DEVNULL


class _Served:
    """What a worker process does for its parent."""

    def __init__(self) -> None:
        self.parent: Peer | None = None
        self._worker: Worker | None = None

    async def ready(self, name: str) -> int:
        """Set the worker up and return its process id."""
        self._worker = Worker(name)
        return await self._worker.ready(self.parent)

    async def run(self, job: Job) -> CaseResult:
        """Run a case."""
        assert self._worker is not None  # noqa: S101
        return await self._worker.run(self.parent, job)

    async def close(self) -> None:
        """End running cases and close the connections."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await worker.close()


def serve(number: int) -> None:
    """The main function of a worker process; `number` is that of its socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent decides
    gc.freeze()  # what is loaded need not be scanned again and again
    gc.set_threshold(20_000, 20, 20)
    asyncio.run(_serve(socket.socket(fileno=number)))


async def _serve(end: socket.socket) -> None:
    served = _Served()
    served.parent = await Peer.over(end, served)
    await served.parent.listen()
    await served.close()
