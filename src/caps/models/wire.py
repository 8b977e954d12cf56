"""The OpenAI chat format: requests to bytes, bounded bytes to completions.

Servers differ, so reading is tolerant: whatever is missing or of another type is left out, and only a body
without any reply in it is an error. What is kept is bounded, and can be stored and written as JSON again: a
text has no half of a surrogate pair in it, and a count fits 64 bits.
"""

import json
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import msgspec

from caps.core.errors import SettingError
from caps.core.text import estimate_tokens
from caps.core.types import TokenLogprob, Usage
from caps.models.base import Completion, Request, estimate_prompt

# What a reply is read by, so `extra` may not set it: one whole reply, to these messages, by this model.
RESERVED = ("messages", "model", "stream", "n")
RENAMED = "max_completion_tokens"  # what newer servers call `max_tokens`
TEXT_CHARS = 2_000_000  # of a reply, and of a thought: about half a million tokens; the rest is cut off
NAME_CHARS = 200  # of the name of a model, and of a reason to finish
MOST_LOGPROBS = 200_000  # tokens whose probabilities are kept
MOST_TOP = 64  # alternatives of each
MOST_COUNT = 10**12  # tokens a server can have counted
MOST_CONTAINERS = 2_000_000  # objects and lists of a body: each takes twenty times its bytes in memory
DEEPEST = 64  # levels of a value that is handed on
LEAST_LOGPROB = -9999.0  # what servers write for "never"; JSON holds no infinity
_FINISH = {
    "max_tokens": "length",
    "model_length": "length",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "safety": "content_filter",
}


def encode_body(request: Request, *, limit_name: str = "max_tokens") -> bytes:
    """Write a request; `extra` is merged last, and null in it leaves a field out."""
    body: dict[str, object] = {
        "model": request.model,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        limit_name: request.max_tokens,
        "temperature": request.temperature,
    }
    if request.top_p is not None:
        body["top_p"] = request.top_p
    if request.seed is not None:
        body["seed"] = request.seed
    if request.top_logprobs:
        body["logprobs"], body["top_logprobs"] = True, request.top_logprobs
    for name, value in request.extra.items():
        if name in RESERVED:
            raise SettingError(f"extra = {name!r}: may not be set there, caps sets it itself")
        if value is None:
            body.pop(name, None)
        else:
            body[name] = value
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # half a surrogate pair in a candidate; the standard library escapes it
        return json.dumps(body).encode()


def decode(payload: bytes) -> Any:
    """Read JSON as loosely as servers write it (bare NaN, half a surrogate pair), or raise `ValueError`."""
    if len(payload) > MOST_CONTAINERS and payload.count(b"{") + payload.count(b"[") > MOST_CONTAINERS:
        raise ValueError(f"more than {MOST_CONTAINERS:,} objects and lists")
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return tidy(json.loads(payload))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def tidy(value: Any, room: int = DEEPEST) -> Any:
    """A decoded value as JSON can hold it; `ValueError` where it is nested too deeply to be written again."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, dict | list):
        return value
    if room == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [tidy(one, room - 1) for one in value]
    return {_text(name): tidy(one, room - 1) for name, one in value.items()}


def read_completion(reply: Any, request: Request) -> Completion:
    """Read a decoded reply; `ValueError` says what is missing if there is none in it."""
    return completion_in(reply, lambda: estimate_prompt(request.messages))


def completion_in(reply: Any, shown: Callable[[], int]) -> Completion:
    """Read a decoded reply; `shown` guesses the tokens of its prompt where the server counts none."""
    choice = _first(reply.get("choices")) if isinstance(reply, dict) else None
    message = choice.get("message") if choice else None
    if not choice or not isinstance(message, dict):
        raise ValueError("no choices[0].message in it")
    text, thought = _content(message.get("content"))
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning")) or thought
    finish = _name(choice.get("finish_reason"))
    if not text and (refusal := _text(message.get("refusal"))):
        text, finish = refusal, "refusal"
    if max(len(text), len(reasoning)) > TEXT_CHARS:
        text, reasoning, finish = text[:TEXT_CHARS], reasoning[:TEXT_CHARS], "length"
    return Completion(
        text,
        _FINISH.get(finish.lower(), finish),
        _usage(reply.get("usage"), shown, lambda: estimate_tokens(text + reasoning)),
        reasoning,
        _logprobs(choice.get("logprobs")),
        _name(reply.get("model")),
    )


def embedded_status(reply: Any) -> int | None:
    """The status of an error object in a reply that claimed to be fine, or None."""
    if not isinstance(reply, dict):
        return None
    error = reply.get("error") or (_first(reply.get("choices")) or {}).get("error")
    if not error:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def printable(text: str, most: int) -> str:
    """The beginning of a text of a server's as it can be printed on a line: without terminal codes."""
    return "".join(one if one.isprintable() else " " for one in text[:most])


