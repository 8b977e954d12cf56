"""Endpoints: where the models of a run are, and how the run connects to them.

A key is sent only to the address it was given for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

import aiohttp
from platformdirs import user_cache_path

from caps.config import Keys, RunConfig
from caps.core.errors import CapsError, ModelError, NoEndpointError, SettingError
from caps.core.secrets import shown_address, split_addresses
from caps.core.text import printable_line
from caps.models.base import Completion, ConnectOptions, HasConnections, Model, Notify, Request, ignore
from caps.models.http import NO_LIST, HttpModel
from caps.models.servers import ServersModel, join_addresses
from caps.models.weights import Report, default_weights, path_of, weights_name
from caps.models.wire import NAME_CHARS, model_rows
from caps.registry import MODELS, create, names, names_code, path_of_class, resolve

OWN_CONNECTIONS = 16  # concurrent calls of a judge or model object without a `connections` attribute
SURPLUS_CALLS = 2  # waiting calls with an automatic limit, which grows only if some wait


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a model, its name there, and a key that is never shown.

    An address may contain a password: use `shown_address` to display it.
    """

    base_url: str = field(repr=False)
    model: str
    api_key: str | None = field(default=None, repr=False)

    @property
    def is_file(self) -> bool:
        """Whether the model is a file of weights on this machine."""
        return self.base_url.startswith("file:")


class Endpoints(NamedTuple):
    """The endpoints of the generator and of a judge."""

    generator: Endpoint
    judge: Endpoint


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Functions called while a run is in progress; a copy in another process calls none.

    `warn` receives messages for the user, `fetching` the progress of a download of weights.
    """

    warn: Notify = ignore
    fetching: Report | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Callbacks, ()


@dataclass(frozen=True, slots=True)
class Connector:
    """Finds the endpoints of models and connects to them.

    A `model` object takes the place of all of them. `offline` finds endpoints by their names alone. With
    `any_model`, each request names its model.
    """

    model: Model | None = None
    offline: bool = False
    any_model: bool = False
    callbacks: Callbacks = Callbacks()

    def find(self, model: str | None, address: str, key: str | None) -> Endpoint:
        """The endpoint of a model; missing weights are downloaded."""
        named = model or not address or address.startswith("file:")
        if self.offline or self.model is not None or (self.any_model and not named):
            return Endpoint(address, model or ("" if self.model is None else path_of_class(self.model)), key)
        fetching = self.callbacks.fetching
        place, name = locate(model, address or None, cache=user_cache_path("caps"), report=fetching)
        return Endpoint(place, name, None if place.startswith("file:") else key or None)

    def connect(self, where: Endpoint, config: RunConfig) -> HasConnections:
        """Connect to the model at an endpoint, with the limits of the config; the caller closes it."""
        if self.model is not None:
            return self.model  # type: ignore[return-value]
        return connect(
            ConnectOptions(
                address=where.base_url,
                model=where.model,
                api_key=where.api_key,
                connections=config.max_connections,
                timeout=config.timeout,
                context=config.context_tokens,
                threads=config.threads,
                notify=self.callbacks.warn,
            )
        )


def find_endpoints(config: RunConfig, keys: Keys, connector: Connector) -> Endpoints:
    """The endpoints of the generator and of a judge, which may share one."""
    base, address = join_addresses(config.base_url), join_addresses(config.judge_base_url)
    generator = None
    if config.model or base or not (config.judge_model or address):
        generator = connector.find(config.model, base, keys.api_key)
    if generator is not None and not (config.judge_model or address or keys.judge_api_key):
        return Endpoints(generator, generator)
    beside = "" if generator is None or generator.is_file else generator.base_url
    generator_key = None if generator is None else generator.api_key
    key = keys.judge_api_key or (None if address and address != beside else generator_key or keys.api_key)
    judge = connector.find(config.judge_model or config.model, address or beside or base, key)
    return Endpoints(generator or judge, judge)


async def least_context(models: Mapping[Endpoint, Model]) -> int | None:
    """The fewest tokens of context that an endpoint reports; None if none of them does."""
    return await _least(context_of(model, where.model) for where, model in models.items())


async def _least(lengths: Iterable[Awaitable[int | None]]) -> int | None:
    known = [length for length in await asyncio.gather(*lengths) if length is not None]
    return min(known, default=None)


def call_capacity(models: Iterable[Model], *, auto: bool) -> Callable[[], int]:
    """A function that returns the number of concurrent asks: an ask may occupy a connection of each model.

    With `auto`, the limits of the models grow.
    """
    limits = [_call_limit(model) for model in models]
    surplus = SURPLUS_CALLS if auto else 0
    return lambda: max(limit() for limit in limits) + surplus


def _call_limit(model: Model) -> Callable[[], int]:
    """A function that returns the number of calls that may run or wait at a model."""
    return lambda: connections_of(model) + getattr(model, "surplus", 0)


def connections_of(answering: object) -> int:
    """The number of concurrent calls that a model or a judge object declares, or the usual one."""
    declared: int = getattr(answering, "connections", OWN_CONNECTIONS)
    return declared


# --- Model discovery: addresses as users write them, local servers, and the models they list ---
#
# An API key is sent only to the address it was configured for, never to the usual local ports.


USUAL_PORTS = {"vLLM": 8000, "SGLang": 30000, "llama.cpp": 8080, "Ollama": 11434, "LM Studio": 1234}

State = Literal["serving", "silent", "refusing", "strange"]


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """An address where models may be served; `kind` names the expected server."""

    kind: str
    base_url: str = field(repr=False)  # may contain a password
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model by its request name, with its context length if the server reports it."""

    name: str
    context: int | None = None


