"""Finding models: addresses as users write them, local servers, and the lists of models they offer.

A key goes to the address it was given for, never to the usual local ports.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import aiohttp

from caps.core.errors import CapsError, ModelError, SettingError
from caps.core.secrets import shown_address
from caps.models.base import Completion, ConnectOptions, HasConnections, Model, Request
from caps.models.fleet import is_fleet
from caps.models.http import HttpModel
from caps.models.weights import Report, default_weights, path_of, weights_name
from caps.models.wire import NAME_CHARS, decode, printable, read_body
from caps.registry import MODELS, create, names, names_code, resolve

# Where models may be served, and what was found there; `discovery` goes and looks.


USUAL_PORTS = {"vLLM": 8000, "SGLang": 30000, "llama.cpp": 8080, "Ollama": 11434, "LM Studio": 1234}

State = Literal["serving", "silent", "refusing", "strange"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where models may be served, and who is expected there."""

    kind: str
    base_url: str = field(repr=False)  # which may hold a password
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model by the name it is asked for, with its context where the server tells."""

    name: str
    context: int | None = None


@dataclass(frozen=True, slots=True)
class Discovered:
    """What a place answered: models, or in `problem` why there are none; the address without secrets."""

    kind: str
    base_url: str
    state: State
    models: tuple[ServedModel, ...] = ()
    problem: str = ""


def local_places(ports: Iterable[tuple[str, int]] = tuple(USUAL_PORTS.items())) -> list[Place]:
    """Where servers listen on this machine if nobody told them otherwise."""
    return [Place(kind, f"http://127.0.0.1:{port}/v1") for kind, port in ports]


SECONDS = 1.5
MOST_SHOWN = 1000  # models of one place
MOST_CONTEXT = 10**9  # tokens; what is more was not meant as a context
# What servers call the context in a row of their list, the loaded one before what would be possible.
_NAMES = ("loaded_context_length", "max_model_len", "max_context_length", "context_length", "context_window")


async def discover(places: Iterable[Place], *, seconds: float = SECONDS) -> list[Discovered]:
    """Ask all places at once; each has so many seconds."""
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
        return await asyncio.gather(*(_ask(session, place, seconds) for place in places))


async def _ask(session: aiohttp.ClientSession, place: Place, seconds: float) -> Discovered:
    try:
        model = HttpModel(place.base_url, place.api_key)
    except SettingError as error:
        return Discovered(place.kind, shown_address(place.base_url), "strange", problem=str(error))
    try:
        async with asyncio.timeout(seconds):
            status, listed = await model.listing()
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        state: State = "strange" if isinstance(error, ValueError) else "silent"
        return Discovered(place.kind, model.address, state, problem=_reason(error))
    finally:
        await model.close()
    if status in {401, 403}:
        return Discovered(
            place.kind, model.address, "refusing", problem=f"the API key is refused, status {status}"
        )
    rows = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(rows, list):
        return Discovered(place.kind, model.address, "strange", problem=f"no list of models, status {status}")
    served = [_served(row) for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
    served = served[:MOST_SHOWN]
    if any(one.context is None for one in served):
        root = model.address.removesuffix("/v1")
        served = await _asked_further(session, place.kind, root, served)
    return Discovered(place.kind, model.address, "serving", tuple(served))


def _served(row: dict[str, Any]) -> ServedModel:
    meta = row.get("meta")
    told = [meta.get("n_ctx"), meta.get("n_ctx_train")] if isinstance(meta, dict) else []
    told += [row.get(name) for name in _NAMES]
    return ServedModel(printable(row["id"], NAME_CHARS), _first_count(told))


async def _asked_further(
    session: aiohttp.ClientSession, kind: str, root: str, served: list[ServedModel]
) -> list[ServedModel]:
    """Ask in a server's own words for what its list leaves out; whatever goes wrong, the list stands."""
    try:
        if kind == "Ollama":
            contexts = await asyncio.gather(*(_of_ollama(session, root, one.name) for one in served))
        elif kind == "LM Studio":
            known = await _of_lm_studio(session, root)
            contexts = [known.get(one.name) for one in served]
        elif kind == "llama.cpp":
            props = await _get(session, f"{root}/props")
            contexts = [_first_count([props["default_generation_settings"]["n_ctx"]])] * len(served)
        else:
            return served
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, LookupError, TypeError, AttributeError):
        return served
    return [ServedModel(one.name, one.context or more) for one, more in zip(served, contexts, strict=True)]


