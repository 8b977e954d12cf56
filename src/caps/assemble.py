"""The composition root: from names and settings to the objects that do the work."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast

from caps.core.counting import estimate_tokens
from caps.core.errors import InputError, JournalError, MissingFeatureError
from caps.core.judging import JudgeProfile
from caps.core.play import Strategy
from caps.core.settings import override
from caps.core.types import Ask, Case, Level
from caps.costs.prices import Price, listed_price
from caps.engines.base import Prepare
from caps.engines.budget import Account, Budget, CasePurse, Total
from caps.engines.local import LocalEngine
from caps.evidence.entrants import describe
from caps.evidence.profiles import Profile, profile_named, with_findings, with_views
from caps.findings.answers import AnswerFinder
from caps.findings.base import Finder
from caps.findings.behaviour import BehaviourFinder
from caps.findings.kept import Findings
from caps.graders.base import Grader, Opening
from caps.graders.code import CodeGrader
from caps.graders.math import MathGrader
from caps.graders.sandbox import Limits, find_sandbox
from caps.journal.store import Journal
from caps.judges.base import Bout
from caps.judges.llm import JudgeSettings, LlmJudge, Seat
from caps.judges.profiles import with_profile
from caps.judges.recorded import RecordedJudge
from caps.models import weights
from caps.models.base import Connected, Model, Wiring
from caps.models.canary import canary
from caps.models.journaled import JournaledModel
from caps.models.locate import connect, locate
from caps.models.recorded import RecordedModel
from caps.models.weights import Report
from caps.prompts.fence import nonce_for
from caps.prompts.grammar import WORD
from caps.registry import STRATEGIES, build
from caps.sampling.presets import Preset
from caps.sampling.sampler import Sampler

SURPLUS_CALLS = 2


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a judge is found: an address, the name of a model there, and a key that is never shown."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)


def find(
    model: str | None,
    base_url: str | None,
    api_key: str | None,
    *,
    cache: Path,
    report: Report | None = None,
) -> Endpoint:
    """The endpoint a user means; `embedded` is fetched into `cache` first if it must be."""
    address, name = locate(model, base_url, cache=cache, report=report)
    return Endpoint(address, name, None if address.startswith("file:") else api_key or None)


def reply_for(*places: Endpoint) -> str:
    """How judges are to reply if nobody says: the default weights are too small to speak freely."""
    return "tags" if all(where.model == weights.NAME for where in places) else "free"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that makes a run; what a user may set, already checked."""

    endpoint: Endpoint
    endpoint_partial: Endpoint | None = None
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    confidence: Literal["verbal", "logprobs", "auto"] = "verbal"
    extra: Mapping[str, object] = field(default_factory=dict)
    profile: str | None = None
    views: Mapping[str, str] = field(default_factory=dict)
    prompts: Path | None = None
    connections: int | Literal["auto"] = "auto"
    timeout: float = 600.0
    context: int | None = None
    threads: int | None = None
    journal: Path | None = None
    durable: bool = False
    price: Price | None = None
    hard_evidence: Literal["auto", "on", "off"] = "off"
    sandbox: str = "auto"
    case_budget: Budget = field(default_factory=Budget)
    total_budget: Budget = field(default_factory=Budget)
    grace: float = 0.0


@dataclass(frozen=True, slots=True)
class Session:
    """A run made ready: the engine, the price of a token if it is known, and who looks into cases first."""

    engine: LocalEngine
    price: Price | None
    confidence: str
    findings: Findings | None = None


def make_strategy(
    name: str, changes: Mapping[str, str] | None = None, profile: JudgeProfile | None = None
) -> Strategy:
    """Build a strategy by name, with what is known of the judge, and with some of its fields changed."""
    plain = cast(Strategy, build(STRATEGIES, name, "play", changes))
    if profile is None:
        return plain
    informed = with_profile(plain, profile, name)
    return override(informed, changes) if changes else informed


