"""What a judge reads of a chat request: every message, tool and wanted format as text; total and pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from caps.core.types import Message, Problem


def problem_of_chat(body: Mapping[str, Any]) -> Problem:
    """The request as a problem; what is no text is named, not shown."""
    asked = [_message(one) for one in body["messages"]]
    told = [
        Message(name, as_json(body[name]))
        for name in ("tools", "functions", "response_format")
        if body.get(name)
    ]
    return Problem((*told, *asked))


def as_json(value: object) -> str:
    """A value on one line."""
    return msgspec.json.encode(value).decode()


def calls_of(message: Mapping[str, Any]) -> list[Any]:
    """The tool calls of a message, those of the older kind too."""
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        return calls
    called = message.get("function_call")
    return [{"function": called}] if isinstance(called, dict) else []


def _message(message: Mapping[str, Any]) -> Message:
    role, parts = message.get("role"), [_content(message.get("content"))]
    if calls := calls_of(message):
        parts.append(as_json({"tool_calls": calls}))
    return Message(role if isinstance(role, str) else "user", "\n\n".join(filter(None, parts)))


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else as_json(content)
    return "\n".join(_part(part) for part in content)


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, dict) else None
    return f"[{kind if isinstance(kind, str) else 'a part'}: not shown here]"
