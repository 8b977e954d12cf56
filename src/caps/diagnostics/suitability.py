"""Is a judge good enough, and for partial views too? The paper's measure, ours, and the words for it."""

from caps.diagnostics.estimates import Estimate
from caps.diagnostics.sequential import Sequential, standing

PAPER_CALLS = (8, 10)  # E1 and E2 calls of the paper's standard configuration, N = 16 and f = 4
TOLERANCE = 0.02

RULE = (
    "the cheapest strategy whose expected Pass@1 is within two points of the best (simulations tell no "
    "finer), and no judge at all unless its accuracy at E2 is shown to be above 50 %"
)
REASON = (
    "the paper goes by the accuracy of CAPS's mixed calls less that of V1-Infer's, which are about different "
    "pairs, and its threshold contradicts itself (a loss below 5 points is to win, yet suites with -4.4, "
    "-4.6 and -4.7 lost); so both levels are measured on the same pairs and what follows is simulated"
)

WORDS = {
    "above": "tells right from wrong",
    "below": "prefers the wrong one",
    "chance": "at chance",
    "undecided": "not told from chance",
}


def mixed(partial: float, full: float, calls: tuple[float, float] = PAPER_CALLS) -> float:
    """Accuracy over the calls of a cascade if its games were pairs like these: the paper's mixed metric."""
    at_partial, at_full = calls
    return (at_partial * partial + at_full * full) / (at_partial + at_full)


def usable(full: Sequential) -> bool:
    """Whether a judge may choose at all."""
    return standing(full.low, full.high) == "above"


def sentence(level: str, found: Estimate, bounds: Sequential) -> str:
    """What an accuracy says, in words."""
    word = standing(bounds.low, bounds.high)
    range_ = f"between {100 * bounds.low:.0f} and {100 * bounds.high:.0f} %"
    return {
        "above": f"{level}: the judge tells right from wrong, {100 * found.value:.0f} % of pairs ({range_})",
        "below": f"{level}: the judge prefers the wrong one, {100 * found.value:.0f} % right ({range_})",
        "chance": f"{level}: the judge is at chance or hardly above ({range_})",
        "undecided": f"{level}: {found.looks // 2} pairs do not tell the judge from a coin ({range_})",
    }[word]
