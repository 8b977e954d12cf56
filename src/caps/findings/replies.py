"""Replies in free text: JSON objects compared field by field, and refusals recognised as such.

The vote over the fields of JSON objects says what most candidates have in each field and where a candidate
differs. It is a note for a reader: candidates merge only if their whole JSON is equal.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from caps.core.domains import Resources
from caps.core.types import Candidate, Case, Found
from caps.evidence.anatomy import spoken
from caps.evidence.signatures import json_value, written_value
from caps.text_workers import TextWorkers

MAX_FIELDS = 200
SHOWN = 5  # fields named in a note
LONGEST_REFUSAL = 600
LONGEST_VALUE = 60
REFUSED = "refused"
_CANNOT = (
    r"(?:can(?:['’]?t|not)|won['’]?t|will not|(?:am|['’]m) (?:unable|not able) to|must decline to"
    r"|(?:refuse|decline) to)"
)
_ANSWER = (
    r"(?:help|assist|provide|do|comply|answer|fulfil|fulfill|share|create|write|give|support|engage|discuss"
    r"|generate|continue|complete|respond|produce|offer|tell)"
)
_OPENING = (
    r"(?:(?:i['’]?m |i am )?(?:very |really |so )?(?:sorry|afraid)\b.{0,60}?|unfortunately,? "
    r"|as an? (?:ai|language model)\b.{0,60}?)?"
)
_REFUSES = re.compile(rf"^{_OPENING}\bi ?{_CANNOT} (?:\w+ )?{_ANSWER}\b", re.IGNORECASE | re.DOTALL)


def is_refusal(text: str) -> bool:
    """Whether a short reply declines to answer, in English."""
    said = spoken(text).strip()
    return len(said) <= LONGEST_REFUSAL and _REFUSES.match(said) is not None


class ReplyFinder:
    """Compares JSON objects field by field, and puts refusals into one cluster.

    `texts` processes long replies in worker processes.
    """

    def __init__(self, texts: TextWorkers | None = None) -> None:
        self._texts = texts

    @property
    def version(self) -> str:
        """Changes whenever a note or a refusal could."""
        return "replies-1"

    async def find(self, case: Case, until: float | None = None) -> Sequence[Found]:
        """Notes about each candidate; empty if none is JSON or a refusal."""
        work = partial(compare_replies, case.candidates)
        if self._texts is None:
            return work()
        return await self._texts.run(work, size=sum(len(one.text) for one in case.candidates), until=until)

    async def close(self) -> None:
        """Nothing to free."""


def make_finder(resources: Resources) -> ReplyFinder:
    """What compares replies."""
    return ReplyFinder(resources.texts)


def compare_replies(candidates: Sequence[Candidate]) -> list[Found]:
    """Notes about each candidate; empty if none is JSON or a refusal."""
    objects = [_fields(candidate) for candidate in candidates]
    refusals = [is_refusal(candidate.text) for candidate in candidates]
    votes = _votes([one for one in objects if one is not None])
    if not votes and not any(refusals):
        return []
    return [
        Found(cluster=REFUSED, note="refuses to answer") if refuses else Found(note=_note(fields, votes))
        for fields, refuses in zip(objects, refusals, strict=True)
    ]


def _fields(candidate: Candidate) -> dict[str, str] | None:
    """The fields of a JSON object by their paths, each value in its canonical form; None if it is none."""
    value = json_value(candidate)
    if not isinstance(value, Mapping):
        return None
    fields: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting and len(fields) < MAX_FIELDS:
        path, part = waiting.pop(0)
        if isinstance(part, Mapping) and part:
            waiting += [(f"{path}.{name}" if path else str(name), one) for name, one in part.items()]
        else:
            fields[path] = written_value(part)
    return fields


def _votes(objects: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, int, int]]:
    """For each field: the most common value, how many have it, and out of how many; ties go to the first."""
    if len(objects) < 2:
        return {}
    absent = "absent"
    names = dict.fromkeys(name for one in objects for name in one)
    votes = {}
    for name in names:
        value, count = Counter(one.get(name, absent) for one in objects).most_common(1)[0]
        votes[name] = (value, count, len(objects))
    return votes


def _note(fields: Mapping[str, str] | None, votes: Mapping[str, tuple[str, int, int]]) -> str:
    if not votes:
        return ""
    if fields is None:
        return "is no JSON object, and others are"
    unlike = [
        f"{name} = {_short(fields.get(name, 'absent'))} (most: {_short(value)}, {count} of {total})"
        for name, (value, count, total) in votes.items()
        if fields.get(name, "absent") != value
    ]
    if not unlike:
        return f"has the most common value in all {len(votes)} fields"
    more = f", and {len(unlike) - SHOWN} more" if len(unlike) > SHOWN else ""
    return f"differs from most in {len(unlike)} of {len(votes)} fields: {'; '.join(unlike[:SHOWN])}{more}"


def _short(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else value[:LONGEST_VALUE] + "…"
