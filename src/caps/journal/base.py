"""The seam to whatever keeps replies and findings: the journal itself, or one in another process."""

from collections.abc import Awaitable
from typing import Any, Protocol

from caps.journal.rows import Reply


class JournalProtocol(Protocol):
    """Keeps what was paid for and what was found; every answer may have to be waited for."""

    def recall(self, key: str) -> Awaitable[Reply | None]:
        """The reply under a key."""
        ...

    async def append(self, reply: Reply) -> Reply:
        """Store a reply and return, once it is durable, the one that stands under its key."""
        ...

    async def recall_fact(self, kind: str, key: str) -> Any:
        """The fact under a kind and key, or None."""
        ...

    async def record(self, kind: str, key: str, value: object) -> Any:
        """Store a fact and return, once it is durable, the one that stands."""
        ...
