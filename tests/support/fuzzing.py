"""Requests of every API of the server that are wrong in some way, by chance and by the description."""

import json
import random
import string
from collections.abc import Callable
from typing import Any

TEXT = ("type", "text", "role", "content", "user", "assistant", "system", "developer", "input_text", "image", "tool_use",
        "tool_result", "thinking", "document", "search_result", "base64", "url", "function", "function_call",
        "function_call_output", "reasoning", "item_reference", "input_image", "input_file", "message", "refusal",
        "json_schema", "auto", "any", "tool", "allowed_tools", "custom", "look_up", "call_1", "caps/m", "vary", "", "\x00",
        "\ud83d\ude00")  # fmt: skip
NAMES = ("type", "text", "role", "content", "source", "data", "media_type", "url", "id", "name", "input", "tool_use_id",
         "call_id", "arguments", "output", "image_url", "file_data", "format", "schema", "effort", "user_id", "mode",
         "tools", "title", "input_schema", "parameters", "strict", "is_error", "n")  # fmt: skip
TURN = {"role": "user", "content": "vary"}
ITEMS: dict[str, list[Any]] = {
    "messages": [
        TURN,
        {"role": "user", "content": [{"type": "text", "text": "?"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "c"}]},
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}]},
        {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "d"}}]},
    ],
    "responses": [
        TURN,
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "?"}]},
        {"type": "function_call", "call_id": "a", "name": "b", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "c"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://x"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "?", "annotations": []}]},
    ],
}
FIELDS = {
    "messages": ("model", "messages", "max_tokens", "system", "stream", "stream_options", "caps", "tools", "tool_choice",
                 "stop_sequences", "metadata", "output_config", "thinking", "temperature", "top_k", "n"),
    "responses": ("model", "input", "instructions", "stream", "stream_options", "caps", "tools", "tool_choice", "text",
                  "reasoning", "include", "max_output_tokens", "previous_response_id", "metadata", "top_logprobs", "n"),
}  # fmt: skip
APIS = tuple(FIELDS)
TOOLS: dict[str, Any] = {
    "messages": {"name": "look_up", "input_schema": {"type": "object"}},
    "responses": {"type": "function", "name": "look_up", "parameters": {"type": "object"}},
}


def junk(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON value, the strange ones often."""
    if depth > 3 or rng.random() < 0.5:
        return rng.choice([None, True, -1, 0, 1, 2**70, 1e308, 3.5, [], {}, *rng.choices(TEXT, k=6)])
    if rng.random() < 0.5:
        return [junk(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(NAMES): junk(rng, depth + 1) for _ in range(rng.randrange(5))}


def damaged(rng: random.Random, value: Any) -> Any:
    """A value with one of its parts replaced, added or removed, at any depth."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = rng.choice(list(value))
        if rng.random() < 0.2:
            return {key: one for key, one in value.items() if key != name}
        return {**value, name: damaged(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [*value[:place], damaged(rng, value[place]), *value[place + 1 :]]
    return junk(rng)


def malformed(rng: random.Random, api: str) -> bytes:
    """A body that is wrong in some way: parts of another kind, cut off, of other bytes, or no JSON at all."""
    turns = rng.choices(ITEMS[api], k=rng.randrange(1, 4))
    body: dict[str, Any] = {"model": rng.choice(["caps/m", "caps/m", "caps", "caps/", "m"]), "caps": {"n": 1}}
    body |= {"messages": turns, "max_tokens": 9} if api == "messages" else {"input": turns}
    if rng.random() < 0.4:
        body["tools"] = [TOOLS[api]]
    for _ in range(rng.randrange(3)):
        body[rng.choice(FIELDS[api])] = junk(rng)
    if rng.random() < 0.6:
        body = damaged(rng, body)
    payload = json.dumps(body).encode()
    match rng.randrange(8):
        case 0:
            return payload[: rng.randrange(len(payload))]
        case 1:
            return bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
        case 2:
            spot = rng.randrange(len(payload))
            return payload[:spot] + rng.choice(string.printable).encode() + payload[spot + 1 :]
    return payload


def check_error(api: str, answer: Any) -> None:
    """An error has the form of its API."""
    said = answer.json
    if api == "messages":
        assert said["type"] == "error", said
        assert {"type", "message"} <= set(said["error"]), said
    else:
        assert set(said) == {"error"}, said
        assert set(said["error"]) == {"message", "type", "param", "code"}, said


async def fuzz(call: Callable[..., Any], api: str, *, seed: int, count: int) -> set[int]:
    """Send malformed requests; the statuses seen. An answer with 500 or more, or of another form, fails."""
    rng, seen = random.Random(seed), set()
    paths = [f"/v1/{api}"] * 4 + (["/v1/messages/count_tokens"] if api == "messages" else [])
    for _ in range(count):
        payload, path = malformed(rng, api), rng.choice(paths)
        answer = await call(path=path, body=payload)
        seen.add(answer.status)
        assert answer.status < 500, (path, payload, answer.body, call.log.getvalue()[-400:])
        if answer.status != 200:
            check_error(api, answer)
    return seen
