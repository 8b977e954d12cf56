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

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from caps.core.errors import SettingError
from caps.core.types import Level
from caps.registry import DEFAULT_JUDGE
from caps.tables import Place, Table, read_table

Reply: TypeAlias = Literal["auto", "free", "tags", "json", "choice", "guided-choice", "regex"]
#: Forms of a judge's replies; all but free and json are ways to hold it to the bare verdict, by server.
REPLIES = get_args(Reply)[1:]
LEVELS = {
    "both": frozenset({Level.PARTIAL, Level.FULL}),
    "partial": frozenset({Level.PARTIAL}),
    "full": frozenset({Level.FULL}),
}
MOST = 1e9  # no number of a table is larger, or infinite

Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
UsdPerMillion: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=MOST)]


class JudgeTable(Table, frozen=True, kw_only=False, omit_defaults=True):
    """One of several judges; None and empty fields are those of the run.

    `judge` names a registered judge or a plug-in, `recorded` a judge of the file of recorded verdicts;
    without them a model judges. `level` says about which views it is asked.
    """

    name: Text = ""
    model: Text | None = None
    base_url: tuple[str, ...] = ()
    api_key_env: Text = ""
    judge: Text = DEFAULT_JUDGE
    recorded: Text | None = None
    weight: Annotated[float, msgspec.Meta(gt=0, le=MOST)] = 1.0
    level: Literal["both", "partial", "full"] = "both"
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    reply: Reply | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    price_input: UsdPerMillion | None = None
    price_output: UsdPerMillion | None = None
    price_cached: UsdPerMillion | None = None

    def __repr__(self) -> str:  # addresses and extra fields may contain a credential
        return f"JudgeTable({self.name!r})"

    @property
    def levels(self) -> frozenset[Level]:
        """The evidence levels that it answers."""
        return LEVELS[self.level]

    @property
    def requests(self) -> tuple[object, ...]:
        """What its requests consist of, beside what they ask."""
        return (self.model, self.max_tokens, self.temperature, self.reply, self.extra)

    def to_dict(self) -> dict[str, Any]:
        """The table as plain data, without fields at their defaults."""
        row: dict[str, Any] = msgspec.to_builtins(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()}


def read_tables(values: object, where: str) -> tuple[JudgeTable, ...]:
    """Read the judges of a run; a `SettingError` names the source, the table and the field."""
    if isinstance(values, str | Mapping) or not isinstance(values, Sequence):
        raise SettingError(f"{where}: must be a list of tables: [[judge]], each with a model")
    tables = tuple(_read_table(value, f"{where}: judge {place}") for place, value in enumerate(values, 1))
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
        share_a_level = bool(table.levels & other.levels)
        if share_a_level and table.model is not None and table.requests == other.requests:
            raise SettingError(
                f"{both}: model: both ask {table.model!r} in the same way, so they would be one judge "
                "counted twice; servers of one model are a list of addresses, base_url = [...]"
            )


def parse_word(word: str) -> dict[str, Any] | str:
    """Parse one `--judge`: the name of a judge or plug-in, or `model=NAME,weight=2` as a table."""
    if "=" not in word:
        return word
    table: dict[str, Any] = {}
    for part in word.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            fields = ", ".join(JudgeTable.__struct_fields__)
            raise SettingError(f"--judge {word!r}: write it as FIELD=VALUE,FIELD=VALUE; fields are {fields}")
        table[name.strip()] = _value(value.strip())
    return table


def _value(word: str) -> object:
    try:
        value = msgspec.json.decode(word)
    except msgspec.DecodeError:
        return word
    return value if isinstance(value, int | float) and not isinstance(value, bool) else word


def _read_table(value: object, where: str) -> JudgeTable:
    if isinstance(value, JudgeTable):
        return value
    if isinstance(value, str):
        value = {"judge": value}
    if not isinstance(value, Mapping):
        raise SettingError(f"{where} = {value!r:.80}: must be a table with a model")
    title = value.get("name") or value.get("model") or value.get("recorded") or value.get("judge")
    where += f" ({title!r:.80})" if isinstance(title, str) else ""
    row = {str(name).replace("-", "_"): content for name, content in value.items()}
    address = row.get("base_url")
    if isinstance(address, str):
        row["base_url"] = [address] if address.strip() else []
    table = read_table(row, JudgeTable, Place(where))
    if table.model is None and table.recorded is None and "judge" not in row:
        raise SettingError(f"{where}: model: is missing; name a model, a judge or recorded verdicts")
    if [table.model is not None, table.judge != DEFAULT_JUDGE, table.recorded is not None].count(True) > 1:
        raise SettingError(f"{where}: give only one of model, judge and recorded")
    if (table.price_input is None) != (table.price_output is None) or (
        table.price_input is None and table.price_cached is not None
    ):
        raise SettingError(
            f"{where}: price_input: a price needs both price_input and price_output, USD per million tokens"
        )
    return table if table.name else replace(table, name=table.recorded or table.model or table.judge)
