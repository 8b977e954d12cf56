"""Which models can be reached: every place is asked for its list at once; nothing here raises.

A key goes to the address it was given for, never to the usual local ports.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import aiohttp

from caps.core.errors import SettingError
from caps.core.secrets import shown_address
from caps.models.bodies import read_body
from caps.models.http import HttpModel
from caps.models.places import Found, Place, Served, State
from caps.models.wire import NAME_CHARS, decode, printable

SECONDS = 1.5
MOST_SHOWN = 1000  # models of one place
MOST_CONTEXT = 10**9  # tokens; what is more was not meant as a context
# What servers call the context in a row of their list, the loaded one before what would be possible.
_NAMES = ("loaded_context_length", "max_model_len", "max_context_length", "context_length", "context_window")


async def discover(places: Iterable[Place], *, seconds: float = SECONDS) -> list[Found]:
    """Ask all places at once; each has so many seconds."""
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
        return await asyncio.gather(*(_ask(session, place, seconds) for place in places))


async def _ask(session: aiohttp.ClientSession, place: Place, seconds: float) -> Found:
    try:
        model = HttpModel(place.base_url, place.api_key)
    except SettingError as error:
        return Found(place.kind, shown_address(place.base_url), "strange", problem=str(error))
    try:
        async with asyncio.timeout(seconds):
            status, listed = await model.listing()
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        state: State = "strange" if isinstance(error, ValueError) else "silent"
        return Found(place.kind, model.address, state, problem=_reason(error))
    finally:
        await model.close()
    if status in {401, 403}:
        return Found(
            place.kind, model.address, "refusing", problem=f"the API key is refused, status {status}"
        )
    rows = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(rows, list):
        return Found(place.kind, model.address, "strange", problem=f"no list of models, status {status}")
    served = [_served(row) for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
    served = served[:MOST_SHOWN]
    if any(one.context is None for one in served):
        root = model.address.removesuffix("/v1")
        served = await _asked_further(session, place.kind, root, served)
    return Found(place.kind, model.address, "serving", tuple(served))


def _served(row: dict[str, Any]) -> Served:
    meta = row.get("meta")
    told = [meta.get("n_ctx"), meta.get("n_ctx_train")] if isinstance(meta, dict) else []
    told += [row.get(name) for name in _NAMES]
    return Served(printable(row["id"], NAME_CHARS), _first_count(told))


async def _asked_further(
    session: aiohttp.ClientSession, kind: str, root: str, served: list[Served]
) -> list[Served]:
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
    return [Served(one.name, one.context or more) for one, more in zip(served, contexts, strict=True)]


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
