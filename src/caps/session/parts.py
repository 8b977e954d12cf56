"""Factories: strategies, templates, judges, graders, findings and journals, from names and settings."""

from collections.abc import Collection, Mapping
from functools import cache, lru_cache, partial
from importlib.resources import files
from inspect import isawaitable
from pathlib import Path
from typing import Any, cast

from caps.config import RunConfig
from caps.core.domains import Finder, Grader, MakeGrader, Opening, Resources
from caps.core.errors import InputError, SettingError
from caps.core.judge_profile import JudgeProfile
from caps.core.play import Strategy, capabilities_of
from caps.core.settings import override
from caps.datasets.verdicts import Records, read_records
from caps.evidence.domains import all_domains
from caps.evidence.profiles import GENERAL, profile_named, with_views
from caps.files import is_stream, read_text
from caps.findings.base import Findings
from caps.journal.records import ReplyStore
from caps.judging.base import Judge
from caps.judging.callables import as_judge
from caps.judging.preparation import CasePreparation
from caps.judging.profiles import with_profile
from caps.judging.recorded import RecordedJudge
from caps.registry import (
    FINDERS,
    GRADERS,
    JUDGES,
    STRATEGIES,
    build,
    check_call,
    check_method,
    check_methods,
    create,
    resolve,
)
from caps.workers.texts import TextWorkers


def make_strategy(
    name: str, changes: Mapping[str, str] | None = None, profile: JudgeProfile | None = None
) -> Strategy:
    """Create a strategy by name, with a judge profile and some of its fields changed."""
    plain = cast(Strategy, build(STRATEGIES, name, changes))
    if profile is None:
        return plain
    with_judge = with_profile(plain, profile, name)
    return override(with_judge, changes) if changes else with_judge


def with_skip_failing(strategy: Strategy, name: str) -> Strategy:
    """The strategy without judging programs that fail a public example."""
    if not capabilities_of(strategy).can_skip_failing:
        raise SettingError(
            f"strategy {name!r} cannot skip failing programs: drop --skip-failing, or choose caps or caps-r"
        )
    return cast(Strategy, override(cast(Any, strategy), {"shortlist": "tests"}))


def load_templates(folder: Path | None = None, *, shelf: str = "templates") -> dict[str, str]:
    """The prompt templates by name: the built-in ones, replaced by those of a folder.

    Those of judges are `templates`, those of samplers `generation`. A folder may contain both.
    """
    shelves = {name: _built_in(name) for name in ("templates", "generation")}
    replaced = (
        {} if folder is None else _own_templates(folder, {*shelves["templates"], *shelves["generation"]})
    )
    return {name: replaced.get(name, text) for name, text in shelves[shelf].items()}


def generation_templates(config: RunConfig) -> dict[str, str]:
    """The templates that answers are generated with."""
    return load_templates(None if config.prompts is None else Path(config.prompts), shelf="generation")


@cache
def _built_in(shelf: str) -> Mapping[str, str]:
    return {item.name: item.read_text("utf-8") for item in (files("caps.prompts") / shelf).iterdir()}


def _own_templates(folder: Path, names: Collection[str]) -> dict[str, str]:
    templates = {path.name: read_text(path, option="--prompts") for path in sorted(folder.glob("*.txt"))}
    unknown = templates.keys() - names
    if not templates or unknown:
        problem = f"{min(unknown)} is not a template name" if unknown else "it has no .txt files"
        raise InputError(f"--prompts {folder}: {problem}; names are {', '.join(sorted(names))}")
    return templates


def make_prepare(
    profile: str | None = None,
    views: Mapping[str, str] | None = None,
    *,
    findings: bool = False,
    quotes: bool = False,
    differences: bool = False,
    context: int | None = None,
    reply: int = 0,
    all_at_once: bool = False,
    templates: Mapping[str, str] | None = None,
) -> CasePreparation:
    """Create the preparation of cases: a profile, by default that of the domain, with single views replaced.

    With `findings`, candidates of the same behaviour count as equal; with `quotes`, prompts ask for no code;
    with `differences`, pairs are shown by what separates them, where that is known. Views are shortened to
    fit a judge with `context` tokens, `reply` of them for its reply. `templates` are those of its prompts.
    """
    if profile is not None or views:
        with_views(GENERAL if profile is None else profile_named(profile), views or {})
    return CasePreparation(
        profile,
        tuple((views or {}).items()),
        findings=findings,
        quotes=quotes,
        differences=differences,
        context=context,
        reply=reply,
        all_at_once=all_at_once,
        templates=templates or {},
    )


