"""Batches of requests: the lines of their files, the Batch API, and models whose replies arrive later.

Lines have the format of OpenAI's Batch API and `vllm run-batch`. The `custom_id` of a request is its journal
key and its body the bytes of a live call, so live calls, batches and replays share replies.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import aiohttp
import msgspec
from msgspec.structs import replace

from caps.core.errors import (
    AccessError,
    MissingFeatureError,
    ModelError,
    NotRecordedError,
    TimedOutError,
    UnknownModelError,
)
from caps.core.secrets import StreamScrubber
from caps.core.text import printable_line
from caps.journal.records import prompt_digest, request_key
from caps.journal.store import Journal
from caps.models import faults
from caps.models.base import Completion, Request, estimate_prompt
from caps.models.faults import Attempts, Fault, Retries
from caps.models.http import HttpModel
from caps.models.journaled import recalled
from caps.models.wire import (
    REPLY_BYTES,
    decode,
    embedded_status,
    encode_body,
    limited,
    parse_completion,
    read_body,
    read_start,
)

URL = "/v1/chat/completions"
NOT_RUN = ("batch_expired", "batch_cancelled")
SOURCE = "the batch"
RESULT_BYTES = 8 << 30  # of a result file: 50,000 replies of 160 kB
_HEAD = re.compile(rb'\{"custom_id":"(\w+)"')


@dataclass(frozen=True, slots=True)
class Item:
    """One result line: the key of its request, and status, body and error, unchecked."""

    key: str
    status: int | None
    body: Any
    error: Any


def encode_line(key: str, request: Request, *, limit_name: str = "max_tokens") -> bytes:
    """Serialize a request as a line of a batch file."""
    head = msgspec.json.encode({"custom_id": key, "method": "POST", "url": URL})
    return head[:-1] + b',"body":' + encode_body(request, limit_name=limit_name) + b"}\n"


def parse_key(line: bytes) -> str | None:
    """The key of a line that `encode_line` wrote; the prompt after it is not parsed."""
    match = _HEAD.match(line)
    return match[1].decode() if match else None


def read_item(line: bytes) -> Item:
    """Parse a result line; `ValueError` says which field is wrong."""
    try:
        row = decode(line)
    except ValueError:
        raise ValueError("not JSON") from None
    key = row.get("custom_id") if isinstance(row, dict) else None
    if not isinstance(key, str) or not key:
        raise ValueError("custom_id: missing, or not a text")
    if "response" not in row and "error" not in row:
        raise ValueError(
            "body: a request, not a result" if "body" in row else "response, error: both missing"
        )
    response = row.get("response")
    response = response if isinstance(response, dict) else {}
    body = response if "choices" in response else response.get("body")
    status = response.get("status_code")
    return Item(key, status if isinstance(status, int) else None, body, row.get("error") or None)


def read_result(item: Item, pending: "PendingRequest") -> Completion | Fault:
    """The reply of an item, or its fault."""
    if isinstance(item.error, dict) and str(item.error.get("code")) in NOT_RUN:
        return Fault(TimedOutError("the batch ended before this request was run"), seen=False)
    failed = item.status if item.status not in (None, 200) else embedded_status(item.body)
    if item.error is not None or failed is not None:
        status = failed if failed is not None and 400 <= failed < 600 else 500
        reply = item.body if item.error is None else item.error
        return faults.refused(status, reply, {}, address=SOURCE, model=pending.model, now=0.0)
    try:
        return parse_completion(item.body, lambda: pending.prompt)
    except ValueError as error:
        return faults.garbled(SOURCE, f"response.body: {error}")


# --- The Batch API of an endpoint: uploads, batches and their results ---
#
# Rules that must not be broken:
#
# * Creating a batch costs money, so it is the one call that is not simply retried: after a lost reply,
#   the list of batches is searched for one of that file first.
# * Every other call is retried with the same policy as a live call.
# * A result file may have at most `REPLY_BYTES` per request, and at most `RESULT_BYTES` in all.


_ID = re.compile(r"[\w.:@~+=-]{1,200}(?:/[\w.:@~+=-]{1,200}){0,4}")  # some contain a folder
_TEXT_CHARS = 300
_MAX_COUNT = 10**12
ENDED = ("completed", "failed", "expired", "cancelled")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as the endpoint reports it; `error` says why it failed as a whole."""

    id: str
    status: str
    source: str = ""
    done: int = 0
    output: str | None = None
    errors: str | None = None
    error: str = ""

    @property
    def ended(self) -> bool:
        """Whether it has reached a final status."""
        return self.status in ENDED


