"""What a client gets: the chosen choices as one completion, whole or in chunks."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from caps.server.asked import PREFIX, Asked
from caps.server.choosing import Choice
from caps.server.drawing import Drawn
from caps.server.usage import usage_of

PIECE = 1024  # characters of a chunk
DONE = b"data: [DONE]\n\n"

Completion = dict[str, Any]


def completion_of(asked: Asked, drawn: Drawn, choice: Choice, *, run: str, created: int) -> Completion:
    """The best `n` choices, whole and in order, as the upstream gave them."""
    good, order = drawn.good, choice.selection.order
    best = [{**good[place].choice, "index": rank} for rank, place in enumerate(order[: asked.wanted])]
    return {
        "id": f"chatcmpl-{run}",
        "object": "chat.completion",
        "created": created,
        "model": PREFIX + asked.upstream,
        "choices": best,
        "usage": usage_of(drawn, choice.outcome.ledger),
        "caps": facts_of(asked, drawn, choice, run=run),
    }


def facts_of(asked: Asked, drawn: Drawn, choice: Choice, *, run: str) -> dict[str, Any]:
    """How the answer came about; candidates are counted among those that came in."""
    outcome, selection = choice.outcome, choice.selection
    entrants = outcome.prepared.evidence.entrants if outcome.prepared else ()
    causes = outcome.ledger.malformed + outcome.ledger.unanswered
    return {
        "run_id": run,
        "strategy": asked.config.strategy,
        "seed": asked.config.seed,
        "domain": asked.domain(drawn.candidates)[0],
        "samples": len(drawn.draws),
        "failed": len(drawn.draws) - len(drawn.good),
        "clusters": len({one.signature or one.id for one in entrants}),
        "winner": selection.winner,
        "order": list(selection.order),
        "provisional": selection.provisional,
        "causes": dict(sorted(causes.items())),
    }


def chunks(completion: Completion, *, tell_usage: bool) -> Iterator[bytes]:
    """The events of a stream: role, pieces, calls, end of each choice, then the usage if it was asked for."""
    head = {name: completion[name] for name in ("id", "created", "model")}
    head = {**head, "object": "chat.completion.chunk"}
    empty = {"usage": None} if tell_usage else {}
    for choice in completion["choices"]:
        for delta, more in _deltas(choice):
            part = {"index": choice["index"], "delta": delta, "finish_reason": None, **more}
            yield event({**head, "choices": [part], **empty})
    if tell_usage:
        yield event({**head, "choices": [], "usage": completion["usage"], "caps": completion["caps"]})
    yield DONE


def event(value: object) -> bytes:
    """One event: JSON has no line break outside its texts, and none inside that is not escaped."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _deltas(choice: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Deltas of a choice, each with what else its chunk holds."""
    message = choice["message"]
    known = {"role", "content", "tool_calls", "reasoning_content", "reasoning"}
    rest = {name: value for name, value in message.items() if name not in known and value is not None}
    yield {"role": message.get("role") or "assistant", "content": "", **rest}, {}
    for name in ("reasoning_content", "reasoning"):
        for piece in _pieces(message.get(name)):
            yield {name: piece}, {}
    logprobs = choice.get("logprobs")
    for place, piece in enumerate(_pieces(message.get("content"))):
        yield {"content": piece}, {"logprobs": logprobs} if logprobs and place == 0 else {}
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        numbered = [{"index": i, **one} for i, one in enumerate(calls) if isinstance(one, dict)]
        yield {"tool_calls": numbered}, {}
    known = {"index", "message", "logprobs", "delta"}
    yield {}, {name: value for name, value in choice.items() if name not in known}


def _pieces(content: object) -> Iterator[object]:
    """A text in pieces; parts of other kinds go as they are."""
    if isinstance(content, str):
        for place in range(math.ceil(len(content) / PIECE)):
            yield content[place * PIECE : (place + 1) * PIECE]
    elif content:
        yield content
