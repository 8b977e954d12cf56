"""From a setup to the engine that plays, here or on a cluster."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from caps.assemble.parts import make_findings, prepare_for
from caps.assemble.setup import Endpoint, Setup
from caps.core.errors import InputError
from caps.core.types import Case, Level
from caps.costs.prices import Price
from caps.datasets.imports import open_cases
from caps.engines.bench import Bench
from caps.engines.budget import Pot
from caps.engines.cluster import Cluster
from caps.engines.local import LocalEngine
from caps.engines.ray import RayEngine
from caps.engines.ray_cases import is_for_ray, read_with_ray
from caps.findings.kept import Findings
from caps.journal.base import Keeper
from caps.judges.llm import LlmJudge, Seat
from caps.models.base import Connected, Model, Queued, Wiring, unheard
from caps.models.journaled import JournaledModel
from caps.models.locate import connect
from caps.text_workers import TextWorkers

SURPLUS_CALLS = 2  # that wait where the limit is found: it grows only if some do
CASES_AT_ONCE = 64  # of a worker that finds out by itself how many calls its server bears


def cases_for(engine: str, cluster: Cluster, path: str) -> Iterator[Case | InputError]:
    """The cases of a file, read by whoever suits the engine."""
    return read_with_ray(path, cluster) if engine == "ray" and is_for_ray(path) else open_cases(path)


def connected(where: Endpoint, setup: Setup) -> Connected:
    """The model at an endpoint, with the limits of a setup."""
    return connect(
        Wiring(
            address=where.base_url,
            model=where.model,
            api_key=where.api_key,
            connections=setup.connections,
            timeout=setup.timeout,
            context=setup.context,
            threads=setup.threads,
            tell=setup.tell,
        )
    )


def room_at(model: Connected) -> Callable[[], int]:
    """How to tell the number of calls that may be under way at a model, and should wait there."""
    if isinstance(model, Queued):
        return lambda: model.connections + model.surplus
    return lambda: model.connections


def capacity_of(setup: Setup, models: Iterable[Connected]) -> Callable[[], int]:
    """How to tell the number of calls a run should have under way, at all its models together."""
    rooms = [room_at(model) for model in models]
    surplus = SURPLUS_CALLS if setup.connections == "auto" else 0
    return lambda: sum(room() for room in rooms) + surplus


def connect_all(setup: Setup) -> dict[Endpoint, Connected]:
    """The model at each endpoint of a setup."""
    return {
        where: connected(where, setup) for where in {setup.endpoint, setup.endpoint_partial or setup.endpoint}
    }


def equip(
    setup: Setup,
    templates: Mapping[str, str],
    price: Price | None,
    models: Mapping[Endpoint, Connected],
    *,
    journal: Keeper | None,
    texts: TextWorkers,
    pot: Pot | None = None,
) -> Bench:
    """What plays contests in this process: judge, finders and engine over models and a journal.

    Whoever made `texts` closes it.
    """
    kept: dict[Endpoint, Model] = {
        where: model if journal is None else JournaledModel(model, journal) for where, model in models.items()
    }
    at_partial = setup.endpoint_partial or setup.endpoint
    seats = {
        Level.PARTIAL: Seat(kept[at_partial], at_partial.model, setup.extra),
        Level.FULL: Seat(kept[setup.endpoint], setup.endpoint.model, setup.extra),
    }
    judge = LlmJudge(seats, templates, setup.judge, texts=texts)
    prepare, findings = prepare_for(setup), make_findings(setup, journal, texts)
    capacity = capacity_of(setup, models.values())

    def engine(seconds: float | None) -> LocalEngine:
        return LocalEngine(
            judge,
            prepare,
            capacity=capacity,
            case_budget=setup.case_budget,
            total_budget=replace(setup.total_budget, seconds=seconds),
            price=price,
            grace=setup.grace,
            find=None if findings is None else findings.find,
            pot=pot,
            texts=texts,
        )

    return Bench(engine, findings)


@asynccontextmanager
async def equipped(
    setup: Setup, templates: Mapping[str, str], price: Price | None, journal: Keeper | None, pot: Pot | None
) -> AsyncIterator[Bench]:
    """The bench of a worker, with connections of its own, closed in the end."""
    async with AsyncExitStack() as stack:
        models, texts = connect_all(setup), TextWorkers()
        for model in models.values():
            stack.push_async_callback(model.close)
        stack.push_async_callback(texts.close)
        bench = equip(setup, templates, price, models, journal=journal, texts=texts, pot=pot)
        if bench.findings is not None:
            stack.push_async_callback(bench.findings.close)
        yield bench


def ray_engine(
    setup: Setup,
    templates: Mapping[str, str],
    price: Price | None,
    findings: Findings | None,
    texts: TextWorkers,
) -> RayEngine:
    """The engine on a cluster; connections are shared out among its workers."""
    workers, share = setup.cluster.workers, setup.connections
    if share != "auto":
        workers = min(workers, share)
        share //= workers
    return RayEngine(
        partial(equipped, replace(setup, connections=share, tell=unheard), templates, price),
        prepare_for(setup),
        cluster=replace(setup.cluster, workers=workers),
        room=CASES_AT_ONCE if share == "auto" else share,
        journal=None if setup.journal is None else setup.journal.resolve(),
        durable=setup.durable,
        total_budget=setup.total_budget,
        price=price,
        grace=setup.grace,
        unusable=None if findings is None else findings.unusable,
        texts=texts,
    )
