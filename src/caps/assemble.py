"""The composition root: from names and settings to the objects that do the work."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import cast

from caps.core.errors import SettingError
from caps.core.play import Strategy
from caps.core.settings import override
from caps.registry import STRATEGIES, resolve


def make_strategy(name: str, changes: Mapping[str, str] | None = None) -> Strategy:
    """Build a strategy by name, with some of its fields changed."""
    found = resolve(STRATEGIES, name)
    strategy = found() if isinstance(found, type) else found
    if not callable(getattr(strategy, "play", None)):
        raise SettingError(f"{name!r} is {strategy!r}, which has no play(): not a strategy")
    if not changes:
        return cast(Strategy, strategy)
    if not is_dataclass(strategy):
        raise SettingError(f"strategy {name!r} is not a dataclass, so --set cannot change it")
    try:
        return override(cast(Strategy, strategy), changes)
    except SettingError as error:
        raise SettingError(f"strategy {name!r}: {error}") from None


def has_setting(strategy: Strategy, name: str) -> bool:
    """Whether a strategy has a field of that name."""
    return name in getattr(strategy, "__dataclass_fields__", {})
