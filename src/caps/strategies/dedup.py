"""Stage 0 (Dedup): entrants with equal signatures form a cluster, one of them stands for it."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from caps.core.types import Entrant, Level

REPRESENTATIVES = ("longest", "first", "shortest", "random")


class Pool(NamedTuple):
    """Who plays, how many each stands for, and who only follows because an equal plays."""

    cluster_size: dict[int, int]
    merged: list[int]


def clusters(entrants: Sequence[Entrant]) -> list[list[Entrant]]:
    """Group by signature, in order of first appearance; without a signature one is alone."""
    found: dict[int | str, list[Entrant]] = {}
    for entrant in entrants:
        key = entrant.id if entrant.signature is None else entrant.signature
        found.setdefault(key, []).append(entrant)
    return list(found.values())


def dedup(entrants: Sequence[Entrant], representative: str, rng: Random) -> Pool:
    """Keep one entrant of each cluster; the size of a cluster breaks ties but earns no score."""
    cluster_size: dict[int, int] = {}
    merged: list[int] = []
    for members in clusters(entrants):
        chosen = members[0]
        if len(members) > 1:
            chosen = _represent(members, representative, rng)
            merged += [member.id for member in members if member is not chosen]
        cluster_size[chosen.id] = len(members)
    return Pool(cluster_size, merged)


def keep_all(entrants: Sequence[Entrant]) -> Pool:
    """Leave Stage 0 out: everyone plays and stands for themselves."""
    return Pool({entrant.id: 1 for entrant in entrants}, [])


def _represent(members: list[Entrant], rule: str, rng: Random) -> Entrant:
    if rule == "longest":
        return max(members, key=lambda entrant: entrant.sizes[Level.FULL])
    if rule == "shortest":
        return min(members, key=lambda entrant: entrant.sizes[Level.FULL])
    return rng.choice(members) if rule == "random" else members[0]
