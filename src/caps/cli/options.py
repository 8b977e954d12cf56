"""Options of commands: those generated from `RunConfig`, and those that several commands share.

    @configured("judge", "strategy", "budget")
    def select(cases: Cases, config: RunConfig, keys: Keys, ...) -> None: ...

A new setting is one new field of `RunConfig`; it appears in every command that takes its group.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from platformdirs import user_data_path
from typer.core import TyperCommand

from caps.cli.help import (
    ADVANCED,
    BUDGET,
    FILES,
    GENERATION,
    JUDGE,
    PANELS,
    PERFORMANCE,
    STRATEGY,
    print_help,
)
from caps.cli.output import say
from caps.config import Keys, RunConfig, find_option, options, read_judges
from caps.config.judges import JudgeTable, parse_word
from caps.config.option import Option
from caps.config.sources import LOCAL_FILE, parse_assignments, read_config_file, refuse_misspelt_variables
from caps.core.errors import SettingError
from caps.core.settings import nearest
from caps.evidence.domains import domain_named
from caps.files import UNDECODABLE
from caps.journal.store import default_path
from caps.registry import STRATEGIES, allow
from caps.runs.shards import Shard

#: The panel of each group of settings; advanced settings have a panel of their own.
PANEL_OF_GROUP = {
    "judge": JUDGE, "recorded": JUDGE, "asking": JUDGE, "strategy": STRATEGY,
    "calibrate": STRATEGY, "evidence": STRATEGY, "domain": STRATEGY, "findings": STRATEGY,
    "generation": GENERATION, "virtual models": GENERATION,
    "engine": PERFORMANCE, "performance": PERFORMANCE, "context": JUDGE, "embedded": PERFORMANCE,
    "journal": FILES, "cases": FILES, "price": BUDGET, "gpu price": BUDGET, "budget": BUDGET,
    "budget seconds": BUDGET, "total budget": BUDGET, "total budget seconds": BUDGET,
}  # fmt: skip
#: Printed below the options of every command that takes settings of a run.
EPILOG = (
    "Each option can also be set by an environment variable (--max-tokens: CAPS_MAX_TOKENS) or in a TOML "
    "file (--config). The command line comes before the environment, and the environment before the file."
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
#: Keys are not settings. `Keys.find` reads them from the environment, first the variable of `--api-key-env`.
KEY_OPTIONS = {
    "api_key": ("--api-key", "Key of the server; safer in the environment: CAPS_API_KEY or OPENAI_API_KEY."),
    "judge_api_key": (
        "--judge-api-key", "Key of the judge's server, if it differs; safer in CAPS_JUDGE_API_KEY.",
    ),
}  # fmt: skip
KEYS_OF_GROUP = {"judge": ("api_key", "judge_api_key")}
NoJournal = Annotated[
    bool,
    typer.Option(
        "--no-journal", help="Store no replies; every run pays for its calls again.", rich_help_panel=FILES
    ),
]
TABLES = "caps.tables"  # key of `Context.meta`: the [[judge]] tables of a settings file
LOADED = "caps.loaded"  # key of `Context.meta`: which settings came from which file


def configured(
    *groups: str,
    defaults: Mapping[str, Any] | None = None,
    without: Iterable[str] = (),
    announce: bool = True,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of some groups of settings; it is called with `config` and `keys`.

    `defaults` replaces the default of single settings for this command, and `without` omits some. The file
    that settings came from is printed on standard error, unless the command does that itself.
    """
    usual, left_out = defaults or {}, frozenset(without)
    taken = [
        one
        for one in options().values()
        if one.group in groups and one.name not in left_out and one.kind != "judges"
    ]
    keys = [name for group in groups for name in KEYS_OF_GROUP.get(group, ()) if name not in left_out]
    journaled = any(one.name == "journal" for one in taken)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command).parameters
        generated = {one.name: _parameter(one, usual.get(one.name, one.default)) for one in taken}
        generated |= {name: _key_parameter(name) for name in keys}
        if journaled:
            generated["no_journal"] = _plain("no_journal", NoJournal, default=False)
        generated["config_file"] = _plain("config_file", CONFIG_FILE, default=None)
        arguments = [one for one in own.values() if _is_argument(one.annotation)]
        others = [one for one in own.values() if one.name not in ("config", "keys") and one not in arguments]

        @wraps(command)
        def run(ctx: typer.Context, **given: Any) -> None:
            refuse_misspelt_variables()
            words = {name: given.pop(name) for name in generated}
            if announce and not given.get("quiet") and (loaded := loaded_settings(ctx)):
                say("settings from {}: {}".format(*loaded))
            found = {name: words[name] for name in keys}
            config = _config(taken, words, usual, ctx.meta.get(TABLES, ()))
            if journaled and words["no_journal"]:  # also against CAPS_JOURNAL and a settings file
                config = config.with_values({"journal": None})
            elif journaled and config.journal is None:
                config = config.with_values({"journal": str(default_path(user_data_path("caps")))})
            allow_named(
                *(getattr(config, one.name) for one in taken if one.plugin or one.guarded), config.judges
            )
            named_domain(config.domain)
            more = {"ctx": ctx} if "ctx" in own else {}
            command(config=config, keys=Keys.find(config, **found), **given, **more)

        context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        rest = [one for one in others if one.name != "ctx"]
        parameters = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in (context, *arguments, *sorted((*rest, *generated.values()), key=_panel_order))
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _config(
    taken: Iterable[Option],
    words: Mapping[str, Any],
    usual: Mapping[str, Any],
    tables: tuple[JudgeTable, ...] = (),
) -> RunConfig:
    values = dict(usual)
    for one in taken:
        given, flag = words[one.name], one.flags[0]
        if one.several:
            given, values[one.several] = _one_or_several(one, given or [], tables)
            given = usual.get(one.name, given) if not words[one.name] else given
        if one.kind == "mapping":
            read = parse_extra if one.is_json else parse_assignments
            given = read(given or [], option=flag)
        if given is None and not one.optional:
            given = one.default
        if given == "" and one.optional:
            given = None
        values[one.name] = given if given is one.default else one.check(given, flag)
    return RunConfig(**values)


