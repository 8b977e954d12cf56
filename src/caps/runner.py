"""`Runner`: the one place where a config becomes the objects that do the work.

Every entry point builds a `RunConfig` and passes it to a `Runner`. Nothing else constructs a judge, an
engine, a sampler or finders, so the same config gives the same selections everywhere.

    runner = Runner(config, keys=keys)
    async with runner.session() as session:
        async for outcome in session.run(cases): ...

An object passed instead of a name (`judge`, `model`, `strategy`) replaces what the config would have built;
journal, budgets, costs and reports stay. It is recorded by its name, and a replay needs it again. A judge may
also be a function: see `judging.callables`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from platformdirs import user_cache_path

from caps.building import (
    load_templates,
    make_finders,
    make_judge,
    make_prepare,
    make_strategy,
    open_journal,
    read_recorded_judge,
    with_skip_failing,
)
from caps.config import Keys, RunConfig
from caps.core.errors import InputError, MissingFeatureError, SettingError
from caps.core.play import AskKind, Strategy, capabilities_of
from caps.core.secrets import shown_address
from caps.core.settings import override, settings_of, share_out
from caps.core.types import Ask, Case, Level, Usage
from caps.costs.prices import Price, listed_price
from caps.engines.base import Engine, Outcome, PerCase
from caps.engines.batch_files import BatchSettings
from caps.engines.budget import Account, BudgetLimits, BudgetPool, CaseBudget, RunBudget
from caps.engines.local import LocalEngine
from caps.engines.ray import Cluster
from caps.engines.remote import WorkerContext
from caps.evidence.domains import REPOSITORY_DIGEST, domain_named, with_stated_domain
from caps.findings.base import Findings
from caps.findings.repositories import digest_of
from caps.journal.records import ReplyStore
from caps.journal.store import Journal
from caps.judging.base import Budget, Judge, PreparedCase, Ruling
from caps.judging.callables import CallableJudge, JudgeFunction, as_judge
from caps.judging.llm import JudgeSettings, LevelModel, LlmJudge
from caps.judging.preparation import CasePreparation
from caps.judging.profiles import read_profile
from caps.judging.recorded import RecordedJudge
from caps.judging.replayed import ReplayedJudge
from caps.models import weights
from caps.models.base import ConnectOptions, HasConnections, Model, Notify, ignore
from caps.models.canary import canary
from caps.models.discovery import connect, context_of, locate
from caps.models.fleet import join_addresses
from caps.models.fleet_servers import ServerRecord
from caps.models.journaled import JournaledModel
from caps.models.replayed import ReplayedModel
from caps.models.weights import Report
from caps.prompts.grammar import WORD
from caps.registry import DEFAULT_JUDGE, allow, allowed
from caps.sampling.base import Method
from caps.sampling.methods import make_method, make_preset, resolve_preset
from caps.sampling.presets import Preset
from caps.sampling.sampler import Sampler
from caps.text_workers import TextWorkers

if TYPE_CHECKING:
    from caps.engines.batch import MakeBatchState
    from caps.models.pending import PendingRequests
    from caps.models.tokenizing import Tokenizer

SURPLUS_CALLS = 2  # waiting calls with an automatic limit, which grows only if some wait
CASES_AT_ONCE = 64  # of a worker with an automatic connection limit
OWN_CONNECTIONS = 16  # concurrent calls of a judge or model object without a `connections` attribute


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a model, its name there, and a key that is never shown.

    An address may contain a password: use `shown_address` to display it.
    """

    base_url: str = field(repr=False)
    model: str
    api_key: str | None = field(default=None, repr=False)


class Endpoints(NamedTuple):
    """The endpoints of the generator and of the judges of full (E2) and partial views (E1)."""

    generator: Endpoint
    full: Endpoint
    partial: Endpoint


@dataclass(frozen=True, slots=True)
class Session:
    """A prepared run; `servers` returns the records of the servers of a fleet."""

    runner: "Runner"
    engine: Engine
    confidence: str
    findings: Findings | None = None
    servers: Callable[[], list[ServerRecord]] = list

    def run(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase | None = None
    ) -> AsyncGenerator[Outcome, None]:
        """Select from all cases, with the strategy of the config unless another is given."""
        stated = map(self.runner.apply_to_case, cases)
        return self.engine.run(stated, strategy or self.runner.strategy, seed=self.runner.config.seed)


