"""Records of the journal: replies by the key of their request, facts by kind and key; tables and keys."""

import hashlib
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from caps.core.errors import SettingError
from caps.core.secrets import recorded_extra
from caps.core.types import Message
from caps.files import UNDECODABLE
from caps.journal.database import Claims

Row: TypeAlias = tuple[Any, ...]


class Reply(NamedTuple):
    """A paid reply: its text, its cost, and a digest of the prompt; never the prompt itself.

    The fields have the order of the columns. `model` is the requested model, `served` the one that the server
    reports; `at` is set when the reply is stored.
    """

    key: str
    at: float
    model: str
    served: str
    template: str
    prompt_digest: str
    finish: str
    text: str
    reasoning: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    logprobs: str | None = None
    latency: float = 0.0
    attempts: int = 1

    @classmethod
    def of(cls, row: Row) -> "Reply | None":
        """A reply from a row of the table; None if the row cannot be read."""
        if not is_readable(REPLIES, row):
            return None
        reply = cls._make(row)
        return reply._replace(estimated=bool(reply.estimated))

    def row(self, at: float) -> Row:
        """The row of the table; text that SQLite cannot store (half a surrogate pair) becomes `?`."""
        key, _, *rest = self
        if not "".join((*_texts(self), self.logprobs or "")).isascii():
            key, rest = clean(key), [clean(value) if isinstance(value, str) else value for value in rest]
        return key, at, *rest


_texts = attrgetter("key", "model", "served", "template", "prompt_digest", "finish", "text", "reasoning")


class Table(NamedTuple):
    """A table: its name, its columns, and how many of them (the first ones) are its key.

    Every statement names its columns, so an older process keeps working when a newer one adds columns.
    """

    name: str
    columns: tuple[str, ...]
    keyed: int

    @property
    def select(self) -> str:
        """The start of a SELECT statement."""
        return f"SELECT {', '.join(self.columns)} FROM {self.name}"  # noqa: S608

    @property
    def lookup(self) -> str:
        """The statement that selects the row under a key."""
        return f"{self.select} WHERE {' AND '.join(f'{key} = ?' for key in self.columns[: self.keyed])}"


REPLIES = Table("replies", Reply._fields, 1)
FACTS = Table("facts", ("kind", "key", "value", "at"), 2)
UNREADABLE = object()
_Logprobs: TypeAlias = list[tuple[str, float, list[tuple[str, float]]]]
_LOGPROBS_PLACE = Reply._fields.index("logprobs")
_NUMBERS = {"at", "estimated", "latency", "attempts"} | {
    f"{kind}_tokens" for kind in ("prompt", "output", "cached", "reasoning")
}
_NUMBER_PLACES = {
    table: [place for place, name in enumerate(table.columns) if name in _NUMBERS]
    for table in (REPLIES, FACTS)
}
_TEXT_PLACES = {
    table: [place for place, name in enumerate(table.columns) if name not in {*_NUMBERS, "logprobs"}]
    for table in (REPLIES, FACTS)
}


def is_readable(table: Table, row: Row) -> bool:
    """Whether the columns of a row hold what they should; texts that are not UTF-8 arrive as bytes."""
    if not all(type(row[place]) is str for place in _TEXT_PLACES[table]):
        return False
    if not all(type(row[place]) in (int, float) for place in _NUMBER_PLACES[table]):
        return False
    if table is FACTS:
        return read_json(row[2]) is not UNREADABLE
    packed = row[_LOGPROBS_PLACE]
    return packed is None or read_json(packed, _Logprobs) is not UNREADABLE


def read_json(text: object, kind: Any = Any) -> Any:
    """The JSON value of this type in a column, or `UNREADABLE`."""
    try:
        return msgspec.json.decode(text, type=kind) if isinstance(text, str) else UNREADABLE
    except UNDECODABLE:
        return UNREADABLE


