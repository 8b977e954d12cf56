"""Registries: names of built-in parts, of plug-ins in installed packages, and paths to code.

A new strategy is one file and one line here. A name is looked up in this order:

* a built-in name, which no plug-in can replace;
* the name of an entry point in the registry's group, such as `caps.judges`, of an installed package;
* `package.module:object`, an object that Python can import;
* `py:module:object`, code in the working directory. It is imported only if `allow` was called with that name,
  as the command line does for its arguments and for `--config` files. A `caps.toml` in the working directory,
  a request to the server, a case or a run folder cannot import code from the working directory.

A plug-in that cannot be loaded or created, or lacks a method, is a `SettingError` that names it.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from inspect import getdoc, signature
from re import compile as pattern
from typing import Any, NamedTuple

from caps.core.errors import SettingError
from caps.core.settings import nearest, override
from caps.core.text import short_repr

LOCAL_PREFIX = "py:"
_PATH = pattern(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_allowed: dict[str, str] = {}  # `py:` names given by the user, and the folder of their code


class Entry(NamedTuple):
    """A built-in part: its import path, a one-line description, and its reference."""

    path: str
    about: str
    reference: str


class Registry(NamedTuple):
    """A kind of part: its name, its entry-point group, the built-in parts, and aliases.

    `methods` are required methods with the names of their arguments.
    """

    kind: str
    group: str
    table: Mapping[str, Entry]
    aliases: Mapping[str, str]
    methods: Mapping[str, tuple[str, ...]] = {}


class ListedEntry(NamedTuple):
    """An entry of a registry: name, one-line description, reference, and package."""

    name: str
    about: str
    reference: str
    package: str


PAPER = "CAPS"
DEFAULT_STRATEGY = "posterior"  # docs/design/0006
DEFAULT_JUDGE = "model"
REWARD_JUDGE = "reward"
MODEL_JUDGES = (DEFAULT_JUDGE, REWARD_JUDGE)  # which ask a server
DEFAULT_DOMAIN = "general"
_STRATEGIES = {
    "caps": Entry("caps.strategies.caps:Caps", "the cascade of Algorithm 1 (CAPS-Core)", f"{PAPER}, §3.2"),
    "caps-r": Entry(
        "caps.strategies.caps:CAPS_R", "the cascade with rescue, the published CAPS", f"{PAPER}, §3.3"
    ),
    "caps-plus": Entry(
        "caps.strategies.caps:CAPS_PLUS", "the cascade with known issues fixed", "docs/design/0002"
    ),
    "no-rescue": Entry("caps.strategies.caps:Caps", "ablation: CAPS-R without rescue", f"{PAPER}, Tab. 6"),
    "no-dedup": Entry(
        "caps.strategies.caps:NO_DEDUP", "ablation: CAPS-R without Stage 0", f"{PAPER}, Tab. 6"
    ),
    "all-e2": Entry(
        "caps.strategies.caps:ALL_E2", "ablation: CAPS-R at full evidence only", f"{PAPER}, Tab. 6"
    ),
    "unweighted": Entry(
        "caps.strategies.caps:UNWEIGHTED", "ablation: CAPS-R, every game weighs 1", f"{PAPER}, Tab. 6"
    ),
    "random-pairing": Entry(
        "caps.strategies.caps:RANDOM_PAIRING", "ablation: CAPS-R, random pairs in Stage A", f"{PAPER}, Tab. 6"
    ),
    "v1-infer": Entry(
        "caps.strategies.v1_infer:V1Infer", "uncertainty-guided Swiss tournament", "Singh et al. 2026"
    ),
    "v1-infer-caps": Entry(
        "caps.strategies.v1_infer:V1_INFER_CAPS",
        "V1-Infer with the settings CAPS compares with",
        f"{PAPER}, §D.1",
    ),
    "vanilla": Entry("caps.strategies.vanilla:Vanilla", "the first sample, unjudged", f"{PAPER}, §4.1"),
    "pointwise": Entry(
        "caps.strategies.pointwise:Pointwise", "rate each alone, 1 to 10", "Venkatraman et al. 2025"
    ),
    "random-pairs": Entry(
        "caps.strategies.random_pairs:RandomPairs", "random pairs, as many as V1-Infer", f"{PAPER}, §4.3"
    ),
    "random-pairs-caps": Entry(
        "caps.strategies.random_pairs:RANDOM_PAIRS_CAPS",
        "random pairs with the weight floor CAPS compares with",
        f"{PAPER}, §4.3",
    ),
    "majority": Entry(
        "caps.strategies.voting:Majority", "the most common answer, unjudged", "Wang et al. 2022"
    ),
    "tests-first": Entry(
        "caps.strategies.tests_first:TestsFirst", "most public examples passed, then the majority", "caps"
    ),
    "posterior": Entry(
        "caps.strategies.posterior:Posterior", "votes, findings and verdicts in one probability", "caps"
    ),
    "naive": Entry(
        "caps.strategies.naive:Naive", "votes and verdicts as independent evidence: the baseline", "caps"
    ),
    "sprint": Entry(
        "caps.strategies.sprint:Sprint", "halve at E1, knockout at E2, doubtful games twice", "caps"
    ),
    "round-robin": Entry("caps.strategies.round_robin:RoundRobin", "everyone meets everyone", "Hunter 2004"),
    "knockout": Entry(
        "caps.strategies.knockout:Knockout", "single elimination, answers grouped", "Liu et al. 2025"
    ),
    "pivot": Entry("caps.strategies.pivot:Pivot", "a ring, then all against the leaders", "llm-verifier"),
    "listwise": Entry(
        "caps.strategies.listwise:Listwise", "one call reads a window, picks the best", "Chen et al. 2023"
    ),
    "reward": Entry(
        "caps.strategies.reward:Reward", "the highest score the case carries", "Cobbe et al. 2021"
    ),
}

STRATEGIES = Registry(
    "strategy",
    "caps.strategies",
    _STRATEGIES,
    {"caps_r": "caps-r", "min_degree": "v1-infer-caps", "random": "random-pairs-caps"},
    {"play": ("entrants", "rng")},
)

_VIEWS = {
    "code-summary": Entry(
        "caps.evidence.views:code_summary",
        "50 + 50 words of reasoning, 500 characters of code",
        f"{PAPER}, §E.2",
    ),
    "code-excerpt": Entry(
        "caps.evidence.views:code_excerpt", "code-summary, 50 words being at most 800 characters", "caps"
    ),
    "candidate-head": Entry(
        "caps.evidence.views:candidate_head", "the first 20 lines of the candidate", f"{PAPER}, §D.4"
    ),
    "code-head": Entry("caps.evidence.views:code_head", "the first 20 lines of code", f"{PAPER}, §B.3"),
    "code-only": Entry("caps.evidence.views:code_only", "all of the code, no reasoning", f"{PAPER}, §E.1"),
    "math-summary": Entry(
        "caps.evidence.views:math_summary",
        "50 + 50 words of reasoning, the last boxed answer",
        f"{PAPER}, §E.2",
    ),
    "math-excerpt": Entry(
        "caps.evidence.views:math_excerpt",
        "50 + 50 words in at most 800 characters each, any final answer",
        "caps",
    ),
    "math-window": Entry(
        "caps.evidence.views:math_window",
        "the final answer and some 300 tokens before it",
        f"{PAPER}, §B.3",
    ),
    "thinking": Entry(
        "caps.evidence.views:thinking",
        "the boxed answer and the last 500 tokens or so",
        f"{PAPER}, §D.4",
    ),
    "thinking-announced": Entry(
        "caps.evidence.views:thinking_announced", "the same with an answer announced in words too", "caps"
    ),
    "general-summary": Entry("caps.evidence.views:general_summary", "the first and last 120 words", "caps"),
    "full": Entry("caps.evidence.views:full", "the whole candidate", f"{PAPER}, §E.2"),
    "without-thoughts": Entry(
        "caps.evidence.views:without_thoughts", "the candidate but what it thought between tags", "caps"
    ),
}
VIEWS = Registry("view", "caps.views", _VIEWS, {})

_PAIR_VIEWS = {
    "code-difference": Entry(
        "caps.evidence.views:code_difference",
        "of two programs: inputs on which they differ, both outputs, lines that only one has",
        "caps",
    ),
}
PAIR_VIEWS = Registry("pair view", "caps.pair_views", _PAIR_VIEWS, {})

_SIGNATURES = {
    "code-ast": Entry(
        "caps.evidence.signatures:code_ast", "equal syntax trees, docstrings apart", f"{PAPER}, §3.1"
    ),
    "code-text": Entry(
        "caps.evidence.signatures:code_text",
        "equal code but for imports, comments, indentation",
        f"{PAPER}, §E.2",
    ),
    "math-answer": Entry(
        "caps.evidence.signatures:math_answer", "equal last boxed answers", f"{PAPER}, §E.2"
    ),
    "math-final": Entry(
        "caps.evidence.signatures:math_final", "equal final answers, boxed or announced", "caps"
    ),
    "general-answer": Entry(
        "caps.evidence.signatures:general_answer", "equal JSON, tool calls or stated answers", "caps"
    ),
    "clusters": Entry(
        "caps.evidence.signatures:cluster",
        "equal output, value or files by the hard evidence, else equal by the signature of the domain",
        "docs/design/0005",
    ),
}
SIGNATURES = Registry("signature", "caps.signatures", _SIGNATURES, {})

_PROFILES = {
    "code": Entry("caps.evidence.profiles:CODE", "programs: code-ast, code-excerpt", PAPER),
    "math": Entry("caps.evidence.profiles:MATH", "mathematics: math-final, math-excerpt", PAPER),
    "general": Entry("caps.evidence.profiles:GENERAL", "chat: general-answer, general-summary", "caps"),
    "code-paper": Entry(
        "caps.evidence.profiles:CODE_PAPER", "programs as in the paper: code-ast, code-summary", PAPER
    ),
    "math-paper": Entry(
        "caps.evidence.profiles:MATH_PAPER", "mathematics as in the paper: math-answer, math-summary", PAPER
    ),
    "code-thinking": Entry(
        "caps.evidence.profiles:CODE_THINKING", "programs of models that think at length", PAPER
    ),
    "math-thinking": Entry(
        "caps.evidence.profiles:MATH_THINKING", "mathematics of models that think at length", PAPER
    ),
    "general-thinking": Entry(
        "caps.evidence.profiles:GENERAL_THINKING", "chat with models that think at length", "caps"
    ),
}
PROFILES = Registry("profile", "caps.profiles", _PROFILES, {})

_PRESETS = {
    "default": Entry("caps.sampling.base:Preset", "any chat model", "caps"),
    "qwen3-14b": Entry("caps.sampling.base:QWEN3_14B", "32,768 tokens, top-k off", f"{PAPER}, §E.4"),
    "qwen3-4b-instruct": Entry(
        "caps.sampling.base:QWEN3_4B_INSTRUCT", "the same, thinking off", f"{PAPER}, §E.4"
    ),
    "qwen3-4b-thinking": Entry(
        "caps.sampling.base:QWEN3_4B_THINKING", "the same, thinking always on", f"{PAPER}, §E.4"
    ),
    "gpt-oss-20b": Entry(
        "caps.sampling.base:GPT_OSS_20B", "the problem as it is, reasoning effort medium", f"{PAPER}, §E.4"
    ),
    "small": Entry("caps.sampling.base:SMALL", "small models: four worked examples, short answers", "caps"),
}
PRESETS = Registry("preset", "caps.presets", _PRESETS, {}, {"extra": ()})

_METHODS = {
    "independent": Entry(
        "caps.sampling.methods:Independent", "every candidate drawn on its own", f"{PAPER}, §D.1"
    ),
    "aggregate": Entry(
        "caps.sampling.methods:Aggregate", "one more call writes a new answer from all", "Zhao et al. 2025"
    ),
    "rsa": Entry(
        "caps.sampling.methods:Rsa", "a population rewritten from its own groups", "Venkatraman et al. 2025"
    ),
}
METHODS = Registry("method", "caps.methods", _METHODS, {}, {"sample": ("case", "n", "desk", "aids")})

_JUDGES = {
    "model": Entry(
        "caps.judging.llm:LlmJudge", "the model at --base-url, or --judge-base-url", f"{PAPER}, §3"
    ),
    "reward": Entry(
        "caps.judging.reward:RewardJudge",
        "a reward or classifier server there, which rates (--reward-api)",
        "docs/howto/reward-models.md",
    ),
}
JUDGES = Registry(
    "judge",
    "caps.judges",
    _JUDGES,
    {},
    {"rule": ("prepared", "ask", "budget"), "max_usage": ("prepared", "ask")},
)

_DOMAINS = {
    "code": Entry(
        "caps.evidence.domains:CODE", "programs: run on public examples, graded by hidden tests", PAPER
    ),
    "math": Entry("caps.evidence.domains:MATH", "final answers: compared by value", PAPER),
    "general": Entry("caps.evidence.domains:GENERAL", "anything else: compared as text", "caps"),
}
DOMAINS = Registry("domain", "caps.domains", _DOMAINS, {})

_FINDERS = {
    "behaviour": Entry(
        "caps.findings.programs:make_finder", "what programs do, run in the sandbox", "docs/design/0005"
    ),
    "answers": Entry("caps.findings.answers:make_finder", "answers of equal value", "docs/design/0005"),
}
FINDERS = Registry("finder", "caps.finders", _FINDERS, {}, {"find": ("case", "until"), "close": ()})

_GRADERS = {
    "code": Entry("caps.grading.code:make_grader", "all hidden tests pass in the sandbox", f"{PAPER}, §4.1"),
    "math": Entry("caps.grading.math:make_grader", "final answers, compared by value", "math-verify"),
    "replies": Entry(
        "caps.grading.math:make_reply_grader", "JSON and stated answers, compared by value", "caps"
    ),
}
GRADERS = Registry("grader", "caps.graders", _GRADERS, {}, {"grade": ("case", "candidate"), "close": ()})

_DATASETS = {
    "livecodebench-v5": Entry(
        "caps.datasets.code_sets:V5", "contest programs of 2024-08 to 2025-01", f"{PAPER}, §4.1"
    ),
    "livecodebench-v6": Entry(
        "caps.datasets.code_sets:V6", "contest programs of 2025-02 to 2025-04", f"{PAPER}, §4.1"
    ),
    "codecontests": Entry("caps.datasets.code_sets:TEST", "contest programs", f"{PAPER}, §4.1"),
    "aime-2025": Entry(
        "caps.datasets.math_sets:AIME_2025", "olympiad answers from 0 to 999", f"{PAPER}, §4.1"
    ),
    "hmmt-feb-2025": Entry(
        "caps.datasets.math_sets:FEBRUARY_2025", "olympiad answers in LaTeX", f"{PAPER}, §4.1"
    ),
    "humaneval": Entry("caps.datasets.code_sets:HUMANEVAL", "complete a function", "Chen et al. 2021"),
    "humaneval-plus": Entry(
        "caps.datasets.code_sets:HUMANEVAL_PLUS", "HumanEval with many more tests", "Liu et al. 2023"
    ),
    "mbpp": Entry("caps.datasets.code_sets:MBPP", "short programs, test split", "Austin et al. 2021"),
    "mbpp-sanitized": Entry(
        "caps.datasets.code_sets:SANITIZED", "short programs, checked by hand", "Austin et al. 2021"
    ),
    "math-500": Entry("caps.datasets.math_sets:MATH_500", "competition mathematics", "Hendrycks et al. 2021"),
    "gsm8k": Entry("caps.datasets.math_sets:TEST", "grade-school word problems", "Cobbe et al. 2021"),
}
DATASETS = Registry("dataset", "caps.datasets", _DATASETS, {})

FORMATS = Registry("format", "caps.formats", {}, {})  # the built-in ones: `datasets/imports.py`

_MODELS = {
    "http": Entry("caps.models.http:connect", "any OpenAI-compatible endpoint", "docs/howto/endpoints.md"),
    "servers": Entry(
        "caps.models.servers:connect", "several servers of one model", "docs/howto/several-servers.md"
    ),
    "embedded": Entry(
        "caps.models.embedded:connect", "a GGUF file inside this process", "docs/howto/llamacpp.md"
    ),
}
MODELS = Registry(
    "model backend",
    "caps.models",
    _MODELS,
    {"https": "http", "file": "embedded"},
    {"complete": ("request",), "close": ()},
)


#: Parts of `plugins/caps-agents`, so that errors can say what has to be installed.
_OF_AGENTS = frozenset({"patch", "trajectory", "atif", "chat", "mini-swe-agent", "openhands", "swe-agent"})
INSTALL_AGENTS = "pip install ./plugins/caps-agents"

REGISTRIES = (
    STRATEGIES, JUDGES, DOMAINS, VIEWS, SIGNATURES, PROFILES, FINDERS, GRADERS, MODELS, PRESETS, METHODS,
    DATASETS, FORMATS,
)  # fmt: skip


def resolve(registry: Registry, name: str) -> Any:
    """Find an object by its name."""
    name = registry.aliases.get(name, name)
    if name in registry.table:
        return _import_object(registry.table[name].path)
    if name.startswith(LOCAL_PREFIX):
        return _import_local(name)
    for point in _entry_points(registry.group):
        if point.name == name:
            return _load(registry, point)
    if names_code(name):
        return _import_object(name)
    choices = list(names(registry))
    raise SettingError(
        f"no {registry.kind} is called {name!r}: {installs(name) or nearest(name, choices)}there are "
        f"{', '.join(choices)}; or give a path such as package.module:Name, or {LOCAL_PREFIX}module:Name for "
        "code in the working directory"
    )


def build(registry: Registry, name: str, changes: Mapping[str, str] | None = None) -> Any:
    """Create an object by its name, with some of its fields changed."""
    found, kind = resolve(registry, name), registry.kind
    built = create(registry, name, found) if isinstance(found, type) else check_methods(registry, name, found)
    if not changes:
        return built
    if not is_dataclass(built):
        raise SettingError(f"{kind} {name!r} is not a dataclass, so --set cannot change it")
    try:
        return override(built, changes)
    except SettingError as error:
        raise SettingError(f"{kind} {name!r}: {error}") from None


def create(registry: Registry, name: str, factory: Callable[..., Any], *arguments: object) -> Any:
    """Call a class or factory of a plug-in, and check the methods of the result."""
    try:
        instance = factory(*arguments)
    except SettingError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise SettingError(f"{registry.kind} {name!r} cannot be created: {reason}") from error
    return check_methods(registry, name, instance)


def check_methods(registry: Registry, name: str, instance: Any) -> Any:
    """Return the object if it has all required methods; else a `SettingError` names the first wrong one."""
    for method, arguments in registry.methods.items():
        check_method(
            f"{registry.kind} {name!r}", instance, method, arguments, article=_article(registry.kind)
        )
    return instance


def check_method(
    what: str, instance: object, method: str, arguments: tuple[str, ...], *, article: str
) -> None:
    """Refuse an object without a method, or with one that takes other arguments."""
    found, expected = getattr(instance, method, None), f"{method}({', '.join(arguments)})"
    if not callable(found):
        raise SettingError(
            f"{what} has no method {expected}, which {article} needs: it is {short_repr(instance)}"
        )
    parameters = _mismatched_parameters(found, arguments)
    if parameters:
        raise SettingError(f"{what}: its method is {method}{parameters}, and {article} needs {expected}")


def check_call(what: str, function: Callable[..., object], arguments: tuple[str, ...]) -> None:
    """Refuse a function that cannot be called with these arguments."""
    parameters = _mismatched_parameters(function, arguments)
    if parameters:
        raise SettingError(f"{what}: it takes {parameters}, but is called with ({', '.join(arguments)})")


def _mismatched_parameters(function: Callable[..., object], arguments: tuple[str, ...]) -> str:
    """The parameters of a function that cannot be called with these arguments; empty if it can."""
    try:
        parameters = signature(function)
    except (TypeError, ValueError):  # some built-in functions
        return ""
    try:
        parameters.bind(*arguments)
    except TypeError:
        return str(parameters)
    return ""


def names(registry: Registry) -> Iterator[str]:
    """All names, built-in ones first; nothing is imported."""
    yield from registry.table
    yield from (point.name for point in _entry_points(registry.group) if point.name not in registry.table)


def listing(registry: Registry) -> Iterator[ListedEntry]:
    """All entries, built-in ones first; a plug-in that cannot be loaded is described by its error."""
    for name, entry in registry.table.items():
        yield ListedEntry(name, entry.about, entry.reference, "caps")
    for point in _entry_points(registry.group):
        if point.name in registry.table:
            continue
        try:
            found = _load(registry, point)
            about = getattr(found, "about", None) or (getdoc(found) or "").partition("\n")[0]
        except SettingError as error:
            about = str(error)
        yield ListedEntry(point.name, str(about), point.value, _package(point))


def installs(name: str) -> str:
    """How to install the package of this project that has a part of that name; empty if none has."""
    return f"{name!r} is in the package caps-agents ({INSTALL_AGENTS}); " if name in _OF_AGENTS else ""


def plugin_packages() -> set[str]:
    """The names of the installed packages, as they are imported, that have plug-ins."""
    points = (point for registry in REGISTRIES for point in _entry_points(registry.group))
    return {point.value.partition(":")[0].partition(".")[0] for point in points}


def names_code(value: object) -> bool:
    """Whether a text names an object to import: `package.module:object`, or `py:module:object`."""
    return isinstance(value, str) and _PATH.fullmatch(value.removeprefix(LOCAL_PREFIX)) is not None


def path_of_class(instance: object) -> str:
    """The path by which the class of an object can be named: `package.module:Name`."""
    kind = type(instance)
    return f"{kind.__module__}:{kind.__qualname__}"


def allow(given: Iterable[object], folder: str) -> None:
    """Allow `py:` names given by the user to be imported from a folder; other values are ignored."""
    _allowed.update({one: folder for one in given if isinstance(one, str) and one.startswith(LOCAL_PREFIX)})


def allowed() -> dict[str, str]:
    """The `py:` names that may be imported, and the folder of each: for worker processes."""
    return dict(_allowed)


@cache
def _entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group; cached, since the lookup reads the metadata of every package."""
    return tuple(entry_points(group=group))


