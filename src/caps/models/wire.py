"""The OpenAI chat format: requests to bytes, bounded bytes to completions.

Servers differ, so parsing is tolerant: fields that are missing or of another type are ignored, and only a
body without a reply is an error. The result is bounded and can be stored and written as JSON again: texts
contain no lone surrogates, and counts fit 64 bits.
"""

import json
import math
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any

import aiohttp
import msgspec

from caps.core.errors import SettingError
from caps.core.text import estimate_tokens
from caps.core.types import Media, Message, TokenLogprob, Usage
from caps.files import UNDECODABLE
from caps.models.base import Completion, Request, estimate_prompt

# Fields that `extra` may not set: parsing relies on one whole reply, to these messages, by this model.
RESERVED = ("messages", "model", "stream", "n")
RENAMED = "max_completion_tokens"  # the name of `max_tokens` on newer servers
TEXT_CHARS = 2_000_000  # of a reply, and of its reasoning: about half a million tokens; the rest is cut off
NAME_CHARS = 200  # of the name of a model, and of a finish reason
MAX_LOGPROBS = 200_000  # tokens whose probabilities are kept
MAX_TOP = 64  # alternatives of each
MAX_COUNT = 10**12  # tokens in a reported count
MAX_CONTAINERS = 2_000_000  # objects and lists of a body: each takes twenty times its bytes in memory
MAX_DEPTH = 64  # nesting of a forwarded value
MIN_LOGPROB = -9999.0  # what servers write for probability 0; JSON has no infinity
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
    """Serialize a request; `extra` is merged last, and null in it removes a field."""
    body: dict[str, object] = {
        "model": request.model,
        "messages": _messages(request),
        limit_name: request.max_tokens,
        "temperature": request.temperature,
    }
    if request.top_p is not None:
        body["top_p"] = request.top_p
    if request.seed is not None:
        body["seed"] = request.seed
    if request.top_logprobs:
        body["logprobs"], body["top_logprobs"] = True, request.top_logprobs
    return encode_with_extra(body, request.extra, RESERVED)


def encode_with_extra(
    body: dict[str, object], extra: Mapping[str, object], reserved: Collection[str]
) -> bytes:
    """Serialize a body with extra fields merged in; null removes a field, and reserved ones are refused."""
    for name, value in extra.items():
        if name in reserved:
            raise SettingError(f"extra = {name!r}: may not be set there; caps sets it")
        if value is None:
            body.pop(name, None)
        else:
            body[name] = value
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # a lone surrogate in a candidate; the standard library escapes it
        return json.dumps(body).encode()


def _messages(request: Request) -> list[dict[str, object]]:
    """The messages, the last with hints where its text is to be cached."""
    if not request.messages:
        return []
    *before, last = request.messages
    messages: list[dict[str, object]] = [{"role": m.role, "content": _parts(m, ())} for m in before]
    return [*messages, {"role": last.role, "content": _parts(last, request.cache_at)}]


def _parts(message: Message, cache_at: tuple[int, ...]) -> str | list[dict[str, object]]:
    """The text, divided where an image or document stands and where it is to be cached."""
    if not message.media and not cache_at:
        return message.content
    marks: list[tuple[int, Media | None]] = [(one.at, one) for one in message.media]
    marks = sorted([*marks, *((at, None) for at in cache_at)], key=lambda mark: mark[0])
    parts: list[dict[str, object]] = []
    start = 0
    for at, media in [*marks, (len(message.content), None)]:
        if at > start:
            parts.append({"type": "text", "text": message.content[start:at]})
        if media is not None:
            parts.append(media.part())
        elif at in cache_at:
            parts[-1]["cache_control"] = {"type": "ephemeral"}
        start = at
    return parts


