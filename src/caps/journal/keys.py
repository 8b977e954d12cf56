"""What makes two requests the same: an explicit, versioned list.

Rules that must not be broken:

* Whatever may change a reply is in the list; whatever may not (address, API key, connections) is out of it.
* Extra fields are in it as the folder of a run records them, so a replay finds replies to requests whose
  texts stand there as digests.
* A change to the list or its encoding is a new `VERSION`: old replies are then not found, never mistaken.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from caps.core.errors import SettingError
from caps.core.secrets import recorded_extra
from caps.core.types import Message

VERSION = "caps-key-1"


class KeyedRequest(Protocol):
    """The fields of a request that make up its key; `models.base.Request` has them."""

    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def template(self) -> str: ...  # noqa: D102
    @property
    def messages(self) -> tuple[Message, ...]: ...  # noqa: D102
    @property
    def temperature(self) -> float: ...  # noqa: D102
    @property
    def top_p(self) -> float | None: ...  # noqa: D102
    @property
    def max_tokens(self) -> int: ...  # noqa: D102
    @property
    def seed(self) -> int | None: ...  # noqa: D102
    @property
    def top_logprobs(self) -> int: ...  # noqa: D102
    @property
    def draw(self) -> int: ...  # noqa: D102
    @property
    def extra(self) -> Mapping[str, object]: ...  # noqa: D102


def request_key(request: KeyedRequest, *, digest: str | None = None) -> str:
    """Content address of a request; `digest` is its `prompt_digest`, if it is known already."""
    listed = [
        VERSION,
        request.model,
        request.template,
        digest or prompt_digest(request.messages),
        float(request.temperature),
        None if request.top_p is None else float(request.top_p),
        request.max_tokens,
        request.seed,
        request.top_logprobs,
        request.draw,
        recorded_extra(request.extra),
    ]
    try:
        return hashlib.sha256(msgspec.json.encode(listed, order="deterministic")).hexdigest()
    except (TypeError, UnicodeEncodeError) as error:
        names = ", ".join(map(repr, request.extra))
        raise SettingError(f"extra {names}: must be what JSON can hold ({error})") from None


def prompt_digest(messages: Iterable[Message]) -> str:
    """Digest of chat messages: what the journal keeps in place of a prompt."""
    digest = hashlib.sha256()
    for message in messages:
        role = message.role.encode("utf-8", "surrogatepass")
        content = message.content.encode("utf-8", "surrogatepass")
        # Lengths go first, so that no two lists of messages run together into the same bytes.
        digest.update(b"%d:%b%d:" % (len(role), role, len(content)))
        digest.update(content)
    return digest.hexdigest()
