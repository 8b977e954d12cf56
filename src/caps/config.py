"""`RunConfig`: everything a user may set for a run, in one frozen object.

A setting is one field here. Command-line options, keys of a `caps.toml`, `CAPS_…` variables, the server's
per-request `"caps": {…}` object and the keywords of the Python API are generated from these fields or checked
against them, so they cannot disagree. Two kinds of settings are restricted:

* A *per-request* field may be set by a client of the server; no other may.
* A *guarded* field (addresses, files, plug-ins, prompts, the sandbox) may not be set by a `caps.toml` that
  happens to lie in the working directory: entering a cloned repository must not redirect a key or run code.

Secrets are never fields. The config names the environment variables a key comes from; `Keys` holds the keys.
"""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from caps.core.errors import SettingError
from caps.core.settings import nearest
from caps.files import read_toml
from caps.registry import DEFAULT_STRATEGY

LOCAL_FILE = "caps.toml"
ENGINES = ("local", "batch", "ray")
PROMPT_VERSIONS = ("v1", "v2")
SANDBOXES = ("auto", "bwrap", "unsafe-local", "off")


@dataclass(frozen=True, slots=True)
class Option:
    """What is known of one setting: its names, what it takes, what it means, and who may set it."""

    name: str
    kind: Literal["text", "integer", "number", "flag", "list", "mapping", "integer or auto"]
    default: Any
    optional: bool
    help: str
    group: str
    aliases: tuple[str, ...]
    flags: tuple[str, ...]
    env: tuple[str, ...]
    metavar: str | None
    choices: tuple[str, ...]
    least: float | None
    most: float | None
    per_request: bool
    guarded: bool
    plugin: bool

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = {
            "text": "a text",
            "flag": "true or false",
            "list": "a text or a list of texts",
            "mapping": "a table of names and values",
            "integer": "a whole number",
            "number": "a number",
            "integer or auto": "a whole number of at least 1, or auto",
        }[self.kind]
        if self.least is not None and self.most is not None:
            return f"{words} from {self.least:g} to {self.most:g}"
        if self.least is not None:
            return f"{words} of at least {self.least:g}"
        return words if self.most is None else f"{words} of at most {self.most:g}"

    def check(self, value: Any, where: str) -> Any:
        """The value as it is stored, or a `SettingError` that names the setting and where it was given."""
        if value is None and self.optional:
            return None
        stored = _READERS[self.kind](value)
        if stored is _WRONG or not self._in_range(stored):
            raise SettingError(f"{where} {_shown(value)}: must be {self.expected}")
        return stored

    def _in_range(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if not isinstance(value, int | float) or isinstance(value, bool):
            return True
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


def option(
    default: Any,
    about: str,
    group: str,
    *,
    aliases: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
    env: tuple[str, ...] = (),
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
    per_request: bool = False,
    guarded: bool = False,
    plugin: bool = False,
    shown: bool = True,
) -> Any:
    """Declare a setting; see `Option`. `plugin`: the value may name code to import.

    One that is not `shown` may hold a credential, as an address may, and is left out of `repr`.
    """
    about_it = {
        "help": about,
        "group": group,
        "aliases": aliases,
        "flags": flags,
        "env": env,
        "metavar": metavar,
        "choices": choices,
        "least": least,
        "most": most,
        "per_request": per_request,
        "guarded": guarded,
        "plugin": plugin,
    }
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=about_it, repr=shown)
    return field(default=default, metadata=about_it, repr=shown)


