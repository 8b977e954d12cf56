"""The judges of a run: each completely described by a `JudgeSpec`, and made from it.

A run has at least one judge. Each has the config of a run in which it judges alone, so its requests and their
journal keys do not depend on the other judges. A judge is an object, a plug-in or recorded verdicts, a reward
server, or a model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from caps.config import REWARD_APIS, Keys, RunConfig
from caps.config.judges import JudgeTable
from caps.core.errors import ModelError, SettingError
from caps.core.play import AskKind, Strategy, capabilities_of
from caps.core.secrets import shown_address
from caps.core.types import Ask, Usage
from caps.costs.budget import priced
from caps.costs.prices import Price
from caps.files import read_text
from caps.journal.records import ReplyStore
from caps.judging.base import Judge, NoJudge
from caps.judging.callables import CallableJudge
from caps.judging.llm import JudgeSettings, JudgingModel, LlmJudge
from caps.judging.recorded import RecordedJudge, ReplayedJudge
from caps.judging.reward import RewardJudge
from caps.judging.several import SeveralJudges, WeightedJudge
from caps.models import weights
from caps.models.base import HasConnections, Model
from caps.models.endpoints import Connector, Endpoint, takes_cache_control
from caps.models.http import HttpModel
from caps.models.probing import Probed, probe
from caps.models.rewards import TEMPLATES, Form, RewardModel
from caps.models.servers import ServersModel, join_addresses
from caps.registry import MODEL_JUDGES, REWARD_JUDGE, path_of_class
from caps.session.parts import make_judge, read_recorded_judge

if TYPE_CHECKING:
    from caps.session.resolve import Resolved

#: Why asks had no answer, by the name of one of several judges; those of the run itself are under "".
UnansweredAsks: TypeAlias = Mapping[str, Mapping[tuple[str, Ask], str]]
NONE_UNANSWERED: UnansweredAsks = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSpec:
    """One judge: nothing else is consulted to ask it.

    `table` has its name, weight and level among several judges; `config` is that of a run in which it judges
    alone. `judge` is an object, a plug-in or recorded verdicts; without it a model or a reward server at
    `where` judges.
    """

    table: JudgeTable
    config: RunConfig
    judge: Judge | None = None
    where: Endpoint | None = None
    price: Price | None = None

    @property
    def name(self) -> str:
        """The name of the judge: that of its table, its model, its recorded name, or its class."""
        if self.table.name or self.judge is None:
            return self.table.name or ("" if self.where is None else self.where.model)
        return getattr(self.judge, "name", None) or path_of_class(self.judge)

    @property
    def is_reward(self) -> bool:
        """Whether a reward server judges."""
        return self.config.judge == REWARD_JUDGE and self.judge is None

    def settings(self, learned: Probed | None = None) -> JudgeSettings:
        """How the judge is asked; the small embedded model replies with bare tags.

        What the config leaves open is as `learned` from its servers; until they were asked, replies are free
        and the confidence is verbal.
        """
        config, learned = self.config, learned or Probed("")
        reply = learned.reply or config.reply
        if reply is None:
            small = self.where is not None and self.where.model == weights.NAME
            reply = "tags" if small else "free"
        return JudgeSettings(
            max_tokens=config.max_tokens,
            temperature=config.judge_temperature,
            reply=reply.replace("auto", "free"),
            confidence=learned.confidence or config.confidence.replace("auto", "verbal"),
        )

    def reward_form(self) -> Form:
        """How a reward server is asked; a template that is no name is read from its file."""
        config = self.config
        if config.reward_api is None:
            raise SettingError(f"--judge reward needs --reward-api: one of {', '.join(REWARD_APIS)}")
        template = config.reward_template or ""
        if template and template not in TEMPLATES:
            template = read_text(template, option="reward_template")
        return Form(config.reward_api, template, config.reward_steps, config.reward_class)

    def unanswerable(self, strategy: Strategy) -> list[AskKind]:
        """The kinds of asks of a strategy that the judge cannot answer."""
        able = capabilities_of(strategy)
        if not able.asks_judge:
            return []
        if self.is_reward:
            return [kind for kind in able.asks if kind not in RewardJudge.answers]
        if not isinstance(self.judge, CallableJudge | RecordedJudge):
            return []
        return [kind for kind in able.asks if kind not in self.judge.answers]


def is_model(spec: JudgeSpec) -> bool:
    """Whether a model or a reward server judges."""
    return spec.judge is None


def load_judge(config: RunConfig, *, load: bool) -> Judge | None:
    """The plug-in or the recorded verdicts that a config names; None if a model judges.

    A run that asks nothing, such as that of a report, does not `load` it: it gets one that answers nothing.
    """
    if config.judge not in MODEL_JUDGES:
        if config.recorded is not None:
            raise SettingError(
                "judge and recorded: recorded verdicts replace the judge; give only one of them"
            )
        return make_judge(config.judge, config.timeout) if load else NoJudge()
    if config.recorded is None:
        return None
    return read_recorded_judge(config.recorded, config.recorded_judge) if load else NoJudge()


# What a config says of one of several judges


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
        **{**table.settings, "extra": {**config.extra, **table.settings.get("extra", {})}},
    )


def keys_alone(config: RunConfig, keys: Keys, table: JudgeTable) -> Keys:
    """The keys of one of several judges: its own, or that of the run, which goes to no other address."""
    if table.api_key_env:
        return replace(keys, judge_api_key=keys.judges.get(table.api_key_env))
    base, judge = join_addresses(config.base_url), join_addresses(config.judge_base_url)
    address = join_addresses(table.base_url) or judge or base
    key = keys.judge_api_key if address == (judge or base) else None
    return replace(keys, judge_api_key=key or (keys.api_key if address == base else None))


# Before anything is asked


def check_judge(spec: JudgeSpec, strategy: Strategy, name: str) -> None:
    """Refuse a judge that cannot answer what the strategy of a name asks."""
    judge, engine = spec.judge, spec.config.engine
    if not capabilities_of(strategy).asks_judge:
        return
    lacking = spec.unanswerable(strategy)
    if spec.is_reward:
        spec.reward_form()  # raises if something is missing
        if lacking:
            raise SettingError(
                f"strategy {name!r} asks the judge for a {lacking[0]}, and a reward server only "
                "rates: choose --strategy pointwise; or write its scores into the cases with caps score, "
                "and let another judge compare (--set feature=rm_score)"
            )
        if engine == "batch":
            raise SettingError("engine batch: there is no Batch API for scores; use local")
    if isinstance(judge, RecordedJudge) and lacking:
        raise SettingError(
            f"strategy {name!r} asks for a {lacking[0]}, and no {lacking[0]} of judge {judge.name!r} is "
            f"recorded in {spec.config.recorded}: choose another strategy"
        )
    if isinstance(judge, CallableJudge) and lacking:
        method = {"pair": "__call__", "rating": "rate", "pick": "pick"}[lacking[0]]
        raise SettingError(
            f"strategy {name!r} asks the judge for a {lacking[0]}, and this one compares pairs: give it a "
            f"method {method!r}, or choose another strategy, such as posterior"
        )
    if isinstance(judge, CallableJudge | RecordedJudge) and engine != "local":
        said = "recorded verdicts" if isinstance(judge, RecordedJudge) else "a function"
        raise SettingError(f"engine {engine}: {said} cannot be the judge; use local")


def connect_judges(resolved: "Resolved") -> dict[Endpoint, HasConnections]:
    """Connect once to the model or reward server at each endpoint of a judge; the caller closes them."""
    places = {spec.where: spec for spec in resolved.judges if spec.where is not None}
    return {where: _connect(spec, where, resolved.connector) for where, spec in places.items()}


def _connect(spec: JudgeSpec, where: Endpoint, connector: Connector) -> HasConnections:
    model = connector.connect(where, spec.config)
    if not spec.is_reward or connector.model is not None:
        return model
    if not isinstance(model, HttpModel | ServersModel):
        raise SettingError(
            f"--judge reward needs a server, and {shown_address(where.base_url)} is none: give --base-url"
        )
    return RewardModel(model, spec.reward_form(), notify=connector.callbacks.warn)


async def probe_judges(
    resolved: "Resolved", servers: Mapping[Endpoint, Model], paid: Callable[[Usage], object]
) -> dict[str, Probed]:
    """Find out what the config leaves open about each judge, by the name of its table.

    Log-probabilities are the confidence only if all judges return them. `paid` receives the usage of the test
    calls, with its cost if there are several judges.
    """
    several = len(resolved.judges) > 1
    learned: dict[str, Probed] = {}
    for spec in resolved.judges:
        asked_servers = {
            where: model for where, model in servers.items() if not several or where == spec.where
        }
        count = (lambda usage, price=spec.price: paid(priced(usage, price))) if several else paid
        try:
            asked = is_model(spec) and not spec.is_reward and bool(asked_servers)
            learned[spec.table.name] = (
                await probe(asked_servers, spec.config, count) if asked else Probed("verbal")
            )
        except ModelError as error:
            if several:
                error.args = (f"judge {spec.table.name!r}: {error}",)
            raise
    confidences = {probed.confidence for probed in learned.values()}
    shared = confidences.pop() if len(confidences) == 1 else "verbal"
    return {name: probed._replace(confidence=shared) for name, probed in learned.items()}


# Making the judge


def judge_of(
    resolved: "Resolved",
    model_at: Callable[[Endpoint], Model],
    *,
    learned: Mapping[str, Probed] | None = None,
    journal: ReplyStore | None = None,
    unanswered: UnansweredAsks = NONE_UNANSWERED,
    servers: Mapping[Endpoint, Model] | None = None,
    waits: bool = True,
) -> Judge:
    """The judge of a run: its only one, or one that asks several. No other function makes it.

    A function stores its answers in the journal. `unanswered` holds the asks that had no answer, which a
    replay repeats. `servers` are the models without a journal, which are asked whether they can see. Judges
    that answer from records do not wait (`waits`).
    """
    if not resolved.asks_judge and is_model(resolved.judges[0]):
        return NoJudge()
    judges = []
    for spec in resolved.judges:
        probed = (learned or {}).get(spec.table.name)
        judge = spec.judge or _ask_model(spec, resolved, model_at, probed, servers or {})
        recorded = _with_records(judge, journal, unanswered.get(spec.table.name))
        judges.append(
            WeightedJudge(spec.table.name, recorded, spec.table.weight, spec.table.levels, spec.price)
        )
    if len(judges) == 1:
        return judges[0].judge
    several = SeveralJudges(judges, waits=waits, warn=resolved.connector.callbacks.warn)
    return _with_records(several, journal, unanswered.get(""))


def _ask_model(
    spec: JudgeSpec,
    resolved: "Resolved",
    model_at: Callable[[Endpoint], Model],
    learned: Probed | None,
    servers: Mapping[Endpoint, Model],
) -> Judge:
    config, where = spec.config, spec.where
    assert where is not None  # noqa: S101  (it is found for every model that is asked)
    server = servers.get(where)

    async def sees() -> bool:
        if config.vision != "auto":
            return config.vision == "yes"
        # a replay or a batch has no server
        return True if server is None else await resolved.vision.can_see(where, server, config.extra)

    model = JudgingModel(model_at(where), where.model, config.extra, sees)
    if spec.is_reward:
        return RewardJudge(model, spec.reward_form())
    hints = config.cache_hints == "on"
    if config.cache_hints == "auto":
        hints = takes_cache_control(where.base_url, where.model)
    return LlmJudge(
        model, resolved.templates, spec.settings(learned), cache_hints=hints, since=resolved.started
    )


def _with_records(
    judge: Judge, journal: ReplyStore | None, unanswered: Mapping[tuple[str, Ask], str] | None
) -> Judge:
    if journal is not None and isinstance(judge, CallableJudge):
        return judge.kept_in(journal)
    if unanswered and isinstance(judge, LlmJudge | RewardJudge | SeveralJudges):
        return ReplayedJudge(judge, unanswered)
    return judge
