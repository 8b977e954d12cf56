"""`Runner`: the one place where a config becomes the objects that do the work.

Every entry point builds a `RunConfig` and passes it to a `Runner`. Nothing else constructs a judge, an
engine, a sampler or finders, so the same config gives the same selections everywhere. The parts it composes
know one subject each: `Judges` the judges, `EngineFactory` the engines, `TunableParts` the strategy, the
sampling method and its preset, `CaseDefaults` what is added to cases, and `Connector` where models are.

    runner = Runner(config, keys=keys)
    async with runner.session() as session:
        async for outcome in session.run(cases): ...

An object passed instead of a name (`judge`, `model`, `strategy`) replaces what the config would have built;
journal, budgets, costs and reports stay. It is recorded by its name, and a replay needs it again. A judge may
also be a function: see `judging.callables`.
"""

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from caps.building import (
    load_templates,
    make_findings,
    make_prepare,
    make_test_writer,
    open_journal,
)
from caps.case_defaults import CaseDefaults, with_feature_warnings
from caps.config import Keys, RunConfig
from caps.core.errors import InputError, SettingError
from caps.core.play import AskKind, Strategy, capabilities_of
from caps.core.settings import settings_of
from caps.core.types import Case, Usage
from caps.costs.prices import HighestPrice, Price, listed_price
from caps.engine_factory import (
    EngineFactory,
    batch_started,
    case_budget,
    check_batch,
    cluster,
    total_budget,
)
from caps.engines.base import Cluster, Engine, Outcome, PerCase
from caps.engines.budget import Account, BudgetLimits, BudgetPool, CaseBudget, RunBudget
from caps.engines.local import LocalEngine
from caps.findings.base import Findings
from caps.journal.records import ReplyStore
from caps.journal.store import Journal
from caps.judge_source import JudgeSource, stated_prices
from caps.judges import ONLY, Judges, UnansweredAsks, check_recorded, config_alone, keys_alone
from caps.judging.base import Judge, NoJudge
from caps.judging.callables import JudgeFunction, as_judge
from caps.judging.llm import JudgeSettings
from caps.judging.preparation import CasePreparation
from caps.judging.recorded import RecordedJudge
from caps.models.base import HasConnections, Model, Notify, ignore
from caps.models.endpoints import (
    Callbacks,
    Connector,
    Endpoint,
    Endpoints,
    call_capacity,
    connections_of,
    least_context,
)
from caps.models.journaled import JournaledModel
from caps.models.probing import VisionTests
from caps.models.replayed import ReplayedModel
from caps.models.rewards import TEMPLATES, Form, RewardModel
from caps.models.servers import ServerRecord, ServersModel
from caps.models.weights import Report
from caps.registry import allow, allowed
from caps.sampling.base import Method
from caps.sampling.generators import GeneratorSource, read_sources
from caps.sampling.presets import Preset
from caps.sampling.sampler import Sampler
from caps.tracing import Tracing
from caps.tunable_parts import TunableParts
from caps.workers.texts import TextWorkers

if TYPE_CHECKING:
    from caps.engines.remote import OpenContext, WorkerContext
    from caps.models.pending import PendingRequests
    from caps.models.tokenizing import Tokenizer

#: The settings that name a file or a folder, which the run file states as absolute paths.
PATHS = ("journal", "batch_dir", "tokenizer", "prompts", "repositories", "recorded")


@dataclass(frozen=True, slots=True)
class Session:
    """A prepared run; `servers` returns what became of the calls to each of several servers."""

    runner: "Runner"
    engine: Engine
    confidence: str
    findings: Findings | None = None
    servers: Callable[[], list[ServerRecord]] = list
    journal: Journal | None = None

    def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase | None = None
    ) -> AsyncGenerator[Outcome, None]:
        """Select from all cases, with the strategy of the config unless another is given."""
        chosen = strategy or self.runner.strategy
        stated = self.runner.with_feature_warnings(map(self.runner.apply_to_case, cases), chosen)
        return self.engine.run(stated, chosen, seed=self.runner.config.seed)


