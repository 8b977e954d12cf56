"""A study against a real judge: every method and seed of a suite through one connection and one journal."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing

from caps.core.types import Case
from caps.engines.base import Outcome
from caps.experiments.measure import Heard, Pool, Turn, measure
from caps.experiments.results import Result
from caps.experiments.suites import case_digest, difficulty, labels
from caps.runner import Runner, Session

LASTING = ("malformed", "too-long", "refused")  # would be so again; they are counted
AT_ONCE = (
    4  # methods and seeds that play side by side, so that the last cases of one do not leave a server idle
)

Missing = Callable[[Turn, Case], bool]


async def play_live(
    runner: Runner, cases: Sequence[Case], turns: Iterable[Turn], missing: Missing
) -> AsyncGenerator[Result | str, None]:
    """Results as they come, or the words of a case that failed; only what is missing is played."""
    waiting = [(turn, [case for case in cases if missing(turn, case)]) for turn in turns]
    waiting = [(turn, some) for turn, some in waiting if some]
    if not waiting:
        return
    news: asyncio.Queue[Result | str | None] = asyncio.Queue()
    async with runner.session() as ready:
        places = asyncio.Semaphore(AT_ONCE)
        tasks = [asyncio.ensure_future(_play(ready, places, *each, news)) for each in waiting]
        try:
            left = len(tasks)
            while left:
                item = await news.get()
                if item is None:
                    left -= 1
                else:
                    yield item
            for task in tasks:
                await task  # raises what would fail every other call too
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _play(
    ready: Session,
    places: asyncio.Semaphore,
    turn: Turn,
    cases: list[Case],
    news: "asyncio.Queue[Result | str | None]",
) -> None:
    try:
        async with places:
            run = ready.engine.run(cases, turn.strategy, seed=turn.seed)
            async with aclosing(run) as outcomes:  # a stop ends its calls before the connection is closed
                async for outcome in outcomes:
                    news.put_nowait(result_of(turn, outcome))
    finally:
        news.put_nowait(None)


def result_of(turn: Turn, outcome: Outcome) -> Result | str:
    """Measure an outcome; one that failed, or lacks an answer, is words: it will be tried again."""
    bout, contest = outcome.bout, outcome.contest
    if outcome.failure is not None or bout is None or contest is None:
        return f"{turn.method}, case {outcome.name!r}: {outcome.failure}"
    passing = {cause: count for cause, count in outcome.ledger.unanswered.items() if cause not in LASTING}
    if passing:
        causes = ", ".join(f"{cause} ({count})" for cause, count in sorted(passing.items()))
        return f"{turn.method}, case {outcome.name!r}: some calls were not answered: {causes}"
    heard = []
    for judged in outcome.judged:
        read = [attempt.usage.prompt for attempt in judged.ruling.attempts]
        heard.append(Heard(judged.ask, judged.ruling.answer, sum(read), read[0] if read else 0))
    case = bout.case
    return measure(
        turn,
        turn.made_of_case(case_digest(case)),
        Pool(case.id, bout.described.entrants, labels(case), difficulty(case)),
        contest.selection,
        heard,
        depth=len(contest.transcript),
        malformed=outcome.ledger.malformed.total(),
    )