def read_batch(reply: Any) -> Batch:
    """Parse a batch; `ValueError` if the reply is not one."""
    if not isinstance(reply, dict):
        raise ValueError("no batch")
    counts, errors = reply.get("request_counts"), reply.get("errors")
    counts = counts if isinstance(counts, dict) else {}
    rows = errors.get("data") if isinstance(errors, dict) else errors
    rows = rows[:10] if isinstance(rows, list) else []
    messages = [_text(row.get("message") if isinstance(row, dict) else row) for row in rows]
    return Batch(
        read_id(reply),
        _text(reply.get("status")).lower(),
        _name(reply.get("input_file_id")) or "",
        _count(counts.get("completed")) + _count(counts.get("failed")),
        _name(reply.get("output_file_id")),
        _name(reply.get("error_file_id")),
        "; ".join(filter(None, messages))[:_TEXT_CHARS],
    )


def read_page(reply: Any) -> tuple[list[Batch], bool]:
    """Parse a page of the list of batches, and whether there are more."""
    rows = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(rows, list):
        raise ValueError("no list of batches")
    return [read_batch(row) for row in rows if isinstance(row, dict)], reply.get("has_more") is True


def read_id(reply: Any) -> str:
    """The id of a file or batch; `ValueError` if there is none."""
    name = _name(reply.get("id")) if isinstance(reply, dict) else None
    if name is None:
        raise ValueError("no id in it")
    return name


def _name(value: object) -> str | None:
    """A valid id: it becomes part of a path, so anything that would lead elsewhere is rejected."""
    valid = isinstance(value, str) and _ID.fullmatch(value) and ".." not in value
    return str(value) if valid else None


def _text(value: object) -> str:
    return printable_line(value[:_TEXT_CHARS]) if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 < value <= _MAX_COUNT else 0


PAGE = 100  # batches per page of the list
PAGES = 20
MIN_RESULT_BYTES = 64 << 20
TRANSFER_TIMEOUT = aiohttp.ClientTimeout(total=4 * 3600, sock_connect=10, sock_read=600)  # hundreds of MB
_ABSENT = (404, 405, 501)

T = TypeVar("T")


