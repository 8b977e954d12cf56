"""What sways a judge beside the truth: the slot, the order, the length; and how often it says nothing."""

from collections.abc import Callable, Sequence
from statistics import NormalDist, fmean

from caps.diagnostics.estimates import Estimate, jackknife, mean_estimate
from caps.diagnostics.looks import Look, by_case, swapped

NORMAL = NormalDist()
WIDEST = 6.0
Sway = Callable[[Look], bool | None]


def flips(looks: Sequence[Look]) -> Estimate | None:
    """How often the preferred candidate changes when the two swap slots; from or to a tie is half a flip."""
    changed: dict[int, list[float]] = {}
    for first, second in swapped(looks):
        changed.setdefault(first.case, []).append(abs(first.outcome - second.outcome))
    return mean_estimate([fmean(own) for own in changed.values()], len(looks))


def in_first_slot(look: Look) -> bool | None:
    """Whether `one` sat in slot A."""
    return look.first


def longer(look: Look) -> bool | None:
    """Whether `one` is the longer; none where both are of equal length."""
    one, other = look.sizes
    return None if one == other else one > other


def preferred(looks: Sequence[Look], sway: Sway) -> Estimate | None:
    """Share of verdicts for the swayed side, where it is right as often as it is wrong; a tie counts half."""
    return jackknife(by_case(looks), lambda some: _middle(_split(some, sway)))


def between_equals(looks: Sequence[Look], sway: Sway) -> Estimate | None:
    """The same if both candidates were equally good, as signal detection has it.

    The better a judge tells right from wrong, the less room there is for a pull to show: the share is carried
    over along normal curves as far apart as this judge's.
    """
    share = preferred(looks, sway)
    sides = _split(looks, sway)
    if share is None or sides is None:
        return None
    right, wrong = sides
    gap = (_quantile(right) - _quantile(wrong)) / 2
    value, low, high = (_pull(part, gap) for part in (share.value, share.low, share.high))
    return Estimate(NORMAL.cdf(value), NORMAL.cdf(low), NORMAL.cdf(high), share.cases, share.looks)


def ties(looks: Sequence[Look]) -> Estimate | None:
    """How often nobody is preferred."""
    return jackknife(by_case(looks), lambda some: _share(some, lambda look: not look.decided))


def unreadable(looks: Sequence[Look]) -> Estimate | None:
    """How often no reply could be read, after every retry."""
    return jackknife(by_case(looks), lambda some: _share(some, lambda look: look.malformed))


def _split(looks: Sequence[Look], sway: Sway) -> tuple[list[float], list[float]] | None:
    """Outcomes for the swayed side where it is right, and where it is wrong; none unless there are both."""
    right = [look.outcome for look in looks if sway(look) is True]
    wrong = [1 - look.outcome for look in looks if sway(look) is False]
    return (right, wrong) if right and wrong else None


def _middle(sides: tuple[list[float], list[float]] | None) -> float | None:
    return None if sides is None else (fmean(sides[0]) + fmean(sides[1])) / 2


def _pull(share: float, gap: float) -> float:
    """The pull, in standard deviations, at which the swayed side gets this share of right and wrong alike."""
    low, high = -WIDEST, WIDEST
    while high - low > 1e-6:
        pull = (low + high) / 2
        reached = (NORMAL.cdf(pull + gap) + NORMAL.cdf(pull - gap)) / 2
        low, high = (pull, high) if reached < share else (low, pull)
    return (low + high) / 2


def _quantile(outcomes: Sequence[float]) -> float:
    """The normal quantile of a mean, kept from infinity by one imagined tie."""
    return NORMAL.inv_cdf((sum(outcomes) + 0.5) / (len(outcomes) + 1))


def _share(looks: Sequence[Look], holds: Callable[[Look], bool]) -> float | None:
    return fmean(map(holds, looks)) if looks else None
