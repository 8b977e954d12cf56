"""One case, one call: `await select(...)`, or `select_sync(...)` where nothing can be awaited.

`solve` starts from a question: it generates the candidates too.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from caps.config import Keys, RunConfig
from caps.core.contest import Contest
from caps.core.errors import CapsError
from caps.core.play import Strategy
from caps.core.types import Case, Selection
from caps.costs.ledger import Ledger
from caps.engines.base import Outcome
from caps.evidence.anatomy import final_answer
from caps.registry import DEFAULT_STRATEGY
from caps.runner import Runner
from caps.sampling.base import Method, Sampled
from caps.sampling.presets import Preset
from caps.solving import question_case, solve_case

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
    model: str | None = None,
    base_url: str | Sequence[str] = "",
    api_key: str | None = None,
    strategy: Strategy | str = DEFAULT_STRATEGY,
    settings: Mapping[str, object] | None = None,
    skip_failing: bool = False,
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
    """Choose the best candidate of a case; with a journal nothing is paid for twice.

    Several base URLs are servers of the same model. `model="embedded"` needs no endpoint, nor does the path
    of a GGUF file; `reply="tags"` holds a model on llama.cpp to the bare verdict, which is the rule for the
    small `embedded` one. `settings` changes fields of the strategy. A strategy that asks no judge, such as
    `majority`, needs no model.

    Raises `ModelError` when the endpoint cannot be used, `CapsError` when nothing could be judged.
    """
    config = RunConfig(
        model=model,
        base_url=_addresses(base_url),
        settings=settings or {},
        skip_failing=skip_failing,
        seed=seed,
        confidence=confidence,
        hard_evidence=hard_evidence,
        max_tokens=max_tokens,
        reply=reply,
        extra=extra or {},
        profile=profile,
        views=views or {},
        max_connections=connections,
        context=context,
        threads=threads,
        journal=None if journal is None else str(journal),
        **_named(strategy=strategy),
    )
    chosen = None if isinstance(strategy, str) else strategy
    runner = Runner(config, keys=Keys(api_key=api_key), strategy=chosen)
    if runner.asks_judge:
        await asyncio.to_thread(lambda: runner.endpoints)  # weights may have to be fetched
    async with runner.session(probe=confidence != "verbal") as session:
        outcomes = [outcome async for outcome in session.run([case])]
    return _selected(case, outcomes[0])


async def solve(
    question: str | Case,
    *,
    model: str | None = None,
    base_url: str | Sequence[str] = "",
    api_key: str | None = None,
    n: int = 16,
    domain: str | None = None,
    preset: Preset | str = "default",
    method: Method | str = "independent",
    strategy: Strategy | str = DEFAULT_STRATEGY,
    settings: Mapping[str, object] | None = None,
    skip_failing: bool = False,
    judge_model: str | None = None,
    judge_base_url: str | Sequence[str] | None = None,
    judge_api_key: str | None = None,
    hard_evidence: Literal["auto", "on", "off"] = "auto",
    seed: int = 1234,
    max_tokens: int = 4096,
    connections: int | Literal["auto"] = "auto",
    journal: str | Path | None = None,
) -> Solved:
    """Generate n answers to a question and choose the best; where all agree, no judge is asked.

    `settings` changes fields of the strategy, the method or the preset. A key is not carried to another
    address: give `judge_api_key` where the judge has its own.

    Raises `ModelError` when the endpoint cannot be used, `CapsError` when nothing was generated or judged.
    """
    config = RunConfig(
        model=model,
        base_url=_addresses(base_url),
        judge_model=judge_model,
        judge_base_url=_addresses(judge_base_url or ()),
        settings=settings or {},
        skip_failing=skip_failing,
        hard_evidence=hard_evidence,
        samples=n,
        seed=seed,
        max_tokens=max_tokens,
        max_connections=connections,
        journal=None if journal is None else str(journal),
        **_named(strategy=strategy, preset=preset, method=method),
    )
    runner = Runner(
        config,
        keys=Keys(api_key=api_key, judge_api_key=judge_api_key),
        strategy=None if isinstance(strategy, str) else strategy,
        preset=None if isinstance(preset, str) else preset,
        method=None if isinstance(method, str) else method,
        generating=True,
    )
    await asyncio.to_thread(lambda: runner.endpoints)  # weights may have to be fetched
    case = question if isinstance(question, Case) else question_case(question, domain)
    sampled, outcome = await solve_case(runner, case)
    if sampled.case is None or outcome is None:
        raise CapsError(f"question {case.id!r}: {sampled.failure}")
    selected = _selected(sampled.case, outcome)
    winner = sampled.case.candidates[selected.winner]
    return Solved(selected.text, final_answer(winner), sampled.case, sampled, selected)


def _addresses(base_url: str | Sequence[str]) -> tuple[str, ...]:
    return (base_url,) if isinstance(base_url, str) else tuple(base_url)


def _named(**parts: object) -> dict[str, Any]:
    """What is given by name; an object goes to the runner as it is."""
    return {name: part for name, part in parts.items() if isinstance(part, str)}


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