@cache
def insertion(table: Table, rows: int) -> str:
    """The statement that inserts this many rows; existing rows stay."""
    marks = f"({', '.join('?' * len(table.columns))})"
    places = f"{table.name} ({', '.join(table.columns)})"
    return f"INSERT OR IGNORE INTO {places} VALUES {', '.join([marks] * rows)}"  # noqa: S608


@cache
def replacement(table: Table) -> str:
    """The statement that puts a row in the place of one that cannot be read."""
    return insertion(table, 1).replace("INSERT OR IGNORE", "INSERT OR REPLACE")


@cache
def lookup_of_many(table: Table, keys: int) -> str:
    """The statement that selects the rows under this many values of the first column."""
    return f"{table.select} WHERE {table.columns[0]} IN ({', '.join('?' * keys)})"


def chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    """Split a list into parts of at most `size` items."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def clean(text: str) -> str:
    """A text that can be encoded as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


class ReplyStore(Protocol):
    """Where replies and findings are stored: the journal, or a journal in another process."""

    @property
    def claims(self) -> Claims | None:
        """The claims on calls, if several processes may use it at once."""
        ...

    def recall(self, key: str) -> Awaitable[Reply | None]:
        """The reply under a key."""
        ...

    async def append(self, reply: Reply) -> Reply:
        """Store a reply and return, once it is durable, the reply that is stored under its key."""
        ...

    async def recall_fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key, or None."""
        ...

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact and return, once it is durable, the fact that is stored under its key."""
        ...


# --- Keys of requests: the explicit, versioned list of what makes two requests the same ---
#
# Invariants:
#
# * Everything that may change a reply is in the list; nothing else is (address, API key, connections).
# * Extra fields are listed as the run folder records them, so a replay finds the replies to requests whose
#   texts are recorded as digests.
# * A change to the list or its encoding is a new `VERSION`: old replies are then not found, but never
#   mistaken.


VERSION = "caps-key-1"


class KeyedRequest(Protocol):
    """A request with the fields that make up its key, such as `models.base.Request`."""

    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def template(self) -> str: ...  # noqa: D102
    @property
    def messages(self) -> tuple[Message, ...]: ...  # noqa: D102
    @property
    def temperature(self) -> float: ...  # noqa: D102
    @property
    def top_p(self) -> float | None: ...  # noqa: D102
    @property
    def max_tokens(self) -> int: ...  # noqa: D102
    @property
    def seed(self) -> int | None: ...  # noqa: D102
    @property
    def top_logprobs(self) -> int: ...  # noqa: D102
    @property
    def draw(self) -> int: ...  # noqa: D102
    @property
    def attempt(self) -> int: ...  # noqa: D102
    @property
    def extra(self) -> Mapping[str, object]: ...  # noqa: D102


def request_key(request: KeyedRequest, *, digest: str | None = None) -> str:
    """The key of a request; `digest` is its `prompt_digest`, if already known."""
    listed = [
        VERSION,
        request.model,
        request.template,
        digest or prompt_digest(request.messages),
        float(request.temperature),
        None if request.top_p is None else float(request.top_p),
        request.max_tokens,
        request.seed,
        request.top_logprobs,
        request.draw,
        recorded_extra(request.extra),
        *([request.attempt] if request.attempt else []),
    ]
    try:
        return hashlib.sha256(msgspec.json.encode(listed, order="deterministic")).hexdigest()
    except (TypeError, UnicodeEncodeError) as error:
        names = ", ".join(map(repr, request.extra))
        raise SettingError(f"extra {names}: must be JSON values ({error})") from None


def prompt_digest(messages: Iterable[Message]) -> str:
    """Digest of chat messages, which the journal stores instead of the prompt."""
    parts: list[bytes] = []
    for message in messages:
        role = message.role.encode("utf-8", "surrogatepass")
        content = message.content.encode("utf-8", "surrogatepass")
        # Lengths come first, so that different lists of messages cannot produce the same bytes.
        parts += (b"%d:%b%d:" % (len(role), role, len(content)), content)
        parts += [f"{one.kind}:{one.digest}:{one.detail}:{one.at};".encode() for one in message.media]
    return hashlib.sha256(b"".join(parts)).hexdigest()
