"""The addresses of several servers of one model, as people write them.

They stand behind one another with commas or blanks between, each with a weight if that is not 1:
`http://a:8000/v1,http://b:8000/v1=2`. The weight ends the path, so a query stays what it is:
`https://c/v1=2?api-version=3` has the weight 2.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from caps.core.errors import SettingError
from caps.core.secrets import shown_address

# A comma inside an address parts nothing: the next address begins with its scheme.
_BETWEEN = re.compile(r"[\s,]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_WEIGHED = re.compile(r"(https?://[^?#]*)=(\d+(?:\.\d+)?|\.\d+)((?:[?#].*)?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Listed:
    """One address of several, and its share of the work next to the others'."""

    url: str = field(repr=False)  # which may hold a password
    weight: float = 1.0


def join_addresses(addresses: str | Iterable[str] | None) -> str:
    """Several addresses as one text; one stays as it is."""
    if addresses is None or isinstance(addresses, str):
        return addresses or ""
    return ",".join(word for word in addresses if word.strip())


def split_addresses(words: str) -> list[str]:
    """The addresses in a text, in order."""
    return [word for word in _BETWEEN.split(words.strip(" \t\r\n,")) if word]


def is_fleet(words: str) -> bool:
    """Whether this means several addresses, or one with a weight."""
    return len(split_addresses(words)) > 1 or _WEIGHED.fullmatch(words.strip()) is not None


def parse_fleet(words: str) -> tuple[Listed, ...]:
    """The addresses of a fleet; one that is listed twice is one, of both weights."""
    weights: dict[str, float] = {}
    for word in split_addresses(words):
        weighed = _WEIGHED.fullmatch(word)
        url = word if weighed is None else weighed[1] + weighed[3]
        weight = 1.0 if weighed is None else float(weighed[2])
        if weight <= 0:
            raise SettingError(f"{shown_address(word)}: a weight is above 0; leave out who is to rest")
        weights[url] = weights.get(url, 0.0) + weight
    return tuple(Listed(url, weight) for url, weight in weights.items())
