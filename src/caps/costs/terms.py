"""What turns calls and tokens into money and time: the mean output of a call, a price, a pace."""

import sqlite3
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from caps.core.errors import InputError, SettingError
from caps.costs.prices import Price
from caps.journal.faults import explain
from caps.journal.migrations import inspect


@dataclass(frozen=True, slots=True)
class Terms:
    """Mean output tokens of a call, a price if it is known, and how fast the server is, if that is known."""

    output: float
    price: Price | None = None
    tokens_per_second: float | None = None
    latency: float | None = None
    connections: int | None = None

    def __post_init__(self) -> None:
        if self.latency is not None and self.connections is None:
            raise SettingError("--latency needs --max-connections: how many calls are under way at once?")

    def dollars(self, tokens: float, calls: float, *, reread: bool = False) -> float | None:
        """Dollars for so many calls; `reread` if all input came from a prefix cache, the cheapest case."""
        if self.price is None:
            return None
        read = round(tokens)
        return self.price.of(read, round(calls * self.output), read if reread else 0)

    def seconds(self, tokens: float, calls: float, depth: int) -> float | None:
        """The larger of what the server must do in all and what must wait for one another; else unknown."""
        bounds = []
        if self.tokens_per_second is not None:
            bounds.append((tokens + calls * self.output) / self.tokens_per_second)
        if self.latency is not None and self.connections is not None:
            bounds += [calls * self.latency / self.connections, depth * self.latency]
        return max(bounds, default=None)


def measured_output(journal: Path, model: str | None, templates: Collection[str]) -> float:
    """Mean output tokens of the judge calls a journal holds, of one model or all; changes nothing in it."""
    if not journal.is_file():
        raise InputError(f"--journal {journal}: no such file; leave it out or give --output-tokens")
    marks = ", ".join("?" * len(templates))
    wanted = f"SELECT avg(output_tokens) FROM replies WHERE template IN ({marks})"  # noqa: S608
    try:
        with closing(sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            inspect(connection, journal)
            by_model = () if model is None else (model,)
            statement = f"{wanted} AND model = ?" if by_model else wanted
            ((mean,),) = connection.execute(statement, (*templates, *by_model)).fetchall()
    except sqlite3.Error as error:
        raise explain(error, journal) from error
    if mean is None:
        whose = "" if model is None else f" of {model!r}"
        raise InputError(f"--journal {journal}: no judge calls{whose} in it; give --output-tokens")
    return float(mean)
