"""Token prices, and the conversion of calls and tokens into money.

An unknown price is `None`, never 0: a budget in dollars must not pass silently.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from caps.core.errors import SettingError
from caps.costs.ledger import Sums

MILLION = 1_000_000
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class HasPrices(Protocol):
    """Settings that may state a price, in dollars per million tokens."""

    @property
    def price_input(self) -> float | None:
        """The price of input tokens."""
        ...

    @property
    def price_output(self) -> float | None:
        """The price of output tokens."""
        ...

    @property
    def price_cached(self) -> float | None:
        """The price of cached input tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens; by default, cached input costs as much as other input."""

    input: float
    output: float
    cached: float | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise SettingError(
                    f"price of {name} tokens = {value!r}: must be dollars per million, at least 0"
                )

    @classmethod
    def stated(cls, settings: "HasPrices") -> "Price | None":
        """The price that a config or a table states, if it does."""
        if settings.price_input is None or settings.price_output is None:
            return None
        return cls(settings.price_input, settings.price_output, settings.price_cached)

    def of(self, billed: int, output: int, cached: int = 0) -> float:
        """Dollars for some tokens; `cached` is part of `billed`."""
        cached_price = self.input if self.cached is None else self.cached
        return ((billed - cached) * self.input + cached * cached_price + output * self.output) / MILLION

    def of_sums(self, sums: Sums) -> float:
        """Dollars for what was billed."""
        return self.of(sums.billed, sums.output, sums.cached)


def price_of_all(prices: Sequence[Price]) -> Price:
    """The price of tokens that several judges read and write."""
    cached = sum(one.input if one.cached is None else one.cached for one in prices)
    return Price(sum(one.input for one in prices), sum(one.output for one in prices), cached)


@dataclass(frozen=True, slots=True)
class HighestPrice(Price):
    """The prices of several judges: sums cost what their calls cost, other tokens the highest price."""

    @classmethod
    def of_judges(cls, prices: Sequence[Price]) -> "HighestPrice":
        """The price of several judges; without any that costs something, nothing."""
        cached = [one.input if one.cached is None else one.cached for one in prices]
        inputs, outputs = [one.input for one in prices], [one.output for one in prices]
        return cls(max(inputs, default=0.0), max(outputs, default=0.0), max(cached, default=0.0))

    def of_sums(self, sums: Sums) -> float:
        """Dollars for what was billed, as the calls state it."""
        return sums.usd


def listed_price(model: str, base_url: str) -> Price | None:
    """Look up a model in the offline table by its address; None if it is not listed."""
    try:
        if urlsplit(base_url).hostname in LOOPBACK:  # not listed, and loading the table takes a while
            return None
        from genai_prices import Usage, calc_price  # noqa: PLC0415
    except (ImportError, ValueError):  # the table is not installed, or this is no address
        return None

    def dollars(**tokens: int) -> float:
        usage = Usage(**tokens)
        return float(calc_price(usage, model_ref=model, provider_api_url=base_url).total_price)

    try:
        return Price(
            input=dollars(input_tokens=MILLION),
            output=dollars(input_tokens=0, output_tokens=MILLION),
            cached=dollars(input_tokens=MILLION, cache_read_tokens=MILLION),
        )
    except (LookupError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Terms:
    """Mean output tokens of a call and the price of tokens, if known: that of all `judges` together."""

    output: float
    price: Price | None = None
    judges: int = 1

    def dollars(self, tokens: float, calls: float, *, all_cached: bool = False) -> float | None:
        """Dollars for some calls; `all_cached` is the least: only cached input."""
        if self.price is None:
            return None
        billed = round(tokens)
        return self.price.of(billed, round(calls * self.output), billed if all_cached else 0)