def make_judge(name: str, timeout: float) -> Judge:
    """Create a judge by name: a function `(problem, a, b)`, or an object or class like `Judge`."""
    part = resolve(JUDGES, name)
    judge = create(JUDGES._replace(methods={}), name, part) if isinstance(part, type) else part
    if hasattr(judge, "rule") or hasattr(judge, "max_usage"):
        return cast(Judge, check_methods(JUDGES, name, judge))
    what = f"judge {name!r}"
    if not callable(judge):
        raise SettingError(
            f"{what} is {judge!r:.80}: must be a function (problem, a, b), or have the methods rule and "
            "max_usage"
        )
    check_call(what, judge, ("problem", "a", "b"))
    for method, taken in (("rate", ("problem", "a")), ("pick", ("problem", "candidates"))):
        if hasattr(judge, method):
            check_method(what, judge, method, taken, article="a judge")
    return as_judge(judge, timeout=timeout)


def make_graders(sandbox: str, seconds: float) -> dict[str, Opening]:
    """The grader of each domain, created when it is first needed, since some need a sandbox."""
    resources = Resources(sandbox=sandbox, seconds=seconds)
    return {
        domain.name: partial(_open_grader, domain.name, domain.grader, resources)
        for domain in all_domains()
        if domain.grader is not None
    }


def make_grader(name: str, sandbox: str, seconds: float) -> Opening:
    """A grader by name, created when it is first needed."""
    resolve(GRADERS, name)  # raises if it is unknown
    return partial(_open_grader, name, name, Resources(sandbox=sandbox, seconds=seconds))


async def _open_grader(name: str, grader: str | MakeGrader, resources: Resources) -> Grader:
    factory = resolve(GRADERS, grader) if isinstance(grader, str) else grader
    opened = create(GRADERS._replace(methods={}), name, factory, resources)
    grading = check_methods(GRADERS, name, await opened if isawaitable(opened) else opened)
    _check_version("grader", name, grading)
    return cast(Grader, grading)


def read_recorded_judge(path: str, judge: str | None) -> RecordedJudge:
    """A judge of a file of recorded verdicts; the file is read again only if it has changed."""
    if is_stream(path):
        return RecordedJudge.read(path, judge)
    try:
        stat = Path(path).stat()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"--recorded {path}: {reason}") from None
    records = _records(path, stat.st_mtime_ns, stat.st_size)
    name, answers = records.of(judge)
    return RecordedJudge(name, answers, digest=records.digest)


@lru_cache(maxsize=2)
def _records(path: str, changed: int, size: int) -> Records:  # noqa: ARG001  (cache keys)
    return read_records(path)


def make_finders(resources: Resources) -> dict[str, Finder]:
    """The finder of each domain, which runs before any judge; programs run only in a sandbox."""
    finders = dict[str, Finder]()
    for domain in all_domains():
        if domain.finder is None:
            continue
        factory = resolve(FINDERS, domain.finder) if isinstance(domain.finder, str) else domain.finder
        finder = create(FINDERS._replace(methods={}), domain.name, factory, resources)
        if finder is not None:
            finders[domain.name] = check_methods(FINDERS, domain.name, finder)
            _check_version("finder", domain.name, finder)
    return finders


def make_findings(
    config: RunConfig,
    journal: ReplyStore | None,
    texts: TextWorkers | None = None,
) -> Findings:
    """Create the findings of a run, which are computed before any judge is asked."""
    resources = Resources(
        sandbox=config.sandbox,
        texts=texts,
        further_inputs=config.further_inputs,
        further_seconds=config.further_seconds,
    )
    return Findings(make_finders(resources), journal, insist=config.hard_evidence == "on")


def _check_version(kind: str, name: str, instance: object) -> None:
    if not isinstance(getattr(instance, "version", None), str):
        raise SettingError(
            f"{kind} {name!r} has no version: a text that changes whenever its results could; results are "
            "stored under it"
        )
