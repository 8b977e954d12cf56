"""Pick the best of many LLM answers at the lowest verifier cost."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from caps.core.contest import Contest
from caps.core.errors import (
    AnswerError,
    CapsError,
    InputError,
    JournalError,
    MissingExtraError,
    ModelError,
    SandboxError,
    SettingError,
    StrategyError,
    UserError,
)
from caps.core.play import Capabilities, Play, Strategy, compare, pick, rate
from caps.core.settings import setting
from caps.core.types import (
    Candidate,
    Case,
    Entrant,
    Group,
    Level,
    Pairing,
    Pick,
    Problem,
    Rating,
    Round,
    Selection,
    Solo,
    Unanswered,
    Usage,
    Verdict,
)
from caps.strategies.caps import Caps
from caps.strategies.v1_infer import V1Infer

if TYPE_CHECKING:
    from caps.api import (
        LoadedRun,
        Selected,
        Solved,
        best,
        best_sync,
        load_run,
        rows,
        select,
        select_many,
        select_many_sync,
        select_sync,
        solve,
        solve_sync,
        stream,
    )
    from caps.config import Keys, RunConfig
    from caps.judging.base import Judge, Ruling
    from caps.judging.recorded import RecordedJudge
    from caps.runner import Runner
    from caps.strategies.posterior import Posterior
    from caps.strategies.sprint import Sprint

__version__ = "0.1.0"
__all__ = [
    "AnswerError",
    "Candidate",
    "Capabilities",
    "Caps",
    "CapsError",
    "Case",
    "Contest",
    "Entrant",
    "Group",
    "InputError",
    "JournalError",
    "Judge",
    "Keys",
    "Level",
    "LoadedRun",
    "MissingExtraError",
    "ModelError",
    "Pairing",
    "Pick",
    "Play",
    "Posterior",
    "Problem",
    "Rating",
    "RecordedJudge",
    "Round",
    "Ruling",
    "RunConfig",
    "Runner",
    "SandboxError",
    "Selected",
    "Selection",
    "SettingError",
    "Solo",
    "Solved",
    "Sprint",
    "Strategy",
    "StrategyError",
    "Unanswered",
    "Usage",
    "UserError",
    "V1Infer",
    "Verdict",
    "best",
    "best_sync",
    "compare",
    "load_run",
    "pick",
    "rate",
    "rows",
    "select",
    "select_many",
    "select_many_sync",
    "select_sync",
    "setting",
    "solve",
    "solve_sync",
    "stream",
]

_HOMES = {
    "Judge": "caps.judging.base",
    "Keys": "caps.config",
    "RecordedJudge": "caps.judging.recorded",
    "Posterior": "caps.strategies.posterior",
    "Ruling": "caps.judging.base",
    "RunConfig": "caps.config",
    "Runner": "caps.runner",
    "Sprint": "caps.strategies.sprint",
}


def __getattr__(name: str) -> Any:
    """Load what talks to models when it is first asked for: the core alone stays light."""
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, "caps.api")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
