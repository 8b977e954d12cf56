"""Options of commands: those generated from `RunConfig`, and those that several commands share.

    @configured("judge", "strategy", "budget")
    def select(cases: Cases, config: RunConfig, keys: Keys, ...) -> None: ...

A new setting is one new field of `RunConfig`; it appears in every command that takes its group. An advanced
setting has no option of its own: `--set NAME=VALUE` sets it, as do a variable and a key of a settings file.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from platformdirs import user_data_path
from typer.core import TyperCommand

from caps.cli.help import (
    BUDGET,
    FILES,
    GENERATION,
    JUDGE,
    MAIN,
    PANELS,
    PERFORMANCE,
    SERVER,
    STRATEGY,
    print_help,
)
from caps.cli.output import say
from caps.config import Keys, RunConfig, find_option, options, read_judges
from caps.config.judges import JudgeTable, parse_word
from caps.config.option import Option
from caps.config.sources import (
    LOCAL_FILE,
    parse_assignments,
    read_config_file,
    read_environment,
    refuse_misspelt_variables,
)
from caps.core.errors import SettingError
from caps.core.settings import nearest
from caps.evidence.domains import domain_named
from caps.files import UNDECODABLE
from caps.journal.store import default_path
from caps.registry import STRATEGIES, allow
from caps.runs.shards import Shard

#: The panel of each group of settings; those that most users need are in a panel of their own.
PANEL_OF_GROUP = {
    "judge": JUDGE, "recorded": JUDGE, "asking": JUDGE, "strategy": STRATEGY,
    "calibrate": STRATEGY, "evidence": STRATEGY, "domain": STRATEGY, "findings": STRATEGY,
    "generation": GENERATION,
    "engine": PERFORMANCE, "performance": PERFORMANCE, "context": JUDGE,
    "journal": FILES, "cases": FILES, "price": BUDGET, "budget": BUDGET,
    "budget seconds": BUDGET, "total budget": BUDGET, "total budget seconds": BUDGET,
}  # fmt: skip
#: Printed below the options of every command that takes settings of a run.
EPILOG = (
    "Each option can also be set by an environment variable (--max-tokens: CAPS_MAX_TOKENS) or in a TOML "
    "file (--config). The command line comes before the environment, and the environment before the file. "
    "Settings that few need have no option: caps list settings shows them, and --set NAME=VALUE sets them."
)

TYPES: Mapping[str, Any] = {
    "text": str | None,
    "integer": int | None,
    "number": float | None,
    "flag": bool,
    "list": list[str] | None,
    "mapping": list[str] | None,
    "tables": list[str] | None,
    "integer or auto": str,
}
REPEATED = ("list", "mapping", "tables")  # kinds of options that may be given several times
#: Keys are not settings. `Keys.find` reads them from the environment, first the variable of `api_key_env`.
KEY_OPTIONS = {
    "api_key": typer.Option(
        "--api-key", metavar="KEY", rich_help_panel=MAIN,
        help="Key of the server; safer in the environment: CAPS_API_KEY or OPENAI_API_KEY.",
    ),
    "judge_api_key": typer.Option(
        "--judge-api-key", metavar="KEY", rich_help_panel=JUDGE,
        help="Key of the judge's server, if it differs; safer in CAPS_JUDGE_API_KEY.",
    ),
}  # fmt: skip
KEYS_OF_GROUP = {"judge": ("api_key", "judge_api_key")}
NoJournal = Annotated[
    bool,
    typer.Option(
        "--no-journal", help="Store no replies; every run pays for its calls again.", rich_help_panel=FILES
    ),
]
SETTINGS = "settings"  # the parameter of --set
TABLES = "caps.tables"  # key of `Context.meta`: the [[judge]] tables of a settings file
LOADED = "caps.loaded"  # key of `Context.meta`: which settings came from which file
ADVANCED = "caps.advanced"  # key of `Context.meta`: the advanced settings that were given


def configured(
    *groups: str,
    defaults: Mapping[str, Any] | None = None,
    without: Iterable[str] = (),
    announce: bool = True,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of some groups of settings; it is called with `config` and `keys`.

    A parameter of the command whose type is a dataclass of settings (`core.settings`), such as the limits of
    a server, becomes an option for each of its fields. `defaults` replaces the default of single settings for
    this command, and `without` omits some. The file that settings came from is printed on standard error,
    unless the command does that itself.
    """
    usual, left_out = defaults or {}, frozenset(without)
    taken = {
        name: setting
        for name, setting in options().items()
        if setting.group in groups and name not in left_out and setting.kind != "judges"
    }
    keys = [name for group in groups for name in KEYS_OF_GROUP.get(group, ()) if name not in left_out]
    generated = {
        name: _parameter(setting, usual.get(name, setting.default))
        for name, setting in taken.items()
        if not setting.advanced
    }
    generated |= {name: _plain(name, Annotated[str | None, KEY_OPTIONS[name]]) for name in keys}
    generated.setdefault(SETTINGS, _parameter(options()[SETTINGS], {}))
    if "journal" in taken:
        generated["no_journal"] = _plain("no_journal", NoJournal, default=False)
    generated["config_file"] = _plain("config_file", CONFIG_FILE)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        declared = inspect.signature(command).parameters
        arguments = [parameter for parameter in declared.values() if _is_argument(parameter.annotation)]
        tables: dict[str, Any] = {
            name: parameter.annotation
            for name, parameter in declared.items()
            if is_dataclass(parameter.annotation) and name not in ("config", "keys")
        }
        others = [
            parameter
            for name, parameter in declared.items()
            if name not in ("ctx", "config", "keys", *tables) and parameter not in arguments
        ]
        others += [_field_parameter(spec) for table in tables.values() for spec in fields(table)]

        @wraps(command)
        def run(ctx: typer.Context, **values: Any) -> None:
            refuse_misspelt_variables()
            words = {name: values.pop(name) for name in generated}
            advanced = _advanced_values(ctx, taken, words)
            if announce and not values.get("quiet") and (loaded := loaded_settings(ctx)):
                say("settings from {}: {}".format(*loaded))
            config = _config(taken, words, {**usual, **advanced}, ctx.meta.get(TABLES, ()))
            if "journal" in taken and words["no_journal"]:  # also against CAPS_JOURNAL and a settings file
                config = config.with_values({"journal": None})
            elif "journal" in taken and config.journal is None:
                config = config.with_values({"journal": str(default_path(user_data_path("caps")))})
            naming = (name for name, setting in taken.items() if setting.plugin or setting.guarded)
            allow_named(*(getattr(config, name) for name in naming), config.judges)
            named_domain(config.domain)
            if "ctx" in declared:
                values["ctx"] = ctx
            for name, table in tables.items():
                values[name] = table(**{spec.name: values.pop(spec.name) for spec in fields(table)})
            command(config=config, keys=Keys.find(config, **{name: words[name] for name in keys}), **values)

        context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in (context, *arguments, *sorted((*generated.values(), *others), key=_panel_order))
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _config(
    taken: Mapping[str, Option],
    words: Mapping[str, Any],
    usual: Mapping[str, Any],
    tables: tuple[JudgeTable, ...] = (),
) -> RunConfig:
    values = dict(usual)
    for name, setting in taken.items():
        if setting.advanced:
            continue
        value, flag = words[name], setting.flags[0]
        if setting.several:
            value, values[setting.several] = _one_or_several(setting, value or [], tables)
            value = usual.get(name, value) if not words[name] else value
        if setting.kind == "mapping":
            read = parse_extra if setting.is_json else parse_assignments
            value = read(value or [], option=flag)
        if value is None and not setting.optional:
            value = setting.default
        if value == "" and setting.optional:
            value = None
        values[name] = value if value is setting.default else setting.check(value, flag)
    return RunConfig(**values)