def _one_or_several(
    one: Option, words: list[str], tables: tuple[JudgeTable, ...]
) -> tuple[str, tuple[JudgeTable, ...]]:
    """The value of an option that was given once, or the tables that several of them, or a file, make."""
    if not words:
        return one.default, tables
    parsed = [parse_word(word) for word in words]
    if len(parsed) == 1 and isinstance(parsed[0], str):
        return parsed[0], ()
    return one.default, read_judges(parsed, one.flags[0])


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
    found: dict[str, Any] = {}
    for name, value in parse_assignments(words, option=option).items():
        try:
            found[name] = msgspec.json.decode(value)
        except UNDECODABLE:
            found[name] = value
    return found


def _parameter(one: Option, default: Any) -> inspect.Parameter:
    kind = "list" if one.several else one.kind
    annotation: Any = Annotated[TYPES[kind], _typer_option(one, default)]
    return _plain(one.name, annotation, default=None if kind in REPEATED else default)


def _typer_option(one: Option, default: Any) -> Any:
    return typer.Option(
        *one.flags,
        envvar=None if one.kind == "mapping" else list(one.env),
        show_envvar=False,
        help=one.help,
        metavar=one.metavar,
        show_default=one.kind not in REPEATED and default not in (None, "", False),
        rich_help_panel=ADVANCED if one.advanced else PANEL_OF_GROUP[one.group],
        autocompletion=completion(one.choices or (() if one.registry is None else one.registry.table)),
    )


def completion(names: Iterable[str]) -> Callable[[str], list[str]] | None:
    """What a shell offers for an option that takes one of these names."""
    known = tuple(names)
    return (lambda incomplete: [name for name in known if name.startswith(incomplete)]) if known else None


def complete_strategies(incomplete: str) -> list[str]:
    """What a shell offers for a list of strategies, separated by commas."""
    known, comma, last = incomplete.rpartition(",")
    return [f"{known}{comma}{name}" for name in STRATEGIES.table if name.startswith(last)]


def setting_option(name: str) -> Any:
    """The option of a single setting, for commands that take only a few of them."""
    one = options()[name]
    return _typer_option(one, one.default)


def _key_parameter(name: str) -> inspect.Parameter:
    flag, about = KEY_OPTIONS[name]
    panel = JUDGE if name == "api_key" else ADVANCED
    declared = typer.Option(flag, help=about, metavar="KEY", rich_help_panel=panel)
    return _plain(name, Annotated[str | None, declared], default=None)