def _import_object(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        found = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # a plug-in may raise anything when it is imported
        raise SettingError(f"{path!r} cannot be loaded: {_reason(error)}") from error
    return found


def _import_local(name: str) -> Any:
    """Import code from its allowed folder, which goes first in the path only during the import."""
    if not names_code(name):
        raise SettingError(f"{name!r}: write code in the working directory as {LOCAL_PREFIX}module:Name")
    folder = _allowed.get(name)
    if folder is None:
        raise SettingError(
            f"{name!r}: code in the working directory is imported only if it is named on the command line or "
            "in a file given with --config; in Python, import it and pass the object"
        )
    module = name.removeprefix(LOCAL_PREFIX).partition(":")[0].partition(".")[0]
    known = getattr(sys.modules.get(module), "__file__", None)
    if module in sys.modules and not str(known).startswith(folder):
        raise SettingError(
            f"{name!r}: the name {module!r} is used by {known or 'Python itself'}: rename your file"
        )
    invalidate_caches()
    if PathFinder.find_spec(module, [folder]) is None:
        raise SettingError(f"{name!r}: there is no module {module!r} in {folder}")
    sys.path.insert(0, folder)
    try:
        return _import_object(name.removeprefix(LOCAL_PREFIX))
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)  # for what it imports later


def _load(registry: Registry, point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # as above
        raise SettingError(
            f"{registry.kind} {point.name!r} of {_package(point)} ({point.value}) cannot be loaded: "
            f"{_reason(error)}"
        ) from error


def _package(point: EntryPoint) -> str:
    """The package an entry point belongs to, with its version."""
    package = point.dist
    return "an unknown package" if package is None else f"{package.name} {package.version}"


def _reason(error: Exception) -> str:
    return (
        str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
    )


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
