"""Judge tables: the judges of a panel as a user writes them, `[[judge]]` in a TOML file or `--judge` words.

    [[judge]]
    model = "qwen3-14b"
    base_url = "http://localhost:8000/v1"

    [[judge]]
    name = "claude"
    model = "claude-sonnet-4"
    base_url = "https://api.example.com/v1"
    api_key_env = "CLAUDE_KEY"       # the name of the variable that holds the key, never the key
    weight = 2
    level = "full"                   # answers only asks about full views

A table names what it does not share with the run: what is left out is the run's own setting.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from typing import Any

import msgspec

from caps.core.errors import SettingError
from caps.core.judge_profile import JudgeProfile
from caps.core.panel import LEVELS as BOTH
from caps.core.settings import nearest
from caps.core.types import Level
from caps.registry import DEFAULT_JUDGE

#: Forms of a judge's replies; all but free and json are ways to hold it to the bare verdict, by server.
REPLIES = ("free", "tags", "json", "choice", "guided-choice", "regex")
LEVELS = {"both": BOTH, "partial": frozenset({Level.PARTIAL}), "full": frozenset({Level.FULL})}
PROFILE_FIELDS = tuple(spec.name for spec in fields(JudgeProfile))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTable:
    """One judge of a panel; None and empty fields are those of the run.

    `judge` names a registered judge or a plug-in, `recorded` a judge of the file of recorded verdicts;
    without them a model judges. `profile` is a file of `caps diagnose --save`, or its figures. `where` names
    the source in messages.
    """

    name: str = ""
    model: str | None = None
    base_url: tuple[str, ...] = field(default=(), repr=False)
    api_key_env: str = ""
    judge: str = DEFAULT_JUDGE
    recorded: str | None = None
    weight: float = 1.0
    level: str = "both"
    profile: str | Mapping[str, float] | None = field(default=None, hash=False)
    max_tokens: int | None = None
    temperature: float | None = None
    reply: str | None = None
    extra: Mapping[str, object] = field(default_factory=dict, repr=False, hash=False)
    price_input: float | None = None
    price_output: float | None = None
    price_cached: float | None = None
    where: str = field(default="", compare=False, repr=False)

    @property
    def levels(self) -> frozenset[Level]:
        """The evidence levels that it answers."""
        return LEVELS[self.level]

    @property
    def requests(self) -> tuple[object, ...]:
        """What its requests consist of, beside what they ask."""
        return (self.model, self.max_tokens, self.temperature, self.reply, dict(self.extra))

    def to_dict(self) -> dict[str, Any]:
        """The table as plain data, without fields at their defaults."""
        usual = JudgeTable()
        row = {
            spec.name: getattr(self, spec.name)
            for spec in fields(self)
            if spec.name != "where" and getattr(self, spec.name) != getattr(usual, spec.name)
        }
        return {
            name: list(value)
            if isinstance(value, tuple)
            else dict(value)
            if isinstance(value, Mapping)
            else value
            for name, value in row.items()
        }


def read_tables(values: object, where: str) -> tuple[JudgeTable, ...]:
    """Read the judges of a panel; a `SettingError` names the source, the table and the field."""
    if isinstance(values, str | Mapping) or not isinstance(values, Sequence):
        raise SettingError(f"{where}: must be a list of tables: [[judge]], each with a model")
    tables = [_read_table(one, f"{where}: judge {place}") for place, one in enumerate(values, 1)]
    tables = _named(tables)
    _refuse_twins(tables, where)
    for place, one in enumerate(tables, 1):
        object.__setattr__(one, "where", f"{where}: judge {place} ({one.name!r})")
    for level, words in ((Level.PARTIAL, "partial views (E1)"), (Level.FULL, "full views (E2)")):
        if tables and not any(level in one.levels for one in tables):
            raise SettingError(
                f"{where}: level: no judge answers {words}: leave level out, or add a judge for them"
            )
    return tuple(tables)


def _refuse_twins(tables: Sequence[JudgeTable], where: str) -> None:
    """Refuse two judges of one name, and two that ask the same: the journal keeps one reply for both."""
    for (place, one), (other_place, other) in combinations(enumerate(tables, 1), 2):
        both = f"{where}: judges {place} and {other_place}"
        if one.name == other.name:
            raise SettingError(f"{both}: both have the name {one.name!r}: give one of them another name")
        if one.model is not None and one.requests == other.requests:
            raise SettingError(
                f"{both}: model: both ask {one.model!r} in the same way, so they would be one judge counted "
                "twice; servers of one model are a list of addresses, base_url = [...]"
            )


def parse_word(word: str) -> dict[str, Any] | str:
    """Parse one `--judge`: the name of a judge or plug-in, or `model=NAME,weight=2` as a table."""
    if "=" not in word:
        return word
    found: dict[str, Any] = {}
    for part in word.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"--judge {word!r}: write it as FIELD=VALUE,FIELD=VALUE; {_fields_text()}")
        found[name.strip()] = _value(value.strip())
    return found


def _value(word: str) -> object:
    try:
        read = msgspec.json.decode(word)
    except msgspec.DecodeError:
        return word
    return read if isinstance(read, int | float) and not isinstance(read, bool) else word


def _read_table(value: object, where: str) -> JudgeTable:
    if isinstance(value, JudgeTable):
        return value
    if isinstance(value, str):
        value = {"judge": value}
    if not isinstance(value, Mapping):
        raise SettingError(f"{where} = {value!r:.80}: must be a table with a model")
    title = value.get("name") or value.get("model") or value.get("recorded") or value.get("judge")
    where += f" ({title!r:.80})" if isinstance(title, str) else ""
    read: dict[str, Any] = {}
    for raw_name, given in value.items():
        name = str(raw_name).replace("-", "_")
        if name not in _KINDS:
            raise SettingError(
                f"{where}: {raw_name}: no such field; {nearest(name, list(_KINDS))}{_fields_text()}"
            )
        kind = _KINDS[name]
        stored = kind.read(given)
        if stored is _INVALID:
            raise SettingError(f"{where}: {raw_name} = {given!r:.80}: must be {kind.expected}")
        read[name] = stored
    table = JudgeTable(**read, where=where)
    if table.model is None and table.recorded is None and "judge" not in read:
        raise SettingError(f"{where}: model: is missing; name a model, a judge or recorded verdicts")
    if [table.model is not None, table.judge != DEFAULT_JUDGE, table.recorded is not None].count(True) > 1:
        raise SettingError(f"{where}: give only one of model, judge and recorded")
    if (table.price_input is None) != (table.price_output is None) or (
        table.price_input is None and table.price_cached is not None
    ):
        raise SettingError(
            f"{where}: price_input: a price needs both price_input and price_output, USD per million tokens"
        )
    return table


def _named(tables: Iterable[JudgeTable]) -> list[JudgeTable]:
    return [
        one if one.name else replace(one, name=one.recorded or one.model or one.judge, where=one.where)
        for one in tables
    ]


def _fields_text() -> str:
    return f"fields are {', '.join(_KINDS)}"


_INVALID = object()


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of field: how it is read, and what is valid, for messages."""

    read: Any
    expected: str


