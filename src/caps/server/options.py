"""What a client asks of the selection: the object `caps` of a body, under the server's ceilings."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from caps.config import Option, RunConfig, find_option, per_request_options
from caps.core.errors import SettingError
from caps.core.settings import nearest
from caps.evidence.domains import known_domains
from caps.registry import STRATEGIES, names
from caps.runner import Runner
from caps.server.refusals import Refusal
from caps.server.rules import Limits

SHORTEST = 0.1  # seconds


def read_request(given: object, base: RunConfig, limits: Limits, *, least: int = 1) -> RunConfig:
    """The config of one request: the server's, with what the client may change; `least` samples at any rate.

    A `Refusal` names the field that cannot be taken.
    """
    row = {} if given is None else given
    if not isinstance(row, dict):
        raise wrong("caps", "must be an object")
    config = with_ceilings(base, limits)
    changes: dict[str, Any] = {}
    for name, value in row.items():
        option = _option(name)
        try:
            changes[option.name] = option.check(value, "")
        except SettingError:
            raise wrong(f"caps.{name}", f"must be {option.expected}") from None
    strategy = _listed_strategy(changes.get("strategy", base.strategy), base)
    kept = base.settings if strategy == base.strategy else {}
    changes["settings"] = {**kept, **_settings(changes.get("settings"), limits.n)}
    if changes.get("domain") not in (None, base.domain, *known_domains()):  # never a path to import
        raise wrong("caps.domain", f"must be one of {', '.join(known_domains())}")
    ceilings = {"samples": (1, limits.n), "budget_seconds": (SHORTEST, limits.seconds)}
    if limits.tokens:
        ceilings["budget_tokens"] = (0, limits.tokens)
    for field, (lowest, highest) in ceilings.items():
        if changes.get(field) is not None and not lowest <= changes[field] <= highest:
            name = next(one for one in row if _option(one).name == field)
            kind = "a whole number" if _option(name).kind == "integer" else "a number"
            raise wrong(f"caps.{name}", f"must be {kind} from {lowest:g} to {highest:g}")
    stated = {name: value for name, value in changes.items() if value is not None}
    config = replace(config, **stated)
    try:
        _ = Runner(config, offline=True).strategy
    except SettingError as error:
        raise wrong("caps.set", str(error)) from None
    return replace(config, samples=max(config.samples, least))


def with_ceilings(base: RunConfig, limits: Limits) -> RunConfig:
    """The server's config within its own limits."""
    return replace(
        base,
        samples=min(base.samples, limits.n),
        budget_seconds=limits.seconds,
        budget_tokens=limits.tokens or base.budget_tokens,
    )


def _option(name: str) -> Option:
    try:
        return find_option(name, among=per_request_options())
    except SettingError as error:
        raise wrong(f"caps.{name}"[:80], str(error).partition(": ")[2][:300]) from None


def number(
    row: Mapping[str, object],
    name: str,
    *,
    default: float,
    least: float,
    most: float,
    where: str = "",
    whole: bool = True,
) -> float:
    """A number of a row within limits, or a `Refusal` that names it."""
    value = row.get(name)
    if value is None:
        return default
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        kind = "a whole number" if whole else "a number"
        raise wrong(f"{where}{name}", f"must be {kind} from {least:g} to {most:g}")
    return value


def wrong(param: str, words: str) -> Refusal:
    """A field of a body that cannot be taken as it is."""
    return Refusal(400, f"{param}: {words}", code="invalid_value", param=param)


@cache
def strategy_names() -> tuple[str, ...]:
    """All listed strategies; looked up once, since that reads the metadata of every package."""
    return (*names(STRATEGIES), *STRATEGIES.aliases)


def _listed_strategy(name: object, base: RunConfig) -> str:
    """A listed strategy: whoever sends requests may not name a module of this machine to be imported."""
    known = strategy_names()
    if not isinstance(name, str) or name not in (*known, base.strategy):
        hint = nearest(name, list(known)) if isinstance(name, str) else ""
        raise wrong("caps.strategy", f"must be a listed strategy; {hint}see caps list strategies")
    return name


def _settings(given: Mapping[str, object] | None, most: int) -> dict[str, object]:
    """Fields of a strategy; a number among them may not ask for more work than samples may."""
    for name, value in (given or {}).items():
        if not isinstance(value, int | float | str):
            raise wrong("caps.set", f"{name[:40]!r} must be a number, a text, true or false")
        if _size(str(value)) > most:
            raise wrong("caps.set", f"{name[:40]!r} must be at most {most} here")
    return dict(given or {})


def _size(word: str) -> float:
    try:
        return abs(float(word))
    except ValueError:
        return 0.0
