"""Chat completions of the OpenAI API: whole or in chunks, with their usage.

Other formats translate requests to chat requests, and answers from chat completions.
"""

from collections.abc import Iterator
from typing import Any

from caps.core.types import Usage
from caps.costs.ledger import Ledger, Sums
from caps.costs.prices import Price
from caps.engines.adaptive import Step
from caps.runs.adaptive_lines import adaptive_line, generator_line, step_line
from caps.runs.result_lines import explanation_line, probability_line, ruling_lines, scores_line, sureness
from caps.server.errors import ApiError
from caps.server.events import Events, sse_event
from caps.server.formats import ApiFormat, pieces
from caps.server.requests import PREFIX, Body, ChatRequest
from caps.server.selection import ContestResult, Samples

NO_USAGE = Usage(0, 0)
DONE = b"data: [DONE]\n\n"


def usage_object(samples: Samples | None, ledger: Ledger) -> dict[str, Any]:
    """The object `usage`: samples and judge together; split by part and stage under `caps`."""
    spent = sum((sample.usage for sample in samples.choices), start=NO_USAGE) if samples else NO_USAGE
    judged = ledger.total()
    prompt, output = spent.prompt + judged.asked, spent.output + judged.output
    split: dict[str, Any] = {"verifier": _sums(judged), "stages": _stages(ledger)}
    if samples is not None:
        split = {
            "generation": _part(
                len(samples.choices), spent.prompt, spent.output, spent.cached, spent.reasoning
            ),
            **split,
        }
    split["estimated"] = spent.estimated or ledger.estimated
    if samples is not None and samples.adapted is not None:
        split["generators"] = [generator_line(one) for one in samples.adapted.ledgers]
        cancelled = sum((one.cancelled_usage for one in samples.adapted.ledgers), start=NO_USAGE)
        prompt, output = prompt + cancelled.prompt, output + cancelled.output
        split["estimated"] = split["estimated"] or cancelled.estimated
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": spent.cached + judged.cached},
        "completion_tokens_details": {"reasoning_tokens": spent.reasoning + judged.reasoning},
        "caps": split,
    }


def _part(calls: int, prompt: int, output: int, cached: int, reasoning: int) -> dict[str, int]:
    return {
        "calls": calls,
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "cached_tokens": cached,
        "reasoning_tokens": reasoning,
    }


def _sums(sums: Sums) -> dict[str, int]:
    return _part(sums.calls, sums.asked, sums.output, sums.cached, sums.reasoning)


def _stages(ledger: Ledger) -> list[dict[str, Any]]:
    return [
        {"stage": stage, "level": str(level), **_sums(sums)} for (stage, level), sums in ledger.lines.items()
    ]


def chat_completion(
    request: ChatRequest, samples: Samples, result: ContestResult, *, run: str, created: int
) -> Body:
    """The best `n` choices in order, each as the upstream sent it."""
    good, order = samples.good, result.selection.order
    best = [{**good[place].choice, "index": rank} for rank, place in enumerate(order[: request.n])]
    return {
        "id": f"chatcmpl-{run}",
        "object": "chat.completion",
        "created": created,
        "model": PREFIX + request.model,
        "choices": best,
        "usage": usage_object(samples, result.outcome.ledger),
        "caps": selection_facts(request, samples, result, run=run),
    }


def selection_facts(
    request: ChatRequest, samples: Samples, result: ContestResult, *, run: str
) -> dict[str, Any]:
    """How the answer was selected; `winner` and `order` count the samples that did not fail."""
    outcome, selection = result.outcome, result.selection
    causes = outcome.ledger.malformed + outcome.ledger.unanswered
    sure = probability_line(selection)
    return {
        "run_id": run,
        "strategy": request.config.strategy,
        "seed": request.config.seed,
        "domain": request.domain(samples.candidates)[0],
        "samples": len(samples.choices),
        "failed": len(samples.choices) - len(samples.good),
        "clusters": len(set(_clusters(result))),
        "winner": selection.winner,
        "order": list(selection.order),
        "probability": None,
        **sure,
        "sureness": sureness({**sure, "order": selection.order}),
        "provisional": selection.provisional,
        **({} if outcome.cause is None else {"cause": outcome.cause}),
        "causes": dict(sorted(causes.items())),
        "costs": _costs(request, samples, result),
        **_adaptive_facts(samples, result),
        **(_reasons(samples, result) if request.config.explain else {}),
    }


