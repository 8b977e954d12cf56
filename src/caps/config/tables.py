"""Tables that users write, read into Structs: a mistake is named with its file, line, key and the way out.

A table is a class of typed fields:

    class Generator(Table):
        model: str
        quality: Annotated[float, Meta(gt=0, lt=1)] = 0.6

    read_table(values, Generator, Place("caps.toml", ("generator", 0)))

raises, for a quality of 2, "caps.toml:7: generator[0].quality: must be a number below 1, not 2".
The `description` of a `Meta` says what a value must be where that takes other words.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from caps.core.errors import SettingError, UserError
from caps.core.settings import nearest
from caps.core.text import short_repr
from caps.files import read_text

T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V")
KINDS = {
    "str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
    "object": "a table",
}  # fmt: skip
LIMITS = {">=": "of at least", ">": "above", "<=": "of at most", "<": "below", "": "of"}
_MISTAKE = re.compile(r"(?P<words>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<kinds>[^`]+)`(?:, got .*| (?P<sign>[<>]=?) (?P<limit>\S+))")
_LENGTH = re.compile(r"Expected `(?P<kind>\w+)` of length (?P<sign>[<>]?=?) ?(?P<count>\d+)(?:, got \d+)?")
_NOTHING = msgspec.Meta()
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_HEADER = re.compile(r"\s*\[{1,2}([^\[\]]+)\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of tables that users write."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table stands: a file or the words for another source, and the keys that lead to it.

    A mistake in it `raises` a `SettingError`, or an `InputError` if the table is data.
    """

    source: str
    keys: tuple[str | int, ...] = ()
    raises: type[UserError] = SettingError

    def at(self, *keys: str | int) -> "Place":
        """A place below this one."""
        return replace(self, keys=(*self.keys, *keys))

    def error(self, words: str) -> UserError:
        """An error with the file, the line if it is a TOML file, and the keys."""
        line = _line_of(self.source, self.keys) if self.source.endswith(".toml") else None
        parts = [self.source if line is None else f"{self.source}:{line}", _path(self.keys), words]
        return self.raises(": ".join(filter(None, parts)))

    def check(self, make: Callable[[], V]) -> V:
        """What `make` returns; its `SettingError` gets this place."""
        try:
            return make()
        except SettingError as error:
            raise self.error(str(error)) from None


def read_table(values: object, kind: type[T], place: Place, *, path_of: Callable[[str], Path] = Path) -> T:
    """Convert plain data to a table; `path_of` makes paths of texts in fields that are paths."""
    keys = kind.__struct_encode_fields__
    if not isinstance(values, Mapping):
        raise place.error(f"must be a table with {', '.join(keys)}, not {short_repr(values)}")
    values = {str(name).replace("-", "_"): value for name, value in values.items()}
    check_keys(values, keys, place)

    def convert(wanted: type, value: Any) -> Any:
        if wanted is not Path or not isinstance(value, str):
            raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
        return path_of(value)

    try:
        return msgspec.convert(values, kind, dec_hook=convert)
    except msgspec.ValidationError as error:
        raise _explain(str(error), values, kind, place) from None


def read_settings(values: Mapping[str, Any], kind: type[V], place: Place) -> V:
    """Make a dataclass of settings (`core.settings`), which checks its values itself, from plain data."""
    check_keys(values, [spec.name for spec in fields(kind)], place)  # type: ignore[arg-type]
    return place.check(lambda: kind(**values))


def check_keys(values: Iterable[str], keys: Sequence[str], place: Place) -> None:
    """Raise the error of the first key that is not among the known ones."""
    for name in values:
        if name not in keys:
            raise place.at(name).error(f"no such key; {nearest(name, keys)}keys are {', '.join(keys)}")


