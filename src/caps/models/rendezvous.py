"""Who of several is asked first: weighted rendezvous hashing; pure.

Every group ranks all servers by itself, so that one more or less moves only its own share of the groups, and
who is next in line for a group is the same for all its calls (Thaler and Ravishankar 1998).
"""

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")
_STEPS = 1 << 64


def ranked(group: bytes, entries: Sequence[tuple[str, float, T]]) -> tuple[T, ...]:
    """What the entries (name, weight, value) stand for, first choice first.

    -w / ln(u) with an even u puts each first as often as its share of the weights.
    """
    digest = blake2b(group, digest_size=16).digest()

    def score(entry: tuple[str, float, T]) -> float:
        name, weight, _ = entry
        drawn = int.from_bytes(blake2b(digest + name.encode(), digest_size=8).digest(), "big")
        return -weight / math.log((drawn + 0.5) / _STEPS)

    return tuple(entry[2] for entry in sorted(entries, key=score, reverse=True))
