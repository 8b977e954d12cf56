"""Closed forms of the verifier cost (paper, Eq. 6, 8 and 9); Eq. 8 is Eq. 6 for N = 16 and f = 4."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from caps.core.errors import SettingError
from caps.core.types import Ask, Level


@dataclass(frozen=True, slots=True)
class ViewSizes:
    """Mean tokens of a partial view, a full view and a prompt without views; the paper's by default."""

    partial: float = 250
    full: float = 4000
    overhead: float = 500

    @classmethod
    def with_rho(cls, rho: float, *, full: float = 4000, overhead: float = 500) -> "ViewSizes":
        """Choose the partial view so that T_1 / T_2 is `rho`."""
        sizes = cls(full=full, overhead=overhead)
        partial = (rho * sizes.per_full - overhead) / 2
        if not 0 <= partial <= full:
            lowest = overhead / sizes.per_full
            raise SettingError(
                f"rho = {rho:g}: with full views of {full:g} tokens and a prompt of {overhead:g} "
                f"it must be from {lowest:.3f} to 1"
            )
        return cls(partial, full, overhead)

    @property
    def per_partial(self) -> float:
        """T_1 = 2 |phi_1| + T_ovhd (Eq. 9)."""
        return 2 * self.partial + self.overhead

    @property
    def per_full(self) -> float:
        """T_2 = 2 |phi_2| + T_ovhd (Eq. 9)."""
        return 2 * self.full + self.overhead

    @property
    def rho(self) -> float:
        """Evidence-cost ratio T_1 / T_2."""
        return self.per_partial / self.per_full

    def tokens(self, ask: Ask) -> float:
        """Tokens of one ask: its views and the prompt around them."""
        view = self.partial if ask.level == Level.PARTIAL else self.full
        return len(ask.entrants) * view + self.overhead


@dataclass(frozen=True, slots=True)
class Calls:
    """Judge calls at each level and the number of consecutive rounds."""

    partial: int
    full: int
    depth: int

    def tokens(self, rho: float) -> float:
        """Cost in units of T_2."""
        return self.full + self.partial * rho


def caps_calls(n: int, finalists: int) -> Calls:
    """Calls of the literal cascade without rescue, for `n` distinct candidates (Eq. 6).

    Follows the algorithm where Eq. 6 does not: if halving ends below f, those left play the round-robin.
    """
    if n <= 1:
        return Calls(0, 0, 0)
    partial, full, depth, pool = n // 2, 0, 1, math.ceil(n / 2)
    while pool > finalists:
        full, depth, pool = full + pool // 2, depth + 1, math.ceil(pool / 2)
    games = math.comb(pool, 2)
    return Calls(partial, full + games, depth + (games > 0))


def v1_infer_calls(n: int, multiplier: float = 3.0) -> Calls:
    """Calls of V1-Infer: a fixed budget, played in rounds of at most n/2 games."""
    if n <= 1:
        return Calls(0, 0, 0)
    budget = max(n, int(multiplier * n))
    return Calls(0, budget, math.ceil(budget / (n // 2)))


def v1_infer_tokens(views: Sequence[float], overhead: float) -> float:
    """Tokens that V1-Infer reads of a case whose full views have these sizes: the baseline of all shares.

    Every candidate plays about as often as the others, so a game has the mean size of a pair of full views.
    """
    return v1_infer_calls(len(views)).full * (overhead + 2 * fmean(views))
