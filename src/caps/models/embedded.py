"""Embedded models: a GGUF file run in this process by llama.cpp through xllamacpp.

Rules that must not be broken:

* A reply cut off because the slot was full raises `TooLongError`: a longer context would change the reply, so
  the journal must not store it.
* The loopback port requires a random key, so no other user of the machine can use it.
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
from caps.workers.pool import usable_cores

BATCH = 128  # an abandoned call runs to the end of its batch; larger batches are hardly faster


class LlamaServer:
    """A llama.cpp server on a loopback port; use as a context manager, or call `start` and `stop`.

    Every slot has `context` tokens. Loading and stopping hold the GIL, and stopping waits for open calls:
    clients in this process must close their connections first.
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
        """Load the weights and start listening."""
        try:
            import xllamacpp  # noqa: PLC0415
        except ImportError:
            raise MissingExtraError("xllamacpp", "local", "an embedded model") from None
        if not self._weights.is_file():
            raise InputError(f"{self._weights}: no such file; a GGUF file is required")
        try:
            self._server = xllamacpp.Server(self._params(xllamacpp.CommonParams()))
        except RuntimeError as error:
            raise InputError(f"{self._weights}: llama.cpp cannot load it ({error})") from None
        self._wait_until_ready()

    def stop(self) -> None:
        """Release port, threads and memory; idempotent."""
        self._server = None  # its destructor stops the server

    def __enter__(self) -> "LlamaServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Base URL of its API."""
        return f"{self._server.listening_address}/v1"

    def _wait_until_ready(self) -> None:
        """Wait for a reply of the main loop: a stop sent before the loop runs is lost, and blocks."""
        address = urlsplit(self._server.listening_address)
        connection = HTTPConnection(address.hostname or "", address.port)
        try:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self._api_key}"})
            connection.getresponse().read()
        finally:
            connection.close()

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


# --- Threads: one core stays free, and so do the cores in use by other processes ---
#
# llama.cpp's threads synchronize at every layer, so one too many is far slower than one too few.


def choose_threads(cores: int, load: float) -> int:
    """Threads for this many cores under this load average."""
    return max(1, min(cores - 1, cores - round(load)))


def free_threads() -> int:
    """Threads for the free cores of this machine."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return choose_threads(usable_cores(), load)


CONTEXT = 8192
STEP = 256  # llama.cpp rounds a context up to multiples of this
MAX_SLOTS = 4
_TOKENS = re.compile(r"\((\d+) tokens\)")


class EmbeddedModel:
    """A GGUF file as a model; it can be used again after `close`, also in another event loop.

    `slots` calls run concurrently, each in a context of `context` tokens (default: 8192, or the trained
    length if shorter). A slot caches its last prompt, so a prompt with the same prefix is processed faster.
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
        self._slots = max(1, min(MAX_SLOTS, self._threads // 2)) if slots == "auto" else slots
        self._weights, self._timeouts = weights, timeouts
        self._server: LlamaServer | None = None
        self._starting: asyncio.Future[HttpModel] | None = None

    def __repr__(self) -> str:
        return f"EmbeddedModel({self.name!r})"

    @property
    def connections(self) -> int:
        """How many calls may run concurrently: the slots."""
        return self._slots

    async def complete(self, request: Request) -> Completion:
        """Answer a request, loading the weights first if needed."""
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
                f"reply in a context of {self.context}: {self._remedy}",
                attempts=completion.attempts,
            )
        return completion

    async def names(self) -> tuple[str, ...]:
        """The name of the loaded weights."""
        return (self.name,)

    async def close(self) -> None:
        """Stop the threads and free the memory, after a start in progress has finished.

        A cancellation takes effect afterwards: a thread cannot be stopped, and a session must be closed.
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
            return  # the caller of `started` got the error
        await model.close()
        await asyncio.sleep(0)  # let the loop close the connections: stopping waits for open ones
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.stop)

    async def started(self) -> HttpModel:
        """The HTTP client of the running server; cancelling one caller does not cancel the start."""
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
        match = _TOKENS.search(str(error))
        size = f"has {match[1]} tokens" if match else "is too long"
        message = f"the prompt {size} and the context {self.context}: {self._remedy}"
        return TooLongError(message, attempts=error.attempts)

    @property
    def _remedy(self) -> str:
        return "raise --context-tokens, show less (--view, --profile), or use weights with a longer context"


def connect(options: ConnectOptions) -> EmbeddedModel:
    """Open the GGUF file of a `file:` address as a model."""
    return EmbeddedModel(
        path_of(options.address),
        slots=options.connections,
        context=options.context,
        threads=options.threads,
        timeouts=Timeouts(read=options.timeout),
    )
