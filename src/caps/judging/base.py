"""The seam to whoever rules on asks: a bout and an ask go in, a ruling comes out."""

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from caps.core.types import Answer, Ask, Case, Unanswered, Usage
from caps.evidence.entrants import Views
from caps.prompts.fence import could_fake, quote, show


@dataclass(frozen=True, slots=True)
class PreparedCase:
    """A case made ready for judging: its views, the mark that fences them, the size of its statement.

    `code` is what a verdict carries where the prompt asks for one. A text is shown in several calls: what is
    made of it is remembered.
    """

    case: Case
    evidence: Views
    nonce: str
    statement: int
    code: str
    _quoted: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    _shown: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    _fakes: dict[tuple[str, type[Ask]], bool] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def quoting(self, text: str, nonce: str) -> str:
        """Make a text inert, for a prompt that asks for no code."""
        found = self._quoted.get(text)
        if found is None:
            found = self._quoted[text] = quote(text, nonce)
        return found

    def remember(self, text: str, shown: str, quoted: str | None, fakes: Mapping[type[Ask], bool]) -> None:
        """Keep what was made of a text elsewhere."""
        self._shown[text] = shown
        if quoted is not None:
            self._quoted[text] = quoted
        self._fakes.update({(text, kind): fake for kind, fake in fakes.items()})

    def showing(self, text: str, nonce: str) -> str:
        """Break up the control tokens of a text, for a prompt that asks for a code."""
        found = self._shown.get(text)
        if found is None:
            found = self._shown[text] = show(text, nonce)
        return found

    def could_fake(self, text: str, ask: Ask) -> bool:
        """Whether a judge that repeats this text may be read as answering an ask of this kind."""
        key = (text, type(ask))
        found = self._fakes.get(key)
        if found is None:
            found = self._fakes[key] = could_fake(text, ask)
        return found

    def forget(self) -> None:
        """Let go of the texts made inert: a case that is over may have to wait for those before it."""
        for remembered in (self._quoted, self._shown, self._fakes):
            remembered.clear()


class Attempt(msgspec.Struct, frozen=True):
    """One call to a model on behalf of an ask, and how its reply was read."""

    key: str
    usage: Usage
    finish: str
    how: str
    cause: str | None
    latency: float
    replayed: bool
    requests: int


class Ruling(msgspec.Struct, frozen=True):
    """The answer to an ask, with every call it took; `malformed` where no reply could be read.

    `substituted`: by what a recorded judge answered for want of an exact answer.
    """

    answer: Answer
    attempts: tuple[Attempt, ...] = ()
    malformed: str | None = None
    winner: str | None = None
    confidence: str | None = None
    substituted: tuple[str, ...] = ()

    @property
    def unanswered(self) -> str | None:
        """Why there is no answer, if there is none."""
        return self.answer.reason if isinstance(self.answer, Unanswered) else None


NOTHING = Usage(0, 0)


class Budget(Protocol):
    """Whatever pays for calls: asked before each, told after each; it may also end with time."""

    free: bool  # nobody counts what it pays
    limited: bool
    deadline: float | None  # of the running loop's clock

    def covers(self, most: Usage) -> bool:
        """Whether the case's own money is enough for this, come what may."""
        ...

    async def reserve(self, most: Usage) -> bool:
        """Set aside what a call may cost at most; false where there is not enough."""
        ...

    def settle(self, most: Usage, spent: Usage, *, replayed: bool) -> None:
        """Close a call that was reserved."""
        ...


class UnlimitedBudget:
    """No limit."""

    free = True
    limited = False
    deadline: float | None = None

    def covers(self, most: Usage) -> bool:  # noqa: ARG002
        """Always."""
        return True

    async def reserve(self, most: Usage) -> bool:  # noqa: ARG002
        """Always enough."""
        return True

    def settle(self, most: Usage, spent: Usage, *, replayed: bool) -> None:
        """Nothing to keep."""


class Judge(Protocol):
    """Whoever rules on asks; a `ModelError` from here means that nobody can be asked any more."""

    def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Coroutine[Any, Any, Ruling]:
        """Answer an ask about a case, paying from the purse."""
        ...

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:
        """What an ask may cost at most, retries included."""
        ...
