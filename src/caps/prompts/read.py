r"""Reading of judges' replies: what was asked for, in the few forms that models write it, and nothing else.

A verdict counts in these forms only. The same table decides what a candidate could fake (`imitations`).

| form | examples                                    | where it counts                                   |
|------|---------------------------------------------|---------------------------------------------------|
| tag  | `<winner>B-k7f3</winner>`, `[best]2[/best]` | alone on its line, or behind its name (`Winner:`) |
| JSON | `{"winner": "B", "confidence": "HIGH"}`     | alone on its lines, with the fields asked for     |
| line | `**Winner:** B`, `Rating A: 7/10`           | alone on its line                                 |
| box  | `\boxed{B}`, `[[B]]`                        | the last line; only for pairs                     |

The label is A, B or TIE, a rating from 1 to 10, or the number of a candidate, in capitals or not, bold,
quoted, or in full-width letters. Behind it stands the code, if the prompt asked for one: `B-k7f3`.

Rules that must not be broken:

* Candidates are hostile and a judge may repeat them, but they cannot know the code. If a text shown contains
  a form of the table, only a verdict with the code counts, and only such a one takes a verdict back.
* A verdict with more than one label is none.
* Two different verdicts are none, unless the later one ends the reply and is introduced as a correction.
  Words behind a verdict that give the code to another label contradict it.
* Thoughts are not part of the reply.
* Reading never raises and takes linear time. In doubt a reply is not read: then it is asked for again.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from caps.core.text import parse_json
from caps.core.types import Ask, Group, Pairing, Pick, Rating, Solo, Verdict, verdict_of
from caps.prompts.fence import small_letters, unusual, visible

How = Literal["tags", "json", "plain", "none"]
Imitation: TypeAlias = Literal["verdict", "retraction", "thought"]
"""What a judge that repeats a text could be taken to do: to decide, to take back, to think."""

# --- The table of forms, in small letters ---

_NOUN = r"(?:(?:candidate|solution|submission|response|answer|option|program)[ _]?#?)?"
_RATED = r"([0-9]{1,2}(?:[.,][0-9]{1,2})?)(?: ?/ ?10| out of 10)?"
_LABELS = {
    "winner": rf"{_NOUN}(a|b|tie)",
    "confidence": "(high|low)",
    "rating": _RATED,
    "rating_a": _RATED,
    "rating_b": _RATED,
    "best": rf"{_NOUN}#?([0-9]{{1,4}})",
}
# Further names of a field on a line; tags and JSON have the name that prompts ask for.
_LINE_NAMES = {
    "winner": ("winner", "verdict"),
    "best": ("best", "best candidate", "winner", "verdict"),
    "rating_a": ("rating_a", "rating a", "rating-a"),
    "rating_b": ("rating_b", "rating b", "rating-b"),
}
_PUT_BEFORE = r"(?:(?:final|overall|my|the) ){0,2}"  # a name on a line
_TEX_NAME = r"\\(?:boxed|text(?:bf|it|tt|rm)?|math(?:rm|bf))(?![a-z])"
_TEX = re.compile(_TEX_NAME)
_AROUND = " \t\r\n*_`~\"'“”„‘’«»()[]{}$.,;:!#|\\<>"  # a label
_DASHES = "-–—"

_TAG = re.compile(
    r"[<\[][ \t]{0,4}(winner|confidence|best|rating[ _-][ab]|rating|criterion_[0-9]{1,2})[ \t]{0,4}\\?[>\]]"
    r"\s{0,8}+([^<\[\n]{0,80}+)"
    # Closed by another opening tag only directly behind the label: the next line may be the judge's verdict.
    r"(?P<closed>(?<![>\]\s])<\1>|\s{0,8}+(?:[<\[][ \t]{0,4}/[ \t]{0,4}[\w -]{1,14}\\?[>\]]|(?=<)))?"
)
_LINE = re.compile(
    rf"^[^\w\n\"'{{}}]{{0,12}}(?:[0-9]{{1,2}}[.)][^\w\n\"']{{1,8}})?{_PUT_BEFORE}[*_`]{{0,4}}"
    r"(winner|verdict|confidence|best candidate|best|rating[ _-][ab]|rating)[^\w\n:]{0,8}:"
    r"([^<\n]{1,60})(?P<closed>(?=\n))?$",
    re.MULTILINE,
)
_LONGEST_BRACES = 4000  # characters of an object beside prose
_BOX = re.compile(r"\\boxed ?\{((?:[^{}\n]{1,40}+|\{[^{}\n]{0,20}+\}){1,8}+)\}|\[\[([^\[\]\n]{1,40}+)\]\]")
# What may stand before a tag on its line.
_LEAD = re.compile(
    rf"(?:[0-9]{{1,2}}[.)]\W{{0,8}})?"
    rf"(?:{_PUT_BEFORE}(?:winner|verdict|answer|confidence|rating(?: [ab])?|best(?: candidate)?))?"
)
_NAMES = ("winner", "verdict", "rating", "best", "confidence")  # a text without them has no form but a box
# A reply with more of these names is read at its ends and around the code; one with more fences is all code.
_MOST_NAMES, _MOST_FENCES, _MOST_CODES = 250, 500, 10
_AROUND_CODE, _AT_ENDS = 300, 1000  # characters
# Texts shown with more different characters, escapes or boxes could be taken for anything.
_MOST_SIGNS, _MOST_ESCAPES, _MOST_BOXES = 4096, 4000, 500

# Thoughts: Qwen and R1, Kimi, Magistral, harmony (GPT-OSS), and harmony with its tokens stripped.
_THOUGHT_BEGINS = re.compile(
    r"^[ \t]{0,8}(?:<(?:think|thinking|thought|reasoning)>|◁think▷|\[think\])"
    r"|<\|channel\|>(?:analysis|commentary)",
    re.MULTILINE,
)
_THOUGHT_ENDS = re.compile(
    r"</(?:think|thinking|thought|reasoning)>|◁/think▷|\[/think\]"
    r"|<\|channel\|>final[^<\n]{0,40}<\|message\|>|assistantfinal"
)
_THOUGHT_HINTS = ("think", "thought", "reasoning", "<|channel|>", "assistantfinal")

_TAKES_BACK = re.compile(
    r"(?=[achimortw])\b(?:wait|hold on|hmm+|actually|correction|reconsider\w*|mistaken?"
    r"|on (?:second thoughts?|reflection)|i (?:was|am) (?:wrong|not sure)|i made an? error"
    r"|(?:that|this|it) (?:is|was) (?:wrong|incorrect)|i take (?:it|that|this) back"
    r"|chang(?:e|ed|ing) my (?:mind|verdict)|i must correct)\b"
)
_REFUSAL = re.compile(
    r"(?=[iw])\b(?:i|we)(?: am|['’]m| are)? (?:(?:really )?sorry\b|must decline\b"
    r"|(?:can ?not|can['’]t|won['’]t|will not|unable to|not able to) "
    r"(?:assist|help|comply|provide|answer|judge|evaluate|compare|do|rate|fulfill|continue|engage)\b)"
)
_WORD = re.compile(r"[^\W_]")
_CUT_TAG = re.compile(r"[<\[][^<>\[\]\n]{0,40}$")
_TURN_ENDS = re.compile(r"(?:<\|[\w ]{1,20}\|>|</s>|<end_of_turn>)\s*\Z")
_CODE_FENCE = re.compile(r"^[ \t]{0,8}(?:`{3,}|~{3,})[ \t]*([^\n`]*)$", re.MULTILINE)
_LONGEST_OBJECT = 400_000  # characters

# The end of a reply exactly as prompts ask for it, by the fields that decide.
_AS_ASKED = {
    ("winner",): r"<winner>(A|B|TIE)-(?P<code>\w+)</winner>\n<confidence>(HIGH|LOW)</confidence>\s*",
    ("rating_a", "rating_b"): (
        r"<rating_A>(10|[1-9])-(?P<code>\w+)</rating_A>\n<rating_B>(10|[1-9])-(?P=code)</rating_B>\s*"
    ),
    ("rating",): r"<rating>(10|[1-9])-(?P<code>\w+)</rating>\s*",
    ("best",): r"<best>([1-9][0-9]{0,3})-(?P<code>\w+)</best>\s*",
}
_ASKED = {fields: (form[: form.index(">") + 1], re.compile(form)) for fields, form in _AS_ASKED.items()}


class Reading(NamedTuple):
    """The answer read from a reply, and how; `cause` says why there is none.

    Causes: `truncated`, `refused`, `empty`, `unbound` for a verdict without the code where only one with it
    counts, and `no-tag` for anything unreadable. `bound`: the answer carries the code. `places` are the
    positions of its labels in the reply.
    """

    answer: Verdict | Rating | Pick | None
    how: How
    cause: str | None = None
    winner: str | None = None
    confidence: str | None = None
    bound: bool = False
    places: tuple[int, ...] = ()

    def decided(self, ask: Ask, *labels: str) -> "Reading | None":
        """The same with the answer that the labels give to an ask; None if it has no such candidate.

        The labels of a pair are its winner and the confidence.
        """
        if isinstance(ask, Group):
            place = int(labels[0])
            return (
                self._replace(answer=Pick(ask.entrants[place - 1]))
                if 1 <= place <= len(ask.entrants)
                else None
            )
        if isinstance(ask, Solo):
            return self._replace(answer=Rating(float(labels[0])))
        if ask.dialect == "ratings":
            return self._replace(answer=Verdict(*map(float, labels)))
        winner, confidence = labels
        return self._replace(answer=verdict_of(winner, confidence), winner=winner, confidence=confidence)


class _Mark(NamedTuple):
    """A form of the table in a reply.

    `label` is None unless there is exactly one. `closed`: it is complete, even if the reply was cut behind
    it. `alone`: it stands where a verdict counts. `at` is the place of the label.
    """

    field: str
    label: str | None
    bound: bool
    form: How
    start: int
    end: int
    at: int
    closed: bool = True
    alone: bool = True


def fields_of(ask: Ask) -> tuple[str, ...]:
    """The fields that decide an ask."""
    if isinstance(ask, Pairing):
        return ("rating_a", "rating_b") if ask.dialect == "ratings" else ("winner",)
    return ("rating",) if isinstance(ask, Solo) else ("best",)


def read_reply(
    ask: Ask,
    text: str,
    *,
    truncated: bool,
    nonce: str,
    code: str | None = None,
    imitated: Collection[Imitation] = (),
) -> Reading:
    """Read the judge's answer to `ask`.

    `imitated` is what the texts shown could be mistaken for (`imitations`): the judge may have repeated them.
    Where the prompt asked for no code and a verdict is imitated, only tags count, which `quote` breaks up.
    """
    spoken = small_letters(text)
    if code is None and nonce in spoken:  # with a code, nothing in an echo could count
        spoken = _without_echoes(spoken, nonce)
    spoken, unfinished = _without_thoughts(spoken, everywhere="thought" not in imitated)
    reply = _Reply(ask, spoken, code, truncated=truncated)
    retractable = "retraction" not in imitated
    marks = reply.marks
    if "verdict" in imitated:
        marks = [mark for mark in marks if mark.bound or (code is None and mark.form == "tags")]
    reading = reply.answer(marks, retractable=retractable)
    if reading is not None:
        return reading
    if truncated:
        return Reading(None, "none", "truncated")
    if "verdict" in imitated and reply.answer(reply.marks, retractable=retractable) is not None:
        return Reading(None, "none", "unbound")
    if not spoken.strip():
        return Reading(None, "none", "no-tag" if unfinished else "empty")
    return Reading(None, "none", "refused" if _REFUSAL.search(spoken) else "no-tag")


def read_coded(ask: Ask, text: str, *, code: str) -> Reading | None:
    """Read a reply that ends exactly as asked for, with no name of a field and no thought before; else None.

    Many replies are such. Whatever was shown, `read_reply` would read the same, so that nobody has to look
    for imitations in the candidates.
    """
    fields = fields_of(ask)
    opening, form = _ASKED[fields]
    start = text.rfind(opening)
    end = form.fullmatch(text, start) if start >= 0 else None
    before = text[: max(start, 0)]
    if end is None or end["code"] != code or (before and not before.endswith("\n")):
        return None
    lowered = (before if before.isascii() else visible(before, unusual(before))).lower()
    if any(map(lowered.__contains__, (*_NAMES, *_THOUGHT_HINTS))):
        return None
    labels = (1, 3) if form.groups == 3 else (1,)
    places = tuple(map(end.start, labels[: len(fields)]))
    return Reading(None, "tags", bound=True, places=places).decided(ask, *map(end.__getitem__, labels))


def imitations(text: str, ask: Ask) -> tuple[Imitation, ...]:
    """What a judge that repeats this text, or a part of it, could be taken to do.

    One that takes long to look through, because it has so many odd characters, could be taken for anything.
    """
    signs = unusual(text)
    if len(signs) > _MOST_SIGNS or text.count("&") > _MOST_ESCAPES:
        return get_args(Imitation)
    lowered = visible(text, signs).lower()
    imitated: list[Imitation] = []
    named = (form for field in fields_of(ask) for form in _NAMED[field])
    boxes = list(islice(_BOX.finditer(lowered), _MOST_BOXES)) if fields_of(ask) == ("winner",) else []
    if (
        any(name in lowered and form.search(lowered) for name, form in named)
        or any(map(_boxed, boxes))
        or len(boxes) == _MOST_BOXES
    ):
        imitated.append("verdict")
    if _TAKES_BACK.search(lowered):
        imitated.append("retraction")
    if any(map(lowered.__contains__, _THOUGHT_HINTS)) and (
        _THOUGHT_BEGINS.search(lowered) or _THOUGHT_ENDS.search(lowered)
    ):
        imitated.append("thought")
    return tuple(imitated)


# A name of a field and a label behind it, whatever form of the table they may be in.
_BETWEEN = rf"(?:{_TEX_NAME}|[\W_])"
_NAMED = {
    field: [
        (name, re.compile(
            rf"{name}(?:{_TEX_NAME}|[^\w:>\]\"']){{0,8}}[:>\]\"']{_BETWEEN}{{0,80}}+{label}(?![a-z0-9])"
        ))
        for name in dict.fromkeys((field, *_LINE_NAMES.get(field, ())))
    ]
    for field, label in _LABELS.items()
}  # fmt: skip


def _boxed(box: re.Match[str]) -> bool:
    return _read_label("winner", box[1] or box[2], None).text is not None


class _Reply:
    """The forms of the table in a reply without its thoughts."""

    def __init__(self, ask: Ask, spoken: str, code: str | None, *, truncated: bool) -> None:
        self._ask, self._code, self._truncated = ask, code, truncated
        self._fields = fields_of(ask)
        block = _only_block(spoken)
        self._text = text = block or _TURN_ENDS.sub(_blanked, spoken)
        self._fences = [] if block else _fences(text)
        marks = sorted(self._find(), key=lambda mark: mark.start)
        if text.lstrip().startswith("{") and json_object(text) is not None:
            marks = list(self._in_object(text, 0))  # texts inside of it are no forms
        self.marks = [self._placed(marks, number) for number in range(len(marks))]
        self._prose = _without(text, self.marks)

    def answer(self, marks: Sequence[_Mark], *, retractable: bool) -> Reading | None:
        """The answer that some of the marks give."""
        settled = [
            self._settled([mark for mark in marks if mark.field == field], retractable=retractable)
            for field in self._fields
        ]
        deciding = [mark for mark in settled if mark is not None]
        if len(deciding) < len(settled):
            return None
        labels = [mark.label or "" for mark in deciding]
        bound, places = all(mark.bound for mark in deciding), tuple(mark.at for mark in deciding)
        reading = Reading(None, deciding[-1].form, bound=bound, places=places)
        if self._fields == ("winner",):
            labels.append(self._confidence(marks, deciding[0]))
        return reading.decided(self._ask, *labels)

    def _find(self) -> Iterator[_Mark]:
        """All forms of the table, in no order."""
        text, first = self._text, f'"{self._fields[0]}"'
        if self._fields == ("winner",):
            yield from self._box()
        for begin, stop in self._regions():
            cut = None if stop == len(text) else stop  # what ends there may go on
            for tag in _TAG.finditer(text, begin, stop):
                if tag.end() != cut:
                    yield self._tag(tag)
            for line in _LINE.finditer(text, begin, stop):
                if line.end() != cut:
                    yield from self._line(line)
            names = re.finditer(first, text[begin:stop]) if first in text else ()
            for start, end in {self._braces(begin + name.start()) for name in names}:
                yield from self._in_object(text[start:end], start)

    def _tag(self, tag: re.Match[str]) -> _Mark:
        field, closed = tag[1].replace(" ", "_").replace("-", "_"), tag["closed"] is not None
        end = tag.end() if closed else tag.start(2) + len(tag[2].rstrip())
        label = _read_label(field, tag[2], self._code)
        at = tag.start(2) + label.at
        return _Mark(field, label.text, label.bound, "tags", tag.start(), end, at, closed=closed)

    def _line(self, line: re.Match[str]) -> Iterator[_Mark]:
        name, closed = line[1], line["closed"] is not None
        field = next((field for field in self._fields if name in _LINE_NAMES.get(field, (field,))), name)
        label = _read_label(field, line[2], self._code)
        if label.text is not None or label.bound:
            alone = label.bound or ">" not in line[0][: line.start(1) - line.start()]
            at = line.start(2) + label.at
            yield _Mark(field, label.text, label.bound, "plain", *line.span(), at, closed=closed, alone=alone)

    def _regions(self) -> Iterable[tuple[int, int]]:
        """Where forms are looked for: anywhere, or if that takes long, at both ends and around the code."""
        text, code = self._text, self._code
        count = sum(map(text.count, _NAMES))
        if count <= _MOST_NAMES:
            return [(0, len(text))] if count else []
        places = [name.start() for name in re.finditer(re.escape(code), text)] if code else []
        if len(places) > _MOST_CODES:
            return []
        ends = [(0, _AT_ENDS), (len(text) - _AT_ENDS, len(text))]
        regions = list[tuple[int, int]]()
        for begin, end in sorted([*ends, *((at - _AROUND_CODE, at + _AROUND_CODE) for at in places)]):
            if regions and begin <= regions[-1][1]:
                begin, _ = regions.pop()  # noqa: PLW2901
            regions.append((max(0, begin), min(end, len(text))))
        return regions

    def _braces(self, at: int) -> tuple[int, int]:
        """The braces around a place, without braces inside; nothing if they are far away."""
        start = self._text.rfind("{", max(0, at - _LONGEST_BRACES), at)
        end = self._text.find("}", at, start + _LONGEST_BRACES) + 1
        inside = self._text[start + 1 : end - 1]
        return (0, 0) if start < 0 or not end or "{" in inside or "}" in inside else (start, end)

    def _box(self) -> Iterator[_Mark]:
        """A box that is the last line."""
        end = len(self._text.rstrip())
        start = self._text.rfind("\n", 0, end) + 1
        line = self._text[start:end]
        box = _BOX.search(line) if len(line) < 100 else None
        if box is not None and not _WORD.search(line[: box.start()] + line[box.end() :]):
            group = 1 if box[1] else 2
            label = _read_label("winner", box[group], self._code)
            at = start + box.start(group) + label.at
            yield _Mark("winner", label.text, label.bound, "plain", start, end, at, closed=False)

    def _in_object(self, text: str, start: int) -> Iterator[_Mark]:
        """The fields of a JSON object that were asked for, if it has all of them and no other verdict."""
        row = json_object(text)
        others = {name for field in self._fields for name in _LINE_NAMES.get(field, ())} - {*self._fields}
        if row is None or not row.keys() >= {*self._fields} or row.keys() & others:
            return
        coded = self._code is not None and str(row.get("code")).strip() == self._code
        for field in (*self._fields, "confidence"):
            # The value must stand in the text as it is: an escape or a wide gap would hide it in a candidate.
            spots = list(re.finditer(rf'(?<!\\)"{field}"\s{{0,8}}:\s{{0,8}}"?', text))
            value = row.get(field)
            if len(spots) == 1 and isinstance(value, str) and text.startswith(value, spots[0].end()):
                label = _read_label(field, value, self._code)
                at, bound = start + spots[0].end() + label.at, coded or label.bound
                yield _Mark(field, label.text, bound, "json", start, start + len(text), at)

    def _placed(self, marks: Sequence[_Mark], number: int) -> _Mark:
        """A mark, with whether it stands where a verdict counts: alone on its line, and not quoted."""
        mark, alone = marks[number], marks[number].alone
        if mark.form != "plain":
            begin = marks[number - 1].end if number else 0
            before = self._text[begin : mark.start].rpartition("\n")[2]
            end = marks[number + 1].start if number + 1 < len(marks) else len(self._text)
            after = self._text[mark.end : end].partition("\n")[0]
            alone = bool(_LEAD.fullmatch(before.strip(_AROUND + _DASHES + "•"))) and not _WORD.search(after)
            alone = alone and (mark.bound or ">" not in before)
            if alone:  # a name before a tag is part of it
                mark = mark._replace(start=mark.start - len(before))
        fenced = len(self._fences) > _MOST_FENCES or bisect_left(self._fences, mark.start) % 2 == 1
        return mark._replace(alone=alone and (mark.bound or not fenced))

    def _settled(self, marks: Sequence[_Mark], *, retractable: bool) -> _Mark | None:
        """The mark that decides a field; None if there is none, or if others contradict it."""
        verdicts = [mark for mark in marks if mark.alone and mark.label is not None]
        if not verdicts:
            return None
        last = verdicts[-1]
        later = [mark for mark in marks if mark.start > last.start and mark.label != last.label]
        if any(mark.bound or mark.label is not None for mark in later):
            return None
        after = self._prose[last.end :]
        other = next((mark for mark in reversed(verdicts) if mark.label != last.label), None)
        if other is not None:
            corrected = _TAKES_BACK.search(self._prose[other.end : last.start])
            if corrected is None or _WORD.search(after):
                return None
        if self._other_label(after, last) or (retractable and _TAKES_BACK.search(after)):
            return None
        if self._truncated:
            goes_on = _WORD.search(_CUT_TAG.sub("", after))
            if not last.closed or (goes_on and _WORD.search(self._prose[: verdicts[0].start])):
                return None
        return last

    def _other_label(self, after: str, verdict: _Mark) -> bool:
        """Whether words behind a verdict with the code give the code to another label."""
        if self._code is None or not verdict.bound or self._code not in after:
            return False
        labels = re.findall(rf"\b(a|b|tie|[0-9]{{1,4}})[-–— ]{{1,3}}{re.escape(self._code)}", after)
        return any(label.upper() != verdict.label for label in labels)

    def _confidence(self, counting: Sequence[_Mark], deciding: _Mark) -> str:
        """The confidence beside the verdict, behind it or else before it; LOW if there is none."""
        marks = [mark for mark in self.marks if mark.field in ("winner", "confidence")]
        places = {mark.start for mark in counting if mark.label == deciding.label}
        for number in reversed(range(len(marks))):
            if marks[number].field != "winner" or marks[number].start not in places:
                continue
            if self._beside(marks, number, number + 1) and marks[number + 1].field == "confidence":
                return marks[number + 1].label or "LOW"
            if self._beside(marks, number - 1, number) and marks[number - 1].field == "confidence":
                another = self._beside(marks, number - 2, number - 1)  # whose confidence it is
                if not (another and marks[number - 2].field == "winner"):
                    return marks[number - 1].label or "LOW"
        return "LOW"

    def _beside(self, marks: Sequence[_Mark], first: int, second: int) -> bool:
        """Whether there are two such marks, and no word between them."""
        if first < 0 or second >= len(marks):
            return False
        return not _WORD.search(self._prose[marks[first].end : marks[second].start])


class _Label(NamedTuple):
    """A label, whether it carries the code, and where it begins; no text if there is not exactly one."""

    text: str | None
    bound: bool
    at: int


def _read_label(field: str, content: str, code: str | None) -> _Label:
    words = _TEX.sub(_blanked, content) if "\\" in content else content
    at = len(words) - len(words.lstrip(_AROUND))
    words = words.strip(_AROUND)
    bound = code is not None and code in words
    if code is not None and words.endswith(code):
        words = words[: len(words) - len(code)].rstrip(_AROUND + _DASHES)
    form = _LABEL_FORMS.get(field)
    label = form.fullmatch(words) if form else None
    if label is None:
        return _Label(None, bound, at)
    if not field.startswith("rating"):
        return _Label(label[1].upper(), bound, at + label.start(1))
    value = float(label[1].replace(",", "."))
    return _Label(f"{max(1.0, value):g}" if value <= 10 else None, bound, at + label.start(1))


_LABEL_FORMS = {field: re.compile(label) for field, label in _LABELS.items()}


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object of a text, its names in small letters; None if it is none or has a field twice."""
    if len(text) > _LONGEST_OBJECT:
        return None
    row = parse_json(text.strip(), object_pairs_hook=_once, parse_int=_number, parse_float=_number)
    return row if isinstance(row, dict) else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = {name.lower(): value for name, value in pairs}
    if len(row) < len(pairs):
        raise ValueError("a field twice")
    return row


