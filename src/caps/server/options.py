"""What a client asks of the selection: the object `caps` of a body, under the server's ceilings."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from caps.assemble import make_strategy
from caps.core.errors import SettingError
from caps.core.play import Strategy
from caps.core.settings import nearest
from caps.datasets.jsonl import DOMAINS
from caps.registry import STRATEGIES, listing
from caps.server.refusals import Refusal
from caps.server.rules import Defaults, Limits

FIELDS = ("n", "strategy", "set", "domain", "seed", "early_exit", "seconds", "budget_tokens")
SHORTEST = 0.1  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How one request is answered, already checked."""

    n: int
    name: str
    strategy: Strategy
    domain: str | None
    seed: int
    early_exit: bool
    seconds: float
    tokens: int | None


def read_options(given: object, defaults: Defaults, limits: Limits, *, least: int = 1) -> Options:
    """Read the object; `least` samples are drawn at any rate. A `Refusal` names the field."""
    row = {} if given is None else given
    if not isinstance(row, dict):
        raise wrong("caps", "must be an object")
    for name in row:
        if name not in FIELDS:
            known = list(FIELDS)
            raise wrong(f"caps.{name}"[:80], f"is none of ours: {nearest(name, known)}{', '.join(known)}")
    name = _strategy_name(row.get("strategy", defaults.strategy), defaults)
    changes = dict(defaults.changes) if name == defaults.strategy else {}
    changes |= _changes(row.get("set"), limits.n)
    try:
        strategy = make_strategy(name, changes)
    except SettingError as error:
        raise wrong("caps.set", str(error)) from None
    domain = row.get("domain")
    if domain is not None and domain not in DOMAINS:
        raise wrong("caps.domain", f"must be one of {', '.join(DOMAINS)}")
    early = row.get("early_exit", defaults.early_exit)
    if not isinstance(early, bool):
        raise wrong("caps.early_exit", "must be true or false")
    tokens = _ours(row, "budget_tokens", limits.tokens, 0, limits.tokens or 2**53)
    return Options(
        n=max(int(_ours(row, "n", min(defaults.n, limits.n), 1, limits.n)), least),
        name=name,
        strategy=strategy,
        domain=domain,
        seed=int(_ours(row, "seed", defaults.seed, -(2**63), 2**63 - 1)),
        early_exit=early,
        seconds=_ours(row, "seconds", limits.seconds, SHORTEST, limits.seconds, whole=False),
        tokens=int(tokens) if limits.tokens or "budget_tokens" in row else None,
    )


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


def _ours(
    row: Mapping[str, object], name: str, default: float, least: float, most: float, *, whole: bool = True
) -> float:
    return number(row, name, default=default, least=least, most=most, where="caps.", whole=whole)


def wrong(param: str, words: str) -> Refusal:
    """A field of a body that cannot be taken as it is."""
    return Refusal(400, f"{param}: {words}", code="invalid_value", param=param)


@cache
def strategy_names() -> tuple[str, ...]:
    """All listed strategies; looked up once, since that reads the metadata of every package."""
    return (*(name for name, *_ in listing(STRATEGIES)), *STRATEGIES.aliases)


def _strategy_name(name: object, defaults: Defaults) -> str:
    """A listed strategy: whoever sends requests may not name a module of this machine to be imported."""
    known = strategy_names()
    if not isinstance(name, str) or name not in (*known, defaults.strategy):
        hint = nearest(name, list(known)) if isinstance(name, str) else ""
        raise wrong("caps.strategy", f"must be a listed strategy; {hint}see caps list strategies")
    return name


def _changes(given: object, most: int) -> dict[str, str]:
    """Fields of a strategy as words; a number among them may not ask for more work than samples may."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise wrong("caps.set", "must be an object of fields and values")
    words = {}
    for name, value in given.items():
        if isinstance(value, bool):
            words[name] = str(value).lower()
        elif isinstance(value, int | float | str):
            words[name] = str(value)
        else:
            raise wrong("caps.set", f"{name[:40]!r} must be a number, a text, true or false")
        if _size(words[name]) > most:
            raise wrong("caps.set", f"{name[:40]!r} must be at most {most} here")
    return words


def _size(word: str) -> float:
    try:
        return abs(float(word))
    except ValueError:
        return 0.0
