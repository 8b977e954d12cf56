"""`RunConfig`: everything a user may set for a run, in one frozen object.

A setting is one field here. Command-line options, keys of a `caps.toml`, `CAPS_…` variables, the server's
per-request `"caps": {…}` object and the keywords of the Python API are generated from these fields or checked
against them, so they cannot disagree. Two kinds of settings are restricted:

* A *per-request* field may be set by a client of the server; no other may.
* A *guarded* field (addresses, files, plug-ins, prompts, the sandbox) cannot be set by a `caps.toml` that is
  loaded automatically: entering a cloned repository must not redirect a key or run code.

A *deciding* field is part of the identity of a run: results of runs that differ in one are never mixed.

Secrets are never fields. The config names the environment variables a key comes from; `Keys` holds the keys.
Several judges are tables (`config.judges`), and obey the same rules. `config.option` says what an option is,
and `config.sources` reads settings files and environment variables.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal

from caps.config.judges import REPLIES, JudgeTable, read_tables
from caps.config.option import Option, option, options_of, switch, to_plain, to_words
from caps.core.errors import SettingError
from caps.core.secrets import recorded_extra, shown_address
from caps.core.settings import nearest
from caps.registry import (
    DEFAULT_JUDGE,
    DEFAULT_STRATEGY,
    DOMAINS,
    JUDGES,
    METHODS,
    PRESETS,
    PROFILES,
    STRATEGIES,
)

ENGINES = ("local", "batch", "ray")
REWARD_APIS = ("vllm-score", "vllm-classify", "vllm-pooling", "sglang")
SANDBOXES = ("auto", "bwrap", "unsafe-local", "off")
PRICES = ("price_input", "price_output", "price_cached")


@cache
def _judge_options() -> Mapping[str, Option]:
    """The settings that a `[[judge]]` table may have for itself, by their keys there and by their names."""
    settings = [setting for setting in options().values() if setting.per_judge]
    return {key: setting for setting in settings for key in (setting.name, setting.per_judge)}


def read_judges(values: object, where: str) -> tuple[JudgeTable, ...]:
    """Read the `[[judge]]` tables of a run; a `SettingError` names the source, the table and the field."""
    return read_tables(values, where, _read_judge_settings)


def _read_judge_settings(row: Mapping[str, object], where: str) -> dict[str, Any]:
    """The settings that one judge has for itself, by their names in `RunConfig`."""
    read: dict[str, Any] = {}
    for key, value in row.items():
        setting = _judge_options().get(key)
        if setting is None:
            keys = [name for name in JudgeTable.__struct_fields__ if name != "settings"]
            keys += [setting.per_judge for setting in options().values() if setting.per_judge]
            raise SettingError(f"{where}: {key}: no such key; {nearest(key, keys)}keys are {', '.join(keys)}")
        read[setting.name] = setting.check(value, f"{where}: {key} =")
    if not _is_whole_price(*(read.get(name) for name in PRICES)):
        raise SettingError(
            f"{where}: price_input: a price needs both price_input and price_output, USD per million tokens"
        )
    return read


def _is_whole_price(read: float | None, written: float | None, cached: float | None) -> bool:
    return (read is None) == (written is None) and not (read is None and cached is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """All settings of a run, without its cases and keys."""

    model: str | None = option(
        None, "Model that judges, and that generates answers: a name, embedded, or FILE.gguf.", "judge",
        env=("CAPS_MODEL",), metavar="NAME", guarded=True, main=True,
    )  # fmt: skip
    base_url: tuple[str, ...] = option(
        (),
        "Address of an OpenAI-compatible server: http://localhost:8000/v1; repeat it for several servers. "
        "Also read from OPENAI_BASE_URL.", "judge", env=("CAPS_BASE_URL", "OPENAI_BASE_URL"), metavar="URL",
        guarded=True, shown=False, decides=False, main=True,
    )  # fmt: skip
    api_key_env: str = option(
        "", "Name of the environment variable that holds the server's key, instead of CAPS_API_KEY.",
        "judge", metavar="NAME", guarded=True, advanced=True, decides=False,
    )  # fmt: skip
    judge: str = option(
        DEFAULT_JUDGE,
        "What judges: model, reward (a reward server), or a plug-in such as py:module:NAME; see caps list "
        "judges. Repeat it for several: --judge model=NAME --judge model=NAME,weight=2.", "judge",
        metavar="NAME", guarded=True, plugin=True, registry=JUDGES, several="judges", main=True,
    )  # fmt: skip
    judges: tuple[JudgeTable, ...] = option(
        (), "Several judges: [[judge]] tables of a settings file.", "judge", guarded=True, plugin=True,
        shown=False, read=read_judges,
    )  # fmt: skip
    judge_model: str | None = option(
        None, "Model that judges, if it is not --model.", "judge", metavar="NAME", guarded=True
    )
    judge_base_url: tuple[str, ...] = option(
        (), "Address of the judge's server, if it is not --base-url.", "judge", metavar="URL", guarded=True,
        shown=False, decides=False,
    )  # fmt: skip
    reward_api: str | None = option(
        None, "API of the server of --judge reward: " + ", ".join(REWARD_APIS) + ".", "asking",
        metavar="API", choices=REWARD_APIS,
    )  # fmt: skip
    reward_template: str | None = option(
        None,
        "Chat format that makes one text of problem and answer for a reward server: chatml, llama3, plain, "
        "or a file with {problem} and {answer}. Default: vLLM applies that of its model.", "asking",
        metavar="FORMAT", guarded=True, advanced=True,
    )  # fmt: skip
    reward_steps: str = option(
        "last",
        "Which score counts if a reward server returns several for the tokens or steps of an answer: last, "
        "min or mean.",
        "asking", metavar="HOW", choices=("last", "min", "mean"), advanced=True,
    )  # fmt: skip
    reward_class: int = option(
        -1, "Class of a classifier whose log-odds are the score, from 0; -1 is the last.", "asking",
        metavar="N", advanced=True,
    )  # fmt: skip
    recorded: str | None = option(
        None, "File of recorded verdicts, which answer in place of a model.", "recorded", metavar="FILE",
        guarded=True,
    )  # fmt: skip
    recorded_judge: str | None = option(
        None, "Judge of --recorded, if the file holds several.", "recorded", metavar="NAME"
    )
    map: str = option(
        "", "Names of the fields in the file, if they are not the usual ones: "
        "problem=prompt,candidates=outputs.", "cases", metavar="NAME=FIELD,...",
    )  # fmt: skip
    confidence: str = option(
        "verbal",
        "Where the judge's confidence comes from: verbal (it writes HIGH or LOW), logprobs (token "
        "probabilities) or auto.", "asking", metavar="MODE", choices=("verbal", "logprobs", "auto"),
    )  # fmt: skip
    max_tokens: int = option(
        4096, "Maximum length of a judge's reply, in tokens.", "asking", metavar="TOKENS", least=1,
        per_judge="max_tokens",
    )  # fmt: skip
    judge_temperature: float = option(
        0.0, "Temperature of the judge's first reply.", "asking", metavar="X", least=0, most=2,
        advanced=True, per_judge="temperature",
    )  # fmt: skip
    reply: str | None = option(
        None,
        "Form of the judge's replies: free (it may explain), tags (the bare verdict), json (an object with "
        "reasoning and verdict), or auto: json or tags if the server supports them. choice, "
        "guided-choice and regex name one server's way of tags. Default: tags for the small embedded model, "
        "else free.", "asking", metavar="FORM", choices=("auto", *REPLIES), per_judge="reply",
    )  # fmt: skip
    extra: Mapping[str, object] = option(
        {}, 'Extra field of every request, as JSON: reasoning_effort="low". May be repeated.', "asking",
        metavar="NAME=JSON", guarded=True, shown=False, per_judge="extra",
    )  # fmt: skip
    keep_going: bool = switch(
        "Continue although most replies of the judge cannot be read; without it, the run stops (exit code "
        "5), and the server answers with an error. A case without any readable reply is provisional.",
        "asking", per_request=True, decides=False,
    )  # fmt: skip
    criteria: str | None = option(
        None,
        "What makes an answer better, for general cases: 'faithful to the source; fluent', or @FILE with one "
        "criterion per line. A case may state its own.", "asking", metavar="TEXT", guarded=True,
        per_request=True, main=True,
    )  # fmt: skip
    vision: str = option(
        "auto",
        "Whether the judge can see images and documents: yes, no, or auto (a test call finds out before the "
        "first image is judged).", "asking", metavar="MODE", choices=("auto", "yes", "no"),
        advanced=True,
    )  # fmt: skip
    prompts: str | None = option(
        None, "Folder with your own prompt templates.", "asking", metavar="DIR", guarded=True
    )
    tokenizer: str | None = option(
        None, "Count tokens with this tokenizer.json where the server reports no usage.", "asking",
        metavar="FILE", guarded=True, advanced=True, decides=False,
    )  # fmt: skip
    strategy: str = option(
        DEFAULT_STRATEGY, "Method that chooses the winner; see caps list strategies.", "strategy",
        metavar="NAME", per_request=True, plugin=True, registry=STRATEGIES, main=True,
    )  # fmt: skip
    settings: Mapping[str, object] = option(
        {}, "Change a field of the strategy, such as finalists=4 (see caps list strategies NAME), or an "
        "advanced setting (see caps list settings). May be repeated.", "strategy", aliases=("set",),
        flags=("--set",), metavar="NAME=VALUE", per_request=True, plugin=True, main=True,
    )  # fmt: skip
    skip_failing: bool = switch(
        "Do not judge programs that fail a public example, unless all of them fail (caps strategies only).",
        "strategy", per_request=True,
    )  # fmt: skip
    explain: bool = switch(
        "Add to each result what changed its probability: votes, findings and verdicts (posterior).",
        "strategy", per_request=True, decides=False,
    )  # fmt: skip
    judge_profile: str | None = option(
        None, "Measured accuracy of the judge, a file written by caps diagnose --save.", "strategy",
        metavar="FILE", guarded=True,
    )  # fmt: skip
    calibrate: int | None = option(
        None,
        "Fit the judge's accuracy and the weight of votes on the labelled cases among the first K.",
        "calibrate", metavar="K",
    )  # fmt: skip
    seed: int = option(
        1234, "Random seed of the pairings; the same seed gives the same pairings.", "strategy", metavar="N",
        least=-(2**63), most=2**63 - 1, per_request=True, main=True,
    )  # fmt: skip
    profile: str | None = option(
        None, "What the judge sees of a candidate; see caps list profiles. Default: by the case's domain.",
        "evidence", metavar="NAME", plugin=True, registry=PROFILES,
    )  # fmt: skip
    views: Mapping[str, object] = option(
        {}, "Replace one view of the profile: partial=thinking. May be repeated.", "evidence",
        aliases=("view",), flags=("--view",), metavar="SLOT=VIEW", plugin=True,
    )  # fmt: skip
    hard_evidence: str = option(
        "auto",
        "Before judging, compare answers by value and run programs on public examples: auto, on or off.",
        "findings", metavar="MODE", choices=("auto", "on", "off"),
    )  # fmt: skip
    sandbox: str = option(
        "auto",
        "Where programs run: auto, bwrap, unsafe-local (no protection), or off (programs are not run).",
        "findings", metavar="MODE", choices=SANDBOXES, guarded=True,
    )  # fmt: skip
    further_inputs: int = option(
        64,
        "Inputs beyond the examples on which functions of a case are compared; half for standard input.",
        "findings", metavar="N", least=0, most=10_000, advanced=True,
    )  # fmt: skip
    further_seconds: float = option(
        20.0, "Seconds of processor time per case after which no further inputs are tried.",
        "findings", metavar="SECONDS", least=0, advanced=True,
    )  # fmt: skip
    samples: int | Literal["auto"] = option(
        16, "Number of answers to generate for each problem; auto: until another one is not worth its price.",
        "generation", aliases=("n",), flags=("--samples", "--n", "-n"), metavar="N", least=1,
        per_request=True, main=True,
    )  # fmt: skip
    max_n: int = option(
        32, "Maximum number of answers with --n auto.", "generation", metavar="N", least=1, per_request=True
    )
    target: float = option(
        0.95, "With --n auto: stop when the best answer is this likely to be right.", "generation",
        metavar="PROBABILITY", least=0, most=1, per_request=True,
    )  # fmt: skip
    generator: tuple[Mapping[str, object], ...] = option(
        (),
        "With --n auto: a model that writes answers, instead of --model. Repeat it for several models; in a "
        "settings file, a [[generator]] table may also name its address, key, price and preset.",
        "generation", metavar="NAME", guarded=True, shown=False,
    )  # fmt: skip
    models: Mapping[str, object] = option(
        {},
        "Names that stand for several generators, a judge and a strategy: [models.NAME] tables of a settings "
        "file. Clients ask for caps/NAME.", "virtual models",
        metavar="NAME=JSON", guarded=True, advanced=True, decides=False,
    )  # fmt: skip
    preset: str = option(
        "default", "Sampling settings of the model that writes the answers; see caps list presets.",
        "generation", metavar="NAME", plugin=True, registry=PRESETS,
    )  # fmt: skip
    method: str = option(
        "independent", "How answers are generated; see caps list methods.", "generation", metavar="NAME",
        plugin=True, registry=METHODS,
    )  # fmt: skip
    logprobs: bool = switch(
        "Store log-probabilities with each generated answer: of all its tokens, of the last, of the lowest "
        "window.", "generation",
    )  # fmt: skip
    domain: str | None = option(
        None, "Domain of cases that state none; see caps list domains. Default: guessed from the answers.",
        "domain", metavar="NAME", per_request=True, plugin=True, registry=DOMAINS, main=True,
    )  # fmt: skip
    engine: str = option(
        "local", "What runs the selections: local (this process), batch (a Batch API) or ray (a cluster).",
        "engine", metavar="NAME", choices=ENGINES, guarded=True, decides=False,
    )  # fmt: skip
    batch: Mapping[str, object] = option(
        {}, "Change a field of the batch engine. May be repeated.", "engine", metavar="FIELD=VALUE",
        decides=False,
    )  # fmt: skip
    batch_dir: str | None = option(
        None,
        "Write the requests of --engine batch to files in this folder, and read the results there, instead "
        "of calling a Batch API. While results are missing, the exit code is 4.", "engine", metavar="DIR",
        guarded=True, decides=False,
    )  # fmt: skip
    ray_address: str | None = option(
        None,
        "Address of the Ray cluster: HOST:PORT, or auto to start one here. Also read from RAY_ADDRESS.",
        "engine", env=("CAPS_RAY_ADDRESS", "RAY_ADDRESS"), metavar="ADDRESS", guarded=True, advanced=True,
        decides=False,
    )  # fmt: skip
    ray_workers: int = option(
        2, "Number of worker processes of the ray engine.", "engine", metavar="N", least=1, advanced=True,
        decides=False,
    )  # fmt: skip
    max_connections: int | Literal["auto"] = option(
        "auto", "Maximum number of concurrent calls to one server, or auto.", "performance", metavar="N",
        decides=False, main=True,
    )  # fmt: skip
    warm_prefix: str = option(
        "auto",
        "Send one call for each shared beginning of prompts (problem, slot A) before the others, so that "
        "they find it in the server's cache: on, off, or auto: where cached tokens are cheaper and the "
        "beginning is long. It adds up to two waves to a round.", "performance", metavar="MODE",
        choices=("auto", "on", "off"), advanced=True, decides=False,
    )  # fmt: skip
    cache_hints: str = option(
        "auto",
        "Mark the shared beginnings with cache_control, for servers that cache only on request: on, off, or "
        "auto: by the address.", "performance", metavar="MODE", choices=("auto", "on", "off"),
        advanced=True, decides=False,
    )  # fmt: skip
    timeout: float = option(
        600.0, "Seconds to wait for one reply.", "performance", metavar="SECONDS", least=0.1, decides=False,
    )  # fmt: skip
    otel: bool = switch(
        "Send spans and metrics, without prompts, with OpenTelemetry; its OTEL_... variables configure it.",
        "performance", guarded=True, decides=False,
    )  # fmt: skip
    context_tokens: int | None = option(
        None,
        "Context length of the judge in tokens; longer views are shortened. Default: as its server reports.",
        "context", metavar="TOKENS", least=256,
    )  # fmt: skip
    threads: int | None = option(
        None, "CPU threads of an embedded model. Default: by the load of the machine.", "performance",
        metavar="N", least=1, advanced=True, decides=False,
    )  # fmt: skip
    journal: str | None = option(
        None,
        "File that stores every reply, so that no call is paid for twice. Default: in your data folder.",
        "journal", metavar="FILE", guarded=True, decides=False, main=True,
    )  # fmt: skip
    durable: bool = switch(
        "Keep replies through a power failure too, not only through a killed process; slower.", "journal",
        advanced=True, decides=False,
    )  # fmt: skip
    price_input: float | None = option(
        None, "Price in USD per million input tokens.", "price", metavar="USD", least=0,
        per_judge="price_input", decides=False,
    )  # fmt: skip
    price_output: float | None = option(
        None, "Price in USD per million output tokens.", "price", metavar="USD", least=0,
        per_judge="price_output", decides=False,
    )  # fmt: skip
    price_cached: float | None = option(
        None, "Price in USD per million cached input tokens.", "price", metavar="USD", least=0,
        advanced=True, per_judge="price_cached", decides=False,
    )  # fmt: skip
    budget_tokens: int | None = option(
        None, "Maximum tokens for each case.", "budget", metavar="TOKENS", least=0, per_request=True,
        decides=False, main=True,
    )  # fmt: skip
    budget_usd: float | None = option(
        None, "Maximum cost of each case in US dollars.", "budget", metavar="USD", least=0, decides=False,
        main=True,
    )  # fmt: skip
    budget_seconds: float | None = option(
        None, "Maximum seconds for each case.", "budget seconds", aliases=("seconds",),
        metavar="SECONDS", least=0, per_request=True, decides=False,
    )  # fmt: skip
    budget_total_tokens: int | None = option(
        None, "Maximum tokens for the whole run.", "total budget", metavar="TOKENS", least=0,
        decides=False,
    )  # fmt: skip
    budget_total_usd: float | None = option(
        None, "Maximum cost of the whole run in US dollars.", "total budget", metavar="USD", least=0,
        decides=False,
    )  # fmt: skip
    budget_total_seconds: float | None = option(
        None, "Maximum seconds for the whole run.", "total budget seconds", metavar="SECONDS",
        least=0, decides=False,
    )  # fmt: skip

    def __post_init__(self) -> None:
        for setting in options().values():
            value, default = getattr(self, setting.name), setting.default
            if type(value) is not type(default) or value != default:  # most are; configs are made often
                object.__setattr__(self, setting.name, setting.check(value, setting.name))
        if not _is_whole_price(self.price_input, self.price_output, self.price_cached):
            raise SettingError(
                "a price needs both --price-input and --price-output (price_input, price_output): USD per "
                "million tokens"
            )

    def with_values(self, values: Mapping[str, Any], *, where: str = "") -> "RunConfig":
        """A copy with some settings changed and checked; `where` names their source in errors."""
        return replace(self, **read_values(values, where=where))

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain data."""
        return {spec.name: to_plain(getattr(self, spec.name)) for spec in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, where: str) -> "RunConfig":
        """The inverse of `to_dict`; missing settings have their defaults."""
        return cls(**read_values(values, where=where))


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The API keys of a run, which are never shown or written."""

    api_key: str | None = field(default=None, repr=False)
    judge_api_key: str | None = field(default=None, repr=False)
    judges: Mapping[str, str] = field(default_factory=dict, repr=False)  # by the variable that holds it
    generators: tuple[str | None, ...] = field(default=(), repr=False)

    @classmethod
    def find(
        cls,
        config: RunConfig,
        *,
        api_key: str | None = None,
        judge_api_key: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> "Keys":
        """The given keys, else those of the environment variables that the config names."""
        known = os.environ if environment is None else environment

        def read(given: str | None, named: str, *usual: str) -> str | None:
            if given is not None:
                return given or None  # an empty key overrides the environment
            if named and named not in known:
                raise SettingError(f"environment variable {named!r}, which should hold a key, is not set")
            return next((known[name] for name in ((named,) if named else usual) if known.get(name)), None)

        return cls(
            api_key=read(api_key, config.api_key_env, "CAPS_API_KEY", "OPENAI_API_KEY"),
            judge_api_key=read(judge_api_key, "", "CAPS_JUDGE_API_KEY"),
            judges=_judge_keys(config.judges, known),
            generators=tuple(read(None, str(one.get("api_key_env") or "")) for one in config.generator),
        )


def _judge_keys(judges: Iterable[JudgeTable], environment: Mapping[str, str]) -> dict[str, str]:
    """The keys of several judges, by the names of their environment variables."""
    keys = {}
    for table in judges:
        if table.api_key_env and not environment.get(table.api_key_env):
            raise SettingError(
                f"judge {table.name!r}: api_key_env: environment variable {table.api_key_env!r}, which "
                "should hold a key, is not set"
            )
        if table.api_key_env:
            keys[table.api_key_env] = environment[table.api_key_env]
    return keys


@cache
def options() -> Mapping[str, Option]:
    """All settings by name, in the order of `RunConfig`."""
    return options_of(RunConfig)


@cache
def options_by_alias() -> Mapping[str, Option]:
    """All settings by their names and aliases."""
    return {name: setting for setting in options().values() for name in (setting.name, *setting.aliases)}


def find_option(name: str, *, where: str = "", among: Iterable[Option] | None = None) -> Option:
    """Find a setting by name or alias; a `SettingError` suggests the nearest match."""
    allowed = tuple(options().values() if among is None else among)
    setting = options_by_alias().get(name.replace("-", "_"))
    if setting is not None and setting in allowed:
        return setting
    place = f"{where}: " if where else ""
    if setting is not None:
        raise SettingError(f"{place}{name}: may not be set here")
    names = [alias for allowed_one in allowed for alias in (allowed_one.name, *allowed_one.aliases)]
    raise SettingError(
        f"{place}{name}: no such setting; {nearest(name.replace('-', '_'), names)}see caps select --help"
    )


def read_values(
    values: Mapping[str, Any], *, where: str = "", among: Iterable[Option] | None = None
) -> dict[str, Any]:
    """Check settings and return them by field name."""
    read: dict[str, Any] = {}
    for name, value in values.items():
        setting = find_option(str(name), where=where, among=among)
        read[setting.name] = setting.check(value, f"{where}: {name} =" if where else f"{name} =")
    return read


@cache
def path_options() -> tuple[str, ...]:
    """The names of the settings whose values are paths."""
    return tuple(setting.name for setting in options().values() if setting.is_path)


def per_request_options() -> tuple[Option, ...]:
    """The settings that a client of the server may set."""
    return tuple(setting for setting in options().values() if setting.per_request)


# Identity, and the command line that leads to it

#: The groups of settings that say who judges, what it sees and how it is asked.
JUDGING = ("judge", "recorded", "asking", "evidence", "context")


def command_words(config: RunConfig, groups: Collection[str], *, file: str | None = None) -> list[str]:
    """The words of a command line that give the settings of some groups; credentials are masked.

    `file` is the settings file that several judges were read from, if they were.
    """
    if config.judges and file is not None:
        words = ["--config", file]
    else:
        words = [word for table in config.judges for word in judge_words(table)]
    for setting in options().values():
        if setting.group in groups and setting.kind != "judges":
            value = getattr(config, setting.name)
            if setting.name == "extra":
                value = recorded_extra(value)
            elif setting.kind == "list":
                value = tuple(map(shown_address, value))
            words += to_words(setting, value)
    return words


def judge_words(table: JudgeTable) -> list[str]:
    """The words of a command line that name one of several judges; lists and tables need a file."""
    keys = {setting.name: setting.per_judge for setting in _judge_options().values()}
    row = {key: value for key, value in table.to_dict().items() if key != "settings"}
    row |= {keys[name]: value for name, value in table.settings.items()}
    row |= {"base_url": shown_address(table.base_url[0])} if len(table.base_url) == 1 else {}
    parts = [f"{key}={value}" for key, value in row.items() if isinstance(value, str | int | float)]
    return ["--judge", ",".join(parts)]


#: Keys of judge and generator tables that say where a model is and what it costs, not what is asked.
_NOT_DECIDING = ("base_url", "api_key_env", *PRICES)


def identity(config: RunConfig, *, without: Collection[str] = ()) -> dict[str, Any]:
    """The values of all deciding settings, as plain data without secrets, except those of some groups."""
    return {
        setting.name: _comparable(getattr(config, setting.name), setting.name)
        for setting in options().values()
        if setting.decides and setting.group not in without
    }


def _comparable(value: Any, name: str) -> Any:
    """A value as runs are compared by it: without credentials, addresses and prices."""
    if name == "extra":
        return recorded_extra(value)
    if isinstance(value, JudgeTable):
        row = {key: part for key, part in value.to_dict().items() if key not in _NOT_DECIDING}
        decided = {key: part for key, part in value.settings.items() if options()[key].decides}
        return {**row, "settings": {key: _comparable(part, key) for key, part in decided.items()}}
    if name == "generator" and isinstance(value, Mapping):
        return {key: part for key, part in value.items() if key not in _NOT_DECIDING}
    if isinstance(value, tuple):
        return [_comparable(part, name) for part in value]
    return to_plain(value)
