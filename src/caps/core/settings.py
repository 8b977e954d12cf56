"""Settings of a frozen dataclass: declared with limits, checked on creation, parsed from text."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, TypeVar

from caps.core.errors import SettingError

T = TypeVar("T")


def setting(
    default: Any,
    about: str,
    *,
    choices: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
    unit: str = "N",
) -> Any:
    """Declare a dataclass field with a one-line description, its limits and, for an option, its unit.

    A default of None declares an optional number.
    """
    limits = {"about": about, "choices": choices, "least": least, "most": most, "unit": unit}
    return field(default=default, metadata=limits)


def setting_text(value: object) -> str:
    """A setting's value as a user would write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_settings(owner: Any) -> None:
    """Raise `SettingError` for the first field outside its limits; call it from `__post_init__`."""
    for spec in fields(owner):
        value = getattr(owner, spec.name)
        if not _fits(value, spec):
            raise SettingError(f"{type(owner).__name__}.{spec.name} = {value!r}: must be {allowed(spec)}")


def allowed(spec: "Field[Any]") -> str:
    """Describe the values that a field accepts."""
    limits = spec.metadata
    if limits.get("choices"):
        return "one of " + ", ".join(limits["choices"])
    if isinstance(spec.default, str):
        return "a text"
    if isinstance(spec.default, bool):
        return "true or false"
    if spec.default is None:
        return f"{_number(spec)}, or unset"
    return _number(spec)


def _number(spec: "Field[Any]") -> str:
    kind = "a whole number" if isinstance(spec.default, int) else "a number"
    return with_limits(kind, spec.metadata.get("least"), spec.metadata.get("most"))


def with_limits(words: str, least: float | None, most: float | None) -> str:
    """The words for a number, followed by its limits."""
    if least is not None and most is not None:
        return f"{words} from {least:g} to {most:g}"
    if least is not None:
        return f"{words} of at least {least:g}"
    return words if most is None else f"{words} of at most {most:g}"


def override(owner: T, changes: Mapping[str, str]) -> T:
    """Copy a settings object with some fields changed, each given as text (`finalists` = `"4"`)."""
    specs = {spec.name: spec for spec in fields(owner)}  # type: ignore[arg-type]
    values: dict[str, object] = {}
    for raw_name, word in changes.items():
        name = raw_name.replace("-", "_")
        if name not in specs:
            raise SettingError(_unknown_field(owner, raw_name, list(specs)))
        values[name] = _parse(owner, specs[name], word)
    return replace(owner, **values)  # type: ignore[type-var]


def settings_of(owner: object) -> dict[str, Any]:
    """The fields of a settings object by name; empty for any other object."""
    return {spec.name: getattr(owner, spec.name) for spec in fields(owner)} if is_dataclass(owner) else {}


def share_out(changes: Mapping[str, str], *owners: object) -> list[dict[str, str]]:
    """Assign each change to the first of several settings objects that has the field."""
    shares: list[dict[str, str]] = [{} for _ in owners]
    for raw_name, word in changes.items():
        has = [raw_name.replace("-", "_") in settings_of(owner) for owner in owners]
        if not any(has):
            known = [name for owner in owners for name in settings_of(owner)]
            raise SettingError(
                f"there is no field {raw_name!r}: {nearest(raw_name, known)}fields are {', '.join(known)}"
            )
        shares[has.index(True)][raw_name] = word
    return shares


def nearest(name: str, known: Sequence[str]) -> str:
    """A suggestion for a misspelt name, as the start of a sentence, or an empty text."""
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}? " if close else ""


def _unknown_field(owner: object, name: str, known: list[str]) -> str:
    has = f"its fields are {', '.join(known)}" if known else "it has no fields"
    return f"{type(owner).__name__} has no field {name!r}: {nearest(name, known)}{has}"


def _parse(owner: object, spec: "Field[Any]", word: str) -> object:
    try:
        if isinstance(spec.default, bool):
            return {"true": True, "false": False}[word.lower()]
        if isinstance(spec.default, int):
            return int(word)
        if isinstance(spec.default, float):
            return float(word)
        if spec.default is None:
            return None if word.lower() == "unset" else float(word)
    except (KeyError, ValueError):
        problem = f"{type(owner).__name__}.{spec.name} = {word!r}: must be {allowed(spec)}"
        raise SettingError(problem) from None
    return word


def _fits(value: object, spec: "Field[Any]") -> bool:
    limits = spec.metadata
    if isinstance(spec.default, str):
        return isinstance(value, str) and (not limits.get("choices") or value in limits["choices"])
    if isinstance(spec.default, bool):
        return isinstance(value, bool)
    if value is None:
        return spec.default is None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if isinstance(spec.default, int) and not isinstance(value, int):
        return False
    least, most = limits.get("least"), limits.get("most")
    return math.isfinite(value) and (least is None or value >= least) and (most is None or value <= most)
