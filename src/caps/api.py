"""One case, one call: `await select(...)`, or `select_sync(...)` where nothing can be awaited.

`solve` starts from a question: it draws the candidates too.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from platformdirs import user_cache_path

from caps.assemble import Setup, counts_votes, find, make_strategy, reply_for, session, with_shortlist
from caps.core.contest import Contest
from caps.core.errors import CapsError
from caps.core.play import Strategy
from caps.core.types import Case, Selection
from caps.costs.ledger import Ledger
from caps.engines.base import Outcome
from caps.evidence.anatomy import final_answer
from caps.judges.llm import JudgeSettings
from caps.models.fleet_addresses import join_addresses
from caps.registry import DEFAULT_STRATEGY
from caps.sampling.base import Method, Sampled
from caps.sampling.making import make_method, make_preset, usual_preset
from caps.sampling.presets import Preset
from caps.solving import Solving, judge_endpoint, question_case

T = TypeVar("T")


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


@dataclass(frozen=True, slots=True)
class Solved:
    """The answer to a question: text and final answer of the winner, its case, and what it took."""

    text: str
    answer: str | None
    case: Case
    sampled: Sampled
    selected: Selected


async def select(
    case: Case,
    *,
    model: str,
    base_url: str | Sequence[str] = "",
    api_key: str | None = None,
    strategy: Strategy | str = DEFAULT_STRATEGY,
    seed: int = 1234,
    confidence: Literal["verbal", "logprobs", "auto"] = "verbal",
    hard_evidence: Literal["auto", "on", "off"] = "auto",
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

    Several base URLs are servers of the same model. `model="embedded"` needs no endpoint, nor does the path
    of a GGUF file; `reply="tags"` holds a model on llama.cpp to the bare verdict, which is the rule for the
    small `embedded` one.

    Raises `ModelError` when the endpoint cannot be used, `CapsError` when nothing could be judged.
    """
    chosen = make_strategy(strategy) if isinstance(strategy, str) else strategy
    if isinstance(strategy, str) and hard_evidence != "off":
        chosen = with_shortlist(chosen)
    where = await asyncio.to_thread(
        find, model, join_addresses(base_url), api_key, cache=user_cache_path("caps")
    )
    setup = Setup(
        endpoint=where,
        judge=JudgeSettings(max_tokens=max_tokens, reply=reply or reply_for(where)),
        confidence=confidence,
        hard_evidence=hard_evidence,
        merge_found=counts_votes(chosen),
        extra=extra or {},
        profile=profile,
        views=views or {},
        connections=connections,
        context=context,
        threads=threads,
        journal=None if journal is None else Path(journal),
    )
    async with session(setup, probe=confidence != "verbal") as ready:
        outcomes = [outcome async for outcome in ready.engine.run([case], chosen, seed=seed)]
    return _selected(case, outcomes[0])


async def solve(
    question: str | Case,
    *,
    model: str,
    base_url: str | Sequence[str] = "",
    api_key: str | None = None,
    n: int = 16,
    domain: str | None = None,
    preset: Preset | str = "default",
    method: Method | str = "independent",
    strategy: Strategy | str = DEFAULT_STRATEGY,
    judge_model: str | None = None,
    judge_base_url: str | Sequence[str] | None = None,
    seed: int = 1234,
    max_tokens: int = 4096,
    connections: int | Literal["auto"] = "auto",
    journal: str | Path | None = None,
) -> Solved:
    """Draw n answers to a question and choose the best; where all agree, no judge is asked.

    Raises `ModelError` when the endpoint cannot be used, `CapsError` when nothing was drawn or judged.
    """
    cache = user_cache_path("caps")
    writer = await asyncio.to_thread(find, model, join_addresses(base_url), api_key, cache=cache)
    judge = judge_endpoint(writer, judge_model, join_addresses(judge_base_url), None, cache=cache)
    setup = Setup(
        endpoint=writer,
        judge=JudgeSettings(max_tokens=max_tokens, reply=reply_for(judge)),
        connections=connections,
        journal=None if journal is None else Path(journal),
    )
    drawn = make_preset(usual_preset(preset, model)) if isinstance(preset, str) else preset
    solving = Solving(
        writing=setup,
        judging=replace(setup, endpoint=judge, hard_evidence="auto"),
        preset=replace(drawn, seed=seed),
        method=make_method(method) if isinstance(method, str) else method,
        strategy=make_strategy(strategy) if isinstance(strategy, str) else strategy,
        n=n,
        seed=seed,
    )
    case = question if isinstance(question, Case) else question_case(question, domain)
    sampled, outcome = await solving.run(case)
    if sampled.case is None or outcome is None:
        raise CapsError(f"question {case.id!r}: {sampled.failure}")
    selected = _selected(sampled.case, outcome)
    winner = sampled.case.candidates[selected.winner]
    return Solved(selected.text, final_answer(winner), sampled.case, sampled, selected)


def _selected(case: Case, outcome: Outcome) -> Selected:
    if outcome.selection is None or outcome.contest is None:
        raise CapsError(f"case {case.id!r}: {outcome.failure}")
    winner = outcome.selection.winner
    return Selected(winner, case.candidates[winner].text, outcome.selection, outcome.ledger, outcome.contest)


def select_sync(case: Case, **settings: Any) -> Selected:
    """`select` for code that is not async; works inside a notebook's running loop too."""
    return _waited_for(lambda: select(case, **settings))


def solve_sync(question: str | Case, **settings: Any) -> Solved:
    """`solve` for code that is not async; works inside a notebook's running loop too."""
    return _waited_for(lambda: solve(question, **settings))


def _waited_for(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    return _in_a_thread(work)


def _in_a_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run in a loop of its own, since this thread's is taken."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(asyncio.run(work()))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
