"""One case, one call: `await select(...)`, or `select_sync(...)` where nothing can be awaited."""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from platformdirs import user_cache_path

from caps.assemble import Setup, find, make_strategy, reply_for, session
from caps.core.contest import Contest
from caps.core.errors import CapsError
from caps.core.play import Strategy
from caps.core.types import Case, Selection
from caps.costs.ledger import Ledger
from caps.judges.llm import JudgeSettings


@dataclass(frozen=True, slots=True)
class Selected:
    """The chosen candidate of a case: its place, its text, everyone in order, and what it cost."""

    winner: int
    text: str
    selection: Selection
    ledger: Ledger
    contest: Contest

    @property
    def order(self) -> tuple[int, ...]:
        """All candidates, best first."""
        return self.selection.order

    @property
    def tokens(self) -> int:
        """Input tokens of every judge call."""
        return self.ledger.total().asked


async def select(
    case: Case,
    *,
    model: str,
    base_url: str = "",
    api_key: str | None = None,
    strategy: Strategy | str = "caps-r",
    seed: int = 1234,
    confidence: Literal["verbal", "logprobs", "auto"] = "verbal",
    max_tokens: int = 4096,
    reply: Literal["free", "tags"] | None = None,
    extra: Mapping[str, object] | None = None,
    profile: str | None = None,
    views: Mapping[str, str] | None = None,
    connections: int | Literal["auto"] = "auto",
    context: int | None = None,
    threads: int | None = None,
    journal: str | Path | None = None,
) -> Selected:
    """Choose the best candidate of a case; with a journal nothing is paid twice.

    `model="embedded"` needs no endpoint, nor does the path of a GGUF file; `reply="tags"` holds a model on
    llama.cpp to the bare verdict, which is the rule for the small `embedded` one.

    Raises `ModelError` when the endpoint cannot be used, `CapsError` when nothing could be judged.
    """
    where = await asyncio.to_thread(find, model, base_url, api_key, cache=user_cache_path("caps"))
    setup = Setup(
        endpoint=where,
        judge=JudgeSettings(max_tokens=max_tokens, reply=reply or reply_for(where)),
        confidence=confidence,
        extra=extra or {},
        profile=profile,
        views=views or {},
        connections=connections,
        context=context,
        threads=threads,
        journal=None if journal is None else Path(journal),
    )
    chosen = make_strategy(strategy) if isinstance(strategy, str) else strategy
    async with session(setup, probe=confidence != "verbal") as ready:
        outcomes = [outcome async for outcome in ready.engine.run([case], chosen, seed=seed)]
    outcome = outcomes[0]
    if outcome.selection is None or outcome.contest is None:
        raise CapsError(f"case {case.id!r}: {outcome.failure}")
    winner = outcome.selection.winner
    return Selected(winner, case.candidates[winner].text, outcome.selection, outcome.ledger, outcome.contest)


def select_sync(case: Case, **settings: Any) -> Selected:
    """`select` for code that is not async; works inside a notebook's running loop too."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(select(case, **settings))
    return _in_a_thread(case, settings)


def _in_a_thread(case: Case, settings: dict[str, Any]) -> Selected:
    """Run in a loop of its own, since this thread's is taken."""
    done: list[Selected] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(asyncio.run(select(case, **settings)))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
