"""The seam to a model server that others stand before: one, or a fleet of them."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import aiohttp

from caps.core.secrets import Secrets
from caps.models.base import Connected
from caps.models.http import Exchanged

T = TypeVar("T")


class Upstream(Connected, Protocol):
    """A model server whose own words can be sent and read."""

    @property
    def address(self) -> str:
        """Where it is, as it may be shown."""
        ...

    async def exchange(
        self, write: Callable[[str], bytes], read: Callable[[Any], T], *, model: str
    ) -> Exchanged[T]:
        """Send what `write` makes and `read` the reply, trying again where that may help."""
        ...

    def post(self, path: str, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send bytes to a path below the base URL as they are; raises what aiohttp does."""
        ...

    async def listing(self) -> tuple[int, Any]:
        """Status, and what it says of its models; raises what aiohttp does, or `ValueError`."""
        ...

    def secrets(self, *, failed: bool) -> Secrets:
        """What may not stand in a reply that is passed on; short keys may, unless it is an error."""
        ...
