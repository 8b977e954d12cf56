"""Pick the best of many LLM answers at the lowest verifier cost."""

from caps.core.contest import Contest
from caps.core.types import (
    Candidate,
    Case,
    Entrant,
    Level,
    Pairing,
    Pick,
    Problem,
    Rating,
    Selection,
    Unanswered,
    Verdict,
)
from caps.strategies.caps import Caps
from caps.strategies.v1_infer import V1Infer

__version__ = "0.1.0"
__all__ = [
    "Candidate",
    "Caps",
    "Case",
    "Contest",
    "Entrant",
    "Level",
    "Pairing",
    "Pick",
    "Problem",
    "Rating",
    "Selection",
    "Unanswered",
    "V1Infer",
    "Verdict",
]
