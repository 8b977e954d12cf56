"""Which of several bargains are worth a thought: nothing else is both better and cheaper."""

from collections.abc import Sequence


def front(bargains: Sequence[tuple[float, float]]) -> list[int]:
    """Places of those (cost, value) with more value than all that cost no more, the cheapest first."""
    kept, best = list[int](), float("-inf")
    for place in sorted(range(len(bargains)), key=lambda one: (bargains[one][0], -bargains[one][1])):
        value = bargains[place][1]
        if value > best:
            kept.append(place)
            best = value
    return kept
