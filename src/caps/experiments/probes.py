"""What a calibration asks of a case: a few pairs, all chosen before any reply, so that no reply sways the rest.

The likeliest answer meets the next, as `posterior` would have it, in both orders and at both levels: that
shows how often the judge goes with the odds and how far slot A pulls. Other members of the same two answers
meet too, for errors that an answer shares, and the likeliest answer meets one more. Where labels are known,
right meets wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from caps.core.play import Play, compare
from caps.core.types import Entrant, Level, Pairing, Selection
from caps.strategies.dedup import clusters, middling
from caps.strategies.posterior import Posterior, beliefs

Labels = Mapping[int, bool | None]
LEVELS = (Level.PARTIAL, Level.FULL)


@dataclass(frozen=True, slots=True)
class Probe:
    """A strategy that asks what a calibration needs of one case, in one round, and chooses nothing."""

    believer: Posterior
    labels: tuple[bool | None, ...]

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Ask; members are drawn as `posterior` draws them, so that it finds its first questions answered."""
        luck = {one.id: rng.random() for one in entrants}
        order = tuple(one.id for one in entrants)
        asks = asks_of(pairs_of(entrants, self.answers(entrants, luck), flip=rng.random() < 0.5))
        if asks:
            yield from compare("calibration", asks, ranking=order)
        return Selection(order[0], order)

    def answers(self, entrants: Sequence[Entrant], luck: Mapping[int, float]) -> list[list[int]]:
        """Members of the answers to ask about, likeliest first; with labels a right and a wrong one."""
        odds = beliefs(self.believer, entrants, ())[0]
        members = [middling(group, luck) for group in clusters(entrants)]
        members.sort(key=lambda ids: (-round(odds[ids[0]], 9), luck[ids[0]]))
        labels = dict(zip((one.id for one in entrants), self.labels, strict=True))
        right = [own for ids in members if (own := [one for one in ids if labels[one] is True])]
        wrong = [own for ids in members if (own := [one for one in ids if labels[one] is False])]
        return [right[0], *wrong] if right and wrong else members


def pairs_of(entrants, answers, *, flip, third=True, others=True) -> Iterator[tuple[int, int, bool]]:
    if len(answers) < 2:
        return
    lead, rival = answers[:2]
    yield lead[0], rival[0], True
    yield rival[0], lead[0], True
    if others and (len(lead) > 1 or len(rival) > 1):
        seats = lead[min(1, len(lead)-1)], rival[min(1, len(rival)-1)]
        yield (*(seats[::-1] if flip else seats), False)
    if third and len(answers) > 2:
        seats = lead[-1], answers[2][0]
        yield (*(seats if flip else seats[::-1]), False)


def asks_of(pairs) -> list[Pairing]:
    return [Pairing(a, b, level) for a, b, _ in pairs for level in LEVELS]
