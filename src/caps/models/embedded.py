"""A model inside this process: a GGUF file run by llama.cpp through xllamacpp.

Rules that must not be broken:

* A reply that ended because the slot was full is `TooLongError`, not a reply: with a longer context the same
  request would be answered otherwise, and the journal must not hold it.
* The loopback port answers to a key made up for it: nobody else on the machine spends its time.
"""

import asyncio
import os
import re
import secrets
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from caps.core.errors import CapsError, InputError, MissingExtraError, SettingError, TooLongError
from caps.models.base import Completion, ConnectOptions, Request
from caps.models.http import HttpModel, Timeouts
from caps.models.weights import context_length, path_of, weights_name

# llama.cpp inside this process, through xllamacpp, which is imported nowhere else.
#
# Its OpenAI-compatible server listens on a loopback port, so `HttpModel` talks to it like to any other.


BATCH = 128  # a call that is given up ends with its batch: larger ones are hardly faster, and end later


class LlamaServer:
    """A llama.cpp server on a port of its own; a context manager, or `start` and `stop`.

    Every slot has `context` tokens. Loading and stopping let no other Python run, and stopping waits for open
    calls: whoever talks to it from this process hangs up first.
    """

    def __init__(
        self,
        weights: Path,
        *,
        slots: int = 1,
        context: int = 8192,
        threads: int = 1,
        name: str = "",
        api_key: str = "",
    ) -> None:
        self._weights, self._name, self._api_key = weights, name, api_key
        self._slots, self._context, self._threads = slots, context, threads
        self._server: Any = None

    def start(self) -> None:
        """Load the weights and listen."""
        try:
            import xllamacpp  # noqa: PLC0415
        except ImportError:
            raise MissingExtraError("xllamacpp", "local", "an embedded model") from None
        if not self._weights.is_file():
            raise InputError(f"{self._weights}: no such weights; a GGUF file is wanted")
        try:
            self._server = xllamacpp.Server(self._params(xllamacpp.CommonParams()))
        except RuntimeError as error:
            raise InputError(f"{self._weights}: llama.cpp cannot load it ({error})") from None
        self._hear()

    def stop(self) -> None:
        """Let go of port, threads and memory; again does nothing."""
        self._server = None  # its end is that of the server

    def __enter__(self) -> "LlamaServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Base URL of its API."""
        return f"{self._server.listening_address}/v1"

    def _hear(self) -> None:
        """Wait for what only its main loop answers: a stop sent before that runs is lost, and hangs."""
        address = urlsplit(self._server.listening_address)
        line = HTTPConnection(address.hostname or "", address.port)
        try:
            line.request("GET", "/metrics", headers={"Authorization": f"Bearer {self._api_key}"})
            line.getresponse().read()
        finally:
            line.close()

    def _params(self, params: Any) -> Any:
        params.model.path = str(self._weights)
        if self._name:
            params.model_alias = {self._name}
        if self._api_key:
            params.api_keys = [self._api_key]
        params.n_ctx, params.n_parallel = self._context * self._slots, self._slots
        params.n_batch = params.n_ubatch = BATCH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.endpoint_metrics = True
        params.verbosity = -1
        return params


# How many threads a model inside this process takes: one core stays free, and so do those others use.
#
# llama.cpp's threads wait for one another at every layer, so one too many is far slower than one too few.


_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def choose_threads(cores: int, load: float) -> int:
    """Threads for this many cores under this load average."""
    return max(1, min(cores - 1, cores - round(load)))


