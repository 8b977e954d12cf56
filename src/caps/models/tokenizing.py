"""Token counts from the model server: vLLM, SGLang and llama.cpp have a `/tokenize` endpoint."""

import asyncio
from collections.abc import Iterable
from typing import Any

import aiohttp

from caps.models.fleet import parse_fleet
from caps.models.wire import decode, read_body

SECONDS = 5.0  # for all texts together
MAX_TEXTS = 20
MAX_CHARS = 20_000  # of a text


async def tokens_per_character(
    address: str, model: str, texts: Iterable[str], *, api_key: str | None = None, seconds: float = SECONDS
) -> float | None:
    """Mean tokens per character of these texts, or None if the server cannot count them.

    A fleet is represented by its first server. This never raises: a plan falls back to its estimate.
    """
    url = parse_fleet(address)[0].url if "://" in address else ""
    if not url.startswith("http"):
        return None
    root = url.partition("?")[0].rstrip("/").removesuffix("/v1")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    samples = [text[:MAX_CHARS] for text, _ in zip(texts, range(MAX_TEXTS), strict=False) if text.strip()]
    try:
        async with (
            asyncio.timeout(seconds),
            aiohttp.ClientSession(headers=headers, cookie_jar=aiohttp.DummyCookieJar()) as session,
        ):
            counts = [await _count(session, f"{root}/tokenize", model, text) for text in samples]
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return None
    characters = sum(map(len, samples))
    return sum(counts) / characters if characters and all(counts) else None


async def _count(session: aiohttp.ClientSession, url: str, model: str, text: str) -> int:
    """Tokens of one text, 0 if the reply is invalid. vLLM reads `prompt`, llama.cpp `content`."""
    body = {"model": model, "prompt": text, "content": text}
    async with session.post(url, json=body, allow_redirects=False) as response:
        if response.status != 200:
            return 0
        reply: Any = decode(await read_body(response))
    if not isinstance(reply, dict):
        return 0
    count, tokens = reply.get("count"), reply.get("tokens")
    if isinstance(count, int) and not isinstance(count, bool):
        return count if 0 < count <= len(text) + 8 else 0
    return len(tokens) if isinstance(tokens, list) and len(tokens) <= len(text) + 8 else 0
