"""The engines of a run: in this process, on a Ray cluster, and through Batch APIs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from caps.config import RunConfig
from caps.core.errors import SettingError
from caps.core.settings import override, setting_text
from caps.engines.base import Cluster, Engine
from caps.engines.budget import BudgetLimits, BudgetPool, CaseBudget, RunBudget
from caps.engines.local import LocalEngine, warms_prefix
from caps.findings.base import Findings
from caps.journal.store import Journal
from caps.judging.base import Judge
from caps.judging.preparation import CasePreparation
from caps.models.base import Model
from caps.models.endpoints import Endpoint
from caps.session.tracing import TracedEngine, Tracing
from caps.workers.texts import TextWorkers

if TYPE_CHECKING:
    from caps.engines.batch_carriers import BatchSettings
    from caps.engines.remote import OpenContext
    from caps.models.batch import PendingRequests
    from caps.session.resolve import Resolved

CASES_AT_ONCE = 64  # of a worker with an automatic connection limit


@dataclass(frozen=True, slots=True)
class Shared:
    """What all contests of a process share: how cases are prepared, findings, and workers for long texts."""

    prepare: CasePreparation
    findings: Findings | None
    texts: TextWorkers


def local_engine(
    resolved: "Resolved",
    judge: Judge,
    capacity: Callable[[], int],
    shared: Shared,
    *,
    seconds: float | None = None,
    budget_pool: BudgetPool | None = None,
    keep_going: bool | None = None,
) -> LocalEngine:
    """The engine that runs contests in this process, for at most some `seconds` in total.

    Engines that share a judge share the calls that are under way. An engine that runs only some of the cases
    of a run must `keep_going` although it cannot read their replies; else the config says so.
    """
    config, tracing = resolved.config, Tracing() if resolved.config.otel else None
    make = LocalEngine if tracing is None else TracedEngine
    timed = config.budget_seconds is not None
    engine = make(
        judge if tracing is None else tracing.judge(judge),
        shared.prepare,
        capacity=capacity,
        case_budget=case_budget(config),
        total_budget=replace(total_budget(config), seconds=seconds),
        price=resolved.price,
        grace=resolved.grace,
        find=None if shared.findings is None else shared.findings.find,
        budget_pool=budget_pool,
        texts=shared.texts,
        warm_prefix=partial(warms_prefix, mode=config.warm_prefix, price=resolved.price, timed=timed),
        keep_going=config.keep_going if keep_going is None else keep_going,
    )
    if tracing is not None and isinstance(engine, TracedEngine):
        engine.tracing = tracing
    return engine


def ray_engine(
    resolved: "Resolved",
    make_worker: "Callable[[Resolved], OpenContext]",
    shared: Shared,
) -> Engine:
    """The engine on a cluster; connections are divided among its workers.

    `make_worker` makes the context of a worker from the run of its share.
    """
    from caps.engines.ray import RayEngine  # noqa: PLC0415

    config, machines = resolved.config, cluster(resolved.config)
    share = config.max_connections
    if share != "auto":
        machines = replace(machines, workers=min(machines.workers, share))
        share //= machines.workers
    return RayEngine(
        make_worker(resolved.with_config(replace(config, max_connections=share))),
        shared.prepare,
        cluster=machines,
        capacity=CASES_AT_ONCE if share == "auto" else share,
        journal=None if config.journal is None else Path(config.journal).resolve(),
        durable=config.durable,
        total_budget=total_budget(config),
        price=resolved.price,
        grace=resolved.grace,
        unusable=None if shared.findings is None else shared.findings.unusable,
        keep_going=config.keep_going,
    )


def batch_engine(
    resolved: "Resolved",
    models: Mapping[Endpoint, Model],
    journal: Journal,
    make_judge: "Callable[[PendingRequests], Judge]",
    shared: Shared,
) -> Engine:
    """The engine that sends batches to the endpoints of models, or writes them to the batch folder."""
    from caps.engines.batch import BatchEngine, Carrier  # noqa: PLC0415
    from caps.engines.batch_carriers import FolderCarrier, HttpCarrier  # noqa: PLC0415
    from caps.models.batch import Failures, PendingRequests  # noqa: PLC0415

    config, settings, price = resolved.config, batch_settings(resolved.config), resolved.price
    requests = PendingRequests(journal, Failures(settings.tries))
    carrier: Carrier
    if config.batch_dir is None:
        carrier = HttpCarrier(models, requests, settings)
    else:
        carrier = FolderCarrier(Path(config.batch_dir), requests, settings, started=resolved.started)

    def new_budget() -> CaseBudget:
        return CaseBudget(case_budget(config), price, RunBudget(BudgetLimits(), price))

    return BatchEngine(
        make_judge(requests), shared.prepare, requests, carrier, new_budget=new_budget,
        find=None if shared.findings is None else shared.findings.find, keep_going=config.keep_going,
    )  # fmt: skip


def case_budget(config: RunConfig) -> BudgetLimits:
    """The budget of one case."""
    return BudgetLimits(tokens=config.budget_tokens, usd=config.budget_usd, seconds=config.budget_seconds)


def total_budget(config: RunConfig) -> BudgetLimits:
    """The budget of the whole run."""
    return BudgetLimits(
        tokens=config.budget_total_tokens, usd=config.budget_total_usd, seconds=config.budget_total_seconds
    )


def cluster(config: RunConfig) -> Cluster:
    """The Ray cluster of the ray engine."""
    return Cluster(address=config.ray_address, workers=config.ray_workers)


def batch_settings(config: RunConfig) -> "BatchSettings":
    """The settings of the batch engine."""
    from caps.engines.batch_carriers import BatchSettings  # noqa: PLC0415

    return override(BatchSettings(), {name: setting_text(value) for name, value in config.batch.items()})


def batch_started(config: RunConfig) -> float | None:
    """When the run of the batch folder began, in seconds since 1970; None if there is none yet."""
    if config.batch_dir is None:
        return None
    from caps.engines.batch_carriers import read_state  # noqa: PLC0415

    state = read_state(Path(config.batch_dir))
    return None if state is None else state.started


def check_batch(resolved: "Resolved") -> None:
    """Refuse settings that batches do not support, before anything is sent."""
    config = resolved.config
    if config.batch_dir is not None:
        if config.engine != "batch":
            raise SettingError(f"--batch-dir is for --engine batch, not {config.engine}")
        for name, instead in (("confidence", "verbal or logprobs"), ("reply", "free, tags or json")):
            if getattr(config, name) == "auto":
                raise SettingError(f"--{name} auto needs a server to ask, not --batch-dir: choose {instead}")
    if config.budget_seconds is not None or total_budget(config) != BudgetLimits():
        raise SettingError(
            "a batch keeps budgets of tokens and dollars for each case, none of seconds and none in total: "
            "give --budget-tokens or --budget-usd, --max-usd to refuse the start, or --engine local"
        )
    if config.journal is None:
        raise SettingError("batches need a journal: leave out --no-journal")
    places = [spec.where for spec in resolved.judges if spec.where is not None]
    if config.batch_dir is not None and resolved.asks_model and not all(where.model for where in places):
        raise SettingError("no model: give --model NAME, or set CAPS_MODEL")