def _explain(message: str, values: object, kind: type[Any], place: Place) -> UserError:
    """Say what msgspec says in the words of the other messages."""
    parts = _MISTAKE.fullmatch(message)
    words, path = (message, "") if parts is None else (parts["words"], parts["path"] or "")
    keys = [int(index) if index else name for name, index in _STEP.findall(path)]
    hints = get_type_hints(kind, include_extras=True)
    missing = re.fullmatch(r"Object missing required field `(\w+)`", words)
    if missing:
        described = _stated(None if keys else hints.get(missing[1])).description
        wanted = described or _kind_words(get_type_hints(kind).get(missing[1]) if not keys else None)
        return place.at(*keys, missing[1]).error(f"is missing{wanted and f'; {wanted} is wanted'}")
    hint = hints.get(str(keys[0])) if keys else None
    stated = _stated(hint, of_items=len(keys) > 1)
    if stated.description:
        words = f"must be {stated.description}"
    elif words.endswith("of length >= 1"):
        return place.at(*keys).error("must not be empty")
    elif expected := _EXPECTED.fullmatch(words):
        limit = (
            "" if not expected["sign"] else f" {LIMITS[expected['sign']]} {_limit(float(expected['limit']))}"
        )
        words = f"must be {_one_of(expected['kinds'])}{_range(stated) or limit}"
    elif length := _LENGTH.fullmatch(words):
        unit = " characters" if length["kind"] == "str" else ""
        words = f"must be {KINDS[length['kind']]} {LIMITS[length['sign']]} {length['count']}{unit}"
    elif words.startswith("Invalid enum value") and keys:
        others = [f"{KINDS[part.__name__]} or " for part in get_args(hint) if part in (int, float)]
        words = f"must be {''.join(others)}one of {', '.join(map(str, _choices(hint)))}"
    return place.at(*keys).error(f"{words}, not {short_repr(_value_at(values, keys))}")


def _one_of(kinds: str) -> str:
    """The words for a union of types; whole numbers are numbers."""
    names = [name for name in kinds.split(" | ") if name != "null"]
    return " or ".join(KINDS.get(name, name) for name in names if name != "int" or "float" not in names)


def _limit(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def _kind_words(hint: Any) -> str:
    """What a field of this type holds; empty if that takes more words."""
    names = {list: "array", tuple: "array", dict: "object"}
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = [names.get(get_origin(part) or part, getattr(part, "__name__", "")) for part in parts]
    return _one_of(" | ".join(kinds)) if KINDS.keys() >= set(kinds) else ""


def _stated(hint: Any, *, of_items: bool = False) -> msgspec.Meta:
    """The limits and the description that a field states: of its value, or of the items of a list."""
    if isinstance(hint, msgspec.Meta):
        return hint
    inner: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    if of_items or get_origin(hint) in (Union, UnionType):
        inner += get_args(hint)
    return next((meta for part in inner if (meta := _stated(part)) != _NOTHING), _NOTHING)


def _range(stated: msgspec.Meta) -> str:
    """The limits of the numbers of a field, if it includes the least; others are named when passed."""
    if stated.ge is None:
        return ""
    limit = _limit(stated.ge)
    return f" of at least {limit}" if stated.le is None else f" from {limit} to {_limit(stated.le)}"


def _choices(hint: Any) -> Sequence[Any]:
    """The values of a `Literal`, also inside an optional or annotated type."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    inner = get_args(hint) if get_origin(hint) in (Union, UnionType, Annotated) else ()
    return next((found for part in inner if (found := _choices(part))), ())


def _value_at(values: Any, keys: Sequence[str | int]) -> Any:
    for key in keys:
        try:
            values = values[key]
        except (KeyError, IndexError, TypeError):
            break
    return values


def _path(keys: Sequence[str | int]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".")


def _line_of(file: str, keys: Sequence[str | int]) -> int | None:
    """The line of a TOML file that sets the longest part of these keys."""
    best, line, table = 0, None, tuple[str | int, ...]()
    counts: dict[tuple[str | int, ...], int] = {}
    for place, text in enumerate(read_text(file).splitlines(), 1):
        if header := _HEADER.match(text):
            table = _names(header[1])
            if text.lstrip().startswith("[["):
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            elif table[:1] in counts:  # a table of the latest of a list of tables
                table = (*table[:1], counts[table[:1]], *table[1:])
            here = table
        elif key := _KEY.match(text):
            here = (*table, *_names(key[1]))
        else:
            continue
        if here == tuple(keys[: len(here)]) and len(here) > best:
            best, line = len(here), place
    return line


def _names(text: str) -> tuple[str | int, ...]:
    return tuple(name.strip().strip("\"'").replace("-", "_") for name in text.split("."))