def free_threads() -> int:
    """Threads that fit this machine now."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return choose_threads(usable_cores(), load)


def usable_cores(quota: Path = _QUOTA) -> int:
    """Cores this process may use: its affinity, and a container's quota where there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        allowed, period = quota.read_text().split()
        return max(1, min(cores, int(allowed) // int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max": no quota
        return cores


CONTEXT = 8192
STEP = 256  # llama.cpp rounds a context up to multiples of this
MOST_SLOTS = 4
_TOKENS = re.compile(r"\((\d+) tokens\)")


class EmbeddedModel:
    """Any GGUF file as a model; it may be used again, in another event loop too, after `close`.

    `slots` calls are answered at once, each in a context of `context` tokens (8192, or what the weights were
    trained for). A slot keeps what it has read, so a prompt that begins like the last one is read faster.
    """

    def __init__(
        self,
        weights: Path,
        *,
        slots: int | Literal["auto"] = "auto",
        context: int | None = None,
        threads: int | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        trained = context_length(weights)
        if context is not None and trained is not None and context > trained:
            raise SettingError(
                f"context = {context}: {weights.name} was trained for {trained} tokens at most"
            )
        self.name = weights_name(weights)
        wanted = context or min(CONTEXT, trained or CONTEXT)
        self.context = -(-wanted // STEP) * STEP
        self._threads = threads or free_threads()
        self._slots = max(1, min(MOST_SLOTS, self._threads // 2)) if slots == "auto" else slots
        self._weights, self._timeouts = weights, timeouts
        self._server: LlamaServer | None = None
        self._starting: asyncio.Future[HttpModel] | None = None

    def __repr__(self) -> str:
        return f"EmbeddedModel({self.name!r})"

    @property
    def connections(self) -> int:
        """How many calls may be under way: the slots."""
        return self._slots

    async def complete(self, request: Request) -> Completion:
        """Answer a request, loading the weights first if they are not."""
        model = await self.started()
        try:
            completion = await model.complete(request)
        except TooLongError as error:
            raise self._too_long(error) from None
        held = completion.usage.prompt + completion.usage.output
        cut = completion.finish == "length" and completion.usage.output < request.max_tokens
        if cut and held >= self.context:
            raise TooLongError(
                f"the prompt of {completion.usage.prompt} tokens leaves {completion.usage.output} to the "
                f"reply in a context of {self.context}: {self._way_out}",
                attempts=completion.attempts,
            )
        return completion

    async def names(self) -> tuple[str, ...]:
        """The one name there is."""
        return (self.name,)

    async def close(self) -> None:
        """Stop the threads and free the memory; a start under way is waited for.

        Whoever is cancelled meanwhile is so when it is done: a thread cannot be stopped, and a session that
        nobody closes complains at the end.
        """
        starting, self._starting = self._starting, None
        if starting is None:
            return
        closing = asyncio.ensure_future(self._close(starting))
        cancelled = None
        while not closing.done():
            try:
                await asyncio.shield(closing)
            except asyncio.CancelledError as error:
                cancelled = error
        closing.result()
        if cancelled is not None:
            raise cancelled

    async def _close(self, starting: "asyncio.Future[HttpModel]") -> None:
        try:
            model = await asyncio.shield(starting)
        except CapsError:
            return  # whoever asked was told
        await model.close()
        await asyncio.sleep(0)  # lets the loop really hang up: stopping waits for open connections
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.stop)

    async def started(self) -> HttpModel:
        """The model's HTTP side; a caller who is cancelled leaves the start to the others."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(asyncio.to_thread(self._start))
            self._starting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._starting)

    def _start(self) -> HttpModel:
        key = secrets.token_hex(16)
        self._server = LlamaServer(
            self._weights,
            slots=self._slots,
            context=self.context,
            threads=self._threads,
            name=self.name,
            api_key=key,
        )
        self._server.start()
        return HttpModel(self._server.url, key, connections=self._slots, timeouts=self._timeouts)

    def _too_long(self, error: TooLongError) -> TooLongError:
        found = _TOKENS.search(str(error))
        size = f"has {found[1]} tokens" if found else "is too long"
        words = f"the prompt {size} and the context {self.context}: {self._way_out}"
        return TooLongError(words, attempts=error.attempts)

    @property
    def _way_out(self) -> str:
        return "raise --context-tokens, show less (--view, --profile), or use weights with a longer context"


def connect(wiring: ConnectOptions) -> EmbeddedModel:
    """The model in the GGUF file that a `file:` address names."""
    return EmbeddedModel(
        path_of(wiring.address),
        slots=wiring.connections,
        context=wiring.context,
        threads=wiring.threads,
        timeouts=Timeouts(read=wiring.timeout),
    )
