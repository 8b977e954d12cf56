"""Requests that are none of ours: sent on as they are, and what comes back likewise, streams included."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from caps.core.secrets import Secrets, StreamScrubber
from caps.models.http import Upstream
from caps.models.wire import FORWARDED_BYTES, OversizedReplyError, limited
from caps.server.asgi import Headers, Receive, Scope, Send, send_last, send_more, send_start
from caps.server.crowd import Crowd
from caps.server.refusals import Refusal
from caps.server.replies import attended

PATHS = ("chat/completions", "completions", "embeddings", "responses")
# Neither cookies nor anything about the connection, which is another one.
KEPT = ("content-type", "retry-after", "retry-after-ms", "x-request-id")


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A reply that is the upstream's."""

    upstream: Upstream
    crowd: Crowd
    path: str
    body: bytes
    seconds: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send on, and back."""
        await attended(self._pass_on(send), receive)

    async def _pass_on(self, send: Send) -> None:
        until = asyncio.get_running_loop().time() + self.seconds
        async with self.crowd.turn(until), self._response() as response:
            # Some servers repeat the key they were sent, which is not the client's.
            status = response.status if response.status < 600 else 502
            secrets = self.upstream.secrets(failed=status >= 400)
            scrubber = StreamScrubber(secrets)
            await send_start(send, status, _kept(response, secrets))
            async for part in limited(response, FORWARDED_BYTES):
                if clean := scrubber.feed(part):
                    await send_more(send, clean)
            await send_last(send, scrubber.end())

    @asynccontextmanager
    async def _response(self) -> AsyncIterator[aiohttp.ClientResponse]:
        started = False
        try:
            async with self.upstream.post(self.path, self.body) as response:
                started = True
                yield response
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            fault = Refusal(502, "the model server cannot be reached", code="upstream_unreachable")
        except TimeoutError:
            fault = Refusal(504, "the model server did not reply in time", code="upstream_timeout")
        except OversizedReplyError:
            fault = Refusal(502, "the model server sent more than is passed on", code="upstream_oversized")
        except (aiohttp.ClientError, OSError):
            words = "the model server broke off" if started else "the model server sent no reply"
            fault = Refusal(502, words, code="upstream_server")
        else:
            return
        raise fault  # not where it was caught: what aiohttp raises may hold the request with its headers


def _kept(response: aiohttp.ClientResponse, secrets: Secrets) -> Headers:
    return [
        (name.lower().encode("latin-1"), secrets.scrub_text(value).encode("latin-1", "replace"))
        for name, value in response.headers.items()
        if (name.lower() in KEPT or name.lower().startswith("x-ratelimit-"))
        and name.isascii()
        and value.isprintable()
    ]
