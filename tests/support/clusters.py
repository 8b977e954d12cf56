"""Runs whose cases are shared among the workers of a cluster."""

import asyncio
import json
from collections import Counter

from caps.config import Keys, RunConfig
from caps.engines.base import in_order
from caps.session.resolve import resolve
from caps.session.session import open_session
from caps.testing import Reply, better_quality_wins
from support.waiting import until

CONNECTIONS = 8


class Counted:
    """Better quality wins, after a while; counts how often each prompt came."""

    def __init__(self, delay=0.03):
        self.came, self.delay = Counter(), delay

    def __call__(self, body, number):
        if "quality=" in str(body):
            self.came[json.dumps(body, sort_keys=True)] += 1
        return Reply(better_quality_wins(body).text, delay=self.delay)


def config_for(server, folder, **settings):
    """A run against a stub with its journal in a folder."""
    usual = {"hard_evidence": "off", "strategy": "caps", "seed": 7, "max_connections": CONNECTIONS}
    return RunConfig(
        model="stub", base_url=(server.url,), journal=folder / "journal.sqlite", **{**usual, **settings}
    )


async def played(config, source, *, strike=None, key=None):
    """Play all; after three outcomes a strike may be made at the engine."""
    async with open_session(resolve(config, Keys(api_key=key), grace=60.0)) as ready:
        rulings, outcomes = [], []
        ready.engine.watch = rulings.append
        async for outcome in in_order(ready.run(source)):
            outcomes.append(outcome)
            if len(outcomes) == 3 and strike is not None:
                await strike(ready.engine)
        return outcomes, rulings


async def interrupted(config, source, server):
    """Play until some calls were made, then stop as Ctrl-C does."""
    run = asyncio.ensure_future(played(config, source))
    await until(lambda: server.requests >= 30 or run.done())
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


def seen(outcomes):
    """What must be the same wherever the cases ran."""
    return [(one.number, one.name, one.selection, one.ledger.calls, one.failure) for one in outcomes]
