"""`JudgeSource`: one judge, as a config describes it, and all that is needed to ask it.

A judge is an object, a plug-in or recorded verdicts (its *own* judge), a reward server, or a model. A run has
a source for each of its judges (`judges`), and what a judge is asked does not depend on the others.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace as changed

from caps.building import make_judge, read_recorded_judge
from caps.config import REWARD_APIS, Keys, RunConfig
from caps.core.errors import SettingError
from caps.core.play import AskKind, Strategy, capabilities_of
from caps.core.secrets import shown_address
from caps.core.types import Usage
from caps.costs.prices import Price, listed_price
from caps.files import read_text
from caps.judge_tables import JudgeTable
from caps.judging.base import Judge
from caps.judging.callables import CallableJudge
from caps.judging.llm import JudgeSettings, JudgingModel, LlmJudge
from caps.judging.recorded import RecordedJudge
from caps.judging.reward import RewardJudge
from caps.models import weights
from caps.models.base import HasConnections, Model
from caps.models.discovery import takes_cache_control
from caps.models.endpoints import Connector, Endpoint, Endpoints, find_endpoints
from caps.models.http import HttpModel
from caps.models.probing import VisionTests, probe
from caps.models.rewards import TEMPLATES, Form, RewardModel
from caps.models.servers import ServersModel
from caps.registry import MODEL_JUDGES, REWARD_JUDGE, path_of_class
from caps.sampling.generators import with_first_generator


class JudgeSource:
    """One judge of a run; see the module's docstring.

    `table` has its name, weight and level among several judges. A `judge` object takes the place of what the
    config names. `found_reply` is the form that its servers hold replies to, once `probe` has found it out.
    """

    def __init__(
        self,
        config: RunConfig,
        keys: Keys,
        *,
        table: JudgeTable,
        judge: Judge | None,
        connector: Connector,
        vision: VisionTests,
    ) -> None:
        self.config, self.table = config, table
        self.found_reply: str | None = None
        self._keys, self._given, self._connector, self._vision = keys, judge, connector, vision

    # Which judge it is

    @property
    def has_own_judge(self) -> bool:
        """Whether the judge is no model: an object, a plug-in or recorded verdicts."""
        named = self.config.judge not in MODEL_JUDGES or self.config.recorded is not None
        return self._given is not None or named

    @property
    def has_reward_judge(self) -> bool:
        """Whether a reward server judges."""
        return self.config.judge == REWARD_JUDGE and not self.has_own_judge

    @cached_property
    def judge_object(self) -> Judge | None:
        """The judge object or plug-in, if there is one."""
        if self._given is not None or self.config.judge in MODEL_JUDGES:
            return self._given
        if self.config.recorded is not None:
            raise SettingError(
                "judge and recorded: recorded verdicts replace the judge; give only one of them"
            )
        return make_judge(self.config.judge, self.config.timeout)

    @cached_property
    def own_judge(self) -> Judge | None:
        """The judge that is no model: an object, a plug-in, or recorded verdicts."""
        if self.judge_object is None and self.config.recorded is not None:
            return read_recorded_judge(self.config.recorded, self.config.recorded_judge)
        return self.judge_object

    @property
    def name(self) -> str:
        """The name of the judge: its model, its recorded name, or its class."""
        judge = self.own_judge
        if judge is None:
            return self.endpoints.judge.model
        return getattr(judge, "name", None) or path_of_class(judge)

    @cached_property
    def endpoints(self) -> Endpoints:
        """The endpoints of the generator and the judge; missing weights are downloaded."""
        return find_endpoints(*with_first_generator(self.config, self._keys), self._connector)

    @property
    def stated_price(self) -> Price | None:
        """The token price stated in the config."""
        return Price.stated(self.config)

    @cached_property
    def price(self) -> Price | None:
        """The token price as stated, or from the price list."""
        if not self.uses_price_list:
            return self.stated_price
        return listed_price(self.endpoints.judge.model, self.endpoints.judge.base_url)

    @property
    def uses_price_list(self) -> bool:
        """Whether its price is looked up: none is stated, and a server is asked. Batches are not listed."""
        connects = not self._connector.offline and self._connector.model is None
        unlisted = self.config.engine == "batch" or self.has_own_judge
        return self.stated_price is None and connects and not unlisted

    # How it is asked

    @property
    def settings(self) -> JudgeSettings:
        """How the judge is asked; the small embedded model replies with bare tags."""
        config = self.config
        reply = self.found_reply or config.reply
        if reply is None:
            reply = "tags" if self.endpoints.judge.model == weights.NAME else "free"
        return JudgeSettings(
            max_tokens=config.max_tokens,
            temperature=config.judge_temperature,
            reply=reply.replace("auto", "free"),  # until a server was asked
            confidence=config.confidence.replace("auto", "verbal"),
        )

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

    def make_judge(
        self,
        model_at: Callable[[Endpoint], Model],
        templates: Mapping[str, str],
        *,
        confidence: str | None = None,
        servers: Mapping[Endpoint, Model] = MappingProxyType({}),
        since: float = 0.0,
    ) -> Judge:
        """Create the judge with its models; `servers` are those without a journal, asked whether they see.

        `since` is when the run began; see `LlmJudge`.
        """
        if self.own_judge is not None:
            return self.own_judge
        where = self.endpoints.judge
        sees = partial(self._sees, where, servers.get(where))
        model = JudgingModel(model_at(where), where.model, self.config.extra, sees)
        if self.has_reward_judge:
            return RewardJudge(model, self.reward_form)
        settings = self.settings
        if confidence is not None:
            settings = replace(settings, confidence=confidence)
        return LlmJudge(model, templates, settings, cache_hints=self._cache_hints, since=since)

    async def _sees(self, where: Endpoint, server: Model | None) -> bool:
        """Whether the judge at an endpoint can see; `auto` asks its server once."""
        if self.config.vision != "auto":
            return self.config.vision == "yes"
        # a replay or a batch has no server
        return True if server is None else await self._vision.can_see(where, server, self.config.extra)

    @property
    def _cache_hints(self) -> bool:
        """Whether prompts mark their shared beginnings for the server's cache."""
        if self.config.cache_hints != "auto":
            return self.config.cache_hints == "on"
        return takes_cache_control(self.endpoints.judge.base_url, self.endpoints.judge.model)

    # What it can do

    def unanswerable(self, strategy: Strategy) -> list[AskKind]:
        """The kinds of asks of a strategy that the judge cannot answer."""
        judge, able = self.own_judge, capabilities_of(strategy)
        if not able.asks_judge:
            return []
        if self.has_reward_judge:
            return [kind for kind in able.asks if kind not in RewardJudge.answers]
        if not isinstance(judge, CallableJudge | RecordedJudge):
            return []
        return [kind for kind in able.asks if kind not in judge.answers]

    def check(self, strategy: Strategy, name: str) -> None:
        """Refuse a judge that cannot answer what the strategy of a name asks, before anything is asked."""
        judge, asks = self.own_judge, capabilities_of(strategy).asks_judge
        if self.has_reward_judge and asks:
            _ = self.reward_form  # raises if something is missing
            for kind in self.unanswerable(strategy):
                raise SettingError(
                    f"strategy {name!r} asks the judge for a {kind}, and a reward server only "
                    "rates: choose --strategy pointwise; or write its scores into the cases with caps score, "
                    "and let another judge compare (--set feature=rm_score)"
                )
            if self.config.engine == "batch":
                raise SettingError("engine batch: there is no Batch API for scores; use local")
        if not isinstance(judge, CallableJudge | RecordedJudge) or not asks:
            return
        method = {"pair": "__call__", "rating": "rate", "pick": "pick"}
        for kind in self.unanswerable(strategy):
            if isinstance(judge, RecordedJudge):
                raise SettingError(
                    f"strategy {name!r} asks for a {kind}, and no {kind} of judge "
                    f"{judge.name!r} is recorded in {self.config.recorded}: choose another strategy"
                )
            raise SettingError(
                f"strategy {name!r} asks the judge for a {kind}, and this one compares "
                f"pairs: give it a method {method[kind]!r}, or choose another strategy, such as posterior"
            )
        if self.config.engine != "local":
            said = "recorded verdicts" if isinstance(judge, RecordedJudge) else "a function"
            raise SettingError(f"engine {self.config.engine}: {said} cannot be the judge; use local")

    # Its servers

    def connect(self, where: Endpoint) -> HasConnections:
        """Connect to the model or the reward server at an endpoint; the caller closes it."""
        model = self._connector.connect(where, self.config)
        if not self.has_reward_judge or self._connector.model is not None:
            return model
        if not isinstance(model, HttpModel | ServersModel):
            raise SettingError(
                f"--judge reward needs a server, and {shown_address(where.base_url)} is none: give --base-url"
            )
        return RewardModel(model, self.reward_form, notify=self._connector.callbacks.warn)

    async def probe(self, models: Mapping[Endpoint, Model], paid: Callable[[Usage], object]) -> str:
        """Find out what is open: where the confidence comes from, and the form of replies (`found_reply`)."""
        if self.has_reward_judge or not models:
            return "verbal"
        found = await probe(models, self.config, paid)
        self.found_reply = found.reply or self.found_reply
        return found.confidence

    # What the run file states of it

    def stated_asking(self) -> dict[str, Any]:
        """The settings of how the judge is asked, with all derived values stated."""
        settings, stated = self.settings, self.config.reply
        known = self.found_reply is not None or stated != "auto"
        return {
            "max_tokens": settings.max_tokens,
            "judge_temperature": settings.temperature,
            "reply": settings.reply if known else stated,
            "extra": self.config.extra,
        }

    def stated_table(self, price: Price | None) -> JudgeTable:
        """Its table, with all derived values stated."""
        if self.has_own_judge:
            return self.table
        values, where = self.stated_asking(), self.endpoints.judge
        return changed(
            self.table,
            model=where.model,
            base_url=(where.base_url,) if where.base_url else (),
            max_tokens=values["max_tokens"],
            temperature=values["judge_temperature"],
            reply=values["reply"],
            extra=values["extra"],
            **stated_prices(price),
        )


def stated_prices(price: Price | None) -> dict[str, Any]:
    """A price as settings; none if it is unknown."""
    return {} if price is None else {f"price_{name}": value for name, value in asdict(price).items()}
