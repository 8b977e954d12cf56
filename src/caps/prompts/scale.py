"""The paper's verdict-to-rating table: a winner and a confidence become two ratings from 1 to 10."""

from caps.core.types import Verdict

MIDDLE = 5.0  # what V1 puts in for a rating that is missing

RATINGS = {
    ("A", "HIGH"): Verdict(9, 3),
    ("A", "LOW"): Verdict(7, 5),
    ("B", "HIGH"): Verdict(3, 9),
    ("B", "LOW"): Verdict(5, 7),
    ("TIE", "HIGH"): Verdict(5, 5),
    ("TIE", "LOW"): Verdict(5, 5),
}


def verdict_of(winner: str, confidence: str) -> Verdict:
    """Read `A`, `B` or `TIE` with `HIGH` or `LOW` as a verdict."""
    return RATINGS[winner, confidence]
