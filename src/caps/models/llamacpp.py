"""llama.cpp inside this process, through xllamacpp, which is imported nowhere else.

Its OpenAI-compatible server listens on a loopback port, so `HttpModel` talks to it like to any other.
"""

from pathlib import Path
from typing import Any

from caps.core.errors import InputError, MissingExtraError


class LlamaServer:
    """A running llama.cpp server; a context manager that stops it.

    Two threads collapse when another process is busy, so one is the default. The context is shared by the
    slots: each call has `context / slots` tokens.
    """

    def __init__(self, weights: Path, *, slots: int = 1, context: int = 8192, threads: int = 1) -> None:
        self._weights, self._slots, self._context, self._threads = weights, slots, context, threads
        self._server: Any = None

    def __enter__(self) -> "LlamaServer":
        try:
            import xllamacpp  # noqa: PLC0415
        except ImportError:
            raise MissingExtraError("xllamacpp", "local", "an embedded model") from None
        if not self._weights.is_file():
            raise InputError(f"{self._weights}: no such weights; a GGUF file is wanted")
        params = xllamacpp.CommonParams()
        params.model.path = str(self._weights)
        params.n_ctx, params.n_parallel = self._context, self._slots
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.endpoint_metrics = True
        params.verbosity = -1
        try:
            self._server = xllamacpp.Server(params)
        except RuntimeError as error:
            raise InputError(f"{self._weights}: llama.cpp cannot load it ({error})") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._server = None

    @property
    def url(self) -> str:
        """Base URL of its API."""
        return f"{self._server.listening_address}/v1"
