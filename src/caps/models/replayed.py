"""A model that answers from the journal only and makes no requests."""

from caps.core.errors import NotRecordedError
from caps.journal.keys import request_key
from caps.journal.store import Journal
from caps.models.base import Completion, Request
from caps.models.journaled import recalled


class ReplayedModel:
    """Replies as the journal holds them; what it does not hold raises `NotRecordedError`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def complete(self, request: Request) -> Completion:
        """Answer from the journal, at once."""
        stored = await self.recall(request)
        if stored is None:
            raise NotRecordedError(f"no reply to this {request.template!r} prompt is in the journal")
        return stored

    async def recall(self, request: Request) -> Completion | None:
        """The reply that the journal holds."""
        return recalled(self._journal.get(request_key(request)))

    async def close(self) -> None:
        """Nothing is held open."""
