"""Commands in this process, and a whole run into a folder: the real `select` with a model that replies by a rule."""

import asyncio
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from typer.testing import CliRunner, Result

from caps.cli.main import make_app
from caps.cli.run import Run
from caps.config import RunConfig
from caps.datasets.imports import open_cases
from caps.models.base import Completion, ConnectOptions, Request
from caps.models.scripted import ScriptedModel
from caps.session.resolve import resolve
from caps.testing import better_quality_wins
from support.shell import split_words

REPLY: list[Callable[[Request], str]] = []
CONNECTED: list["Connected"] = []


def run_here(*words: object) -> Result:
    """Run `caps` in this process; mistakes are raised as they are."""
    done = CliRunner().invoke(make_app(words[0]), split_words(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


class Connected(ScriptedModel):
    """A scripted model as an endpoint."""

    connections = 8
    closed = 0

    async def complete(self, request: Request) -> Completion:
        completion = await super().complete(request)
        self.requests.clear()
        return completion

    async def close(self) -> None:
        self.closed += 1


def connect(options: ConnectOptions) -> Connected:
    CONNECTED.append(Connected(REPLY[-1]))
    return CONNECTED[-1]


def by_quality(request: Request) -> str:
    return better_quality_wins({"messages": [{"content": request.messages[0].content}]}).text


def run_cases(
    cases: Path,
    out: Path,
    *,
    strategy: str = "caps-r",
    reply: Callable[[Request], str] = by_quality,
    limit: int | None = None,
    **settings: object,
) -> Path:
    """Run cases into a folder beside a journal; the folder."""
    config = RunConfig(
        model="scripted",
        base_url=("support.running:connect",),
        strategy=strategy,
        seed=7,
        journal=str(out.parent / "journal.sqlite"),
        **{"hard_evidence": "off", **settings},
    )
    run = Run(resolve(config), limit=limit, quiet=True, bracket=False, lines=False)
    REPLY.append(reply)
    try:
        asyncio.run(run.play(islice(open_cases(str(cases)), limit), None, out, str(cases)))
    finally:
        REPLY.pop()
    return out
