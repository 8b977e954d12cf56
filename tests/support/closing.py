"""Models, graders, finders and readers in a context that closes them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar


class Closable(Protocol):
    async def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


@asynccontextmanager
async def closing(opened: T) -> AsyncIterator[T]:
    """Close it in the end, whatever happened."""
    try:
        yield opened
    finally:
        await opened.close()
