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
from typing import Annotated, Any, NamedTuple

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
from caps.config import Keys, RunConfig, find_option, options, options_by_alias, read_judges
from caps.config.judges import JudgeTable, parse_word
from caps.config.option import Option, to_json
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
    "Rarely needed settings have no option: caps list settings shows them, and --set NAME=VALUE sets them."
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
FILE = "caps.file"  # key of `Context.meta`: the settings file of the command
STATED = "caps.stated"  # key of `Context.meta`: the names of the settings that were given


class SettingsFile(NamedTuple):
    """What a settings file sets for a command: all names, and the values of its settings of a run."""

    path: Path
    names: list[str]
    values: dict[str, Any]


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
    generated["config_file"] = _plain("config_file", _config_option(taken))

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
            given = _given(ctx, taken, words)
            if announce and not values.get("quiet") and (loaded := loaded_settings(ctx)):
                say("settings from {}: {}".format(*loaded))
            config = RunConfig(**{**usual, **given})
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


def _given(ctx: typer.Context, taken: Mapping[str, Option], words: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a file, the environment or the command line gives, by name; the last one counts."""
    file: SettingsFile | None = ctx.meta.get(FILE)
    values = {} if file is None else dict(file.values)
    values |= read_environment(name for name, setting in taken.items() if setting.advanced and setting.env)
    for name, setting in taken.items():
        if name != SETTINGS and not setting.advanced and _is_given(ctx, name):
            values |= _read_words(setting, words[name], values.get("judges", ()))
    changes = []
    for word in words[SETTINGS] or ():
        name, _, text = word.partition("=")
        advanced = taken.get(name.strip().replace("-", "_"))
        if advanced is not None and advanced.advanced:
            values[advanced.name] = advanced.check_text(text.strip(), f"{advanced.label} =")
        else:
            changes.append(word)
    if changes and SETTINGS not in taken:
        name = changes[0].partition("=")[0]
        close = nearest(name, [setting.name for setting in taken.values() if setting.advanced])
        raise SettingError(f"--set {name}: {close}caps list settings has the names")
    if changes:
        values[SETTINGS] = parse_assignments(changes)
    ctx.meta[STATED] = frozenset(values)
    return values


def _is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _read_words(setting: Option, value: Any, tables: tuple[JudgeTable, ...] = ()) -> dict[str, Any]:
    """The settings that the words of an option, or its value in the environment, give."""
    flag = setting.flags[0]
    if setting.several:
        single, several = _one_or_several(setting, value, tables)
        return {setting.name: setting.check(single, flag), setting.several: several}
    if setting.kind == "mapping":
        value = (parse_extra if setting.is_json else parse_assignments)(value, option=flag)
    return {setting.name: None if value == "" and setting.optional else setting.check(value, flag)}


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

    These are values of the command line, the environment or a file given with --config. An auto-loaded file
    cannot name code.
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


def _load(taken: Mapping[str, Option], ctx: typer.Context, path: Path | None) -> Path | None:
    """Read the named file, else a local `caps.toml`; what is no setting of a run becomes a default."""
    is_local = path is None
    path = Path(LOCAL_FILE) if path is None else path
    if is_local and not path.is_file():
        return None
    params = {option.lstrip("-"): param for param in ctx.command.params for option in param.opts}
    settings, defaults = dict[str, Any](), dict[str, Any]()
    for key, value in read_config_file(path, auto_loaded=is_local).items():
        if is_local:
            find_option(key, where=str(path))  # it may set nothing else, such as --out or --host
        setting, param = options_by_alias().get(key.replace("-", "_")), params.get(key.replace("_", "-"))
        if key == "judges":
            settings[key] = read_judges(value, str(path))
        elif setting is not None and setting.name in taken:
            settings |= _read_value(setting, value, f"{path}: {key} =")
        elif param is not None and param.name != SETTINGS:
            repeated = getattr(param, "multiple", False) and not isinstance(value, list)
            defaults[param.name] = [value] if repeated else value
        elif setting is None:  # a setting of other commands is ignored
            known = [*params, *(name.replace("_", "-") for name in options())]
            close = nearest(key.replace("_", "-"), known)
            raise SettingError(f"{path}: {key}: no such option; {close}see --help")
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    ctx.meta[FILE] = SettingsFile(path, sorted([*defaults, *settings]), settings)
    return path


def _read_value(setting: Option, value: Any, where: str) -> dict[str, Any]:
    """The settings that a key of a settings file gives."""
    if setting.several and isinstance(value, str):
        return _read_words(setting, [value])
    if setting.kind == "mapping" and not setting.is_json and isinstance(value, Mapping):
        value = {name: part if isinstance(part, str) else to_json(part) for name, part in value.items()}
    return {setting.name: None if value == "" and setting.optional else setting.check(value, where)}


def loaded_settings(ctx: typer.Context) -> tuple[str, str] | None:
    """The file that settings came from, and their names; None if there is no file."""
    file: SettingsFile | None = ctx.meta.get(FILE)
    return None if file is None else (str(file.path), ", ".join(file.names) or "none for this command")


def stated_settings(ctx: typer.Context) -> frozenset[str]:
    """Names of the settings that were given: on the command line, in the environment or in a file."""
    stated: frozenset[str] = ctx.meta[STATED]
    return stated


def judge_tables(ctx: typer.Context, words: list[str] | None) -> tuple[JudgeTable, ...]:
    """The judges that `--judge` words or the tables of a settings file name."""
    file: SettingsFile | None = ctx.meta.get(FILE)
    tables = () if file is None else file.values.get("judges", ())
    return _one_or_several(options()["judge"], words or [], tables)[1]


def _config_option(taken: Mapping[str, Option]) -> Any:
    """The option that names a settings file, for a command with these settings."""

    def load(ctx: typer.Context, path: Path | None) -> Path | None:
        return _load(taken, ctx, path)

    return Annotated[
        Path | None,
        typer.Option(
            "--config",
            envvar="CAPS_CONFIG",
            show_envvar=False,
            is_eager=True,
            callback=load,
            metavar="FILE",
            help="Read options from a TOML file. Default: caps.toml in the working directory, which cannot "
            "set addresses, files or code.",
            rich_help_panel=MAIN,
        ),
    ]


def _load_judges(ctx: typer.Context, path: Path | None) -> Path | None:
    """Read the judges of a settings file, if one is named."""
    return None if path is None else _load({}, ctx, path)


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
CasesOutput = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="FILE", show_default=False, rich_help_panel=FILES,
        help="File for the cases. Default: standard output.",
    ),
]  # fmt: skip
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
        help="Run only every N-th case, starting with case K; --out gets a folder for each shard.",
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
Judges = Annotated[list[str] | None, setting_option("judge")]
Domain = Annotated[str | None, setting_option("domain")]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        min=1,
        metavar="N",
        help="Worker processes of a simulation, which do not change the figures. Default: one per core.",
        rich_help_panel=PERFORMANCE,
    ),
]
Fields = Annotated[str, setting_option("map")]
Sandbox = Annotated[str, setting_option("sandbox")]
JournalFile = Annotated[Path | None, setting_option("journal")]
JudgeProfileFile = Annotated[Path | None, setting_option("judge_profile")]
