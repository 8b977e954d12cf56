"""Criteria: what makes an answer better, in the user's words, and the verdicts on each that a reply holds."""

import re
from collections.abc import Sequence
from typing import TypeAlias

from caps.core.errors import SettingError
from caps.core.types import Ask, Pairing, Solo
from caps.prompts.read import json_object

MOST = 20  # criteria
LONGEST = 20_000  # characters of all of them: about 5,000 tokens in every prompt
MOST_BYTES = 4 * LONGEST  # of a file of criteria
UNSTATED = "helpful, correct and complete"  # for a template of one's own with the slot, without criteria

ByCriterion: TypeAlias = tuple[str | None, ...]
"""What a reply says by each criterion: a side, a rating or a place; None where it says nothing."""

# The same form for every ask; which values fit depends on the ask.
_TAG = re.compile(
    r"<criterion_([0-9]{1,2})>\s{0,4}(A|B|TIE|[0-9]{1,6})(?:-([0-9a-z]{1,40}))?\s{0,4}</criterion_\1>",
    re.IGNORECASE,
)


def parse_criteria(stated: str | Sequence[str], where: str) -> tuple[str, ...]:
    """The criteria of a text, separated by semicolons or line breaks, or of a list, each on one line."""
    found = re.split(r"[;\n]", stated) if isinstance(stated, str) else stated
    criteria = tuple(dict.fromkeys(" ".join(one.split()) for one in found if one.strip()))
    if not criteria:
        raise SettingError(
            f"{where}: names no criterion; write, for example, 'faithful to the source; fluent'"
        )
    if len(criteria) > MOST:
        raise SettingError(f"{where}: {len(criteria)} criteria; at most {MOST} can be asked in one call")
    length = sum(map(len, criteria))
    if length > LONGEST:
        raise SettingError(
            f"{where}: {length:,} characters, which every prompt would repeat; at most {LONGEST:,}"
        )
    return criteria


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
