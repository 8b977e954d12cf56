"""Probing: one call finds out what `auto` leaves open, before a judge is asked.

Log-probabilities, replies held to a form, and images are tested. A run that leaves none of them open makes no
test call: its first real call reports a wrong key, model or address as clearly.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from caps.config import RunConfig
from caps.core.errors import (
    AccessError,
    BrokenServerError,
    BusyError,
    MissingFeatureError,
    ModelError,
    RefusedError,
    TimedOutError,
    TooLongError,
    UnknownModelError,
    UnreachableError,
)
from caps.core.secrets import shown_address
from caps.core.types import Media, Message, Usage
from caps.models.base import Completion, Model, Request
from caps.models.endpoints import Callbacks, Endpoint
from caps.models.journaled import JournaledModel
from caps.prompts.reply_forms import TAGS, probe_fields, was_held

#: The forms of replies that a server is asked for, by the setting `reply`.
WANTED_REPLIES = {"tags": TAGS, "json": ("json",), "auto": ("json", *TAGS)}
TOKENS = 64  # room for reasoning models that refuse smaller limits
HELD_TOKENS = 1024  # for a test of a form: a model that reasons does so first
ASKED = Message("user", "Reply with the word OK.")
COLOUR = "Which colour fills this image: red, green, blue or yellow? Reply with one word."
#: A PNG of 32 x 32 blue pixels.
BLUE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAJklEQVR42u3NsQkAAAjAsP"
    "7/tF7hIASyp5pjAoFAIBAIBAKB4EmwOkv8Lom8x/sAAAAASUVORK5CYII="
)


class Probed(NamedTuple):
    """Where the confidence comes from, and the form that all servers hold replies to, if that was tested."""

    confidence: str
    reply: str | None = None


async def probe(
    models: Mapping[Endpoint, Model], config: RunConfig, paid: Callable[[Usage], object]
) -> Probed:
    """Find out what the config leaves open; nothing is asked if that is nothing.

    `auto` uses log-probabilities if all servers return them, and a form that all of them hold replies to.
    `paid` receives the usage of every test call.
    """
    confidence, extra = config.confidence, config.extra
    if confidence != "verbal":
        reasons = [await missing_logprobs(model, where.model, extra, paid) for where, model in models.items()]
        missing = next((reason for reason in reasons if reason is not None), None)
        if missing is not None and confidence == "logprobs":
            raise MissingFeatureError(f"{missing}: use verbal confidence (--confidence verbal)")
        confidence = "logprobs" if missing is None else "verbal"
    if config.reply not in WANTED_REPLIES:
        return Probed(confidence)
    return Probed(confidence, await _held_reply(models, config.reply, extra, paid))


async def missing_logprobs(
    model: Model, name: str, extra: Mapping[str, object], paid: Callable[[Usage], object]
) -> str | None:
    """Why a server gives no log-probabilities; None if it does, or ran out of tokens before its reply.

    Any error that has nothing to do with them is raised.
    """
    request = Request((ASKED,), name, template="probe", max_tokens=TOKENS, top_logprobs=1, extra=extra)
    for member in members_of(model):
        try:
            completion = await member.complete(request)
        except RefusedError as error:
            plain = Request((ASKED,), name, template="probe", max_tokens=TOKENS, extra=extra)
            paid((await member.complete(plain)).usage)
            return f"{_named(member, name)} gives no log-probabilities (it refuses the field: {error})"
        except ModelError as error:
            if member is model or not _is_temporary(error):
                raise
            continue  # another server answers
        paid(completion.usage)
        if completion.text and not completion.logprobs:
            return f"{_named(member, name)} gives no log-probabilities (it ignores the field)"
    return None


def _named(model: Model, name: str) -> str:
    """A model and, if it is served, its address."""
    address = getattr(model, "address", "")
    return f"model {name!r} at {address}" if address else f"model {name!r}"


def members_of(model: Model) -> Sequence[Model]:
    """The servers behind a model, without the journal: a stored reply says nothing about a server now."""
    from caps.models.servers import ServersModel  # noqa: PLC0415  (slow to load; the caller has a model already)

    while isinstance(model, JournaledModel):
        model = model.inner
    return model.members if isinstance(model, ServersModel) else (model,)


async def _held_reply(
    models: Mapping[Endpoint, Model],
    wanted_form: str,
    extra: Mapping[str, object],
    paid: Callable[[Usage], object],
) -> str:
    """The form that all servers hold replies to; `auto` is free if there is none."""
    wanted = WANTED_REPLIES[wanted_form]
    for where, model in models.items():
        form = await find_reply(model, where.model, wanted, extra=extra, paid=paid)
        if form is None and wanted_form != "auto":
            raise MissingFeatureError(
                f"{shown_address(where.base_url)} does not support --reply {wanted_form}: it refuses or "
                "ignores the field; use --reply free or --reply auto"
            )
        wanted = (form,) if form else ()
    return wanted[0] if wanted else "free"


async def find_reply(
    model: Model,
    name: str,
    wanted: Sequence[str],
    *,
    extra: Mapping[str, object] | None = None,
    paid: Callable[[Usage], object] = lambda _: None,
) -> str | None:
    """The first of these forms that the server holds replies to (`prompts.reply_forms`); None if it is none.

    A server that ignores a field it does not know answers the test call as it likes, which shows.
    """
    for reply in wanted:
        held = [await _holds(member, name, reply, extra or {}, paid) for member in members_of(model)]
        if any(held) and False not in held:
            return reply
    return None


async def _holds(
    model: Model, name: str, reply: str, extra: Mapping[str, object], paid: Callable[[Usage], object]
) -> bool | None:
    """Whether a server holds replies to a form; None if it is down."""
    fields = {**probe_fields(reply), **extra}
    request = Request((ASKED,), name, template="probe", max_tokens=HELD_TOKENS, extra=fields)
    try:
        completion = await model.complete(request)
    except ModelError as error:
        if _is_temporary(error) and not isinstance(error, BrokenServerError):
            return None
        return False
    paid(completion.usage)
    return was_held(reply, completion.text)


def _is_temporary(error: ModelError) -> bool:
    """Whether the error may go away; a server that answered without a chat endpoint will not change."""
    down = isinstance(error, UnreachableError) and not error.attempts
    return down or isinstance(error, BusyError | BrokenServerError | TimedOutError)


async def can_see(model: Model, name: str, *, extra: Mapping[str, object] | None = None) -> bool:
    """Whether a model sees images: it is shown a colour; a refusal or another colour means that it does not.

    A model that is still reasoning when its tokens run out is believed to see.
    """
    picture = Media("image", BLUE, "", "blue", at=len(COLOUR))
    message = Message("user", COLOUR, (picture,))
    request = Request((message,), name, template="probe", max_tokens=HELD_TOKENS, extra=extra or {})
    try:
        completion: Completion = await model.complete(request)
    except (RefusedError, BrokenServerError, TooLongError):  # how servers without vision fail
        return False
    except (AccessError, UnknownModelError):
        raise
    except ModelError:  # not known: the call that needs it fails in the same way
        return True
    colours = set(re.findall(r"red|green|blue|yellow", completion.text.lower()))
    return not colours or "blue" in colours


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
                    "unanswered; use a judge that sees, or --set vision=yes if this one does"
                )
        return await asyncio.shield(self._tests[name])
