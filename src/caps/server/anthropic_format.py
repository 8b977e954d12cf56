"""The Messages API of Anthropic: requests as chat requests, chat completions as messages, whole or as events.

Blocks of thoughts in a request are left out: the upstream wrote none of them. An image in the result of a
tool follows it in a message of the user, since tools answer a chat with text only.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from caps.core.errors import InputError
from caps.engines.adaptive import Step
from caps.files import UNDECODABLE
from caps.runs.adaptive_lines import step_line
from caps.server.errors import ApiError, anthropic_error
from caps.server.events import Events, sse_event
from caps.server.formats import (
    ApiFormat,
    answered_text,
    blocks,
    called_functions,
    chosen_function,
    function_tool,
    image_part,
    joined,
    mapping,
    objects,
    output_limit,
    pieces,
    refuse,
    shared_fields,
    string,
    text_part,
    thoughts,
    tool_call,
    tool_result,
)
from caps.server.requests import Body, as_json

SAME_FIELDS = ("temperature", "top_p", "top_k", "seed")
REFUSED = {
    "n": "the answer is one message: set caps.n for the number of samples",
    "mcp_servers": "this server runs no tools: call them yourself, as functions",
    "container": "this server runs no tools: call them yourself, as functions",
}
STOP_REASONS = {
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def to_chat(body: Body) -> Body:
    """The chat request that a request of this API stands for."""
    refuse(body, REFUSED)
    chat = shared_fields(body)
    chat["messages"] = [*_system(body.get("system")), *_messages(body.get("messages"))]
    chat["max_tokens"] = output_limit(body, "max_tokens")
    chat |= {name: body[name] for name in SAME_FIELDS if body.get(name) is not None}
    if body.get("stop_sequences"):
        chat["stop"] = _stops(body["stop_sequences"])
    chat |= _tools(body)
    user = mapping(body.get("metadata"), "metadata").get("user_id")
    if isinstance(user, str):
        chat["user"] = user
    output = mapping(body.get("output_config"), "output_config")
    if output.get("effort") is not None:
        chat["reasoning_effort"] = output["effort"]
    form = mapping(output.get("format") or body.get("output_format"), "output_config")
    if form:
        if form.get("type") != "json_schema":
            raise InputError("output_config: format.type must be json_schema")
        schema = {"name": "answer", "strict": True, "schema": mapping(form.get("schema"), "output_config")}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    return chat


def counted_to_chat(body: Body) -> Body:
    """The chat request of a message that is only counted, and has no limit of tokens."""
    return to_chat({**body, "max_tokens": 1})


def _system(system: object) -> list[Body]:
    if system is None or system == "":
        return []
    if isinstance(system, str):
        return [{"role": "system", "content": system}]
    rows = objects(system, "system", "a block of text")
    texts = [string(row, "text", f"system: block {place}") for place, row in enumerate(rows)]
    return [{"role": "system", "content": "\n".join(texts)}] if texts else []


def _messages(messages: object) -> Iterator[Body]:
    rows = objects(messages, "messages", "a message")
    if not rows:
        raise InputError("messages: must be a list of at least one message")
    for place, row in enumerate(rows):
        where = f"messages: message {place}"
        role = row.get("role")
        if role not in ("user", "assistant", "system"):
            raise InputError(f"{where}: role must be user or assistant")
        yield from _turn(role, blocks(row.get("content"), where, "blocks"), where)


def _turn(role: str, content: list[Body], where: str) -> Iterator[Body]:
    """One message as chat messages: the results of tools, then everything else."""
    parts: list[Body] = []
    calls: list[Body] = []
    for place, block in enumerate(content):
        at = f"{where}: block {place}"
        kind = block.get("type")
        if kind == "tool_use":
            arguments = as_json(mapping(block.get("input"), f"{at}: input"))
            calls.append(tool_call(string(block, "name", at), arguments, string(block, "id", at)))
        elif kind == "tool_result":
            prefix = "Error: " if block.get("is_error") is True else ""
            result = _result_parts(block.get("content"), at)
            message, others = tool_result(string(block, "tool_use_id", at), result, prefix)
            yield message
            parts += others
        else:
            parts += _parts(block, at)
    if calls:
        yield {"role": role, "content": joined(parts) or None, "tool_calls": calls}
    elif parts:
        yield {"role": role, "content": joined(parts)}


def _result_parts(content: object, where: str) -> list[Body]:
    rows = [] if content is None else blocks(content, where, "blocks")
    return [part for block in rows for part in _parts(block, where)]


def _parts(block: Body, where: str) -> list[Body]:
    """A block as parts of a chat message."""
    match block.get("type"):
        case "text":
            return [text_part(string(block, "text", where))]
        case "image":
            return [image_part(_address(block.get("source"), where))]
        case "document":
            return _document(block, where)
        case "search_result":
            heads = [text_part(str(block[name])) for name in ("title", "source") if block.get(name)]
            return [*heads, *_texts(block.get("content"), where)]
        case "thinking" | "redacted_thinking":
            return []
        case kind:
            raise InputError(f"{where}: blocks of type {str(kind)[:40]!r} are not supported")


def _texts(content: object, where: str) -> list[Body]:
    if isinstance(content, str):
        return [text_part(content)]
    rows = content if isinstance(content, list) else [None]
    return [text_part(string(mapping(one, where), "text", where)) for one in rows]


def _address(source: object, where: str) -> str:
    """The address of an image or document: a `data:` address if its bytes are in the request."""
    row = mapping(source, f"{where}: source")
    match row.get("type"):
        case "base64":
            return f"data:{string(row, 'media_type', where)};base64,{string(row, 'data', where)}"
        case "url":
            return string(row, "url", where)
    raise InputError(f"{where}: source.type must be base64 or url: this server stores no files")


def _document(block: Body, where: str) -> list[Body]:
    source = mapping(block.get("source"), f"{where}: source")
    title = block.get("title") if isinstance(block.get("title"), str) else None
    match source.get("type"):
        case "text":
            heads = [text_part(title)] if title else []
            return [*heads, text_part(string(source, "data", where))]
        case "content":
            content = source.get("content")
            if isinstance(content, list) and any(_is_document(one) for one in content):
                raise InputError(f"{where}: a document must not contain another one")
            return _result_parts(content, where)
    file = {"filename": title or "document.pdf", "file_data": _address(source, where)}
    return [{"type": "file", "file": file}]


def _is_document(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "document"


def _stops(stops: object) -> list[str]:
    if not isinstance(stops, list) or not all(isinstance(one, str) for one in stops):
        raise InputError("stop_sequences: must be a list of strings")
    return stops


def _tools(body: Body) -> Body:
    tools: list[Body] = []
    for place, row in enumerate(objects(body.get("tools") or [], "tools", "a tool")):
        if row.get("type") not in (None, "custom"):
            raise InputError(
                f"tools: tool {place}: type {str(row['type'])[:40]!r} is not supported: give a tool with "
                "input_schema"
            )
        tools.append(function_tool(row, f"tools: tool {place}", "input_schema"))
    chat: Body = {"tools": tools} if tools else {}
    choice = mapping(body.get("tool_choice"), "tool_choice")
    if not choice or not tools:
        return chat
    if choice.get("type") == "tool":
        chat["tool_choice"] = chosen_function(choice)
    elif isinstance(choice.get("type"), str) and choice["type"] in TOOL_CHOICES:
        chat["tool_choice"] = TOOL_CHOICES[choice["type"]]
    else:
        raise InputError("tool_choice: type must be auto, any, tool or none")
    if choice.get("disable_parallel_tool_use") is True:
        chat["parallel_tool_calls"] = False
    return chat


def message(completion: Body, body: Body) -> Body:
    """A chat completion as a message."""
    choice = completion["choices"][0]
    reason, stop = _stop_reason(choice, body)
    return {
        "id": f"msg_{completion['caps']['run_id']}",
        "type": "message",
        "role": "assistant",
        "model": completion["model"],
        "content": _blocks(choice["message"], completion["caps"]["run_id"]),
        "stop_reason": reason,
        "stop_sequence": stop,
        "usage": _usage(completion["usage"]),
        "caps": completion["caps"],
    }


def _usage(usage: Body) -> Body:
    """Tokens as this API counts them: those read from a cache are not part of `input_tokens`."""
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage["completion_tokens"],
        "caps": usage["caps"],
    }


def _stop_reason(choice: Mapping[str, Any], body: Mapping[str, Any]) -> tuple[str, str | None]:
    """Why the answer ended, and the stop sequence if the upstream names the one it met."""
    if called_functions(choice["message"]):
        return "tool_use", None
    stops, met = body.get("stop_sequences"), choice.get("stop_reason")
    if isinstance(met, str) and isinstance(stops, list) and met in stops:
        return "stop_sequence", met
    finish = choice.get("finish_reason")
    return (STOP_REASONS.get(finish, "end_turn") if isinstance(finish, str) else "end_turn"), None


def _blocks(answer: Mapping[str, Any], run: str) -> list[Body]:
    blocks: list[Body] = []
    if thought := thoughts(answer):
        blocks.append({"type": "thinking", "thinking": thought, "signature": ""})
    text, calls = answered_text(answer), called_functions(answer)
    refusal = answer.get("refusal")
    if not text and isinstance(refusal, str):
        text = refusal
    if text or not calls:
        blocks.append({"type": "text", "text": text})
    for place, (number, name, arguments) in enumerate(calls):
        values = _arguments(arguments)
        blocks.append(
            {"type": "tool_use", "id": number or f"toolu_{run}_{place}", "name": name, "input": values}
        )
    return blocks


def _arguments(arguments: str) -> Body:
    """The arguments of a call as an object; other text becomes the field `arguments` of one."""
    try:
        values = msgspec.json.decode(arguments.encode() or b"{}")
    except UNDECODABLE:
        values = None
    return values if isinstance(values, dict) else {"arguments": arguments}


class MessageEvents(Events):
    """The events of a streamed message."""

    heartbeat = sse_event({"type": "ping"}, "ping")

    def progress(self, step: Step) -> bytes:
        """A ping that says how the request stands; clients ignore what a ping contains."""
        return _event({"type": "ping", "caps": {"progress": step_line(step)}})

    def answer(self, completion: Body) -> Iterator[bytes]:
        """The message: its start, each block in pieces, the reason why it ended, and its end."""
        whole = message(completion, self.body)
        usage = whole["usage"]
        start = {**whole, "content": [], "stop_reason": None, "stop_sequence": None}
        yield _event({"type": "message_start", "message": {**start, "usage": {**usage, "output_tokens": 0}}})
        for index, block in enumerate(whole["content"]):
            yield from _block_events(index, block)
        delta = {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]}
        yield _event({"type": "message_delta", "delta": delta, "usage": usage, "caps": whole["caps"]})
        yield _event({"type": "message_stop"})

    def failure(self, error: ApiError) -> bytes:
        """The event `error`."""
        return _event(anthropic_error(error))


def _block_events(index: int, block: Body) -> Iterator[bytes]:
    match block["type"]:
        case "text":
            empty = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": one} for one in pieces(block["text"])]
        case "thinking":
            empty = {**block, "thinking": ""}
            deltas = [{"type": "thinking_delta", "thinking": one} for one in pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": ""})
        case _:
            empty = {**block, "input": {}}
            arguments = as_json(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": one} for one in pieces(arguments)]
    yield _event({"type": "content_block_start", "index": index, "content_block": empty})
    for delta in deltas:
        yield _event({"type": "content_block_delta", "index": index, "delta": delta})
    yield _event({"type": "content_block_stop", "index": index})


def _event(value: Body) -> bytes:
    return sse_event(value, value["type"])


def model_list(listed: Body) -> Body:
    """A list of models as clients of this API read it."""
    rows = [model_row(row) for row in listed["data"]]
    ends = {"first_id": rows[0]["id"], "last_id": rows[-1]["id"]} if rows else {}
    return {"data": rows, "has_more": False, "first_id": None, "last_id": None, **ends}


def model_row(row: Body) -> Body:
    """A model as clients of this API read it, beside what clients of OpenAI read."""
    return {**row, "type": "model", "display_name": row["id"], "created_at": "1970-01-01T00:00:00Z"}


MESSAGES = ApiFormat(to_chat, message, MessageEvents)
