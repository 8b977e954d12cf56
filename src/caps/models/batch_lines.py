"""Lines of batch files, in the format of OpenAI's Batch API and `vllm run-batch`; pure.

The `custom_id` of a request is its journal key and its body the bytes of a live call, so live calls, batches
and replays share replies.
"""

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from caps.core.errors import TimedOutError
from caps.models import faults
from caps.models.base import Completion, Request
from caps.models.faults import Fault
from caps.models.pending import PendingRequest
from caps.models.wire import decode, embedded_status, encode_body, parse_completion

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


def read_result(item: Item, pending: PendingRequest) -> Completion | Fault:
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