def finite(logprob: float) -> float:
    """A log-probability as JSON can hold it."""
    # Compared first: a whole number of a server may be too large to be a float.
    return float(logprob) if LEAST_LOGPROB <= logprob <= -LEAST_LOGPROB else LEAST_LOGPROB


def _first(items: object) -> dict[str, Any] | None:
    return items[0] if isinstance(items, list) and items and isinstance(items[0], dict) else None


def _text(value: object) -> str:
    if not isinstance(value, str):
        return ""
    # Half a surrogate pair can be neither stored nor printed.
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _name(value: object) -> str:
    return _text(value)[:NAME_CHARS]


def _content(content: object, room: int = 3) -> tuple[str, str]:
    """Text and thought of a message: one text, or parts of either kind, which may have parts again."""
    if not isinstance(content, list):
        return _text(content), ""
    texts, thoughts = [], []
    for part in content:
        if isinstance(part, str):
            texts.append(_text(part))
        elif isinstance(part, dict):
            texts.append(_text(part.get("text")))
            if room:
                thoughts.append("".join(_content(part.get("thinking"), room - 1)))
    return "".join(texts), "".join(thoughts)


def _usage(usage: object, shown: Callable[[], int], written: Callable[[], int]) -> Usage:
    if not isinstance(usage, dict):
        return Usage(shown(), written(), estimated=True)
    prompt, completed = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    of_prompt, of_output = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    cached = _count(of_prompt.get("cached_tokens")) if isinstance(of_prompt, dict) else None
    if cached is None and "prompt_cache_hit_tokens" in usage:  # DeepSeek's name for it
        cached = _count(usage["prompt_cache_hit_tokens"])
    reasoning = _count(of_output.get("reasoning_tokens")) if isinstance(of_output, dict) else None
    return Usage(
        shown() if prompt is None else prompt,
        written() if completed is None else completed,
        cached or 0,
        reasoning or 0,
        prompt is None or completed is None,
    )


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MOST_COUNT else None  # neither is so with NaN


def _logprobs(logprobs: object) -> tuple[TokenLogprob, ...]:
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        return ()
    return tuple(
        TokenLogprob(*_token(item), tuple(map(_token, _items(item.get("top_logprobs"))[:MOST_TOP])))
        for item in content[:MOST_LOGPROBS]
        if isinstance(item, dict)
    )


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _token(item: Any) -> tuple[str, float]:
    if not isinstance(item, dict):
        return "", LEAST_LOGPROB
    logprob = item.get("logprob")
    return _name(item.get("token")), finite(logprob) if isinstance(logprob, int | float) else LEAST_LOGPROB


# Bodies of endpoints' replies, read within a limit that counts bytes after decompression.
#
# Everything that this package reads from an endpoint goes through `read_body`, `read_start` or `limited`.
# aiohttp unpacks a body piece by piece while it is read so, and never more than a piece beyond what was
# asked for: a bomb costs no more memory than the limit. (`ClientResponse.read` unpacks everything first.)


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