class BatchApi:
    """Client of the Batch API of one endpoint; `model` is named in error messages.

    `limit_name` is what this server calls the limit on output tokens.
    """

    def __init__(
        self, endpoint: HttpModel, model: str, *, window: str = "24h", retries: Retries | None = None
    ) -> None:
        self._endpoint, self._model, self._window = endpoint, model, window
        self._retries = retries or Retries()
        self.address, self.limit_name = endpoint.address, endpoint.limit_name

    async def upload(self, path: Path) -> str:
        """Upload a file of requests and return its id."""

        async def once() -> str | Fault:
            with path.open("rb") as file, aiohttp.MultipartWriter("form-data") as form:
                form.append("batch").set_content_disposition("form-data", name="purpose")
                part = form.append(file, {"Content-Type": "application/jsonl"})
                part.set_content_disposition("form-data", name="file", filename=path.name)
                headers = {"Content-Type": form.headers["Content-Type"]}
                return await self._call(
                    "POST", "files", read_id, data=form, headers=headers, timeout=TRANSFER_TIMEOUT
                )

        return await self._retry(once)

    async def create(self, file: str) -> Batch:
        """Create a batch of an uploaded file; at most one, whatever happens to the reply."""
        body = {"input_file_id": file, "endpoint": URL, "completion_window": self._window}

        async def once() -> Batch | Fault:
            created = await self._call("POST", "batches", read_batch, data=msgspec.json.encode(body))
            if isinstance(created, Fault) and created.seen and created.retry:
                return await self.find(file) or created
            return created

        return await self._retry(once)

    async def retrieve(self, name: str) -> Batch | None:
        """The current state of a batch; None if the endpoint does not know it."""
        try:
            return await self._retry(lambda: self._call("GET", f"batches/{name}", read_batch))
        except MissingFeatureError:
            return None

    async def find(self, file: str) -> Batch | None:
        """The batch created from a file, among the newest `PAGE * PAGES`."""
        params = {"limit": str(PAGE)}
        for _ in range(PAGES):
            try:
                rows, more = await self._retry(lambda: self._call("GET", "batches", read_page, params=params))
            except MissingFeatureError:
                return None
            for batch in rows:
                if batch.source == file:
                    return batch
            if not more or not rows:
                return None
            params["after"] = rows[-1].id
        return None

    async def download(self, file: str, to: Path, *, requests: int = 0) -> None:
        """Download a result file with the replies to `requests` requests, with secrets removed."""
        limit = min(max(MIN_RESULT_BYTES, requests * REPLY_BYTES), RESULT_BYTES)

        async def save(response: aiohttp.ClientResponse) -> None:
            scrubber = StreamScrubber(self._endpoint.secrets(failed=False))
            with to.open("wb") as results:
                async for part in limited(response, limit):
                    results.write(scrubber.feed(part))
                results.write(scrubber.end())

        # Some providers redirect to another host; aiohttp does not send the key there.
        more: dict[str, Any] = {"allow_redirects": True, "timeout": TRANSFER_TIMEOUT}
        await self._retry(lambda: self._call("GET", f"files/{file}/content", bool, save=save, **more))

    async def _retry(self, once: Callable[[], Coroutine[Any, Any, T | Fault]]) -> T:
        """Retry until the call succeeds or a retry is pointless."""
        tries = Attempts(self._retries, Random())
        while isinstance(outcome := await once(), Fault):
            pause = tries.pause_after(outcome, known=True)
            if pause is None:
                raise outcome.error
            await asyncio.sleep(pause)
        return outcome

    async def _call(
        self,
        verb: str,
        path: str,
        read: Callable[[Any], T],
        *,
        save: Callable[[aiohttp.ClientResponse], Awaitable[None]] | None = None,
        **more: Any,
    ) -> T | Fault:
        """Make one call; its reply is saved, or parsed by `read`."""
        where = self.address
        try:
            async with self._endpoint.call(verb, path, **more) as response:
                status, headers = response.status, response.headers
                fine = 200 <= status < 300
                if fine and save is not None:
                    await save(response)
                    return read(None)
                payload = await (read_body(response, REPLY_BYTES) if fine else read_start(response))
        except faults.NO_REPLY as error:
            return faults.no_reply(error, where, None)
        if status in _ABSENT:
            message = (
                f"{where} has no Batch API (status {status} at /{path}): give --batch-dir DIR to write files "
                "for its own batch program, or use --engine local"
            )
            return Fault(MissingFeatureError(message), retry=False)
        if not fine:
            reply = self._endpoint.quotable(payload)
            return faults.refused(status, reply, headers, address=where, model=self._model, now=time.time())
        try:
            return read(decode(self._endpoint.scrub(payload)))
        except ValueError as error:
            return faults.garbled(where, f"{error} at /{path}")


# --- A model whose replies arrive later, in batches: the journal answers, missing requests are collected ---
#
# Rules that must not be broken:
#
# * No request is sent: a missing reply raises `NotRecordedError`, and its request goes into the next batch.
# * Every payment is reported by exactly one completion with `replayed=False` in each pass over the cases.


