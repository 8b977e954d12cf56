"""API formats: what a format module provides, and helpers for reading the requests of other APIs.

Inside the server every request is a chat request and every answer a chat completion of the OpenAI API. A
format translates the requests of another API to that form, and answers from it. Reading is total: an
`InputError` names the field that is wrong.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from caps.core.errors import InputError
from caps.engines.adaptive import Step
from caps.server.http import EventWriter
from caps.server.requests import ChatRequest

Body = dict[str, Any]
PIECE_CHARACTERS = 32  # of a stream: clients that look for marks in a text expect pieces of a few words
MOST_PIECES = 256  # of one text; those of a long one are longer
SHARED_FIELDS = ("model", "stream", "stream_options", "caps")  # mean the same in every API


class Events(EventWriter[Body], Protocol):
    """The events of one streamed answer."""

    def progress(self, step: Step) -> bytes:
        """An event that says how the request stands."""
        ...


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


def function_tool(row: Mapping[str, Any], where: str, schema: str) -> Body:
    """A function that the model may call; `schema` is the field with the schema of its arguments."""
    function = {"name": string(row, "name", where)}
    for given, name in (("description", "description"), (schema, "parameters"), ("strict", "strict")):
        if row.get(given) is not None:
            function[name] = row[given]
    return {"type": "function", "function": function}


def called_functions(message: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Id, name and arguments of each function that an answer calls; an id may be empty."""
    calls = message.get("tool_calls")
    rows = [one for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
    if not rows and isinstance(message.get("function_call"), dict):
        rows = [{"function": message["function_call"]}]
    found = []
    for row in rows:
        function = row.get("function")
        if isinstance(function, dict):
            arguments = function.get("arguments")
            found.append(
                (
                    str(row.get("id") or ""),
                    str(function.get("name") or ""),
                    arguments if isinstance(arguments, str) else "{}",
                )
            )
    return found


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
