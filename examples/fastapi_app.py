"""A FastAPI service that picks the best of several answers, with one client for all handlers.

CAPS_MODEL=qwen3-14b CAPS_BASE_URL=http://localhost:8000/v1 python examples/fastapi_app.py
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from prometheus_client import Counter, Histogram, make_asgi_app
from pydantic import BaseModel, Field

import caps

MOST_SELECTIONS = 100  # at the same time; the next request is told to come back
TOKENS = Counter("best_tokens_total", "Tokens that the judge read or wrote", ["kind"])
SELECTIONS = Counter("best_selections_total", "Selections by how they ended", ["result"])
SECONDS = Histogram("best_seconds", "Seconds of a selection")

LOG = logging.getLogger(__name__)
T = TypeVar("T")


class Question(BaseModel):
    """A problem and the answers to choose from."""

    problem: str = Field(max_length=100_000)
    candidates: list[str] = Field(min_length=1, max_length=64)


class Answer(BaseModel):
    """The chosen answer; provisional if time or tokens ran out before the choice was sure."""

    winner: int
    text: str
    probability: float | None
    provisional: bool
    tokens: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open one client for the life of the service: connections, limits and budgets are shared."""
    async with caps.open(timeout=30, budget_seconds=20, budget_tokens=200_000) as client:
        app.state.client, app.state.slots = client, asyncio.Semaphore(MOST_SELECTIONS)
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/metrics", make_asgi_app())


@app.post("/best")
async def best(question: Question, request: Request) -> Answer:
    """Choose the best of the candidates."""
    client, slots = request.app.state.client, request.app.state.slots
    if slots.locked():
        raise HTTPException(503, "too many selections at the same time", {"Retry-After": "1"})
    async with slots:
        with SECONDS.time():
            chosen = await unless_left(request, client.best(question.problem, question.candidates))
    costs = chosen.ledger.total()
    TOKENS.labels("read").inc(costs.asked)
    TOKENS.labels("written").inc(costs.output)
    SELECTIONS.labels("provisional" if chosen.selection.provisional else "chosen").inc()
    return Answer(
        winner=chosen.winner,
        text=chosen.text,
        probability=chosen.probability,
        provisional=chosen.selection.provisional,
        tokens=costs.asked + costs.output,
    )


async def unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work; if the client leaves first, the work and its judge calls are cancelled."""
    working = asyncio.create_task(work)
    leaving = asyncio.ensure_future(request.receive())  # after the body comes only that the client has left
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            SELECTIONS.labels("left").inc()
            raise HTTPException(499, "the client has left")
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


@app.exception_handler(caps.CapsError)
async def failed(request: Request, error: caps.CapsError) -> JSONResponse:  # noqa: ARG001
    """Say whose fault it is; the message may name the address of the judge, so it goes to the log only."""
    SELECTIONS.labels("failed").inc()
    LOG.warning("a selection failed: %s", error)
    if isinstance(error, caps.InputError):
        return JSONResponse({"detail": str(error)}, 422)
    return JSONResponse({"detail": "the judge failed: try again later"}, 502)


if __name__ == "__main__":
    uvicorn.run(app, port=8080)
