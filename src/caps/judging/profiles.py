"""Judge profiles in files, and their use in strategies."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from caps.config.tables import Place, check_keys, read_settings
from caps.core.errors import InputError, SettingError
from caps.core.judge_profile import JudgeProfile
from caps.core.play import capabilities_of
from caps.core.settings import settings_of
from caps.files import decode_json, read_file

T = TypeVar("T")
NAMES = tuple(spec.name for spec in fields(JudgeProfile))
BESIDE = ("source", "model", "confidence", "date", "seed", "counts", "intervals", "assumed", "warnings")


def profile_row(profile: JudgeProfile, about: Mapping[str, Any]) -> dict[str, Any]:
    """A profile as a JSON object: its fields, and where they come from."""
    return {**settings_of(profile), **about}


OPTION = "--judge-profile"


def read_profile(path: Path) -> JudgeProfile:
    """Read a profile, such as one saved by `caps diagnose --save`; missing fields get their defaults."""
    place = Place(f"{OPTION} {path}", raises=InputError)
    row = decode_json(read_file(path, option=OPTION), object, place.source)
    if not isinstance(row, dict):
        raise place.error(f"must be a JSON object with {', '.join(NAMES)}")
    check_keys(row, (*NAMES, *BESIDE), place)
    measured = {name: value for name, value in row.items() if name in NAMES}
    if not measured:
        raise place.error(f"no field in it; fields are {', '.join(NAMES)}")
    return read_settings(measured, JudgeProfile, place)


def profile_fields(strategy: object) -> tuple[str, ...]:
    """The fields of a profile that a strategy uses; empty unless it declares `uses_judge_profile`.

    All of them are shares: an integer setting of the same name is something else.
    """
    if not capabilities_of(strategy).uses_judge_profile:
        return ()
    specs = getattr(strategy, "__dataclass_fields__", {})
    return tuple(name for name in NAMES if name in specs and isinstance(specs[name].default, float))


def with_profile(strategy: T, profile: JudgeProfile, name: str) -> T:
    """The strategy with the fields of a profile that it uses; `SettingError` if it uses none."""
    shared = profile_fields(strategy)
    if not shared or not is_dataclass(strategy) or isinstance(strategy, type):
        raise SettingError(
            f"strategy {name!r} does not use a judge profile: leave --judge-profile out, or choose "
            "another strategy, such as posterior"
        )
    return replace(strategy, **{field: getattr(profile, field) for field in shared})
