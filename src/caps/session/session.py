"""A session: the open journal, connections and worker processes of a run, and the engine that plays it.

    async with open_session(resolve(config, keys)) as session:
        async for outcome in session.run(cases): ...

Opening a session finds out what `auto` leaves open (`Learned`); `stated_config` is the config with all of it
stated, so that a replay depends on no default, price list, server or working directory.
"""

import logging
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
)
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace as changed

from caps.config import RunConfig, path_options
from caps.config.judges import JudgeTable
from caps.core.errors import InputError
from caps.core.play import Strategy
from caps.core.secrets import shown_address
from caps.core.settings import settings_of
from caps.core.types import Case, Usage
from caps.costs.budget import at_price
from caps.costs.prices import Price
from caps.engines.base import Engine, Outcome, PerCase
from caps.engines.budget import Account, BudgetLimits, BudgetPool, CaseBudget, RunBudget
from caps.engines.local import LocalEngine
from caps.findings.base import Findings
from caps.journal.records import ReplyStore
from caps.journal.store import Journal
from caps.judging.base import Judge, NoJudge
from caps.judging.recorded import RecordedJudge
from caps.models.base import HasConnections, Model
from caps.models.endpoints import Endpoint, call_capacity, connections_of, least_context
from caps.models.journaled import JournaledModel, ReplayedModel
from caps.models.probing import Probed
from caps.models.rewards import TEMPLATES, RewardModel
from caps.models.servers import ServerRecord, ServersModel
from caps.registry import MODEL_JUDGES, allow, allowed
from caps.sampling.sampler import Sampler
from caps.session.engines import (
    Shared,
    batch_engine,
    case_budget,
    check_batch,
    local_engine,
    ray_engine,
    total_budget,
)
from caps.session.judges import (
    JudgeSpec,
    UnansweredAsks,
    check_judge,
    connect_judges,
    is_model,
    judge_of,
    probe_judges,
)
from caps.session.parts import generation_templates, make_findings
from caps.session.resolve import Resolved, generation_of
from caps.session.tracing import Tracing
from caps.workers.texts import TextWorkers

if TYPE_CHECKING:
    from caps.engines.remote import OpenContext, WorkerContext
    from caps.models.batch import PendingRequests
    from caps.models.tokenizing import Tokenizer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Learned:
    """What the servers of a run have told: per judge what `auto` left open, and the judge's context."""

    judges: Mapping[str, Probed] = field(default_factory=dict)
    context: int | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """An open run; `servers` returns what became of the calls to each of several servers."""

    resolved: Resolved
    engine: Engine
    learned: Learned
    findings: Findings | None = None
    servers: Callable[[], list[ServerRecord]] = list
    journal: Journal | None = None

    @property
    def confidence(self) -> str:
        """Where the confidence of the judge comes from: verbal or logprobs."""
        models = [spec for spec in self.resolved.judges if is_model(spec)]
        if not self.resolved.asks_model:
            return "verbal"
        return models[0].settings(self.learned.judges.get(models[0].table.name)).confidence

    def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase | None = None
    ) -> AsyncGenerator[Outcome, None]:
        """Select from all cases, with the strategy of the config unless another is given."""
        resolved = self.resolved
        chosen = strategy or resolved.strategy
        complete = resolved.cases.with_feature_warnings(map(resolved.cases.apply, cases), chosen)
        return self.engine.run(complete, chosen, seed=resolved.config.seed)


@asynccontextmanager
async def open_session(
    resolved: Resolved, *, paid: Callable[[Usage], object] = lambda _: None
) -> AsyncIterator[Session]:
    """Open the journal and connections, find out what `auto` leaves open, and yield a session.

    `paid` is called with the usage of test calls, which belong to no case.
    """
    config = resolved.config
    for spec in resolved.judges:  # before anything is asked
        check_judge(spec, resolved.strategy, resolved.strategy_name)
    read_tokenizer(config)  # an unreadable one fails before anything is asked
    if config.engine == "batch" or config.batch_dir is not None:
        check_batch(resolved)
    for budget in (case_budget(config), total_budget(config)):
        Account(budget, resolved.price)  # raises if dollars are limited and the price is unknown
    async with AsyncExitStack() as stack:
        journal = _open_journal(stack, resolved)
        models = _connect(stack, resolved)
        context = await least_context(models) if config.context_tokens is None else None
        judges = {} if config.batch_dir is not None else await probe_judges(resolved, models, paid)
        learned = Learned(judges, context)
        shared = _open_shared(stack, resolved, learned, None if config.engine == "ray" else journal)
        engine: Engine
        if config.engine == "ray":
            engine = ray_engine(resolved, partial(_worker_of, learned), shared)
        elif config.engine == "batch" and journal is not None:
            make_judge = partial(_pending_judge, resolved, learned)
            engine = batch_engine(resolved, models, journal, make_judge, shared)
        else:
            engine = local_engine(
                resolved,
                journaled_judge(resolved, models, journal, learned),
                capacity_of(resolved, models.values()),
                shared,
                seconds=config.budget_total_seconds,
            )
        clients = [model.server if isinstance(model, RewardModel) else model for model in models.values()]
        several = [model for model in clients if isinstance(model, ServersModel)]
        _log_opened(resolved, learned)
        records = partial(_server_records, several)
        yield Session(resolved, engine, learned, shared.findings, records, journal)


