"""The Batch API of an endpoint: files go up, a batch is made of one, and its results come down.

Rules that must not be broken:

* A batch costs money when it is made, so making is the one call that is not simply tried again: after a reply
  that was lost, the endpoint's list is looked through for a batch of that file first.
* Everything else is tried again where that may help, as patiently as a live call.
* A file of results may have so many bytes as its requests may have replies, and no more than `RESULT_BYTES`.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import aiohttp
import msgspec

from caps.core.errors import MissingFeatureError
from caps.core.secrets import StreamScrubber
from caps.models import faults
from caps.models.batch_lines import URL
from caps.models.batch_wire import Batch, read_batch, read_id, read_page
from caps.models.bodies import REPLY_BYTES, OversizedReplyError, limited, read_body, read_start
from caps.models.faults import Fault
from caps.models.http import HttpModel
from caps.models.retries import Retries, Tries
from caps.models.wire import RENAMED, decode

PAGE = 100  # batches of one look through the list
PAGES = 20
RESULT_BYTES = 8 << 30  # of a file of results: 50,000 replies of 160 kB
LEAST_RESULT_BYTES = 64 << 20
UNHURRIED = aiohttp.ClientTimeout(total=4 * 3600, sock_connect=10, sock_read=600)  # for hundreds of megabytes
_ABSENT = (404, 405, 501)

T = TypeVar("T")


class Batches:
    """Calls the Batch API of one endpoint; `model` is named where an error asks for it."""

    def __init__(
        self,
        endpoint: HttpModel,
        model: str,
        *,
        window: str = "24h",
        retries: Retries | None = None,
        rng: Random | None = None,
    ) -> None:
        self._endpoint, self._model, self._window = endpoint, model, window
        self._retries, self._rng = retries or Retries(), rng or Random()
        self._renamed = False

    @property
    def address(self) -> str:
        """Where it is, as it may be shown."""
        return self._endpoint.address

    @property
    def limit_name(self) -> str:
        """What this server calls its limit on tokens."""
        return RENAMED if self._renamed else self._endpoint.limit_name

    def rename_limit(self) -> None:
        """Call that limit by its other name from now on."""
        self._renamed = True

    async def upload(self, path: Path) -> str:
        """Send a file of requests up; its id there."""

        async def once() -> str | Fault:
            with path.open("rb") as file, aiohttp.MultipartWriter("form-data") as form:
                form.append("batch").set_content_disposition("form-data", name="purpose")
                part = form.append(file, {"Content-Type": "application/jsonl"})
                part.set_content_disposition("form-data", name="file", filename=path.name)
                headers = {"Content-Type": form.headers["Content-Type"]}
                return await self._once(
                    "POST", "files", read_id, data=form, headers=headers, timeout=UNHURRIED
                )

        return await self._until_done(once)

    async def create(self, file: str) -> Batch:
        """Make a batch of a file that is up there; at most one, whatever happens to the reply."""
        wanted = {"input_file_id": file, "endpoint": URL, "completion_window": self._window}

        async def once() -> Batch | Fault:
            made = await self._once("POST", "batches", read_batch, data=msgspec.json.encode(wanted))
            if isinstance(made, Fault) and made.seen and made.retry:
                return await self.find(file) or made
            return made

        return await self._until_done(once)

    async def look(self, name: str) -> Batch | None:
        """How a batch stands; none where the endpoint does not know it."""
        return await self._until_done(
            lambda: self._once("GET", f"batches/{name}", read_batch, absent=lambda: None)
        )

    async def find(self, file: str) -> Batch | None:
        """The batch that was made of a file, as far back as the list is looked through."""
        after: dict[str, str] = {}
        for _ in range(PAGES):
            params = {"limit": str(PAGE), **after}
            rows, more = await self._until_done(
                lambda params=params: self._once("GET", "batches", read_page, absent=_no_list, params=params)  # type: ignore[misc]
            )
            for batch in rows:
                if batch.source == file:
                    return batch
            if not more or not rows:
                return None
            after = {"after": rows[-1].id}
        return None

    async def download(self, file: str, to: Path, *, requests: int = 0) -> None:
        """Bring a file of results down, with the replies to so many requests."""
        limit = min(max(LEAST_RESULT_BYTES, requests * REPLY_BYTES), RESULT_BYTES)

        async def once() -> Path | Fault:
            # Some providers keep results elsewhere; aiohttp does not carry the key to another host.
            return await self._once(
                "GET",
                f"files/{file}/content",
                lambda _: to,
                keep=to,
                limit=limit,
                allow_redirects=True,
                timeout=UNHURRIED,
            )

        await self._until_done(once)

    async def _until_done(self, once: Callable[[], Coroutine[Any, Any, T | Fault]]) -> T:
        """Try until it works or does not help any more."""
        tries = Tries(self._retries, self._rng)
        while True:
            outcome = await once()
            if not isinstance(outcome, Fault):
                return outcome
            pause = None
            if outcome.retry:
                pause = tries.pause(
                    loading=outcome.loading, known=True, asked=outcome.wait, now=time.monotonic()
                )
            if pause is None:
                raise outcome.error
            await asyncio.sleep(pause)

    async def _once(
        self,
        verb: str,
        path: str,
        read: Callable[[Any], T],
        *,
        keep: Path | None = None,
        limit: int = REPLY_BYTES,
        absent: Callable[[], T] | None = None,
        **more: Any,
    ) -> T | Fault:
        """One call; what comes back is read, or kept in a file."""
        where = self.address
        try:
            async with self._endpoint.call(verb, path, **more) as response:
                if response.status == 200 and keep is not None:
                    await self._keep(response, keep, limit)
                    return read(None)
                status, headers = response.status, response.headers
                payload = await (read_body(response, limit) if 200 <= status < 300 else read_start(response))
        except OversizedReplyError as error:
            return faults.oversized(where, error.limit)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return faults.unreachable(where, str(error) or type(error).__name__)
        except TimeoutError:
            return faults.broken_off(where, "no reply in time")
        except (aiohttp.ClientError, OSError) as error:
            return faults.broken_off(where, type(error).__name__)
        if status in _ABSENT and absent is not None:
            return absent()
        return self._read(status, headers, payload, read, path)

    def _read(
        self, status: int, headers: Mapping[str, str], payload: bytes, read: Callable[[Any], T], path: str
    ) -> T | Fault:
        where = self.address
        if status in _ABSENT:
            words = (
                f"{where} has no Batch API (status {status} at /{path}): run its own batch program on the "
                "files of caps batch prepare, or use --engine local"
            )
            return Fault(MissingFeatureError(words), retry=False)
        if not 200 <= status < 300:
            said = self._endpoint.quotable(payload)
            return faults.refused(status, said, headers, address=where, model=self._model, now=time.time())
        try:
            return read(decode(self._endpoint.scrub(payload)))
        except ValueError as error:
            return faults.garbled(where, f"{error} at /{path}")

    async def _keep(self, response: aiohttp.ClientResponse, path: Path, limit: int) -> None:
        """Write a body to a file, without secrets."""
        scrubber = StreamScrubber(self._endpoint.secrets(failed=False))
        with path.open("wb") as file:
            async for part in limited(response, limit):
                file.write(scrubber.feed(part))
            file.write(scrubber.end())


def _no_list() -> tuple[list[Batch], bool]:
    return [], False
