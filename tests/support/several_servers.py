"""Several stub servers of one model, and who of them saw what."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from caps.core.types import Message
from caps.models.base import Request
from caps.models.faults import Retries
from caps.models.servers import ServersModel
from caps.testing import Reply, ScriptedEndpoint, better_quality_wins
from support.closing import closing

QUICK = Retries(first=0.01, longest=0.05)
FINE = Reply("fine")
NOBODY = "http://127.0.0.1:9/v1"  # the port of `discard`, where no server listens


def ask(group="", text="Which is right?", **fields) -> Request:
    return Request((Message("user", text),), "stub", group=group, **fields)


def with_servers(work: Callable, *servers: ScriptedEndpoint | str, **settings):
    """Do some work with a model of these servers, and close it."""

    async def run():
        addresses = [one if isinstance(one, str) else one.url for one in servers]
        async with closing(ServersModel(addresses, **{"retries": QUICK, **settings})) as model:
            return await work(model)

    return asyncio.run(run())


def complete(*servers: ScriptedEndpoint | str, requests=(), **settings):
    """Send requests at once."""

    async def all_(model):
        calls = (model.complete(request) for request in requests or [ask()])
        done = await asyncio.gather(*calls, return_exceptions=True)  # none may outlive the model
        for failed in (one for one in done if isinstance(one, BaseException)):
            raise failed
        return done

    return with_servers(all_, *servers, **settings)


def slowly(seconds: float) -> Callable:
    """A judge that takes its time."""
    return lambda body, number: replace(better_quality_wins(body, number), delay=seconds)


def said(server: ScriptedEndpoint) -> list[str]:
    return [body["messages"][0]["content"] for body in server.bodies]
