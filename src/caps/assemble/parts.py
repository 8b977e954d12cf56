"""From names to strategies, prompt templates, graders, finders, and cases made ready."""

from collections.abc import Collection, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from caps.assemble.setup import Setup
from caps.core.counting import estimate_tokens
from caps.core.errors import InputError, SettingError
from caps.core.judging import JudgeProfile
from caps.core.play import Strategy
from caps.core.settings import override
from caps.core.types import Case
from caps.costs.prices import Price, listed_price
from caps.engines.base import Prepare
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
from caps.journal.base import Keeper
from caps.judges.base import Bout
from caps.judges.profiles import with_profile
from caps.prompts.fence import code_for, nonce_for
from caps.prompts.render import VERSION, VERSIONS
from caps.registry import STRATEGIES, build


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


def counts_votes(strategy: Strategy) -> bool:
    """Whether all members of a cluster speak for it: then candidates found to be alike had better be one.

    A cascade keeps one of each cluster; there, merging more than equal texts saves most of the tokens and
    costs answers (docs/design/0005).
    """
    return not has_setting(strategy, "dedup")


def has_setting(strategy: Strategy, name: str) -> bool:
    """Whether a strategy has a field of that name."""
    return name in getattr(strategy, "__dataclass_fields__", {})


def load_templates(
    folder: Path | None = None, *, shelf: str = "templates", version: str = VERSION
) -> dict[str, str]:
    """The built-in prompt templates by name, with those of a folder in their place.

    A judge's stand on the shelf `templates`, in several versions of which one is loaded; a sampler's on
    `generation`. A folder may hold both. Its templates of an earlier version replace the built-in ones of a
    later version, and keep their name: replies to them are found in the journal by it.
    """
    if version not in VERSIONS:
        raise SettingError(f"prompt version {version!r}: must be one of {', '.join(VERSIONS)}")
    shelves = {
        name: {item.name: item.read_text("utf-8") for item in (files("caps.prompts") / name).iterdir()}
        for name in ("templates", "generation")
    }
    own = (
        {}
        if folder is None
        else _own_templates(folder, {name for names in shelves.values() for name in names})
    )
    if shelf == "generation":
        return shelves[shelf] | {name: words for name, words in own.items() if name in shelves[shelf]}
    found: dict[str, str] = {}
    for name, words in shelves[shelf].items():
        stem, _, made_for = name.removesuffix(".txt").rpartition(".")
        if made_for == version:
            usable = VERSIONS[VERSIONS.index(version) :: -1]
            names = (f"{stem}.{one}.txt" for one in usable)
            chosen = next((one for one in names if one in own), name)
            found[chosen] = own.get(chosen, words)
    return found


def templates_for(setup: Setup) -> dict[str, str]:
    """The templates that the judge of a run is asked with."""
    return load_templates(setup.prompts, version=setup.prompt_version)


def _own_templates(folder: Path, known: Collection[str]) -> dict[str, str]:
    try:
        own = {path.name: path.read_text("utf-8") for path in sorted(folder.glob("*.txt"))}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--prompts {folder}: {error}") from None
    unknown = own.keys() - known
    if not own or unknown:
        wrong = f"{min(unknown)} is none of ours" if unknown else "no .txt files in it"
        raise InputError(f"--prompts {folder}: {wrong}; names are {', '.join(sorted(known))}")
    return own


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
        nonce = nonce_for(statement, shown)
        return Bout(case, described, nonce, estimate_tokens(statement), code_for(nonce, [statement, *shown]))

    if profile is not None or views:
        with_views(profile_named(profile or "general"), views or {})
    return prepare


def price_for(setup: Setup) -> Price | None:
    """What a token costs: as stated, or as listed; no list knows what a batch costs."""
    if setup.price is not None or setup.engine == "batch":
        return setup.price
    return listed_price(setup.endpoint.model, setup.endpoint.base_url)


def prepare_for(setup: Setup) -> Prepare:
    """How a run makes its cases ready."""
    findings = setup.merge_found and setup.hard_evidence != "off"
    return make_prepare(setup.profile, setup.views, findings=findings)


def make_graders(sandbox: str, seconds: float) -> dict[str, Opening]:
    """Who grades which domain; each is made when it is first needed: not everyone has a sandbox."""

    async def code() -> Grader:
        return CodeGrader(await find_sandbox(sandbox), Limits(seconds=seconds))

    async def math() -> Grader:
        return MathGrader()

    return {"code": code, "math": math}


def make_findings(setup: Setup, journal: Keeper | None) -> Findings | None:
    """What is looked into before any judge is asked, unless that is off."""
    if setup.hard_evidence == "off":
        return None
    finders: dict[str, Finder] = {
        "code": BehaviourFinder(setup.sandbox),
        "math": AnswerFinder(MathGrader()),
    }
    return Findings(finders, journal, insist=setup.hard_evidence == "on")
