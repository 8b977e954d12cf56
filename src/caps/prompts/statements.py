r"""Verdicts stated in plain words: only an unmistakable final statement counts.

There are three kinds of statement, which may occur in different places:

* a *keyed* line says what it is and nothing else (`**Winner:** B`, `| Winner | B |`): anywhere;
* a *bare* line is only the label (`\boxed{B}`, `[[A]]`, `A HIGH`): at the very end;
* a *sentence* (`Therefore, B is the better solution.`): at the end, with nothing after it that turns round.

"A is better structured" states nothing, nor does a sentence that doubts, asks, or reports what others say.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, cast

from caps.core.types import Ask, Pairing, Solo
from caps.prompts import forms
from caps.prompts.own_words import Line, fields, sentences, without_marks, words_of
from caps.prompts.tags import WORDS, bare, compared, on_scale, opposed, plainly, sureness, tags, unopposed

_SENTENCES = 6  # at the end of a reply, in which a verdict may be stated


class Found(NamedTuple):
    """The value that a line or sentence states; None if it contradicts itself."""

    value: str | float | int | None


Reader: TypeAlias = Callable[[str], Found | None]


class Forms(NamedTuple):
    """The forms of one kind of answer: a keyed line, below a key, a bare last line, a sentence.

    `below` also reads what stands in double brackets, or is all of a reply.
    """

    keyed: Reader
    key_only: forms.Form
    below: Reader
    bare: Reader
    sentence: Reader


def stated(forms: Forms, lines: Sequence[Line]) -> str | float | int | None:
    """The answer that a whole reply states at its end, if it is unambiguous."""
    keyed = list(_keyed(forms, lines))
    if keyed:
        values = {found.value for _, found in keyed}
        (last, found), (value, *others) = keyed[-1], values
        if others or value is None:
            return None
        after = [line.words for line in lines[last + 1 :]]
        if _taken_back(after, found.value) or any(one != value for one in _in_sentences(forms, after)):
            return None
        return value
    ending = [line for line in lines if not _says_sureness(line.words)][-2:]
    if len(lines) == 1 and not _heading(lines[0]) and "\\boxed" not in lines[0].raw:
        alone = forms.below(lines[0].words)
        if alone is not None:
            return alone.value
    if ending and (bare_one := _bare(forms, ending[-1])) is not None:
        before = _bare(forms, ending[0]) if len(ending) > 1 else None
        return None if before is not None and before.value != bare_one.value else bare_one.value
    return _final_sentence(forms, lines)


def statements(forms: Forms, lines: Sequence[Line]) -> set[str | float | int | None]:
    """All values that keyed lines and sentences state, to check whether they contradict a tag."""
    keyed = {found.value for _, found in _keyed(forms, lines)}
    return (keyed | set(_in_sentences(forms, [line.words for line in lines]))) - {None}


def retracted(lines: Sequence[Line]) -> bool:
    """Whether lines retract what was said before them."""
    return any(forms.RETRACTS.search(line.words) for line in lines)


def _keyed(forms: Forms, lines: Sequence[Line]) -> Iterator[tuple[int, Found]]:
    for at, line in enumerate(lines):
        found = forms.keyed(line.words)
        if found is None and at and forms.key_only.match(lines[at - 1].words):
            found = forms.below(line.words)
        if found is not None:
            yield at, found


def _bare(forms: Forms, line: Line) -> Found | None:
    if _heading(line):
        return None
    # A boxed number may be the judge's own solution; one in double brackets is not.
    return forms.below(line.words) if "[[" in line.raw else forms.bare(line.words)


def _heading(line: Line) -> bool:
    return line.raw.startswith("#") and " " in line.words


def _in_sentences(forms: Forms, lines: Iterable[str]) -> list[str | float | int | None]:
    found = [forms.sentence(sentence) for line in lines for sentence in sentences(line)]
    return [one.value for one in found if one is not None]


def _final_sentence(forms: Forms, lines: Sequence[Line]) -> str | float | int | None:
    last = [sentence for line in lines[-_SENTENCES:] for sentence in sentences(line.words)][-_SENTENCES:]
    if len(last) > 1 and last[-2].endswith("?") and (answer := forms.bare(last[-1])) is not None:
        return answer.value
    found = [(at, one) for at, one in enumerate(map(forms.sentence, last)) if one is not None]
    if not found or len({one.value for _, one in found}) > 1:
        return None
    at, one = found[-1]
    return None if _taken_back(last[at + 1 :], one.value, strictly=True) else one.value


def _taken_back(after: Sequence[str], value: object, *, strictly: bool = False) -> bool:
    """Whether the text after a statement contradicts it; `strictly`: praise of the other side counts."""
    other = {"A": "B", "B": "A"}.get(str(value))
    for words in after:
        if forms.RETRACTS.search(words):
            return True
        named = other is not None and re.search(rf"(?<![^\W_]){other}(?![^\W_])", words)
        if forms.CONTRAST.search(words) and (strictly or named):
            return True
        if strictly and named and not forms.FAULT.search(words) and not _says_sureness(words):
            return True
    return False


def _says_sureness(words: str) -> bool:
    return bool(forms.SURE_LINE.match(words))


def stated_sureness(lines: Sequence[str]) -> str | None:
    """`HIGH` or `LOW` if one of the last lines states a confidence."""
    for words in reversed(lines[-forms.SURE_LINES :]):
        found = [*forms.SURE.finditer(words)]
        of = [*forms.SURE_OF.finditer(words)]
        said = (of[-1][1] or of[-1][2]) if of else found[-1][1] if found else None
        bare_line = forms.BARE_SIDE.match(words)
        said = said or (bare_line[3] if bare_line else None)
        if said is not None and (sure := sureness(said)) is not None:
            return sure
    return None


def _label(found: re.Match[str]) -> str:
    return next((one for one in found.groups() if one in ("A", "B")), "TIE")


def _doubted(sentence: str, found: re.Match[str]) -> bool:
    label = next((at for at in range(1, 1 + len(found.groups())) if found[at] in ("A", "B")), None)
    before = sentence[: found.start(label) if label else found.end()]
    clause = found.groupdict().get("clause") or ""
    return bool(
        forms.DOUBT.search(
            forms.FORCED.sub("", before).replace(clause, "") if clause else forms.FORCED.sub("", before)
        )
        or (forms.RESPECT.search(clause) and not forms.CONCEDES.match(clause))
        or sentence.rstrip().endswith(("?", "？"))
    )


def _keyed_side(words: str) -> Found | None:
    more = forms.COMPARED.match(words)
    if more:
        return Found(compared(more))
    found = forms.KEYED_SIDE.match(words)
    if found is None:
        return None
    if found[1] is None:
        return Found("TIE") if not forms.EITHER_WAY.search(found[3]) else Found(None)
    if (
        _doubted(words, found)
        or forms.EITHER_WAY.search(found[3])
        or _taken_back(sentences(found[3]), found[1])
    ):
        return Found(None)
    return Found(found[1] if unopposed(found[1], found[3]) else None)


def _bare_side(words: str) -> Found | None:
    more = forms.COMPARED.match(words)
    found = forms.BARE_SIDE.match(words)
    if more:
        return Found(compared(more))
    return None if found is None else Found(found[1] or "TIE")


def _sentence_side(sentence: str) -> Found | None:
    for form in (
        forms.SAID_OF,
        forms.ONLY,
        forms.AGAINST,
        forms.CHOSEN,
        forms.CLAUSED,
        forms.HENCE,
        forms.CJK,
        forms.DRAWN,
    ):
        found = form.match(sentence)
        if found is None:
            continue
        label, rest = _label(found), found.groups()[-1] or ""
        if _doubted(sentence, found) or forms.EITHER_WAY.search(rest):
            continue
        if form in (forms.CHOSEN, forms.CLAUSED) and not unopposed(label, rest):
            return Found(None)
        if form is forms.AGAINST and found[1] == found[2]:
            continue
        if form is not forms.DRAWN and opposed(label, rest):
            return Found(None)
        return Found(label)
    return None


def _keyed_rating(words: str) -> Found | None:
    found = forms.KEYED_RATING.match(words)
    return None if found is None else Found(_scaled(found, 1))


def _scaled(found: re.Match[str], at: int) -> float:
    return on_scale(found[at], "100" if found[at + 2] else found[at + 1])


def _bare_rating(words: str) -> Found | None:
    found = forms.FRACTION_LINE.match(words)
    return None if found is None else Found(_scaled(found, 1))


def _rating_below(words: str) -> Found | None:
    found = forms.NUMBER_LINE.match(words)
    return Found(_scaled(found, 1)) if found else _bare_rating(words)


def _sentence_rating(sentence: str) -> Found | None:
    for form in (forms.KEYED_RATING, forms.GIVEN_RATING):
        found = form.match(sentence)
        if found and not forms.DOUBT.search(forms.FORCED.sub("", sentence[: found.start(1)])):
            return Found(_scaled(found, 1))
    return None


def _numbered(found: re.Match[str], at: int = 1) -> int:
    return WORDS.get(found[at].lower()) or int(found[at])


def _keyed_place(words: str) -> Found | None:
    ranked = forms.RANKED.match(words)
    if ranked:
        return Found(int(ranked[1]))
    found = forms.KEYED_PLACE.match(words)
    if found is None or forms.DOUBT.search(words[: found.start(1)]):
        return None
    also = re.match(r" ?(?:,|;|and|or|&|/) ?(?:candidate )?[0-9]", found[2])
    return Found(None if also or forms.TURN.search(found[2]) else _numbered(found))


def _bare_place(words: str) -> Found | None:
    return _place_below(words) if re.search(forms.NOUNS, words, re.IGNORECASE) or ">" in words else None


def _place_below(words: str) -> Found | None:
    ranked = forms.RANKED.match(words)
    found = forms.BARE_PLACE.match(words)
    if ranked:
        return Found(int(ranked[1]))
    return Found(_numbered(found)) if found else None


def _sentence_place(sentence: str) -> Found | None:
    for form in (forms.KEYED_PLACE, forms.PLACED, forms.CHOSEN_PLACE, forms.HENCE_PLACE):
        found = form.match(sentence)
        if found and not forms.DOUBT.search(forms.FORCED.sub("", sentence[: found.start(1)])):
            return Found(_numbered(found))
    return None


SIDE = Forms(_keyed_side, forms.KEY_ONLY, _bare_side, _bare_side, _sentence_side)
RATING = Forms(_keyed_rating, forms.RATING_ONLY, _rating_below, _bare_rating, _sentence_rating)
PLACE = Forms(_keyed_place, forms.KEY_ONLY, _place_below, _bare_place, _sentence_place)


def stated_ratings(lines: Sequence[Line]) -> dict[str, float]:
    """The ratings of A and B that lines state; empty if lines differ."""
    rated, heading = list[tuple[str, list[tuple[str, float]]]](), None
    for line in lines:
        named = forms.SIDE_HEADING.match(line.words)
        heading = named[1] if named else heading
        found = _sides_rated(line.words)
        if not found and heading and (below := _keyed_rating(line.words)) is not None:
            found = [(heading, cast("float", below.value))]
        if found:
            rated.append((line.words, found))
    whole = [(words, found) for words, found in rated if forms.WHOLE.search(words)]
    values: dict[str, set[float]] = {}
    for _, found in whole or rated:
        for name, value in found:
            values.setdefault(name, set()).add(value)
    return (
        {}
        if any(len(one) > 1 for one in values.values())
        else {name: min(one) for name, one in values.items()}
    )


def _sides_rated(words: str) -> list[tuple[str, float]]:
    if forms.DOUBT.search(words) or forms.QUOTES.search(words):
        return []
    spoken = forms.RATED.search(words) is not None
    return [
        ((one[1] or one[2]).upper(), _scaled(one, 3))
        for one in forms.SIDE_RATED.finditer(words)
        if spoken or one[1] or one[4] or one[5]
    ]


# Texts that would be parsed as a verdict if a judge repeated them without their fence
#
# `readable` finds everything that `read_reply` accepts without a code: the same forms, but anywhere.


def readable(text: str, ask: Ask | None = None) -> bool:
    """Whether a part of a text, repeated by a judge without its fence, could be parsed as an answer.

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
    """Whether a line of a text, or part of one, would state an answer in the right position."""
    text = plainly(text)
    versions = {text} if text.isascii() else {text, forms.UNSEEN.sub("", text)}
    return any(_resembles(without_marks(one), kinds) for one in versions)


def _resembles(text: str, kinds: Collection[Forms]) -> bool:
    hints = list[forms.Form]()
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