def _advanced_values(
    ctx: typer.Context, taken: Mapping[str, Option], words: dict[str, Any]
) -> dict[str, Any]:
    """The advanced settings of a settings file, the environment and `--set`, which is left with the others.

    Only `--set` on the command line names them: a table of a settings file changes the strategy alone, so
    that a `caps.toml` that is merely found cannot set what is guarded.
    """
    advanced = {name: setting for name, setting in taken.items() if setting.advanced}
    values = {name: value for name, value in ctx.meta.get(ADVANCED, {}).items() if name in advanced}
    if ctx.meta.get(LOADED):
        path, names = ctx.meta[LOADED]
        ctx.meta[LOADED] = (path, sorted([*names, *values]))
    values |= read_environment(name for name in advanced if options()[name].env)
    source = ctx.get_parameter_source(SETTINGS)
    if source is not None and source.name == "COMMANDLINE":
        others = []
        for word in words[SETTINGS] or ():
            name, _, text = word.partition("=")
            setting = advanced.get(name.strip().replace("-", "_"))
            if setting is None:
                others.append(word)
            else:
                values[setting.name] = setting.check_text(text.strip(), f"{setting.label} =")
        words[SETTINGS] = others
    if words[SETTINGS] and SETTINGS not in taken:
        name = words[SETTINGS][0].partition("=")[0]
        raise SettingError(f"--set {name}: {nearest(name, list(advanced))}caps list settings has the names")
    ctx.meta[ADVANCED] = values
    return values


