"""Fields of rows others wrote: each is of the kind that is wanted, or an `InputError` names it."""

from typing import Any

from caps.core.errors import InputError

Row = dict[str, Any]

_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
}


def wanted(row: Row, name: str, kind: type, where: str = "") -> Any:
    """The value of a field that must be there."""
    if name not in row:
        raise InputError(f"{where}{name}: is missing; {_NAMES[kind]} is wanted")
    value = row[name]
    kinds = (int, float) if kind is float else kind
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{where}{name}: must be {_NAMES[kind]}, not {kind_of(value)}")
    return value


def optional(row: Row, name: str, kind: type, where: str = "") -> Any:
    """The value of a field that may be absent or null."""
    return None if row.get(name) is None else wanted(row, name, kind, where)


def label(row: Row, name: str) -> str:
    """A name or an answer that some publish as a text and some as a number."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{name}: must be a text or a number, not {kind_of(value)}")
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value).strip()


def objects(row: Row, name: str) -> list[Row]:
    """A list of objects."""
    items = wanted(row, name, list)
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            raise InputError(f"{name}[{i}]: must be an object, not {kind_of(item)}")
    return list(items)


def texts(row: Row, name: str, where: str = "") -> list[str]:
    """A list of texts."""
    items = wanted(row, name, list, where)
    for i, item in enumerate(items):
        if not isinstance(item, str):
            raise InputError(f"{where}{name}[{i}]: must be a text, not {kind_of(item)}")
    return list(items)


def kind_of(value: object) -> str:
    """What a value is, in words."""
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)


def present(**fields: object) -> Row:
    """Those fields that hold something."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}
