"""What a study would still ask of real judges: calls, tokens and money, before anything is spent."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from caps.core.errors import InputError
from caps.costs.prices import Price
from caps.journal.maintenance import measured_output
from caps.session.resolve import Resolved
from caps.studies.bench import Bench
from caps.studies.planning import PlanSettings, plan_cases
from caps.studies.suites import Shard, suite_cases

SAMPLE = 8  # problems of a suite whose prompts are rendered; the rest are taken to be like them
ASSUMED_REPLY = 400.0  # tokens, where no journal tells
ASSUMED_THOUGHT = 0.25  # of the room, where a judge has more of it than a plain reply needs
PLAIN_ROOM = 8192


@dataclass(slots=True)
class StudyForecast:
    """Sums over everything that is missing; `unpriced` names the models of which no price is known."""

    calls: float = 0.0
    read: float = 0.0
    written: float = 0.0
    dollars: float = 0.0
    assumed: bool = False  # the length of replies is unknown for some judge
    unpriced: tuple[str, ...] = ()


def forecast_study(
    benches: Iterable[Bench], *, limit: int | None, total: StudyForecast | None = None
) -> StudyForecast:
    """Forecast what is missing in some studies; what they play alike is counted once.

    It is more than will be paid: strategies share replies where they ask the same.
    """
    total, known = total or StudyForecast(), set[tuple[object, ...]]()
    for bench in benches:
        for shard in bench.shards:
            if shard.resolved is None or not shard.resolved.asks_model:
                continue
            counts = _missing(bench, shard, known)
            if counts:
                _add(total, shard, shard.resolved, counts, limit)
    return total


def add_calls(
    total: StudyForecast, resolved: Resolved, calls: float, read: float, *, reply: float | None = None
) -> None:
    """Add calls of a judge that read so many tokens; `reply` is the length of a reply, if it is known."""
    written = calls * (reply or _assumed(resolved))
    total.calls += calls
    total.read += read
    total.written += written
    total.assumed = total.assumed or reply is None
    add_price(total, resolved.price, resolved.judge_name, read, written)


def add_price(total: StudyForecast, price: Price | None, model: str, read: float, written: float) -> None:
    """Add what tokens cost, or the name of a model without a price."""
    if price is not None:
        total.dollars += price.of(round(read), round(written))
    elif model not in total.unpriced:
        total.unpriced = (*total.unpriced, model)


def _missing(bench: Bench, shard: Shard, known: set[tuple[object, ...]]) -> dict[str, int]:
    """How many cases each method has yet to play, over all seeds; not what another study plays too."""
    counts: dict[str, int] = {}
    for step in shard.steps:
        key = (shard.suite.cases, shard.suite.n, step.made_of, step.seed)
        if key not in known:
            known.add(key)
            counts[step.method] = counts.get(step.method, 0) + bench.missing(shard, step)
    return {method: count for method, count in counts.items() if count}


def _add(
    total: StudyForecast, shard: Shard, resolved: Resolved, counts: dict[str, int], limit: int | None
) -> None:
    strategies = {step.method: step.strategy for step in shard.steps if step.method in counts}
    settings = PlanSettings(
        tuple(strategies.values()),
        resolved.templates,
        resolved.config.profile,
        {name: str(view) for name, view in resolved.config.views.items()},
        shard.steps[0].seed,
    )
    sample = islice(suite_cases(shard.suite, limit), SAMPLE)
    reply = _reply(resolved)
    for method, found in zip(strategies, plan_cases(sample, settings), strict=True):
        if found.cases:
            share = counts[method] / found.cases
            add_calls(total, resolved, share * found.calls.mean, share * found.tokens.mean, reply=reply)


def _reply(resolved: Resolved) -> float | None:
    """Mean tokens of this judge's replies in the journal."""
    path = resolved.journal
    if path is None or not path.is_file():
        return None
    try:
        return measured_output(path, resolved.judge_name, list(resolved.templates))
    except InputError:  # it holds no replies of this judge yet
        return None


def _assumed(resolved: Resolved) -> float:
    """Tokens of a reply of unknown length; a judge with much room is expected to think."""
    room = next(spec.config.max_tokens for spec in resolved.judges if spec.judge is None)
    return ASSUMED_REPLY if room < PLAIN_ROOM else ASSUMED_THOUGHT * room