def _one_or_several(
    setting: Option, words: list[str], tables: tuple[JudgeTable, ...]
) -> tuple[str, tuple[JudgeTable, ...]]:
    """The value of an option that was given once, or the tables that several of them, or a file, make."""
    if not words:
        return setting.default, tables
    parsed = [parse_word(word) for word in words]
    if len(parsed) == 1 and isinstance(parsed[0], str):
        return parsed[0], ()
    return setting.default, read_judges(parsed, setting.flags[0])


def allow_named(*values: object) -> None:
    """Let code of the working directory be imported that a user has named: `py:module:object`.

    These are values of the command line, the environment or a file given with `--config`. A file that is only
    found in the working directory may not name code at all.
    """
    for value in values:
        words = (
            value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else (value,)
        )
        for word in words:
            named = (word.judge, *word.base_url) if isinstance(word, JudgeTable) else (word,)
            allow(named, str(Path.cwd()))


def named_domain(name: str | None) -> str | None:
    """The name of the domain that `--domain` names, which cases may state from now on."""
    allow_named(name)
    try:
        return None if name is None else domain_named(name).name
    except SettingError as error:
        raise SettingError(f"--domain {name!r}: {error}") from None


def parse_extra(words: Iterable[str], *, option: str = "--extra") -> dict[str, Any]:
    """Read `name=json` words; a value that is not JSON is a text."""
    fields: dict[str, Any] = {}
    for name, value in parse_assignments(words, option=option).items():
        try:
            fields[name] = msgspec.json.decode(value)
        except UNDECODABLE:
            fields[name] = value
    return fields


def _parameter(setting: Option, default: Any) -> inspect.Parameter:
    kind = "list" if setting.several else setting.kind
    annotation: Any = Annotated[TYPES[kind], _typer_option(setting, default)]
    return _plain(setting.name, annotation, default=None if kind in REPEATED else default)


def _typer_option(setting: Option, default: Any) -> Any:
    names = setting.choices or (() if setting.registry is None else setting.registry.table)
    return typer.Option(
        *setting.flags,
        envvar=None if setting.kind == "mapping" else list(setting.env),
        show_envvar=False,
        help=setting.help,
        metavar=setting.metavar,
        show_default=setting.kind not in REPEATED and default not in (None, "", False),
        rich_help_panel=MAIN if setting.main else PANEL_OF_GROUP[setting.group],
        autocompletion=completion(names),
    )


def completion(names: Iterable[str]) -> Callable[[str], list[str]] | None:
    """What a shell offers for an option that takes one of these names."""
    offered = tuple(names)
    return (lambda incomplete: [name for name in offered if name.startswith(incomplete)]) if offered else None


