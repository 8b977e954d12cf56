"""Rendering of prompts: a template, a problem and views of candidates become messages.

Slots are filled in one pass, so a `{b}` inside a candidate is not a slot.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256

from caps.core.domains import PROMPT_KINDS, Domain
from caps.core.errors import SettingError
from caps.core.types import Ask, Level, Message, Pairing, Problem, Solo
from caps.prompts.fence import Quoting, fenced, quote, show

VERSIONS = ("v1", "v2")
VERSION = VERSIONS[-1]
SLOTS = ("problem", "a", "b", "candidate", "candidates", "nonce", "code")

_FORMS = (("a", "b"), ("candidate",), ("candidates",))
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


def template_name(ask: Ask, kind: str, version: str = VERSION, *, difference: bool = False) -> str:
    """The template file for an ask; its name is part of the journal key, so a change needs a new version."""
    stem = template_stem(ask, difference=difference)
    return f"{stem}-{kind if kind in PROMPT_KINDS else PROMPT_KINDS[-1]}.{version}.txt"


def find_template(
    templates: Mapping[str, str], ask: Ask, domain: Domain, *, difference: bool = False
) -> tuple[str, str]:
    """The name and text of the template for an ask: the domain's own, or the newest available version."""
    stem = template_stem(ask, difference=difference)
    own = domain.templates.get(stem)
    if own is not None:
        digest = sha256(own.encode()).hexdigest()[:12]
        return f"{stem}-{domain.name}.{digest}.txt", own
    for version in reversed(VERSIONS):
        name = template_name(ask, domain.prompts, version, difference=difference)
        if name in templates:
            return name, templates[name]
    name = template_name(ask, domain.prompts, difference=difference)
    raise SettingError(f"there is no prompt template {name!r}")


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
    quoting: Quoting | None = None,
) -> tuple[Message, ...]:
    """Fill the slots of a template: `{problem}`, and `{a}` with `{b}`, `{candidate}`, or `{candidates}`.

    `quoting` defaults to `show` if the template asks for a code, else to `quote`. There is one user message,
    since many servers have no system role and prefix caching does not need one.
    """
    form = _form_of(template, len(views))
    if asks_for_code(template):
        if not code:
            raise SettingError("a prompt template with {code} needs the code of the case")
        quoting = quoting or show
    quoting = quoting or quote
    values = {"problem": _quoted(problem, nonce, quoting), "nonce": nonce, "code": code}
    if form == ("a", "b"):
        values["a"] = fenced("CANDIDATE A", views[0], nonce, quoting=quoting)
        values["b"] = fenced("CANDIDATE B", views[1], nonce, quoting=quoting)
    elif form == ("candidate",):
        values["candidate"] = fenced("CANDIDATE", views[0], nonce, quoting=quoting)
    else:
        blocks = (
            fenced(f"CANDIDATE {index}", view, nonce, quoting=quoting) for index, view in enumerate(views, 1)
        )
        values["candidates"] = "\n\n".join(blocks)
    filled = [values[piece] if slot else piece for slot, piece in _pieces_of(template)]
    return (Message("user", "".join(filled)),)


def _quoted(problem: Problem, nonce: str, quoting: Quoting) -> str:
    """The problem in a fence; each of several messages has its own, so that no text can fake a role."""
    if len(problem.messages) <= 1:
        return fenced("PROBLEM", problem.text, nonce, quoting=quoting)
    roles = (" ".join(re.findall(r"\w{1,20}", one.role)[:1]).upper() or "MESSAGE" for one in problem.messages)
    turns = zip(roles, problem.messages, strict=True)
    return "\n\n".join(fenced(f"PROBLEM {role}", one.content, nonce, quoting=quoting) for role, one in turns)


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
    form = tuple(slot for slot in SLOTS if slot in slots and slot not in ("problem", *_REPEATED))
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

GENERATION_VERSION = "v1"
STYLES = ("plain", "instruct", "few-shot")

_TURN = re.compile(r"^\[(system|user|assistant)\]\n", re.MULTILINE)
_GENERATION_SLOT = re.compile(r"\{(problem|interface)\}")


def generation_name(style: str, kind: str, *, function: bool = False) -> str:
    """The template file that asks for an answer; `function`: code is called, not run on standard input."""
    return f"{style}-{'function' if function else kind}.{GENERATION_VERSION}.txt"


def ask_for_answer(template: str, problem: Problem, *, interface: str = "") -> tuple[Message, ...]:
    """The chat to send: system messages, worked examples, earlier turns, and the last question.

    System messages go first, as chat templates require.
    """
    *examples, last = _turns(template)
    if last.role != "user" or "{problem}" not in last.content:
        raise SettingError("slot {problem} is missing from the last turn of a generation template")
    user_turns = [index for index, one in enumerate(problem.messages) if one.role == "user"]
    at = user_turns[-1] if user_turns else len(problem.messages) - 1
    values = {"problem": problem.messages[at].content, "interface": interface}
    question = Message("user", _GENERATION_SLOT.sub(lambda slot: values[slot[1]], last.content))
    before, after = problem.messages[:at], problem.messages[at + 1 :]
    system = [one for one in before if one.role == "system"]
    earlier = [one for one in before if one.role != "system"]
    return (*system, *examples, *earlier, question, *after)


def _turns(template: str) -> list[Message]:
    first, *rest = _TURN.split(template.strip())
    if not rest:
        return [Message("user", first)]
    return [Message(role, words.strip()) for role, words in zip(rest[::2], rest[1::2], strict=True)]
