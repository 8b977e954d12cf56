"""A run made ready: journal and connections opened, and closed in the end."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from caps.assemble.engines import capacity_of, connect_all, connected, equip, ray_engine
from caps.assemble.parts import load_templates, make_findings, price_for, templates_for
from caps.assemble.setup import Endpoint, Setup
from caps.core.errors import JournalError, MissingFeatureError
from caps.core.types import Ask, Level, Usage
from caps.costs.prices import Price, listed_price
from caps.engines.base import Engine
from caps.engines.budget import Account, Budget, CasePurse, Total
from caps.findings.kept import Findings
from caps.journal.store import Journal
from caps.judges.llm import LlmJudge, Seat
from caps.judges.recorded import RecordedJudge
from caps.models.base import Connected, Model
from caps.models.canary import canary
from caps.models.fleet_server import Record
from caps.models.journaled import JournaledModel
from caps.models.recorded import RecordedModel
from caps.prompts.grammar import WORD
from caps.sampling.presets import Preset
from caps.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Session:
    """A run made ready: the engine, the price of a token if it is known, and who looks into cases first.

    `servers` tells how the servers of a fleet fared; none where there is no fleet.
    """

    engine: Engine
    price: Price | None
    confidence: str
    findings: Findings | None = None
    servers: Callable[[], list[Record]] = list


@asynccontextmanager
async def session(
    setup: Setup, *, probe: bool = True, paid: Callable[[Usage], object] = lambda _: None
) -> AsyncIterator[Session]:
    """Open journal and connections, try each endpoint once, and hand out the engine; close all in the end.

    `paid` hears what trying an endpoint took: it is on no case's account.
    """
    from caps.models.fleet import FleetModel  # noqa: PLC0415  (loads a third of what a command loads)

    templates, price = templates_for(setup), price_for(setup)
    if setup.engine == "batch":
        from caps.assemble.batching import batch_engine, check_batch  # noqa: PLC0415

        check_batch(setup)
    for budget in (setup.case_budget, setup.total_budget):
        Account(budget, price)  # raises where dollars are limited and the price is unknown
    async with AsyncExitStack() as stack:
        journal = None
        if setup.journal is not None:
            journal = stack.enter_context(open_journal(setup.journal, durable=setup.durable))
        models = connect_all(setup)
        for model in models.values():
            stack.push_async_callback(model.close)
        if probe:
            confidence = await _confidence(setup, models, paid)
        else:
            confidence = setup.confidence.replace("auto", "verbal")
        settled = replace(setup, judge=replace(setup.judge, confidence=confidence))
        engine: Engine
        if setup.engine == "ray":
            findings = make_findings(setup, None)
            engine = ray_engine(settled, templates, price, findings)
        elif setup.engine == "batch" and journal is not None:
            findings = make_findings(setup, journal)
            engine = batch_engine(setup, models, journal, settled.judge, findings)
        else:
            bench = equip(settled, templates, price, models, journal=journal)
            engine, findings = bench.engine(setup.total_budget.seconds), bench.findings
        if findings is not None:
            stack.push_async_callback(findings.close)
        fleets = [model for model in models.values() if isinstance(model, FleetModel)]
        yield Session(
            engine, price, confidence, findings, lambda: [one for fleet in fleets for one in fleet.records()]
        )


@asynccontextmanager
async def sampler(
    setup: Setup,
    preset: Preset,
    *,
    logprobs: bool = False,
    probe: bool = True,
    paid: Callable[[Usage], object] = lambda _: None,
) -> AsyncIterator[Sampler]:
    """Open journal and connection, try the endpoint once, and hand out the desk where answers are written.

    `paid` hears what trying the endpoint took.
    """
    templates = load_templates(setup.prompts, shelf="generation")
    where, extra = setup.endpoint, {**preset.extra(), **setup.extra}
    price = setup.price or listed_price(where.model, where.base_url)
    purse = CasePurse(Budget(), price, Total(setup.total_budget, price))
    async with AsyncExitStack() as stack:
        journal = None
        if setup.journal is not None:
            journal = stack.enter_context(open_journal(setup.journal, durable=setup.durable))
        model = connected(where, setup)
        stack.push_async_callback(model.close)
        if probe:
            await canary(model, where.model, want_logprobs=logprobs, extra=extra, paid=paid)
        yield Sampler(
            model if journal is None else JournaledModel(model, journal),
            where.model,
            preset,
            templates,
            capacity=capacity_of(setup, [model]),
            logprobs=logprobs,
            extra=setup.extra,
            purse=purse,
        )


def remembering(setup: Setup, journal: Journal, unanswered: Mapping[tuple[str, Ask], str]) -> RecordedJudge:
    """The judge of a run, answering from its journal alone."""
    return RecordedJudge(judge_over(setup, RecordedModel(journal)), unanswered)


def judge_over(setup: Setup, model: Model) -> LlmJudge:
    """The judge of a run with another model in its seats: it asks in the same words."""
    partial = setup.endpoint_partial or setup.endpoint
    seats = {
        Level.PARTIAL: Seat(model, partial.model, setup.extra),
        Level.FULL: Seat(model, setup.endpoint.model, setup.extra),
    }
    return LlmJudge(seats, templates_for(setup), setup.judge)


def open_journal(path: Path, *, durable: bool = False) -> Journal:
    """Open the journal at a path, making its folder first."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JournalError(
            f"{path}: its folder cannot be made ({error.strerror}): give another --journal"
        ) from None
    return Journal.open(path, durable=durable)


async def _confidence(
    setup: Setup, models: Mapping[Endpoint, Connected], paid: Callable[[Usage], object]
) -> str:
    """Call every endpoint once; `auto` reads token probabilities where all of them give some."""
    wanted = setup.confidence != "verbal"
    held = {"grammar": WORD} if setup.judge.reply == "tags" else {}
    try:
        for where, model in models.items():
            extra = {**held, **setup.extra}
            await canary(model, where.model, want_logprobs=wanted, extra=extra, paid=paid)
    except MissingFeatureError:
        if setup.confidence == "logprobs":
            raise
        return "verbal"
    return "logprobs" if wanted else "verbal"
