"""The judges of a run: at least one, and each with the config and keys of a run in which it judges alone.

So the requests of a judge and their journal keys do not depend on the other judges.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TypeAlias

from caps.config import Keys, RunConfig
from caps.core.errors import ModelError, SettingError
from caps.core.types import Ask, Usage
from caps.costs.prices import Price
from caps.journal.records import ReplyStore
from caps.judge_source import JudgeSource
from caps.judge_tables import JudgeTable
from caps.judging.base import Judge
from caps.judging.callables import CallableJudge
from caps.judging.llm import LlmJudge
from caps.judging.replayed import ReplayedJudge
from caps.judging.reward import RewardJudge
from caps.judging.several import SeveralJudges, WeightedJudge, priced
from caps.models.base import HasConnections, Model
from caps.models.endpoints import Connector, Endpoint, Endpoints
from caps.models.probing import VisionTests
from caps.models.servers import join_addresses
from caps.sampling.generators import with_first_generator

#: Why asks had no answer, by the name of one of several judges; those of the run itself are under "".
UnansweredAsks: TypeAlias = Mapping[str, Mapping[tuple[str, Ask], str]]
ONLY = ""  # the name of the only judge of a run


class Judges:
    """The judges of a run; see the module's docstring.

    `objects` are judges by the names of their tables; the only judge of a run has the name `ONLY`.
    """

    def __init__(
        self,
        config: RunConfig,
        keys: Keys,
        *,
        objects: Mapping[str, Judge],
        connector: Connector,
        vision: VisionTests,
        generating: bool,
    ) -> None:
        check_recorded(config)
        self._config, self._keys, self._connector, self._generating = config, keys, connector, generating
        tables = config.judges or (JudgeTable(),)
        self.sources = tuple(
            JudgeSource(
                *self._settings_of(table),
                table=table,
                judge=objects.get(table.name),
                connector=connector,
                vision=vision,
            )
            for table in tables
        )

    def _settings_of(self, table: JudgeTable) -> tuple[RunConfig, Keys]:
        """The config and the keys of a judge."""
        if not self._config.judges:
            return self._config, self._keys
        config, keys = config_alone(self._config, table), keys_alone(self._config, self._keys, table)
        if table.base_url and not self._generating:
            config = replace(config, model=None, base_url=())  # only its own server is asked
        return config, keys

    @property
    def found_replies(self) -> tuple[str | None, ...]:
        """The form that the servers of each judge hold replies to, as far as that was found out."""
        return tuple(source.found_reply for source in self.sources)

    @found_replies.setter
    def found_replies(self, replies: Iterable[str | None]) -> None:
        for source, reply in zip(self.sources, replies, strict=True):
            source.found_reply = reply

    @property
    def models(self) -> list[JudgeSource]:
        """The sources of the judges that are models or reward servers."""
        return [source for source in self.sources if not source.has_own_judge]

    @property
    def objects(self) -> dict[str, Judge]:
        """The judge objects and plug-ins by the names of their tables."""
        judges = {source.table.name: source.judge_object for source in self.sources}
        return {name: judge for name, judge in judges.items() if judge is not None}

    @property
    def name(self) -> str:
        """The name of the judge: its model, its recorded name, or its class; those of several judges."""
        return ", ".join(source.table.name or source.name for source in self.sources)

    @cached_property
    def endpoints(self) -> Endpoints:
        """The endpoints of generator and judge; the first model stands for several judges."""
        if len(self.sources) == 1:
            return self.sources[0].endpoints
        config, keys = with_first_generator(self._config, self._keys)
        judge = self.models[0].endpoints.judge if self.models else Endpoint("", self.name)
        if not self._generating and not config.model:
            return Endpoints(judge, judge)
        generator = self._connector.find(config.model, join_addresses(config.base_url), keys.api_key)
        return Endpoints(generator, judge)

    def connect(self) -> dict[Endpoint, HasConnections]:
        """Connect once to the model at each judging endpoint; the caller closes them."""
        places = {source.endpoints.judge: source for source in self.models}
        return {where: source.connect(where) for where, source in places.items()}

    async def probe(
        self,
        servers: Mapping[Endpoint, Model],
        paid: Callable[[Usage], object],
        price_of: Callable[[JudgeSource], Price | None],
    ) -> str:
        """Find out what is open; log-probabilities are the confidence only if all judges return them.

        `paid` receives the usage of the test calls, with its cost if there are several judges.
        """
        if len(self.sources) == 1:
            return await self.sources[0].probe(servers, paid)
        confidences = {await _probe(source, servers, paid, price_of(source)) for source in self.sources}
        return confidences.pop() if len(confidences) == 1 else "verbal"

    def combine(
        self,
        make: Callable[[JudgeSource], Judge],
        price_of: Callable[[JudgeSource], Price | None],
        *,
        journal: ReplyStore | None,
        unanswered: UnansweredAsks,
        waits: bool,
    ) -> Judge:
        """One judge of all sources; `make` creates the judge of each.

        A function stores its answers in the journal. `unanswered` holds the asks that had no answer, which a
        replay repeats. Judges that answer from records do not wait (`waits`).
        """
        judges = [
            WeightedJudge(
                source.table.name,
                _with_records(make(source), journal, unanswered.get(source.table.name)),
                source.table.weight,
                source.table.levels,
                price_of(source),
            )
            for source in self.sources
        ]
        if len(judges) == 1:
            return judges[0].judge
        several = SeveralJudges(judges, waits=waits, warn=self._connector.callbacks.warn)
        return _with_records(several, journal, unanswered.get(ONLY))


async def _probe(
    source: JudgeSource,
    servers: Mapping[Endpoint, Model],
    paid: Callable[[Usage], object],
    price: Price | None,
) -> str:
    """Find out what is open about one of several judges."""
    if source.has_own_judge or not servers:
        return await source.probe({}, paid)
    where = source.endpoints.judge
    try:
        return await source.probe({where: servers[where]}, lambda usage: paid(priced(usage, price)))
    except ModelError as error:
        error.args = (f"judge {source.table.name!r}: {error}",)
        raise


def _with_records(
    judge: Judge, journal: ReplyStore | None, unanswered: Mapping[tuple[str, Ask], str] | None
) -> Judge:
    if journal is not None and isinstance(judge, CallableJudge):
        return judge.kept_in(journal)
    if unanswered and isinstance(judge, LlmJudge | RewardJudge | SeveralJudges):
        return ReplayedJudge(judge, unanswered)
    return judge


def check_recorded(config: RunConfig) -> None:
    """Refuse judge tables that do not fit the file of recorded verdicts."""
    recorded = [table for table in config.judges if table.recorded is not None]
    if recorded and config.recorded is None:
        raise SettingError(
            f"judge {recorded[0].name!r}: recorded: name the file of recorded verdicts: --recorded FILE"
        )
    if config.judges and config.recorded is not None and not recorded:
        raise SettingError("recorded: none of the judges is recorded: give tables with recorded = NAME")


def config_alone(config: RunConfig, table: JudgeTable) -> RunConfig:
    """The config of a run in which one of several judges judges alone."""
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


def keys_alone(config: RunConfig, keys: Keys, table: JudgeTable) -> Keys:
    """The keys of one of several judges: its own, or that of the run, which goes to no other address."""
    if table.api_key_env:
        return replace(keys, judge_api_key=keys.judges.get(table.api_key_env))
    base, judge = join_addresses(config.base_url), join_addresses(config.judge_base_url)
    address = join_addresses(table.base_url) or judge or base
    key = keys.judge_api_key if address == (judge or base) else None
    return replace(keys, judge_api_key=key or (keys.api_key if address == base else None))
