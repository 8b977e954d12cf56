"""Probing: what the servers of a judge can do, found out by test calls (`canary`) before they are needed."""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from caps.config import RunConfig
from caps.core.errors import MissingFeatureError
from caps.core.secrets import shown_address
from caps.core.types import Usage
from caps.models.base import Model
from caps.models.canary import can_see, canary, find_reply
from caps.models.endpoints import Callbacks, Endpoint
from caps.prompts.reply_forms import TAGS

#: The forms of replies that a server is asked for, by the setting `reply`.
WANTED_REPLIES = {"tags": TAGS, "json": ("json",), "auto": ("json", *TAGS)}


class Probed(NamedTuple):
    """Where the confidence comes from, and the form that all servers hold replies to, if that was tested."""

    confidence: str
    reply: str | None = None


def needs_probe(config: RunConfig) -> bool:
    """Whether a server must be asked before the judge is: what it can do is to be found out."""
    return config.confidence != "verbal" or config.reply in WANTED_REPLIES


async def probe(
    models: Mapping[Endpoint, Model],
    config: RunConfig,
    paid: Callable[[Usage], object],
) -> Probed:
    """Call every endpoint once; `auto` uses log-probabilities if all endpoints return them.

    `paid` receives the usage of the test calls.
    """
    wanted, extra = config.confidence != "verbal", config.extra
    confidence = "logprobs" if wanted else "verbal"
    try:
        for where, model in models.items():
            await canary(model, where.model, want_logprobs=wanted, extra=extra, paid=paid)
    except MissingFeatureError:
        if config.confidence == "logprobs":
            raise
        confidence = "verbal"
    if config.reply not in WANTED_REPLIES:
        return Probed(confidence)
    return Probed(confidence, await _held_reply(models, config.reply, extra, paid))


async def _held_reply(
    models: Mapping[Endpoint, Model],
    stated: str,
    extra: Mapping[str, object],
    paid: Callable[[Usage], object],
) -> str:
    """The form that all servers hold replies to; `auto` is free if there is none."""
    wanted = WANTED_REPLIES[stated]
    for where, model in models.items():
        found = await find_reply(model, where.model, wanted, extra=extra, paid=paid)
        if found is None and stated != "auto":
            raise MissingFeatureError(
                f"{shown_address(where.base_url)} holds replies to no form of {stated}: it refuses or "
                "ignores the field; use --reply free, or auto"
            )
        wanted = (found,) if found else ()
    return wanted[0] if wanted else "free"


class VisionTests:
    """Which models can see, each tested once when there is something to see; a copy starts anew."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._tests: dict[tuple[str, str], asyncio.Future[bool]] = {}  # by address and model

    def __reduce__(self) -> tuple[type["VisionTests"], tuple[Callbacks]]:
        return VisionTests, (self._callbacks,)

    async def can_see(self, where: Endpoint, server: Model, extra: Mapping[str, object]) -> bool:
        """Whether the model at an endpoint can see; a warning says if it cannot."""
        name = (where.base_url, where.model)
        if name not in self._tests:  # one test call for all that wait for it
            self._tests[name] = asyncio.ensure_future(can_see(server, where.model, extra=extra))
            if not await asyncio.shield(self._tests[name]):
                self._callbacks.warn(
                    f"model {where.model!r} cannot see images: calls about images or documents stay "
                    "unanswered; use a judge that sees, or --vision yes if this one does"
                )
        return await asyncio.shield(self._tests[name])
