"""All cases of a run, moving together: a pass plays every contest as far as the journal reaches.

Nothing is kept between passes: where a contest stands is a function of the journal.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from caps.core.errors import CapsError, InputError
from caps.core.play import Strategy
from caps.core.types import Case
from caps.engines.base import Outcome, PerCase, Play, Prepare
from caps.engines.forward import fast_forward
from caps.engines.hall import MOST_LOOKING
from caps.judges.base import Judge, Purse
from caps.models.waiting import Noted, Waiting


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a case stands: what became of it so far, its contest, and the requests it lacks a reply to."""

    outcome: Outcome
    play: Play | None = None
    noted: Sequence[Noted] = ()

    @property
    def stage(self) -> str | None:
        """The stage it waits in; none where it is over."""
        round_ = None if self.play is None or self.outcome.failure is not None else self.play.round
        return None if round_ is None else round_.stage

    @property
    def open(self) -> list[Noted]:
        """What must be asked for it to go on."""
        return [one for one in self.noted if not one.lost]


class Convoy:
    """Plays the same cases again and again, with a judge whose models wait for batches.

    `purse` makes the purse of a case anew, because a pass plays it from its beginning.
    """

    def __init__(
        self,
        cases: Sequence[Case | InputError],
        strategy: Strategy | PerCase,
        *,
        seed: int,
        judge: Judge,
        prepare: Prepare,
        waiting: Waiting,
        purse: Callable[[], Purse],
    ) -> None:
        self._cases, self._strategy, self._seed = cases, strategy, seed
        self._judge, self._prepare, self._waiting, self._purse = judge, prepare, waiting, purse

    def __len__(self) -> int:
        return len(self._cases)

    def stands(self) -> Iterator[Stand]:
        """Where each case stands now, in the order of input."""
        self._waiting.begin()
        for number, case in enumerate(self._cases):
            yield self._stand(number, case)

    def _stand(self, number: int, case: Case | InputError) -> Stand:
        if isinstance(case, InputError):
            return Stand(Outcome(number, "", failure=str(case)))
        own = self._strategy
        chosen = own.strategies[number] if isinstance(own, PerCase) else own
        try:
            play = Play(number, self._prepare(case), chosen, self._seed, self._purse())
        except CapsError as error:
            return Stand(Outcome(number, case.id, failure=str(error)))
        try:
            fast_forward(play, self._judge)
        except CapsError:
            raise
        except Exception as error:  # a judge that broke fails its case, as it does live
            play.outcome.failure = f"{type(error).__name__}: {error}"
        return Stand(play.outcome, play, self._waiting.take())


async def looked_into(
    source: Iterable[Case | InputError], find: Callable[[Case], Awaitable[Case]] | None
) -> list[Case | InputError]:
    """All cases of a source with what was found of them; one that breaks off ends with the reason."""
    cases: list[Case | InputError] = []
    try:
        cases.extend(source)
    except InputError as error:
        cases.append(error)
    if find is None:
        return cases
    places = asyncio.Semaphore(MOST_LOOKING)

    async def look(case: Case | InputError) -> Case | InputError:
        if isinstance(case, InputError):
            return case
        async with places:
            try:
                return await find(case)
            except CapsError:
                raise
            except Exception as error:
                return InputError(f"case {case.id!r}: {type(error).__name__}: {error}")

    return list(await asyncio.gather(*map(look, cases)))