def with_shortlist(strategy: Strategy) -> Strategy:
    """The strategy, told that what fails a public example need not be judged, if it can be told."""
    told = has_setting(strategy, "shortlist")
    return override(cast(Any, strategy), {"shortlist": "tests"}) if told else strategy


def has_setting(strategy: Strategy, name: str) -> bool:
    """Whether a strategy has a field of that name."""
    return name in getattr(strategy, "__dataclass_fields__", {})


def load_templates(folder: Path | None = None, *, shelf: str = "templates") -> dict[str, str]:
    """The built-in prompt templates by name, with those of a folder in their place.

    A judge's stand on the shelf `templates`, a sampler's on `generation`; a folder may hold both.
    """
    shelves = {
        name: {item.name: item.read_text("utf-8") for item in (files("caps.prompts") / name).iterdir()}
        for name in ("templates", "generation")
    }
    templates = shelves[shelf]
    if folder is None:
        return templates
    try:
        own = {path.name: path.read_text("utf-8") for path in sorted(folder.glob("*.txt"))}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--prompts {folder}: {error}") from None
    known = {name for names in shelves.values() for name in names}
    unknown = own.keys() - known
    if not own or unknown:
        wrong = f"{min(unknown)} is none of ours" if unknown else "no .txt files in it"
        raise InputError(f"--prompts {folder}: {wrong}; names are {', '.join(sorted(known))}")
    return templates | {name: words for name, words in own.items() if name in templates}


def make_prepare(
    profile: str | None = None, views: Mapping[str, str] | None = None, *, findings: bool = False
) -> Prepare:
    """How a case is made ready: by the profile of its domain, or a named one, with single views replaced.

    With `findings`, candidates that were found to behave alike count as equal.
    """
    chosen: dict[str, Profile] = {}

    def prepare(case: Case) -> Bout:
        name = profile or case.domain
        if name not in chosen:
            known = profile_named(name)
            chosen[name] = with_views(with_findings(known) if findings else known, views or {})
        described = describe(case, chosen[name], estimate_tokens)
        statement = case.problem.text
        shown = [view for pair in described.views for view in pair]
        return Bout(case, described, nonce_for(statement, shown), estimate_tokens(statement))

    if profile is not None or views:
        with_views(profile_named(profile or "general"), views or {})
    return prepare


@asynccontextmanager
async def session(setup: Setup, *, probe: bool = True) -> AsyncIterator[Session]:
    """Open journal and connections, try each endpoint once, and hand out the engine; close all in the end."""
    templates, prepare = load_templates(setup.prompts), prepare_for(setup)
    price = setup.price or listed_price(setup.endpoint.model, setup.endpoint.base_url)
    for budget in (setup.case_budget, setup.total_budget):
        Account(budget, price)  # raises where dollars are limited and the price is unknown
    async with AsyncExitStack() as stack:
        journal = None
        if setup.journal is not None:
            journal = stack.enter_context(open_journal(setup.journal, durable=setup.durable))
        at_partial = setup.endpoint_partial or setup.endpoint
        models = {where: _connect(where, setup) for where in {setup.endpoint, at_partial}}
        for model in models.values():
            stack.push_async_callback(model.close)
        confidence = await _confidence(setup, models) if probe else setup.confidence.replace("auto", "verbal")
        kept: dict[Endpoint, Model] = {
            where: model if journal is None else JournaledModel(model, journal)
            for where, model in models.items()
        }
        seats = {
            Level.PARTIAL: Seat(kept[at_partial], at_partial.model, setup.extra),
            Level.FULL: Seat(kept[setup.endpoint], setup.endpoint.model, setup.extra),
        }
        judge = LlmJudge(seats, templates, replace(setup.judge, confidence=confidence))
        findings = make_findings(setup, journal)
        if findings is not None:
            stack.push_async_callback(findings.close)
        engine = LocalEngine(
            judge,
            prepare,
            capacity=lambda: sum(model.connections for model in models.values()) + SURPLUS_CALLS,
            case_budget=setup.case_budget,
            total_budget=setup.total_budget,
            price=price,
            grace=setup.grace,
            find=None if findings is None else findings.find,
        )
        yield Session(engine, price, confidence, findings)


