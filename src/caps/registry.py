"""Names to objects: a built-in table, a dotted path or an entry point; imported when asked for.

A new strategy is one file and one line here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from importlib.metadata import entry_points
from inspect import getdoc
from typing import Any, NamedTuple

from caps.core.errors import SettingError
from caps.core.settings import nearest, override


class Entry(NamedTuple):
    """Where something built in is found, what it is in one line, and who described it."""

    path: str
    about: str
    reference: str


class Registry(NamedTuple):
    """One kind of thing with names: its word, its entry-point group, what is built in, other spellings."""

    kind: str
    group: str
    table: Mapping[str, Entry]
    aliases: Mapping[str, str]


PAPER = "CAPS"
DEFAULT_STRATEGY = "posterior"  # docs/design/0006
_STRATEGIES = {
    "caps": Entry("caps.strategies.caps:Caps", "the cascade of Algorithm 1 (CAPS-Core)", f"{PAPER}, §3.2"),
    "caps-r": Entry(
        "caps.strategies.caps:CAPS_R", "the cascade with rescue, the published CAPS", f"{PAPER}, §3.3"
    ),
    "caps-plus": Entry(
        "caps.strategies.caps:CAPS_PLUS", "the cascade with its rough edges mended", "docs/design/0002"
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
    "majority": Entry(
        "caps.strategies.voting:Majority", "the most common answer, unjudged", "Wang et al. 2022"
    ),
    "tests-first": Entry(
        "caps.strategies.tests_first:TestsFirst", "most public examples passed, then the majority", "caps"
    ),
    "posterior": Entry(
        "caps.strategies.posterior:Posterior", "votes, findings and verdicts in one probability", "caps"
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
    {"caps_r": "caps-r", "min_degree": "v1-infer", "random": "random-pairs"},
)

_VIEWS = {
    "code-summary": Entry(
        "caps.evidence.views:code_summary",
        "50 + 50 words of reasoning, 500 characters of code",
        f"{PAPER}, §E.2",
    ),
    "code-head": Entry("caps.evidence.views:code_head", "the first 20 lines of code", f"{PAPER}, §B.3"),
    "code-only": Entry("caps.evidence.views:code_only", "all of the code, no reasoning", f"{PAPER}, §E.1"),
    "math-summary": Entry(
        "caps.evidence.views:math_summary",
        "50 + 50 words of reasoning, the final answer",
        f"{PAPER}, §E.2",
    ),
    "math-window": Entry(
        "caps.evidence.views:math_window",
        "the final answer and some 300 tokens before it",
        f"{PAPER}, §B.3",
    ),
    "thinking": Entry(
        "caps.evidence.views:thinking",
        "the final answer and the last 500 tokens or so",
        f"{PAPER}, §D.4",
    ),
    "general-summary": Entry("caps.evidence.views:general_summary", "the first and last 120 words", "caps"),
    "full": Entry("caps.evidence.views:full", "the whole candidate", f"{PAPER}, §E.2"),
}
VIEWS = Registry("view", "caps.views", _VIEWS, {})

_SIGNATURES = {
    "code-ast": Entry(
        "caps.evidence.signatures:code_ast", "equal syntax trees, docstrings apart", f"{PAPER}, §3.1"
    ),
    "code-text": Entry(
        "caps.evidence.signatures:code_text",
        "equal code but for imports, comments, indentation",
        f"{PAPER}, §E.2",
    ),
    "math-answer": Entry("caps.evidence.signatures:math_answer", "equal final answers", f"{PAPER}, §E.2"),
    "code-behaviour": Entry(
        "caps.evidence.signatures:code_behaviour", "equal output on the public examples and more", "caps"
    ),
    "math-equivalent": Entry(
        "caps.evidence.signatures:math_equivalent", "final answers of equal value", "caps"
    ),
    "general-text": Entry(
        "caps.evidence.signatures:general_text", "equal JSON, tool calls or wording", "caps"
    ),
}
SIGNATURES = Registry("signature", "caps.signatures", _SIGNATURES, {})

_PROFILES = {
    "code": Entry("caps.evidence.profiles:CODE", "programs: code-ast, code-summary", PAPER),
    "math": Entry("caps.evidence.profiles:MATH", "mathematics: math-answer, math-summary", PAPER),
    "general": Entry("caps.evidence.profiles:GENERAL", "chat: general-text, general-summary", "caps"),
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
    "default": Entry("caps.sampling.presets:Preset", "any chat model", "caps"),
    "qwen3-14b": Entry("caps.sampling.presets:QWEN3_14B", "32,768 tokens, top-k off", f"{PAPER}, §E.4"),
    "qwen3-4b-instruct": Entry(
        "caps.sampling.presets:QWEN3_4B_INSTRUCT", "the same, thinking off", f"{PAPER}, §E.4"
    ),
    "qwen3-4b-thinking": Entry(
        "caps.sampling.presets:QWEN3_4B_THINKING", "the same, thinking always on", f"{PAPER}, §E.4"
    ),
    "gpt-oss-20b": Entry(
        "caps.sampling.presets:GPT_OSS_20B", "the problem as it is, reasoning effort medium", f"{PAPER}, §E.4"
    ),
    "small": Entry(
        "caps.sampling.presets:SMALL", "small models: four worked examples, short answers", "caps"
    ),
}
PRESETS = Registry("preset", "caps.presets", _PRESETS, {})

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
METHODS = Registry("method", "caps.methods", _METHODS, {})

_GRADERS = {
    "code": Entry("caps.graders.code:CodeGrader", "all hidden tests pass in the sandbox", f"{PAPER}, §4.1"),
    "math": Entry("caps.graders.math:MathGrader", "final answers, compared by algebra", "math-verify"),
}
GRADERS = Registry("grader", "caps.graders", _GRADERS, {})

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

_MODELS = {
    "http": Entry("caps.models.http:connect", "any OpenAI-compatible endpoint", "docs/howto/endpoints.md"),
    "fleet": Entry("caps.models.fleet:connect", "several endpoints of one model", "docs/howto/fleet.md"),
    "embedded": Entry(
        "caps.models.embedded:connect", "a GGUF file inside this process", "docs/howto/llamacpp.md"
    ),
}
MODELS = Registry("model backend", "caps.models", _MODELS, {"https": "http", "file": "embedded"})


def resolve(registry: Registry, name: str) -> Any:
    """Find the object a name stands for."""
    name = registry.aliases.get(name, name)
    if name in registry.table:
        return _load(registry.table[name].path)
    for found in entry_points(group=registry.group, name=name):
        return found.load()
    if ":" in name:
        return _load(name)
    known = [known_name for known_name, *_ in listing(registry)]
    raise SettingError(
        f"no {registry.kind} is called {name!r}: {nearest(name, known)}"
        f"there are {', '.join(known)}; or give a path such as package.module:Name"
    )


def build(registry: Registry, name: str, does: str, changes: Mapping[str, str] | None = None) -> Any:
    """Make what a name stands for, with some of its fields changed; `does` is what it must be able to do."""
    found, kind = resolve(registry, name), registry.kind
    if not callable(getattr(found, does, None)):
        raise SettingError(f"{name!r} is {found!r}, which has no {does}(): not a {kind}")
    made = found() if isinstance(found, type) else found
    if not changes:
        return made
    if not is_dataclass(made):
        raise SettingError(f"{kind} {name!r} is not a dataclass, so --set cannot change it")
    try:
        return override(made, changes)
    except SettingError as error:
        raise SettingError(f"{kind} {name!r}: {error}") from None


def listing(registry: Registry) -> Iterator[tuple[str, str, str]]:
    """Name, one line and reference of all there is, built-in first."""
    for name, entry in registry.table.items():
        yield name, entry.about, entry.reference
    for point in entry_points(group=registry.group):
        about = (getdoc(point.load()) or "").partition("\n")[0]
        yield point.name, about, point.value


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(f"{path!r} cannot be loaded: {error}") from error
