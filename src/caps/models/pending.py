"""A model whose replies arrive later, in batches: the journal answers, missing requests are collected.

Rules that must not be broken:

* No request is sent: a missing reply raises `NotRecordedError`, and its request goes into the next batch.
* Every payment is reported by exactly one completion with `replayed=False` in each pass over the cases.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from msgspec.structs import replace

from caps.core.errors import AccessError, ModelError, NotRecordedError, UnknownModelError
from caps.journal.records import prompt_digest, request_key
from caps.journal.store import Journal
from caps.models.base import Completion, Request, estimate_prompt
from caps.models.faults import Fault
from caps.models.journaled import recalled

AFFECTS_ALL = (AccessError, UnknownModelError)  # every other request would fail too


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """The fields of a request that its journal record needs, without the prompt."""

    model: str
    template: str
    digest: str
    prompt: int


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request without a reply: its journal key, and the endpoint that must answer it."""

    key: str
    request: Request
    endpoint: Hashable

    @property
    def pending(self) -> PendingRequest:
        """The fields to keep until its reply arrives."""
        request = self.request
        tokens = estimate_prompt(request.messages)
        return PendingRequest(request.model, request.template, prompt_digest(request.messages), tokens)


class Failures:
    """Failed requests of batches; a request counts as failed once per batch.

    A permanent refusal (too long for the context) is given up at once, a transient failure (server error,
    garbled reply) after `tries` batches. A request that was never run (expired, cancelled), or that was
    refused because of the account, the model or the name of a field, is not counted.
    """

    def __init__(self, tries: int) -> None:
        self._tries = tries
        self._faults: dict[str, dict[str, Fault]] = {}

    def add(self, key: str, batch: str, fault: Fault) -> bool:
        """Record the failure of a request in a batch; False if it is already known."""
        by_batch = self._faults.setdefault(key, {})
        return by_batch.setdefault(batch, fault) is fault

    def failed_in(self, key: str, batch: str) -> bool:
        """Whether a request failed in a batch."""
        return batch in self._faults.get(key, {})

    def given_up(self, key: str) -> ModelError | None:
        """Why a request is given up, or None if it is not."""
        counted = [fault for fault in self._faults.get(key, {}).values() if not _is_excused(fault)]
        if not counted or (counted[-1].retry and len(counted) < self._tries):
            return None
        error = ModelError(str(counted[-1].error), attempts=len(counted))
        error.cause = counted[-1].error.cause
        return error


def _is_excused(fault: Fault) -> bool:
    return not fault.seen or fault.renamed or isinstance(fault.error, AFFECTS_ALL)


class PendingRequests:
    """State shared by the models of all endpoints: the journal, failures, paid replies and open requests.

    `paid` holds the keys of replies that arrived during this run, `awaited` the open requests of a pass over
    the cases.
    """

    def __init__(self, journal: Journal, failures: Failures) -> None:
        self.journal, self.failures = journal, failures
        self.paid: set[str] = set()
        self.awaited: dict[str, PendingRequest] = {}
        self._unreported: set[str] = set()
        self._open: dict[str, OpenRequest] = {}

    def begin(self) -> None:
        """Start a pass over the cases."""
        self._unreported, self.awaited, self._open = set(self.paid), {}, {}

    def take(self) -> list[OpenRequest]:
        """Return and clear the open requests collected so far."""
        requests, self._open = list(self._open.values()), {}
        self.awaited |= {request.key: request.pending for request in requests}
        return requests

    def recall(self, request: Request) -> Completion | None:
        """The reply, if it has arrived."""
        key = request_key(request)
        stored = recalled(self.journal.get(key))
        if stored is None or key not in self._unreported:
            return stored
        self._unreported.discard(key)
        return replace(stored, replayed=False)

    def answer(self, request: Request, endpoint: Hashable) -> Completion:
        """The reply; raises `NotRecordedError` if it is missing, or the reason why it is given up."""
        stored = self.recall(request)
        if stored is not None:
            return stored
        key = request_key(request)
        given_up = self.failures.given_up(key)
        if given_up is not None:
            raise given_up
        self._open[key] = OpenRequest(key, request, endpoint)
        raise NotRecordedError(f"no reply to this {request.template!r} prompt has arrived yet")


@dataclass(frozen=True, slots=True)
class PendingModel:
    """A model that answers for one endpoint from `PendingRequests`."""

    requests: PendingRequests
    endpoint: Hashable = None

    async def complete(self, request: Request) -> Completion:
        """Answer from the journal."""
        return self.requests.answer(request, self.endpoint)

    async def recall(self, request: Request) -> Completion | None:
        """The reply that the journal holds."""
        return self.requests.recall(request)

    async def close(self) -> None:
        """Do nothing: no resources are held."""
