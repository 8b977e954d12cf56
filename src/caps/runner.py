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
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from platformdirs import user_cache_path

from caps.building import (
    load_templates,
    make_finders,
    make_grader,
    make_judge,
    make_prepare,
    make_strategy,
    open_journal,
    read_recorded_judge,
    with_skip_failing,
)
from caps.config import REWARD_APIS, Keys, RunConfig
from caps.core.domains import Resources
from caps.core.errors import InputError, MissingFeatureError, ModelError, SettingError
from caps.core.judge_profile import JudgeProfile
from caps.core.panel import DEFAULT_CORRELATION, Member, Mode, PanelRule
from caps.core.play import AskKind, Strategy, capabilities_of
from caps.core.secrets import shown_address
from caps.core.settings import override, settings_of, share_out
from caps.core.types import Ask, Case, Level, Usage
from caps.costs.prices import PanelPrice, Price, listed_price
from caps.engines.base import Engine, Outcome, PerCase
from caps.engines.batch_files import BatchSettings
from caps.engines.budget import Account, BudgetLimits, BudgetPool, CaseBudget, RunBudget
from caps.engines.local import LocalEngine
from caps.engines.ray import Cluster
from caps.engines.remote import WorkerContext
from caps.evidence.domains import REPOSITORY_DIGEST, domain_named, with_stated_domain
from caps.evidence.entrants import missing_numbers
from caps.files import read_text
from caps.findings.base import Findings
from caps.findings.repositories import digest_of
from caps.findings.written_tests import TestWriter
from caps.journal.records import ReplyStore
from caps.journal.store import Journal
from caps.judge_presets import JUDGE_PRESETS, NO_PRESET, JudgePreset
from caps.judge_tables import JudgeTable
from caps.judging.base import Budget, Judge, PreparedCase, Ruling
from caps.judging.callables import CallableJudge, JudgeFunction, as_judge
from caps.judging.llm import JudgeSettings, LevelModel, LlmJudge
from caps.judging.panel import PanelJudge, PricedJudge
from caps.judging.preparation import CasePreparation
from caps.judging.profiles import PanelProfile, profile_fields, read_panel_profile, read_profile
from caps.judging.recorded import RecordedJudge
from caps.judging.replayed import ReplayedJudge
from caps.judging.reward import RewardJudge
from caps.models import weights
from caps.models.base import ConnectOptions, HasConnections, Model, Notify, ignore
from caps.models.canary import can_see, canary, find_reply
from caps.models.discovery import connect, context_of, locate, takes_cache_control
from caps.models.fleet import join_addresses
from caps.models.fleet_servers import ServerRecord
from caps.models.journaled import JournaledModel
from caps.models.replayed import ReplayedModel
from caps.models.rewards import TEMPLATES, Form, RewardModel
from caps.models.rewards import check as check_rewards
from caps.models.weights import Report
from caps.prompts.criteria import MOST_BYTES, parse_criteria
from caps.prompts.render import CRITERIA_SINCE, VERSIONS, takes_criteria
from caps.prompts.reply_forms import TAGS
from caps.registry import MODEL_JUDGES, PAIR_VIEWS, REWARD_JUDGE, allow, allowed
from caps.sampling.base import Method
from caps.sampling.generators import QUALITY, GeneratorTable, read_generators
from caps.sampling.methods import make_method, make_preset, resolve_preset
from caps.sampling.presets import Preset
from caps.sampling.sampler import Sampler
from caps.text_workers import TextWorkers
from caps.tracing import TracedEngine, Tracing

if TYPE_CHECKING:
    from caps.engines.batch import MakeBatchState
    from caps.models.pending import PendingRequests
    from caps.models.tokenizing import Tokenizer

#: Why asks had no answer, by judge of a panel; those of the run itself are under an empty name.
UnansweredAsks: TypeAlias = Mapping[str, Mapping[tuple[str, Ask], str]]
#: The forms of replies that a server is asked for, by the setting `reply`.
_WANTED = {"tags": TAGS, "json": ("json",), "auto": ("json", *TAGS)}
SURPLUS_CALLS = 2  # waiting calls with an automatic limit, which grows only if some wait
CASES_AT_ONCE = 64  # of a worker with an automatic connection limit
MOST_WARNINGS = 5  # about cases whose candidates lack a number; the rest is counted
CACHED_FROM = 1024  # tokens of a shared beginning that hosted servers cache
TEST_SECONDS = 4.0  # for a program on one written test
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


class PanelMember(NamedTuple):
    """A judge of a panel: its table, and the runner of a run in which it judges alone."""

    table: JudgeTable
    runner: "Runner"


@dataclass(frozen=True, slots=True)
class GeneratorSource:
    """A model that writes answers: where it is, its sampling settings, price and expected quality."""

    where: Endpoint
    preset: Preset
    price: Price | None
    quality: float = QUALITY


