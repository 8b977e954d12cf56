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
from types import MappingProxyType
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
    methods: Mapping[str, tuple[str, ...]]


def _registry(
    kind: str,
    group: str,
    home: str,
    table: Mapping[str, tuple[str, str, str]],
    *,
    aliases: Mapping[str, str] = MappingProxyType({}),
    methods: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Registry:
    """A registry; the paths of its table follow `home`, and an entry is (path, description, reference)."""
    entries = {name: Entry(home + path, about, reference) for name, (path, about, reference) in table.items()}
    return Registry(kind, group, entries, aliases, methods)


class ListedEntry(NamedTuple):
    """An entry of a registry: name, one-line description, reference, and package."""

    name: str
    about: str
    reference: str
    package: str


DEFAULT_STRATEGY = "posterior"  # docs/design/0006
DEFAULT_JUDGE = "model"
REWARD_JUDGE = "reward"
MODEL_JUDGES = (DEFAULT_JUDGE, REWARD_JUDGE)  # which ask a server
DEFAULT_DOMAIN = "general"

STRATEGIES = _registry(
    "strategy",
    "caps.strategies",
    "caps.strategies.",
    {
        "caps": ("caps:Caps", "the cascade of Algorithm 1 (CAPS-Core)", "CAPS, §3.2"),
        "caps-r": ("caps:CAPS_R", "the cascade with rescue, the published CAPS", "CAPS, §3.3"),
        "caps-plus": ("caps:CAPS_PLUS", "the cascade with known issues fixed", "docs/design/0002"),
        "no-rescue": ("caps:Caps", "ablation: CAPS-R without rescue", "CAPS, Tab. 6"),
        "no-dedup": ("caps:NO_DEDUP", "ablation: CAPS-R without Stage 0", "CAPS, Tab. 6"),
        "all-e2": ("caps:ALL_E2", "ablation: CAPS-R at full evidence only", "CAPS, Tab. 6"),
        "unweighted": ("caps:UNWEIGHTED", "ablation: CAPS-R, every game weighs 1", "CAPS, Tab. 6"),
        "random-pairing": (
            "caps:RANDOM_PAIRING",
            "ablation: CAPS-R, random pairs in Stage A",
            "CAPS, Tab. 6",
        ),
        "v1-infer": ("v1_infer:V1Infer", "uncertainty-guided Swiss tournament", "Singh et al. 2026"),
        "v1-infer-caps": (
            "v1_infer:V1_INFER_CAPS",
            "V1-Infer with the settings CAPS compares with",
            "CAPS, §D.1",
        ),
        "vanilla": ("vanilla:Vanilla", "the first sample, unjudged", "CAPS, §4.1"),
        "pointwise": ("pointwise:Pointwise", "rate each alone, 1 to 10", "Venkatraman et al. 2025"),
        "random-pairs": ("random_pairs:RandomPairs", "random pairs, as many as V1-Infer", "CAPS, §4.3"),
        "random-pairs-caps": (
            "random_pairs:RANDOM_PAIRS_CAPS",
            "random pairs with the weight floor CAPS compares with",
            "CAPS, §4.3",
        ),
        "majority": ("voting:Majority", "the most common answer, unjudged", "Wang et al. 2022"),
        "tests-first": ("tests_first:TestsFirst", "most public examples passed, then the majority", "caps"),
        "posterior": ("posterior:Posterior", "votes, findings and verdicts in one probability", "caps"),
        "naive": ("naive:Naive", "votes and verdicts as independent evidence: the baseline", "caps"),
        "sprint": ("sprint:Sprint", "halve at E1, knockout at E2, doubtful games twice", "caps"),
        "round-robin": ("round_robin:RoundRobin", "everyone meets everyone", "Hunter 2004"),
        "knockout": ("knockout:Knockout", "single elimination, answers grouped", "Liu et al. 2025"),
        "pivot": ("pivot:Pivot", "a ring, then all against the leaders", "llm-verifier"),
        "listwise": ("listwise:Listwise", "one call reads a window, picks the best", "Chen et al. 2023"),
        "reward": ("reward:Reward", "the highest score the case carries", "Cobbe et al. 2021"),
    },
    aliases={"caps_r": "caps-r", "min_degree": "v1-infer-caps", "random": "random-pairs-caps"},
    methods={"play": ("entrants", "rng")},
)

VIEWS = _registry(
    "view",
    "caps.views",
    "caps.evidence.views:",
    {
        "code-summary": ("code_summary", "50 + 50 words of reasoning, 500 characters of code", "CAPS, §E.2"),
        "code-excerpt": ("code_excerpt", "code-summary, 50 words being at most 800 characters", "caps"),
        "candidate-head": ("candidate_head", "the first 20 lines of the candidate", "CAPS, §D.4"),
        "code-head": ("code_head", "the first 20 lines of code", "CAPS, §B.3"),
        "code-only": ("code_only", "all of the code, no reasoning", "CAPS, §E.1"),
        "math-summary": ("math_summary", "50 + 50 words of reasoning, the last boxed answer", "CAPS, §E.2"),
        "math-excerpt": (
            "math_excerpt",
            "50 + 50 words in at most 800 characters each, any final answer",
            "caps",
        ),
        "math-window": ("math_window", "the final answer and some 300 tokens before it", "CAPS, §B.3"),
        "thinking": ("thinking", "the boxed answer and the last 500 tokens or so", "CAPS, §D.4"),
        "thinking-announced": (
            "thinking_announced",
            "the same with an answer announced in words too",
            "caps",
        ),
        "general-summary": ("general_summary", "the first and last 120 words", "caps"),
        "full": ("full", "the whole candidate", "CAPS, §E.2"),
        "without-thoughts": ("without_thoughts", "the candidate but what it thought between tags", "caps"),
    },
)

PAIR_VIEWS = _registry(
    "pair view",
    "caps.pair_views",
    "caps.evidence.views:",
    {
        "code-difference": (
            "code_difference",
            "of two programs: inputs on which they differ, both outputs, lines that only one has",
            "caps",
        ),
    },
)

SIGNATURES = _registry(
    "signature",
    "caps.signatures",
    "caps.evidence.signatures:",
    {
        "code-ast": ("code_ast", "equal syntax trees, docstrings apart", "CAPS, §3.1"),
        "code-text": ("code_text", "equal code but for imports, comments, indentation", "CAPS, §E.2"),
        "math-answer": ("math_answer", "equal last boxed answers", "CAPS, §E.2"),
        "math-final": ("math_final", "equal final answers, boxed or announced", "caps"),
        "general-answer": ("general_answer", "equal JSON, tool calls or stated answers", "caps"),
        "clusters": (
            "cluster",
            "equal output, value or files by the hard evidence, else equal by the signature of the domain",
            "docs/design/0005",
        ),
    },
)

PROFILES = _registry(
    "profile",
    "caps.profiles",
    "caps.evidence.profiles:",
    {
        "code": ("CODE", "programs: code-ast, code-excerpt", "CAPS"),
        "math": ("MATH", "mathematics: math-final, math-excerpt", "CAPS"),
        "general": ("GENERAL", "chat: general-answer, general-summary", "caps"),
        "code-paper": ("CODE_PAPER", "programs as in the paper: code-ast, code-summary", "CAPS"),
        "math-paper": ("MATH_PAPER", "mathematics as in the paper: math-answer, math-summary", "CAPS"),
        "code-thinking": ("CODE_THINKING", "programs of models that think at length", "CAPS"),
        "math-thinking": ("MATH_THINKING", "mathematics of models that think at length", "CAPS"),
        "general-thinking": ("GENERAL_THINKING", "chat with models that think at length", "caps"),
    },
)

PRESETS = _registry(
    "preset",
    "caps.presets",
    "caps.sampling.base:",
    {
        "default": ("Preset", "any chat model", "caps"),
        "qwen3-14b": ("QWEN3_14B", "32,768 tokens, top-k off", "CAPS, §E.4"),
        "qwen3-4b-instruct": ("QWEN3_4B_INSTRUCT", "the same, thinking off", "CAPS, §E.4"),
        "qwen3-4b-thinking": ("QWEN3_4B_THINKING", "the same, thinking always on", "CAPS, §E.4"),
        "gpt-oss-20b": ("GPT_OSS_20B", "the problem as it is, reasoning effort medium", "CAPS, §E.4"),
        "small": ("SMALL", "small models: four worked examples, short answers", "caps"),
    },
    methods={"extra": ()},
)

METHODS = _registry(
    "method",
    "caps.methods",
    "caps.sampling.methods:",
    {
        "independent": ("Independent", "every candidate drawn on its own", "CAPS, §D.1"),
        "aggregate": ("Aggregate", "one more call writes a new answer from all", "Zhao et al. 2025"),
        "rsa": ("Rsa", "a population rewritten from its own groups", "Venkatraman et al. 2025"),
    },
    methods={"sample": ("case", "n", "desk", "aids")},
)

JUDGES = _registry(
    "judge",
    "caps.judges",
    "caps.judging.",
    {
        "model": ("llm:LlmJudge", "the model at --base-url, or --judge-base-url", "CAPS, §3"),
        "reward": (
            "reward:RewardJudge",
            "a reward or classifier server there, which rates (--reward-api)",
            "docs/howto/reward-models.md",
        ),
    },
    methods={"rule": ("prepared", "ask", "budget"), "max_usage": ("prepared", "ask")},
)

DOMAINS = _registry(
    "domain",
    "caps.domains",
    "caps.evidence.domains:",
    {
        "code": ("CODE", "programs: run on public examples, graded by hidden tests", "CAPS"),
        "math": ("MATH", "final answers: compared by value", "CAPS"),
        "general": ("GENERAL", "anything else: compared as text", "caps"),
    },
)

FINDERS = _registry(
    "finder",
    "caps.finders",
    "caps.findings.",
    {
        "behaviour": ("programs:make_finder", "what programs do, run in the sandbox", "docs/design/0005"),
        "answers": ("answers:make_finder", "answers of equal value", "docs/design/0005"),
    },
    methods={"find": ("case", "until"), "close": ()},
)

GRADERS = _registry(
    "grader",
    "caps.graders",
    "caps.grading.",
    {
        "code": ("code:make_grader", "all hidden tests pass in the sandbox", "CAPS, §4.1"),
        "math": ("math:make_grader", "final answers, compared by value", "math-verify"),
        "replies": ("math:make_reply_grader", "JSON and stated answers, compared by value", "caps"),
    },
    methods={"grade": ("case", "candidate"), "close": ()},
)

DATASETS = _registry(
    "dataset",
    "caps.datasets",
    "caps.datasets.",
    {
        "livecodebench-v5": ("code_sets:V5", "contest programs of 2024-08 to 2025-01", "CAPS, §4.1"),
        "livecodebench-v6": ("code_sets:V6", "contest programs of 2025-02 to 2025-04", "CAPS, §4.1"),
        "codecontests": ("code_sets:TEST", "contest programs", "CAPS, §4.1"),
        "aime-2025": ("math_sets:AIME_2025", "olympiad answers from 0 to 999", "CAPS, §4.1"),
        "hmmt-feb-2025": ("math_sets:FEBRUARY_2025", "olympiad answers in LaTeX", "CAPS, §4.1"),
        "humaneval": ("code_sets:HUMANEVAL", "complete a function", "Chen et al. 2021"),
        "humaneval-plus": ("code_sets:HUMANEVAL_PLUS", "HumanEval with many more tests", "Liu et al. 2023"),
        "mbpp": ("code_sets:MBPP", "short programs, test split", "Austin et al. 2021"),
        "mbpp-sanitized": ("code_sets:SANITIZED", "short programs, checked by hand", "Austin et al. 2021"),
        "math-500": ("math_sets:MATH_500", "competition mathematics", "Hendrycks et al. 2021"),
        "gsm8k": ("math_sets:TEST", "grade-school word problems", "Cobbe et al. 2021"),
    },
)

FORMATS = _registry("format", "caps.formats", "", {})  # the built-in ones: `datasets/imports.py`

MODELS = _registry(
    "model backend",
    "caps.models",
    "caps.models.",
    {
        "http": ("http:connect", "any OpenAI-compatible endpoint", "docs/howto/endpoints.md"),
        "servers": ("servers:connect", "several servers of one model", "docs/howto/several-servers.md"),
        "embedded": ("embedded:connect", "a GGUF file inside this process", "docs/howto/llamacpp.md"),
    },
    aliases={"https": "http", "file": "embedded"},
    methods={"complete": ("request",), "close": ()},
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
    part = resolve(registry, name)
    part = create(registry, name, part) if isinstance(part, type) else check_methods(registry, name, part)
    if not changes:
        return part
    if not is_dataclass(part):
        raise SettingError(f"{registry.kind} {name!r} is not a dataclass, so --set cannot change it")
    try:
        return override(part, changes)
    except SettingError as error:
        raise SettingError(f"{registry.kind} {name!r}: {error}") from None


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
    function, expected = getattr(instance, method, None), f"{method}({', '.join(arguments)})"
    if not callable(function):
        raise SettingError(
            f"{what} has no method {expected}, which {article} needs: it is {short_repr(instance)}"
        )
    parameters = _mismatched_parameters(function, arguments)
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
            part = _load(registry, point)
            about = getattr(part, "about", None) or (getdoc(part) or "").partition("\n")[0]
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
        part = import_module(module)
        for attribute in name.split("."):
            part = getattr(part, attribute)
    except Exception as error:  # a plug-in may raise anything when it is imported
        raise SettingError(f"{path!r} cannot be loaded: {_reason(error)}") from error
    return part


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
