"""What tokens cost: a price the user states, or an offline table of what providers charge; else unknown.

An unknown price is `None`, never 0: a budget in money must not pass silently.
"""

from collections.abc import Callable
from dataclasses import dataclass

from caps.core.errors import SettingError
from caps.costs.ledger import Sums

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
