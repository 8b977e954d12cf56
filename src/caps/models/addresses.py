"""The address of an endpoint as people write it, or of several that serve one model.

Several stand behind one another with commas or blanks between, each with a weight if it is not 1:
`http://a:8000/v1,http://b:8000/v1=2`. The weight ends the path, so a query stays what it is:
`https://c/v1=2?api-version=3` has the weight 2.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from yarl import URL

from caps.core.errors import SettingError

# A comma inside an address parts nothing: the next address begins with its scheme.
_BETWEEN = re.compile(r"[\s,]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_WEIGHED = re.compile(r"(https?://[^?#]*[^?#=])=(\d+(?:\.\d+)?|\.\d+)(?=$|[?#])(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Listed:
    """One address of several, and its share of the work next to the others'."""

    url: str
    weight: float = 1.0


def parse_base(base_url: str) -> URL:
    """A base URL; without a path `/v1` is meant, and the path of chat completions is taken off."""
    words = base_url.strip().rstrip("/").removesuffix("/chat/completions")
    try:
        url = URL(words)
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"} or not url.host:
        raise SettingError(
            "the base URL must look like http://localhost:8000/v1 or https://host/v1"
            f", not {base_url.partition('@')[2] or base_url!r}"
        )
    return url if url.path.strip("/") else url.with_path("/v1", keep_query=True)


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
        base = str(parse_base(url))
        if weight <= 0:
            raise SettingError(f"{shown_address(url)}: its weight must be above 0; leave out who is to rest")
        weights[base] = weights.get(base, 0.0) + weight
    return tuple(Listed(url, weight) for url, weight in weights.items())


def plain_addresses(words: str) -> list[str]:
    """The addresses in a text, without their weights."""
    return [listed.url for listed in parse_fleet(words)] if is_fleet(words) else [words]


def shown_address(words: str) -> str:
    """One address or several as they may be written down: no passwords."""
    return ",".join(re.sub(r"(?<=://)[^/?#\s]*@", "", word) for word in split_addresses(words))