def _open_shared(
    stack: AsyncExitStack,
    resolved: Resolved,
    learned: Learned,
    journal: ReplyStore | None,
) -> Shared:
    """What all contests of this process share; closed with the stack."""
    texts = TextWorkers()
    stack.push_async_callback(texts.close)
    findings = open_findings(resolved, journal, texts)
    if findings is not None:
        stack.push_async_callback(findings.close)
    prepare = resolved.preparation(findings=resolved.merges_equal, context=learned.context)
    return Shared(prepare, findings, texts)


def _log_opened(resolved: Resolved, learned: Learned) -> None:
    for spec in resolved.judges:
        if not resolved.asks_judge or isinstance(spec.judge, NoJudge):
            continue
        where = "" if spec.where is None else f" at {shown_address(spec.where.base_url)}"
        _log.info("strategy %s, judge %s%s", resolved.strategy_name, spec.name, where)
    _log.debug("what the servers report: %s; journal %s", learned, resolved.journal)


def _open_journal(stack: AsyncExitStack, resolved: Resolved) -> Journal | None:
    if resolved.journal is None:
        return None
    return stack.enter_context(Journal.open(resolved.journal, durable=resolved.config.durable))


def _connect(stack: AsyncExitStack, resolved: Resolved) -> dict[Endpoint, HasConnections]:
    """Connect to the model at each judging endpoint; empty if no model judges."""
    if not resolved.asks_model or resolved.config.batch_dir is not None:
        return {}
    models = connect_judges(resolved)
    for model in models.values():
        stack.push_async_callback(model.close)
    return models


def read_tokenizer(config: RunConfig) -> "Tokenizer | None":
    """The tokenizer for servers that do not report token counts, if any."""
    if config.tokenizer is None:
        return None
    from caps.models.tokenizing import Tokenizer  # noqa: PLC0415  (loads aiohttp)

    return Tokenizer(Path(config.tokenizer))


def recorded_model(model: Model, journal: ReplyStore | None, config: RunConfig) -> Model:
    """A model whose replies the journal stores and whose tokens the tokenizer counts, as far as set."""
    stored = model if journal is None else JournaledModel(model, journal)
    tokenizer = read_tokenizer(config)
    if tokenizer is None:
        return stored
    from caps.models.tokenizing import CountedModel  # noqa: PLC0415

    return CountedModel(stored, tokenizer)


def journaled_judge(
    resolved: Resolved, models: Mapping[Endpoint, Model], journal: ReplyStore | None, learned: Learned
) -> Judge:
    """The judge with these models, whose replies are stored in the journal."""
    stored = {where: recorded_model(model, journal, resolved.config) for where, model in models.items()}
    return judge_of(resolved, stored.__getitem__, learned=learned.judges, journal=journal, servers=models)


def replayed_judge(resolved: Resolved, journal: Journal, unanswered: UnansweredAsks) -> Judge:
    """The judge of a run, answering only from its journal."""
    model = ReplayedModel(journal)
    return judge_of(resolved, lambda _: model, unanswered=unanswered, waits=False)


def replays_from_journal(config: RunConfig) -> bool:
    """Whether the journal holds all answers; those of plug-ins are in the folder of the run."""
    judges = [table.judge for table in config.judges] or [config.judge]
    return all(judge in MODEL_JUDGES for judge in judges)


def _pending_judge(resolved: Resolved, learned: Learned, requests: "PendingRequests") -> Judge:
    """The judge of batches, whose models answer from the journal and collect what it lacks."""
    from caps.models.batch import PendingModel  # noqa: PLC0415

    return judge_of(
        resolved, lambda where: PendingModel(requests, where), learned=learned.judges, waits=False
    )


def open_findings(
    resolved: Resolved,
    journal: ReplyStore | None,
    texts: TextWorkers,
) -> Findings | None:
    """The findings that are computed before any judge is asked, unless they are off."""
    config = resolved.config
    return None if config.hard_evidence == "off" else make_findings(config, journal, texts)


def capacity_of(resolved: Resolved, models: Collection[Model]) -> Callable[[], int]:
    """A function that returns the number of concurrent calls at all models together."""
    limit, judges = resolved.config.max_connections, resolved.judges
    if models:
        return call_capacity(models, auto=limit == "auto")
    judge = judges[0].judge if len(judges) == 1 else None
    return lambda: connections_of(judge) if limit == "auto" else limit


def _server_records(models: Iterable[ServersModel]) -> list[ServerRecord]:
    return [record for model in models for record in model.records()]


# Workers of the ray engine


def _worker_of(learned: Learned, resolved: Resolved) -> "OpenContext":
    """How a worker makes its context; names of the user's own code are allowed there as here."""
    return partial(open_worker, resolved, learned, allowed())


