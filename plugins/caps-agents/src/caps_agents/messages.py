"""Messages of agents in OpenAI's chat format, from those of other tools, which only this module knows."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from caps import InputError

Row = dict[str, Any]


def messages_of(rows: object) -> list[Row]:
    """Messages in the chat format, from a list of messages or of ATIF steps; else an `InputError`."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError("must be a list of objects")
    steps = any("source" in row and "role" not in row for row in rows)
    return atif_messages(rows) if steps else chat_messages(rows)


def chat_messages(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Messages in the chat format, with tool calls of OpenAI, Inspect or Anthropic."""
    messages: list[Row] = []
    for row in rows:
        role, content = row.get("role"), row.get("content")
        if not isinstance(role, str):
            raise InputError("messages: every message needs a role")
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        calls = _calls(row.get("tool_calls"))
        calls += [tool_call(block) for block in blocks if block.get("type") == "tool_use"]
        results = [block for block in blocks if block.get("type") == "tool_result"]
        text = "\n".join(piece for piece in (_reasoning(row), message_text(content)) if piece)
        if text or calls or not results:
            messages.append(message(role, text, calls))
        messages += [message("tool", message_text(result.get("content"))) for result in results]
    return messages


def atif_messages(steps: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Messages of the steps of the agent trajectory interchange format (ATIF)."""
    messages: list[Row] = []
    for step in steps:
        source, text = step.get("source"), message_text(step.get("message"))
        if source in ("user", "system"):
            messages.append(message(str(source), text))
            continue
        words = "\n".join(piece for piece in (_reasoning(step), text) if piece)
        messages.append(message("assistant", words, _calls(step.get("tool_calls"))))
        observation = step.get("observation")
        results = observation.get("results") if isinstance(observation, dict) else None
        for result in results if isinstance(results, list) else ():
            content = result.get("content") if isinstance(result, dict) else result
            messages.append(message("tool", message_text(content)))
    return messages


def message(role: str, text: str, calls: Sequence[Row] = ()) -> Row:
    """A message in the chat format."""
    return {"role": role, "content": text, **({"tool_calls": list(calls)} if calls else {})}


def message_text(content: object) -> str:
    """The text of a message's content: a text, or parts of which some are text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else json.dumps(content, ensure_ascii=False)
    texts = (part.get("text") if isinstance(part, dict) else part for part in content)
    return "\n".join(text for text in texts if isinstance(text, str))


def tool_call(row: Mapping[str, Any]) -> Row:
    """A tool call in the format of OpenAI."""
    function = row.get("function")
    if isinstance(function, dict):
        name, arguments = function.get("name"), function.get("arguments")
    else:
        name = function or row.get("function_name") or row.get("tool_name") or row.get("name")
        arguments = row.get("arguments", row.get("input"))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"type": "function", "function": {"name": str(name or ""), "arguments": text}}


def _calls(calls: object) -> list[Row]:
    return [tool_call(call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _reasoning(row: Mapping[str, Any]) -> str:
    value = row.get("reasoning_content") or row.get("reasoning")
    return value if isinstance(value, str) else ""
