"""The engines of a run: in this process, in several processes, on a Ray cluster, and through Batch APIs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caps.config import RunConfig
from caps.core.errors import InputError, SettingError
from caps.core.play import Strategy
from caps.core.settings import override, setting_text
from caps.core.types import Case
from caps.costs.prices import Price
from caps.engines.base import Cluster, Engine, PerCase, Prepare
from caps.engines.budget import BudgetLimits, BudgetPool, CaseBudget, RunBudget
from caps.engines.local import LocalEngine, warms_prefix
from caps.findings.base import Findings
from caps.journal.store import Journal
from caps.judging.base import Judge
from caps.models.base import Model
from caps.models.endpoints import Endpoint
from caps.tracing import TracedEngine, Tracing
from caps.workers.texts import TextWorkers

if TYPE_CHECKING:
    from caps.engines.batch import MakeBatchState
    from caps.engines.batch_files import BatchSettings
    from caps.engines.remote import MakeContext
    from caps.models.pending import PendingRequests

CASES_AT_ONCE = 64  # of a worker with an automatic connection limit


@dataclass(frozen=True, slots=True)
class EngineFactory:
    """Creates the engines of a run; `grace` is how long a stopped one waits for running calls, in seconds."""

    config: RunConfig
    prepare: Prepare
    price: Price | None
    grace: float

    def local(
        self,
        judge: Judge,
        capacity: Callable[[], int],
        *,
        texts: TextWorkers,
        findings: Findings | None,
        seconds: float | None,
        budget_pool: BudgetPool | None,
        keep_going: bool,
    ) -> LocalEngine:
        """The engine that runs contests in this process, for at most some `seconds` in total."""
        config, tracing = self.config, Tracing() if self.config.otel else None
        make = LocalEngine if tracing is None else TracedEngine
        timed = config.budget_seconds is not None
        engine = make(
            judge if tracing is None else tracing.judge(judge),
            self.prepare,
            capacity=capacity,
            case_budget=case_budget(config),
            total_budget=replace(total_budget(config), seconds=seconds),
            price=self.price,
            grace=self.grace,
            find=None if findings is None else findings.find,
            budget_pool=budget_pool,
            texts=texts,
            warm_prefix=partial(warms_prefix, mode=config.warm_prefix, price=self.price, timed=timed),
            keep_going=keep_going,
        )
        if tracing is not None and isinstance(engine, TracedEngine):
            engine.tracing = tracing
        return engine

    def shared(
        self,
        make_worker: "Callable[[RunConfig], MakeContext]",
        findings: Findings | None,
        texts: TextWorkers,
    ) -> Engine:
        """The engine in several processes or on a cluster; connections are divided among its workers.

        `make_worker` makes the context of a worker from the config of its share.
        """
        from caps.engines.processes import ProcessEngine  # noqa: PLC0415
        from caps.engines.ray import RayEngine  # noqa: PLC0415

        config, ray = self.config, cluster(self.config)
        workers = ray.workers if config.engine == "ray" else config.processes
        share = config.max_connections
        if share != "auto":
            workers = min(workers, share)
            share //= workers
        make_context = make_worker(replace(config, max_connections=share))
        settings: dict[str, Any] = {
            "capacity": CASES_AT_ONCE if share == "auto" else share,
            "journal": None if config.journal is None else Path(config.journal).resolve(),
            "durable": config.durable,
            "total_budget": total_budget(config),
            "price": self.price,
            "grace": self.grace,
            "unusable": None if findings is None else findings.unusable,
            "texts": texts,
            "keep_going": config.keep_going,
        }
        if config.engine == "ray":
            return RayEngine(make_context, self.prepare, cluster=replace(ray, workers=workers), **settings)
        return ProcessEngine(make_context, self.prepare, processes=workers, **settings)

    def batch(
        self,
        models: Mapping[Endpoint, Model],
        journal: Journal,
        make_state: "Callable[[PendingRequests], MakeBatchState]",
        findings: Findings | None,
    ) -> Engine:
        """The engine that sends batches to the endpoints of models; see `batch_states`."""
        from caps.engines.batch import BatchEngine  # noqa: PLC0415

        find = None if findings is None else findings.find
        settings = batch_settings(self.config)
        return BatchEngine.connected(models, journal, make_state, settings=settings, find=find)

    def batch_states(self, judge: Judge, waiting: "PendingRequests") -> "MakeBatchState":
        """How cases move through batches together, with a judge whose models wait for replies."""
        from caps.engines.batch import BatchState  # noqa: PLC0415

        def budget() -> CaseBudget:
            return CaseBudget(case_budget(self.config), self.price, RunBudget(BudgetLimits(), self.price))

        def make(cases: Sequence[Case | InputError], strategy: Strategy | PerCase, seed: int) -> BatchState:
            return BatchState(
                cases, strategy, seed=seed, judge=judge, prepare=self.prepare, waiting=waiting, budget=budget,
                keep_going=self.config.keep_going,
            )  # fmt: skip

        return make


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
    from caps.engines.batch_files import BatchSettings  # noqa: PLC0415

    return override(BatchSettings(), {name: setting_text(value) for name, value in config.batch.items()})


def check_batch(config: RunConfig) -> None:
    """Refuse settings that batches do not support, before anything is sent."""
    from caps.engines.batch import check_batch_budgets  # noqa: PLC0415

    check_batch_budgets(case_budget(config), total_budget(config))
    if config.journal is None:
        raise SettingError("batches need a journal: leave out --no-journal")
    if config.write_tests:
        raise SettingError("write_tests: tests cannot be written through batches; use --engine local")
