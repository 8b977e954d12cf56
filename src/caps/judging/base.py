"""The judge interface: a prepared case and an ask go in, a ruling comes out."""

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec

from caps.core.errors import SettingError
from caps.core.text import printable_line, shortened
from caps.core.types import Answer, Ask, Case, Unanswered, Usage
from caps.costs.budget import Budget, Shortage
from caps.evidence.entrants import Views
from caps.models.base import Completion
from caps.prompts.fence import quote, show
from caps.prompts.read import Imitation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PreparedCase:
    """A case prepared for judging: its views, the nonce of their fence, the size of its statement.

    `code` is the code that a verdict must carry if the prompt asks for one. `templates` are those of the
    judge's prompts, as far as there are any. Quoted texts are cached, because
    each text is shown in several calls.
    """

    case: Case
    evidence: Views
    nonce: str
    statement: int
    code: str
    templates: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    _quoted: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    _shown: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    imitated: dict[tuple[str, tuple[str, ...]], tuple[Imitation, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # what a reply that repeats a text could be mistaken for, by the fields of the ask

    def quoting(self, text: str, nonce: str) -> str:
        """Quote a text, for a prompt that asks for no code."""
        quoted = self._quoted.get(text)
        if quoted is None:
            quoted = self._quoted[text] = quote(text, nonce)
        return quoted

    def remember(self, text: str, shown: str, quoted: str | None) -> None:
        """Cache the forms of a text that a worker process computed."""
        self._shown[text] = shown
        if quoted is not None:
            self._quoted[text] = quoted

    def showing(self, text: str, nonce: str) -> str:
        """Escape the control tokens of a text, for a prompt that asks for a code."""
        shown = self._shown.get(text)
        if shown is None:
            shown = self._shown[text] = show(text, nonce)
        return shown

    def forget(self) -> None:
        """Free the cached texts: a finished case may have to wait for the cases before it."""
        for cache in (self._quoted, self._shown, self.imitated):
            cache.clear()


EXHAUSTED = ("budget", "time")  # why an ask was not sent
LONGEST_REASON = 200  # characters: reasons are counted and printed
UNREAD, LOST = "none", "lost"  # how a reply was read that was not


class Opinion(msgspec.Struct, frozen=True):
    """What one of several judges answered; `malformed` if no reply of it could be read."""

    judge: str
    answer: Answer
    malformed: str | None = None

    @property
    def readable(self) -> bool:
        """Whether the judge replied, and the reply could be read."""
        return self.malformed is None and not isinstance(self.answer, Unanswered)


class Attempt(msgspec.Struct, frozen=True):
    """One call to a model on behalf of an ask, and how its reply was read; `judge` names one of several.

    `how` is `none` for a reply that could not be read, and `lost` for a call without a reply.
    """

    key: str
    usage: Usage
    finish: str
    how: str
    cause: str | None
    latency: float
    replayed: bool
    requests: int
    judge: str = ""

    @classmethod
    def of(cls, completion: Completion, how: str, cause: str | None = None) -> "Attempt":
        """A call that brought a reply."""
        sent = completion.replayed, completion.attempts
        return cls(completion.key, completion.usage, completion.finish, how, cause, completion.latency, *sent)


class Ruling(msgspec.Struct, frozen=True):
    """The answer to an ask with all its calls; `malformed` if no reply could be read.

    `substituted` names the substitutions of a recorded judge without an exact answer. `opinions` are the
    answers of several judges. `score` is the number that a reward server gave, of which the answer is
    a rating. `criteria` is what the reply says by each criterion of the case: a side, a rating or the place
    of the best. `shortage` says which budget had no room for a call. `sample` is the beginning of a reply
    that could not be read. `error` is what made the call fail, where something was raised.
    """

    answer: Answer
    attempts: tuple[Attempt, ...] = ()
    malformed: str | None = None
    winner: str | None = None
    confidence: str | None = None
    substituted: tuple[str, ...] = ()
    opinions: tuple[Opinion, ...] = ()
    score: float | None = None
    criteria: tuple[str | None, ...] = ()
    shortage: Shortage | None = None
    sample: str = ""
    error: Exception | None = None

    @property
    def unanswered(self) -> str | None:
        """The reason if there is no answer."""
        return self.answer.reason if isinstance(self.answer, Unanswered) else None

    @property
    def readable(self) -> bool:
        """Whether the judge replied, and the reply could be read."""
        return self.malformed is None and self.unanswered is None

    @property
    def replied(self) -> bool:
        """Whether the judge replied, readable or not."""
        return self.malformed is not None or self.unanswered is None


NOTHING = Usage(0, 0)


def short_reason(why: str | Exception) -> str:
    """Why an ask is unanswered, on one short line."""
    words = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else why
    return shortened(printable_line(words), LONGEST_REASON)


class Judge(Protocol):
    """Answers asks; raises `ModelError` only for an error that would make every other call fail too."""

    def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Coroutine[Any, Any, Ruling]:
        """Answer an ask about a case and charge the calls to the budget."""
        ...

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:
        """The most that an ask may cost, including retries."""
        ...


class NoJudge:
    """The judge of a run that should not ask any; an ask raises `error`."""

    def __init__(self, error: SettingError | None = None) -> None:
        self._error = error or SettingError(
            "the strategy asked a judge although it declares that it asks none"
        )

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:  # noqa: ARG002
        """Refuse."""
        raise self._error

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:  # noqa: ARG002
        """Nothing."""
        return NOTHING


async def together(work: Sequence[Awaitable[T]]) -> list[T]:
    """Await all at once; a failure, or being cancelled, cancels the others, and none outlives this call."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
