"""A model whose replies arrive later, in batches: the journal answers, missing requests are collected.

Rules that must not be broken:

* No request is sent: a missing reply raises `NotRecordedError`, and its request goes into the next file.
* Every payment is reported by exactly one completion with `replayed=False` in each pass over the cases.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from msgspec.structs import replace

from caps.core.errors import NotRecordedError
from caps.journal.keys import prompt_digest, request_key
from caps.journal.store import Journal
from caps.models.base import Completion, Request, estimate_prompt
from caps.models.faults import Failures
from caps.models.journaled import recalled


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """The fields of a request that its journal record needs, without the prompt."""

    model: str
    template: str
    digest: str
    prompt: int


@dataclass(frozen=True, slots=True)
class MissingRequest:
    """A request without a reply, and its level model; `lost` if it is given up."""

    key: str
    request: Request
    level_model: Hashable
    lost: bool

    @property
    def pending(self) -> PendingRequest:
        """The fields to keep until its reply arrives."""
        request = self.request
        tokens = estimate_prompt(request.messages)
        return PendingRequest(request.model, request.template, prompt_digest(request.messages), tokens)


class PendingRequests:
    """State shared by all level models: the journal, failures, paid replies and missing requests.

    `paid` holds the keys of replies that arrived during this run.
    """

    def __init__(self, journal: Journal, failures: Failures) -> None:
        self._journal, self._failures = journal, failures
        self.paid: set[str] = set()
        self._unreported: set[str] = set()
        self._missing: dict[str, MissingRequest] = {}

    def begin(self) -> None:
        """Start a pass over the cases."""
        self._unreported = set(self.paid)
        self._missing = {}

    def take(self) -> list[MissingRequest]:
        """Return and clear the missing requests collected so far."""
        missing, self._missing = self._missing, {}
        return list(missing.values())

    def recall(self, request: Request) -> Completion | None:
        """The reply, if it has arrived."""
        key = request_key(request)
        stored = recalled(self._journal.get(key))
        if stored is None or key not in self._unreported:
            return stored
        self._unreported.discard(key)
        return replace(stored, replayed=False)

    def answer(self, request: Request, level_model: Hashable) -> Completion:
        """The reply; raises `NotRecordedError` if it is missing, or the reason why it is given up."""
        stored = self.recall(request)
        if stored is not None:
            return stored
        key = request_key(request)
        lost = self._failures.given_up(key)
        self._missing[key] = MissingRequest(key, request, level_model, lost is not None)
        raise lost or NotRecordedError(f"no reply to this {request.template!r} prompt has arrived yet")


class PendingModel:
    """A model that answers one level from `PendingRequests`."""

    def __init__(self, pending: PendingRequests, level_model: Hashable = None) -> None:
        self._pending, self._level_model = pending, level_model

    async def complete(self, request: Request) -> Completion:
        """Answer from the journal."""
        return self._pending.answer(request, self._level_model)

    async def recall(self, request: Request) -> Completion | None:
        """The reply that the journal holds."""
        return self._pending.recall(request)

    async def close(self) -> None:
        """Do nothing: no resources are held."""
