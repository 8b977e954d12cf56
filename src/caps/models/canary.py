"""A small test call before a run: a wrong key, model or address is reported once, and clearly."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

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
from caps.core.types import Media, Message, Usage
from caps.models.base import Completion, ListsModels, Model, Request
from caps.models.journaled import JournaledModel
from caps.prompts.reply_forms import probe_fields, was_held

if TYPE_CHECKING:
    from caps.models.fleet import FleetModel
    from caps.models.http import HttpModel

TOKENS = 64  # room for reasoning models that refuse smaller limits
COLOUR = "Which colour fills this image: red, green, blue or yellow? Reply with one word."
#: A PNG of 32 x 32 blue pixels.
BLUE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAJklEQVR42u3NsQkAAAjAsP"
    "7/tF7hIASyp5pjAoFAIBAIBAKB4EmwOkv8Lom8x/sAAAAASUVORK5CYII="
)
HELD_TOKENS = 1024  # for a test of a form: a model that reasons does so first
ASKED = Message("user", "Reply with the word OK.")
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """Result of the test call; `logprobs` is None if they were not requested or the call was inconclusive."""

    model: str
    latency: float
    logprobs: bool | None
    counts_tokens: bool
    completion: Completion


async def canary(
    model: Model,
    request_model: str,
    *,
    want_logprobs: bool,
    extra: Mapping[str, object] | None = None,
    paid: Callable[[Usage], object] = lambda _: None,
) -> CanaryReport:
    """Test a model, or raise what is wrong with it; pass the `extra` that the real requests will have.

    `MissingFeatureError` means that everything but log-probabilities works. `paid` receives the usage of
    every call, also when the test fails.
    """
    while isinstance(model, JournaledModel):  # a stored reply says nothing about the server now
        model = model.inner
    from caps.models.fleet import FleetModel  # noqa: PLC0415  (slow to load; the caller has a model already)

    if isinstance(model, FleetModel):
        return await _check_fleet(model, request_model, want_logprobs=want_logprobs, extra=extra, paid=paid)
    request = Request(
        (ASKED,),
        request_model,
        template="canary",
        max_tokens=TOKENS,
        top_logprobs=1 if want_logprobs else 0,
        extra=extra or {},
    )
    try:
        completion = await model.complete(request)
        paid(completion.usage)
    except UnknownModelError as error:
        raise UnknownModelError(
            await _suggest_names(model, request_model, error), attempts=error.attempts
        ) from None
    except RefusedError as error:
        if not want_logprobs:
            raise
        await canary(model, request_model, want_logprobs=False, extra=extra, paid=paid)
        raise _no_logprobs(request_model, f"the server refuses to give them: {error}") from None
    logprobs: bool | None = bool(completion.logprobs) if want_logprobs else None
    if want_logprobs and not completion.logprobs:
        if completion.text:
            raise _no_logprobs(request_model, "the server leaves them out")
        logprobs = None  # it was still reasoning when the tokens ran out
    return CanaryReport(
        completion.model or request_model,
        completion.latency,
        logprobs,
        not completion.usage.estimated,
        completion,
    )


async def can_see(model: Model, request_model: str, *, extra: Mapping[str, object] | None = None) -> bool:
    """Whether a model sees images: it is shown a colour; a refusal or another colour means that it does not.

    A model that is still reasoning when its tokens run out is believed to see.
    """
    picture = Media("image", BLUE, "", "blue", at=len(COLOUR))
    message = Message("user", COLOUR, (picture,))
    request = Request((message,), request_model, template="canary", max_tokens=HELD_TOKENS, extra=extra or {})
    try:
        completion = await model.complete(request)
    except (
        RefusedError,
        BrokenServerError,
        TooLongError,
    ):  # servers without vision fail in any of these ways
        return False
    except (AccessError, UnknownModelError):
        raise
    except ModelError:  # not known: the call that needs it meets the same
        return True
    said = set(re.findall(r"red|green|blue|yellow", completion.text.lower()))
    return not said or "blue" in said


async def find_reply(
    model: Model,
    request_model: str,
    wanted: Sequence[str],
    *,
    extra: Mapping[str, object] | None = None,
    paid: Callable[[Usage], object] = lambda _: None,
) -> str | None:
    """The first of these forms that the server holds replies to (`prompts.reply_forms`); None if it is none.

    A server that ignores a field it does not know answers the test call as it likes, which shows.
    """
    while isinstance(model, JournaledModel):
        model = model.inner
    from caps.models.fleet import FleetModel  # noqa: PLC0415

    members = model.members if isinstance(model, FleetModel) else (model,)
    for reply in wanted:
        held = [await _holds(one, request_model, reply, extra or {}, paid) for one in members]
        if any(held) and False not in held:
            return reply
    return None


async def _holds(
    model: Model, name: str, reply: str, extra: Mapping[str, object], paid: Callable[[Usage], object]
) -> bool | None:
    """Whether a server holds replies to a form; None if it is down."""
    fields = {**probe_fields(reply), **extra}
    request = Request((ASKED,), name, template="canary", max_tokens=HELD_TOKENS, extra=fields)
    try:
        completion = await model.complete(request)
    except ModelError as error:
        if _is_temporary(error) and not isinstance(error, BrokenServerError):
            return None
        return False
    paid(completion.usage)
    return was_held(reply, completion.text)


async def _check_fleet(
    fleet: "FleetModel",
    name: str,
    *,
    want_logprobs: bool,
    extra: Mapping[str, object] | None,
    paid: Callable[[Usage], object],
) -> CanaryReport:
    """Test every server of a fleet; one that is down may return, any other failure is raised."""

    async def check(model: "HttpModel") -> CanaryReport | ModelError:
        try:
            return await canary(model, name, want_logprobs=want_logprobs, extra=extra, paid=paid)
        except MissingFeatureError as error:
            return MissingFeatureError(f"{model.address}: {error}", attempts=error.attempts)
        except ModelError as error:
            return error

    outcomes = await asyncio.gather(*(check(model) for model in fleet.members))
    for model, outcome in zip(fleet.members, outcomes, strict=True):
        if isinstance(outcome, ModelError) and not _is_temporary(outcome):
            raise outcome
        fleet.record_check(model, outcome if isinstance(outcome, ModelError) else None)
    reports = [outcome for outcome in outcomes if isinstance(outcome, CanaryReport)]
    if not reports:
        raise fleet.unavailable_error()
    known = [report.logprobs for report in reports]
    return replace(
        reports[0],
        logprobs=None if None in known else all(known),
        counts_tokens=all(report.counts_tokens for report in reports),
    )


def _is_temporary(error: ModelError) -> bool:
    """Whether the error may go away; a server that answered without a chat endpoint will not change."""
    down = isinstance(error, UnreachableError) and not error.attempts
    return down or isinstance(error, BusyError | BrokenServerError | TimedOutError)


def _no_logprobs(name: str, reason: str) -> MissingFeatureError:
    return MissingFeatureError(
        f"model {name!r} gives no log-probabilities ({reason}): use verbal confidence (--confidence verbal)"
    )


async def _suggest_names(model: Model, wanted: str, error: ModelError) -> str:
    """The error message with the available names, the closest first."""
    names = list(await model.names()) if isinstance(model, ListsModels) else []
    if not names:
        return str(error)
    near = get_close_matches(wanted, names, n=_SHOWN, cutoff=0.4)
    ordered = near + sorted(set(names) - set(near))
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return f"{error}: it offers {', '.join(ordered[:_SHOWN])}{more}"
