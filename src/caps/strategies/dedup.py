"""Stage 0 (Dedup): who plays; entrants with equal signatures form a cluster, one of them stands for it."""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from statistics import median
from typing import NamedTuple

from caps.core.types import Entrant, Level

SHORTLISTS = ("all", "tests")
REPRESENTATIVES = ("longest", "first", "shortest", "random")


class Pool(NamedTuple):
    """Who plays, with how many each stands for and who these others are."""

    cluster_size: dict[int, int]
    others: dict[int, list[int]]

    def expand(self, players: Iterable[int]) -> list[int]:
        """Players in their order, each followed by the others of its cluster."""
        return [member for player in players for member in (player, *self.others[player])]


def clusters(entrants: Sequence[Entrant]) -> list[list[Entrant]]:
    """Group by signature, in order of first appearance; without a signature one is alone."""
    found: dict[int | str, list[Entrant]] = {}
    for entrant in entrants:
        key = entrant.id if entrant.signature is None else entrant.signature
        found.setdefault(key, []).append(entrant)
    return list(found.values())


def enter(entrants: Sequence[Entrant], shortlist: str) -> tuple[Sequence[Entrant], list[int]]:
    """Who may play, and who may not, best first: with `tests`, those that fail a public example stay out.

    If all fail, the examples may have been misread: then everyone plays.
    """
    if shortlist == "all" or not any(_passed(one) == 1 for one in entrants):
        return entrants, []
    out = sorted((one for one in entrants if _passed(one) < 1), key=_passed, reverse=True)
    return [one for one in entrants if _passed(one) == 1], [one.id for one in out]


def _passed(entrant: Entrant) -> float:
    return entrant.features.get("tests_passed", 0.0)


def dedup(entrants: Sequence[Entrant], representative: str, rng: Random) -> Pool:
    """Keep one entrant of each cluster; the size of a cluster breaks ties but earns no score."""
    cluster_size: dict[int, int] = {}
    others: dict[int, list[int]] = {}
    for members in clusters(entrants):
        chosen = members[0] if len(members) == 1 else _represent(members, representative, rng)
        cluster_size[chosen.id] = len(members)
        others[chosen.id] = [member.id for member in members if member is not chosen]
    return Pool(cluster_size, others)


def count_votes(entrants: Sequence[Entrant], pool: Pool) -> dict[int, int]:
    """Votes for each player: the size of its cluster, but none for texts without an answer beside answers."""
    kind = {entrant.id: entrant.answer for entrant in entrants}
    only_texts = all(kind[player] == "text" for player in pool.cluster_size)
    return {
        player: size if only_texts or kind[player] != "text" else 0
        for player, size in pool.cluster_size.items()
    }


def middling(members: Sequence[Entrant], luck: Mapping[int, float]) -> list[int]:
    """Those of usual length first: neither a bare answer nor a ramble stands for the others."""
    sizes = {member.id: member.sizes[Level.FULL] for member in members}
    middle = median(sizes.values())
    return sorted(sizes, key=lambda one: (abs(sizes[one] - middle), luck[one]))


def keep_all(entrants: Sequence[Entrant]) -> Pool:
    """Leave Stage 0 out: everyone plays and stands for themselves."""
    return Pool({entrant.id: 1 for entrant in entrants}, {entrant.id: [] for entrant in entrants})


def _represent(members: list[Entrant], rule: str, rng: Random) -> Entrant:
    if rule == "longest":
        return max(members, key=lambda entrant: entrant.sizes[Level.FULL])
    if rule == "shortest":
        return min(members, key=lambda entrant: entrant.sizes[Level.FULL])
    return rng.choice(members) if rule == "random" else members[0]
