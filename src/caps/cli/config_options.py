"""Command-line options made from `RunConfig`: a command names the groups it takes and gets a config.

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

from caps.cli.output import say
from caps.config import (
    LOCAL_FILE,
    Keys,
    Option,
    RunConfig,
    find_option,
    options,
    parse_assignments,
    read_config_file,
    refuse_misspelt_variables,
)
from caps.core.errors import SettingError
from caps.core.settings import nearest
from caps.journal.store import default_path

TYPES: Mapping[str, Any] = {
    "text": str | None,
    "integer": int | None,
    "number": float | None,
    "flag": bool,
    "list": list[str] | None,
    "mapping": list[str] | None,
    "integer or auto": str,
}
#: Keys are no settings: `Keys.find` reads the environment, first the variable that `--api-key-env` names.
KEY_OPTIONS = {
    "api_key": (
        "--api-key",
        "The endpoint's key; better in the environment: CAPS_API_KEY or OPENAI_API_KEY.",
    ),
    "judge_api_key": ("--judge-api-key", "The judge's key, if another; better in CAPS_JUDGE_API_KEY."),
    "judge_api_key_e1": ("--judge-api-key-e1", "Its key, if another; better in CAPS_JUDGE_API_KEY_E1."),
}
KEYS_OF_GROUP = {"judge": ("api_key", "judge_api_key"), "levels": ("judge_api_key_e1",)}
NO_JOURNAL = Annotated[bool, typer.Option("--no-journal", help="Keep no replies: every run pays again.")]
LOADED = "caps.loaded"  # of a context: which settings came from which file


def configured(
    *groups: str,
    defaults: Mapping[str, Any] | None = None,
    without: Iterable[str] = (),
    announce: bool = True,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of some groups of settings; it is called with `config` and `keys`.

    `defaults` replaces the default of single settings for this command, `without` leaves some out. Which
    file settings came from is announced on standard error, unless the command does that itself.
    """
    usual, left_out = defaults or {}, frozenset(without)
    taken = [one for one in options().values() if one.group in groups and one.name not in left_out]
    keys = [name for group in groups for name in KEYS_OF_GROUP.get(group, ()) if name not in left_out]
    journaled = any(one.name == "journal" for one in taken)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command).parameters
        generated = {one.name: _parameter(one, usual.get(one.name, one.default)) for one in taken}
        generated |= {name: _key_parameter(name) for name in keys}
        if journaled:
            generated["no_journal"] = _plain("no_journal", NO_JOURNAL, default=False)
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
            config = _config(taken, words, usual)
            if journaled and not words["no_journal"] and config.journal is None:
                config = config.with_values({"journal": str(default_path(user_data_path("caps")))})
            more = {"ctx": ctx} if "ctx" in own else {}
            command(config=config, keys=Keys.find(config, **found), **given, **more)

        context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        rest = [one for one in others if one.name != "ctx"]
        parameters = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in (context, *arguments, *generated.values(), *rest)
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _config(taken: Iterable[Option], words: Mapping[str, Any], usual: Mapping[str, Any]) -> RunConfig:
    values = dict(usual)
    for one in taken:
        given, flag = words[one.name], one.flags[0]
        if one.kind == "mapping":
            read = parse_extra if one.name == "extra" else parse_assignments
            given = read(given or [], option=flag)
        if given is None and not one.optional:
            given = one.default
        if given == "" and one.optional:
            given = None
        values[one.name] = one.check(given, flag)
    return RunConfig(**values)


def parse_extra(words: Iterable[str], *, option: str = "--extra") -> dict[str, Any]:
    """Read `name=json` words; what is not JSON is taken as a text."""
    found: dict[str, Any] = {}
    for name, value in parse_assignments(words, option=option).items():
        try:
            found[name] = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            found[name] = value
    return found


def _parameter(one: Option, default: Any) -> inspect.Parameter:
    annotation: Any = Annotated[TYPES[one.kind], _typer_option(one, default)]
    return _plain(one.name, annotation, default=None if one.kind in ("list", "mapping") else default)


def _typer_option(one: Option, default: Any) -> Any:
    return typer.Option(
        *one.flags,
        envvar=None if one.kind == "mapping" else list(one.env),
        help=one.help,
        metavar=one.metavar,
        show_default=one.kind not in ("list", "mapping") and default not in (None, "", False),
    )


def setting_option(name: str) -> Any:
    """The option of a single setting, for commands that take only a few of them."""
    one = options()[name]
    return _typer_option(one, one.default)


def _key_parameter(name: str) -> inspect.Parameter:
    flag, about = KEY_OPTIONS[name]
    return _plain(name, Annotated[str | None, typer.Option(flag, help=about)], default=None)


def _plain(name: str, annotation: Any, *, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _is_argument(annotation: Any) -> bool:
    return any(isinstance(one, typer.models.ArgumentInfo) for one in getattr(annotation, "__metadata__", ()))


def _load(ctx: typer.Context, path: Path | None) -> Path | None:
    """Make a file's values the defaults of this command: the one named, else a `caps.toml` that is here."""
    found = path is None
    path = Path(LOCAL_FILE) if path is None else path
    if found and not path.is_file():
        return None
    values = read_config_file(path, found=found)
    known = {option.lstrip("-"): param for param in ctx.command.params for option in param.opts}
    defaults: dict[str, Any] = {}
    for key, value in values.items():
        if found:
            find_option(key, where=str(path))  # anything else, such as --out or --host, is not for it to set
        param = known.get(key.replace("_", "-")) or _param_of_setting(ctx, key)
        if param is None:
            _refuse_unknown(path, key, known)
        elif param.name is not None:
            default = [f"{k}={_word(v)}" for k, v in value.items()] if isinstance(value, dict) else value
            repeated = getattr(param, "multiple", False) and not isinstance(default, list)
            defaults[param.name] = [default] if repeated else default
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    ctx.meta[LOADED] = (path, sorted(defaults))
    return path


def _param_of_setting(ctx: typer.Context, key: str) -> Any:
    """The parameter of the setting that a key or its alias names, where this command has it."""
    try:
        name = find_option(key).name
    except SettingError:
        return None
    return next((param for param in ctx.command.params if param.name == name), None)


def _refuse_unknown(path: Path, key: str, known: Iterable[str]) -> None:
    """A setting of other commands is none of this one's business; anything else is a mistake."""
    try:
        find_option(key)
    except SettingError:
        close = nearest(key.replace("_", "-"), [*known, *(one.replace("_", "-") for one in options())])
        raise SettingError(f"{path}: {key}: no such option; {close}see --help") from None


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def loaded_settings(ctx: typer.Context) -> tuple[str, str] | None:
    """The file that settings came from, and their names; nothing where there is none."""
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


CONFIG_FILE = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="CAPS_CONFIG",
        is_eager=True,
        callback=_load,
        help="Options from a TOML file [caps.toml in the working directory, within limits].",
    ),
]