def complete_strategies(incomplete: str) -> list[str]:
    """What a shell offers for a list of strategies, separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in STRATEGIES.table if name.startswith(last)]


def setting_option(name: str) -> Any:
    """The option of a single setting, for commands that take only a few of them."""
    setting = options()[name]
    return _typer_option(setting, setting.default)


def _field_parameter(spec: "Field[Any]") -> inspect.Parameter:
    """The option of a field that `core.settings.setting` declares."""
    about = spec.metadata["about"]
    declared = typer.Option(
        f"--{spec.name.replace('_', '-')}",
        help=f"{about[0].upper()}{about[1:]}.",
        metavar=spec.metadata["unit"],
        min=spec.metadata["least"],
        max=spec.metadata["most"],
        rich_help_panel=SERVER,
    )
    return _plain(spec.name, Annotated[type(spec.default), declared], default=spec.default)


def _plain(name: str, annotation: Any, *, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _panel_order(parameter: inspect.Parameter) -> int:
    """Where an option stands in the help: by its panel; options without one come first."""
    declared = (getattr(about, "rich_help_panel", None) for about in _metadata(parameter.annotation))
    return next((PANELS.index(panel) for panel in declared if panel in PANELS), -1)


def _metadata(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__metadata__", ())


class Command(TyperCommand):
    """A command that lists `--help` among input and output."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Print the help."""
        print_help(self, ctx)

    def get_help_option(self, ctx: Any) -> Any:
        """The option `--help`, in the first panel where the command has panels."""
        declared = super().get_help_option(ctx)
        panels = {getattr(param, "rich_help_panel", None) for param in self.params}
        if declared is not None and FILES in panels:
            declared.rich_help_panel = FILES
        return declared


def _is_argument(annotation: Any) -> bool:
    return any(isinstance(about, typer.models.ArgumentInfo) for about in _metadata(annotation))


def _load(ctx: typer.Context, path: Path | None) -> Path | None:
    """Make the values of a file the defaults of this command: the named file, else a local `caps.toml`."""
    is_local = path is None
    path = Path(LOCAL_FILE) if path is None else path
    if is_local and not path.is_file():
        return None
    values = read_config_file(path, found=is_local)
    params = {option.lstrip("-"): param for param in ctx.command.params for option in param.opts}
    defaults: dict[str, Any] = {}
    advanced: dict[str, Any] = {}
    for key, value in values.items():
        if is_local:
            find_option(key, where=str(path))  # it may set nothing else, such as --out or --host
        param = params.get(key.replace("_", "-")) or _param_of_setting(ctx, key)
        setting = options().get(key.replace("-", "_"))
        if key == "judges":
            ctx.meta[TABLES] = read_judges(value, str(path))
        elif setting is not None and setting.advanced:
            advanced[setting.name] = setting.check(value, f"{path}: {key} =")
        elif param is None:
            _refuse_unknown(path, key, params)
        elif param.name is not None:
            defaults[param.name] = _default(value, repeated=getattr(param, "multiple", False))
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    ctx.meta[LOADED] = (path, sorted([*defaults, *(("judges",) if ctx.meta.get(TABLES) else ())]))
    ctx.meta[ADVANCED] = advanced
    return path


def _default(value: Any, *, repeated: bool) -> Any:
    """The value of a settings file as the default of an option, which takes words if it may be repeated."""
    if isinstance(value, dict):
        return [f"{name}={_word(part)}" for name, part in value.items()]
    if isinstance(value, list):
        has_tables = any(isinstance(part, dict) for part in value)
        return [_word(part) for part in value] if has_tables else value
    return [value] if repeated else value


def _param_of_setting(ctx: typer.Context, key: str) -> Any:
    """The parameter of the setting that a key or its alias names, where this command has it."""
    try:
        name = find_option(key).name
    except SettingError:
        return None
    return next((param for param in ctx.command.params if param.name == name), None)


def _refuse_unknown(path: Path, key: str, names: Iterable[str]) -> None:
    """Ignore a setting of other commands; anything else is a mistake."""
    try:
        find_option(key)
    except SettingError:
        close = nearest(key.replace("_", "-"), [*names, *(name.replace("_", "-") for name in options())])
        raise SettingError(f"{path}: {key}: no such option; {close}see --help") from None


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def loaded_settings(ctx: typer.Context) -> tuple[str, str] | None:
    """The file that settings came from, and their names; None if there is no file."""
    loaded = ctx.meta.get(LOADED)
    return None if loaded is None else (str(loaded[0]), ", ".join(loaded[1]) or "none for this command")


