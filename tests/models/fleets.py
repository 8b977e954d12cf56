"""Fleets of stub servers, and who of them saw what."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace

from caps.core.types import Message
from caps.models.base import Request
from caps.models.faults import Retries
from caps.models.fleet import FleetModel, parse_fleet
from caps.models.fleet_servers import HealthPolicy
from caps.testing import Reply, ScriptedEndpoint, better_quality_wins

QUICK = Retries(first=0.01, longest=0.05)
CARE = HealthPolicy(first=0.02, longest=0.1, rest=0.02)


def ask(group="", text="Which is right?", **fields) -> Request:
    return Request((Message("user", text),), "stub", group=group, **fields)


def fleet(*servers: ScriptedEndpoint | str, **settings) -> FleetModel:
    words = ",".join(one if isinstance(one, str) else one.url for one in servers)
    return FleetModel(parse_fleet(words), **{"retries": QUICK, "health": CARE, **settings})


def with_fleet(work: Callable, *servers: ScriptedEndpoint | str, **settings):
    """Do some work with a fleet, and close it."""

    async def run():
        async with AsyncExitStack() as stack:
            model = fleet(*servers, **settings)
            stack.push_async_callback(model.close)
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

    return with_fleet(all_, *servers, **settings)


def slowly(seconds: float) -> Callable:
    """A judge that takes its time."""
    return lambda body, number: replace(better_quality_wins(body, number), delay=seconds)


def said(server: ScriptedEndpoint) -> list[str]:
    return [body["messages"][0]["content"] for body in server.bodies]


FINE = Reply("fine")
