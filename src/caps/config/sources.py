"""Sources of settings: environment variables, settings files, and `name=value` words.

An auto-loaded `caps.toml` cannot set guarded options; see `config`.
"""

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from caps.config import options, options_by_alias
from caps.core.errors import SettingError
from caps.core.settings import nearest
from caps.files import read_toml

LOCAL_FILE = "caps.toml"
PREFIX = "CAPS_"  # of environment variables
#: Variables of single commands and downloads, which are not settings of a run.
OTHER_VARIABLES = {
    "CAPS_API_KEY", "CAPS_JUDGE_API_KEY", "CAPS_SERVER_API_KEY", "CAPS_CONFIG",
    "CAPS_OUT", "CAPS_MAX_USD", "CAPS_HOST", "CAPS_PORT", "CAPS_CACHE", "CAPS_MIRROR",
}  # fmt: skip


def read_environment(names: Iterable[str], environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Read settings from the environment variables of the command line."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for name in names:
        setting = options()[name]
        variable = next((variable for variable in setting.env if environment.get(variable)), None)
        if variable is not None:
            values[name] = setting.check_text(environment[variable], f"{variable} =")
    return values


def refuse_misspelt_variables(environment: Mapping[str, str] | None = None) -> None:
    """Refuse a variable that resembles a setting; others may belong to other programs."""
    variables = {name for setting in options().values() for name in setting.env} | OTHER_VARIABLES
    bare = [name.removeprefix(PREFIX) for name in sorted(variables) if name.startswith(PREFIX)]
    for name in os.environ if environment is None else environment:
        if name.startswith(PREFIX) and name not in variables:
            close = get_close_matches(name.removeprefix(PREFIX), bare, n=1)
            if close:
                raise SettingError(
                    f"environment variable {name}: no such setting; did you mean '{PREFIX}{close[0]}'?"
                )


def read_config_file(path: Path, *, auto_loaded: bool = False) -> dict[str, Any]:
    """Read the settings of a TOML file; an `auto_loaded` one cannot set those that are guarded."""
    values = read_toml(path, option="" if auto_loaded else "--config")
    if isinstance(values.get("judge"), list):
        values["judges"] = [*values.pop("judge"), *values.get("judges", ())]
    for name, value in values.items():
        _refuse_table(path, name, value)
    for name, value in values.items() if auto_loaded else ():
        setting = options_by_alias().get(name.replace("-", "_"))
        if setting is not None and (setting.guarded or (setting.plugin and _may_name_code(value))):
            raise SettingError(
                f"{path}: {name}: an auto-loaded {LOCAL_FILE} cannot set this; "
                f"name the file with --config {path.name} if you trust it"
            )
    return values


def _refuse_table(path: Path, name: str, value: object) -> None:
    """Refuse a `[table]` that is not a setting, with a hint: there are no sections."""
    setting = options_by_alias().get(name.replace("-", "_"))
    inside = value[0] if isinstance(value, list) and value else value
    kind = "" if setting is None else setting.kind
    listed = kind in ("tables", "judges") and isinstance(value, list)
    if not isinstance(inside, Mapping) or kind == "mapping" or listed:
        return
    if name in ("judge", "judges"):
        raise SettingError(f"{path}: [{name}]: write [[judge]], with two brackets, once for each judge")
    tables = sorted(alias for alias, other in options_by_alias().items() if other.kind == "mapping")
    inner = [key for key in inside if key.replace("-", "_") in options_by_alias()]
    if setting is not None:
        hint = f"{name} is not a table: write {name} = ..., {setting.expected}; "
    elif inner:
        hint = f"move {', '.join(inner)} to the top of the file, without [{name}]; "
    else:
        hint = nearest(name, tables) or nearest(name, list(options_by_alias()))
    raise SettingError(
        f"{path}: [{name}]: no such table; {hint}settings are at the top level, and the only tables are "
        f"{', '.join(tables)}, [[judge]] and [[generator]]; see caps select --help"
    )


def _may_name_code(value: object) -> bool:
    """Whether a value, or one inside it, names a module to import: `package.module:object`."""
    if isinstance(value, Mapping):
        return any(map(_may_name_code, value.values()))
    return isinstance(value, str) and ":" in value


def parse_assignments(words: Iterable[str], *, option: str = "--set") -> dict[str, str]:
    """Parse `--set finalists=4` arguments into a mapping; later ones win."""
    changes = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"{option} {word!r}: write it as name=value")
        changes[name.strip()] = value.strip()
    return changes