def prepare_for(setup: Setup) -> Prepare:
    """How a run makes its cases ready."""
    return make_prepare(setup.profile, setup.views, findings=setup.hard_evidence != "off")


def make_graders(sandbox: str, seconds: float) -> dict[str, Opening]:
    """Who grades which domain; each is made when it is first needed: not everyone has a sandbox."""

    async def code() -> Grader:
        return CodeGrader(await find_sandbox(sandbox), Limits(seconds=seconds))

    async def math() -> Grader:
        return MathGrader()

    return {"code": code, "math": math}


def make_findings(setup: Setup, journal: Journal | None) -> Findings | None:
    """What is looked into before any judge is asked, unless that is off."""
    if setup.hard_evidence == "off":
        return None
    finders: dict[str, Finder] = {
        "code": BehaviourFinder(setup.sandbox),
        "math": AnswerFinder(MathGrader()),
    }
    return Findings(finders, journal, insist=setup.hard_evidence == "on")


@asynccontextmanager
async def sampler(
    setup: Setup, preset: Preset, *, logprobs: bool = False, probe: bool = True
) -> AsyncIterator[Sampler]:
    """Open journal and connection, try the endpoint once, and hand out the desk where answers are written."""
    templates = load_templates(setup.prompts, shelf="generation")
    where, extra = setup.endpoint, {**preset.extra(), **setup.extra}
    price = setup.price or listed_price(where.model, where.base_url)
    purse = CasePurse(Budget(), price, Total(setup.total_budget, price))
    async with AsyncExitStack() as stack:
        journal = None
        if setup.journal is not None:
            journal = stack.enter_context(open_journal(setup.journal, durable=setup.durable))
        model = _connect(where, setup)
        stack.push_async_callback(model.close)
        if probe:
            await canary(model, where.model, want_logprobs=logprobs, extra=extra)
        yield Sampler(
            model if journal is None else JournaledModel(model, journal),
            where.model,
            preset,
            templates,
            capacity=lambda: model.connections + SURPLUS_CALLS,
            logprobs=logprobs,
            extra=setup.extra,
            purse=purse,
        )


def _connect(where: Endpoint, setup: Setup) -> Connected:
    return connect(
        Wiring(
            address=where.base_url,
            model=where.model,
            api_key=where.api_key,
            connections=setup.connections,
            timeout=setup.timeout,
            context=setup.context,
            threads=setup.threads,
        )
    )


def remembering(setup: Setup, journal: Journal, unanswered: Mapping[tuple[str, Ask], str]) -> RecordedJudge:
    """The judge of a run, answering from its journal alone."""
    return RecordedJudge(judge_over(setup, RecordedModel(journal)), unanswered)


def judge_over(setup: Setup, model: Model) -> LlmJudge:
    """The judge of a run with another model in its seats: it asks in the same words."""
    partial = setup.endpoint_partial or setup.endpoint
    seats = {
        Level.PARTIAL: Seat(model, partial.model, setup.extra),
        Level.FULL: Seat(model, setup.endpoint.model, setup.extra),
    }
    return LlmJudge(seats, load_templates(setup.prompts), setup.judge)


def open_journal(path: Path, *, durable: bool = False) -> Journal:
    """Open the journal at a path, making its folder first."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JournalError(
            f"{path}: its folder cannot be made ({error.strerror}): give another --journal"
        ) from None
    return Journal.open(path, durable=durable)


async def _confidence(setup: Setup, models: Mapping[Endpoint, Connected]) -> str:
    """Call every endpoint once; `auto` reads token probabilities where all of them give some."""
    wanted = setup.confidence != "verbal"
    held = {"grammar": WORD} if setup.judge.reply == "tags" else {}
    try:
        for where, model in models.items():
            await canary(model, where.model, want_logprobs=wanted, extra={**held, **setup.extra})
    except MissingFeatureError:
        if setup.confidence == "logprobs":
            raise
        return "verbal"
    return "logprobs" if wanted else "verbal"