def switch(about: str, group: str, *, per_request: bool = False) -> Any:
    """Declare a setting that is off unless it is switched on."""
    return option(False, about, group, per_request=per_request)  # noqa: FBT003


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything that makes a run but its cases and its keys."""

    model: str | None = option(
        None,
        "Model that judges, and that generates where a command generates: a name, embedded, or FILE.gguf.",
        "judge",
        env=("CAPS_MODEL",),
        guarded=True,
    )
    base_url: tuple[str, ...] = option(
        (),
        "OpenAI-compatible endpoint; repeat it, or separate with commas, for several servers of one model.",
        "judge",
        env=("CAPS_BASE_URL", "OPENAI_BASE_URL"),
        metavar="URL[=WEIGHT]",
        guarded=True,
        shown=False,
    )
    api_key_env: str = option(
        "",
        "Environment variable that holds the endpoint's key [CAPS_API_KEY, OPENAI_API_KEY].",
        "judge",
        metavar="NAME",
        guarded=True,
    )
    judge_model: str | None = option(None, "Another model as the judge.", "judge", guarded=True)
    judge_base_url: tuple[str, ...] = option(
        (), "The judge's endpoint, if another.", "judge", metavar="URL[=WEIGHT]", guarded=True, shown=False
    )
    judge_api_key_env: str = option(
        "",
        "Environment variable that holds the judge's key [CAPS_JUDGE_API_KEY].",
        "judge",
        metavar="NAME",
        guarded=True,
    )
    judge_model_e1: str | None = option(None, "Another judge for partial views (E1).", "levels", guarded=True)
    judge_base_url_e1: tuple[str, ...] = option(
        (), "Its endpoint, if another.", "levels", metavar="URL[=WEIGHT]", guarded=True, shown=False
    )
    judge_api_key_e1_env: str = option(
        "",
        "Environment variable that holds its key [CAPS_JUDGE_API_KEY_E1].",
        "levels",
        metavar="NAME",
        guarded=True,
    )
    recorded: str | None = option(
        None,
        "File of recorded verdicts that answer in place of a model.",
        "recorded",
        metavar="FILE",
        guarded=True,
    )
    recorded_judge: str | None = option(
        None, "Which judge of that file, if it holds several.", "recorded", metavar="NAME"
    )
    confidence: str = option(
        "verbal",
        "How sure the judge is: verbal (it says HIGH or LOW), logprobs (token probabilities), or auto.",
        "asking",
        choices=("verbal", "logprobs", "auto"),
    )
    max_tokens: int = option(4096, "Tokens a judge may write in one reply.", "asking", least=1)
    reply: str | None = option(
        None,
        "How the judge replies: free, or tags (the bare verdict, llama.cpp only) [tags for embedded].",
        "asking",
        choices=("free", "tags"),
    )
    extra: Mapping[str, object] = option(
        {},
        'Further fields of each request, as JSON: reasoning_effort="low"; may be repeated.',
        "asking",
        metavar="NAME=JSON",
        guarded=True,
        shown=False,
    )
    prompts: str | None = option(
        None, "Folder with prompt templates of your own.", "asking", metavar="DIR", guarded=True
    )
    prompt_version: str = option(
        PROMPT_VERSIONS[-1],
        "Wording of the prompts: v2, or v1 to be answered by the journal of an earlier version.",
        "asking",
        choices=PROMPT_VERSIONS,
    )
    strategy: str = option(
        DEFAULT_STRATEGY,
        "How to choose: see caps list strategies.",
        "strategy",
        per_request=True,
        plugin=True,
    )
    settings: Mapping[str, object] = option(
        {},
        "Change a field of the strategy; may be repeated.",
        "strategy",
        aliases=("set",),
        flags=("--set",),
        metavar="FIELD=VALUE",
        per_request=True,
    )
    skip_failing: bool = switch(
        "Do not judge programs that fail a public example, unless all fail (the caps strategies).",
        "strategy",
        per_request=True,
    )
    judge_profile: str | None = option(
        None,
        "Measured properties of the judge, as written by caps diagnose --save.",
        "strategy",
        metavar="FILE",
        guarded=True,
    )
    calibrate: int | None = option(
        None, "Estimate the judge's accuracy on the first K cases, then freeze it.", "calibrate", metavar="K"
    )
    seed: int = option(
        1234, "Seed of the pairings: the same seed gives the same pairings.", "strategy",
        least=-(2**63), most=2**63 - 1, per_request=True,
    )  # fmt: skip
    profile: str | None = option(
        None, "What the judge sees of a candidate: see caps list profiles.", "evidence", plugin=True
    )
    views: Mapping[str, object] = option(
        {},
        "Replace one view: partial=thinking; may be repeated.",
        "evidence",
        aliases=("view",),
        flags=("--view",),
        metavar="SLOT=VIEW",
        plugin=True,
    )
    hard_evidence: str = option(
        "auto",
        "Compare answers by value and run programs on public examples before judging: auto, on or off.",
        "findings",
        choices=("auto", "on", "off"),
    )
    sandbox: str = option(
        "auto",
        "Where programs run: auto, bwrap, unsafe-local, or off (programs are not run).",
        "findings",
        choices=SANDBOXES,
        guarded=True,
    )
    samples: int = option(
        16, "Answers to generate for each problem.", "generation", aliases=("n",), flags=("--samples", "-n"),
        least=1, per_request=True,
    )  # fmt: skip
    preset: str = option(
        "default",
        "Sampling settings of the generating model: see caps list presets.",
        "generation",
        plugin=True,
    )
    method: str = option(
        "independent", "How answers are generated: see caps list methods.", "generation", plugin=True
    )
    domain: str | None = option(
        None, "code, math or general; guessed from the answers if absent.", "domain", per_request=True
    )
    early_exit: bool = switch(
        "Stop generating once the answers have settled.", "early exit", per_request=True
    )
    engine: str = option("local", f"What runs the contests: {', '.join(ENGINES)}.", "engine", choices=ENGINES)
    batch: Mapping[str, object] = option(
        {}, "Settings of the batch engine; may be repeated.", "engine", metavar="FIELD=VALUE"
    )
    ray_address: str | None = option(
        None,
        "Engine ray: HOST:PORT of a cluster, or auto (starts one here).",
        "engine",
        env=("CAPS_RAY_ADDRESS", "RAY_ADDRESS"),
        guarded=True,
    )
    ray_workers: int = option(2, "Engine ray: worker processes.", "engine", least=1)
    max_connections: int | Literal["auto"] = option(
        "auto", "Concurrent calls per server: a number, or auto.", "performance"
    )
    timeout: float = option(600.0, "Seconds to wait for a reply.", "performance", least=0.1)
    context: int | None = option(
        None, "Embedded models: context size of a call, in tokens.", "embedded", least=256
    )
    threads: int | None = option(None, "Embedded models: threads [by the load].", "embedded", least=1)
    journal: str | None = option(
        None, "File that keeps every reply, so that none is paid for twice [your data folder].", "journal",
        metavar="FILE", guarded=True,
    )  # fmt: skip
    durable: bool = switch("Keep replies through a power cut too, not only a killed process.", "journal")
    price_input: float | None = option(None, "USD per million input tokens.", "price", least=0)
    price_output: float | None = option(None, "USD per million output tokens.", "price", least=0)
    price_cached: float | None = option(None, "USD per million cached input tokens.", "price", least=0)
    gpu_hour_usd: float | None = option(
        None, "USD per hour of your GPUs, for the summary.", "gpu price", least=0
    )
    budget_tokens: int | None = option(None, "Tokens a case may use.", "budget", least=0, per_request=True)
    budget_usd: float | None = option(None, "USD a case may cost.", "budget", least=0)
    budget_seconds: float | None = option(
        None, "Seconds a case may take.", "budget seconds", aliases=("seconds",), least=0, per_request=True
    )
    budget_total_tokens: int | None = option(None, "Tokens the run may use.", "total budget", least=0)
    budget_total_usd: float | None = option(None, "USD the run may cost.", "total budget", least=0)
    budget_total_seconds: float | None = option(
        None, "Seconds the run may take.", "total budget seconds", least=0
    )

    def __post_init__(self) -> None:
        for one in options().values():
            value = getattr(self, one.name)
            object.__setattr__(self, one.name, one.check(value, one.name))
        if (self.price_input is None) != (self.price_output is None) or (
            self.price_input is None and self.price_cached is not None
        ):
            raise SettingError(
                "a price needs both --price-input and --price-output (price_input, price_output): USD per "
                "million tokens"
            )

    def with_values(self, values: Mapping[str, Any], *, where: str = "") -> "RunConfig":
        """A copy with some settings changed, each checked and named by where it was given."""
        return replace(self, **read_values(values, where=where))

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain data."""
        return {spec.name: _plain(getattr(self, spec.name)) for spec in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, where: str) -> "RunConfig":
        """The config whose `to_dict` this is; a setting that is missing has its default."""
        return cls(**read_values(values, where=where))


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The secrets of a run: never shown, never written."""

    api_key: str | None = field(default=None, repr=False)
    judge_api_key: str | None = field(default=None, repr=False)
    judge_api_key_e1: str | None = field(default=None, repr=False)

    @classmethod
    def find(
        cls,
        config: RunConfig,
        *,
        api_key: str | None = None,
        judge_api_key: str | None = None,
        judge_api_key_e1: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> "Keys":
        """Keys as given, or from the environment variables that the config names."""
        known = os.environ if environment is None else environment

        def read(given: str | None, named: str, *usual: str) -> str | None:
            if given is not None:
                return given or None  # an empty one leaves out that of the environment
            if named and named not in known:
                raise SettingError(f"environment variable {named!r}, which should hold a key, is not set")
            return next((known[name] for name in ((named,) if named else usual) if known.get(name)), None)

        return cls(
            api_key=read(api_key, config.api_key_env, "CAPS_API_KEY", "OPENAI_API_KEY"),
            judge_api_key=read(judge_api_key, config.judge_api_key_env, "CAPS_JUDGE_API_KEY"),
            judge_api_key_e1=read(judge_api_key_e1, config.judge_api_key_e1_env, "CAPS_JUDGE_API_KEY_E1"),
        )


@cache
def options() -> Mapping[str, Option]:
    """All settings by name, in the order of `RunConfig`."""
    hints = get_type_hints(RunConfig)
    found = {}
    for spec in fields(RunConfig):
        kind, optional = _kind(hints[spec.name])
        about = dict(spec.metadata)
        about["env"] = () if kind == "mapping" else about["env"] or (f"CAPS_{spec.name.upper()}",)
        about["flags"] = about["flags"] or (f"--{spec.name.replace('_', '-')}",)
        default = {} if spec.default is MISSING else spec.default
        found[spec.name] = Option(name=spec.name, kind=kind, default=default, optional=optional, **about)
    return found


@cache
def _by_alias() -> Mapping[str, Option]:
    return {name: one for one in options().values() for name in (one.name, *one.aliases)}


def find_option(name: str, *, where: str = "", among: Iterable[Option] | None = None) -> Option:
    """The setting of that name or alias; a `SettingError` has the nearest match and where it was given."""
    allowed = tuple(options().values() if among is None else among)
    found = _by_alias().get(name.replace("-", "_"))
    if found is not None and found in allowed:
        return found
    place = f"{where}: " if where else ""
    if found is not None:
        raise SettingError(f"{place}{name}: may not be set here")
    known = [alias for one in allowed for alias in (one.name, *one.aliases)]
    raise SettingError(
        f"{place}{name}: no such setting; {nearest(name.replace('-', '_'), known)}see caps select --help"
    )


def read_values(
    values: Mapping[str, Any], *, where: str = "", among: Iterable[Option] | None = None
) -> dict[str, Any]:
    """Checked settings by field name, of those that may be set in that place."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        one = find_option(str(name), where=where, among=among)
        found[one.name] = one.check(value, f"{where}: {name} =" if where else f"{name} =")
    return found


