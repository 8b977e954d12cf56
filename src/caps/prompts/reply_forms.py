"""Forms of replies that a server can hold a judge to: bare tags, or one JSON object.

Servers offer it under different names. `tags` is a grammar (llama.cpp), `choice` and `guided-choice` are a
list of all replies (vLLM, newer and older), `regex` is the same as one expression (SGLang), `json` is a JSON
schema in `response_format`. A `free` reply is held to nothing.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from caps.core.types import Ask, Group, Pairing, Pick, Rating, Solo, Verdict
from caps.prompts.criteria import ByCriterion, fits
from caps.prompts.grammar import grammar_for, sentences
from caps.prompts.parse import Reading
from caps.prompts.tags import verdict_of

#: The ways to hold a reply to bare tags, in the order in which a server is asked for them.
TAGS = ("tags", "choice", "guided-choice", "regex")
REPLIES = ("free", *TAGS, "json")

LONGEST_JSON = 400_000  # characters; a longer reply is no verdict
_SIDES, _SURE = ("A", "B", "TIE"), ("HIGH", "LOW")
_PROBE = "held"  # a word that no model gives as the answer to the test call, unless it is held to it
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL | re.IGNORECASE)


def held_to(reply: str, ask: Ask, code: str | None, criteria: int = 0) -> dict[str, object]:
    """The request fields that hold a reply to its form; none for a free one."""
    if reply == "free":
        return {}
    if reply == "json":
        return _schema_field("verdict", _properties(ask, criteria))
    return (
        {"grammar": grammar_for(ask, code)}
        if reply == "tags"
        else _held_to_texts(reply, sentences(ask, code))
    )


def probe_fields(reply: str) -> dict[str, object]:
    """The request fields of a test call, which hold the reply to one word."""
    if reply == "json":
        return _schema_field("test", {"word": {"type": "string", "enum": [_PROBE]}})
    return {"grammar": f'root ::= "{_PROBE}"'} if reply == "tags" else _held_to_texts(reply, [_PROBE])


def was_held(reply: str, text: str) -> bool:
    """Whether the reply to a test call shows that the server holds replies to this form."""
    if reply == "json":
        return _object(text) == {"word": _PROBE}
    return text.strip() == _PROBE


def instructions(reply: str, ask: Ask, code: str | None, criteria: int = 0) -> str:
    """What a prompt says about the form of the reply, at its very end; nothing unless it is JSON."""
    if reply != "json":
        return ""
    which = {
        "criteria": f"a list of {criteria} verdicts, one by each criterion",
        "winner": "A, B or TIE",
        "confidence": "HIGH or LOW",
        "best": "the number of the best candidate",
        "code": f"the text {code}",
    }
    names = [name for name in _properties(ask, criteria) if name != "reasoning" and (code or name != "code")]
    fields = "; ".join(f'"{name}": {which.get(name, "a number from 1 to 10")}' for name in names)
    return (
        "\n\nWrite no lines with tags: the whole reply is one JSON object, first with your reasoning as the "
        f'text "reasoning", then {fields}.'
    )


def read_json(
    ask: Ask, text: str, *, truncated: bool, code: str | None, bound_only: bool, criteria: int = 0
) -> tuple[Reading, ByCriterion] | None:
    """Read a reply that is one JSON object; None if it is none, but prose.

    It must keep to the schema, with every field once and no other: what does not is unreadable, whatever it
    contains. Texts inside of it are never read as a verdict. Without the code it counts only if no text shown
    could be read as a verdict (`bound_only`).
    """
    own = text.rpartition("</think>")[2].strip()
    own = found[1].strip() if (found := _FENCE.fullmatch(own)) else own
    if not own.startswith("{"):
        return None
    row = None if truncated else _object(own)
    if row is None or not {*row} <= {*_properties(ask, criteria)}:
        return Reading(None, "none", "truncated" if truncated else "no-tag"), ()
    values = {name: _value(value) for name, value in row.items() if name not in ("reasoning", "criteria")}
    bound = bool(code) and code in (
        values.get("code", ("", ""))[0].lower(),
        *(end for _, end in values.values()),
    )
    reading = _reading(ask, {name: word for name, (word, _) in values.items()})
    if reading is None:
        return Reading(None, "none", "no-tag"), ()
    if bound_only and not bound:
        return Reading(None, "none", "unbound"), ()
    said = row.get("criteria")
    words = [_value(one)[0] for one in said] if isinstance(said, list) and len(said) == criteria else []
    apart = tuple(word if fits(ask, word) else None for word in words)
    return reading._replace(bound=bound), apart


def _properties(ask: Ask, criteria: int) -> dict[str, Mapping[str, object]]:
    """The fields of a verdict in order; equal for all cases, so that a server compiles the schema once."""
    side = {"type": "string", "enum": list(_SIDES)}
    rating = {"type": "integer", "enum": list(range(1, 11))}
    found: dict[str, Mapping[str, object]] = {"reasoning": {"type": "string"}}
    if criteria:
        kind: Mapping[str, object] = side if isinstance(ask, Pairing) else {"type": "integer"}
        found["criteria"] = {"type": "array", "items": kind}
    if isinstance(ask, Pairing) and ask.dialect == "ratings":
        found |= {"rating_A": rating, "rating_B": rating}
    elif isinstance(ask, Pairing):
        found |= {"winner": side, "confidence": {"type": "string", "enum": list(_SURE)}}
    elif isinstance(ask, Solo):
        found["rating"] = rating
    else:
        found["best"] = {"type": "integer", "enum": list(range(1, len(ask.entrants) + 1))}
    return found | {"code": {"type": "string"}}


def _schema_field(name: str, properties: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    schema = {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
    kind = {"name": name, "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": kind}}


def _held_to_texts(reply: str, texts: Iterable[str]) -> dict[str, object]:
    if reply == "regex":
        return {"regex": "(" + "|".join(map(re.escape, texts)) + ")"}
    choice = list(texts)
    return {"structured_outputs": {"choice": choice}} if reply == "choice" else {"guided_choice": choice}


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object of a text; None if it is none or has a field twice."""
    if len(text) > LONGEST_JSON:
        return None
    try:
        row = json.loads(text.strip(), object_pairs_hook=_once, parse_int=_number, parse_float=_number)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a field twice")
    return row


