"""Forms of replies: what a prompt says about them, what a server can hold a judge to, and criteria.

Servers offer it under different names. `tags` is a grammar (llama.cpp), `choice` and `guided-choice` are a
list of all replies (vLLM, newer and older), `regex` is the same as one expression (SGLang), `json` is a JSON
schema in `response_format`. A `free` reply is held to nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TypeAlias

from caps.core.errors import SettingError
from caps.core.text import parse_json
from caps.core.types import Ask, Pairing, Solo
from caps.prompts.read import json_object

#: The ways to hold a reply to bare tags, in the order in which a server is asked for them.
TAGS = ("tags", "choice", "guided-choice", "regex")
REPLIES = ("free", *TAGS, "json")

_SIDES, _SURE = ("A", "B", "TIE"), ("HIGH", "LOW")
_RATINGS = tuple(map(str, range(1, 11)))
_PROBE = "held"  # a word that no model gives as the answer to the test call, unless it is held to it
_Tags = tuple[tuple[str, tuple[str, ...]], ...]


def held_to(reply: str, ask: Ask, code: str | None, criteria: int = 0) -> dict[str, object]:
    """The request fields that hold a reply to its form; none for a free one."""
    if reply == "free":
        return {}
    if reply == "json":
        return _schema_field("verdict", _properties(ask, criteria))
    if reply == "tags":
        return {"grammar": grammar_for(ask, code)}
    return _held_to_texts(reply, sentences(ask, code))


def probe_fields(reply: str) -> dict[str, object]:
    """The request fields of a test call, which hold the reply to one word."""
    if reply == "json":
        return _schema_field("test", {"word": {"type": "string", "enum": [_PROBE]}})
    return {"grammar": f'root ::= "{_PROBE}"'} if reply == "tags" else _held_to_texts(reply, [_PROBE])


def was_held(reply: str, text: str) -> bool:
    """Whether the reply to a test call shows that the server holds replies to this form."""
    if reply != "json":
        return text.strip() == _PROBE
    return bool(parse_json(text) == {"word": _PROBE})


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


def short_form(ask: Ask, code: str | None) -> str:
    """What the last try says at the end of the prompt: only the verdict, without reasoning.

    The verdicts of a pair are written out, to be copied. A judge that copies all of them has decided nothing.
    Small models leave out the tags unless they are asked for them in so many words.
    """
    name, labels = _tags(ask)[0]
    start = "\n\nWrite no reasoning this time. "
    if isinstance(ask, Pairing) and ask.dialect != "ratings":
        lines = [f"<{name}>{label}{_end(name, code)}" for label in labels]
        return f"{start}Reply with only one of these lines, tags included:\n" + "\n".join(lines)
    names = [name for name, _ in _tags(ask)]
    form = "\n".join(f"<{name}>N{_end(name, code)}" for name in names)
    what = "the number of the best candidate" if name == "best" else "a number from 1 to 10"
    begins, ends = ("one line that begins", "ends") if len(names) == 1 else ("two lines that begin", "end")
    return (
        f"{start}Your whole reply is {begins} with <{names[0]}> and {ends} with </{names[-1]}>: {form}, "
        f"with {what} for N"
    )


# --- Bare tags: a grammar (GBNF of llama.cpp), or all replies ---


def grammar_for(ask: Ask, code: str | None = None) -> str:
    """The grammar of replies to an ask: its tags, one per line, and nothing else.

    If the prompt asks for a code, every tag except the confidence contains it.
    """
    lines = [
        f'"<{name}>" ({" | ".join(f"{chr(34)}{word}{chr(34)}" for word in words)}) "{_end(name, code)}"'
        for name, words in _tags(ask)
    ]
    return "root ::= " + r' "\n" '.join(lines)


def sentences(ask: Ask, code: str | None = None) -> Iterator[str]:
    """All replies that the grammar of an ask allows."""
    names, choices = zip(*_tags(ask), strict=True)
    for words in product(*choices):
        lines = zip(names, words, strict=True)
        yield "\n".join(f"<{name}>{word}{_end(name, code)}" for name, word in lines)


def room_for(ask: Ask, code: str | None = None) -> int:
    """An upper bound of the tokens of a reply: one per character, and the end token."""
    longest = ((name, max(map(len, words))) for name, words in _tags(ask))
    return 1 + sum(len(f"<{name}>\n{_end(name, code)}") + most for name, most in longest)


def _tags(ask: Ask) -> _Tags:
    if isinstance(ask, Pairing):
        if ask.dialect == "ratings":
            return (("rating_A", _RATINGS), ("rating_B", _RATINGS))
        return (("winner", _SIDES), ("confidence", _SURE))
    if isinstance(ask, Solo):
        return (("rating", _RATINGS),)
    return (("best", tuple(str(1 + place) for place in range(len(ask.entrants)))),)


def _end(name: str, code: str | None) -> str:
    return f"</{name}>" if code is None or name == "confidence" else f"-{code}</{name}>"


def _held_to_texts(reply: str, texts: Iterable[str]) -> dict[str, object]:
    if reply == "regex":
        return {"regex": "(" + "|".join(map(re.escape, texts)) + ")"}
    choice = list(texts)
    return {"structured_outputs": {"choice": choice}} if reply == "choice" else {"guided_choice": choice}


# --- One JSON object ---


def _properties(ask: Ask, criteria: int) -> dict[str, Mapping[str, object]]:
    """The fields of a verdict in order; equal for all cases, so that a server compiles the schema once."""
    properties: dict[str, Mapping[str, object]] = {"reasoning": {"type": "string"}}
    if criteria:
        kind = _kind(_SIDES) if isinstance(ask, Pairing) else {"type": "integer"}
        properties["criteria"] = {"type": "array", "items": kind}
    properties |= {name: _kind(words) for name, words in _tags(ask)}
    return properties | {"code": {"type": "string"}}


def _kind(words: Sequence[str]) -> dict[str, object]:
    if words[0].isdecimal():
        return {"type": "integer", "enum": list(map(int, words))}
    return {"type": "string", "enum": list(words)}


def _schema_field(name: str, properties: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    schema = {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
    kind = {"name": name, "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": kind}}


# --- Criteria: what makes an answer better, in the user's words, and what a reply says by each ---


MOST_CRITERIA = 20  # criteria
CRITERIA_CHARS = 20_000  # characters of all of them: about 5,000 tokens in every prompt
CRITERIA_BYTES = 4 * CRITERIA_CHARS  # of a file of criteria
UNSTATED = "helpful, correct and complete"  # for a template of one's own with the slot, without criteria

ByCriterion: TypeAlias = tuple[str | None, ...]
"""What a reply says by each criterion: a side, a rating or a place; None where it says nothing."""

# The same form for every ask; which values fit depends on the ask.
_TAG = re.compile(
    r"<criterion_([0-9]{1,2})>\s{0,4}(A|B|TIE|[0-9]{1,6})(?:-([0-9a-z]{1,40}))?\s{0,4}</criterion_\1>",
    re.IGNORECASE,
)


def parse_criteria(criteria: str | Sequence[str], where: str) -> tuple[str, ...]:
    """The criteria of a text, separated by semicolons or line breaks, or of a list, each on one line."""
    words = re.split(r"[;\n]", criteria) if isinstance(criteria, str) else criteria
    parsed = tuple(dict.fromkeys(" ".join(one.split()) for one in words if one.strip()))
    if not parsed:
        raise SettingError(
            f"{where}: names no criterion; write, for example, 'faithful to the source; fluent'"
        )
    if len(parsed) > MOST_CRITERIA:
        raise SettingError(
            f"{where}: {len(parsed)} criteria; at most {MOST_CRITERIA} can be asked in one call"
        )
    length = sum(map(len, parsed))
    if length > CRITERIA_CHARS:
        raise SettingError(
            f"{where}: {length:,} characters, which every prompt would repeat; at most {CRITERIA_CHARS:,}"
        )
    return parsed


def verdicts_by_criterion(ask: Ask, text: str, code: str | None, count: int) -> ByCriterion:
    """What a reply says by each criterion, in tags or as the list of a JSON object.

    A tag counts only if it carries the code, where the prompt asks for one: a candidate that the judge
    repeats does not know it.
    """
    row = json_object(text)
    listed = row.get("criteria") if row else None
    if isinstance(listed, list) and len(listed) == count:
        values = [str(value).partition("-")[0].strip().upper() for value in listed]
        return tuple(value if fits(ask, value) else None for value in values)
    said: dict[int, str] = {}
    for tag in _TAG.finditer(text):
        value = tag[2].upper()
        if (code is None or (tag[3] or "").lower() == code) and fits(ask, value):
            said[int(tag[1])] = value
    return tuple(said.get(number) for number in range(1, count + 1)) if said else ()


def fits(ask: Ask, value: str) -> bool:
    """Whether a value is one that the ask allows by a criterion."""
    if isinstance(ask, Pairing):
        return value in ("A", "B", "TIE")
    return value.isdecimal() and 1 <= int(value) <= (10 if isinstance(ask, Solo) else len(ask.entrants))
