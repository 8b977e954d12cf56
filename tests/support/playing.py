"""What the tests share: fields of entrants, judges that follow a rule, and playing a contest to its end."""

from collections.abc import Callable, Sequence
from hashlib import sha256

from caps.core.contest import Contest
from caps.core.play import Strategy
from caps.core.types import (
    RATINGS,
    Answer,
    Ask,
    Entrant,
    Group,
    Level,
    Pairing,
    Pick,
    Rating,
    Selection,
    Verdict,
)
from caps.registry import STRATEGIES
from caps.session.parts import make_strategy

Judge = Callable[[Ask], Answer]
ALL = list(STRATEGIES.table)
JUDGED = [name for name in ALL if name not in ("vanilla", "majority", "tests-first", "reward")]


def field_of(n: int, signatures: Sequence[str | None] | None = None) -> list[Entrant]:
    """Entrants 0..n-1, of which 0 carries the best score; all different unless signatures are given."""
    names = [f"answer {i}" for i in range(n)] if signatures is None else signatures
    return [Entrant(i, name, (0, 250, 4000 + i), {"score": -float(i)}) for i, name in enumerate(names)]


def lower_id_wins(ask: Ask) -> Answer:
    """Always right and sure: the lower the id, the better."""
    if isinstance(ask, Pairing):
        return Verdict(9, 3) if ask.a < ask.b else Verdict(3, 9)
    if isinstance(ask, Group):
        return Pick(min(ask.entrants))
    return Rating(max(1, 10 - ask.entrant))


def slot_a_wins(ask: Ask) -> Answer:
    """A judge that only ever looks at the slot."""
    return Verdict(9, 3) if isinstance(ask, Pairing) else lower_id_wins(ask)


def everything_ties(ask: Ask) -> Answer:
    """A judge that cannot tell anything apart."""
    if isinstance(ask, Pairing):
        return Verdict(5, 5)
    return Pick(ask.entrants[0]) if isinstance(ask, Group) else Rating(5)


def erratic(seed: int) -> Judge:
    """A judge whose answers are a hash of what is asked: adversarial, yet the same every time."""

    def judge(ask: Ask) -> Answer:
        number = int.from_bytes(sha256(f"{seed} {ask!r}".encode()).digest()[:4], "big")
        if isinstance(ask, Pairing):
            return list(RATINGS.values())[number % len(RATINGS)]
        if isinstance(ask, Group):
            return Pick(ask.entrants[number % len(ask.entrants)])
        return Rating(1 + number % 10)

    return judge


def play(contest: Contest, judge: Judge = lower_id_wins) -> Selection:
    """Answer everything until the contest is over."""
    return contest.play(judge).selection


def played(
    strategy: Strategy | str, entrants: Sequence[Entrant] | int, judge: Judge = lower_id_wins, seed: int = 0
) -> Contest:
    """Play a whole contest."""
    field = field_of(entrants) if isinstance(entrants, int) else entrants
    contest = Contest(make_strategy(strategy) if isinstance(strategy, str) else strategy, field, seed=seed)
    play(contest, judge)
    return contest


def asks_of(contest: Contest) -> list[Ask]:
    """Everything that was asked, in order."""
    return [ask for turn in contest.transcript for ask in turn.round.asks]


def calls(contest: Contest, level: Level) -> int:
    """How much was asked at a level."""
    return sum(ask.level == level for ask in asks_of(contest))
