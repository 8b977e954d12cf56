"""The Batch API of an endpoint: lines of Batch files, uploads, batches and their results.

Rules that must not be broken:

* A batch costs money when it is made, so making is the one call that is not simply tried again: after a reply
  that was lost, the endpoint's list is looked through for a batch of that file first.
* Everything else is tried again where that may help, as patiently as a live call.
* A file of results may have so many bytes as its requests may have replies, and no more than `RESULT_BYTES`.
"""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import aiohttp
import msgspec

from caps.core.errors import MissingFeatureError, TimedOutError
from caps.core.secrets import StreamScrubber
from caps.models import faults
from caps.models.base import Completion, Request
from caps.models.faults import Attempts, Fault, Retries
from caps.models.http import HttpModel
from caps.models.pending import PendingRequest
from caps.models.wire import (
    NAME_CHARS,
    RENAMED,
    REPLY_BYTES,
    OversizedReplyError,
    completion_in,
    decode,
    embedded_status,
    encode_body,
    limited,
    printable,
    read_body,
    read_start,
)

# What a Batch API says of files and batches, read as loosely as servers write it; pure.


_ID = re.compile(r"[\w.:@~+=-]{1,200}(?:/[\w.:@~+=-]{1,200}){0,4}")  # some have a folder in them
_WORD = 100  # characters of a status
_COUNT = 10**12
ENDED = ("completed", "failed", "expired", "cancelled")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as the endpoint tells of it; `said` is why it failed as a whole."""

    id: str
    status: str
    source: str = ""
    total: int = 0
    done: int = 0
    output: str | None = None
    errors: str | None = None
    said: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status in ENDED


def read_batch(reply: Any) -> Batch:
    """Read a batch; `ValueError` where it is none."""
    if not isinstance(reply, dict):
        raise ValueError("no batch")
    counts, errors = reply.get("request_counts"), reply.get("errors")
    counts = counts if isinstance(counts, dict) else {}
    rows = errors.get("data") if isinstance(errors, dict) else errors
    said = [_said(row) for row in rows[:10]] if isinstance(rows, list) else []
    return Batch(
        read_id(reply),
        _word(reply.get("status")).lower(),
        _name(reply.get("input_file_id")) or "",
        _count(counts.get("total")),
        _count(counts.get("completed")) + _count(counts.get("failed")),
        _name(reply.get("output_file_id")),
        _name(reply.get("error_file_id")),
        "; ".join(filter(None, said))[:300],
    )


def read_page(reply: Any) -> tuple[list[Batch], bool]:
    """Read a page of the list of batches, and whether there are more."""
    rows = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(rows, list):
        raise ValueError("no list of batches")
    return [read_batch(row) for row in rows if isinstance(row, dict)], reply.get("has_more") is True


def read_id(reply: Any) -> str:
    """The id of a file or batch; `ValueError` where there is none."""
    name = _name(reply.get("id")) if isinstance(reply, dict) else None
    if name is None:
        raise ValueError("no id in it")
    return name


def _name(value: object) -> str | None:
    """An id, which becomes part of a path: what would lead elsewhere is none."""
    fine = isinstance(value, str) and _ID.fullmatch(value) and ".." not in value
    return str(value) if fine else None


def _said(row: object) -> str:
    return _word(row.get("message") if isinstance(row, dict) else row, 300)


def _word(value: object, most: int = _WORD) -> str:
    return printable(value, most) if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 < value <= _COUNT else 0


# The lines of Batch files, as OpenAI's Batch API and `vllm run-batch` have them: a request, a result;
# pure.
#
# A request's `custom_id` is its key in the journal and its body the bytes a live call would send, so
# live, batch and replay find one another's replies. Reading is tolerant like that of live replies: see
# `wire`.


URL = "/v1/chat/completions"
UNRUN = ("batch_expired", "batch_cancelled")
WHERE = "the batch"
_HEAD = re.compile(rb'\{"custom_id":"(\w+)"')


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a result: the key of its request, an id of its own, status, body and error as they came."""

    key: str
    id: str
    status: int | None
    body: Any
    error: Any


def encode_line(key: str, request: Request, *, limit_name: str = "max_tokens") -> bytes:
    """Write a request as a line of a batch."""
    head = msgspec.json.encode({"custom_id": key, "method": "POST", "url": URL})
    return head[:-1] + b',"body":' + encode_body(request, limit_name=limit_name) + b"}\n"


def key_in(line: bytes) -> str | None:
    """The key of a line that `encode_line` wrote; the prompt behind it is not read."""
    found = _HEAD.match(line)
    return found[1].decode() if found else None


def read_item(line: bytes) -> Item:
    """Read a line of a result; `ValueError` says what is wrong with it."""
    try:
        row = decode(line)
    except ValueError:
        raise ValueError("not JSON") from None
    key = row.get("custom_id") if isinstance(row, dict) else None
    if not isinstance(key, str):
        raise ValueError("no custom_id in it")
    if "response" not in row and "error" not in row:
        words = "a request, not a result" if "body" in row else "neither a response nor an error in it"
        raise ValueError(words)
    response, error, own = row.get("response"), row.get("error"), row.get("id")
    response = response if isinstance(response, dict) else {}
    body = response if "choices" in response else response.get("body")
    status = response.get("status_code")
    # Without an id of its own, a line is known by its content.
    name = own[:NAME_CHARS] if isinstance(own, str) and own else sha256(line.strip()).hexdigest()[:16]
    return Item(key, name, status if isinstance(status, int) else None, body, error or None)


def read_result(item: Item, awaited: PendingRequest) -> Completion | Fault:
    """The reply of an item, or what went wrong with it."""
    said = item.error if item.error is not None else item.body
    if _code(item.error) in UNRUN:
        return Fault(TimedOutError("the batch ended before this request was run"), seen=False)
    failed = item.status if item.status not in (None, 200) else embedded_status(item.body)
    if item.error is not None or failed is not None:
        status = failed if failed is not None and 400 <= failed < 600 else 500
        return faults.refused(status, said, {}, address=WHERE, model=awaited.model, now=0.0)
    try:
        return completion_in(item.body, lambda: awaited.prompt)
    except ValueError as error:
        return faults.garbled(WHERE, str(error))


def _code(error: Any) -> str:
    return str(error.get("code")) if isinstance(error, dict) else ""


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
        tries = Attempts(self._retries, self._rng)
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