class Runner:
    """Builds everything a run needs from its config; see the module's docstring."""

    def __init__(
        self,
        config: RunConfig,
        *,
        keys: Keys | None = None,
        judge: Judge | JudgeFunction | None = None,
        judge_objects: Mapping[str, Judge | JudgeFunction] | None = None,
        model: Model | None = None,
        strategy: Strategy | None = None,
        method: Method | None = None,
        preset: Preset | None = None,
        generating: bool = False,
        offline: bool = False,
        any_model: bool = False,
        warn: Notify = ignore,
        fetching: Report | None = None,
        grace: float = 0.0,
        started: float | None = None,
    ) -> None:
        """A `generating` run also accepts settings of the sampling method and the preset.

        `judge` takes the place of all judges of the config, and `judge_objects` that of single ones, by the
        names of their tables. `offline` runs name models but do not connect. With `any_model`, each request
        names its model.
        `fetching` is called while weights are downloaded. `grace` is the number of seconds that a stopped run
        waits for running calls, which are paid for. `started` is when a run that goes on, or is replayed,
        began, in seconds since 1970: asks of which earlier runs could read no reply are asked again.
        """
        if generating and config.generator and config.samples != "auto":
            raise SettingError("several generators need --n auto: add it, or leave out the generators")
        self.config = config if judge is None else replace(config, judges=())
        self.keys = keys or Keys()
        objects = dict(judge_objects or {}) if judge is None else {ONLY: judge}
        if len(self.config.judges) == 1:  # it is the judge of the run
            table = config.judges[0]
            check_recorded(config)
            objects = {ONLY: objects[table.name]} if table.name in objects else {}
            self.config, self.keys = config_alone(config, table), keys_alone(config, self.keys, table)
        self._judge_objects = {name: as_judge(one, timeout=config.timeout) for name, one in objects.items()}
        self._callbacks = Callbacks(warn, fetching)
        offline = offline or config.batch_dir is not None
        self._connector = Connector(model, offline=offline, any_model=any_model, callbacks=self._callbacks)
        self._vision = VisionTests(self._callbacks)
        self._parts = TunableParts(self.config, strategy, method, preset, generating=generating)
        self._generating, self._grace = generating, grace
        began = batch_started(config) if started is None else started
        self.started = time.time() if began is None else began
        self._served_context: int | None = None

    @property
    def grace(self) -> float:
        """Seconds that a stopped run waits for running calls."""
        return self._grace

    # Judges

    @cached_property
    def _judges(self) -> Judges:
        return Judges(
            self.config,
            self.keys,
            objects=self._judge_objects,
            connector=self._connector,
            vision=self._vision,
            generating=self._generating,
        )

    @property
    def judge_sources(self) -> tuple[JudgeSource, ...]:
        """The judges, at least one, each as its config describes it."""
        return self._judges.sources

    @property
    def has_own_judge(self) -> bool:
        """Whether no judge is a model: an object, a plug-in or recorded verdicts judge."""
        return not self._judges.models

    @property
    def has_reward_judge(self) -> bool:
        """Whether only reward servers judge."""
        return all(source.has_reward_judge for source in self.judge_sources)

    @property
    def own_judge(self) -> Judge | None:
        """The only judge if it is no model: an object, a plug-in, or recorded verdicts."""
        return self.judge_sources[0].own_judge if len(self.judge_sources) == 1 else None

    @property
    def judge_name(self) -> str:
        """The name of the judge: its model, its recorded name, or its class."""
        return self._judges.name if self.asks_judge else ""

    @property
    def asks_judge(self) -> bool:
        """Whether a judge is needed at all."""
        return capabilities_of(self.strategy).asks_judge

    @property
    def asks_model(self) -> bool:
        """Whether a model judges."""
        return self.asks_judge and not self.has_own_judge

    @property
    def endpoints(self) -> Endpoints:
        """The endpoints of generator and judges; missing weights are downloaded.

        A key is not sent to another address.
        """
        return self._judges.endpoints

    @property
    def judging_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of the models that judge, each once."""
        return tuple(dict.fromkeys(source.endpoints.judge for source in self._judges.models))

    @property
    def judge_settings(self) -> JudgeSettings:
        """How the judge is asked; of several, the first model."""
        return (self._judges.models or self.judge_sources)[0].settings

    @property
    def reward_form(self) -> Form:
        """How a reward server is asked."""
        return self.judge_sources[0].reward_form

    @cached_property
    def templates(self) -> dict[str, str]:
        """The prompt templates the judge is asked with; a reward server has none."""
        if self.has_reward_judge:
            return {}
        return load_templates(self.prompts_folder)

    @property
    def prompts_folder(self) -> Path | None:
        """The folder of the user's own templates, if any."""
        return None if self.config.prompts is None else Path(self.config.prompts)

    # Prices and the strategy

    @property
    def stated_price(self) -> Price | None:
        """The token price stated in the config."""
        return Price.stated(self.config)

    @cached_property
    def price(self) -> Price | None:
        """The token price as stated, or from the price list, which has no prices of batches."""
        if len(self.judge_sources) == 1:
            return self._price_of(self.judge_sources[0])
        if self.stated_price is None and self._pays_generator and not self.asks_model:
            return self.sources[0].price
        prices = [self._price_of(source) for source in self._judges.models]  # only models cost something
        known = [price for price in prices if price is not None]
        return HighestPrice.of_judges(known) if len(known) == len(prices) else None

    def _price_of(self, source: JudgeSource) -> Price | None:
        """The token price of a judge; where no model judges, that of the generator."""
        unstated = source.stated_price is None
        if unstated and self._pays_generator and (source.has_own_judge or not self.asks_judge):
            return self.sources[0].price
        return None if source.uses_price_list and not self.asks_judge else source.price

    @property
    def _pays_generator(self) -> bool:
        return self._generating and not self._connector.offline

    @cached_property
    def generation_price(self) -> Price | None:
        """The token price of the generating model."""
        where = self.endpoints.generator
        return self.stated_price or listed_price(where.model, where.base_url)

    @property
    def strategy(self) -> Strategy:
        """The strategy with its settings, the judge profile and `skip_failing` applied."""
        return self._parts.strategy

    @property
    def strategy_name(self) -> str:
        """The name the strategy is recorded by."""
        return self._parts.strategy_name

    # How cases are prepared

    @cached_property
    def tokenizer(self) -> "Tokenizer | None":
        """The tokenizer for servers that do not report token counts, if any."""
        if self.config.tokenizer is None:
            return None
        from caps.models.tokenizing import Tokenizer  # noqa: PLC0415  (loads aiohttp)

        return Tokenizer(Path(self.config.tokenizer))

    @property
    def merges_found(self) -> bool:
        """Whether findings merge equal candidates: if the strategy counts votes and findings are on."""
        return capabilities_of(self.strategy).counts_votes and self.config.hard_evidence != "off"

    @property
    def shows_differences(self) -> bool:
        """Whether partial evidence shows what separates two candidates, for a strategy that asks about it."""
        return capabilities_of(self.strategy).asks_about_differences and self.config.hard_evidence != "off"

    @cached_property
    def prepare(self) -> CasePreparation:
        """The preparation of cases for judging."""
        return self.preparation(findings=self.merges_found)

    def preparation(self, *, findings: bool, prompts: bool = True) -> CasePreparation:
        """The preparation of cases; a forecast, which computes no findings, does without them.

        Without `prompts`, whose folder may be gone, the size of a prompt and V1-Infer's baseline are unknown.
        """
        views = {name: str(value) for name, value in self.config.views.items()}
        return make_prepare(
            self.config.profile,
            views,
            findings=findings,
            quotes=self.config.prompts is not None,
            differences=self.shows_differences,
            context=self.context,
            reply=self.config.max_tokens,
            all_at_once="pick" in capabilities_of(self.strategy).asks,
            templates=self.templates if prompts and self.asks_judge else {},
        )

    @property
    def context(self) -> int | None:
        """Tokens of the judge's context: as stated, or as the endpoints of a session reported."""
        return self.config.context_tokens or self._served_context

    async def learn_context(self, models: Mapping[Endpoint, Model]) -> None:
        """Ask each endpoint how many tokens its context has, unless that is stated; the least counts."""
        if self.config.context_tokens is None:
            self._served_context = await least_context(models)

    @cached_property
    def _case_defaults(self) -> CaseDefaults:
        return CaseDefaults(self.config)

    @property
    def criteria(self) -> tuple[str, ...]:
        """What makes an answer better, for cases that state no criteria of their own."""
        return self._case_defaults.criteria

    def apply_to_case(self, case: Case | InputError) -> Case | InputError:
        """Apply the config to a case: domain and criteria, if it states none; the files of its repository.

        All paths to a judge call this. A repository that cannot be read is an `InputError`.
        """
        return self._case_defaults.apply(case, self._callbacks.warn)

    def with_feature_warnings(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase
    ) -> Iterator[Case | InputError]:
        """The same cases; a warning names candidates without the number that the strategy's feature names."""
        return with_feature_warnings(cases, strategy, self._callbacks.warn)

    # Budgets, engines and the generator

    @property
    def case_budget(self) -> BudgetLimits:
        """The budget of one case."""
        return case_budget(self.config)

    @property
    def total_budget(self) -> BudgetLimits:
        """The budget of the whole run."""
        return total_budget(self.config)

    @property
    def journal_path(self) -> Path | None:
        """The path of the journal, if there is one."""
        return None if self.config.journal is None else Path(self.config.journal)

    @property
    def cluster(self) -> Cluster:
        """The Ray cluster of the ray engine."""
        return cluster(self.config)

    def check_batch(self) -> None:
        """Refuse settings that batches do not support, before anything is sent."""
        check_batch(self.config)
        unnamed = self.asks_model and not all(where.model for where in self.judging_endpoints)
        if self.config.batch_dir is not None and unnamed:
            raise SettingError("no model: give --model NAME, or set CAPS_MODEL")

    @property
    def method(self) -> Method:
        """How candidates are generated."""
        return self._parts.method

    @property
    def preset(self) -> Preset:
        """The sampling settings of the generating model."""
        return self._parts.preset

    @cached_property
    def sources(self) -> tuple[GeneratorSource, ...]:
        """The models that write answers: those of the tables, else the model of the run."""
        if self.config.generator:
            return read_sources(self.config, self.keys, self._connector, self._parts.preset_changes)
        return (GeneratorSource(self.endpoints.generator, self.preset, self.generation_price),)

    # Other runners, and the config that a run file states

    def with_config(
        self,
        config: RunConfig,
        *,
        model: Model | None = None,
        keys: Keys | None = None,
        judge: Judge | None = None,
    ) -> "Runner":
        """A runner with the same objects, another config and optionally another model, keys and judge."""
        same_judges = (config.judge, config.judges) == (self.config.judge, self.config.judges)
        objects = self._judges.objects if same_judges else {}
        runner = Runner(
            config,
            keys=keys or self.keys,
            judge=judge or objects.get(ONLY),
            model=model or self._connector.model,
            strategy=self._parts.given_strategy if config.strategy == self.config.strategy else None,
            method=self._parts.given_method,
            preset=self._parts.given_preset,
            judge_objects=objects,
            generating=self._generating,
            offline=self._connector.offline,
            warn=self._callbacks.warn,
            fetching=self._callbacks.fetching,
            grace=self._grace,
            started=self.started,
        )
        runner._served_context = self._served_context
        if config.prompts == self.config.prompts:
            runner.__dict__["templates"] = self.templates  # read once
        runner._vision = self._vision
        if (config.reply, config.judges) == (self.config.reply, self.config.judges):
            runner._judges.found_replies = self._judges.found_replies
        return runner

    def __getstate__(self) -> dict[str, Any]:
        """The state for a worker process, without the callbacks of this process."""
        state = {name: value for name, value in self.__dict__.items() if name != "tokenizer"}  # read there
        return {**state, "_allowed": allowed()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state, and allow the user's `py:` names in the worker process."""
        for name, folder in state.pop("_allowed").items():
            allow((name,), folder)
        self.__dict__.update(state)

    def stated_config(self, confidence: str | None = None) -> RunConfig:
        """The config for the run file, with all derived values stated.

        A replay then does not depend on defaults, the price list or the working directory.
        """
        config, settings = self.config, settings_of(self.strategy)
        changes: dict[str, Any] = {"strategy": self.strategy_name, "judge_profile": None}
        changes["settings"] = settings or dict(config.settings)
        changes["criteria"] = "\n".join(self.criteria) or None
        for name in PATHS:
            path = getattr(config, name)
            changes[name] = None if path is None else str(Path(path).resolve())
        if config.reward_template is not None and config.reward_template not in TEMPLATES:
            changes["reward_template"] = str(Path(config.reward_template).resolve())
        if config.recorded is not None and isinstance(self.own_judge, RecordedJudge):
            changes["recorded_judge"] = self.own_judge.name
        if self.asks_model:
            changes |= self.endpoints.stated_values()
            changes["confidence"] = confidence or config.confidence
            changes["context_tokens"] = self.context
        if not config.judges:
            if self.asks_model:
                changes |= self.judge_sources[0].stated_asking()
            return config.with_values({**changes, **stated_prices(self.price)})
        if not config.model:  # the first judge stands in for it
            changes |= {"model": None, "base_url": config.base_url}
        changes["judges"] = [source.stated_table(self._price_of(source)) for source in self.judge_sources]
        return config.with_values(changes)

    # What a session consists of

    def judge(
        self,
        model_at: Callable[[Endpoint], Model],
        *,
        confidence: str | None = None,
        journal: ReplyStore | None = None,
        recorded: bool = False,
        unanswered: UnansweredAsks = MappingProxyType({}),
        servers: Mapping[Endpoint, Model] | None = None,
    ) -> Judge:
        """Create the judge of the run; the only place that does.

        A function stores its answers in the journal. With `recorded`, models answer from records at once;
        `unanswered` holds the asks that had no answer. `servers` are the models without a journal, which are
        asked whether they can see.
        """
        if self.own_judge is None and not self.asks_judge:
            return NoJudge()

        def make(source: JudgeSource) -> Judge:
            templates = {} if source.has_own_judge else self.templates
            return source.make_judge(
                model_at,
                templates,
                confidence=confidence,
                servers=servers or {},
                since=self.started,
            )

        return self._judges.combine(
            make, self._price_of, journal=journal, unanswered=unanswered, waits=not recorded
        )

    @property
    def replays_from_journal(self) -> bool:
        """Whether the journal holds all answers; those of plug-ins are in the folder of the run."""
        return all(not one.has_own_judge or one.config.recorded is not None for one in self.judge_sources)

    def replayed_judge(self, journal: Journal, unanswered: UnansweredAsks) -> Judge:
        """The judge of the run, answering only from its journal."""
        model = ReplayedModel(journal)
        return self.judge(lambda _: model, recorded=True, unanswered=unanswered)

    def findings(
        self,
        journal: ReplyStore | None,
        texts: TextWorkers | None = None,
        models: Mapping[Endpoint, Model] | None = None,
    ) -> Findings | None:
        """The findings that are computed before any judge is asked, unless they are off.

        If tests are written, that is done by one of the `models` or one that is connected for it.
        """
        config = self.config
        if config.hard_evidence == "off":
            if config.write_tests:
                raise SettingError("write_tests needs programs to be run: drop --hard-evidence off")
            return None
        if not config.write_tests:
            return make_findings(config, journal, texts)
        where = self.endpoints.generator
        if config.write_tests_model is not None:
            where = replace(where, model=config.write_tests_model)
        model = self._recorded((models or {}).get(where) or self.connected(where), journal)
        return make_findings(config, journal, texts, make_test_writer(config, model, where.model, journal))

    def local_engine(
        self,
        models: Mapping[Endpoint, Model],
        *,
        journal: ReplyStore | None = None,
        texts: TextWorkers,
        findings: Findings | None = None,
        confidence: str | None = None,
        seconds: float | None = None,
        budget_pool: BudgetPool | None = None,
        judge: Judge | None = None,
        keep_going: bool | None = None,
    ) -> LocalEngine:
        """Create the engine that runs contests in this process; the only place that does.

        Engines that share a `judge` share the calls that are under way. An engine that runs only some of the
        cases of a run must `keep_going` although it cannot read their replies; else the config says so.
        """
        judge = judge or self._local_judge(models, journal, confidence)
        capacity = self._capacity(models.values())
        return self._engines.local(
            judge, capacity, texts=texts, findings=findings, seconds=seconds, budget_pool=budget_pool,
            keep_going=self.config.keep_going if keep_going is None else keep_going,
        )  # fmt: skip

    @cached_property
    def _engines(self) -> EngineFactory:
        return EngineFactory(self.config, self.prepare, self.price, self._grace)

    def _recorded(self, model: Model, journal: ReplyStore | None) -> Model:
        """A model whose replies the journal stores and whose tokens the tokenizer counts, as far as set."""
        stored = model if journal is None else JournaledModel(model, journal)
        if self.tokenizer is None:
            return stored
        from caps.models.tokenizing import CountedModel  # noqa: PLC0415

        return CountedModel(stored, self.tokenizer)

    def _local_judge(
        self,
        models: Mapping[Endpoint, Model],
        journal: ReplyStore | None,
        confidence: str | None,
    ) -> Judge:
        """The judge with these models, whose replies are stored in the journal."""
        journaled = {where: self._recorded(model, journal) for where, model in models.items()}
        return self.judge(journaled.__getitem__, confidence=confidence, journal=journal, servers=models)

    @asynccontextmanager
    async def session(self, *, paid: Callable[[Usage], object] = lambda _: None) -> AsyncIterator[Session]:
        """Open the journal and connections, find out what `auto` leaves open, and yield a session.

        `paid` is called with the usage of test calls, which belong to no case.
        """
        config = self.config
        for source in self.judge_sources:
            await asyncio.to_thread(getattr, source, "own_judge")  # reads recorded verdicts
        for source in self.judge_sources:  # before anything is asked
            source.check(self.strategy, self.strategy_name)
        _ = self.tokenizer  # an unreadable one fails before anything is asked
        if config.engine == "batch" or config.batch_dir is not None:
            self.check_batch()
        for budget in (self.case_budget, self.total_budget):
            Account(budget, self.price)  # raises if dollars are limited and the price is unknown
        async with AsyncExitStack() as stack:
            journal = self._open_journal(stack)
            models, texts = await self._connect(stack), TextWorkers()
            stack.push_async_callback(texts.close)
            await self.learn_context(models)
            if config.batch_dir is None:
                confidence = await self._judges.probe(models, paid, self._price_of)
            else:
                confidence = self.judge_settings.confidence
            engine: Engine
            findings = self.findings(None if config.engine == "ray" else journal, texts, models)
            if findings is not None:
                stack.push_async_callback(findings.close)
            if config.engine == "ray":
                engine = self._engines.ray(partial(self._make_worker, confidence), findings)
            elif config.engine == "batch" and journal is not None:
                make_judge = partial(self._pending_judge, confidence)
                engine = self._engines.batch(models, journal, make_judge, findings, self.started)
            else:
                engine = self.local_engine(
                    models, journal=journal, texts=texts, findings=findings, confidence=confidence,
                    seconds=self.total_budget.seconds,
                )  # fmt: skip
            clients = [model.server if isinstance(model, RewardModel) else model for model in models.values()]
            several = [model for model in clients if isinstance(model, ServersModel)]
            servers = partial(_server_records, several)
            yield Session(self, engine, confidence, findings, servers, journal)

    async def run(self, cases: Iterable[Case | InputError]) -> AsyncGenerator[Outcome, None]:
        """Select from all cases and yield each outcome as it is known."""
        async with self.session() as session:
            async for outcome in session.run(cases):
                yield outcome

    @asynccontextmanager
    async def sampler(self) -> AsyncIterator[Sampler]:
        """Open the journal and the connection, and yield a sampler."""
        source = GeneratorSource(self.endpoints.generator, self.preset, self.generation_price)
        async with self.samplers([source]) as (sampler,):
            yield sampler

    @asynccontextmanager
    async def samplers(self, sources: Sequence[GeneratorSource]) -> AsyncIterator[list[Sampler]]:
        """Open the journal and the connections, and yield a sampler for each source."""
        price, logprobs = sources[0].price, self.config.logprobs
        budget = CaseBudget(BudgetLimits(), price, RunBudget(self.total_budget, price))
        templates = load_templates(self.prompts_folder, shelf="generation")
        async with AsyncExitStack() as stack:
            journal, found = self._open_journal(stack), list[Sampler]()
            for source in sources:
                model = self.connected(source.where)
                stack.push_async_callback(model.close)
                kept = self._recorded(model, journal)
                found.append(
                    Sampler(
                        Tracing().model(kept) if self.config.otel else kept,
                        source.where.model,
                        source.preset,
                        templates,
                        capacity=self._capacity([model]),
                        logprobs=logprobs,
                        extra=self.config.extra,
                        budget=budget.at(source.price),
                    )
                )
            yield found

    def unanswerable(self, strategy: Strategy) -> list[AskKind]:
        """The kinds of asks of a strategy that a judge of this run cannot answer."""
        kinds = (kind for source in self.judge_sources for kind in source.unanswerable(strategy))
        return list(dict.fromkeys(kinds))

    @asynccontextmanager
    async def worker(
        self, confidence: str, journal: ReplyStore | None, budget_pool: BudgetPool | None
    ) -> "AsyncIterator[WorkerContext]":
        """The context of a worker process, with its own connections, closed at the end."""
        from caps.engines.remote import WorkerContext  # noqa: PLC0415

        async with AsyncExitStack() as stack:
            models, texts = await self._connect(stack), TextWorkers()
            stack.push_async_callback(texts.close)
            findings = self.findings(journal, texts, models)
            if findings is not None:
                stack.push_async_callback(findings.close)

            judge = self._local_judge(models, journal, confidence)

            def engine(seconds: float | None) -> LocalEngine:
                return self.local_engine(
                    models, journal=journal, texts=texts, findings=findings, confidence=confidence,
                    seconds=seconds, budget_pool=budget_pool, judge=judge, keep_going=True,
                )  # fmt: skip

            yield WorkerContext(engine, findings)

    def _pending_judge(self, confidence: str, requests: "PendingRequests") -> Judge:
        """The judge of batches, whose models answer from the journal and collect what it lacks."""
        from caps.models.pending import PendingModel  # noqa: PLC0415

        return self.judge(lambda where: PendingModel(requests, where), confidence=confidence, recorded=True)

    def _make_worker(self, confidence: str, config: RunConfig) -> "OpenContext":
        """How a worker of the ray engine makes its context."""
        return partial(self.with_config(config).worker, confidence)

    def _open_journal(self, stack: AsyncExitStack) -> Journal | None:
        if self.journal_path is None:
            return None
        return stack.enter_context(open_journal(self.journal_path, durable=self.config.durable))

    async def _connect(self, stack: AsyncExitStack) -> dict[Endpoint, HasConnections]:
        """Connect to the model at each judging endpoint; empty if no model judges."""
        if not self.asks_model or self.config.batch_dir is not None:
            return {}
        models = self._judges.connect()
        for model in models.values():
            stack.push_async_callback(model.close)
        return models

    def connected(self, where: Endpoint) -> HasConnections:
        """Connect to the model at an endpoint, with the limits of the config; the caller closes it."""
        return self._connector.connect(where, self.config)

    def _capacity(self, models: Collection[Model]) -> Callable[[], int]:
        """A function that returns the number of concurrent calls at all models together."""
        stated = self.config.max_connections
        if models:
            return call_capacity(models, auto=stated == "auto")
        return lambda: connections_of(self.own_judge) if stated == "auto" else stated


def _server_records(models: Iterable[ServersModel]) -> list[ServerRecord]:
    return [record for model in models for record in model.records()]