def decode(payload: bytes) -> Any:
    """Parse JSON tolerantly (bare NaN, lone surrogates), or raise `ValueError`."""
    if len(payload) > MAX_CONTAINERS and payload.count(b"{") + payload.count(b"[") > MAX_CONTAINERS:
        raise ValueError(f"more than {MAX_CONTAINERS:,} objects and lists")
    try:
        return msgspec.json.decode(payload)
    except UNDECODABLE:
        try:
            return sanitize(json.loads(payload))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def sanitize(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Make a decoded value valid JSON; `ValueError` if it is nested too deeply to be written again."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [sanitize(one, depth - 1) for one in value]
    return {_text(name): sanitize(one, depth - 1) for name, one in value.items()}


def read_completion(reply: Any, request: Request) -> Completion:
    """Parse a decoded reply; `ValueError` says what is missing."""
    return parse_completion(reply, lambda: estimate_prompt(request.messages))


def parse_completion(reply: Any, prompt_tokens: Callable[[], int]) -> Completion:
    """Parse a decoded reply; `prompt_tokens` estimates the prompt if the server reports no usage."""
    choice = _first(reply.get("choices")) if isinstance(reply, dict) else None
    message = choice.get("message") if choice else None
    if not choice or not isinstance(message, dict):
        raise ValueError("no choices[0].message in it")
    text, thinking = _content(message.get("content"))
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning")) or thinking
    finish = _name(choice.get("finish_reason"))
    if not text and (refusal := _text(message.get("refusal"))):
        text, finish = refusal, "refusal"
    if max(len(text), len(reasoning)) > TEXT_CHARS:
        text, reasoning, finish = text[:TEXT_CHARS], reasoning[:TEXT_CHARS], "length"
    return Completion(
        text,
        _FINISH.get(finish.lower(), finish),
        _usage(reply.get("usage"), prompt_tokens, lambda: estimate_tokens(text + reasoning)),
        reasoning,
        _logprobs(choice.get("logprobs")),
        _name(reply.get("model")),
    )


def embedded_status(reply: Any) -> int | None:
    """The status of an error object in a reply with status 200, or None."""
    if not isinstance(reply, dict):
        return None
    error = reply.get("error") or (_first(reply.get("choices")) or {}).get("error")
    if not error:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def model_rows(listed: Any) -> list[dict[str, Any]] | None:
    """The rows of a list of models that have a name; None if it is no such list."""
    rows = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(rows, list):
        return None
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]


def finite(logprob: float) -> float:
    """A log-probability that JSON can represent."""
    # Compared first: a server's integer may be too large for a float.
    return float(logprob) if MIN_LOGPROB <= logprob <= -MIN_LOGPROB else MIN_LOGPROB


def _first(items: object) -> dict[str, Any] | None:
    return items[0] if isinstance(items, list) and items and isinstance(items[0], dict) else None


def _text(value: object) -> str:
    if not isinstance(value, str):
        return ""
    # Lone surrogates can be neither stored nor printed.
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _name(value: object) -> str:
    return _text(value)[:NAME_CHARS]


def _content(content: object, depth: int = 3) -> tuple[str, str]:
    """Text and reasoning of a message: one text, or parts of either kind, which may be nested."""
    if not isinstance(content, list):
        return _text(content), ""
    texts, thoughts = [], []
    for part in content:
        if isinstance(part, str):
            texts.append(_text(part))
        elif isinstance(part, dict):
            texts.append(_text(part.get("text")))
            if depth:
                thoughts.append("".join(_content(part.get("thinking"), depth - 1)))
    return "".join(texts), "".join(thoughts)


def read_usage(reply: Any, prompt_tokens: int) -> Usage:
    """The usage of any decoded reply, also in the names of newer APIs; estimated where it has none."""
    fields = reply if isinstance(reply, dict) else {}
    usage, choices = fields.get("usage"), fields.get("choices")
    if isinstance(usage, dict) and "prompt_tokens" not in usage and "output_tokens" in usage:
        asked, read = usage.get("input_tokens"), _count(usage.get("cache_read_input_tokens"))
        if _count(asked) is not None:  # Anthropic counts cached tokens apart
            written = _count(usage.get("cache_creation_input_tokens"))
            asked = (_count(asked) or 0) + (read or 0) + (written or 0)
        usage = {
            "prompt_tokens": asked,
            "completion_tokens": usage.get("output_tokens"),
            "prompt_tokens_details": usage.get("input_tokens_details") or {"cached_tokens": read},
            "completion_tokens_details": usage.get("output_tokens_details"),
        }
    elif isinstance(usage, dict) and not isinstance(choices, list) and "completion_tokens" not in usage:
        usage = {**usage, "completion_tokens": 0}  # embeddings and the like have no output
    return _usage(usage, lambda: prompt_tokens, lambda: estimate_tokens(_text_of(choices)))


