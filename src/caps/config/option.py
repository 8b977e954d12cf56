"""Options: how a setting of a run is declared, which values it takes, and how they are read.

`RunConfig` declares each of its fields with `option` or `switch`. An `Option` is such a field with everything
that the command line, settings files, environment variables and the server need to know of it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from caps.config.judges import JudgeTable
from caps.core.errors import SettingError
from caps.core.settings import setting_text, with_limits
from caps.registry import Registry

Kind: TypeAlias = Literal[
    "text", "integer", "number", "flag", "list", "mapping", "integer or auto", "tables", "judges"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A setting: its names, valid values, help text, and who may set it.

    * `decides`: it may change what is asked or chosen, so it is part of the identity of a run.
    * `guarded`: an auto-loaded `caps.toml` cannot set it.
    * `per_request`: a client of the server may set it.
    * `per_judge`: its key in a `[[judge]]` table, which sets it for that judge alone.
    * `plugin`: its value may name code to import.
    * `main`: most users need it, and it comes first in the help.
    * `advanced`: few users need it; it has no option, and `--set NAME=VALUE` sets it.

    `registry` lists the names it takes. Given several times, or as FIELD=VALUE, it fills the setting that
    `several` names. `read` converts a value that no `kind` describes.
    """

    help: str
    group: str
    default: Any
    name: str = ""
    kind: Kind = "text"
    optional: bool = False
    aliases: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    decides: bool = True
    guarded: bool = False
    per_request: bool = False
    per_judge: str = ""
    plugin: bool = False
    main: bool = False
    advanced: bool = False
    registry: Registry | None = None
    several: str = ""
    read: Callable[[Any, str], Any] | None = None

    @property
    def label(self) -> str:
        """How it is named on the command line."""
        return f"--set {self.name}" if self.advanced else self.flags[0]

    @property
    def expected(self) -> str:
        """A description of valid values, for messages."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = {
            "text": "a text",
            "flag": "true or false",
            "list": "a text or a list of texts",
            "mapping": "a table of names and values",
            "tables": "a name, a table, or a list of them",
            "judges": "a list of tables",
            "integer": "a whole number",
            "number": "a number",
            "integer or auto": "a whole number of at least 1, or auto",
        }[self.kind]
        return with_limits(words, self.least, self.most)

    @property
    def is_json(self) -> bool:
        """Whether its values are JSON on the command line: NAME=JSON."""
        return self.metavar == "NAME=JSON"

    @property
    def is_path(self) -> bool:
        """Whether its value is the path of a file or a folder."""
        return self.metavar in ("FILE", "DIR")

    def check(self, value: Any, where: str) -> Any:
        """The value as it is stored, or a `SettingError` that names the setting and where it was given."""
        if value is None and self.optional:
            return None
        if self.read is not None:
            return self.read(value, where.removesuffix(" ="))
        stored = _READERS[self.kind](value)
        if stored is _INVALID or not self._in_range(stored):
            raise SettingError(f"{where} {_shown(value)}: must be {self.expected}")
        return stored

    def check_text(self, text: str, where: str) -> Any:
        """The value of an environment variable as it is stored, or a `SettingError` as of `check`."""
        value = _parse_text(self.kind, text)
        return self.check(text if value is _INVALID else value, where)

    def _in_range(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if not isinstance(value, int | float) or isinstance(value, bool):
            return True
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


def option(default: Any, about: str, group: str, *, shown: bool = True, **declared: Any) -> Any:
    """Declare a setting; `declared` are fields of `Option`.

    A setting that is not `shown` may contain a credential, as addresses do, and is omitted from `repr`.
    """
    metadata = {"option": Option(help=about, group=group, default=default, **declared)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata, repr=shown)
    return field(default=default, metadata=metadata, repr=shown)


def switch(about: str, group: str, **declared: Any) -> Any:
    """Declare a setting that is off unless it is switched on."""
    return option(False, about, group, **declared)  # noqa: FBT003


def options_of(config_class: type[Any]) -> dict[str, Option]:
    """The options of a class whose fields are declared with `option`, by name and in their order."""
    hints, named = get_type_hints(config_class), {}
    for spec in fields(config_class):
        declared: Option = spec.metadata["option"]
        kind, optional = _kind(hints[spec.name])
        env = () if kind in ("mapping", "judges") else declared.env or (f"CAPS_{spec.name.upper()}",)
        flags = declared.flags or (() if declared.advanced else (f"--{spec.name.replace('_', '-')}",))
        named[spec.name] = replace(
            declared, name=spec.name, kind=kind, optional=optional, env=env, flags=flags
        )
    return named


def _kind(hint: Any) -> tuple[Any, bool]:
    """The kind of a setting and whether it may be None, from its annotation."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    bare = [part for part in parts if part is not NoneType]
    if len(bare) == 2:
        return "integer or auto", False
    if JudgeTable in get_args(bare[0]):
        return "judges", False
    origin = get_origin(bare[0]) or bare[0]
    if origin is tuple and get_args(bare[0])[0] is not str:
        return "tables", len(bare) < len(parts)
    kinds = {str: "text", int: "integer", float: "number", bool: "flag", tuple: "list", Mapping: "mapping"}
    return kinds[origin], len(bare) < len(parts)


