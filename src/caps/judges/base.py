"""The seam to whoever rules on asks: a bout and an ask go in, a ruling comes out."""

from dataclasses import dataclass, field
from typing import Protocol

from caps.core.types import Answer, Ask, Case, Unanswered, Usage
from caps.evidence.entrants import Described
from caps.prompts.fence import quote


@dataclass(frozen=True, slots=True)
class Bout:
    """A case made ready for judging: its views, the mark that fences them, the size of its statement."""

    case: Case
    described: Described
    nonce: str
    statement: int
    _quoted: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def quoting(self, text: str, nonce: str) -> str:
        """Make a text inert; a candidate is shown in several calls, so each text once."""
        found = self._quoted.get(text)
        if found is None:
            found = self._quoted[text] = quote(text, nonce)
        return found


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call to a model on behalf of an ask, and how its reply was read."""

    key: str
    usage: Usage
    finish: str
    how: str
    cause: str | None
    latency: float
    replayed: bool
    requests: int


@dataclass(frozen=True, slots=True)
class Ruling:
    """The answer to an ask, with every call it took; `malformed` where no reply could be read."""

    answer: Answer
    attempts: tuple[Attempt, ...] = ()
    malformed: str | None = None
    winner: str | None = None
    confidence: str | None = None

    @property
    def unanswered(self) -> str | None:
        """Why there is no answer, if there is none."""
        return self.answer.reason if isinstance(self.answer, Unanswered) else None


class Judge(Protocol):
    """Whoever rules on asks; a `ModelError` from here means that nobody can be asked any more."""

    async def rule(self, bout: Bout, ask: Ask) -> Ruling:
        """Answer an ask about a case."""
        ...
