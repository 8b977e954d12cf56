"""Rendering of prompts: a template, a problem and views of candidates become messages.

Slots are filled in one pass, so a `{b}` inside a candidate is not a slot.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import TypeAlias

from caps.core.domains import CRITERIA_PROMPTS, PROMPT_KINDS, Domain
from caps.core.errors import SettingError
from caps.core.types import Ask, Level, Media, Message, Pairing, Problem, Solo
from caps.prompts.fence import Quoting, fenced, quote, show
from caps.prompts.reply_forms import UNSTATED

SLOTS = ("problem", "a", "b", "candidate", "candidates", "criteria", "nonce", "code")

_FORMS = (("a", "b"), ("candidate",), ("candidates",))
_LABELS = {("a", "b"): ("CANDIDATE A", "CANDIDATE B"), ("candidate",): ("CANDIDATE",)}
_Pieces: TypeAlias = list[str | Media]
_REPEATED = ("nonce", "code")  # may occur any number of times
_SLOT = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")


def template_stem(ask: Ask, *, difference: bool = False) -> str:
    """What kind of prompt an ask needs: one of the names in `core.domains.TEMPLATES`.

    `difference`: it shows what separates two candidates.
    """
    if difference:
        return "pair-difference"
    if not isinstance(ask, Pairing):
        return "solo" if isinstance(ask, Solo) else "group"
    if ask.dialect == "ratings":
        return "pair-ratings"
    if ask.dialect == "verdicts":
        return "pair-e2" if ask.level is Level.FULL else "pair-e1"
    raise SettingError(f"dialect {ask.dialect!r}: must be one of verdicts, ratings")


def template_name(ask: Ask, kind: str, *, difference: bool = False) -> str:
    """The template file for an ask; kinds without prompts of their own use the general ones."""
    if kind not in (*PROMPT_KINDS, CRITERIA_PROMPTS):
        kind = PROMPT_KINDS[-1]
    return f"{template_stem(ask, difference=difference)}-{kind}.txt"


def takes_criteria(domain: Domain) -> bool:
    """Whether the prompts of a domain ask by the criteria of a case."""
    has_slot = any("{criteria}" in text for text in domain.templates.values())
    return has_slot or not (domain.templates or domain.has_own_prompts)


def find_template(
    templates: Mapping[str, str],
    ask: Ask,
    domain: Domain,
    *,
    criteria: bool = False,
    difference: bool = False,
) -> tuple[str, str]:
    """The name and text of the template for an ask: the domain's own, else that of its kind of prompts.

    `criteria`: the case states what makes an answer better. `difference`: what separates the two candidates
    is shown.
    """
    stem = template_stem(ask, difference=difference)
    text = domain.templates.get(stem)
    if text is not None:
        return f"{stem}-{domain.name}.txt", text
    by_criteria = (CRITERIA_PROMPTS,) if criteria and takes_criteria(domain) else ()
    names = [template_name(ask, kind, difference=difference) for kind in (*by_criteria, domain.prompts)]
    for name in names:
        if name in templates:
            return name, templates[name]
    raise SettingError(f"there is no prompt template {names[-1]!r}")


@lru_cache(maxsize=256)
def asks_for_code(template: str) -> bool:
    """Whether a template asks for the code of the case; then texts are shown unchanged."""
    return any(slot[2] == "code" for slot in _SLOT.finditer(template))


def render(
    template: str,
    *,
    problem: Problem,
    views: Sequence[str],
    nonce: str,
    code: str = "",
    criteria: Sequence[str] = (),
    media: Sequence[Sequence[Media]] = (),
    quoting: Quoting | None = None,
    ending: str = "",
) -> tuple[Message, ...]:
    """Fill the slots of a template: `{problem}`, and `{a}` with `{b}`, `{candidate}`, or `{candidates}`.

    `media` are the images and documents of each view, which follow its block. `quoting` defaults to `show` if
    the template asks for a code, else to `quote`. `ending` follows the filled template. There is one user
    message, since many servers have no system role and prefix caching does not need one.
    """
    form = _form_of(template, len(views))
    if asks_for_code(template):
        if not code:
            raise SettingError("a prompt template with {code} needs the code of the case")
        quoting = quoting or show
    quoting = quoting or quote
    labels = _LABELS.get(form) or [f"CANDIDATE {number}" for number in range(1, len(views) + 1)]
    texts = [fenced(label, view, nonce, quoting=quoting) for label, view in zip(labels, views, strict=True)]
    pieces = _pieces_of(template)
    values: dict[str, _Pieces] = {"nonce": [nonce], "code": [code]}
    values["problem"] = _problem_pieces(problem, nonce, quoting)
    if (True, "criteria") in pieces:
        numbered = enumerate(criteria or (UNSTATED,), 1)
        values["criteria"] = ["\n".join(f"{number}. {quoting(text, nonce)}" for number, text in numbered)]
    blocks: list[_Pieces] = [[text] for text in texts]
    if any(media):
        blocks = [[text, *own] for text, own in zip(texts, media, strict=True)]
    if form == ("candidates",):
        values["candidates"] = _joined(blocks)
    else:
        values.update(zip(form, blocks, strict=True))
    filled: _Pieces = []
    for slot, piece in pieces:
        if slot:
            filled += values[piece]
        else:
            filled.append(piece)
    filled.append(ending)
    return (_message(filled, nonce),)


def _message(pieces: _Pieces, nonce: str) -> Message:
    """The pieces as one message; a line with the nonce, which no text contains, leads each medium."""
    with suppress(TypeError):  # a medium among them
        return Message("user", "".join(pieces))  # type: ignore[arg-type]
    texts: list[str] = []
    media: list[Media] = []
    length = 0
    for piece in pieces:
        text = piece if isinstance(piece, str) else f"\n<<<{piece.label[1:-1]} {nonce}>>>"
        texts.append(text)
        length += len(text)
        if isinstance(piece, Media):
            media.append(piece.moved(length))
    return Message("user", "".join(texts), tuple(media))


def _joined(blocks: Sequence[Sequence[str | Media]]) -> _Pieces:
    """Blocks one after the other, with an empty line between them."""
    return [piece for place, block in enumerate(blocks) for piece in (["\n\n"] * (place > 0) + [*block])]


def shared_until(prompt: str, nonce: str) -> tuple[int, ...]:
    """Where a prompt may differ from others of its case: at the first candidate, and at the second.

    Texts do not contain the nonce, so no candidate can move these places.
    """
    begins = re.finditer(rf"<<<BEGIN CANDIDATE (?:\w{{1,10}} )?{nonce}>>>", prompt)
    return tuple(begin.start() for begin in islice(begins, 2))


def _problem_pieces(problem: Problem, nonce: str, quoting: Quoting) -> _Pieces:
    """The problem in a fence; each of several messages has its own, so that no text can fake a role."""
    if len(problem.messages) <= 1:
        return [fenced("PROBLEM", problem.text, nonce, quoting=quoting), *problem.media]
    roles = (" ".join(re.findall(r"\w{1,20}", one.role)[:1]).upper() or "MESSAGE" for one in problem.messages)
    turns = zip(roles, problem.messages, strict=True)
    return _joined(
        [[fenced(f"PROBLEM {role}", one.content, nonce, quoting=quoting), *one.media] for role, one in turns]
    )


@lru_cache(maxsize=256)
def _pieces_of(template: str) -> tuple[tuple[bool, str], ...]:
    """The template as text and slots; true for a slot."""
    pieces, at, text = list[tuple[bool, str]](), 0, template.strip()
    for slot in _SLOT.finditer(text):
        pieces.append((False, text[at : slot.start()]))
        pieces.append((True, slot[2]) if slot[2] else (False, f"{{{slot[1]}}}"))
        at = slot.end()
    return (*pieces, (False, text[at:]))


@lru_cache(maxsize=256)
def _form_of(template: str, count: int) -> tuple[str, ...]:
    """The candidate slots of a template; raises if its slots or the number of views are wrong."""
    slots = [slot[2] for slot in _SLOT.finditer(template) if slot[2]]
    for slot in slots:
        if slot not in SLOTS:
            raise SettingError(
                f"unknown slot {{{slot}}} in a prompt template: allowed are {_listed(SLOTS)};"
                f" for the literal text write {{{{{slot}}}}}"
            )
        if slot not in _REPEATED and slots.count(slot) > 1:
            raise SettingError(f"slot {{{slot}}} occurs twice in a prompt template: use it once")
    if "problem" not in slots:
        raise SettingError("slot {problem} is missing from a prompt template: it is always needed")
    form = tuple(slot for slot in SLOTS if slot in slots and slot not in ("problem", "criteria", *_REPEATED))
    if form not in _FORMS:
        choices = "; or ".join(_listed(one) for one in _FORMS)
        has = _listed(form) or "none"
        raise SettingError(
            f"a slot for the candidates is missing or too many ({has}): a prompt template has {choices}"
        )
    if count < 1 or (form != ("candidates",) and count != len(form)):
        raise SettingError(f"a prompt template with {_listed(form)} cannot show {count} candidates")
    return form


def _listed(slots: Sequence[str]) -> str:
    return ", ".join(f"{{{slot}}}" for slot in slots)


# Generation templates
#
# A line `[user]`, `[assistant]` or `[system]` begins a turn; a template without one is a single user turn.
# Turns are split before slots are filled, so a problem cannot fake a turn.

STYLES = ("plain", "instruct", "few-shot")

_TURN = re.compile(r"^\[(system|user|assistant)\]\n", re.MULTILINE)
_GENERATION_SLOT = re.compile(r"\{(problem|interface)\}")


def generation_name(style: str, kind: str, *, function: bool = False) -> str:
    """The template file that asks for an answer; `function`: code is called, not run on standard input."""
    return f"{style}-{'function' if function else kind}.txt"


def ask_for_answer(template: str, problem: Problem, *, interface: str = "") -> tuple[Message, ...]:
    """The chat to send: system messages, worked examples, earlier turns, and the last question.

    System messages go first, as chat templates require.
    """
    *examples, last = _turns(template)
    if last.role != "user" or "{problem}" not in last.content:
        raise SettingError("slot {problem} is missing from the last turn of a generation template")
    user_turns = [index for index, one in enumerate(problem.messages) if one.role == "user"]
    at = user_turns[-1] if user_turns else len(problem.messages) - 1
    asked = problem.messages[at]
    values = {"problem": asked.content, "interface": interface}

    def filled(text: str) -> str:
        return _GENERATION_SLOT.sub(lambda slot: values[slot[1]], text)

    start = len(filled(last.content.partition("{problem}")[0]))
    media = tuple(one.moved(start + one.at) for one in asked.media)
    question = Message("user", filled(last.content), media)
    before, after = problem.messages[:at], problem.messages[at + 1 :]
    system = [one for one in before if one.role == "system"]
    earlier = [one for one in before if one.role != "system"]
    return (*system, *examples, *earlier, question, *after)


def _turns(template: str) -> list[Message]:
    first, *rest = _TURN.split(template.strip())
    if not rest:
        return [Message("user", first)]
    return [Message(role, words.strip()) for role, words in zip(rest[::2], rest[1::2], strict=True)]