def read_environment(names: Iterable[str], environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checked settings among `names` from the environment variables that the command line reads too."""
    known = os.environ if environment is None else environment
    found: dict[str, Any] = {}
    for name in names:
        one = options()[name]
        variable = next((env for env in one.env if known.get(env)), None)
        if variable is not None:
            word = _read_word(one.kind, known[variable])
            found[name] = one.check(known[variable] if word is _WRONG else word, f"{variable} =")
    return found


def _read_word(kind: str, word: str) -> Any:
    """The value that a word of the environment stands for."""
    try:
        if kind in ("integer", "number"):
            return int(word) if kind == "integer" else float(word)
    except ValueError:
        return _WRONG
    if kind == "flag":
        on, off = ("true", "1", "yes", "on", "t", "y"), ("false", "0", "no", "off", "f", "n")
        return True if word.strip().lower() in on else False if word.strip().lower() in off else _WRONG
    return word.split() if kind == "list" else word


def per_request_options() -> tuple[Option, ...]:
    """What a client of the server may set."""
    return tuple(one for one in options().values() if one.per_request)


def read_config_file(path: Path, *, found: bool = False) -> dict[str, Any]:
    """The settings of a TOML file; one `found` in the working directory may not set guarded ones."""
    values = read_toml(path, option="" if found else "--config")
    if found:
        for name, value in values.items():
            one = _by_alias().get(name.replace("-", "_"))
            if one is not None and (one.guarded or (one.plugin and names_code(value))):
                raise SettingError(
                    f"{path}: {name}: a file found in the working directory may not set this; "
                    f"name the file with --config {path.name} if you trust it"
                )
    return values


def names_code(value: object) -> bool:
    """Whether a value, or one inside it, names a module to import: `package.module:object`."""
    if isinstance(value, Mapping):
        return any(map(names_code, value.values()))
    return isinstance(value, str) and ":" in value


def parse_assignments(words: Iterable[str], *, option: str = "--set") -> dict[str, str]:
    """Read `--set finalists=4` words into a mapping; a later word wins."""
    changes = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"{option} {word!r}: write it as name=value")
        changes[name.strip()] = value.strip()
    return changes


_WRONG = object()


def _read_text(value: Any) -> Any:
    return value if isinstance(value, str) else str(value) if isinstance(value, Path) else _WRONG


def _read_integer(value: Any) -> Any:
    return value if isinstance(value, int) and not isinstance(value, bool) else _WRONG


def _read_number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return _WRONG
    return float(value)


def _read_flag(value: Any) -> Any:
    return value if isinstance(value, bool) else _WRONG


def _read_list(value: Any) -> Any:
    if isinstance(value, str):
        return (value,) if value else ()
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return tuple(one for one in value if one.strip())
    return _WRONG


def _read_mapping(value: Any) -> Any:
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return dict(value)
    return _WRONG


def _read_integer_or_auto(value: Any) -> Any:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return value if value == "auto" or (_read_integer(value) is not _WRONG and value >= 1) else _WRONG


_READERS = {
    "text": _read_text,
    "integer": _read_integer,
    "number": _read_number,
    "flag": _read_flag,
    "list": _read_list,
    "mapping": _read_mapping,
    "integer or auto": _read_integer_or_auto,
}


def _kind(hint: Any) -> tuple[Any, bool]:
    """The kind of a setting, and whether it may be None, from its annotation."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    bare = [part for part in parts if part is not NoneType]
    if len(bare) == 2:
        return "integer or auto", False
    origin = get_origin(bare[0]) or bare[0]
    kinds = {str: "text", int: "integer", float: "number", bool: "flag", tuple: "list", Mapping: "mapping"}
    return kinds[origin], len(bare) < len(parts)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


def _shown(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 80 else words[:77] + "..."
