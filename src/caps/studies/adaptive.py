"""Adaptive sampling on pools of labelled candidates, with a simulated judge: samples, verdicts and costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from caps.core.policy import Draw, Event, JudgePrice, Policy, PolicyRun, Pool, Source
from caps.core.types import Answer, Ask, Entrant, Selection
from caps.costs.prices import Price
from caps.judging.simulated import JudgeModel, SimulatedJudge
from caps.sampling.generators import QUALITY
from caps.statistics.estimates import Range
from caps.strategies.agreement import CERTAINTY, NEW_WRONG
from caps.studies.simulation import PoolModel

SEED = 7
DRAWS = 200  # simulated problems of a forecast


@dataclass(frozen=True, slots=True)
class Simulated:
    """A policy on one pool: the samples it started, what it asked, and its choice."""

    started: int
    asks: tuple[Ask, ...]
    selection: Selection


def simulate_policy(
    policy: Policy,
    entrants: Sequence[Entrant],
    answer: Callable[[Ask], Answer],
    *,
    sample_price: Callable[[int], float],
    judge: JudgePrice | None,
    seed: int | str,
) -> Simulated:
    """Run a policy whose samples are these candidates, in order, told one by one.

    `sample_price` is the mean price of the first samples. Samples that were started and not waited for count.
    """
    arrived = started = 0
    asks = list[Ask]()

    def pool() -> Pool:
        source = Source(sample_price(arrived), QUALITY, started, started - arrived)
        known = tuple(entrants[:arrived])
        full = started >= len(entrants)
        return Pool((source,), known, (0,) * arrived, judge, closed=full)

    run = PolicyRun(policy, Event(pool()), seed=seed)
    while (action := run.pending) is not None:
        if isinstance(action, Draw):
            started = min(len(entrants), started + sum(action.counts))
            arrived += 1
            run.tell(Event(pool()))
        else:
            asks += action.asks
            run.tell(Event(pool(), tuple(map(answer, action.asks))))
    assert run.selection is not None  # noqa: S101
    return Simulated(started, tuple(asks), run.selection)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one problem is expected to take: samples, tokens read and written, verdicts, and money."""

    samples: Range
    prompt: Range
    output: Range
    verdicts: Range
    usd: Range | None


def forecast_problem(
    policy: Policy, prompt: int, *, most: int, sample_tokens: int, reply_tokens: float, price: Price | None
) -> Forecast:
    """Simulate one problem many times; its difficulty is unknown, as the policy assumes before any sample.

    The judge is simulated with an accuracy of 80 %.
    """
    weighed = price or Price(1.0, 4.0)
    overhead = prompt + 250
    model = PoolModel(
        n=most, kind="math", solve_rate=QUALITY, spread=CERTAINTY, new_wrong=NEW_WRONG,
        partial_tokens=sample_tokens // 3, full_tokens=sample_tokens, overhead=overhead,
    )  # fmt: skip
    sample = weighed.of(prompt, sample_tokens)
    judge = JudgePrice(weighed.of(1000, 0) / 1000, weighed.of(0, round(reply_tokens)), overhead)
    rows = []
    for number in range(DRAWS):
        pool = model.pool(number, SEED)
        judging = SimulatedJudge(JudgeModel(), pool.entrants, pool.correct, seed=SEED, case=number)
        done = simulate_policy(
            policy, pool.entrants, judging.answer, sample_price=lambda _: sample, judge=judge, seed=number,
        )  # fmt: skip
        asked = sum(map(pool.tokens, done.asks))
        read = done.started * prompt + asked
        written = done.started * sample_tokens + len(done.asks) * reply_tokens
        rows.append((done.started, read, written, len(done.asks), weighed.of(round(read), round(written))))
    samples, read_, written_, verdicts, usd = (Range.of(column) for column in zip(*rows, strict=True))
    return Forecast(samples, read_, written_, verdicts, None if price is None else usd)
