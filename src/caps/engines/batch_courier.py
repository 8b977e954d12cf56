"""One batch from its file to the journal: sent, noted, waited for, brought back and taken in."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile

from caps.core.errors import (
    BrokenServerError,
    BusyError,
    GarbledError,
    RefusedError,
    TimedOutError,
    UnreachableError,
)
from caps.datasets.reading import Limits, lines
from caps.engines.absorb import Absorber, Taken
from caps.engines.batch_files import BatchSettings, Part
from caps.engines.batch_notes import BatchNotes, Sent
from caps.journal.store import Journal
from caps.models.batch_wire import Batch
from caps.models.batches import RESULT_BYTES, Batches
from caps.models.bodies import REPLY_BYTES
from caps.models.failures import Failures

PASSING = (BusyError, BrokenServerError, GarbledError, TimedOutError, UnreachableError)
RESULTS = Limits(line=4 * REPLY_BYTES, total=RESULT_BYTES)  # a line has a reply and little else
MISSES = 5  # looks in a row that may find no batch: some lists lag behind
FIRST_LOOK = 1.0
SLOWER = 1.5


class Courier:
    """Sees batches through, a few at once.

    `told` hears in words what is under way, `warned` what goes on, or goes wrong, without anyone's doing.
    """

    def __init__(self, journal: Journal, failures: Failures, settings: BatchSettings) -> None:
        self._journal, self._failures, self._settings = journal, failures, settings
        self._room = asyncio.Semaphore(settings.at_once)
        self.notes = BatchNotes(journal)
        self.told: Callable[[str], object] = lambda _: None
        self.warned: Callable[[str], object] = lambda _: None

    async def send(self, desk: Batches, part: Part) -> Taken:
        """Make a batch of a file and see it through."""
        async with self._room:
            sent = Sent(desk.address, await desk.upload(part.path), part.group[1], part.awaited)
            await self.notes.uploaded(sent)
            return await self._see_through(desk, sent, await self._made(desk, sent), part.path.parent)

    async def rejoin(self, desk: Batches, sent: Sent, folder: Path) -> Taken:
        """Go on with a file that an earlier run, or another process, has sent up."""
        async with self._room:
            if sent.batch is None:
                batch = await self._made(desk, sent, await desk.find(sent.file))
            else:
                known = await desk.look(sent.batch)
                if known is None:
                    self.warned(f"{desk.address} knows batch {sent.batch} no more: its requests go out again")
                    await self.notes.done(sent, "lost")
                    return Taken(lost=True)
                batch = known
            return await self._see_through(desk, sent, batch, folder)

    async def _made(self, desk: Batches, sent: Sent, found: Batch | None = None) -> Batch:
        batch = found or await desk.create(sent.file)
        await self.notes.made(sent, batch.id)
        return batch

    async def _see_through(self, desk: Batches, sent: Sent, batch: Batch, folder: Path) -> Taken:
        """Wait for the end of a batch and take in what it brought."""
        ended = await self._ended(desk, batch, len(sent.awaited))
        absorber = Absorber(self._journal, sent.awaited, self._failures)
        for file in (ended.output, ended.errors):
            if file is not None:
                with NamedTemporaryFile(dir=folder, suffix=".jsonl") as kept:
                    await desk.download(file, Path(kept.name), requests=len(sent.awaited))
                    await absorber.absorb(lines(kept.name, RESULTS), file)
        await self.notes.done(sent, ended.status)
        if absorber.taken.renamed:
            desk.rename_limit()
        if ended.status == "failed":
            why = ended.said or "it does not say why"
            raise RefusedError(
                f"{desk.address} refused batch {ended.id} ({why}): change what it names, or send less at "
                "once (--batch lines=…, --batch at_once=1), and run the same command again"
            )
        return absorber.taken

    async def _looked_at(self, desk: Batches, batch: Batch) -> Batch | None:
        """How a batch stands now; an endpoint that is away for a while is waited for: it is paid already."""
        try:
            return await desk.look(batch.id)
        except PASSING as error:
            self.told(f"batch {batch.id}: {error}; looked at again in a while")
            return batch

    async def _ended(self, desk: Batches, batch: Batch, requests: int) -> Batch:
        """Look at a batch, more and more seldom, until it has ended."""
        pause, shown, missed = min(FIRST_LOOK, self._settings.poll), "", 0
        try:
            while missed < MISSES:
                words = f"batch {batch.id}: {batch.status or 'under way'}, {batch.done} of {requests} done"
                if words != shown:
                    shown = words
                    self.told(words)
                if batch.ended:
                    return batch
                await asyncio.sleep(pause)
                pause = min(self._settings.poll, pause * SLOWER)
                found = await self._looked_at(desk, batch)
                missed = missed + 1 if found is None else 0
                batch = found or batch
        except asyncio.CancelledError:
            self.warned(f"batch {batch.id} goes on at {desk.address}: the same command waits for it again")
            raise
        raise RefusedError(
            f"{desk.address} made batch {batch.id} and does not know it any more: the same command sends its "
            "requests again, and may pay for them again"
        )