def _text(value: Any) -> Any:
    return value if isinstance(value, str) and value.strip() else _INVALID


def _addresses(value: Any) -> Any:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(one, str) for one in words):
        return _INVALID
    return tuple(one for one in words if one.strip())


def _number(least: float, most: float = math.inf, *, above: bool = False) -> Any:
    def read(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return _INVALID
        fits = least < value <= most if above else least <= value <= most
        return float(value) if fits else _INVALID

    return read


def _whole(value: Any) -> Any:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else _INVALID


def _one_of(*choices: str) -> Any:
    return lambda value: value if value in choices else _INVALID


def _mapping(value: Any) -> Any:
    named = isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
    return dict(value) if named else _INVALID


def _profile(value: Any) -> Any:
    if isinstance(value, str):
        return value or _INVALID
    if not isinstance(value, Mapping) or not value or set(value) - set(PROFILE_FIELDS):
        return _INVALID
    try:
        replace(JudgeProfile(), **value)
    except (SettingError, TypeError):
        return _INVALID
    return dict(value)


_PRICE = _Kind(_number(0), "USD per million tokens, of at least 0")
_KINDS: Mapping[str, _Kind] = {
    "name": _Kind(_text, "a text"),
    "model": _Kind(_text, "the name of a model"),
    "base_url": _Kind(_addresses, "an address, or a list of addresses of the same model"),
    "api_key_env": _Kind(_text, "the name of an environment variable"),
    "judge": _Kind(_text, "the name of a judge; see caps list judges"),
    "recorded": _Kind(_text, "the name of a judge of --recorded"),
    "weight": _Kind(_number(0, above=True), "a number above 0"),
    "level": _Kind(_one_of(*LEVELS), f"one of {', '.join(LEVELS)}"),
    "profile": _Kind(_profile, f"a file of caps diagnose --save, or a table of {', '.join(PROFILE_FIELDS)}"),
    "max_tokens": _Kind(_whole, "a whole number of at least 1"),
    "temperature": _Kind(_number(0, 2), "a number from 0 to 2"),
    "reply": _Kind(_one_of("auto", *REPLIES), f"one of auto, {', '.join(REPLIES)}"),
    "extra": _Kind(_mapping, "a table of request fields"),
    "price_input": _PRICE,
    "price_output": _PRICE,
    "price_cached": _PRICE,
}