AFFECTS_ALL = (AccessError, UnknownModelError)  # every other request would fail too


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """The fields of a request that its journal record needs, without the prompt."""

    model: str
    template: str
    digest: str
    prompt: int


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request without a reply: its journal key, and the endpoint that must answer it."""

    key: str
    request: Request
    endpoint: Hashable

    @property
    def pending(self) -> PendingRequest:
        """The fields to keep until its reply arrives."""
        request = self.request
        tokens = estimate_prompt(request.messages)
        return PendingRequest(request.model, request.template, prompt_digest(request.messages), tokens)


class Failures:
    """Failed requests of batches; a request counts as failed once per batch.

    A permanent refusal (too long for the context) is given up at once, a transient failure (server error,
    garbled reply) after `tries` batches. A request that was never run (expired, cancelled), or that was
    refused because of the account, the model or the name of a field, is not counted.
    """

    def __init__(self, tries: int) -> None:
        self._tries = tries
        self._faults: dict[str, dict[str, Fault]] = {}

    def add(self, key: str, batch: str, fault: Fault) -> bool:
        """Record the failure of a request in a batch; False if it is already known."""
        by_batch = self._faults.setdefault(key, {})
        return by_batch.setdefault(batch, fault) is fault

    def failed_in(self, key: str, batch: str) -> bool:
        """Whether a request failed in a batch."""
        return batch in self._faults.get(key, {})

    def given_up(self, key: str) -> ModelError | None:
        """Why a request is given up, or None if it is not."""
        counted = [fault for fault in self._faults.get(key, {}).values() if not _is_excused(fault)]
        if not counted or (counted[-1].retry and len(counted) < self._tries):
            return None
        error = ModelError(str(counted[-1].error), attempts=len(counted))
        error.cause = counted[-1].error.cause
        return error


def _is_excused(fault: Fault) -> bool:
    return not fault.seen or fault.renamed or isinstance(fault.error, AFFECTS_ALL)


class PendingRequests:
    """State shared by the models of all endpoints: the journal, failures, paid replies and open requests.

    `paid` holds the keys of replies that arrived during this run, `awaited` the open requests of a pass over
    the cases.
    """

    def __init__(self, journal: Journal, failures: Failures) -> None:
        self.journal, self.failures = journal, failures
        self.paid: set[str] = set()
        self.awaited: dict[str, PendingRequest] = {}
        self._unreported: set[str] = set()
        self._open: dict[str, OpenRequest] = {}

    def begin(self) -> None:
        """Start a pass over the cases."""
        self._unreported, self.awaited, self._open = set(self.paid), {}, {}

    def take(self) -> list[OpenRequest]:
        """Return and clear the open requests collected so far."""
        requests, self._open = list(self._open.values()), {}
        self.awaited |= {request.key: request.pending for request in requests}
        return requests

    def recall(self, request: Request) -> Completion | None:
        """The reply, if it has arrived."""
        key = request_key(request)
        stored = recalled(self.journal.get(key))
        if stored is None or key not in self._unreported:
            return stored
        self._unreported.discard(key)
        return replace(stored, replayed=False)

    def answer(self, request: Request, endpoint: Hashable) -> Completion:
        """The reply; raises `NotRecordedError` if it is missing, or the reason why it is given up."""
        stored = self.recall(request)
        if stored is not None:
            return stored
        key = request_key(request)
        given_up = self.failures.given_up(key)
        if given_up is not None:
            raise given_up
        self._open[key] = OpenRequest(key, request, endpoint)
        raise NotRecordedError(f"no reply to this {request.template!r} prompt has arrived yet")


@dataclass(frozen=True, slots=True)
class PendingModel:
    """A model that answers for one endpoint from `PendingRequests`."""

    requests: PendingRequests
    endpoint: Hashable = None

    async def complete(self, request: Request) -> Completion:
        """Answer from the journal."""
        return self.requests.answer(request, self.endpoint)

    async def recall(self, request: Request) -> Completion | None:
        """The reply that the journal holds."""
        return self.requests.recall(request)

    async def close(self) -> None:
        """Do nothing: no resources are held."""