def _number(digits: str) -> str:
    return digits[:20]  # labels are texts; so long a number is none


def _without_thoughts(text: str, *, everywhere: bool) -> tuple[str, bool]:
    """The reply with its thoughts blanked, and whether it ends inside one.

    `everywhere`: any mark of a thought is the judge's own. Otherwise a text shown contains one, and only a
    thought that the reply begins with is.
    """
    if not any(map(text.__contains__, _THOUGHT_HINTS)):
        return text, False
    ends = [mark.end() for mark in _THOUGHT_ENDS.finditer(text)]
    if not everywhere:
        if not _THOUGHT_BEGINS.match(text, len(text) - len(text.lstrip())):
            return text, False
        end = ends[0] if ends else len(text)
        return "\n" * end + text[end:], not ends
    start = ends[-1] if ends else 0
    cut = _THOUGHT_BEGINS.search(text, start)
    end = cut.start() if cut else len(text)
    return "\n" * start + text[start:end] + "\n" * (len(text) - end), cut is not None


def _without_echoes(text: str, nonce: str) -> str:
    """Blank what a judge repeats with its fences, also if the beginning or the end is missing."""
    form = rf"<<<[ \t]?(begin|end) [^\n<>]{{1,40}} {re.escape(nonce)}[ \t]?>>>"
    pieces, at, opened = list[str](), 0, -1
    for fence in re.finditer(form, text):
        if fence[1] == "begin":
            opened = fence.start() if opened < 0 else opened
            continue
        start = opened if opened >= 0 else at
        pieces += text[at:start], "\n" * (fence.end() - start)
        at, opened = fence.end(), -1
    rest = text[at:] if opened < 0 else text[at:opened] + "\n" * (len(text) - opened)
    return "".join([*pieces, rest])


