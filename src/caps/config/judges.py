"""Judge tables: judges as a user writes them, `[[judge]]` in a TOML file or `--judge` words.

    [[judge]]
    model = "qwen3-4b"
    base_url = "http://localhost:8000/v1"
    level = "partial"                # answers only asks about partial views

    [[judge]]
    name = "claude"
    model = "claude-sonnet-4"
    base_url = "https://api.example.com/v1"
    api_key_env = "CLAUDE_KEY"       # the name of the variable that holds the key, never the key
    weight = 2

A table names what it does not share with the run: what is left out is the run's own setting.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from caps.config.tables import Place, Table, read_table
from caps.core.errors import SettingError
from caps.core.types import Level
from caps.registry import DEFAULT_JUDGE

Reply: TypeAlias = Literal["auto", "free", "tags", "json", "choice", "guided-choice", "regex"]
#: Forms of a judge's replies; all but free and json are ways to hold it to the bare verdict, by server.
REPLIES = get_args(Reply)[1:]
LEVELS = {
    "both": frozenset({Level.PARTIAL, Level.FULL}),
    "partial": frozenset({Level.PARTIAL}),
    "full": frozenset({Level.FULL}),
}
MOST_WEIGHT = 1e9
#: Reads the settings of a table that are also settings of a run: a row and its place in, values by name out.
ReadSettings: TypeAlias = Callable[[Mapping[str, object], str], dict[str, Any]]

Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]


class JudgeTable(Table, frozen=True, kw_only=False, omit_defaults=True):
    """One of several judges: which one it is, how much it counts, and the settings that it has for itself.

    `judge` names a registered judge or a plug-in, `recorded` a judge of the file of recorded verdicts;
    without them a model judges. `level` says about which views it is asked. `settings` replace those of the
    run, by the names of `RunConfig`.
    """

    name: Text = ""
    model: Text | None = None
    base_url: tuple[str, ...] = ()
    api_key_env: Text = ""
    judge: Text = DEFAULT_JUDGE
    recorded: Text | None = None
    weight: Annotated[float, msgspec.Meta(gt=0, le=MOST_WEIGHT)] = 1.0
    level: Literal["both", "partial", "full"] = "both"
    settings: dict[str, Any] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:  # addresses and extra fields may contain a credential
        return f"JudgeTable({self.name!r})"

    @property
    def levels(self) -> frozenset[Level]:
        """The evidence levels that it answers."""
        return LEVELS[self.level]

    def to_dict(self) -> dict[str, Any]:
        """The table as plain data, without fields at their defaults."""
        row: dict[str, Any] = msgspec.to_builtins(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()}


def read_tables(values: object, where: str, read_settings: ReadSettings) -> tuple[JudgeTable, ...]:
    """Read the judges of a run; a `SettingError` names the source, the table and the field."""
    if isinstance(values, str | Mapping) or not isinstance(values, Sequence):
        raise SettingError(f"{where}: must be a list of tables: [[judge]], each with a model")
    tables = tuple(
        _read_table(value, f"{where}: judge {place}", read_settings) for place, value in enumerate(values, 1)
    )
    _refuse_twins(tables, where)
    for level, views in ((Level.PARTIAL, "partial views (E1)"), (Level.FULL, "full views (E2)")):
        if tables and not any(level in table.levels for table in tables):
            raise SettingError(
                f"{where}: level: no judge is asked about {views}: add a judge for them, or leave level out"
            )
    return tables


def _refuse_twins(tables: Sequence[JudgeTable], where: str) -> None:
    """Refuse two judges of one name, and two that ask the same: the journal keeps one reply for both."""
    for (place, table), (other_place, other) in combinations(enumerate(tables, 1), 2):
        both = f"{where}: judges {place} and {other_place}"
        if table.name == other.name:
            raise SettingError(f"{both}: both have the name {table.name!r}: give one of them another name")
        asks_the_same = (table.model, _requests(table)) == (other.model, _requests(other))
        if table.levels & other.levels and table.model is not None and asks_the_same:
            raise SettingError(
                f"{both}: model: both ask {table.model!r} in the same way, so they would be one judge "
                "counted twice; servers of one model are a list of addresses, base_url = [...]"
            )


def _requests(table: JudgeTable) -> dict[str, Any]:
    """The settings of a judge that its requests show."""
    return {name: value for name, value in table.settings.items() if not name.startswith("price_")}


def parse_word(word: str) -> dict[str, Any] | str:
    """Parse one `--judge`: the name of a judge or plug-in, or `model=NAME,weight=2` as a table."""
    if "=" not in word:
        return word
    table: dict[str, Any] = {}
    for part in word.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"--judge {word!r}: write it as FIELD=VALUE,FIELD=VALUE: model=NAME,weight=2")
        table[name.strip()] = _value(value.strip())
    return table


def _value(word: str) -> object:
    try:
        value = msgspec.json.decode(word)
    except msgspec.DecodeError:
        return word
    return value if isinstance(value, int | float) and not isinstance(value, bool) else word


def _read_table(value: object, where: str, read_settings: ReadSettings) -> JudgeTable:
    if isinstance(value, JudgeTable):
        return value
    if isinstance(value, str):
        value = {"judge": value}
    if not isinstance(value, Mapping):
        raise SettingError(f"{where} = {value!r:.80}: must be a table with a model")
    title = value.get("name") or value.get("model") or value.get("recorded") or value.get("judge")
    where += f" ({title!r:.80})" if isinstance(title, str) else ""
    row = {str(name).replace("-", "_"): content for name, content in value.items()}
    own = {name: row.pop(name) for name in JudgeTable.__struct_fields__ if name in row}
    settings = own.pop("settings", {})
    address = own.get("base_url")
    if isinstance(address, str):
        own["base_url"] = [address] if address.strip() else []
    table = read_table(own, JudgeTable, Place(where))
    table = replace(table, settings=read_settings({**settings, **row}, where))
    if table.model is None and table.recorded is None and "judge" not in own:
        raise SettingError(f"{where}: model: is missing; name a model, a judge or recorded verdicts")
    if [table.model is not None, table.judge != DEFAULT_JUDGE, table.recorded is not None].count(True) > 1:
        raise SettingError(f"{where}: give only one of model, judge and recorded")
    return table if table.name else replace(table, name=table.recorded or table.model or table.judge)
