"""Pick the best of many LLM answers at the lowest verifier cost."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from caps.api import Selected, Solved, select, select_sync, solve, solve_sync
    from caps.config import Keys, RunConfig
    from caps.runner import Runner

__version__ = "0.1.0"
__all__ = [
    "Candidate",
    "Caps",
    "Case",
    "Contest",
    "Entrant",
    "Keys",
    "Level",
    "Pairing",
    "Pick",
    "Problem",
    "Rating",
    "RunConfig",
    "Runner",
    "Selected",
    "Selection",
    "Solved",
    "Unanswered",
    "V1Infer",
    "Verdict",
    "select",
    "select_sync",
    "solve",
    "solve_sync",
]


def __getattr__(name: str) -> Any:
    """Load what talks to models when it is first asked for: the core alone stays light."""
    homes = {"Keys": "caps.config", "RunConfig": "caps.config", "Runner": "caps.runner"}
    if name in __all__:
        return getattr(import_module(homes.get(name, "caps.api")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