def stated_settings(ctx: typer.Context) -> frozenset[str]:
    """Names of the settings that were given: on the command line, in the environment or in a file."""
    stated = set(ctx.meta.get(ADVANCED, ()))
    for param in ctx.command.params:
        source = ctx.get_parameter_source(param.name or "")
        if source is not None and source.name != "DEFAULT" and param.name in options():
            stated.add(param.name)
    return frozenset(stated)


def judge_tables(ctx: typer.Context, words: list[str] | None) -> tuple[JudgeTable, ...]:
    """The judges that `--judge` words or the tables of a settings file name."""
    return _one_or_several(options()["judge"], words or [], ctx.meta.get(TABLES, ()))[1]


def _load_judges(ctx: typer.Context, path: Path | None) -> Path | None:
    """Read only the judges of a settings file."""
    if path is not None:
        values = read_config_file(path)
        if "judges" in values:
            ctx.meta[TABLES] = read_judges(values["judges"], str(path))
    return path


CONFIG_FILE = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="CAPS_CONFIG",
        show_envvar=False,
        is_eager=True,
        callback=_load,
        metavar="FILE",
        help="Read options from a TOML file. Default: caps.toml in the working directory, within limits.",
        rich_help_panel=MAIN,
    ),
]

JUDGES_FILE = Annotated[
    Path | None,
    typer.Option(
        "--config",
        is_eager=True,
        callback=_load_judges,
        metavar="FILE",
        help="Settings file whose [[judge]] tables name the judges.",
        rich_help_panel=FILES,
    ),
]

Cases = Annotated[
    list[str],
    typer.Argument(
        metavar="CASES...", help="Files of cases, one JSON object per line; - reads standard input."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", envvar="CAPS_OUT", show_envvar=False, metavar="DIR", help="Folder for the files of the run.",
        rich_help_panel=MAIN,
    ),
]  # fmt: skip
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Write into --out even if it holds another run or other files.", rich_help_panel=FILES
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, metavar="N", help="Use only the first N cases.", rich_help_panel=MAIN),
]
ShardOption = Annotated[
    Shard | None,
    typer.Option(
        "--shard",
        metavar="K/N",
        parser=Shard.parse,
        help="Play only every N-th case, starting with case K; --out gets a folder for each shard.",
        rich_help_panel=FILES,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print no progress and no summary.", rich_help_panel=MAIN)
]
MaxUsd = Annotated[
    float | None,
    typer.Option(
        "--max-usd",
        envvar="CAPS_MAX_USD",
        show_envvar=False,
        min=0,
        metavar="USD",
        help="Refuse to start if the run is certain to cost more than this many US dollars.",
        rich_help_panel=BUDGET,
    ),
]
ApiKey = Annotated[str | None, KEY_OPTIONS["api_key"]]
JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of a table.", rich_help_panel=MAIN)
]
RunDomain = Annotated[
    str | None,
    typer.Option(
        "--domain", metavar="NAME", rich_help_panel=STRATEGY,
        help="Domain of the run; needed only if it is code of the working directory (py:module:NAME).",
    ),
]  # fmt: skip

# Settings of a run, for commands that take only a few of them.
Model = Annotated[str | None, setting_option("model")]
BaseUrl = Annotated[list[str] | None, setting_option("base_url")]
Judges = Annotated[list[str] | None, setting_option("judge")]
Profile = Annotated[str | None, setting_option("profile")]
Domain = Annotated[str | None, setting_option("domain")]
ContextTokens = Annotated[int | None, setting_option("context_tokens")]
View = Annotated[list[str] | None, setting_option("views")]
Prompts = Annotated[Path | None, setting_option("prompts")]
Tokenizer = Annotated[Path | None, setting_option("tokenizer")]
Seed = Annotated[int, setting_option("seed")]
Fields = Annotated[str, setting_option("map")]
Sandbox = Annotated[str, setting_option("sandbox")]
PriceInput = Annotated[float | None, setting_option("price_input")]
PriceOutput = Annotated[float | None, setting_option("price_output")]
PriceCached = Annotated[float | None, setting_option("price_cached")]
JournalFile = Annotated[Path | None, setting_option("journal")]
JudgeProfileFile = Annotated[Path | None, setting_option("judge_profile")]
