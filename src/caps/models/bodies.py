"""Bodies of endpoints' replies, read within a limit that counts bytes after decompression.

Everything that this package reads from an endpoint goes through `read_body`, `read_start` or `limited`.
aiohttp unpacks a body piece by piece while it is read so, and never more than a piece beyond what was asked
for: a bomb costs no more memory than the limit. (`ClientResponse.read` unpacks everything first.)
"""

from collections.abc import AsyncIterator

import aiohttp

REPLY_BYTES = 16 << 20  # of a reply that is read as JSON: a long thought with log-probabilities has a quarter
ERROR_BYTES = 64 << 10  # of the body of an error, of which 300 characters are quoted
FORWARDED_BYTES = 256 << 20  # of a body that is passed on and not held: many embeddings have half


class OversizedReplyError(ValueError):
    """A body beyond its limit; the rest of it was not read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a body of more than {limit:,} bytes")
        self.limit = limit


async def read_body(response: aiohttp.ClientResponse, limit: int = REPLY_BYTES) -> bytes:
    """The whole body, or `OversizedReplyError`; raises what aiohttp does."""
    body = bytearray()
    async for part in limited(response, limit):
        body += part
    return bytes(body)


async def read_start(response: aiohttp.ClientResponse, limit: int = ERROR_BYTES) -> bytes:
    """The beginning of a body, which may be all of it; raises what aiohttp does."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) >= limit:
            response.close()  # the rest is not waited for
            break
    return bytes(body[:limit])


async def limited(response: aiohttp.ClientResponse, limit: int) -> AsyncIterator[bytes]:
    """The parts of a body as they come; `OversizedReplyError` where there are more bytes than allowed."""
    packed = response.headers.get("Content-Encoding", "identity").lower() != "identity"
    told = response.content_length
    if told is not None and told > limit and not packed:
        response.close()
        raise OversizedReplyError(limit)
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > limit:
            response.close()
            raise OversizedReplyError(limit)
        yield part
