"""Pick the best of many LLM answers at the lowest verifier cost."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from caps.core.contest import Contest
from caps.core.domains import Domain, Finder, Grade, Grader, Resources
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
    UnreadableJudgeError,
    UserError,
)
from caps.core.play import Capabilities, Play, Strategy, compare, pick, rate
from caps.core.settings import setting
from caps.core.types import (
    BY_CLOCK,
    Candidate,
    Case,
    Entrant,
    Found,
    Group,
    Level,
    Message,
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
        Client,
        Comparison,
        Interval,
        LoadedRun,
        Selected,
        Solved,
        best,
        best_sync,
        compare_results,
        load_run,
        open,  # noqa: A004  (caps.open, as in gzip.open)
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
    from caps.datasets.imports import LogFormat
    from caps.datasets.published import Dataset
    from caps.evidence.domains import register_domain
    from caps.evidence.profiles import signature_named, view_named
    from caps.judging.base import Judge, Ruling
    from caps.judging.recorded import RecordedJudge
    from caps.models.base import Completion, ConnectOptions, Model, Request
    from caps.session.resolve import Objects, resolve
    from caps.session.session import open_session
    from caps.strategies.posterior import Posterior
    from caps.strategies.sprint import Sprint

__version__ = "0.2.0"
__all__ = [
    "BY_CLOCK",
    "AnswerError",
    "Candidate",
    "Capabilities",
    "Caps",
    "CapsError",
    "Case",
    "Client",
    "Comparison",
    "Completion",
    "ConnectOptions",
    "Contest",
    "Dataset",
    "Domain",
    "Entrant",
    "Finder",
    "Found",
    "Grade",
    "Grader",
    "Group",
    "InputError",
    "Interval",
    "JournalError",
    "Judge",
    "Keys",
    "Level",
    "LoadedRun",
    "LogFormat",
    "Message",
    "MissingExtraError",
    "Model",
    "ModelError",
    "Objects",
    "Pairing",
    "Pick",
    "Play",
    "Posterior",
    "Problem",
    "Rating",
    "RecordedJudge",
    "Request",
    "Resources",
    "Round",
    "Ruling",
    "RunConfig",
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
    "UnreadableJudgeError",
    "Usage",
    "UserError",
    "V1Infer",
    "Verdict",
    "best",
    "best_sync",
    "compare",
    "compare_results",
    "load_run",
    "open",
    "open_session",
    "pick",
    "rate",
    "register_domain",
    "resolve",
    "rows",
    "select",
    "select_many",
    "select_many_sync",
    "select_sync",
    "setting",
    "signature_named",
    "solve",
    "solve_sync",
    "stream",
    "view_named",
]

_HOMES = {
    "Completion": "caps.models.base",
    "Dataset": "caps.datasets.published",
    "Judge": "caps.judging.base",
    "Keys": "caps.config",
    "LogFormat": "caps.datasets.imports",
    "Model": "caps.models.base",
    "RecordedJudge": "caps.judging.recorded",
    "Posterior": "caps.strategies.posterior",
    "Request": "caps.models.base",
    "Ruling": "caps.judging.base",
    "RunConfig": "caps.config",
    "Objects": "caps.session.resolve",
    "open_session": "caps.session.session",
    "resolve": "caps.session.resolve",
    "Sprint": "caps.strategies.sprint",
    "ConnectOptions": "caps.models.base",
    "register_domain": "caps.evidence.domains",
    "signature_named": "caps.evidence.profiles",
    "view_named": "caps.evidence.profiles",
}


def __getattr__(name: str) -> Any:
    """Load what talks to models when it is first asked for: the core alone stays light."""
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, "caps.api")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
