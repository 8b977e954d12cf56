"""A model whose replies arrive later, in batches: the journal answers, missing requests are collected.

Rules that must not be broken:

* Nothing is asked here: an open request raises `NotRecordedError` and is noted, whole, for the next file.
* Every payment is reported by exactly one completion with `replayed=False` in each pass over the cases.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from caps.core.errors import NotRecordedError
from caps.journal.keys import prompt_digest, request_key
from caps.journal.store import Journal
from caps.models.base import Completion, Request, estimate_prompt
from caps.models.faults import Failures
from caps.models.journaled import to_completion


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """What the journal's row needs of a request beside its reply; the prompt itself need not be held."""

    model: str
    template: str
    digest: str
    prompt: int


@dataclass(frozen=True, slots=True)
class MissingRequest:
    """A request without a reply, and at which seat it was asked; `lost` where it is given up."""

    key: str
    request: Request
    level_model: Hashable
    lost: bool

    @property
    def awaited(self) -> PendingRequest:
        """What is kept of it until its reply comes."""
        request = self.request
        shown = estimate_prompt(request.messages)
        return PendingRequest(request.model, request.template, prompt_digest(request.messages), shown)


class PendingRequests:
    """What the models of all seats share: the journal, what failed, what is paid, and what is open.

    `paid` holds the keys of replies that came in during this run.
    """

    def __init__(self, journal: Journal, failures: Failures) -> None:
        self._journal, self._failures = journal, failures
        self.paid: set[str] = set()
        self._unreported: set[str] = set()
        self._noted: dict[str, MissingRequest] = {}

    def begin(self) -> None:
        """Begin a pass over the cases."""
        self._unreported = set(self.paid)
        self._noted = {}

    def take(self) -> list[MissingRequest]:
        """What was noted since this was last asked."""
        noted, self._noted = self._noted, {}
        return list(noted.values())

    def answer(self, request: Request, level_model: Hashable) -> Completion:
        """The reply, or `NotRecordedError` where it is open, or why it is given up."""
        key = request_key(request)
        stored = self._journal.get(key)
        if stored is not None:
            replayed = key not in self._unreported
            self._unreported.discard(key)
            return to_completion(stored, replayed=replayed)
        lost = self._failures.given_up(key)
        self._noted[key] = MissingRequest(key, request, level_model, lost is not None)
        raise lost or NotRecordedError(f"no reply to this {request.template!r} prompt has come yet")


class PendingModel:
    """The model of one seat."""

    def __init__(self, waiting: PendingRequests, level_model: Hashable = None) -> None:
        self._waiting, self._seat = waiting, level_model

    async def complete(self, request: Request) -> Completion:
        """Answer from the journal, at once."""
        return self._waiting.answer(request, self._seat)

    async def close(self) -> None:
        """Nothing is held open."""
