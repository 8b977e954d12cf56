"""The judges of a run: a panel of several, or one alone.

Each judge of a panel has the config and keys of a run in which it judges alone, so its requests and their
journal keys are the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

from caps.config import Keys, RunConfig
from caps.core.errors import ModelError, SettingError
from caps.core.judge_profile import JudgeProfile
from caps.core.panel import DEFAULT_CORRELATION, Member, Mode, PanelRule
from caps.core.play import AskKind, Strategy
from caps.core.types import Ask, Usage
from caps.costs.prices import Price
from caps.journal.records import ReplyStore
from caps.judge_source import JudgeSource
from caps.judge_tables import JudgeTable
from caps.judging.base import Judge
from caps.judging.callables import CallableJudge
from caps.judging.llm import JudgeSettings, LlmJudge
from caps.judging.panel import PanelJudge, PricedJudge
from caps.judging.profiles import PanelProfile, read_panel_profile, read_profile
from caps.judging.replayed import ReplayedJudge
from caps.judging.reward import RewardJudge
from caps.models.base import HasConnections, Model
from caps.models.endpoints import Connector, Endpoint, Endpoints
from caps.models.probing import VisionTests
from caps.models.servers import join_addresses
from caps.sampling.generators import with_first_generator

#: Why asks had no answer, by judge of a panel; those of the run itself are under an empty name.
UnansweredAsks: TypeAlias = Mapping[str, Mapping[tuple[str, Ask], str]]


class PanelMember(NamedTuple):
    """A judge of a panel: its table, and its source."""

    table: JudgeTable
    source: JudgeSource


class JudgePanel:
    """The judges of a run; see the module's docstring.

    A `judge` object judges alone. `judge_objects` are judges of a panel, by the names of their tables.
    """

    def __init__(
        self,
        config: RunConfig,
        keys: Keys,
        *,
        judge: Judge | None,
        judge_objects: Mapping[str, Judge],
        connector: Connector,
        vision: VisionTests,
        generating: bool,
    ) -> None:
        self._config, self._keys, self._given, self._objects = config, keys, judge, judge_objects
        self._connector, self._vision, self._generating = connector, vision, generating
        self.alone = self._source(config, keys, judge)  #: the judge of the config, without its panel

    def _source(self, config: RunConfig, keys: Keys, judge: Judge | None) -> JudgeSource:
        return JudgeSource(config, keys, judge=judge, connector=self._connector, vision=self._vision)

    @cached_property
    def members(self) -> tuple[PanelMember, ...]:
        """The judges of a panel, in the order of their tables; empty if there is one judge."""
        if self._given is not None:
            return ()
        check_panel(self._config)
        return tuple(PanelMember(table, self._member_source(table)) for table in self._config.judges)

    def _member_source(self, table: JudgeTable) -> JudgeSource:
        config, keys = member_config(self._config, table), member_keys(self._config, self._keys, table)
        if table.base_url and not self._generating:
            config = replace(config, model=None, base_url=())  # only its own server is asked
        shared = self.alone.judge_object if table.judge == self._config.judge else None
        return self._source(config, keys, self._objects.get(table.name) or shared)

    @property
    def sources(self) -> list[JudgeSource]:
        """The sources of all judges."""
        return [one.source for one in self.members] or [self.alone]

    @property
    def found_replies(self) -> tuple[str | None, ...]:
        """The form that the servers of each judge hold replies to, as far as that was found out."""
        return tuple(one.found_reply for one in self.sources)

    @found_replies.setter
    def found_replies(self, found: Iterable[str | None]) -> None:
        for source, reply in zip(self.sources, found, strict=True):
            source.found_reply = reply

    @property
    def models(self) -> list[JudgeSource]:
        """The sources of the judges that are models or reward servers."""
        return [one for one in self.sources if not one.has_own_judge]

    @property
    def has_reward_judge(self) -> bool:
        """Whether a reward server judges alone."""
        return self.alone.has_reward_judge and not self.members

    @property
    def own_judge(self) -> Judge | None:
        """The judge that is not a model: an object, a plug-in, or recorded verdicts; None for a panel."""
        return None if self.members else self.alone.own_judge

    @property
    def name(self) -> str:
        """The name of the judge: its model, its recorded name, or its class; a panel names its judges."""
        if self.members:
            return f"panel of {', '.join(one.table.name for one in self.members)}"
        return self.alone.name

    @cached_property
    def endpoints(self) -> Endpoints:
        """The endpoints of generator and judges; the first model of a panel stands for its judges."""
        if not self.members:
            return self.alone.endpoints
        config, keys = with_first_generator(self._config, self._keys)
        lead = self.models[0].endpoints.full if self.models else Endpoint("", self.name)
        if not self._generating and not config.model:
            return Endpoints(lead, lead, lead)
        found = self._connector.find(config.model, join_addresses(config.base_url), keys.api_key)
        return Endpoints(found, lead, lead)

    @property
    def judging_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of the models that judge, each once."""
        return tuple(dict.fromkeys(where for one in self.models for where in one.endpoints[1:]))

    @property
    def settings(self) -> JudgeSettings:
        """How the judge is asked; of a panel, its first model."""
        return self.models[0].settings if self.models else self.alone.settings_at(lambda: self.endpoints)

    def rule(self, prices: Sequence[Price] | None) -> PanelRule:
        """How a panel is asked and combined: the cheapest judge first, then in the order of the tables.

        If a price is unknown, all are asked in the order of the tables. The correlation of errors is the one
        that is set, else the measured one, else the usual one.
        """
        path, tables = self._config.judge_profile, [one.table for one in self.members]
        measured = PanelProfile() if path is None else read_panel_profile(Path(path))
        if prices is not None:
            cost = [price.input + price.output for price in prices]
            tables = [tables[i] for i in sorted(range(len(tables)), key=lambda i: cost[i])]
        correlations = (self._config.panel_correlation, measured.correlation, DEFAULT_CORRELATION)
        return PanelRule(
            tuple(Member(one.name, _profile_of(one, measured), one.weight, one.levels) for one in tables),
            next(one for one in correlations if one is not None),
            self._config.panel_sure,
        )

    def unanswerable(self, strategy: Strategy) -> list[AskKind]:
        """The kinds of asks of a strategy that the judge, or one of a panel, cannot answer."""
        return list(dict.fromkeys(kind for one in self.sources for kind in one.unanswerable(strategy)))

    def connect(self) -> dict[Endpoint, HasConnections]:
        """Connect once to the model at each judging endpoint; the caller closes them."""
        places = {where: source for source in self.models for where in source.endpoints[1:]}
        return {where: source.connect(where) for where, source in places.items()}

    async def probe(self, servers: Mapping[Endpoint, Model], paid: Callable[[Usage], object]) -> str:
        """Find out what is open; log-probabilities are the confidence only if all judges return them.

        `paid` receives the usage of the test calls.
        """
        if not self.members:
            return await self.alone.probe(servers, paid)
        found = set()
        for table, source in self.members:
            places = () if source.has_own_judge else source.endpoints[1:]
            try:
                found.add(await source.probe({where: servers[where] for where in places}, paid))
            except ModelError as error:
                error.args = (f"judge {table.name!r}: {error}",)
                raise
        return found.pop() if len(found) == 1 else "verbal"

    def combine(
        self,
        make: Callable[[JudgeSource], Judge],
        rule: Callable[[], PanelRule],
        price_of: Callable[[JudgeSource], Price | None],
        *,
        journal: ReplyStore | None,
        unanswered: UnansweredAsks,
        waits: bool,
    ) -> Judge:
        """One judge of all sources; `make` creates the judge of each.

        A function stores its answers in the journal. `unanswered` holds the asks that had no answer, which a
        replay repeats. A panel that answers from records does not wait (`waits`).
        """

        def made(source: JudgeSource, name: str) -> Judge:
            return _with_records(make(source), journal, unanswered.get(name))

        if not self.members:
            return made(self.alone, "")
        judges = {
            table.name: PricedJudge(made(source, table.name), price_of(source))
            for table, source in self.members
        }
        mode, warn = cast(Mode, self._config.panel), self._connector.callbacks.warn
        panel = PanelJudge(rule(), judges, mode=mode, waits=waits, warn=warn)
        return _with_records(panel, journal, unanswered.get(""))


def _with_records(
    judge: Judge, journal: ReplyStore | None, unanswered: Mapping[tuple[str, Ask], str] | None
) -> Judge:
    if journal is not None and isinstance(judge, CallableJudge):
        return judge.kept_in(journal)
    if unanswered and isinstance(judge, LlmJudge | RewardJudge | PanelJudge):
        return ReplayedJudge(judge, unanswered)
    return judge


def check_panel(config: RunConfig) -> None:
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


def member_config(config: RunConfig, table: JudgeTable) -> RunConfig:
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
        max_tokens=table.max_tokens or config.max_tokens,
        judge_temperature=config.judge_temperature if table.temperature is None else table.temperature,
        reply=table.reply or config.reply,
        extra={**config.extra, **table.extra},
        **({} if table.price_input is None else price),
    )


def member_keys(config: RunConfig, keys: Keys, table: JudgeTable) -> Keys:
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