_INVALID = object()


def _read_text(value: Any) -> Any:
    return value if isinstance(value, str) else str(value) if isinstance(value, Path) else _INVALID


def _read_integer(value: Any) -> Any:
    return value if isinstance(value, int) and not isinstance(value, bool) else _INVALID


def _read_number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return _INVALID
    return float(value)


def _read_flag(value: Any) -> Any:
    return value if isinstance(value, bool) else _INVALID


def _read_list(value: Any) -> Any:
    if isinstance(value, str):
        return (value,) if value else ()
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return tuple(part for part in value if part.strip())
    return _INVALID


def _read_mapping(value: Any) -> Any:
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return dict(value)
    return _INVALID


def _read_tables(value: Any) -> Any:
    """A list of tables; a name stands for a table with that model, and a table may be JSON."""
    if isinstance(value, str | Mapping):
        value = [value]
    if not isinstance(value, list | tuple):
        return _INVALID
    tables = [_read_generator(part) for part in value]
    return _INVALID if None in tables else tuple(tables)


def _read_generator(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value) if value.lstrip().startswith("{") else {"model": value}
        except msgspec.DecodeError:
            return None
    valid = isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
    return dict(value) if valid else None


def _read_integer_or_auto(value: Any) -> Any:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return value if value == "auto" or (_read_integer(value) is not _INVALID and value >= 1) else _INVALID


_READERS = {
    "text": _read_text,
    "integer": _read_integer,
    "number": _read_number,
    "flag": _read_flag,
    "list": _read_list,
    "mapping": _read_mapping,
    "tables": _read_tables,
    "integer or auto": _read_integer_or_auto,
}


def _parse_text(kind: str, word: str) -> Any:
    """Parse the value of an environment variable."""
    try:
        if kind in ("integer", "number"):
            return int(word) if kind == "integer" else float(word)
    except ValueError:
        return _INVALID
    if kind == "tables":
        return word.split()
    if kind == "flag":
        on, off = ("true", "1", "yes", "on", "t", "y"), ("false", "0", "no", "off", "f", "n")
        return True if word.strip().lower() in on else False if word.strip().lower() in off else _INVALID
    return word.split() if kind == "list" else word


def to_words(setting: Option, value: Any) -> list[str]:
    """The words of a command line that give a setting this value; none if it is the default."""
    if value == setting.default:
        return []
    if setting.advanced:
        return ["--set", f"{setting.name}={setting_text(value)}"]
    flag = setting.flags[0]
    if setting.kind == "flag":
        return [flag]
    if setting.kind == "mapping":
        shown = to_json if setting.is_json else setting_text
        return [word for name, part in value.items() for word in (flag, f"{name}={shown(part)}")]
    if setting.kind in ("list", "tables"):
        texts = [part if isinstance(part, str) else to_json(part) for part in value]
        return [word for text in texts for word in (flag, text)]
    return [flag, str(value)]


def to_json(value: object) -> str:
    """A value as it is written after `NAME=` of an option that takes JSON."""
    return msgspec.json.encode(value).decode()


def to_plain(value: Any) -> Any:
    """The value of a setting as plain data: lists, dictionaries, texts and numbers."""
    if isinstance(value, tuple) and any(isinstance(part, JudgeTable) for part in value):
        return [table.to_dict() for table in value]
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


def _shown(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 80 else words[:77] + "..."