@dataclass(frozen=True, slots=True)
class Discovered:
    """What an endpoint answered: models, or in `problem` why there are none; the address has no secrets."""

    kind: str
    base_url: str
    state: State
    models: tuple[ServedModel, ...] = ()
    problem: str = ""


def local_endpoints(ports: Iterable[tuple[str, int]] = tuple(USUAL_PORTS.items())) -> list[ServerAddress]:
    """The default addresses of model servers on this machine."""
    return [ServerAddress(kind, f"http://127.0.0.1:{port}/v1") for kind, port in ports]


SECONDS = 1.5
MAX_MODELS = 1000  # per endpoint
MAX_CONTEXT = 10**9  # tokens
# Names of the context length in a model list; the loaded length comes before the possible one.
_CONTEXT_FIELDS = (
    "loaded_context_length",
    "max_model_len",
    "max_context_length",
    "context_length",
    "context_window",
)


async def discover(endpoints: Iterable[ServerAddress], *, seconds: float = SECONDS) -> list[Discovered]:
    """Query all endpoints concurrently, each for at most `seconds`."""
    return await asyncio.gather(*(_query(endpoint, seconds) for endpoint in endpoints))


async def _query(endpoint: ServerAddress, seconds: float) -> Discovered:
    try:
        model = HttpModel(endpoint.base_url, endpoint.api_key)
    except SettingError as error:
        return Discovered(endpoint.kind, shown_address(endpoint.base_url), "strange", problem=str(error))
    try:
        async with asyncio.timeout(seconds):
            status, listed = await model.listing()
    except NO_LIST as error:
        state: State = "strange" if isinstance(error, ValueError) else "silent"
        return Discovered(endpoint.kind, model.address, state, problem=_reason(error))
    finally:
        await model.close()
    if status in {401, 403}:
        return Discovered(
            endpoint.kind, model.address, "refusing", problem=f"the API key is refused, status {status}"
        )
    rows = model_rows(listed)
    if rows is None:
        return Discovered(
            endpoint.kind, model.address, "strange", problem=f"no list of models, status {status}"
        )
    return Discovered(endpoint.kind, model.address, "serving", tuple(map(_parse_model, rows[:MAX_MODELS])))


async def context_of(model: object, name: str) -> int | None:
    """Tokens of the context of a model, as it or the list of its server says; None if neither does.

    Of several servers the least counts. Without a name nothing is asked: no row of a list could be meant.
    """
    if not name:
        return None
    if isinstance(model, ServersModel):
        return await _least(context_of(server, name) for server in model.members)
    if not isinstance(model, HttpModel):
        return _first_count([getattr(model, "context", None)])
    try:
        async with asyncio.timeout(SECONDS):
            _, listed = await model.listing()
    except NO_LIST:
        return None
    rows = (row for row in model_rows(listed) or () if row["id"] == name)
    return next((_parse_model(row).context for row in rows), None)


