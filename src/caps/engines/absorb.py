"""Results of batches into the journal: in any order, any number of times, whatever else is in the file.

Rules that must not be broken:

* A reply is in the journal before it counts as taken; the first under a key stands.
* No line of a file can stop the others: garbage is named by file and line.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from caps.core.errors import InputError, ModelError
from caps.journal.store import Journal
from caps.models.base import Completion, Request
from caps.models.batch_lines import Item, read_item, read_result
from caps.models.failures import EVERYONE, Failure, Failures
from caps.models.faults import Fault
from caps.models.journaled import to_reply
from caps.models.waiting import Awaited

TOGETHER = 256  # replies of one commit


@dataclass(slots=True)
class Taken:
    """What became of the lines of some files.

    `known` were taken before, `unknown` are nobody's; `failed` go into the next file and `given_up` do not,
    by cause. `refused` is what would fail every request, `renamed` that the server wants another name for a
    limit, `lost` that the batch is not there any more.
    """

    keys: set[str] = field(default_factory=set)
    known: int = 0
    unknown: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    given_up: Counter[str] = field(default_factory=Counter)
    unrun: int = 0
    garbage: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    refused: ModelError | None = None
    renamed: bool = False
    lost: bool = False

    @property
    def moved(self) -> bool:
        """Whether any contest may go on for it, or the next file be better."""
        return bool(self.keys or self.failed or self.given_up or self.renamed or self.lost)


class Absorber:
    """Takes result lines into a journal, and counts into `taken`."""

    def __init__(self, journal: Journal, awaited: Mapping[str, Awaited], failures: Failures) -> None:
        self._journal, self._awaited, self._failures = journal, awaited, failures
        self.taken = Taken()

    async def absorb(self, lines: Iterable[bytes], name: str) -> None:
        """Take the lines of one file; a file that breaks off ends there."""
        replies: dict[str, Completion] = {}
        strangers: list[str] = []
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    self._hear(line, f"{name}:{number}", replies, strangers)
                if len(replies) >= TOGETHER:
                    await self._store(replies)
        except InputError as error:
            self.taken.garbage.append(str(error))
        await self._store(replies)
        known = len(self._journal.stamps(dict.fromkeys(strangers)))
        self.taken.known += known
        self.taken.unknown += len(dict.fromkeys(strangers)) - known

    def _hear(self, line: bytes, where: str, replies: dict[str, Completion], strangers: list[str]) -> None:
        try:
            item = read_item(line)
        except ValueError as error:
            self.taken.garbage.append(f"{where}: {error}")
            return
        awaited = self._awaited.get(item.key)
        if awaited is None:
            strangers.append(item.key)
        elif item.key in self.taken.keys or item.key in replies:
            self.taken.known += 1
        else:
            result = read_result(item, awaited)
            if isinstance(result, Fault):
                self._fail(item, result)
            else:
                replies[item.key] = result

    def _fail(self, item: Item, fault: Fault) -> None:
        taken, failure = self.taken, Failure.of(item.key, item.id, fault)
        taken.renamed = taken.renamed or fault.renamed
        if isinstance(fault.error, EVERYONE):
            taken.refused = fault.error
        if not self._failures.add(failure):
            taken.known += 1
            return
        taken.failures.append(failure)
        if not fault.seen:
            taken.unrun += 1
        elif self._failures.given_up(item.key) is not None:
            taken.given_up[failure.cause] += 1
        elif failure.counts:
            taken.failed[failure.cause] += 1

    async def _store(self, replies: dict[str, Completion]) -> None:
        rows = []
        for key, completion in replies.items():
            awaited = self._awaited[key]
            asked = Request((), awaited.model, awaited.template)
            rows.append(self._journal.append(to_reply(key, awaited.digest, asked, completion)))
        await asyncio.gather(*rows)
        self.taken.keys |= replies.keys()
        replies.clear()
