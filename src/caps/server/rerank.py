"""Rankings in the format of the rerank APIs (Cohere, Jina, Text Embeddings Inference).

A request has a query and documents, or is a case of caps with a problem and candidates. The response has one
result per document, best first: its `index` in the request and its `relevance_score`.

Invariant: scores never rise along the results, so that a client that sorts them itself gets the same ranking.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from caps.config import RunConfig
from caps.core.errors import InputError
from caps.core.types import Case
from caps.server.errors import invalid_value
from caps.server.openai_format import usage_object
from caps.server.requests import decode_object, parse_large_case
from caps.server.selection import ContestResult

# The names of these fields in each API, and as a case has them. The first name is the one for messages.
QUERY, DOCUMENTS, RETURNED = ("query",), ("documents", "texts"), ("return_documents", "return_text")
OWN_FIELDS = ("top_n", *RETURNED)


@dataclass(frozen=True, slots=True)
class RankOptions:
    """How many results a client wants, all if None, and whether they contain the documents."""

    top_n: int | None = None
    return_documents: bool = False


def rank_options(body: dict[str, Any]) -> RankOptions:
    """The options in a body; an `ApiError` names the field that is wrong."""
    top_n = body.get("top_n")
    if top_n is not None and (isinstance(top_n, bool) or not isinstance(top_n, int) or top_n < 1):
        raise invalid_value("top_n", "must be a whole number of at least 1")
    for name in RETURNED:
        if body.get(name) is not None and not isinstance(body[name], bool):
            raise invalid_value(name, "must be true or false")
    return RankOptions(top_n, any(body.get(name) for name in RETURNED))


def case_fields(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of a case from those of a rerank request; a case stays as it is."""
    row = {name: value for name, value in body.items() if name not in OWN_FIELDS}
    for names, field in ((QUERY, "problem"), (DOCUMENTS, "candidates")):
        given = [name for name in (*names, field) if name in row]
        if len(given) > 1:
            raise InputError(f"{given[0]}: {given[1]} is given too; send one of them")
        if not given:
            raise InputError(f"{names[0]}: is missing; send {names[0]}, or {field} as in POST /v1/select")
        row[field] = row.pop(given[0])
    return row


def parse_large_ranking(payload: bytes, registered: Mapping[str, tuple[str, ...]]) -> Case:
    """The case in a large rerank request, parsed in a worker process; see `parse_large_case`."""
    return parse_large_case(msgspec.json.encode(case_fields(decode_object(payload))), registered)


def ranking(
    result: ContestResult, config: RunConfig, options: RankOptions, *, model: str, run: str
) -> dict[str, Any]:
    """The response: results best first, usage, and how they were ranked under `caps`."""
    outcome, selection = result.outcome, result.selection
    assert outcome.prepared is not None  # noqa: S101  (a contest was held)
    candidates = outcome.prepared.case.candidates
    results = [
        {
            "index": place,
            "relevance_score": round(selection.scores[place], 6),
            **({"document": {"text": candidates[place].text}} if options.return_documents else {}),
        }
        for place in selection.order
    ]
    usage = usage_object(None, outcome.ledger)
    probability = selection.facts.get("probability")
    return {
        "id": run,
        "model": model,
        "results": results[: options.top_n],
        "usage": usage,
        "meta": {
            "tokens": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]}
        },
        "caps": {
            "run_id": run,
            "strategy": config.strategy,
            "seed": config.seed,
            "domain": outcome.prepared.case.domain,
            "clusters": len({one.signature or one.id for one in outcome.prepared.evidence.entrants}),
            "score_kind": selection.score_kind,
            **({} if probability is None else {"probability": round(probability, 4)}),
            "provisional": selection.provisional,
            **({} if outcome.cause is None else {"cause": outcome.cause}),
            "causes": dict(sorted((outcome.ledger.malformed + outcome.ledger.unanswered).items())),
        },
    }