class Runner:
    """Builds everything a run needs from its config; see the module's docstring."""

    def __init__(
        self,
        config: RunConfig,
        *,
        keys: Keys | None = None,
        judge: Judge | JudgeFunction | None = None,
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
    ) -> None:
        """A `generating` run also accepts settings of the sampling method and the preset.

        `offline` runs name models but do not connect. With `any_model`, each request names its model.
        `fetching` is called while weights are downloaded. `grace` is the number of seconds that a stopped run
        waits for running calls, which are paid for.
        """
        self.config = config
        self.keys = keys or Keys()
        self._given_judge = None if judge is None else as_judge(judge, timeout=config.timeout)
        self._model, self._strategy = model, strategy
        self._method, self._preset = method, preset
        self._generating, self._offline, self._any_model = generating, offline, any_model
        self._warn, self._fetching, self._grace = warn, fetching, grace
        self._served_context: int | None = None

    @property
    def has_own_judge(self) -> bool:
        """Whether the judge is an object, a plug-in or recorded verdicts, so that no model is needed."""
        return (
            self._given_judge is not None
            or self.config.judge != DEFAULT_JUDGE
            or self.config.recorded is not None
        )

    @cached_property
    def _judge(self) -> Judge | None:
        """The judge object or plug-in, if the judge is not a model."""
        if self._given_judge is not None or self.config.judge == DEFAULT_JUDGE:
            return self._given_judge
        if self.config.recorded is not None:
            raise SettingError(
                "judge and recorded: recorded verdicts replace the judge; give only one of them"
            )
        return make_judge(self.config.judge, self.config.timeout)

    @property
    def grace(self) -> float:
        """Seconds that a stopped run waits for running calls."""
        return self._grace

    # Derived from the config

    @cached_property
    def strategy(self) -> Strategy:
        """The strategy with its settings, the judge profile and `skip_failing` applied."""
        config, changes = self.config, self._settings[0]
        if self._strategy is not None:
            chosen = override(self._strategy, changes) if changes else self._strategy
        else:
            profile = None if config.judge_profile is None else read_profile(Path(config.judge_profile))
            chosen = make_strategy(config.strategy, changes, profile)
        return with_skip_failing(chosen, config.strategy) if config.skip_failing else chosen

    @cached_property
    def _settings(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """The settings of the strategy and, if candidates are generated, of the method and the preset."""
        changes = {name: _setting_text(value) for name, value in self.config.settings.items()}
        if not self._generating:
            return changes, {}, {}
        plain = self._strategy or make_strategy(self.config.strategy)
        method = self._method or make_method(self.config.method)
        preset = self._preset or make_preset(self._preset_name)
        of_strategy, of_method, of_preset = share_out(changes, plain, method, preset)
        return of_strategy, of_method, of_preset

    @property
    def strategy_name(self) -> str:
        """The name the strategy is recorded by."""
        return self.config.strategy if self._strategy is None else _path_of(self._strategy)

    @property
    def asks_judge(self) -> bool:
        """Whether a judge is needed at all."""
        return capabilities_of(self.strategy).asks_judge

    @property
    def asks_model(self) -> bool:
        """Whether a model judges."""
        return self.asks_judge and not self.has_own_judge

    @cached_property
    def own_judge(self) -> Judge | None:
        """The judge that is not a model: an object, a plug-in, or recorded verdicts."""
        if self._judge is None and self.config.recorded is not None:
            return read_recorded_judge(self.config.recorded, self.config.recorded_judge)
        return self._judge

    @property
    def judge_name(self) -> str:
        """The name of the judge: its model, its recorded name, or its class."""
        if not self.asks_judge:
            return ""
        judge = self.own_judge
        return self.endpoints.full.model if judge is None else getattr(judge, "name", None) or _path_of(judge)

    @cached_property
    def endpoints(self) -> Endpoints:
        """The endpoints of generator and judges; missing weights are downloaded.

        A key is not sent to another address.
        """
        config, keys = self.config, self.keys
        base, judge, e1 = (
            join_addresses(one) for one in (config.base_url, config.judge_base_url, config.judge_base_url_e1)
        )
        generator = None
        if config.model or base or not (config.judge_model or judge):
            generator = self._find(config.model, base, keys.api_key)
        full = generator
        if generator is None or config.judge_model or judge or keys.judge_api_key:
            beside = "" if generator is None or _is_file(generator) else generator.base_url
            known = None if generator is None else generator.api_key
            key = keys.judge_api_key or (None if judge and judge != beside else known or keys.api_key)
            full = self._find(config.judge_model or config.model, judge or beside or base, key)
        partial_ = full
        if config.judge_model_e1 or e1:
            beside = "" if full is None or _is_file(full) else full.base_url
            key = keys.judge_api_key_e1 or (None if e1 and e1 != beside else full.api_key if full else None)
            name = config.judge_model_e1 or (full.model if full else None)
            partial_ = self._find(name, e1 or beside, key)
        assert full is not None  # noqa: S101
        assert partial_ is not None  # noqa: S101
        return Endpoints(generator or full, full, partial_)

    def _find(self, model: str | None, address: str, key: str | None) -> Endpoint:
        named = model or not address or address.startswith("file:")
        if self._offline or self._model is not None or (self._any_model and not named):
            return Endpoint(address, model or ("" if self._model is None else _path_of(self._model)), key)
        place, name = locate(model, address or None, cache=user_cache_path("caps"), report=self._fetching)
        return Endpoint(place, name, None if place.startswith("file:") else key or None)

    @cached_property
    def judge_settings(self) -> JudgeSettings:
        """How the judge is asked; the small embedded model replies with bare tags by default."""
        reply = self.config.reply_format
        if reply is None:
            _, full, at_partial = self.endpoints
            small = all(where.model == weights.NAME for where in (full, at_partial))
            reply = "tags" if small else "free"
        confidence = self.config.confidence.replace("auto", "verbal")
        return JudgeSettings(max_tokens=self.config.max_tokens, reply=reply, confidence=confidence)

    @property
    def extra_e1(self) -> Mapping[str, object]:
        """Extra request fields for partial views."""
        return {**self.config.extra, **self.config.extra_e1}

    @cached_property
    def templates(self) -> dict[str, str]:
        """The prompt templates the judge is asked with."""
        return load_templates(self.prompts_folder, version=self.config.prompt_version)

    @property
    def prompts_folder(self) -> Path | None:
        """The folder of the user's own templates, if any."""
        return None if self.config.prompts is None else Path(self.config.prompts)

    @property
    def stated_price(self) -> Price | None:
        """The token price stated in the config."""
        config = self.config
        if config.price_input is None or config.price_output is None:
            return None
        return Price(config.price_input, config.price_output, config.price_cached)

    @cached_property
    def price(self) -> Price | None:
        """The token price as stated, or from the price list, which has no prices of batches."""
        stated = self.stated_price
        if (
            stated is not None
            or self._offline
            or self._model is not None
            or self.config.engine == "batch"
            or not self.asks_model
        ):
            return stated
        return listed_price(self.endpoints.full.model, self.endpoints.full.base_url)

    @cached_property
    def generation_price(self) -> Price | None:
        """The token price of the generating model."""
        where = self.endpoints.generator
        return self.stated_price or listed_price(where.model, where.base_url)

    @cached_property
    def tokenizer(self) -> "Tokenizer | None":
        """The tokenizer for servers that do not report token counts, if any."""
        if self.config.tokenizer is None:
            return None
        from caps.models.tokenizing import Tokenizer  # noqa: PLC0415  (loads aiohttp)

        return Tokenizer(Path(self.config.tokenizer))

    def _counted(self, model: Model) -> Model:
        if self.tokenizer is None:
            return model
        from caps.models.tokenizing import CountedModel  # noqa: PLC0415

        return CountedModel(model, self.tokenizer)

    @property
    def merges_found(self) -> bool:
        """Whether findings merge equal candidates: if the strategy counts votes and findings are on."""
        return capabilities_of(self.strategy).counts_votes and self.config.hard_evidence != "off"

    @property
    def prepare(self) -> CasePreparation:
        """The preparation of cases for judging."""
        return self.preparation(findings=self.merges_found)

    def preparation(self, *, findings: bool) -> CasePreparation:
        """The preparation of cases; a forecast, which computes no findings, does without them."""
        views = {name: str(value) for name, value in self.config.views.items()}
        return make_prepare(
            self.config.profile,
            views,
            findings=findings,
            quotes=self.config.prompt_version == "v1" or self.config.prompts is not None,
            context=self.context,
            reply=self.config.max_tokens,
            all_at_once="pick" in capabilities_of(self.strategy).asks,
        )

    @property
    def context(self) -> int | None:
        """Tokens of the judge's context: as stated, or as the endpoints of a session reported."""
        return self.config.context_tokens or self._served_context

    async def learn_context(self, models: Mapping[Endpoint, Model]) -> None:
        """Ask each endpoint how many tokens its context has, unless that is stated; the least counts."""
        if self.config.context_tokens is None:
            known = await asyncio.gather(*(context_of(model, where.model) for where, model in models.items()))
            self._served_context = min((one for one in known if one is not None), default=None)

    def apply_to_case(self, case: Case | InputError) -> Case | InputError:
        """Apply the config to a case: its domain, if the case states none, and the files of its repository.

        All paths to a judge call this. A repository that cannot be read is an `InputError`.
        """
        if isinstance(case, InputError):
            return case
        stated = with_stated_domain(case, self.config.domain)
        return self._with_repository(stated) if isinstance(stated, Case) else stated

    def _with_repository(self, case: Case) -> Case | InputError:
        """The case with a digest of its repository, so that findings are kept for these files only."""
        if REPOSITORY_DIGEST not in domain_named(case.domain).fields or not case.extra.get("repository"):
            return case
        root, digest = self.config.repositories, None
        if root is not None:
            key = (case.extra.get("repository"), case.extra.get("commit"))
            try:
                digest = self._repositories.get(key) or digest_of(root, case)
            except InputError as error:
                return InputError(f"case {case.id!r}: {error}")
            self._repositories[key] = digest
        return replace(case, extra={**case.extra, REPOSITORY_DIGEST: digest})

    @cached_property
    def _repositories(self) -> dict[object, str]:
        """The digests of the repositories of this run, each computed once."""
        return {}

    @property
    def case_budget(self) -> BudgetLimits:
        """The budget of one case."""
        config = self.config
        return BudgetLimits(tokens=config.budget_tokens, usd=config.budget_usd, seconds=config.budget_seconds)

    @property
    def total_budget(self) -> BudgetLimits:
        """The budget of the whole run."""
        config = self.config
        return BudgetLimits(
            tokens=config.budget_total_tokens,
            usd=config.budget_total_usd,
            seconds=config.budget_total_seconds,
        )

    @property
    def journal_path(self) -> Path | None:
        """The path of the journal, if there is one."""
        return None if self.config.journal is None else Path(self.config.journal)

    @cached_property
    def cluster(self) -> Cluster:
        """The Ray cluster of the ray engine."""
        return Cluster(address=self.config.ray_address, workers=self.config.ray_workers)

    @cached_property
    def batch_settings(self) -> BatchSettings:
        """The settings of the batch engine."""
        return override(
            BatchSettings(), {name: _setting_text(value) for name, value in self.config.batch.items()}
        )

    @cached_property
    def method(self) -> Method:
        """How candidates are generated."""
        changes = self._settings[1]
        return override(self._method, changes) if self._method else make_method(self.config.method, changes)

    @cached_property
    def preset(self) -> Preset:
        """The sampling settings of the generating model."""
        changes = {"seed": str(self.config.seed), **self._settings[2]}
        return override(self._preset, changes) if self._preset else make_preset(self._preset_name, changes)

    @property
    def _preset_name(self) -> str:
        return resolve_preset(self.config.preset, self.config.model)

    def with_config(self, config: RunConfig, *, model: Model | None = None) -> "Runner":
        """A runner with the same objects and keys, another config and optionally another model."""
        runner = Runner(
            config,
            keys=self.keys,
            judge=self._judge if config.judge == self.config.judge else None,
            model=model or self._model,
            strategy=self._strategy if config.strategy == self.config.strategy else None,
            method=self._method,
            preset=self._preset,
            generating=self._generating,
            offline=self._offline,
            warn=self._warn,
            fetching=self._fetching,
            grace=self._grace,
        )
        runner._served_context = self._served_context
        if (config.prompts, config.prompt_version) == (self.config.prompts, self.config.prompt_version):
            runner.__dict__["templates"] = self.templates  # read once
        return runner

    def __getstate__(self) -> dict[str, Any]:
        """The state for a worker process, without the callbacks of this process."""
        state = {name: value for name, value in self.__dict__.items() if name != "tokenizer"}  # read there
        return {**state, "_warn": ignore, "_fetching": None, "_allowed": allowed()}

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
        changes["journal"] = None if self.journal_path is None else str(self.journal_path.resolve())
        changes["tokenizer"] = None if config.tokenizer is None else str(Path(config.tokenizer).resolve())
        changes["prompts"] = None if self.prompts_folder is None else str(self.prompts_folder.resolve())
        if config.repositories is not None:
            changes["repositories"] = str(Path(config.repositories).resolve())
        if config.recorded is not None:
            changes["recorded"] = str(Path(config.recorded).resolve())
            if isinstance(self.own_judge, RecordedJudge):
                changes["recorded_judge"] = self.own_judge.name
        if self.asks_model:
            generator, full, at_partial = self.endpoints
            changes |= {"model": generator.model, "base_url": generator.base_url}
            if full != generator:
                changes |= {"judge_model": full.model, "judge_base_url": full.base_url}
            if at_partial != full:
                changes |= {"judge_model_e1": at_partial.model, "judge_base_url_e1": at_partial.base_url}
            changes["reply_format"] = self.judge_settings.reply
            changes["confidence"] = confidence or config.confidence
            changes["context_tokens"] = self.context
        price = self.price
        if price is not None:
            changes |= {f"price_{name}": value for name, value in asdict(price).items()}
        return config.with_values(changes)

    # Judges, engines and samplers

    def judge(
        self,
        model_at: Callable[[Endpoint], Model],
        *,
        confidence: str | None = None,
        texts: TextWorkers | None = None,
    ) -> Judge:
        """Create the judge of the run; the only place that does."""
        if self.own_judge is not None:
            return self.own_judge
        if not self.asks_judge:
            return NoJudge()
        _, full, at_partial = self.endpoints
        level_models = {
            Level.PARTIAL: LevelModel(
                model_at(at_partial), at_partial.model, self.extra_e1, self.config.max_tokens_e1
            ),
            Level.FULL: LevelModel(model_at(full), full.model, self.config.extra),
        }
        settings = self.judge_settings
        if confidence is not None:
            settings = replace(settings, confidence=confidence)
        return LlmJudge(level_models, self.templates, settings, texts=texts)

    def replayed_judge(self, journal: Journal, unanswered: Mapping[tuple[str, Ask], str]) -> Judge:
        """The judge of the run, answering only from its journal."""
        model = ReplayedModel(journal)
        judge = self.judge(lambda _: model)
        return ReplayedJudge(judge, unanswered) if isinstance(judge, LlmJudge) else judge

    def findings(self, journal: ReplyStore | None, texts: TextWorkers | None = None) -> Findings | None:
        """The findings that are computed before any judge is asked, unless they are off."""
        if self.config.hard_evidence == "off":
            return None
        finders = make_finders(self.config.sandbox, texts, repositories=self.config.repositories)
        return Findings(finders, journal, insist=self.config.hard_evidence == "on")

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
    ) -> LocalEngine:
        """Create the engine that runs contests in this process; the only place that does."""
        journaled = {where: self._counted(_journaled(model, journal)) for where, model in models.items()}
        total = replace(self.total_budget, seconds=seconds)
        judge = self.judge(journaled.__getitem__, confidence=confidence, texts=texts)
        if journal is not None and isinstance(judge, CallableJudge):
            judge = judge.kept_in(journal)
        return LocalEngine(
            judge,
            self.prepare,
            capacity=self._capacity(models.values()),
            case_budget=self.case_budget,
            total_budget=total,
            price=self.price,
            grace=self._grace,
            find=None if findings is None else findings.find,
            budget_pool=budget_pool,
            texts=texts,
        )

    @asynccontextmanager
    async def session(
        self, *, probe: bool = True, paid: Callable[[Usage], object] = lambda _: None
    ) -> AsyncIterator[Session]:
        """Open the journal and connections, test each endpoint, and yield a session; close all at the end.

        `paid` is called with the usage of the test calls, which belong to no case.
        """
        from caps.models.fleet import FleetModel  # noqa: PLC0415  (slow import)

        config = self.config
        await asyncio.to_thread(lambda: self.own_judge)  # reads recorded verdicts
        self._check_judge()
        _ = self.tokenizer  # an unreadable one fails before anything is asked
        if config.engine == "batch":
            self.check_batch()
        for budget in (self.case_budget, self.total_budget):
            Account(budget, self.price)  # raises if dollars are limited and the price is unknown
        async with AsyncExitStack() as stack:
            journal = self._open_journal(stack)
            models, texts = await self._connect(stack), TextWorkers()
            stack.push_async_callback(texts.close)
            await self.learn_context(models)
            confidence = await self._confidence(models, paid, probe=probe)
            engine: Engine
            findings = self.findings(None if config.engine == "ray" else journal, texts)
            if findings is not None:
                stack.push_async_callback(findings.close)
            if config.engine == "ray":
                engine = self._ray_engine(findings, texts, confidence)
            elif config.engine == "batch" and journal is not None:
                engine = self._batch_engine(models, journal, findings, confidence)
            else:
                engine = self.local_engine(
                    models, journal=journal, texts=texts, findings=findings, confidence=confidence,
                    seconds=self.total_budget.seconds,
                )  # fmt: skip
            fleets = [model for model in models.values() if isinstance(model, FleetModel)]
            servers = partial(_records, fleets)
            yield Session(self, engine, confidence, findings, servers)

    async def run(self, cases: Iterable[Case | InputError]) -> AsyncGenerator[Outcome, None]:
        """Select from all cases and yield each outcome as it is known."""
        async with self.session() as session:
            async for outcome in session.run(cases):
                yield outcome

    @asynccontextmanager
    async def sampler(
        self, *, logprobs: bool = False, probe: bool = True, paid: Callable[[Usage], object] = lambda _: None
    ) -> AsyncIterator[Sampler]:
        """Open the journal and the connection, test the endpoint, and yield a sampler."""
        where = self.endpoints.generator
        extra = {**self.preset.extra(), **self.config.extra}
        price = self.generation_price
        budget = CaseBudget(BudgetLimits(), price, RunBudget(self.total_budget, price))
        async with AsyncExitStack() as stack:
            journal = self._open_journal(stack)
            model = self.connected(where)
            stack.push_async_callback(model.close)
            if probe:
                await canary(model, where.model, want_logprobs=logprobs, extra=extra, paid=paid)
            yield Sampler(
                self._counted(_journaled(model, journal)),
                where.model,
                self.preset,
                load_templates(self.prompts_folder, shelf="generation"),
                capacity=self._capacity([model]),
                logprobs=logprobs,
                extra=self.config.extra,
                budget=budget,
            )

    def _check_judge(self) -> None:
        """Refuse a judge that cannot answer what the strategy asks, before anything is asked."""
        judge, able = self.own_judge, capabilities_of(self.strategy)
        if not isinstance(judge, CallableJudge | RecordedJudge) or not able.asks_judge:
            return
        method = {"pair": "__call__", "rating": "rate", "pick": "pick"}
        for kind in self.unanswerable(self.strategy):
            if isinstance(judge, RecordedJudge):
                raise SettingError(
                    f"strategy {self.strategy_name!r} asks for a {kind}, and no {kind} of judge "
                    f"{judge.name!r} is recorded in {self.config.recorded}: choose another strategy"
                )
            raise SettingError(
                f"strategy {self.strategy_name!r} asks the judge for a {kind}, and this one compares "
                f"pairs: give it a method {method[kind]!r}, or choose another strategy, such as posterior"
            )
        if self.config.engine != "local":
            said = "recorded verdicts" if isinstance(judge, RecordedJudge) else "a function"
            raise SettingError(f"engine {self.config.engine}: {said} cannot be the judge; use local")

    def unanswerable(self, strategy: Strategy) -> list[AskKind]:
        """The kinds of asks of a strategy that the judge of this run cannot answer."""
        judge, able = self.own_judge, capabilities_of(strategy)
        if not isinstance(judge, CallableJudge | RecordedJudge) or not able.asks_judge:
            return []
        return [kind for kind in able.asks if kind not in judge.answers]

    def check_batch(self) -> None:
        """Refuse settings that batches do not support, before anything is sent."""
        from caps.engines.batch import check_batch_budgets  # noqa: PLC0415

        check_batch_budgets(self.case_budget, self.total_budget)
        if self.config.journal is None:
            raise SettingError("batches need a journal: leave out --no-journal")

    @asynccontextmanager
    async def worker(
        self, confidence: str, journal: ReplyStore | None, budget_pool: BudgetPool | None
    ) -> AsyncIterator[WorkerContext]:
        """The context of a worker process, with its own connections, closed at the end."""
        async with AsyncExitStack() as stack:
            models, texts = await self._connect(stack), TextWorkers()
            stack.push_async_callback(texts.close)
            findings = self.findings(journal, texts)
            if findings is not None:
                stack.push_async_callback(findings.close)

            def engine(seconds: float | None) -> LocalEngine:
                return self.local_engine(
                    models, journal=journal, texts=texts, findings=findings, confidence=confidence,
                    seconds=seconds, budget_pool=budget_pool,
                )  # fmt: skip

            yield WorkerContext(engine, findings)

    def batches(self, waiting: "PendingRequests", confidence: str | None = None) -> "MakeBatchState":
        """How cases move through batches together, with a judge whose models wait for replies."""
        from caps.engines.batch import BatchState  # noqa: PLC0415
        from caps.models.pending import PendingModel  # noqa: PLC0415

        judge = self.judge(lambda where: PendingModel(waiting, where), confidence=confidence)

        def make(cases: Sequence[Case | InputError], strategy: Strategy | PerCase, seed: int) -> BatchState:
            return BatchState(
                cases,
                strategy,
                seed=seed,
                judge=cast(LlmJudge, judge),
                prepare=self.prepare,
                waiting=waiting,
                budget=lambda: CaseBudget(
                    self.case_budget, self.price, RunBudget(BudgetLimits(), self.price)
                ),
            )

        return make

    def _batch_engine(
        self,
        models: Mapping[Endpoint, Model],
        journal: Journal,
        findings: Findings | None,
        confidence: str,
    ) -> Engine:
        """Create the engine that sends batches to the endpoints of the run."""
        from caps.engines.batch import BatchEngine  # noqa: PLC0415
        from caps.engines.batch_files import BatchClient  # noqa: PLC0415
        from caps.models.batch_api import Batches  # noqa: PLC0415
        from caps.models.faults import Failures  # noqa: PLC0415
        from caps.models.http import HttpModel  # noqa: PLC0415
        from caps.models.pending import PendingRequests  # noqa: PLC0415

        settings = self.batch_settings
        served: dict[Hashable, Batches] = {}
        for where, model in models.items():
            if not isinstance(model, HttpModel):
                raise SettingError(
                    "--engine batch needs an endpoint with a Batch API; "
                    f"{shown_address(where.base_url)} is none"
                )
            served[where] = Batches(model, where.model, window=settings.window)
        failures = Failures(settings.tries)
        waiting = PendingRequests(journal, failures)
        return BatchEngine(
            self.batches(waiting, confidence),
            waiting,
            served,
            BatchClient(journal, failures, settings),
            settings=settings,
            find=None if findings is None else findings.find,
        )

    def _ray_engine(self, findings: Findings | None, texts: TextWorkers, confidence: str) -> Engine:
        """Create the engine on a Ray cluster; connections are divided among its workers."""
        from caps.engines.ray import RayEngine  # noqa: PLC0415

        config, workers = self.config, self.cluster.workers
        share = config.max_connections
        if share != "auto":
            workers = min(workers, share)
            share //= workers
        remote = self.with_config(replace(config, max_connections=share))
        return RayEngine(
            partial(remote.worker, confidence),
            self.prepare,
            cluster=replace(self.cluster, workers=workers),
            capacity=CASES_AT_ONCE if share == "auto" else share,
            journal=None if self.journal_path is None else self.journal_path.resolve(),
            durable=config.durable,
            total_budget=self.total_budget,
            price=self.price,
            grace=self._grace,
            unusable=None if findings is None else findings.unusable,
            texts=texts,
        )

    def _open_journal(self, stack: AsyncExitStack) -> Journal | None:
        if self.journal_path is None:
            return None
        return stack.enter_context(open_journal(self.journal_path, durable=self.config.durable))

    async def _connect(self, stack: AsyncExitStack) -> dict[Endpoint, HasConnections]:
        """Connect to the model at each judging endpoint; empty if no model judges."""
        if not self.asks_model:
            return {}
        models = {where: self.connected(where) for where in dict.fromkeys(self.endpoints[1:])}
        for model in models.values():
            stack.push_async_callback(model.close)
        return models

    def connected(self, where: Endpoint) -> HasConnections:
        """Connect to the model at an endpoint, with the limits of the config; the caller closes it."""
        if self._model is not None:
            return self._model  # type: ignore[return-value]
        config = self.config
        return connect(
            ConnectOptions(
                address=where.base_url,
                model=where.model,
                api_key=where.api_key,
                connections=config.max_connections,
                timeout=config.timeout,
                context=config.context_tokens,
                threads=config.threads,
                notify=self._warn,
            )
        )

    def _capacity(self, models: Iterable[Model]) -> Callable[[], int]:
        """A function that returns the number of concurrent calls at all models together."""
        limits = [_call_limit(model) for model in models]
        stated = self.config.max_connections
        if not limits and stated != "auto":
            return lambda: stated
        if not limits:
            return lambda: getattr(self.own_judge, "connections", OWN_CONNECTIONS)
        surplus = SURPLUS_CALLS if self.config.max_connections == "auto" else 0
        return lambda: sum(room() for room in limits) + surplus

    async def _confidence(
        self, models: Mapping[Endpoint, HasConnections], paid: Callable[[Usage], object], *, probe: bool
    ) -> str:
        """Call every endpoint once; `auto` uses log-probabilities if all endpoints return them."""
        if not probe or not models:
            return self.judge_settings.confidence if models else "verbal"
        wanted = self.config.confidence != "verbal"
        grammar = {"grammar": WORD} if self.judge_settings.reply == "tags" else {}
        try:
            for where, model in models.items():
                extra = {**grammar, **self.config.extra}
                await canary(model, where.model, want_logprobs=wanted, extra=extra, paid=paid)
        except MissingFeatureError:
            if self.config.confidence == "logprobs":
                raise
            return "verbal"
        return "logprobs" if wanted else "verbal"


class NoJudge:
    """The judge of a strategy that asks nothing."""

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:  # noqa: ARG002
        """Refuse: the strategy has declared that it asks no judge."""
        raise SettingError("the strategy asked a judge although it declares that it asks none")

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:  # noqa: ARG002
        """Nothing."""
        return Usage(0, 0)


def _journaled(model: Model, journal: ReplyStore | None) -> Model:
    """The model wrapped by the journal, if there is one."""
    return model if journal is None else JournaledModel(model, journal)


def _call_limit(model: Model) -> Callable[[], int]:
    """A function that returns the number of calls that may run or wait at a model."""
    return lambda: getattr(model, "connections", OWN_CONNECTIONS) + getattr(model, "surplus", 0)


def _records(fleets: Iterable[Any]) -> list[ServerRecord]:
    return [one for fleet in fleets for one in fleet.records()]


def _is_file(where: Endpoint) -> bool:
    return where.base_url.startswith("file:")


def _path_of(thing: object) -> str:
    kind = type(thing)
    return f"{kind.__module__}:{kind.__qualname__}"


def _setting_text(value: object) -> str:
    """A setting's value as a user would write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
