"""Texts that could be read as a verdict, if a judge repeated them without their fence.

Whatever `read_reply` reads in a reply without a code, `readable` finds in a text: it looks for the same
forms, but wherever they stand.
"""

import re
from collections.abc import Collection

from caps.core.types import Ask, Pairing, Solo
from caps.prompts import forms
from caps.prompts.lines import fields, words_of
from caps.prompts.said import without_marks
from caps.prompts.statements import PLACE, RATING, SIDE, Forms
from caps.prompts.tags import bare, plainly, tags


def readable(text: str, ask: Ask | None = None) -> bool:
    """Whether any part of a text, repeated by a judge without its fence, may be read as an answer.

    To one kind of ask where it is given, otherwise to any: a line that is a number alone may be read as a
    rating or a pick, but never as the winner of a pair. In doubt it is true. Linear in the text.
    """
    plain = plainly(text)
    if any(True for _ in tags(plain)) or any(True for _ in fields(plain)):
        return True
    if ask is None:
        return _any_line(text, (SIDE, RATING, PLACE))
    return _any_line(
        text, (SIDE if isinstance(ask, Pairing) else RATING if isinstance(ask, Solo) else PLACE,)
    )


def _any_line(text: str, kinds: Collection[Forms]) -> bool:
    """Whether a line of a text, or a part of one, would state an answer if it stood in the right place."""
    text = plainly(text)
    versions = {text} if text.isascii() else {text, forms.UNSEEN.sub("", text)}
    return any(_resembles(without_marks(one), kinds) for one in versions)


def _resembles(text: str, kinds: Collection[Forms]) -> bool:
    hints = list[re.Pattern[str]]()
    if SIDE in kinds:
        lowered = text.lower()
        tied = any(word in lowered for word in forms.TIE_WORDS) or not text.isascii()
        rated = any(word in lowered for word in ("rating", "score", "grade"))
        hints += [forms.LABELLED, *([forms.TIED] if tied else []), *([forms.RATED_SMALL] if rated else [])]
    if RATING in kinds or PLACE in kinds:
        hints.append(forms.COUNTED)
    seen = set[int]()
    for hint in hints:
        at = 0
        while (found := hint.search(text, at)) is not None:
            start, end = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.end())
            at = len(text) if end < 0 else end
            if start not in seen and _line_resembles(text[start:at], kinds):
                return True
            seen.add(start)
    rows = forms.ROW.finditer(text) if "|" in text else ()
    return any(forms.KEY_CELL.match(bare(cell)) for row in rows for cell in row[0].split("|"))


def _line_resembles(raw: str, kinds: Collection[Forms]) -> bool:
    raw = raw.strip()
    words = words_of(raw)
    if SIDE in kinds and (
        forms.COMPARED.match(raw)
        or forms.BARE_SIDE.match(words)
        or any(form.search(words) for form in forms.ANYWHERE_SIDE)
        or forms.ANYWHERE_RATING[0].search(words)
        or any(
            one[1] or one[4] or one[5] or forms.RATED.search(words)
            for one in forms.SIDE_RATED.finditer(words)
        )
    ):
        return True
    if RATING in kinds and (
        forms.FRACTION_LINE.match(words)
        or forms.NUMBER_LINE.match(words)
        or any(form.search(words) for form in forms.ANYWHERE_RATING)
    ):
        return True
    return PLACE in kinds and bool(
        forms.RANKED.match(raw)
        or forms.BARE_PLACE.match(words)
        or any(form.search(words) for form in forms.ANYWHERE_PLACE)
    )