@asynccontextmanager
async def open_worker(
    resolved: Resolved,
    learned: Learned,
    own_code: Mapping[str, str],
    journal: ReplyStore | None,
    budget_pool: BudgetPool | None,
) -> "AsyncIterator[WorkerContext]":
    """The context of a worker process, with its own connections, closed at the end."""
    from caps.engines.remote import WorkerContext  # noqa: PLC0415

    for name, folder in own_code.items():
        allow((name,), folder)
    async with AsyncExitStack() as stack:
        models = _connect(stack, resolved)
        shared = _open_shared(stack, resolved, learned, journal)
        judge = journaled_judge(resolved, models, journal, learned)
        capacity = capacity_of(resolved, models.values())

        def engine(seconds: float | None) -> LocalEngine:
            return local_engine(
                resolved, judge, capacity, shared, seconds=seconds, budget_pool=budget_pool, keep_going=True
            )

        yield WorkerContext(engine, Counter() if shared.findings is None else shared.findings.unusable)


# Generation


@asynccontextmanager
async def open_samplers(resolved: Resolved) -> AsyncIterator[list[Sampler]]:
    """Open the journal and the connections, and yield a sampler for each model that writes answers."""
    config, sources = resolved.config, generation_of(resolved).sources
    price = sources[0].price
    budget = CaseBudget(BudgetLimits(), price, RunBudget(total_budget(config), price))
    templates = generation_templates(config)
    async with AsyncExitStack() as stack:
        journal, samplers = _open_journal(stack, resolved), list[Sampler]()
        for source in sources:
            model = resolved.connector.connect(source.where, config)
            stack.push_async_callback(model.close)
            recorded = recorded_model(model, journal, config)
            samplers.append(
                Sampler(
                    Tracing().model(recorded) if config.otel else recorded,
                    source.where.model,
                    source.preset,
                    templates,
                    capacity=capacity_of(resolved, [model]),
                    logprobs=config.logprobs,
                    extra=config.extra,
                    budget=at_price(budget, source.price),
                )
            )
        try:
            yield samplers
        finally:
            for sampler in samplers:
                await sampler.stop(resolved.grace)


# The config that a run file states


def stated_config(resolved: Resolved, learned: Learned | None = None) -> RunConfig:
    """The config with all derived values stated, and what was `learned` from servers, if they were asked."""
    config, learned = resolved.config, learned or Learned()
    changes: dict[str, Any] = {"strategy": resolved.strategy_name, "judge_profile": None}
    changes["settings"] = settings_of(resolved.strategy) or dict(config.settings)
    changes["criteria"] = "\n".join(resolved.cases.criteria) or None
    for name in path_options():
        if name not in changes and getattr(config, name) is not None:
            changes[name] = str(Path(getattr(config, name)).resolve())
    if config.reward_template is not None and config.reward_template not in TEMPLATES:
        changes["reward_template"] = str(Path(config.reward_template).resolve())
    first = resolved.judges[0]
    if config.recorded is not None and not config.judges and isinstance(first.judge, RecordedJudge):
        changes["recorded_judge"] = first.judge.name
    if resolved.asks_model:
        changes |= _stated_endpoints(resolved)
        changes["context_tokens"] = config.context_tokens or learned.context
        probed = next(iter(learned.judges.values()), None)
        changes["confidence"] = config.confidence if probed is None else probed.confidence
    if not config.judges:
        if resolved.asks_model:
            changes |= _stated_asking(first, learned)
        return config.with_values({**changes, **_stated_price(resolved.price)})
    if not config.model:  # the first judge stands in for it
        changes |= {"model": None, "base_url": config.base_url}
    changes["judges"] = [_stated_table(spec, learned) for spec in resolved.judges]
    return config.with_values(changes)


def _stated_endpoints(resolved: Resolved) -> dict[str, str]:
    generator = resolved.generator
    judge = next(spec.where for spec in resolved.judges if spec.where is not None)
    assert generator is not None  # noqa: S101  (found for every run that asks a model)
    values = {"model": generator.model, "base_url": generator.base_url}
    if judge != generator:
        values |= {"judge_model": judge.model, "judge_base_url": judge.base_url}
    return values


def _stated_asking(spec: JudgeSpec, learned: Learned) -> dict[str, Any]:
    """The settings of how the judge is asked."""
    probed = learned.judges.get(spec.table.name)
    settings, reply = spec.settings(probed), spec.config.reply
    is_known = reply != "auto" or (probed is not None and probed.reply is not None)
    return {
        "max_tokens": settings.max_tokens,
        "judge_temperature": settings.temperature,
        "reply": settings.reply if is_known else reply,
        "extra": spec.config.extra,
    }


def _stated_table(spec: JudgeSpec, learned: Learned) -> JudgeTable:
    if spec.where is None:
        return spec.table
    return changed(
        spec.table,
        model=spec.where.model,
        base_url=(spec.where.base_url,) if spec.where.base_url else (),
        settings={**spec.table.settings, **_stated_asking(spec, learned), **_stated_price(spec.price)},
    )


def _stated_price(price: Price | None) -> dict[str, Any]:
    """A price as settings; none if it is unknown."""
    return {} if price is None else {f"price_{name}": value for name, value in asdict(price).items()}
