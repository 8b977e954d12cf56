"""Chat messages as other tools write them: one text, or parts of several kinds."""

import math
from collections.abc import Iterable, Mapping

from caps.core.errors import InputError
from caps.core.types import Candidate, Message, Problem
from caps.datasets.fields import Row, kind_of, wanted

_ATTACHED = "attachment://"


def problem_of(asked: object, where: str, attached: Mapping[str, object] | None = None) -> Problem:
    """A problem that is a text or a list of messages; pictures and the like cannot be shown to a judge."""
    if isinstance(asked, str):
        return Problem.of(_found(asked, attached))
    if not isinstance(asked, list) or not asked:
        raise InputError(f"{where}: must be a text or a list of chat messages, not {kind_of(asked)}")
    messages = []
    for i, message in enumerate(asked):
        place = f"{where}[{i}]"
        if not isinstance(message, dict):
            raise InputError(f"{place}: must be an object, not {kind_of(message)}")
        text, _ = _content(message.get("content"), attached, f"{place}.content")
        messages.append(Message(wanted(message, "role", str, f"{place}."), text))
    return Problem(tuple(messages))


def candidate_of(choice: Row, where: str, attached: Mapping[str, object] | None = None) -> Candidate:
    """One choice of a completion, its thoughts before it between tags, as the model wrote them."""
    if isinstance(choice.get("text"), str):
        return Candidate(choice["text"], logprob=_logprob(choice))
    message = wanted(choice, "message", dict, f"{where}.")
    place = f"{where}.message.content"
    if message.get("content") is None:
        raise InputError(f"{place}: must be a text, not null (finish reason {choice.get('finish_reason')!r})")
    text, thought = _content(message["content"], attached, place)
    stated = message.get("reasoning_content") or message.get("reasoning")
    thought = stated if isinstance(stated, str) else thought
    return Candidate(with_thought(text, thought), logprob=_logprob(choice))


def with_thought(text: str, thought: str) -> str:
    """A text with the thought that came before it."""
    return f"<think>\n{thought.strip()}\n</think>\n\n{text}" if thought.strip() else text


def _content(content: object, attached: Mapping[str, object] | None, where: str) -> tuple[str, str]:
    """Text and thought of a message's content."""
    if content is None or isinstance(content, str):
        return _found(content or "", attached), ""
    if not isinstance(content, list):
        raise InputError(f"{where}: must be a text or a list of parts, not {kind_of(content)}")
    texts, thoughts = [], []
    for i, part in enumerate(content):
        if isinstance(part, str):
            texts.append(_found(part, attached))
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(_found(part["text"], attached))
        elif isinstance(part, dict) and part.get("type") in ("reasoning", "thinking"):
            thoughts.append(_found(_thought(part), attached))
        else:
            kind = part.get("type") if isinstance(part, dict) else kind_of(part)
            raise InputError(f"{where}[{i}]: a part of type {kind!r:.40} is no text")
    return "".join(texts), "\n".join(thoughts)


def _thought(part: Row) -> str:
    value = part.get("reasoning", part.get("thinking"))
    return value if isinstance(value, str) else ""


def _found(text: str, attached: Mapping[str, object] | None) -> str:
    """A text, or the longer one that a log keeps elsewhere under its digest."""
    if attached and text.startswith(_ATTACHED):
        value = attached.get(text.removeprefix(_ATTACHED))
        return value if isinstance(value, str) else text
    return text


def _logprob(choice: Row) -> float | None:
    """The log-probability of all tokens together, where they were asked for."""
    kept = choice.get("logprobs")
    tokens = kept.get("content") if isinstance(kept, dict) else None
    found = list(_logprobs(tokens)) if isinstance(tokens, list) else []
    total = math.fsum(found) if found and len(found) == len(tokens or ()) else None
    return total if total is not None and math.isfinite(total) else None


def _logprobs(tokens: Iterable[object]) -> Iterable[float]:
    for token in tokens:
        value = token.get("logprob") if isinstance(token, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9:
            yield float(value)