async def served_context(address: str, name: str, api_key: str | None) -> int | None:
    """Tokens of the context of the model at an address, if its server says so."""
    try:
        model = HttpModel(address.partition(",")[0], api_key)
    except SettingError:
        return None
    try:
        return await context_of(model, name)
    finally:
        await model.close()


def _parse_model(row: dict[str, Any]) -> ServedModel:
    meta = row.get("meta")
    values = [meta.get("n_ctx"), meta.get("n_ctx_train")] if isinstance(meta, dict) else []
    values += [row.get(name) for name in _CONTEXT_FIELDS]
    return ServedModel(printable_line(row["id"][:NAME_CHARS]), _first_count(values))


def _first_count(values: Iterable[object]) -> int | None:
    return next(
        (n for n in values if isinstance(n, int) and not isinstance(n, bool) and 0 < n <= MAX_CONTEXT), None
    )


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "nothing is listening there"
    return "the server there is not a model server" if isinstance(error, ValueError) else type(error).__name__


# --- Locating and connecting to the configured model ---

EMBEDDED = "embedded"


def locate(
    model: str | None, base_url: str | None, *, cache: Path, report: Report | None = None
) -> tuple[str, str]:
    """Address and name of the configured model; downloads the default weights into `cache` if needed.

    `embedded` means the default weights; a path to a GGUF file without an address means that file. An
    embedded model is named by its weights, not by its path, because the name is part of the journal key.
    """
    if EMBEDDED in (model, base_url):
        path = default_weights(cache, report)
        return path.as_uri(), weights_name(path)
    if base_url and base_url.startswith("file:"):
        return base_url, weights_name(path_of(base_url))
    if not base_url and model and model.lower().endswith(".gguf"):
        path = Path(model).expanduser().resolve()
        return path.as_uri(), weights_name(path)
    if not base_url:
        raise NoEndpointError(
            "no endpoint: give --base-url http://localhost:8000/v1, or set CAPS_BASE_URL; or --model "
            "embedded for the small model that runs inside caps"
        )
    if not model:
        raise NoEndpointError("no model: give --model NAME, or set CAPS_MODEL")
    return base_url, model


def connect(options: ConnectOptions) -> HasConnections:
    """Connect to the model at an address, with the backend of its scheme or one named in its place."""
    name = _backend(options.address)
    backend = resolve(MODELS, name)
    if name in MODELS.table or name in MODELS.aliases:
        return cast(HasConnections, backend(options))
    model = create(MODELS, name, backend, options)
    ours = type(model).__module__.startswith("caps.")  # which raises the right errors
    return cast(HasConnections, model if ours else PluginModel(name, model))


class PluginModel:
    """A model of a plug-in; whatever it raises becomes a `ModelError` of that call."""

    def __init__(self, name: str, model: Model) -> None:
        self._name, self._model = name, model

    def __getattr__(self, name: str) -> Any:
        """Forward other attributes, such as the number of connections."""
        return getattr(self._model, name)

    async def complete(self, request: Request) -> Completion:
        """Answer a request."""
        try:
            done = await self._model.complete(request)
        except CapsError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ModelError(f"model backend {self._name!r} failed: {reason}"[:500]) from error
        if not isinstance(done, Completion):
            raise ModelError(f"model backend {self._name!r} returned {done!r:.80}: not a caps.Completion")
        return done

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


def _backend(address: str) -> str:
    if len(split_addresses(address)) > 1:
        return "servers"
    scheme, colon, _ = address.partition("://")
    if colon:
        return scheme if scheme in MODELS.aliases else "http"  # whose error message shows a valid address
    named = names_code(address) or address in names(MODELS)
    return address if named else "http"


#: Hosts that cache the beginning of a prompt only where it is marked, and how the names of such models start.
CACHE_CONTROL = {"openrouter.ai": "anthropic/", "dashscope-intl.aliyuncs.com": "qwen"}


def takes_cache_control(address: str, model: str) -> bool:
    """Whether the server at an address caches marked beginnings of prompts, and no others."""
    host = urlsplit(address).hostname or ""
    return any(
        (host == known or host.endswith(f".{known}")) and model.startswith(start)
        for known, start in CACHE_CONTROL.items()
    )
