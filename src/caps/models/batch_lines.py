"""The lines of Batch files, as OpenAI's Batch API and `vllm run-batch` have them: a request, a result; pure.

A request's `custom_id` is its key in the journal and its body the bytes a live call would send, so live,
batch and replay find one another's replies. Reading is tolerant like that of live replies: see `wire`.
"""

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from caps.core.errors import TimedOutError
from caps.models import faults
from caps.models.base import Completion, Request
from caps.models.faults import Fault
from caps.models.waiting import Awaited
from caps.models.wire import NAME_CHARS, completion_in, decode, embedded_status, encode_body

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


def read_result(item: Item, awaited: Awaited) -> Completion | Fault:
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
