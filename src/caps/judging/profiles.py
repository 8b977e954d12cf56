"""What was measured of a judge, kept in a file, and handed to a strategy that reckons with it."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from caps.core.errors import InputError, SettingError
from caps.core.judge_profile import JudgeProfile
from caps.core.play import capabilities_of
from caps.core.settings import nearest, settings_of
from caps.files import read_file

T = TypeVar("T")
NAMES = tuple(spec.name for spec in fields(JudgeProfile))
BESIDE = (
    "source",
    "model",
    "model_e1",
    "confidence",
    "date",
    "seed",
    "counts",
    "intervals",
    "assumed",
    "warnings",
)


def profile_row(profile: JudgeProfile, about: Mapping[str, Any]) -> dict[str, Any]:
    """A profile as it is kept: its fields, and beside them where they come from."""
    return {**settings_of(profile), **about}


def read_profile(path: Path) -> JudgeProfile:
    """Read what `caps diagnose --save` wrote, or the like by hand; a missing field stays as assumed."""
    try:
        row = msgspec.json.decode(read_file(path, option="--judge-profile"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"--judge-profile {path}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise InputError(f"--judge-profile {path}: must be a JSON object with {', '.join(NAMES)}")
    unknown = [name for name in row if name not in (*NAMES, *BESIDE)]
    known = {name: row[name] for name in NAMES if name in row}
    if unknown or not known:
        wrong = (
            f"{unknown[0]!r} is no field; {nearest(unknown[0], [*NAMES])}" if unknown else "no field in it; "
        )
        raise InputError(f"--judge-profile {path}: {wrong}fields are {', '.join(NAMES)}")
    try:
        return replace(JudgeProfile(), **known)
    except SettingError as error:
        raise InputError(f"--judge-profile {path}: {error}") from None


def profile_fields(strategy: object) -> tuple[str, ...]:
    """The fields of a profile that a strategy uses; none unless it declares that it uses one.

    All of them are shares: a whole number of such a name is something else.
    """
    if not capabilities_of(strategy).uses_judge_profile:
        return ()
    specs = getattr(strategy, "__dataclass_fields__", {})
    return tuple(name for name in NAMES if name in specs and isinstance(specs[name].default, float))


def with_profile(strategy: T, profile: JudgeProfile, name: str) -> T:
    """The strategy with all it can use of a profile; one that uses nothing of it is refused."""
    shared = profile_fields(strategy)
    if not shared or not is_dataclass(strategy) or isinstance(strategy, type):
        raise SettingError(
            f"strategy {name!r} does not use a judge profile: leave --judge-profile out, or choose "
            "another strategy, such as posterior"
        )
    return replace(strategy, **{field: getattr(profile, field) for field in shared})
