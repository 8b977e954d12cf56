"""A judge's reply as it is read: its tags, fields and lines, and which of its tags decides."""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from caps.prompts.lines import Line, fields, lines_of
from caps.prompts.tags import Tag, tags, without_code

T = TypeVar("T")

# Before a tag on its line: somebody else's words, or doubt.
_QUOTING = re.compile(
    r"\b(?:contains?|includes?|says?|said|claims?|claimed|prints?|returned|injects?|injected|writes?|wrote"
    r"|ends? with|outputs?|embeds?"
    r"|the (?:line|text|comment|string)|tries|e\.g|for example|for instance|such as|like)\b",
    re.IGNORECASE,
)
_UNSURE = re.compile(
    r"\b(?:maybe|perhaps|possibly|if|whether|might|could|would not|not|never|n['’]t|cannot|neither|so far"
    r"|leaning)\b[^.;!\n]{0,60}$",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"[\s*_`.\"'”)]{0,8}(?:\?|(?:would be|would have been|is|was|seems|cannot be|can['’]t be|isn['’]t"
    r"|must be) (?:\w+ )?(?:wrong|incorrect|not|a mistake|right)\b|(?:cannot|can['’]t|isn['’]t)\b)",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\b(?:wait|hmm+|but|however|actually|let me|let['’]s|alternatively|though|although|check|verify"
    r"|maybe|perhaps|hold on|no,)\b|\?",
    re.IGNORECASE,
)
_THINKING = re.compile(
    r"\s{0,20}(?:okay|ok|alright|all right|hmm+|so,|well,|let me|let['’]s|first, (?:i|let)|i need to"
    r"|we need to|i should)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w")
_ANY_TAG = re.compile(r"(?:<|&lt;|\[)/?[^<>\[\]\n]{0,80}(?:>|&gt;|\])")
_PARTIAL_TAG = re.compile(r"<[^<>\n]{0,40}$")
_LINE = 300


@dataclass(frozen=True)
class Reply:
    """What of a reply may be read: its tags, and the rest of its words where it is whole.

    `bound` keeps only what carries the code, `strict` only tags in the very form that prompts ask for:
    quoting keeps candidates from having that form, whatever the prompt.
    """

    text: str
    whole: bool
    code: str | None = None
    bound: bool = False
    strict: bool = False

    @cached_property
    def tags(self) -> Sequence[Tag]:
        """The tags that are closed, or end a whole reply."""
        found = [tag for tag in tags(self.text, self.code) if tag.closed or self.whole]
        return [tag for tag in found if tag.asked] if self.strict else found

    @cached_property
    def all_lines(self) -> Sequence[Line]:
        """The lines of a whole reply that hold no tags."""
        if not self.whole or self.strict:
            return ()
        found = list(tags(self.text, self.code))
        starts = [tag.opens for tag in found]
        return [line for line in lines_of(self.text) if not _touched(line, found, starts)]

    @cached_property
    def lines(self) -> Sequence[Line]:
        """The lines that may state an answer; of a bound one those that carry the code, without it."""
        lines = self.all_lines
        if not self.bound:
            return lines
        stripped = [(line, *without_code(line.words, self.code)) for line in lines]
        return [line._replace(words=_tidy(words)) for line, words, bound in stripped if bound]

    @cached_property
    def fields(self) -> Sequence[tuple[str, str]]:
        """Fields of JSON and the like that say a verdict; all of them count as one statement."""
        if self.strict:
            return ()
        found = [
            (name, *without_code(value, self.code))
            for name, value, start in fields(self.text)
            if self.bound or not _QUOTING.search(self.introducing(start))
        ]
        return [
            (name, value) for name, value, bound in found if bound or name == "confidence" or not self.bound
        ]

    def introducing(self, start: int) -> str:
        """What stands on a line before the object of a field."""
        return self.text[max(0, start - _LINE) : start].rpartition("\n")[2].partition("{")[0]

    def counting(self, *names: str) -> list[Tag]:
        """The tags of these names that may be the verdict."""
        found = [tag for tag in self.tags if tag.name in names and (tag.bound or not self.bound)]
        return found if self.bound else [tag for tag in found if not self.quoted(tag)]

    def quoted(self, tag: Tag) -> bool:
        """Whether the line of a tag says that its words are somebody else's."""
        before, after = self.around(tag)
        mark = before[-1:]
        if mark in "`\"'“”‘«" and mark and (_WORD.search(before[:-1]) or _WORD.search(after)):
            return True
        return bool(_QUOTING.search(before))

    @cached_property
    def prose(self) -> str:
        """The text with all tags and what stands in them blanked; nothing is moved."""
        pieces, at = list[str](), 0
        for tag in tags(self.text, self.code):
            pieces += self.text[at : tag.opens], " " * (tag.ends - tag.opens)
            at = tag.ends
        return _ANY_TAG.sub(lambda found: " " * len(found[0]), "".join([*pieces, self.text[at:]]))

    def around(self, tag: Tag) -> tuple[str, str]:
        """What stands before and after a tag on its line, without tags."""
        before = self.prose[max(0, tag.opens - _LINE) : tag.opens].rpartition("\n")[2]
        return before, self.prose[tag.ends : tag.ends + _LINE].partition("\n")[0]

    def said_between(self, first: Tag, second: Tag) -> bool:
        """Whether there is a word between two tags that stands in no tag."""
        between = self.prose[first.ends : min(second.opens, first.ends + _LINE)]
        return second.opens - first.ends > _LINE or bool(_WORD.search(between))

    def settled(self, tag: Tag) -> bool:
        """Whether a verdict in a reply that was cut is its last word, no draft in a thought that goes on."""
        rest = _PARTIAL_TAG.sub("", self.prose[tag.ends :])
        if not _WORD.search(rest):
            return True
        before, _ = self.around(tag)
        if _WORD.search(before) or _THINKING.match(self.text):
            return False
        return not _GOES_ON.search(rest)

    def choose(self, names: tuple[str, ...], read: Callable[[str], T | None]) -> "Choice[T] | None":
        """The last tag of these names that can be read; with no value where tags go against each other."""
        found = [(tag, value) for tag in self.counting(*names) if (value := read(tag.content)) is not None]
        if not found:
            return None
        tag, value = found[-1]
        before, after = self.around(tag)
        doubted = _UNSURE.search(before) or _DENIED.match(after.strip())
        if doubted or not (self.whole or self.settled(tag)):
            return Choice(tag, None)
        differing = next((one for one, other in reversed(found[:-1]) if other != value), None)
        if differing is not None and not self.said_between(differing, tag):
            return Choice(tag, None)
        return Choice(tag, value)


class Choice(NamedTuple, Generic[T]):
    """The tag that decides, and what it says; None where it is doubted or contradicted."""

    tag: Tag
    value: T | None


def _touched(line: Line, found: Sequence[Tag], starts: Sequence[int]) -> bool:
    """Whether a line holds a tag or stands in one: what is in an unreadable tag is no plain words either."""
    at = bisect_left(starts, line.start)
    if at < len(found) and found[at].opens < line.start + line.length:
        return True
    return at > 0 and found[at - 1].ends > line.start


def _tidy(words: str) -> str:
    """Words from which the code was taken: nor the brackets and the word it stood with."""
    return re.sub(r"[ ,;:]*(?:\bcode\b)?[ ,;:]*$", "", " ".join(words.split()), flags=re.IGNORECASE)