def _number(digits: str) -> float:
    if len(digits) > 20:
        raise ValueError("no rating")
    return float(digits)


def _value(value: object) -> tuple[str, str]:
    """A value as a word, and the code behind it, as in `A-k7f3`, which the tags of the prompt have."""
    if isinstance(value, float):
        return f"{value:g}", ""
    word, _, end = str(value).strip().partition("-") if isinstance(value, str) else ("", "", "")
    return word.upper(), end.lower()


def _reading(ask: Ask, words: Mapping[str, str]) -> Reading | None:
    """The answer of the fields of an object; None if one is missing or has no valid value."""
    if isinstance(ask, Pairing) and ask.dialect == "ratings":
        a, b = (_rated(words.get(name)) for name in ("rating_A", "rating_B"))
        return None if a is None or b is None else Reading(Verdict(a, b), "json")
    if isinstance(ask, Pairing):
        winner, sure = words.get("winner"), words.get("confidence")
        if winner not in _SIDES or sure not in _SURE:
            return None
        return Reading(verdict_of(winner, sure), "json", None, winner, sure)
    if isinstance(ask, Solo):
        rated = _rated(words.get("rating"))
        return None if rated is None else Reading(Rating(rated), "json")
    return _picked(ask, words.get("best"))


def _rated(word: str | None) -> float | None:
    return float(word) if word is not None and word in map(str, range(1, 11)) else None


def _picked(ask: Group, word: str | None) -> Reading | None:
    if word is None or not word.isdecimal() or not 1 <= int(word) <= len(ask.entrants):
        return None
    return Reading(Pick(ask.entrants[int(word) - 1]), "json")
