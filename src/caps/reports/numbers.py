"""Numbers as pages and tables show them; `caps.core.text` has those that messages need too."""

from caps.core.text import number

UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def share(probability: float) -> str:
    """A probability in per cent; the extremes are never rounded to certainty."""
    if 0.995 <= probability < 1:
        return "> 99 %"
    return "< 1 %" if 0 < probability < 0.005 else f"{100 * probability:.0f} %"


def points(change: float) -> str:
    """A change of a share in points of a hundred."""
    return f"{100 * change:+.1f}".replace("-", "−")


def span(low: float, high: float) -> str:
    """An interval of a share in per cent: 40.0 to 60.0."""
    return f"{100 * low:.1f} to {100 * high:.1f}"


def dollars(value: float) -> str:
    """An amount of money with as many digits as it needs."""
    return f"${value:,.2f}" if value >= 1 else f"${value:,.4f}" if value >= 0.001 else f"${value:.2g}"


def brief(value: float) -> str:
    """A number as an axis shows it: 950, 1.5k, 20k, 3M."""
    for size, unit in UNITS:
        if abs(value) >= size:
            return f"{number(value / size, 2 if value < 10 * size else 1)}{unit}"
    return number(value, 3 if abs(value) < 10 else 1 if abs(value) < 100 else 0)
