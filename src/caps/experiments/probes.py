"""What a calibration asks of a case: a few pairs, all chosen before any reply, so that none sways the rest.

The likeliest answer meets the next, as in `posterior`, in both orders and at both levels: that shows how
often the judge goes with the odds, how far slot A pulls, and what comes back. Other members of these answers
meet, for errors that an answer shares, and the likeliest answer meets a third. With labels right meets wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from caps.core.play import Play, compare
from caps.core.types import Entrant, Level, Pairing, Selection, Verdict
from caps.diagnostics.ballots import Ballot
from caps.diagnostics.latent import Weighed
from caps.diagnostics.looks import Look
from caps.strategies.dedup import clusters, middling
from caps.strategies.posterior import Posterior, beliefs

LEVELS = (Level.PARTIAL, Level.FULL)
STAGE = "calibration"


@dataclass(frozen=True, slots=True)
class Probe:
    """A strategy that asks what a calibration needs of one case, in one round, and chooses nothing.

    `labels` says of each candidate whether it is right, where that is known.
    """

    believer: Posterior
    labels: tuple[bool | None, ...]

    def play(self, entrants: Sequence[Entrant], rng: Random) -> Play[Selection]:
        """Ask; members are drawn as `posterior` draws them, so that it finds its first questions answered."""
        luck = {one.id: rng.random() for one in entrants}
        pairs = _pairs(self._answers(entrants, luck), flip=rng.random() < 0.5)
        order = tuple(one.id for one in entrants)
        asks = [Pairing(a, b, level) for a, b in pairs for level in LEVELS]
        yield from compare(STAGE, asks, ranking=order)
        return Selection(order[0], order)

    def _answers(self, entrants: Sequence[Entrant], luck: Mapping[int, float]) -> list[list[int]]:
        """Members of the answers to ask about, likeliest first; with labels a right one, then wrong ones."""
        odds = beliefs(self.believer, entrants, ())[0]
        members = [middling(group, luck) for group in clusters(entrants)]
        members.sort(key=lambda ids: (-round(odds[ids[0]], 9), luck[ids[0]]))
        for place, ids in enumerate(members):
            right = [one for one in ids if self.labels[one] is True]
            others = members[:place] + members[place + 1 :]
            wrong = [own for ids in others if (own := [one for one in ids if self.labels[one] is False])]
            if right and wrong:
                return [right, *wrong]
        return members


def weigh_looks(
    probe: Probe, entrants: Sequence[Entrant], asked: Sequence[tuple[Pairing, Verdict]], case: int
) -> list[Weighed]:
    """Verdicts on a probe's pairs, seen from its first answer, each with the odds before anyone was asked."""
    sizes = {one.id: one.sizes for one in entrants}
    answer = {one.id: one.id if one.signature is None else one.signature for one in entrants}
    odds = _Odds(probe, entrants)
    found = []
    for ask, verdict in asked:
        first = answer[ask.a] == answer[asked[0][0].a]
        one, other = (ask.a, ask.b) if first else (ask.b, ask.a)
        look = Look(
            case=case,
            one=one,
            other=other,
            level=ask.level,
            first=first,
            verdict=verdict if first else verdict.swapped(),
            sizes=(sizes[one][ask.level], sizes[other][ask.level]),
            clusters=(answer[one], answer[other]),
        )
        known = None not in (probe.labels[one], probe.labels[other])
        found.append(Weighed(look, odds.alone(one, other), odds.alone(other, one), known=known))
    return found


def ballot_of(probe: Probe, entrants: Sequence[Entrant]) -> Ballot | None:
    """How the candidates of a case vote and which answers are right, if every label is known."""
    groups = clusters(entrants)
    if any(probe.labels[one.id] is None for one in entrants):
        return None
    besides = replace(probe.believer, votes=0.0).prior(groups)
    right = tuple(any(probe.labels[one.id] for one in group) for group in groups)
    return Ballot(tuple(map(len, groups)), tuple(besides), right)


class _Odds:
    """How likely candidates are to be right: a label's word, or what is believed before anyone is asked."""

    def __init__(self, probe: Probe, entrants: Sequence[Entrant]) -> None:
        self._labels, self._believed = probe.labels, beliefs(probe.believer, entrants, ())[0]
        total = sum(self._believed[group[0].id] for group in clusters(entrants))
        self._one_at_most = total <= 1 + 1e-6

    def alone(self, one: int, other: int) -> float:
        """Chance that only the one is right."""
        known = self._labels[one], self._labels[other]
        p, q = (
            self._believed[each] if label is None else float(label)
            for each, label in zip((one, other), known, strict=True)
        )
        return p if self._one_at_most and known == (None, None) else p * (1 - q)


def _pairs(answers: Sequence[Sequence[int]], *, flip: bool) -> Iterator[tuple[int, int]]:
    """Who meets whom, slot A first."""
    if len(answers) < 2:
        return
    lead, rival, *rest = answers
    yield lead[0], rival[0]
    yield rival[0], lead[0]
    further = [(lead[min(1, len(lead) - 1)], rival[min(1, len(rival) - 1)])]
    further = further if len(lead) > 1 or len(rival) > 1 else []
    further += [(lead[-1], rest[0][0])] if rest else []
    for a, b in further:
        yield (b, a) if flip else (a, b)
        flip = not flip