def _fences(text: str) -> list[int]:
    """Where code blocks begin and end, in turn; one that is never closed is none."""
    if "```" not in text and "~~~" not in text:
        return []
    fences = list[int]()
    for fence in islice(_CODE_FENCE.finditer(text), 2 * _MOST_FENCES):
        if len(fences) % 2 == 0 or not fence[1].strip():  # a fence with a language closes nothing
            fences.append(fence.start())
    return fences[: len(fences) // 2 * 2]


def _only_block(text: str) -> str | None:
    """The inside of a code block that is all of a reply; positions do not change."""
    if not text.lstrip().startswith(("```", "~~~")):
        return None
    fences = _fences(text)
    if len(fences) != 2:
        return None
    start, end = text.find("\n", fences[0]), fences[1]
    if text[end:].strip(" \t\n`~"):
        return None
    return " " * start + text[start:end] + " " * (len(text) - end)


def _without(text: str, marks: Sequence[_Mark]) -> str:
    """The text with the marks blanked; positions do not change."""
    pieces, at = list[str](), 0
    for mark in marks:
        if mark.end > at:
            start = max(at, mark.start)
            pieces += text[at:start], " " * (mark.end - start)
            at = mark.end
    return "".join([*pieces, text[at:]])


def _blanked(match: re.Match[str]) -> str:
    return " " * len(match[0])
