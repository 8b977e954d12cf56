"""Where a curve has its peak, or takes a value."""

import math
from collections.abc import Callable

GOLDEN = (math.sqrt(5) - 1) / 2


def peak(function: Callable[[float], float], low: float, high: float, *, width: float = 1e-3) -> float:
    """Where a function with one peak has it, by golden section."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > width:
        if at_left < at_right:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = function(right)
        else:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = function(left)
    return (low + high) / 2


def crossing(
    function: Callable[[float], float], wanted: float, low: float, high: float, *, width: float = 1e-3
) -> float:
    """Where a rising function takes a value, by bisection."""
    while high - low > width:
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < wanted else (low, middle)
    return (low + high) / 2
