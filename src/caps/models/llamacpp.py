"""llama.cpp inside this process, through xllamacpp, which is imported nowhere else.

Its OpenAI-compatible server listens on a loopback port, so `HttpModel` talks to it like to any other.
"""

from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from caps.core.errors import InputError, MissingExtraError

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