async def _of_ollama(session: aiohttp.ClientSession, root: str, name: str) -> int | None:
    asked = session.post(f"{root}/api/show", json={"model": name}, allow_redirects=False)
    async with asked as response:
        told = decode(await read_body(response)).get("model_info", {})
    return _first_count(value for key, value in told.items() if key.endswith(".context_length"))


async def _of_lm_studio(session: aiohttp.ClientSession, root: str) -> dict[str, int | None]:
    listed = await _get(session, f"{root}/api/v0/models")
    return {row["id"]: _served(row).context for row in listed["data"]}


async def _get(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url, allow_redirects=False) as response:
        return decode(await read_body(response))


def _first_count(told: Iterable[object]) -> int | None:
    return next(
        (n for n in told if isinstance(n, int) and not isinstance(n, bool) and 0 < n <= MOST_CONTEXT), None
    )


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "nobody listens there"
    return "what answers is no model server" if isinstance(error, ValueError) else type(error).__name__


# From what a user says to a model: an address and a name, and the backend that the address asks for.


EMBEDDED = "embedded"


def locate(
    model: str | None, base_url: str | None, *, cache: Path, report: Report | None = None
) -> tuple[str, str]:
    """Address and name of the model meant; the default weights are fetched into `cache` if they must be.

    `embedded` means those, a path to a GGUF file (with no address) that file. A model inside this process is
    named by its weights, not by its path: the journal's keys are made of that name.
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
        raise SettingError(
            "no endpoint: give --base-url http://localhost:8000/v1, or set CAPS_BASE_URL; or --model "
            "embedded for the small model that runs inside caps"
        )
    if not model:
        raise SettingError("no model: give --model NAME, or set CAPS_MODEL")
    return base_url, model


def connect(wiring: ConnectOptions) -> HasConnections:
    """The model at an address, made by the backend of its scheme, or by one that is named in its place."""
    name = _backend(wiring.address)
    backend = resolve(MODELS, name)
    if name in MODELS.table or name in MODELS.aliases:
        return cast(HasConnections, backend(wiring))
    model = create(MODELS, name, backend, wiring)
    ours = type(model).__module__.startswith("caps.")  # which raises what it should
    return cast(HasConnections, model if ours else PluginModel(name, model))


class PluginModel:
    """A model of a plug-in, whose faults are those of one call: whatever it raises is a `ModelError`."""

    def __init__(self, name: str, model: Model) -> None:
        self._name, self._model = name, model

    def __getattr__(self, name: str) -> Any:
        """What else it has: its number of connections, say."""
        return getattr(self._model, name)

    async def complete(self, request: Request) -> Completion:
        """Answer a request."""
        try:
            done = await self._model.complete(request)
        except CapsError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            raise ModelError(f"model backend {self._name!r} failed: {told}"[:500]) from error
        if not isinstance(done, Completion):
            raise ModelError(f"model backend {self._name!r} returned {done!r:.80}: not a caps.Completion")
        return done

    async def close(self) -> None:
        """Let go of what is held open."""
        await self._model.close()


def _backend(address: str) -> str:
    if is_fleet(address):
        return "fleet"
    scheme, colon, _ = address.partition("://")
    if colon:
        return scheme if scheme in MODELS.aliases else "http"  # which says what an address looks like
    named = names_code(address) or address in names(MODELS)
    return address if named else "http"