def _clusters(result: ContestResult) -> list[int]:
    """The cluster of each candidate; equal answers have the same number, counted by first appearance."""
    entrants = result.outcome.prepared.evidence.entrants if result.outcome.prepared else ()
    numbers: dict[object, int] = {}
    return [numbers.setdefault(one.signature or one.id, len(numbers)) for one in entrants]


def _costs(request: ChatRequest, samples: Samples, result: ContestResult) -> dict[str, float | None]:
    """Dollars for samples and judge; None where a price is unknown."""
    if samples.adapted is not None:
        sums = [one.usd for one in samples.adapted.ledgers]
        generation = None if None in sums else sum(one or 0.0 for one in sums)
    else:
        price = Price.stated(request.config)
        spent = sum((sample.usage for sample in samples.choices), start=NO_USAGE)
        generation = None if price is None else price.of(spent.prompt, spent.output, spent.cached)
    total = result.outcome.ledger.total()
    price = result.resolved.price
    judge = 0.0 if not total.calls else None if price is None else price.of_sums(total)
    both = None if generation is None or judge is None else generation + judge
    dollars = {"generation_usd": generation, "judge_usd": judge, "usd": both}
    return {name: None if value is None else round(value, 6) for name, value in dollars.items()}


def _reasons(samples: Samples, result: ContestResult) -> dict[str, Any]:
    """With `explain`: all candidates, what the judge said about them, and what moved the probability."""
    clusters, selection = _clusters(result), result.selection
    scores = scores_line(selection, len(samples.good))
    ranks = {place: rank for rank, place in enumerate(selection.order)}
    candidates = [
        {
            "text": candidate.text,
            "rank": ranks.get(place),
            "cluster": clusters[place] if place < len(clusters) else None,
            "score": scores["scores"][place],
        }
        for place, candidate in enumerate(samples.candidates)
    ]
    left_out = ("case", "key", "replayed", "requests")
    verdicts = [
        {name: value for name, value in line.items() if name not in left_out}
        for line in ruling_lines(result.outcome)
    ]
    return {
        "candidates": candidates,
        "score_kind": scores["score_kind"],
        "verdicts": verdicts,
        **explanation_line(result.outcome),
    }


def _adaptive_facts(samples: Samples, result: ContestResult) -> dict[str, Any]:
    """With adaptive sampling: which model wrote the winner, and why it ended."""
    if samples.adapted is None:
        return {}
    line = adaptive_line(samples.adapted, result.outcome)
    return {name: line[name] for name in ("model", "written_by", "stopped")}


class ChunkEvents(Events):
    """The chunks of a streamed chat completion."""

    def progress(self, step: Step) -> bytes:
        """A chunk without choices that says how the request stands."""
        head = _head(f"chatcmpl-{self.run}", self.created, PREFIX + self.request.model)
        return sse_event({**head, "choices": [], "caps": {"progress": step_line(step)}})

    def answer(self, completion: Body) -> Iterator[bytes]:
        """Role, text, tool calls and end of each choice, then the usage if requested."""
        include_usage = self.request.include_usage
        head = _head(completion["id"], completion["created"], completion["model"])
        empty = {"usage": None} if include_usage else {}
        facts, last = {"caps": completion["caps"]}, completion["choices"][-1]
        for choice in completion["choices"]:
            for delta, more in _deltas(choice):
                part = {"index": choice["index"], "delta": delta, "finish_reason": None, **more}
                is_end = choice is last and not delta and not include_usage
                yield sse_event({**head, "choices": [part], **empty, **(facts if is_end else {})})
        if include_usage:
            yield sse_event({**head, "choices": [], "usage": completion["usage"], **facts})
        yield DONE

    def failure(self, error: ApiError) -> bytes:
        """The error object as an event."""
        return sse_event(error.body())


def _as_it_is(completion: Body, body: Body) -> Body:  # noqa: ARG001
    return completion


CHAT = ApiFormat(None, _as_it_is, ChunkEvents)


def _head(name: str, created: int, model: str) -> Body:
    return {"id": name, "created": created, "model": model, "object": "chat.completion.chunk"}


def _deltas(choice: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The deltas of a choice, each with the other fields of its chunk."""
    message = choice["message"]
    streamed = {"role", "content", "tool_calls", "reasoning_content", "reasoning"}
    rest = {name: value for name, value in message.items() if name not in streamed and value is not None}
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
    sent = {"index", "message", "logprobs", "delta"}
    yield {}, {name: value for name, value in choice.items() if name not in sent}


def _pieces(content: object) -> Iterator[object]:
    """A text in pieces; content of any other type in one."""
    if isinstance(content, str):
        yield from pieces(content)
    elif content:
        yield content
