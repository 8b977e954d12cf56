"""Batches under way, noted in the journal: whoever comes after a kill goes on instead of paying again.

A file is noted with what its replies will need before a batch is made of it, the batch when it is made, and
that it is done when its results are in. A batch that was made but not noted is found by its file.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from caps.journal.store import Journal
from caps.models.waiting import Awaited

REQUESTS = "batch requests"
FILE = "batch file"
MADE = "batch made"
DONE = "batch done"


@dataclass(frozen=True, slots=True)
class Sent:
    """A file at an endpoint, what is awaited of it, and the batch made of it, if that is known."""

    address: str
    file: str
    model: str
    awaited: Mapping[str, Awaited]
    batch: str | None = None

    @property
    def name(self) -> str:
        """What it is noted under."""
        return f"{self.address} {self.file}"


class BatchNotes:
    """Reads and writes the notes."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def uploaded(self, sent: Sent) -> None:
        """A file is up there; nothing is paid yet."""
        rows = {key: (one.template, one.digest, one.prompt) for key, one in sent.awaited.items()}
        await self._journal.record(REQUESTS, sent.name, rows)
        about = {"address": sent.address, "file": sent.file, "model": sent.model, "requests": len(rows)}
        await self._journal.record(FILE, sent.name, about)

    async def made(self, sent: Sent, batch: str) -> None:
        """A batch was made of it."""
        await self._journal.record(MADE, sent.name, batch)

    async def done(self, sent: Sent, status: str) -> None:
        """Its results are in the journal, or none will come."""
        await self._journal.record(DONE, sent.name, status)

    def under_way(self, addresses: Collection[str] | None = None) -> list[Sent]:
        """What is not done, at some addresses or at all."""
        done, made, found = self._journal.facts(DONE), self._journal.facts(MADE), list[Sent]()
        for name, about in self._journal.facts(FILE).items():
            if name not in done and (addresses is None or about["address"] in addresses):
                model = about["model"]
                rows = self._journal.fact(REQUESTS, name) or {}
                awaited = {key: Awaited(model, *row) for key, row in rows.items()}
                found.append(Sent(about["address"], about["file"], model, awaited, made.get(name)))
        return found
