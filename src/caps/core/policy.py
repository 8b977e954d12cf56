"""The contract of a sampling policy: a generator that decides whether to sample, to ask the judge or to stop.

It yields a `Draw` (start samples, then wait for an event) or a `Round` (questions for the judge), is sent an
`Event` each time, and returns a `Selection`. Invariants:

* `play` is a pure function of its settings, the `Random` and the events in their order: no I/O, no clock.
* What happens outside, such as a sample that is late, reaches it as an event, so a transcript replays.
* Every action carries the ranking and the facts that hold if it is the last.

    run = PolicyRun(policy, Event(pool), seed="7/case")
    while action := run.pending:
        run.tell(event_after(action))
    run.selection.winner
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol, TypeAlias

from caps.core.contest import provisional_selection
from caps.core.errors import AnswerError, StrategyError
from caps.core.types import Answer, Entrant, Round, Selection


@dataclass(frozen=True, slots=True)
class Source:
    """A generator of candidates as the policy sees it.

    `price` is what one more sample is expected to cost, in any unit that all prices share. `running` samples
    have been started and have not ended; `late` of them take much longer than the others did. `quality` is
    the share of its samples that is expected to be right. Samples that are not `independent` are written from
    earlier ones, so their agreement confirms nothing.
    """

    price: float
    quality: float
    started: int = 0
    running: int = 0
    late: int = 0
    independent: bool = True


@dataclass(frozen=True, slots=True)
class JudgePrice:
    """What the judge costs, in the unit of the samples: a token that it reads, and a whole reply.

    `prompt` is the number of tokens of a question without the candidates.
    """

    token: float
    reply: float
    prompt: int


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates so far, in the order of their arrival, who wrote each, and what more would cost.

    Without a `judge` nothing can be asked. A `closed` pool gets no more samples.
    """

    sources: tuple[Source, ...]
    entrants: tuple[Entrant, ...] = ()
    written_by: tuple[int, ...] = ()
    judge: JudgePrice | None = None
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """What happened: the pool as it is now and, after a round, the answers to it."""

    pool: Pool
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Draw:
    """Start this many samples of each source, then wait for the next event; none: only wait."""

    counts: tuple[int, ...]
    ranking: tuple[int, ...] = ()
    facts: Mapping[str, float] = field(default_factory=dict, hash=False)


Action: TypeAlias = Draw | Round

#: What a policy returns from `play`.
PolicyPlay: TypeAlias = Generator[Action, Event, Selection | None]


class Policy(Protocol):
    """A rule that spends on samples and on verdicts: a frozen settings object with a method `play`."""

    def play(self, event: Event, rng: Random) -> PolicyPlay:
        """Yield actions, receive events, return the selection; None if there is no candidate."""
        ...


class PolicyRun:
    """A policy in progress; it depends only on the policy, the seed and the events."""

    def __init__(self, policy: Policy, event: Event, *, seed: int | str = 0) -> None:
        self.pending: Action | None = None
        self.selection: Selection | None = None
        self.stopped: str | None = None
        self.events = [event]
        self.actions: list[Action] = []
        self._play = policy.play(event, Random(seed))
        self._advance(None)

    @property
    def pool(self) -> Pool:
        """The pool of the last event."""
        return self.events[-1].pool

    def tell(self, event: Event) -> None:
        """Send what happened after the pending action."""
        if self.pending is None:
            raise AnswerError("the policy has ended: nothing is pending")
        wanted = len(self.pending.asks) if isinstance(self.pending, Round) else 0
        if len(event.answers) != wanted:
            raise AnswerError(f"{len(event.answers)} answers to the {wanted} asks of the pending action")
        self.events.append(event)
        self._advance(event)

    def stop(self, reason: str) -> None:
        """End now with the ranking of the pending action; no effect on a policy that has ended."""
        if self.pending is not None:
            self._play.close()
            ranking, facts = self.pending.ranking, self.pending.facts
            if ranking:
                self.selection = provisional_selection(ranking, facts, self.pool.entrants)
            self.stopped, self.pending = reason, None

    def _advance(self, event: Event | None) -> None:
        self.pending = None
        try:
            action = next(self._play) if event is None else self._play.send(event)
        except StopIteration as end:
            self.selection = end.value
            if self.selection is not None:
                self._check(self.selection.order)
        else:
            self._check(action.ranking)
            if isinstance(action, Draw) and len(action.counts) != len(self.pool.sources):
                raise StrategyError(f"{action!r} does not name a number of samples for each source")
            self.pending = action
            self.actions.append(action)

    def _check(self, order: Sequence[int]) -> None:
        if sorted(order) != [entrant.id for entrant in self.pool.entrants]:
            raise StrategyError("the ranking of a policy is not a permutation of its candidates")


def replayed(policy: Policy, events: Sequence[Event], *, seed: int | str = 0) -> PolicyRun:
    """Run a policy again on recorded events."""
    run = PolicyRun(policy, events[0], seed=seed)
    for event in events[1:]:
        run.tell(event)
    return run
