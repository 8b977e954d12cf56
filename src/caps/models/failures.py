"""Requests of batches that failed: how often, for which cause, and which of them are given up.

* Refused for good (too long for the context): asking again would not help, so it is given up at once.
* Failed on the way (a server's error, garbage): it goes into the next file, at most `tries` times in all.
* Never run (expired, cancelled), or refused for the account or the model: not its fault, not counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from caps.core.errors import AccessError, ModelError, UnknownModelError
from caps.models.faults import Fault

EVERYONE = (AccessError, UnknownModelError)  # what would fail every other request too


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed item: its request, an id of its own, and why; if it `counts` as a try, if it is `final`."""

    key: str
    item: str
    cause: str
    said: str
    counts: bool
    final: bool

    @classmethod
    def of(cls, key: str, item: str, fault: Fault) -> "Failure":
        """What a fault means for the request."""
        excused = not fault.seen or fault.renamed or isinstance(fault.error, EVERYONE)
        return cls(key, item, fault.error.cause, str(fault.error), not excused, not (excused or fault.retry))


class Failures:
    """All failures of a run; the same item told twice counts once."""

    def __init__(self, tries: int, known: Iterable[Failure] = ()) -> None:
        self._tries = tries
        self._items: dict[str, dict[str, Failure]] = {}
        for failure in known:
            self.add(failure)

    def add(self, failure: Failure) -> bool:
        """Take note of a failure; false where it is known."""
        items = self._items.setdefault(failure.key, {})
        new = failure.item not in items
        items.setdefault(failure.item, failure)
        return new

    def returned(self, key: str) -> int:
        """How many failed items of a request have come back."""
        return len(self._items.get(key, ()))

    def given_up(self, key: str) -> ModelError | None:
        """Why a request is not asked any more, if it is not."""
        counted = [one for one in self._items.get(key, {}).values() if one.counts]
        if not counted or not (counted[-1].final or len(counted) >= self._tries):
            return None
        error = ModelError(counted[-1].said, attempts=len(counted))
        error.cause = counted[-1].cause
        return error
