"""What is stored: replies by the key of their request, and facts by kind and key.

The seam to whatever keeps replies and findings: the journal itself, or one in another process.
"""

from collections.abc import Awaitable, Iterator
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

Row: TypeAlias = tuple[Any, ...]


class Reply(NamedTuple):
    """A paid reply: its words, what it cost, and a digest of what was asked; never the prompt itself.

    The fields stand in the order of the table's columns. `model` is the one asked for, `served` the one the
    server says answered; `at` is stamped when it is stored.
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
    def of(cls, row: Row) -> "Reply":
        """Read a row of the table."""
        reply = cls._make(row)
        return reply._replace(estimated=bool(reply.estimated))

    def row(self, at: float) -> Row:
        """Write a row of the table; what SQLite cannot hold (half a surrogate pair) becomes `?`."""
        key, _, *rest = self
        if not "".join((*_texts(self), self.logprobs or "")).isascii():
            key, rest = clean(key), [clean(value) if isinstance(value, str) else value for value in rest]
        return key, at, *rest


_texts = attrgetter("key", "model", "served", "template", "prompt_digest", "finish", "text", "reasoning")


class Table(NamedTuple):
    """A table as the writer needs it: its name, its columns, how many of them (the first) are its key.

    Every statement names its columns, so an older process goes on beside the columns a newer one adds.
    """

    name: str
    columns: tuple[str, ...]
    keyed: int

    @property
    def select(self) -> str:
        """The start of a statement that reads rows."""
        return f"SELECT {', '.join(self.columns)} FROM {self.name}"  # noqa: S608

    @property
    def lookup(self) -> str:
        """The statement that reads the row under a key."""
        return f"{self.select} WHERE {' AND '.join(f'{key} = ?' for key in self.columns[: self.keyed])}"


REPLIES = Table("replies", Reply._fields, 1)
FACTS = Table("facts", ("kind", "key", "value", "at"), 2)


@cache
def insertion(table: Table, rows: int) -> str:
    """The statement that stores so many rows at once; who is there already stays."""
    marks = f"({', '.join('?' * len(table.columns))})"
    places = f"{table.name} ({', '.join(table.columns)})"
    return f"INSERT OR IGNORE INTO {places} VALUES {', '.join([marks] * rows)}"  # noqa: S608


@cache
def lookup_of_many(table: Table, keys: int) -> str:
    """The statement that reads the rows under so many values of the first column."""
    return f"{table.select} WHERE {table.columns[0]} IN ({', '.join('?' * keys)})"


def chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    """Cut a list into pieces of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def clean(text: str) -> str:
    """A text as UTF-8 can hold it."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


class ReplyStore(Protocol):
    """Keeps what was paid for and what was found; every answer may have to be waited for."""

    def recall(self, key: str) -> Awaitable[Reply | None]:
        """The reply under a key."""
        ...

    async def append(self, reply: Reply) -> Reply:
        """Store a reply and return, once it is durable, the one that stands under its key."""
        ...

    async def recall_fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key, or None."""
        ...

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact and return, once it is durable, the one that stands."""
        ...
