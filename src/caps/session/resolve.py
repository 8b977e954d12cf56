"""`resolve`: a config becomes everything a run needs, found and checked once.

`Resolved` is plain data: it can be sent to a worker process, and nothing in it changes. What needs a network
connection happens later, when a session is opened (`session.session`); only weights of an embedded model are
fetched here. Nothing else builds a judge, a strategy or a sampler from a config, so the same config gives the
same selections everywhere.

An object passed instead of a name (`Objects`) replaces what the config would have built; journal, budgets,
costs and reports stay. It is recorded by its name, and a replay needs it again.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from caps.config import Keys, RunConfig
from caps.config.judges import JudgeTable
from caps.core.errors import SettingError
from caps.core.play import AskKind, Strategy, capabilities_of
from caps.core.settings import override, setting_text, share_out
from caps.costs.prices import HighestPrice, Price, listed_price
from caps.judging.base import Judge
from caps.judging.callables import JudgeFunction, as_judge
from caps.judging.preparation import CasePreparation
from caps.judging.profiles import read_profile
from caps.models.base import Model
from caps.models.endpoints import Callbacks, Connector, Endpoint, find_endpoints
from caps.models.probing import VisionTests
from caps.models.servers import join_addresses
from caps.registry import path_of_class
from caps.sampling.base import Method, Preset
from caps.sampling.generators import GeneratorSource, read_sources, with_first_generator
from caps.sampling.methods import make_method, make_preset, resolve_preset
from caps.session.cases import CaseDefaults
from caps.session.engines import batch_started
from caps.session.judges import JudgeSpec, check_recorded, config_alone, is_model, keys_alone, load_judge
from caps.session.parts import load_templates, make_prepare, make_strategy, with_skip_failing

NO_CALLBACKS = Callbacks()
#: The settings that say where models are, and those that name a judge that is no model.
PLACES = ("model", "base_url", "judge_model", "judge_base_url", "judges")
NAMED = ("judge", "recorded", "recorded_judge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """Objects that take the place of what a config names.

    `judge` takes the place of all judges, and `judges` that of single ones, by the names of their tables.
    """

    judge: Judge | JudgeFunction | None = None
    judges: Mapping[str, Judge | JudgeFunction] = field(default_factory=dict)
    model: Model | None = None
    strategy: Strategy | None = None
    method: Method | None = None
    preset: Preset | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How candidates are generated: the method, and the models that write answers, at least one."""

    method: Method
    sources: tuple[GeneratorSource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Everything a run needs, except open connections; see the module's docstring.

    `generator` is where the model of the run is, None if no model is needed. `generation` is None unless the
    run generates candidates. `started` is when the run began, in seconds since 1970, and `grace` the number
    of seconds that a stopped run waits for running calls, which are paid for.
    """

    config: RunConfig
    keys: Keys
    objects: Objects
    strategy: Strategy
    strategy_name: str
    judges: tuple[JudgeSpec, ...]
    asks_judge: bool
    asks_model: bool
    generator: Endpoint | None
    generation: Generation | None
    templates: Mapping[str, str]
    cases: CaseDefaults
    price: Price | None
    connector: Connector
    vision: VisionTests
    grace: float
    started: float

    @property
    def journal(self) -> Path | None:
        """The path of the journal, if there is one."""
        return None if self.config.journal is None else Path(self.config.journal)

    @property
    def judge_name(self) -> str:
        """The names of the judges; empty if none is asked."""
        return ", ".join(spec.name for spec in self.judges) if self.asks_judge else ""

    @property
    def merges_equal(self) -> bool:
        """Whether findings merge equal candidates: if the strategy counts votes and findings are on."""
        return capabilities_of(self.strategy).counts_votes and self.config.hard_evidence != "off"

    def preparation(self, *, findings: bool, context: int | None = None) -> CasePreparation:
        """The preparation of cases for judging; a forecast, which computes no findings, does without them.

        `context` is the number of tokens that the judge's server reports, if the config states none.
        """
        config, able = self.config, capabilities_of(self.strategy)
        return make_prepare(
            config.profile,
            {name: str(value) for name, value in config.views.items()},
            findings=findings,
            quotes=config.prompts is not None,
            differences=able.asks_about_differences and config.hard_evidence != "off",
            context=config.context_tokens or context,
            reply=config.max_tokens,
            all_at_once="pick" in able.asks,
            templates=self.templates if self.asks_judge else {},
        )

    def unanswerable(self, strategy: Strategy) -> list[AskKind]:
        """The kinds of asks of a strategy that a judge of this run cannot answer."""
        kinds = (kind for spec in self.judges for kind in spec.unanswerable(strategy))
        return list(dict.fromkeys(kinds))

    def with_config(self, config: RunConfig) -> "Resolved":
        """The same run with other settings; judges and templates that stay the same are not read again."""
        objects = self.objects
        if config.strategy != self.config.strategy:
            objects = replace(objects, strategy=None)
        if (config.judge, config.judges) != (self.config.judge, self.config.judges):
            objects = replace(objects, judge=None, judges={})
        return resolve(
            config,
            self.keys,
            objects=objects,
            generating=self.generation is not None,
            grace=self.grace,
            started=self.started,
            base=self,
        )


def with_generation(resolved: Resolved) -> Resolved:
    """The same run as one that generates candidates."""
    return resolve(
        resolved.config,
        resolved.keys,
        objects=resolved.objects,
        generating=True,
        callbacks=resolved.connector.callbacks,
        grace=resolved.grace,
    )


def generation_of(resolved: Resolved) -> Generation:
    """How a generating run generates candidates."""
    if resolved.generation is None:
        raise SettingError("this run generates no candidates: they come with the cases")
    return resolved.generation


def resolve(
    config: RunConfig,
    keys: Keys | None = None,
    *,
    objects: Objects | None = None,
    generating: bool = False,
    offline: bool = False,
    any_model: bool = False,
    load_judges: bool = True,
    callbacks: Callbacks = NO_CALLBACKS,
    grace: float = 0.0,
    started: float | None = None,
    base: Resolved | None = None,
) -> Resolved:
    """Find and check everything that a config names; a `SettingError` says what is wrong.

    A `generating` run also accepts settings of the sampling method and the preset. `offline` runs name models
    without looking for them. With `any_model`, each request names its model. Without `load_judges`, plug-ins
    and recorded verdicts are not read. Asks of which runs that `started` earlier could read no reply are
    asked again. What `base` has resolved from the same settings is taken from it.
    """
    if generating and config.generator and config.samples != "auto":
        raise SettingError("several generators need --n auto: add it, or leave out the generators")
    keys, objects = keys or Keys(), objects or Objects()
    connector = Connector(
        objects.model,
        offline=offline or config.batch_dir is not None,
        any_model=any_model,
        callbacks=callbacks,
    )
    if base is not None:
        connector = base.connector
    config, keys, judge_objects = _sole_judge(config, keys, objects)
    parts = _Tunable(config, objects, generating=generating)
    strategy = parts.strategy()
    asks_judge = capabilities_of(strategy).asks_judge
    generates = generating or connector.any_model
    drafts = _draft_judges(config, keys, judge_objects, base, generating=generating, load=load_judges)
    if base is not None and base.generator is not None and _same(config, base.config, PLACES):
        places = {spec.table.name: spec.where for spec in base.judges}
        generator: Endpoint | None = base.generator
        judges = tuple(replace(spec, where=places[spec.table.name]) for spec, _ in drafts)
    elif generates or ((asks_judge or connector.offline) and any(is_model(spec) for spec, _ in drafts)):
        generator, judges = _locate(config, keys, drafts, connector, generates=generates)
    else:
        generator, judges = None, tuple(spec for spec, _ in drafts)
    generation = _generation(config, keys, connector, generator, parts) if generating else None
    judges = _with_prices(judges, connector, generation, asks_judge=asks_judge)
    asks_model = asks_judge and any(map(is_model, judges))
    began = batch_started(config) if started is None else started
    return Resolved(
        config=config,
        keys=keys,
        objects=objects,
        strategy=strategy,
        strategy_name=config.strategy if objects.strategy is None else path_of_class(objects.strategy),
        judges=judges,
        asks_judge=asks_judge,
        asks_model=asks_model,
        generator=generator,
        generation=generation,
        templates=_templates(config, judges, base),
        cases=CaseDefaults(config, connector.callbacks.warn),
        price=_price(config, judges, generation, asks_model=asks_model),
        connector=connector,
        vision=VisionTests(connector.callbacks) if base is None else base.vision,
        grace=grace,
        started=time.time() if began is None else began,
    )


def _same(config: RunConfig, other: RunConfig, names: tuple[str, ...]) -> bool:
    return all(getattr(config, name) == getattr(other, name) for name in names)


def _sole_judge(config: RunConfig, keys: Keys, objects: Objects) -> tuple[RunConfig, Keys, dict[str, Judge]]:
    """The config, in which a single table is the judge of the run, and the judge objects by table."""
    check_recorded(config)
    judge_objects = dict(objects.judges) if objects.judge is None else {"": objects.judge}
    if objects.judge is not None:
        config = replace(config, judges=())
    elif len(config.judges) == 1:
        table = config.judges[0]
        judge_objects = {"": judge_objects[table.name]} if table.name in judge_objects else {}
        config, keys = config_alone(config, table), keys_alone(config, keys, table)
    return (
        config,
        keys,
        {name: as_judge(judge, timeout=config.timeout) for name, judge in judge_objects.items()},
    )


def _draft_judges(
    config: RunConfig,
    keys: Keys,
    judge_objects: Mapping[str, Judge],
    base: Resolved | None,
    *,
    generating: bool,
    load: bool,
) -> list[tuple[JudgeSpec, Keys]]:
    """The judges without their endpoints and prices, each with its keys."""
    loaded = {} if base is None else {spec.table.name: spec for spec in base.judges}
    drafts = []
    for table in config.judges or (JudgeTable(),):
        own_config, own_keys = config, keys
        if config.judges:
            own_config, own_keys = config_alone(config, table), keys_alone(config, keys, table)
            if table.base_url and not generating:
                own_config = replace(own_config, model=None, base_url=())  # only its own server is asked
        before, judge = loaded.get(table.name), judge_objects.get(table.name)
        if judge is None and before is not None and _same(before.config, own_config, NAMED):
            judge = before.judge
        elif judge is None:
            judge = load_judge(own_config, load=load)
        drafts.append((JudgeSpec(table=table, config=own_config, judge=judge), own_keys))
    return drafts


def _locate(
    config: RunConfig,
    keys: Keys,
    drafts: list[tuple[JudgeSpec, Keys]],
    connector: Connector,
    *,
    generates: bool,
) -> tuple[Endpoint, tuple[JudgeSpec, ...]]:
    """Where the generator and the judges are; missing weights are fetched.

    A key is not sent to another address.
    """
    located, endpoints = [], []
    for spec, own_keys in drafts:
        if is_model(spec) or len(drafts) == 1:
            endpoints_found = find_endpoints(*with_first_generator(spec.config, own_keys), connector)
            endpoints.append(endpoints_found)
            located.append(replace(spec, where=endpoints_found.judge) if is_model(spec) else spec)
        else:
            located.append(spec)
    if len(drafts) == 1:
        return endpoints[0].generator, tuple(located)
    config, keys = with_first_generator(config, keys)
    if config.model or generates or not endpoints:
        return connector.find(config.model, join_addresses(config.base_url), keys.api_key), tuple(located)
    return endpoints[0].judge, tuple(located)


def _generation(
    config: RunConfig, keys: Keys, connector: Connector, generator: Endpoint | None, parts: "_Tunable"
) -> Generation:
    if config.generator:
        sources = read_sources(config, keys, connector, parts.preset_changes())
    else:
        where = generator or Endpoint("", config.model or "")
        price = Price.stated(config) or listed_price(where.model, where.base_url)
        sources = (GeneratorSource(where, parts.preset(), price),)
    return Generation(method=parts.method(), sources=sources)


def _with_prices(
    judges: tuple[JudgeSpec, ...], connector: Connector, generation: Generation | None, *, asks_judge: bool
) -> tuple[JudgeSpec, ...]:
    """The judges with the token price of each; where no model judges, that of the generator."""

    def price_of(spec: JudgeSpec) -> Price | None:
        price = Price.stated(spec.config)
        if price is not None:
            return price
        if generation is not None and not connector.offline and not (is_model(spec) and asks_judge):
            return generation.sources[0].price
        looked_up = connector.model is None and not connector.offline and not connector.any_model
        if spec.where is None or not looked_up or spec.config.engine == "batch" or not asks_judge:
            return None
        return listed_price(spec.where.model, spec.where.base_url)

    return tuple(replace(spec, price=price_of(spec)) for spec in judges)


def _price(
    config: RunConfig, judges: tuple[JudgeSpec, ...], generation: Generation | None, *, asks_model: bool
) -> Price | None:
    """The token price of a run; only models cost something."""
    if len(judges) == 1:
        return judges[0].price
    if Price.stated(config) is None and generation is not None and not asks_model:
        return generation.sources[0].price
    prices = [spec.price for spec in judges if is_model(spec)]
    known = [price for price in prices if price is not None]
    return HighestPrice.of_judges(known) if len(known) == len(prices) else None


def _templates(config: RunConfig, judges: tuple[JudgeSpec, ...], base: Resolved | None) -> Mapping[str, str]:
    """The prompt templates the judges are asked with; reward servers have none."""
    if all(spec.is_reward for spec in judges):
        return {}
    if base is not None and base.config.prompts == config.prompts and base.templates:
        return base.templates
    return load_templates(None if config.prompts is None else Path(config.prompts))


def strategy_of(config: RunConfig) -> Strategy:
    """The strategy that a config names, with its settings."""
    return _Tunable(config, Objects(), generating=False).strategy()


class _Tunable:
    """The parts whose fields `--set` changes: strategy, and for generating runs method and preset."""

    def __init__(self, config: RunConfig, objects: Objects, *, generating: bool) -> None:
        self._config, self._objects = config, objects
        self._preset_name = resolve_preset(config.preset, config.model)
        changes = {name: setting_text(value) for name, value in config.settings.items()}
        self._of_strategy, self._of_method, self._of_preset = changes, dict[str, str](), dict[str, str]()
        if generating:
            self._of_strategy, self._of_method, self._of_preset = share_out(
                changes,
                objects.strategy or make_strategy(config.strategy),
                objects.method or make_method(config.method),
                objects.preset or make_preset(self._preset_name),
            )

    def strategy(self) -> Strategy:
        """The strategy with its settings, the judge profile and `skip_failing` applied."""
        config, strategy = self._config, self._objects.strategy
        if strategy is not None:
            chosen = override(strategy, self._of_strategy) if self._of_strategy else strategy
        else:
            profile = None if config.judge_profile is None else read_profile(Path(config.judge_profile))
            chosen = make_strategy(config.strategy, self._of_strategy, profile)
        return with_skip_failing(chosen, config.strategy) if config.skip_failing else chosen

    def method(self) -> Method:
        """How candidates are generated."""
        method = self._objects.method
        return (
            override(method, self._of_method) if method else make_method(self._config.method, self._of_method)
        )

    def preset(self) -> Preset:
        """The sampling settings of the generating model."""
        preset, changes = self._objects.preset, self.preset_changes()
        return override(preset, changes) if preset else make_preset(self._preset_name, changes)

    def preset_changes(self) -> dict[str, str]:
        """The fields of a preset that the config sets."""
        return {"seed": str(self._config.seed), **self._of_preset}
