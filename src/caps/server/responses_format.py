"""The Responses API of OpenAI: requests as chat requests, chat completions as responses, whole or as events.

The server stores nothing: a request brings its whole conversation. Items of reasoning in a request are left
out: the upstream wrote none of them.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from caps.core.errors import InputError
from caps.engines.adaptive import Step
from caps.runs.adaptive_lines import step_line
from caps.server.errors import ApiError
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
from caps.server.requests import PREFIX, Body

REFUSED = {
    "n": "the answer is one response: set caps.n for the number of samples",
    "previous_response_id": "this server stores no responses: send the whole conversation in input",
    "conversation": "this server stores no conversations: send the whole conversation in input",
    "prompt": "this server stores no prompts: send the text itself in instructions or input",
    "background": "this server answers at once: leave it out, or set it to false",
}
# Fields that a chat request has under the same name; the others are translated, or only echoed.
SAME_FIELDS = (
    "temperature", "top_p", "parallel_tool_calls", "user", "seed", "stop", "service_tier", "top_k", "min_p",
    "frequency_penalty", "presence_penalty", "prompt_cache_key", "safety_identifier",
)  # fmt: skip
ECHOED: dict[str, object] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
LOGPROBS = "message.output_text.logprobs"
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def to_chat(body: Body) -> Body:
    """The chat request that a request of this API stands for."""
    refuse(body, REFUSED)
    chat = shared_fields(body)
    instructions = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise InputError("instructions: must be a string")
    first = [{"role": "system", "content": instructions}] if instructions else []
    chat["messages"] = [*first, *_messages(body.get("input"))]
    chat |= {name: body[name] for name in SAME_FIELDS if body.get(name) is not None}
    if body.get("max_output_tokens") is not None:
        chat["max_tokens"] = output_limit(body, "max_output_tokens")
    effort = mapping(body.get("reasoning"), "reasoning").get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    include = body.get("include")
    if body.get("top_logprobs") or (isinstance(include, list) and LOGPROBS in include):
        chat |= {"logprobs": True, "top_logprobs": body.get("top_logprobs") or 0}
    return chat | _text(body) | _tools(body)


def _text(body: Body) -> Body:
    """The form of the answer."""
    text = mapping(body.get("text"), "text")
    chat: Body = {} if text.get("verbosity") is None else {"verbosity": text["verbosity"]}
    form = mapping(text.get("format"), "text")
    match form.get("type", "text"):
        case "text":
            return chat
        case "json_object":
            return chat | {"response_format": {"type": "json_object"}}
        case "json_schema":
            schema = {name: value for name, value in form.items() if name != "type" and value is not None}
            return chat | {"response_format": {"type": "json_schema", "json_schema": schema}}
    raise InputError("text: format.type must be text, json_object or json_schema")


def _tools(body: Body) -> Body:
    rows = objects(body.get("tools") or [], "tools", "a tool")
    for place, row in enumerate(rows):
        if row.get("type") != "function":
            raise InputError(
                f"tools: tool {place}: type {str(row.get('type'))[:40]!r} is not supported: this server runs "
                "no tools, give functions"
            )
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = {one.get("name") for one in objects(choice.get("tools"), "tool_choice", "a tool")
                   if isinstance(one.get("name"), str)}  # fmt: skip
        rows = [row for row in rows if isinstance(row.get("name"), str) and row["name"] in allowed]
        choice = choice.get("mode", "auto")
    tools = [function_tool(row, f"tools: tool {place}", "parameters") for place, row in enumerate(rows)]
    if not tools:
        return {}
    if choice is None:
        return {"tools": tools}
    if isinstance(choice, str) and choice in ("auto", "none", "required"):
        return {"tools": tools, "tool_choice": choice}
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"tools": tools, "tool_choice": chosen_function(choice)}
    raise InputError("tool_choice: must be auto, none, required, or name a function")


def _messages(items: object) -> list[Body]:
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    rows = objects(items, "input", "an item")
    messages: list[Body] = []
    for place, row in enumerate(rows):
        _add(messages, row, f"input: item {place}")
    if not messages:
        raise InputError("input: must be a text, or a list with at least one message")
    return messages


def _add(messages: list[Body], row: Body, where: str) -> None:
    """Add an item to the messages of a chat; calls belong to the message of the assistant before them."""
    match row.get("type", "message"):
        case "message":
            role = row.get("role")
            if not isinstance(role, str) or role not in ROLES:
                raise InputError(f"{where}: role must be user, assistant, system or developer")
            messages.append({"role": ROLES[role], "content": joined(_parts(row.get("content"), where))})
        case "function_call":
            call = tool_call(
                string(row, "name", where), string(row, "arguments", where), string(row, "call_id", where)
            )
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": None})
            messages[-1].setdefault("tool_calls", []).append(call)
        case "function_call_output":
            message, others = tool_result(string(row, "call_id", where), _parts(row.get("output"), where))
            messages.append(message)
            if others:
                messages.append({"role": "user", "content": others})
        case "reasoning":
            pass
        case "item_reference":
            raise InputError(f"{where}: this server stores no items: send the item itself")
        case kind:
            raise InputError(f"{where}: items of type {str(kind)[:40]!r} are not supported")


def _parts(content: object, where: str) -> list[Body]:
    return [_part(part, where) for part in blocks(content, where, "parts")]


def _part(part: Body, where: str) -> Body:
    match part.get("type"):
        case "input_text" | "output_text" | "text" | "summary_text":
            return text_part(string(part, "text", where))
        case "refusal":
            return text_part(string(part, "refusal", where))
        case "input_image":
            if not isinstance(part.get("image_url"), str):
                raise InputError(f"{where}: image_url must be an address: this server stores no files")
            detail = part.get("detail")
            return image_part(part["image_url"], **({"detail": detail} if isinstance(detail, str) else {}))
        case "input_file":
            if not isinstance(part.get("file_data"), str):
                raise InputError(f"{where}: file_data must hold the file: this server stores no files")
            name = part.get("filename")
            file = {"filename": name if isinstance(name, str) else "file", "file_data": part["file_data"]}
            return {"type": "file", "file": file}
        case "input_audio":
            audio = mapping(part.get("input_audio"), f"{where}: input_audio")
            return {"type": "input_audio", "input_audio": audio}
        case kind:
            raise InputError(f"{where}: parts of type {str(kind)[:40]!r} are not supported")


def response(completion: Body, body: Body) -> Body:
    """A chat completion as a response."""
    choice, run = completion["choices"][0], completion["caps"]["run_id"]
    finish = choice.get("finish_reason")
    reason = INCOMPLETE.get(finish) if isinstance(finish, str) else None
    return {
        **_head(run, completion["model"], body, completion["created"]),
        "status": "incomplete" if reason else "completed",
        "completed_at": int(time.time()),
        "incomplete_details": {"reason": reason} if reason else None,
        "output": list(_items(choice, run, "incomplete" if reason else "completed")),
        "usage": _usage(completion["usage"]),
        "caps": completion["caps"],
    }


def _head(run: str, model: str, body: Body, created: int) -> Body:
    """The fields of a response that are known before its answer."""
    echoed = {name: body[name] if body.get(name) is not None else default for name, default in ECHOED.items()}
    return {
        "id": f"resp_{run}",
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "previous_response_id": None,
        "store": False,
        "usage": None,
        **echoed,
    }


def _usage(usage: Body) -> Body:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": usage["total_tokens"],
        "caps": usage["caps"],
    }


def _items(choice: Mapping[str, Any], run: str, status: str) -> Iterator[Body]:
    """The items of the output: reasoning, message, calls of functions."""
    answer = choice["message"]
    if thought := thoughts(answer):
        content = [{"type": "reasoning_text", "text": thought}]
        yield {"id": f"rs_{run}", "type": "reasoning", "summary": [], "content": content}
    text, calls, refusal = answered_text(answer), called_functions(answer), answer.get("refusal")
    if text or not calls:
        part: Body = {"type": "output_text", "text": text, "annotations": [], "logprobs": _logprobs(choice)}
        if not text and isinstance(refusal, str):
            part = {"type": "refusal", "refusal": refusal}
        yield {
            "id": f"msg_{run}",
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [part],
        }
    for place, (number, name, arguments) in enumerate(calls):
        yield {
            "id": f"fc_{run}_{place}",
            "type": "function_call",
            "status": status,
            "call_id": number or f"call_{run}_{place}",
            "name": name,
            "arguments": arguments,
        }


def _logprobs(choice: Mapping[str, Any]) -> list[Any]:
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return content if isinstance(content, list) else []


@dataclass(slots=True)
class ResponseEvents(Events):
    """The events of a streamed response; each has a number."""

    _sent: int = 0

    def opening(self) -> bytes:
        """The response as it was created and begun."""
        head = _head(self.run, PREFIX + self.request.model, self.body, self.created)
        return self._event("response.created", response=head) + self._event(
            "response.in_progress", response=head
        )

    def progress(self, step: Step) -> bytes:
        """The response as it stands."""
        head = _head(self.run, PREFIX + self.request.model, self.body, self.created)
        facts = {"run_id": self.run, "progress": step_line(step)}
        return self._event("response.in_progress", response={**head, "caps": facts})

    def answer(self, completion: Body) -> Iterator[bytes]:
        """Each item in pieces, then the whole response."""
        whole = response({**completion, "created": self.created}, self.body)
        for index, item in enumerate(whole["output"]):
            yield from self._item(index, item)
        yield self._event(f"response.{whole['status']}", response=whole)

    def failure(self, error: ApiError) -> bytes:
        """The error, then the response as it failed."""
        head = _head(self.run, PREFIX + self.request.model, self.body, self.created)
        failed = {**head, "status": "failed", "error": {"code": error.code, "message": str(error)}}
        return self._event("error", code=error.code, message=str(error), param=error.param) + self._event(
            "response.failed", response=failed
        )

    def _item(self, index: int, item: Body) -> Iterator[bytes]:
        at = {"output_index": index, "item_id": item["id"]}
        is_call = item["type"] == "function_call"
        empty: Body = {"arguments": ""} if is_call else {"content": []}
        begun = {**item, "status": "in_progress", **empty}
        yield self._event("response.output_item.added", output_index=index, item=begun)
        if is_call:
            for piece in pieces(item["arguments"]):
                yield self._event("response.function_call_arguments.delta", **at, delta=piece)
            said = {"name": item["name"], "arguments": item["arguments"]}
            yield self._event("response.function_call_arguments.done", **at, **said)
        else:
            for place, part in enumerate(item["content"]):
                yield from self._part({**at, "content_index": place}, part)
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _part(self, at: Body, part: Body) -> Iterator[bytes]:
        kind, field = part["type"], "refusal" if part["type"] == "refusal" else "text"
        text, more = part[field], {"logprobs": part["logprobs"]} if "logprobs" in part else {}
        yield self._event("response.content_part.added", **at, part={**part, field: ""})
        for piece in pieces(text):
            yield self._event(
                f"response.{kind}.delta", **at, delta=piece, **({"logprobs": []} if more else {})
            )
        yield self._event(f"response.{kind}.done", **at, **{field: text}, **more)
        yield self._event("response.content_part.done", **at, part=part)

    def _event(self, kind: str, **fields: object) -> bytes:
        number, self._sent = self._sent, self._sent + 1
        return sse_event({"type": kind, "sequence_number": number, **fields}, kind)


RESPONSES = ApiFormat(to_chat, response, ResponseEvents)
