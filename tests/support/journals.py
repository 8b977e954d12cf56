"""Replies, and storing them in a journal."""

import asyncio

from caps.journal.records import Reply
from caps.journal.store import Journal


def reply(key: str, text: str = "words", model: str = "m", **more: object) -> Reply:
    return Reply(key, 0.0, model, "served", "pairwise", "d" * 64, "stop", text, **more)


def append(journal: Journal, *replies: Reply) -> list[Reply]:
    """Store replies together; those that stand under their keys."""

    async def run() -> list[Reply]:
        return await asyncio.gather(*map(journal.append, replies))

    return asyncio.run(run())
