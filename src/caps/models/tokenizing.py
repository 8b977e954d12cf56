"""Tokens of texts: by the `tokenizer.json` of a model, or as its server counts them.

vLLM, SGLang and llama.cpp have a `/tokenize`. A `tokenizer.json` comes with most open models; reading one
needs the package `tokenizers` (the extra of that name), which is imported here only.
"""

import asyncio
import dataclasses
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from caps.core.errors import MissingExtraError, SettingError
from caps.core.secrets import split_addresses
from caps.files import read_text
from caps.models.base import Completion, Model, Recalls, Request
from caps.models.http import NO_LIST, HttpModel
from caps.models.wire import decode, read_body

SECONDS = 5.0  # for all texts together; a server that takes longer is not worth waiting for
MAX_TEXTS = 20
MAX_CHARS = 20_000  # characters of a text
MAX_FILE_BYTES = 64 * 2**20  # bytes; those of large vocabularies have about 30 MB
INLINE_CHARS = (
    20_000  # characters that are counted in the event loop; counting more would hold up other calls
)


class Tokenizer:
    """Counts the tokens of texts as the `tokenizer.json` of a model says."""

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer as Library  # noqa: PLC0415
        except ImportError:
            raise MissingExtraError("tokenizers", "tokenizers", "a tokenizer.json") from None
        text = read_text(path, option="tokenizer", most=MAX_FILE_BYTES)
        try:
            self._library = Library.from_str(text)
        except Exception as error:  # the library raises bare ones
            raise SettingError(f"tokenizer {path}: is not a tokenizer.json: {str(error)[:200]}") from None
        self._library.no_truncation()
        self._library.no_padding()

    def count(self, text: str) -> int:
        """Tokens of a text, without those that mark its beginning and end."""
        clean = text.encode("utf-8", "replace").decode()  # a lone surrogate has no tokens
        return len(self._library.encode(clean, add_special_tokens=False).ids)

    def rate(self, texts: Iterable[str]) -> float | None:
        """How many tokens a character of these texts takes; None where there is no text."""
        some = [text[:MAX_CHARS] for text, _ in zip(texts, range(MAX_TEXTS), strict=False) if text.strip()]
        return sum(map(self.count, some)) / sum(map(len, some)) if some else None


class CountedModel:
    """A model whose estimated usage is counted by a tokenizer; what a server counted itself stays.

    It is still said to be estimated: no tokenizer knows what the server's chat template adds.
    """

    def __init__(self, inner: Model, tokenizer: Tokenizer) -> None:
        self._inner, self._tokenizer = inner, tokenizer

    async def complete(self, request: Request) -> Completion:
        """Ask, and count where the server has not."""
        return await self._counted(request, await self._inner.complete(request))

    async def recall(self, request: Request) -> Completion | None:
        """The stored reply, counted in the same way."""
        stored = await self._inner.recall(request) if isinstance(self._inner, Recalls) else None
        return None if stored is None else await self._counted(request, stored)

    async def _counted(self, request: Request, completion: Completion) -> Completion:
        if not completion.usage.estimated:
            return completion
        texts = [*(message.content for message in request.messages), completion.text + completion.reasoning]
        if sum(map(len, texts)) <= INLINE_CHARS:
            *shown, written = map(self._tokenizer.count, texts)
        else:
            *shown, written = await asyncio.to_thread(lambda: [*map(self._tokenizer.count, texts)])
        return replace(
            completion, usage=dataclasses.replace(completion.usage, prompt=sum(shown), output=written)
        )

    async def close(self) -> None:
        """Close the model."""
        await self._inner.close()


async def tokens_per_character(
    address: str, model: str, texts: Iterable[str], *, api_key: str | None = None, seconds: float = SECONDS
) -> float | None:
    """Mean tokens per character of these texts, or None if the server cannot count them.

    Several servers are represented by the first. This never raises: a plan falls back to its estimate.
    """
    if not address.startswith("http"):
        return None
    samples = [text[:MAX_CHARS] for text, _ in zip(texts, range(MAX_TEXTS), strict=False) if text.strip()]
    try:
        server = HttpModel(split_addresses(address)[0], api_key)
        async with asyncio.timeout(seconds), AsyncExitStack() as stack:
            stack.push_async_callback(server.close)
            counts = [await _count(server, model, text) for text in samples]
    except (SettingError, *NO_LIST):
        return None
    characters = sum(map(len, samples))
    return sum(counts) / characters if characters and all(counts) else None


async def _count(server: HttpModel, model: str, text: str) -> int:
    """Tokens of one text, 0 if the reply is invalid. vLLM reads `prompt`, llama.cpp `content`."""
    body = {"model": model, "prompt": text, "content": text}
    async with server.post("/tokenize", msgspec.json.encode(body)) as response:
        if response.status != 200:
            return 0
        reply: Any = decode(await read_body(response))
    if not isinstance(reply, dict):
        return 0
    count, tokens = reply.get("count"), reply.get("tokens")
    if isinstance(count, int) and not isinstance(count, bool):
        return count if 0 < count <= len(text) + 8 else 0
    return len(tokens) if isinstance(tokens, list) and len(tokens) <= len(text) + 8 else 0
