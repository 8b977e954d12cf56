"""API formats: what a format module provides, and helpers for reading the requests of other APIs.

Inside the server every request is a chat request and every answer a chat completion of the OpenAI API. A
format translates the requests of another API to that form, and answers from it. Reading is total: an
`InputError` names the field that is wrong.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from caps.core.errors import InputError
from caps.server.events import Events
from caps.server.requests import Body, ChatRequest, tool_calls_of

PIECE_CHARACTERS = 32  # of a stream: clients that look for marks in a text expect pieces of a few words
MOST_PIECES = 256  # of one text; those of a long one are longer
SHARED_FIELDS = ("model", "stream", "stream_options", "caps")  # mean the same in every API


@dataclass(frozen=True, slots=True)
class ApiFormat:
    """One API: how its requests become chat requests, and chat completions its answers.

    `to_chat` is None if requests are chat requests already. `answer` and `events` also get the request's own
    body, in which large fields are not decoded.
    """

    to_chat: Callable[[Body], Body] | None
    answer: Callable[[Body, Body], Body]
    events: Callable[[ChatRequest, Body, str], Events]


def pieces(text: str) -> Iterator[str]:
    """A text in the pieces of a stream."""
    size = max(PIECE_CHARACTERS, math.ceil(len(text) / MOST_PIECES))
    for place in range(0, len(text), size):
        yield text[place : place + size]


def shared_fields(body: Mapping[str, Any]) -> Body:
    """The fields that mean the same in every API."""
    return {name: body[name] for name in SHARED_FIELDS if name in body}


def refuse(body: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """`InputError` if a field is set that this server cannot honour."""
    for name, reason in reasons.items():
        if body.get(name):
            raise InputError(f"{name}: {reason}")


def objects(value: object, name: str, what: str) -> list[Body]:
    """A list of objects; `what` is one of them."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InputError(f"{name}: must be a list of objects, each {what}")
    return value


def mapping(value: object, name: str) -> Body:
    """An object; an absent one is empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{name}: must be an object")
    return value


def string(row: Mapping[str, Any], key: str, where: str) -> str:
    """A text field of an object."""
    value = row.get(key)
    if not isinstance(value, str):
        raise InputError(f"{where}.{key} must be a string")
    return value


def output_limit(body: Mapping[str, Any], name: str) -> int:
    """The field that limits the tokens of the answer."""
    limit = body.get(name)
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InputError(f"{name}: must be a whole number of at least 1")
    return limit


def blocks(content: object, where: str, what: str) -> list[Body]:
    """A content as a list of blocks; a text is one block. `what` names them in the error."""
    if isinstance(content, str):
        return [text_part(content)]
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise InputError(f"{where}: content must be a string or a list of {what}")
    return content


def text_part(text: str) -> Body:
    """A text as a part of a chat message."""
    return {"type": "text", "text": text}


def image_part(url: str, **more: object) -> Body:
    """An image as a part of a chat message."""
    return {"type": "image_url", "image_url": {"url": url, **more}}


def joined(parts: Sequence[Body]) -> str | list[Body]:
    """Parts as the content of a chat message; plain text if there is nothing else, as every server reads."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return list(parts)


def tool_call(name: str, arguments: str, number: str) -> Body:
    """A call of a function, as it stands in a chat message."""
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_result(number: str, parts: Sequence[Body], prefix: str = "") -> tuple[Body, list[Body]]:
    """The result of a call as a chat message, which can hold text only, and the parts that must follow it."""
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    others = [part for part in parts if part["type"] != "text"]
    return {"role": "tool", "tool_call_id": number, "content": prefix + text}, others


def function_tool(row: Mapping[str, Any], where: str, schema: str) -> Body:
    """A function that the model may call; `schema` is the field with the schema of its arguments."""
    mapping(row.get(schema), f"{where}: {schema}")
    names = {"name": "name", "description": "description", schema: "parameters", "strict": "strict"}
    string(row, "name", where)
    function = {names[key]: row[key] for key in names if row.get(key) is not None}
    return {"type": "function", "function": function}


def chosen_function(choice: Mapping[str, Any]) -> Body:
    """The choice of one function that the model must call."""
    return {"type": "function", "function": {"name": string(choice, "name", "tool_choice: function")}}


def called_functions(message: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Id, name and arguments of each function that an answer calls; an id may be empty."""
    calls = [call for call in tool_calls_of(message) if isinstance(call, dict)]
    return [
        (str(call.get("id") or ""), str(function.get("name") or ""), _arguments(function))
        for call in calls
        if isinstance(function := call.get("function"), dict)
    ]


def _arguments(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments")
    return arguments if isinstance(arguments, str) else "{}"


def answered_text(message: Mapping[str, Any]) -> str:
    """The text of an answer, also of one in parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "".join(part["text"] for part in parts if isinstance(part, dict) and _is_answer_text(part))


def _is_answer_text(part: Mapping[str, Any]) -> bool:
    return part.get("type", "text") == "text" and isinstance(part.get("text"), str)


def thoughts(message: Mapping[str, Any]) -> str:
    """What a model thought before its answer, if the upstream reports it."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(message.get(name), str):
            return str(message[name])
    return ""