@dataclass(frozen=True, slots=True)
class Session:
    """A prepared run; `servers` returns the records of the servers of a fleet."""

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
    ) -> None:
        """A `generating` run also accepts settings of the sampling method and the preset.

        `judge_objects` are judges of a panel, by the names of their tables.
        `offline` runs name models but do not connect. With `any_model`, each request names its model.
        `fetching` is called while weights are downloaded. `grace` is the number of seconds that a stopped run
        waits for running calls, which are paid for.
        """
        if generating and config.generator and config.samples != "auto":
            raise SettingError("several generators need --n auto: add it, or leave out the generators")
        self.config = config
        self.keys = keys or Keys()
        if len(config.judges) == 1:  # a panel of one is that judge
            table = config.judges[0]
            _refuse_unusable(config)
            judge = judge or (judge_objects or {}).get(table.name)
            self.config, self.keys = _member_config(config, table), _member_keys(config, self.keys, table)
        self._given_judge = None if judge is None else as_judge(judge, timeout=config.timeout)
        self._judge_objects = {
            name: as_judge(one, timeout=config.timeout) for name, one in (judge_objects or {}).items()
        }
        self._model, self._strategy = model, strategy
        self._method, self._preset = method, preset
        self._generating, self._offline, self._any_model = generating, offline, any_model
        self._warn, self._fetching, self._grace = warn, fetching, grace
        self._seeing: dict[tuple[str, str], asyncio.Future[bool]] = {}  # by address and model
        self._found_reply: str | None = None  # the form that the servers hold replies to
        self._served_context: int | None = None

    @cached_property
    def members(self) -> tuple[PanelMember, ...]:
        """The judges of a panel, in the order of their tables; empty if there is one judge.

        Each has the runner of a run in which it judges alone, so its requests and their keys are the same.
        """
        if self._given_judge is not None:
            return ()
        _refuse_unusable(self.config)
        return tuple(PanelMember(table, self._member_runner(table)) for table in self.config.judges)

    def _member_runner(self, table: JudgeTable) -> "Runner":
        config = _member_config(self.config, table)
        if table.base_url and not self._generating:
            config = replace(config, model=None, base_url=())  # only its own server is asked
        keys = _member_keys(self.config, self.keys, table)
        return self.with_config(config, keys=keys, judge=self._judge_objects.get(table.name))

    @cached_property
    def panel_rule(self) -> PanelRule:
        """How a panel is asked and combined: the cheapest judge first, then in the order of the tables."""
        measured = self._panel_profile
        members = [
            Member(table.name, _profile_of(table, measured), table.weight, table.levels)
            for table, _ in self._by_price()
        ]
        return PanelRule(tuple(members), self._panel_correlation, self.config.panel_sure)

    @cached_property
    def _panel_profile(self) -> PanelProfile:
        """What a diagnosis of the panel measured of its judges, if the judge profile is one."""
        path = self.config.judge_profile
        return PanelProfile() if path is None else read_panel_profile(Path(path))

    @property
    def _panel_correlation(self) -> float:
        """The correlation of errors that is set, else the measured one, else the usual one."""
        known = (self.config.panel_correlation, self._panel_profile.correlation, DEFAULT_CORRELATION)
        return next(one for one in known if one is not None)

    def _by_price(self) -> list[PanelMember]:
        """The members, cheapest first; those without a price keep the order of the tables."""
        prices = self._member_prices
        if prices is None:
            return list(self.members)
        cost = [price.input + price.output for price in prices]
        return [self.members[i] for i in sorted(range(len(cost)), key=lambda i: cost[i])]

    @property
    def _member_prices(self) -> list[Price] | None:
        """The prices of the judges of a panel, if all are known; only models cost something."""
        prices = [Price(0, 0) if one.has_own_judge else one.price for _, one in self.members]
        known = [one for one in prices if one is not None]
        return known if len(known) == len(prices) else None

    @property
    def has_own_judge(self) -> bool:
        """Whether no judge is a model: an object, a plug-in or recorded verdicts judge."""
        if self.members:
            return all(one.runner.has_own_judge for one in self.members)
        return (
            self._given_judge is not None
            or self.config.judge not in MODEL_JUDGES
            or self.config.recorded is not None
        )

    @property
    def has_reward_judge(self) -> bool:
        """Whether a reward server judges."""
        return self.config.judge == REWARD_JUDGE and not self.has_own_judge

    @cached_property
    def _judge(self) -> Judge | None:
        """The judge object or plug-in, if the judge is not a model."""
        if self._given_judge is not None or self.config.judge in MODEL_JUDGES:
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
            if self.config.judges and not profile_fields(make_strategy(config.strategy)):
                profile = None  # it weighs the judges of the panel alone
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
        """The judge that is not a model: an object, a plug-in, or recorded verdicts; None for a panel."""
        if self.members:
            return None
        if self._judge is None and self.config.recorded is not None:
            return read_recorded_judge(self.config.recorded, self.config.recorded_judge)
        return self._judge

    @property
    def judge_name(self) -> str:
        """The name of the judge: its model, its recorded name, or its class."""
        if not self.asks_judge:
            return ""
        if self.members:
            return f"panel of {', '.join(one.table.name for one in self.members)}"
        judge = self.own_judge
        return self.endpoints.full.model if judge is None else getattr(judge, "name", None) or _path_of(judge)

    @cached_property
    def endpoints(self) -> Endpoints:
        """The endpoints of generator and judges; missing weights are downloaded.

        A key is not sent to another address.
        """
        config, keys = self._with_first_generator()
        models = [one.runner for one in self.members if not one.runner.has_own_judge]
        if self.members:
            lead = models[0].endpoints.full if models else Endpoint("", self.judge_name)
            own = self._generating or config.model
            found = self._find(config.model, join_addresses(config.base_url), keys.api_key) if own else lead
            return Endpoints(found, lead, lead)
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

    def _with_first_generator(self) -> tuple[RunConfig, Keys]:
        """The config and keys; the first generator is the model of the run if no other is named."""
        config, tables = self.config, read_generators(self.config.generator)
        if not tables or config.model:
            return config, self.keys
        first = tables[0]
        if not first.addresses:
            return replace(config, model=first.model), self.keys
        if config.base_url:
            return config, self.keys
        own = self.keys.generators[0] if self.keys.generators else None
        return replace(config, model=first.model, base_url=first.addresses), replace(self.keys, api_key=own)

    def _find(self, model: str | None, address: str, key: str | None) -> Endpoint:
        named = model or not address or address.startswith("file:")
        if self._offline or self._model is not None or (self._any_model and not named):
            return Endpoint(address, model or ("" if self._model is None else _path_of(self._model)), key)
        place, name = locate(model, address or None, cache=user_cache_path("caps"), report=self._fetching)
        return Endpoint(place, name, None if place.startswith("file:") else key or None)

    @property
    def judge_settings(self) -> JudgeSettings:
        """How the judge is asked; the small embedded model replies with bare tags by default."""
        models = [one.runner for one in self.members if not one.runner.has_own_judge]
        if models:
            return models[0].judge_settings
        reply = self._found_reply or self.config.reply
        if reply is None:
            _, full, at_partial = self.endpoints
            small = all(where.model == weights.NAME for where in (full, at_partial))
            reply = "tags" if small else "free"
        reply = reply.replace("auto", "free")  # until a server was asked
        confidence = self.config.confidence.replace("auto", "verbal")
        temperature, preset = self.config.judge_temperature, self.judge_preset
        return JudgeSettings(
            max_tokens=self.config.max_tokens or preset.max_tokens,
            temperature=preset.temperature if temperature is None else temperature,
            reply=reply,
            confidence=confidence,
        )

    @property
    def judge_preset(self) -> JudgePreset:
        """The preset that fills in what is not set; without one, the defaults."""
        name = self.config.judge_preset
        return NO_PRESET if name is None else JUDGE_PRESETS[name]

    @property
    def judge_extra(self) -> Mapping[str, object]:
        """Extra request fields of the judge: those of the preset, and the stated ones."""
        return {**self.judge_preset.extra, **self.config.extra}

    @property
    def needs_probe(self) -> bool:
        """Whether a server must be asked before the judge is: what it can do is to be found out."""
        return self.config.confidence != "verbal" or self.config.reply in _WANTED

    @property
    def extra_e1(self) -> Mapping[str, object]:
        """Extra request fields for partial views."""
        return {**self.judge_extra, **self.config.extra_e1}

    @cached_property
    def templates(self) -> dict[str, str]:
        """The prompt templates the judge is asked with; a reward server has none."""
        if self.has_reward_judge:
            return {}
        return load_templates(self.prompts_folder, version=self.config.prompt_version)

    @cached_property
    def reward_form(self) -> Form:
        """How a reward server is asked; a template that is no name is read from its file."""
        config = self.config
        if config.reward_api is None:
            raise SettingError(f"--judge reward needs --reward-api: one of {', '.join(REWARD_APIS)}")
        template = config.reward_template or ""
        if template and template not in TEMPLATES:
            template = read_text(template, option="--reward-template")
        return Form(config.reward_api, template, config.reward_steps, config.reward_class)

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
        if stated is None and self._generating and not self.asks_model and not self._offline:
            return self.sources[0].price
        if self.members:
            prices = self._member_prices
            return None if prices is None else PanelPrice.highest(prices)
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
    def shows_differences(self) -> bool:
        """Whether partial evidence shows what separates two candidates, for a strategy that asks about it.

        Prompts of the first version have no words for it.
        """
        asked = capabilities_of(self.strategy).asks_about_differences
        return asked and self.config.hard_evidence != "off" and self.config.prompt_version != "v1"

    @cached_property
    def prepare(self) -> CasePreparation:
        """The preparation of cases for judging."""
        return self.preparation(findings=self.merges_found)

    def preparation(self, *, findings: bool) -> CasePreparation:
        """The preparation of cases; a forecast, which computes no findings, does without them."""
        views = {name: str(value) for name, value in self.config.views.items()}
        if self.config.prompt_version == "v1" and (
            "pair" in views or views.get("partial") in PAIR_VIEWS.table
        ):
            raise SettingError("a view of pairs needs prompts of version v2: drop --prompt-version v1")
        return make_prepare(
            self.config.profile,
            views,
            findings=findings,
            quotes=self.config.prompt_version == "v1" or self.config.prompts is not None,
            differences=self.shows_differences,
            context=self.context,
            reply=self.config.max_tokens or self.judge_preset.max_tokens,
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
        """Apply the config to a case: domain and criteria, if it states none; the files of its repository.

        All paths to a judge call this. A repository that cannot be read is an `InputError`.
        """
        stated = with_stated_domain(case, self.config.domain)
        return (
            stated if isinstance(stated, InputError) else self._with_repository(self._with_criteria(stated))
        )

    def _with_criteria(self, case: Case) -> Case:
        if not self.criteria or case.criteria:
            return case
        if takes_criteria(domain_named(case.domain)):
            return replace(case, criteria=self.criteria)
        if case.domain not in self._without_criteria:
            self._without_criteria.add(case.domain)
            self._warn(
                f"criteria: not used for cases of the domain {case.domain!r}, whose prompts ask what is "
                "correct; --domain general judges cases that state no domain by them"
            )
        return case

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

    @cached_property
    def criteria(self) -> tuple[str, ...]:
        """What makes an answer better, for cases that state no criteria of their own."""
        stated = self.config.criteria
        if stated is None:
            return ()
        if VERSIONS.index(self.config.prompt_version) < VERSIONS.index(CRITERIA_SINCE):
            raise SettingError(
                f"criteria: the prompts of version {self.config.prompt_version} take none; "
                f"leave out --prompt-version {self.config.prompt_version}"
            )
        if stated.startswith("@"):
            stated = read_text(stated[1:], option="--criteria", most=MOST_BYTES)
        return parse_criteria(stated, "criteria")

    @cached_property
    def _without_criteria(self) -> set[str]:
        """The domains of cases that were not judged by the criteria."""
        return set()

    def with_feature_warnings(
        self, cases: Iterable[Case | InputError], strategy: Strategy | PerCase
    ) -> Iterator[Case | InputError]:
        """The same cases; a warning names candidates without the number that the strategy's feature names."""
        name = getattr(strategy, "feature", "") if capabilities_of(strategy).uses_feature else ""
        lacking = 0
        for case in cases:
            message = missing_numbers(case, name) if name and isinstance(case, Case) else ""
            if message and lacking < MOST_WARNINGS:
                self._warn(message)
            lacking += bool(message)
            yield case
        if lacking > MOST_WARNINGS:
            self._warn(f"{lacking - MOST_WARNINGS} further cases have candidates without a number {name!r}")

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

    @cached_property
    def sources(self) -> tuple[GeneratorSource, ...]:
        """The models that write answers: those of the tables, else the model of the run."""
        tables = read_generators(self.config.generator)
        if not tables:
            return (GeneratorSource(self.endpoints.generator, self.preset, self.generation_price),)
        return tuple(self._source(place, table) for place, table in enumerate(tables))

    def _source(self, place: int, table: GeneratorTable) -> GeneratorSource:
        """The model of a table; it gets the key of the run only at the address of the run."""
        own = join_addresses(table.addresses)
        key = (self.keys.generators[place] if place < len(self.keys.generators) else None) or (
            None if own else self.keys.api_key
        )
        where = self._find(table.model, own or join_addresses(self.config.base_url), key)
        name = resolve_preset(table.preset if table.preset != "default" else self.config.preset, table.model)
        preset = make_preset(name, {"seed": str(self.config.seed), **self._settings[2]})
        price = table.price or self.stated_price or listed_price(where.model, where.base_url)
        return GeneratorSource(where, preset, price, table.quality)

    @property
    def _preset_name(self) -> str:
        return resolve_preset(self.config.preset, self.config.model)

    def with_config(
        self,
        config: RunConfig,
        *,
        model: Model | None = None,
        keys: Keys | None = None,
        judge: Judge | None = None,
    ) -> "Runner":
        """A runner with the same objects, another config and optionally another model, keys and judge."""
        runner = Runner(
            config,
            keys=keys or self.keys,
            judge=judge or (self._judge if config.judge == self.config.judge else None),
            model=model or self._model,
            strategy=self._strategy if config.strategy == self.config.strategy else None,
            method=self._method,
            preset=self._preset,
            judge_objects=self._judge_objects,
            generating=self._generating,
            offline=self._offline,
            warn=self._warn,
            fetching=self._fetching,
            grace=self._grace,
        )
        runner._served_context = self._served_context
        if (config.prompts, config.prompt_version) == (self.config.prompts, self.config.prompt_version):
            runner.__dict__["templates"] = self.templates  # read once
        runner._seeing = self._seeing
        if config.reply == self.config.reply:
            runner._found_reply = self._found_reply
        return runner

    def __getstate__(self) -> dict[str, Any]:
        """The state for a worker process, without the callbacks of this process."""
        state = {name: value for name, value in self.__dict__.items() if name != "tokenizer"}  # read there
        return {**state, "_warn": ignore, "_fetching": None, "_seeing": {}, "_allowed": allowed()}

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
        changes["journal"] = None if self.journal_path is None else str(self.journal_path.resolve())
        changes["tokenizer"] = None if config.tokenizer is None else str(Path(config.tokenizer).resolve())
        changes["prompts"] = None if self.prompts_folder is None else str(self.prompts_folder.resolve())
        if config.reward_template is not None and config.reward_template not in TEMPLATES:
            changes["reward_template"] = str(Path(config.reward_template).resolve())
        if config.repositories is not None:
            changes["repositories"] = str(Path(config.repositories).resolve())
        if config.recorded is not None:
            changes["recorded"] = str(Path(config.recorded).resolve())
            if isinstance(self.own_judge, RecordedJudge):
                changes["recorded_judge"] = self.own_judge.name
        if self.asks_model:
            generator, full, at_partial = self.endpoints
            changes |= {"model": generator.model, "base_url": generator.base_url}
            if not self.members:
                changes |= self._stated_asking()
            if full != generator:
                changes |= {"judge_model": full.model, "judge_base_url": full.base_url}
            if at_partial != full:
                changes |= {"judge_model_e1": at_partial.model, "judge_base_url_e1": at_partial.base_url}
            changes["confidence"] = confidence or config.confidence
            changes["context_tokens"] = self.context
        if self.members:
            if not config.model:  # the first judge stands in for it
                changes |= {"model": None, "base_url": config.base_url}
            profiles = {one.name: settings_of(one.profile) for one in self.panel_rule.members}
            tables = [one.runner.stated_table(one.table, profiles[one.table.name]) for one in self.members]
            return config.with_values(
                {**changes, "judges": tables, "panel_correlation": self._panel_correlation}
            )
        price = self.price
        if price is not None:
            changes |= {f"price_{name}": value for name, value in asdict(price).items()}
        return config.with_values(changes)

    def _stated_asking(self) -> dict[str, Any]:
        """How the judge is asked, with the values of a preset as if they were set."""
        settings, stated = self.judge_settings, self.config.reply
        known = self._found_reply is not None or stated != "auto"
        return {
            "judge_preset": None,
            "max_tokens": settings.max_tokens,
            "judge_temperature": settings.temperature or None,
            "reply": settings.reply if known else stated,
            "extra": self.judge_extra,
        }

    def stated_table(self, table: JudgeTable, profile: Mapping[str, float]) -> JudgeTable:
        """The table of a judge whose runner this is, with all derived values stated."""
        if self.has_own_judge:
            return replace(table, profile=profile)
        asking, where, price = self._stated_asking(), self.endpoints.full, self.price
        return replace(
            table,
            model=where.model,
            base_url=(where.base_url,) if where.base_url else (),
            profile=profile,
            preset=None,
            max_tokens=asking["max_tokens"],
            temperature=asking["judge_temperature"],
            reply=asking["reply"],
            extra=asking["extra"],
            **({} if price is None else {f"price_{name}": value for name, value in asdict(price).items()}),
        )

    # Judges, engines and samplers

    def judge(
        self,
        model_at: Callable[[Endpoint], Model],
        *,
        confidence: str | None = None,
        texts: TextWorkers | None = None,
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
        if self.members and self.asks_judge:
            judges = {
                table.name: PricedJudge(
                    runner.judge(
                        model_at, confidence=confidence, texts=texts, journal=journal, recorded=recorded,
                        unanswered={"": unanswered.get(table.name, {})}, servers=servers,
                    ),
                    runner.price,
                )
                for table, runner in self.members
            }  # fmt: skip
            mode = cast(Mode, self.config.panel)
            judge: Judge = PanelJudge(self.panel_rule, judges, mode=mode, waits=not recorded, warn=self._warn)
        else:
            judge = self._single_judge(model_at, confidence, texts, servers or {})
        if journal is not None and isinstance(judge, CallableJudge):
            return judge.kept_in(journal)
        silent = unanswered.get("")
        return (
            ReplayedJudge(judge, silent)
            if silent and isinstance(judge, LlmJudge | RewardJudge | PanelJudge)
            else judge
        )

    def _single_judge(
        self,
        model_at: Callable[[Endpoint], Model],
        confidence: str | None,
        texts: TextWorkers | None,
        servers: Mapping[Endpoint, Model],
    ) -> Judge:
        if self.own_judge is not None:
            return self.own_judge
        if not self.asks_judge:
            return NoJudge()
        _, full, at_partial = self.endpoints
        level_models = {
            Level.PARTIAL: LevelModel(
                model_at(at_partial),
                at_partial.model,
                self.extra_e1,
                self.config.max_tokens_e1,
                partial(self._sees, at_partial, servers.get(at_partial)),
            ),
            Level.FULL: LevelModel(
                model_at(full),
                full.model,
                self.judge_extra,
                sees=partial(self._sees, full, servers.get(full)),
            ),
        }
        if self.has_reward_judge:
            return RewardJudge(level_models, self.reward_form)
        settings = self.judge_settings
        if confidence is not None:
            settings = replace(settings, confidence=confidence)
        return LlmJudge(level_models, self.templates, settings, texts=texts, cache_hints=self._cache_hints)

    async def _sees(self, where: Endpoint, server: Model | None) -> bool:
        """Whether the judge at an endpoint can see; `auto` asks its server once."""
        if self.config.vision != "auto":
            return self.config.vision == "yes"
        if server is None:  # a replay, or a batch
            return True
        name = (where.base_url, where.model)
        if name not in self._seeing:  # one test call for all that wait for it
            self._seeing[name] = asyncio.ensure_future(can_see(server, where.model, extra=self.judge_extra))
            if not await asyncio.shield(self._seeing[name]):
                self._warn(
                    f"model {where.model!r} cannot see images: calls about images or documents stay "
                    "unanswered; use a judge that sees, or --vision yes if this one does"
                )
        return await asyncio.shield(self._seeing[name])

    @property
    def _cache_hints(self) -> bool:
        """Whether prompts mark their shared beginnings for the server's cache."""
        if self.config.cache_hints != "auto":
            return self.config.cache_hints == "on"
        return any(takes_cache_control(where.base_url, where.model) for where in self.endpoints[1:])

    @property
    def replays_from_journal(self) -> bool:
        """Whether the journal holds all answers; those of plug-ins are in the folder of the run."""
        runners = self._judge_runners
        return all(not one.has_own_judge or one.config.recorded is not None for one in runners)

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
        if self.config.hard_evidence == "off":
            if self.config.write_tests:
                raise SettingError("write_tests needs programs to be run: drop --hard-evidence off")
            return None
        resources = Resources(
            sandbox=self.config.sandbox,
            texts=texts,
            repositories=self.config.repositories,
            further_inputs=self.config.further_inputs,
            further_seconds=self.config.further_seconds,
        )
        writer = self._test_writer(journal, models or {}) if self.config.write_tests else None
        return Findings(
            make_finders(resources), journal, insist=self.config.hard_evidence == "on", writer=writer
        )

    def _test_writer(self, journal: ReplyStore | None, models: Mapping[Endpoint, Model]) -> TestWriter:
        config, where = self.config, self.endpoints.generator
        if config.write_tests_model is not None:
            where = replace(where, model=config.write_tests_model)
        return TestWriter(
            self._counted(_journaled(models.get(where) or self.connected(where), journal)),
            where.model,
            load_templates(self.prompts_folder, shelf="generation"),
            count=config.write_tests,
            grader=make_grader("code", config.sandbox, TEST_SECONDS),
            journal=journal,
            extra=config.extra,
        )

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
    ) -> LocalEngine:
        """Create the engine that runs contests in this process; the only place that does.

        Engines that share a `judge` share the calls that are under way.
        """
        total = replace(self.total_budget, seconds=seconds)
        judge = judge or self._local_judge(models, journal, texts, confidence)
        tracing = Tracing() if self.config.otel else None
        make = LocalEngine if tracing is None else TracedEngine
        engine = make(
            judge if tracing is None else tracing.judge(judge),
            self.prepare,
            capacity=self._capacity(models.values()),
            case_budget=self.case_budget,
            total_budget=total,
            price=self.price,
            grace=self._grace,
            find=None if findings is None else findings.find,
            budget_pool=budget_pool,
            texts=texts,
            warm_prefix=self._warms_prefix,
        )
        if tracing is not None and isinstance(engine, TracedEngine):
            engine.tracing = tracing
        return engine

    def _traced(self, model: Model) -> Model:
        """A generating model, with spans if they are wanted."""
        return Tracing().model(model) if self.config.otel else model

    def _local_judge(
        self,
        models: Mapping[Endpoint, Model],
        journal: ReplyStore | None,
        texts: TextWorkers,
        confidence: str | None,
    ) -> Judge:
        """The judge with these models, whose replies are stored in the journal."""
        journaled = {where: self._counted(_journaled(model, journal)) for where, model in models.items()}
        return self.judge(
            journaled.__getitem__, confidence=confidence, texts=texts, journal=journal, servers=models
        )

    def _warms_prefix(self, prepared: PreparedCase) -> bool:
        """Whether the first calls of a case go ahead of the others that share the beginning of their prompts.

        `auto` weighs the wave against the price: cached tokens are cheaper, there are enough of them that
        hosted servers cache them at all, and no time limit of the case is at stake.
        """
        price, mode = self.price, self.config.warm_prefix
        if mode != "auto":
            return mode == "on"
        if price is None or price.cached is None or price.cached >= price.input:
            return False
        sizes = [entrant.sizes[Level.FULL] for entrant in prepared.evidence.entrants]
        shared = prepared.statement + min(sizes, default=0)
        return shared >= CACHED_FROM and self.config.budget_seconds is None

    @asynccontextmanager
    async def session(
        self, *, probe: bool = True, paid: Callable[[Usage], object] = lambda _: None
    ) -> AsyncIterator[Session]:
        """Open the journal and connections, test each endpoint, and yield a session; close all at the end.

        `paid` is called with the usage of the test calls, which belong to no case.
        """
        from caps.models.fleet import FleetModel  # noqa: PLC0415  (slow import)

        config = self.config
        for runner in self._judge_runners:
            await asyncio.to_thread(getattr, runner, "own_judge")  # reads recorded verdicts
        self._check_judge()
        _ = self.tokenizer  # an unreadable one fails before anything is asked
        if config.engine == "batch":
            self.check_batch()
        if config.processes > 1 and config.engine != "local":
            raise SettingError(f"--processes {config.processes}: is for --engine local, not {config.engine}")
        for budget in (self.case_budget, self.total_budget):
            Account(budget, self.price)  # raises if dollars are limited and the price is unknown
        async with AsyncExitStack() as stack:
            journal = self._open_journal(stack)
            models, texts = await self._connect(stack), TextWorkers()
            stack.push_async_callback(texts.close)
            await self.learn_context(models)
            confidence = await self._confidence(models, paid, probe=probe)
            engine: Engine
            shared = config.engine == "ray" or config.processes > 1
            findings = self.findings(None if shared else journal, texts, models)
            if findings is not None:
                stack.push_async_callback(findings.close)
            if shared:
                engine = self._shared_engine(findings, texts, confidence)
            elif config.engine == "batch" and journal is not None:
                engine = self._batch_engine(models, journal, findings, confidence)
            else:
                engine = self.local_engine(
                    models, journal=journal, texts=texts, findings=findings, confidence=confidence,
                    seconds=self.total_budget.seconds,
                )  # fmt: skip
            clients = [model.server if isinstance(model, RewardModel) else model for model in models.values()]
            fleets = [model for model in clients if isinstance(model, FleetModel)]
            servers = partial(_records, fleets)
            yield Session(self, engine, confidence, findings, servers, journal)

    async def run(self, cases: Iterable[Case | InputError]) -> AsyncGenerator[Outcome, None]:
        """Select from all cases and yield each outcome as it is known."""
        async with self.session() as session:
            async for outcome in session.run(cases):
                yield outcome

    @asynccontextmanager
    async def sampler(
        self, *, probe: bool = True, paid: Callable[[Usage], object] = lambda _: None
    ) -> AsyncIterator[Sampler]:
        """Open the journal and the connection, test the endpoint, and yield a sampler."""
        source = GeneratorSource(self.endpoints.generator, self.preset, self.generation_price)
        async with self.samplers([source], probe=probe, paid=paid) as (sampler,):
            yield sampler

    @asynccontextmanager
    async def samplers(
        self,
        sources: Sequence[GeneratorSource],
        *,
        probe: bool = True,
        paid: Callable[[Usage], object] = lambda _: None,
    ) -> AsyncIterator[list[Sampler]]:
        """Open the journal and the connections, test each endpoint, and yield a sampler for each source."""
        price, logprobs = sources[0].price, self.config.logprobs
        budget = CaseBudget(BudgetLimits(), price, RunBudget(self.total_budget, price))
        templates = load_templates(self.prompts_folder, shelf="generation")
        async with AsyncExitStack() as stack:
            journal, found = self._open_journal(stack), list[Sampler]()
            for source in sources:
                model = self.connected(source.where)
                stack.push_async_callback(model.close)
                if probe:
                    extra = {**source.preset.extra(), **self.config.extra}
                    await canary(model, source.where.model, want_logprobs=logprobs, extra=extra, paid=paid)
                found.append(
                    Sampler(
                        self._traced(self._counted(_journaled(model, journal))),
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

    def _check_judge(self) -> None:
        """Refuse a judge that cannot answer what the strategy asks, before anything is asked."""
        for one in self.members:
            one.runner._check_judge()
        judge, able = self.own_judge, capabilities_of(self.strategy)
        if self.has_reward_judge and self.asks_judge:
            _ = self.reward_form  # raises if something is missing
            for kind in self.unanswerable(self.strategy):
                raise SettingError(
                    f"strategy {self.strategy_name!r} asks the judge for a {kind}, and a reward server only "
                    "rates: choose --strategy pointwise; or write its scores into the cases with caps score, "
                    "and let another judge compare (--set feature=rm_score)"
                )
            if self.config.engine == "batch":
                raise SettingError("engine batch: there is no Batch API for scores; use local")
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
        if self.config.engine != "local" or self.config.processes > 1:
            said = "recorded verdicts" if isinstance(judge, RecordedJudge) else "a function"
            setting = f"engine {self.config.engine}" if self.config.engine != "local" else "processes"
            way = "use local" if self.config.engine != "local" else "leave it out"
            raise SettingError(f"{setting}: {said} cannot be the judge; {way}")

    def unanswerable(self, strategy: Strategy) -> list[AskKind]:
        """The kinds of asks of a strategy that the judge of this run, or one of a panel, cannot answer."""
        if self.members:
            lacking = [kind for one in self.members for kind in one.runner.unanswerable(strategy)]
            return list(dict.fromkeys(lacking))
        judge, able = self.own_judge, capabilities_of(strategy)
        if not able.asks_judge:
            return []
        if self.has_reward_judge:
            return [kind for kind in able.asks if kind not in RewardJudge.answers]
        if not isinstance(judge, CallableJudge | RecordedJudge):
            return []
        return [kind for kind in able.asks if kind not in judge.answers]

    def check_batch(self) -> None:
        """Refuse settings that batches do not support, before anything is sent."""
        from caps.engines.batch import check_batch_budgets  # noqa: PLC0415

        check_batch_budgets(self.case_budget, self.total_budget)
        if self.config.journal is None:
            raise SettingError("batches need a journal: leave out --no-journal")
        if self.config.write_tests:
            raise SettingError("write_tests: tests cannot be written through batches; use --engine local")

    @asynccontextmanager
    async def worker(
        self, confidence: str, journal: ReplyStore | None, budget_pool: BudgetPool | None
    ) -> AsyncIterator[WorkerContext]:
        """The context of a worker process, with its own connections, closed at the end."""
        async with AsyncExitStack() as stack:
            models, texts = await self._connect(stack), TextWorkers()
            stack.push_async_callback(texts.close)
            findings = self.findings(journal, texts, models)
            if findings is not None:
                stack.push_async_callback(findings.close)

            judge = self._local_judge(models, journal, texts, confidence)

            def engine(seconds: float | None) -> LocalEngine:
                return self.local_engine(
                    models, journal=journal, texts=texts, findings=findings, confidence=confidence,
                    seconds=seconds, budget_pool=budget_pool, judge=judge,
                )  # fmt: skip

            yield WorkerContext(engine, findings)

    def batches(self, waiting: "PendingRequests", confidence: str | None = None) -> "MakeBatchState":
        """How cases move through batches together, with a judge whose models wait for replies."""
        from caps.engines.batch import BatchState  # noqa: PLC0415
        from caps.models.pending import PendingModel  # noqa: PLC0415

        judge = self.judge(lambda where: PendingModel(waiting, where), confidence=confidence, recorded=True)

        def make(cases: Sequence[Case | InputError], strategy: Strategy | PerCase, seed: int) -> BatchState:
            return BatchState(
                cases,
                strategy,
                seed=seed,
                judge=judge,
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

    def _shared_engine(self, findings: Findings | None, texts: TextWorkers, confidence: str) -> Engine:
        """Create the engine in several processes or on a cluster; connections are divided among workers."""
        from caps.engines.processes import ProcessEngine  # noqa: PLC0415
        from caps.engines.ray import RayEngine  # noqa: PLC0415

        config = self.config
        workers = self.cluster.workers if config.engine == "ray" else config.processes
        share = config.max_connections
        if share != "auto":
            workers = min(workers, share)
            share //= workers
        config = replace(config, max_connections=share)
        settings: dict[str, Any] = {
            "capacity": CASES_AT_ONCE if share == "auto" else share,
            "journal": None if self.journal_path is None else self.journal_path.resolve(),
            "durable": config.durable,
            "total_budget": self.total_budget,
            "price": self.price,
            "grace": self._grace,
            "unusable": None if findings is None else findings.unusable,
            "texts": texts,
        }
        if config.engine == "ray":
            make, cluster = self.with_config(config).worker, replace(self.cluster, workers=workers)
            return RayEngine(partial(make, confidence), self.prepare, cluster=cluster, **settings)
        if self._model is not None or self._judge_objects:
            raise SettingError(
                "processes: an object given as the model or a judge cannot be shared; leave it out"
            )
        found = (self._grace, self._found_reply, self._served_context, dict(allowed()))
        make_context = partial(worker_context, replace(config, processes=1), self.keys, confidence, *found)
        return ProcessEngine(make_context, self.prepare, processes=workers, **settings)

    def _open_journal(self, stack: AsyncExitStack) -> Journal | None:
        if self.journal_path is None:
            return None
        return stack.enter_context(open_journal(self.journal_path, durable=self.config.durable))

    async def _connect(self, stack: AsyncExitStack) -> dict[Endpoint, HasConnections]:
        """Connect to the model at each judging endpoint; empty if no model judges."""
        if not self.asks_model:
            return {}
        judges = [one for one in self._judge_runners if not one.has_own_judge]
        models = {where: one._judging_model(where) for one in judges for where in one.endpoints[1:]}
        for model in models.values():
            stack.push_async_callback(model.close)
        return models

    @property
    def judging_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of the models that judge, each once."""
        models = [one for one in self._judge_runners if not one.has_own_judge]
        return tuple(dict.fromkeys(where for one in models for where in one.endpoints[1:]))

    @property
    def _judge_runners(self) -> "list[Runner]":
        """The runners of the judges: those of a panel, or this one."""
        return [one.runner for one in self.members] or [self]

    def _judging_model(self, where: Endpoint) -> HasConnections:
        """Connect to the model or the reward server of a judge."""
        from caps.models.fleet import FleetModel  # noqa: PLC0415
        from caps.models.http import HttpModel  # noqa: PLC0415

        model = self.connected(where)
        if not self.has_reward_judge or self._model is not None:
            return model
        if not isinstance(model, HttpModel | FleetModel):
            raise SettingError(
                f"--judge reward needs a server, and {shown_address(where.base_url)} is none: give --base-url"
            )
        return RewardModel(model, self.reward_form, notify=self._warn)

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
        if self.members:  # an ask may occupy a connection of each
            return lambda: max(room() for room in limits) + surplus
        return lambda: sum(room() for room in limits) + surplus

    async def _confidence(
        self, models: Mapping[Endpoint, HasConnections], paid: Callable[[Usage], object], *, probe: bool
    ) -> str:
        """Call every endpoint once; `auto` uses log-probabilities if all endpoints return them."""
        if self.has_reward_judge:
            for where, model in models.items() if probe else ():
                if isinstance(model, RewardModel):
                    paid((await check_rewards(model, where.model, self.config.extra)).usage)
            return "verbal"
        if not probe or not models:
            return self.judge_settings.confidence if models else "verbal"
        if self.members:
            return await self._panel_confidence(models, paid)
        wanted = self.config.confidence != "verbal"
        found = "logprobs" if wanted else "verbal"
        try:
            for where, model in models.items():
                await canary(model, where.model, want_logprobs=wanted, extra=self.judge_extra, paid=paid)
        except MissingFeatureError:
            if self.config.confidence == "logprobs":
                raise
            found = "verbal"
        if self.config.reply in _WANTED:
            self._found_reply = await self._held_reply(models, paid)
        return found

    async def _held_reply(
        self, models: Mapping[Endpoint, HasConnections], paid: Callable[[Usage], object]
    ) -> str:
        """The form that all servers hold replies to; `auto` is free if there is none."""
        stated = str(self.config.reply)
        wanted = _WANTED[stated]
        for where, model in models.items():
            extra = self.judge_extra
            found = await find_reply(model, where.model, wanted, extra=extra, paid=paid)
            if found is None and stated != "auto":
                raise MissingFeatureError(
                    f"{shown_address(where.base_url)} holds replies to no form of {stated}: it refuses or "
                    "ignores the field; use --reply free, or auto"
                )
            wanted = (found,) if found else ()
        return wanted[0] if wanted else "free"

    async def _panel_confidence(
        self, models: Mapping[Endpoint, HasConnections], paid: Callable[[Usage], object]
    ) -> str:
        """Call every judge of a panel once; log-probabilities are used if all of them return them."""
        found = set()
        for table, runner in self.members:
            own = {where: models[where] for where in runner.judging_endpoints}
            try:
                found.add(await runner._confidence(own, paid, probe=True) if own else "verbal")
            except ModelError as error:
                error.args = (f"judge {table.name!r}: {error}",)
                raise
        return found.pop() if len(found) == 1 else "verbal"


class NoJudge:
    """The judge of a strategy that asks nothing."""

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:  # noqa: ARG002
        """Refuse: the strategy has declared that it asks no judge."""
        raise SettingError("the strategy asked a judge although it declares that it asks none")

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:  # noqa: ARG002
        """Nothing."""
        return Usage(0, 0)


def _refuse_unusable(config: RunConfig) -> None:
    """Refuse settings that a panel cannot have."""
    if not config.judges:
        return
    if config.judge_model_e1 or config.judge_base_url_e1:
        raise SettingError(
            "judge_model_e1: a panel has no separate judge of partial views: give a [[judge]] the field "
            'level = "partial"'
        )
    recorded = [one for one in config.judges if one.recorded is not None]
    if recorded and config.recorded is None:
        raise SettingError(
            f"{recorded[0].where}: recorded: name the file of recorded verdicts: --recorded FILE"
        )
    if config.recorded is not None and not recorded:
        raise SettingError("recorded: no judge of the panel is recorded: give tables with recorded = NAME")


def _member_config(config: RunConfig, table: JudgeTable) -> RunConfig:
    """The config of a run in which one judge of a panel judges alone."""
    price = {name: getattr(table, name) for name in ("price_input", "price_output", "price_cached")}
    only = not (config.model or config.judge_model or config.judge_base_url or table.base_url)
    return replace(
        config,
        judges=(),
        judge=table.judge,
        recorded=config.recorded if table.recorded is not None else None,
        recorded_judge=table.recorded,
        model=table.model if only else config.model,
        judge_model=None if only else table.model or config.judge_model,
        judge_base_url=table.base_url or config.judge_base_url,
        judge_preset=table.preset or config.judge_preset,
        max_tokens=table.max_tokens or config.max_tokens,
        judge_temperature=config.judge_temperature if table.temperature is None else table.temperature,
        reply=table.reply or config.reply,
        extra={**config.extra, **table.extra},
        **({} if table.price_input is None else price),
    )


def _member_keys(config: RunConfig, keys: Keys, table: JudgeTable) -> Keys:
    """The keys of a judge of a panel: its own, or that of the run, which is not sent to another address."""
    if table.api_key_env:
        return replace(keys, judge_api_key=keys.members.get(table.api_key_env))
    base, judge = join_addresses(config.base_url), join_addresses(config.judge_base_url)
    address = join_addresses(table.base_url) or judge or base
    key = keys.judge_api_key if address == (judge or base) else None
    return replace(keys, judge_api_key=key or (keys.api_key if address == base else None))


def _profile_of(table: JudgeTable, measured: PanelProfile) -> JudgeProfile:
    """The reliability of a judge: as its table says, as measured with the panel, or an average one."""
    if isinstance(table.profile, str):
        return read_profile(Path(table.profile), option=f"{table.where}: profile =")
    if table.profile is not None:
        return replace(JudgeProfile(), **table.profile)
    return measured.members.get(table.name, JudgeProfile())


def worker_context(  # noqa: PLR0917  (a partial of it is sent to the process)
    config: RunConfig,
    keys: Keys,
    confidence: str,
    grace: float,
    found_reply: str | None,
    served_context: int | None,
    allowed_names: Mapping[str, str],
    journal: ReplyStore | None,
    budget_pool: BudgetPool | None,
) -> AbstractAsyncContextManager[WorkerContext]:
    """The context of a worker in another process, with what the runner there found out about the servers."""
    for name, folder in allowed_names.items():
        allow((name,), folder)
    runner = Runner(config, keys=keys, grace=grace)
    runner._found_reply, runner._served_context = found_reply, served_context
    return runner.worker(confidence, journal, budget_pool)


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