def _text_of(choices: object) -> str:
    """The text of the first choice, if any."""
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, str) else ""


def _usage(usage: object, prompt_tokens: Callable[[], int], output_tokens: Callable[[], int]) -> Usage:
    if not isinstance(usage, dict):
        return Usage(prompt_tokens(), output_tokens(), estimated=True)
    prompt, output = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    of_prompt, of_output = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    cached = _count(of_prompt.get("cached_tokens")) if isinstance(of_prompt, dict) else None
    if cached is None and "prompt_cache_hit_tokens" in usage:  # DeepSeek's name for it
        cached = _count(usage["prompt_cache_hit_tokens"])
    reasoning = _count(of_output.get("reasoning_tokens")) if isinstance(of_output, dict) else None
    return Usage(
        prompt_tokens() if prompt is None else prompt,
        output_tokens() if output is None else output,
        cached or 0,
        reasoning or 0,
        prompt is None or output is None,
    )


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MAX_COUNT else None  # both are false for NaN


def _logprobs(logprobs: object) -> tuple[TokenLogprob, ...]:
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        return ()
    return tuple(
        TokenLogprob(*_token(item), tuple(map(_token, _items(item.get("top_logprobs"))[:MAX_TOP])))
        for item in content[:MAX_LOGPROBS]
        if isinstance(item, dict)
    )


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _token(item: Any) -> tuple[str, float]:
    if not isinstance(item, dict):
        return "", MIN_LOGPROB
    logprob = item.get("logprob")
    return _name(item.get("token")), finite(logprob) if isinstance(logprob, int | float) else MIN_LOGPROB


# --- Bodies of replies, read within a limit that counts bytes after decompression ---
#
# Everything that this package reads from an endpoint goes through `read_body`, `read_start` or `limited`.
# Read this way, aiohttp decompresses at most one chunk beyond what was requested, so a decompression bomb
# costs no more memory than the limit. (`ClientResponse.read` decompresses everything first.)

REPLY_BYTES = 16 << 20  # of a JSON reply: four times a long one with reasoning and log-probabilities
ERROR_BYTES = 64 << 10  # of the body of an error, of which 300 characters are quoted
FORWARDED_BYTES = 256 << 20  # of a body that is streamed through: twice that of many embeddings


class OversizedReplyError(ValueError):
    """The body exceeds its limit; the rest of it was not read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a body of more than {limit:,} bytes")
        self.limit = limit


async def read_body(response: aiohttp.ClientResponse, limit: int = REPLY_BYTES) -> bytes:
    """Read the whole body, or raise `OversizedReplyError`; raises what aiohttp does."""
    declared = response.content_length
    plain = "Content-Encoding" not in response.headers and "Transfer-Encoding" not in response.headers
    if declared is not None and declared <= limit and plain:
        return await response.read()  # no more than declared
    body = bytearray()
    async for part in limited(response, limit):
        body += part
    return bytes(body)


async def read_start(response: aiohttp.ClientResponse, limit: int = ERROR_BYTES) -> bytes:
    """Read at most `limit` bytes of a body; raises what aiohttp does."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) >= limit:
            response.close()  # do not wait for the rest
            break
    return bytes(body[:limit])


async def limited(response: aiohttp.ClientResponse, limit: int) -> AsyncIterator[bytes]:
    """Stream the chunks of a body; `OversizedReplyError` if there are more bytes than allowed."""
    compressed = response.headers.get("Content-Encoding", "identity").lower() != "identity"
    declared = response.content_length
    if declared is not None and declared > limit and not compressed:
        response.close()
        raise OversizedReplyError(limit)
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > limit:
            response.close()
            raise OversizedReplyError(limit)
        yield part
