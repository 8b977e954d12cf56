"""Prices of tokens, and the terms that turn calls and tokens into money and time.

An unknown price is `None`, never 0: a budget in money must not pass silently.
"""

import sqlite3
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from caps.core.errors import InputError, SettingError
from caps.costs.ledger import Sums
from caps.journal.database import explain, inspect

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars a million tokens; what is read from a cache costs as much as the rest unless said."""

    input: float
    output: float
    cached: float | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise SettingError(
                    f"price of {name} tokens = {value!r}: must be dollars a million, at least 0"
                )

    def of(self, billed: int, output: int, cached: int = 0) -> float:
        """Dollars for this many tokens; cached ones are part of those billed."""
        reread = self.input if self.cached is None else self.cached
        return ((billed - cached) * self.input + cached * reread + output * self.output) / MILLION

    def of_sums(self, sums: Sums) -> float:
        """Dollars for what was billed."""
        return self.of(sums.billed, sums.output, sums.cached)


def listed_price(model: str, base_url: str) -> Price | None:
    """Look a model up in the offline table, by the address it is served at; none if it is not there."""
    try:
        from genai_prices import Usage, calc_price  # noqa: PLC0415
    except ImportError:
        return None

    def dollars(**tokens: int) -> float:
        usage = Usage(**tokens)
        return float(calc_price(usage, model_ref=model, provider_api_url=base_url).total_price)

    try:
        return _per_million(dollars)
    except (LookupError, ValueError):
        return None


def _per_million(dollars: Callable[..., float]) -> Price:
    plain = dollars(input_tokens=MILLION)
    return Price(
        input=plain,
        output=dollars(input_tokens=0, output_tokens=MILLION),
        cached=dollars(input_tokens=MILLION, cache_read_tokens=MILLION),
    )


# What turns calls and tokens into money and time: the mean output of a call, a price, a pace.


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