def _plain(name: str, annotation: Any, *, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _panel_order(parameter: inspect.Parameter) -> int:
    """Where an option stands in the help: by its panel; options without one come first."""
    declared = [
        getattr(one, "rich_help_panel", None) for one in getattr(parameter.annotation, "__metadata__", ())
    ]
    return next((PANELS.index(panel) for panel in declared if panel in PANELS), -1)


class Command(TyperCommand):
    """A command that lists `--help` among input and output."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Print the help."""
        print_help(self, ctx)

    def get_help_option(self, ctx: Any) -> Any:
        """The option `--help`, in the first panel where the command has panels."""
        found = super().get_help_option(ctx)
        if found is not None and any(getattr(one, "rich_help_panel", None) == FILES for one in self.params):
            found.rich_help_panel = FILES
        return found


def _is_argument(annotation: Any) -> bool:
    return any(isinstance(one, typer.models.ArgumentInfo) for one in getattr(annotation, "__metadata__", ()))


def _load(ctx: typer.Context, path: Path | None) -> Path | None:
    """Make the values of a file the defaults of this command: the named file, else a local `caps.toml`."""
    found = path is None
    path = Path(LOCAL_FILE) if path is None else path
    if found and not path.is_file():
        return None
    values = read_config_file(path, found=found)
    known = {option.lstrip("-"): param for param in ctx.command.params for option in param.opts}
    defaults: dict[str, Any] = {}
    for key, value in values.items():
        if found:
            find_option(key, where=str(path))  # it may set nothing else, such as --out or --host
        param = known.get(key.replace("_", "-")) or _param_of_setting(ctx, key)
        if key == "judges":
            ctx.meta[TABLES] = read_judges(value, str(path))
        elif param is None:
            _refuse_unknown(path, key, known)
        elif param.name is not None:
            default = [f"{k}={_word(v)}" for k, v in value.items()] if isinstance(value, dict) else value
            if isinstance(default, list):
                default = (
                    [_word(one) for one in default] if any(isinstance(o, dict) for o in default) else default
                )
            repeated = getattr(param, "multiple", False) and not isinstance(default, list)
            defaults[param.name] = [default] if repeated else default
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    ctx.meta[LOADED] = (path, sorted([*defaults, *(("judges",) if ctx.meta.get(TABLES) else ())]))
    return path


def _param_of_setting(ctx: typer.Context, key: str) -> Any:
    """The parameter of the setting that a key or its alias names, where this command has it."""
    try:
        name = find_option(key).name
    except SettingError:
        return None
    return next((param for param in ctx.command.params if param.name == name), None)


def _refuse_unknown(path: Path, key: str, known: Iterable[str]) -> None:
    """Ignore a setting of other commands; anything else is a mistake."""
    try:
        find_option(key)
    except SettingError:
        close = nearest(key.replace("_", "-"), [*known, *(one.replace("_", "-") for one in options())])
        raise SettingError(f"{path}: {key}: no such option; {close}see --help") from None


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def loaded_settings(ctx: typer.Context) -> tuple[str, str] | None:
    """The file that settings came from, and their names; None if there is no file."""
    loaded = ctx.meta.get(LOADED)
    return None if loaded is None else (str(loaded[0]), ", ".join(loaded[1]) or "none for this command")


def stated_settings(ctx: typer.Context) -> frozenset[str]:
    """Names of the settings that were given: on the command line, in the environment or in a file."""
    found = set()
    for param in ctx.command.params:
        source = ctx.get_parameter_source(param.name or "")
        if source is not None and source.name != "DEFAULT" and param.name in options():
            found.add(param.name)
    return frozenset(found)


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
        rich_help_panel=FILES,
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
        rich_help_panel=FILES,
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
    typer.Option("--limit", min=1, metavar="N", help="Use only the first N cases.", rich_help_panel=FILES),
]
ShardOption = Annotated[
    Shard | None,
    typer.Option(
        "--shard",
        metavar="K/N",
        parser=Shard.parse,
        help="Take only every N-th case, from case K on; its results are in a folder of --out.",
        rich_help_panel=FILES,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print no progress and no summary.", rich_help_panel=FILES)
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
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", help=KEY_OPTIONS["api_key"][1], metavar="KEY", rich_help_panel=JUDGE),
]
JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of a table.", rich_help_panel=FILES)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="Change a field of the strategy. May be repeated.",
        rich_help_panel=STRATEGY,
    ),
]  # fmt: skip

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
