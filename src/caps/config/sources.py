"""Sources of settings: environment variables, settings files, and `name=value` words.

A `caps.toml` that is merely found in the working directory may not set guarded options; see `config`.
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
    known = os.environ if environment is None else environment
    found: dict[str, Any] = {}
    for name in names:
        one = options()[name]
        variable = next((env for env in one.env if known.get(env)), None)
        if variable is not None:
            found[name] = one.check_text(known[variable], f"{variable} =")
    return found


def refuse_misspelt_variables(environment: Mapping[str, str] | None = None) -> None:
    """Refuse a variable that resembles a setting; others may belong to other programs."""
    known = {name for one in options().values() for name in one.env} | OTHER_VARIABLES
    bare = [name.removeprefix(PREFIX) for name in sorted(known) if name.startswith(PREFIX)]
    for name in os.environ if environment is None else environment:
        if name.startswith(PREFIX) and name not in known:
            close = get_close_matches(name.removeprefix(PREFIX), bare, n=1)
            if close:
                raise SettingError(
                    f"environment variable {name}: no such setting; did you mean '{PREFIX}{close[0]}'?"
                )


def read_config_file(path: Path, *, found: bool = False) -> dict[str, Any]:
    """Read the settings of a TOML file; a file `found` in the working directory may not set guarded ones."""
    values = read_toml(path, option="" if found else "--config")
    if isinstance(values.get("judge"), list):
        values["judges"] = [*values.pop("judge"), *values.get("judges", ())]
    for name, value in values.items():
        _refuse_table(path, name, value)
    if found:
        for name, value in values.items():
            one = options_by_alias().get(name.replace("-", "_"))
            if one is not None and (one.guarded or (one.plugin and _may_name_code(value))):
                raise SettingError(
                    f"{path}: {name}: a file found in the working directory may not set this; "
                    f"name the file with --config {path.name} if you trust it"
                )
    return values


def _refuse_table(path: Path, name: str, value: object) -> None:
    """Refuse a `[table]` that is not a setting, with a hint: there are no sections."""
    one = options_by_alias().get(name.replace("-", "_"))
    inside = value[0] if isinstance(value, list) and value else value
    kind = "" if one is None else one.kind
    listed = kind in ("tables", "judges") and isinstance(value, list)
    if not isinstance(inside, Mapping) or kind == "mapping" or listed:
        return
    if name in ("judge", "judges"):
        raise SettingError(f"{path}: [{name}]: write [[judge]], with two brackets, once for each judge")
    tables = sorted(alias for alias, each in options_by_alias().items() if each.kind == "mapping")
    inner = [key for key in inside if key.replace("-", "_") in options_by_alias()]
    if one is not None:
        hint = f"{name} is not a table: write {name} = ..., {one.expected}; "
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
