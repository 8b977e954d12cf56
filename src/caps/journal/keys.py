"""Keys of requests: the explicit, versioned list of what makes two requests the same.

Invariants:

* Everything that may change a reply is in the list; nothing else is (address, API key, connections).
* Extra fields are listed as the run folder records them, so a replay finds the replies to requests whose
  texts are recorded as digests.
* A change to the list or its encoding is a new `VERSION`: old replies are then not found, but never mistaken.
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
    """A request with the fields that make up its key, such as `models.base.Request`."""

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
    def attempt(self) -> int: ...  # noqa: D102
    @property
    def extra(self) -> Mapping[str, object]: ...  # noqa: D102


def request_key(request: KeyedRequest, *, digest: str | None = None) -> str:
    """The key of a request; `digest` is its `prompt_digest`, if already known."""
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
        *([request.attempt] if request.attempt else []),
    ]
    try:
        return hashlib.sha256(msgspec.json.encode(listed, order="deterministic")).hexdigest()
    except (TypeError, UnicodeEncodeError) as error:
        names = ", ".join(map(repr, request.extra))
        raise SettingError(f"extra {names}: must be JSON values ({error})") from None


def prompt_digest(messages: Iterable[Message]) -> str:
    """Digest of chat messages, which the journal stores instead of the prompt."""
    parts: list[bytes] = []
    for message in messages:
        role = message.role.encode("utf-8", "surrogatepass")
        content = message.content.encode("utf-8", "surrogatepass")
        # Lengths come first, so that different lists of messages cannot produce the same bytes.
        parts += (b"%d:%b%d:" % (len(role), role, len(content)), content)
        parts += [f"{one.kind}:{one.digest}:{one.detail}:{one.at};".encode() for one in message.media]
    return hashlib.sha256(b"".join(parts)).hexdigest()
