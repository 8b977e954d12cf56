"""The built-in domains, and domains by name.

A domain is looked up by name in `registry.DOMAINS`, in the entry points `caps.domains` of installed packages,
and among the domains registered in this process by `register_domain` or `--domain package.module:NAME`. A
case states a domain by name, never by path, so that a case file cannot import code.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from caps.core.domains import PROMPT_KINDS, TEMPLATES, Domain
from caps.core.errors import InputError, SettingError
from caps.core.settings import nearest
from caps.core.types import Candidate, Case
from caps.evidence.anatomy import fence_label, final_answer, last_boxed, last_code_block
from caps.evidence.signatures import canonical
from caps.registry import (
    DEFAULT_DOMAIN,
    DOMAINS,
    FINDERS,
    GRADERS,
    Registry,
    check_call,
    installs,
    names,
    names_code,
    resolve,
)

INTERFACE = ("entry_point", "fn_name", "starter_code", "preamble")
_NAME = re.compile(r"[A-Za-z][\w-]{0,39}")
_LONGEST_VALUE = 60  # characters of a known answer that is compared by value
_MATHEMATICAL = re.compile(r"[\d\\^=+]")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_DATA_FORMATS = frozenset(
    {"csv", "diff", "json", "json5", "jsonc", "jsonl", "latex", "markdown", "md", "patch", "tex", "text",
     "toml", "txt", "xml", "yaml", "yml"}
)  # fmt: skip
_registered: dict[str, Domain] = {}


def recognises_code(row: Mapping[str, object], candidates: Sequence[Candidate]) -> str:
    """The case has tests, or most of its candidates contain code and no answer is known."""
    if _has_program_tests(row):
        return "tests or an interface for programs are stated"
    if row.get("answer") is not None:
        return ""
    return "most candidates contain code" if _most(candidates, _has_code) else ""


def recognises_math(row: Mapping[str, object], candidates: Sequence[Candidate]) -> str:
    """Most candidates state or box an answer, or one is known that can be compared with theirs."""
    answer = row.get("answer")
    if not candidates:
        return "an answer is known" if answer is not None else ""
    if _most(candidates, _has_answer):
        return "most candidates state or box an answer"
    if _is_value(answer):
        return "an answer is known"
    if isinstance(answer, str) and len(answer) <= _LONGEST_VALUE and _most(candidates, _announces):
        return "an answer is known, and most candidates announce theirs"
    return ""


def _has_program_tests(row: Mapping[str, object]) -> bool:
    return any(row.get(name) for name in ("tests", "entry_point", "starter_code"))


def _most(candidates: Sequence[Candidate], holds: Callable[[Candidate], bool]) -> bool:
    return sum(map(holds, candidates)) > len(candidates) / 2


def _has_code(candidate: Candidate) -> bool:
    if candidate.code is not None:
        return True
    block = last_code_block(candidate.text)
    return block is not None and _block_format(candidate) not in _DATA_FORMATS and canonical(block) is None


def _has_answer(candidate: Candidate) -> bool:
    """Whether an answer is stated, boxed, or the value of a field of a JSON object."""
    if candidate.answer is not None or last_boxed(candidate.text) is not None:
        return True
    is_json = candidate.text.lstrip().startswith("{") or _block_format(candidate) == "json"
    return is_json and _is_value(final_answer(candidate))


def _announces(candidate: Candidate) -> bool:
    return final_answer(candidate) is not None


def _block_format(candidate: Candidate) -> str:
    return fence_label(candidate.text).lower()


def _is_value(answer: object) -> bool:
    """Whether an answer is a number or a short formula, or a list of them, rather than words."""
    if isinstance(answer, list):
        return bool(answer) and all(_is_value(value) for value in answer)
    if not isinstance(answer, str):
        return isinstance(answer, int | float) and not isinstance(answer, bool)
    words = _WORD.findall(answer)
    return len(answer) <= _LONGEST_VALUE and len(words) <= 1 and _MATHEMATICAL.search(answer) is not None


CODE_PROMPTS = "code"
_TRUTH = ("answer", "tests", *INTERFACE)

CODE = Domain(
    name="code",
    signature="code-ast",
    partial="code-excerpt",
    pair="code-difference",
    prompts=CODE_PROMPTS,
    finder="behaviour",
    grader="code",
    fields=("tests", *INTERFACE, "language"),
    truth=("problem", *_TRUTH, "language"),  # some programs continue the text of the problem
    python_programs=True,
    text_form="code",
    recognises=recognises_code,
)
MATH = Domain(
    name="math",
    signature="math-final",
    partial="math-excerpt",
    prompts="math",
    finder="answers",
    grader="math",
    truth=_TRUTH,
    short_answers=True,
    recognises=recognises_math,
)
GENERAL = Domain(
    name="general",
    grader="replies",
    recognises=lambda row, candidates: "nothing else fits",  # noqa: ARG005
)


def domain_named(name: str) -> Domain:
    """Find a domain by name or path; one given by path is registered, so that cases may state its name."""
    if name in _registered:
        return _registered[name]
    domain = check_domain(resolve(DOMAINS, name), name)
    if names_code(name):
        return register_domain(domain)
    if domain.name != name:
        raise SettingError(f"domain {name!r}: its name is {domain.name!r}: the two names must be equal")
    _registered[name] = domain
    return domain


def register_domain(domain: Domain) -> Domain:
    """Register a domain in this process, replacing an earlier one of the same name.

    Cases then state it in their field `domain`, and `domain="..."` of `caps.best` or `caps.solve` names it.
    """
    check_domain(domain, repr(domain))
    if domain.name in DOMAINS.table:
        raise SettingError(f"domain {domain.name!r}: a built-in domain has this name: choose another")
    _registered[domain.name] = domain
    return domain


def known_domains() -> list[str]:
    """The names of all domains: built-in, of installed packages, and registered in this process."""
    return list(dict.fromkeys([*names(DOMAINS), *_registered]))


def registered_fields() -> dict[str, tuple[str, ...]]:
    """The registered domains, which other processes may not know, with the fields their finders read."""
    return {name: domain.fields for name, domain in _registered.items() if name not in DOMAINS.table}


def local_fields() -> set[str]:
    """Fields of a case that name files or commands of this machine, whatever its domain."""
    return {field for domain in all_domains() for field in domain.local_fields}


def all_domains() -> Iterator[Domain]:
    """All domains, except plug-ins that cannot be loaded; a case that states one of those reports why."""
    for name in known_domains():
        try:
            yield domain_named(name)
        except SettingError:
            continue


def check_stated(name: object, registered: Sequence[str] = ()) -> None:
    """Refuse an unknown domain of a case; `registered` are the domains of the requesting process."""
    if isinstance(name, str) and (name in _registered or name in DOMAINS.table or name in registered):
        return
    choices = list(dict.fromkeys([*known_domains(), *registered]))
    if name not in choices:
        hint = installs(name) or nearest(name, choices) if isinstance(name, str) else ""
        raise InputError(
            f"domain: {name!r:.80} must be one of {', '.join(choices)}"
            + (f"; {hint.strip(' ;')}" if hint else "; name your own domain with --domain")
        )
    try:
        domain_named(str(name))
    except SettingError as error:
        raise InputError(f"domain: {error}") from None


def guess_domain(row: Mapping[str, object], candidates: Sequence[Candidate]) -> str:
    """Guess the domain: the first built-in one that recognises the case (code, math, else general).

    A case with a known answer and no tests is no code: it is graded by that answer.
    """
    for name in DOMAINS.table:
        recognises = domain_named(name).recognises
        if recognises is not None and recognises(row, candidates):
            return name
    return DEFAULT_DOMAIN


READ_AHEAD = 64
AGREEMENT = 0.9


def agree_on_domain(source: Iterable[Case | InputError]) -> Iterator[Case | InputError]:
    """Decide on one domain for the cases of a file that state none, from the first of them.

    If nine in ten of these look alike, all get that domain: a single odd case is judged as the others are. If
    they differ more, the file is mixed and each case keeps its own guess. `reason` says which and why.
    """
    rest = iter(source)
    for case in rest:
        if not isinstance(case, Case) or not case.guessed:
            yield case
            continue
        first = [case, *islice(rest, READ_AHEAD - 1)]
        domain, reason = _decide([item for item in first if isinstance(item, Case) and item.guessed])
        for item in chain(first, rest):
            if isinstance(item, Case) and item.guessed:
                yield replace(item, domain=domain or item.domain, reason=reason)
            else:
                yield item


def _decide(cases: Sequence[Case]) -> tuple[str | None, str]:
    """The domain that nearly all of these cases look like, None if they are mixed; and the reason."""
    counts = Counter(case.domain for case in cases)
    domain, count = counts.most_common(1)[0]
    if count < AGREEMENT * len(cases):
        mixed = ", ".join(f"{name} {number}" for name, number in counts.most_common())
        return None, f"each case by itself, since the first {len(cases)} differ: {mixed}"
    typical = next(case for case in cases if case.domain == domain)
    recognises = domain_named(domain).recognises
    why = "" if recognises is None else recognises(typical.extra, typical.candidates)
    return domain, f"{f'{count} of the first {len(cases)} cases' if len(cases) > 1 else 'the case'}: {why}"


def with_stated_domain(case: Case | InputError, name: str | None) -> Case | InputError:
    """The case with the domain that the user names, if it states none itself."""
    if name is None or not isinstance(case, Case) or not case.guessed:
        return case
    return replace(case, domain=domain_named(name).name, guessed=False)


#: Fields of a domain that are functions: their argument, and where a name is looked up.
_FUNCTIONS: dict[str, tuple[str, Registry | None]] = {
    "signature": ("candidate", None), "partial": ("candidate", None), "full": ("candidate", None),
    "pair": ("candidates", None), "finder": ("resources", FINDERS), "grader": ("resources", GRADERS),
    "complete": ("case", None),
}  # fmt: skip
_OPTIONAL = ("pair", "finder", "grader", "complete")


def check_domain(domain: object, name: str) -> Domain:
    """Check that an object is a usable domain, or raise a `SettingError` that says what is wrong."""
    if not isinstance(domain, Domain):
        raise SettingError(f"domain {name!r} is {domain!r:.80}: not a caps.Domain")
    if not isinstance(domain.name, str) or not _NAME.fullmatch(domain.name):
        raise SettingError(f"domain {domain.name!r:.80}: a name consists of letters, digits, - and _")
    where = f"domain {domain.name!r}"
    if domain.prompts not in PROMPT_KINDS:
        raise SettingError(
            f"{where}: prompts = {domain.prompts!r:.80}: must be one of {', '.join(PROMPT_KINDS)}"
        )
    _check_templates(domain.templates, where)
    for field, (argument, registry) in _FUNCTIONS.items():
        value = getattr(domain, field)
        if value is None and field in _OPTIONAL:
            continue
        if callable(value):
            check_call(f"{where}: {field}", value, (argument,))
        elif not isinstance(value, str) or field == "complete":
            article = "a " if argument in ("candidate", "case") else ""
            raise SettingError(
                f"{where}: {field} = {value!r:.80}: must be a function of {article}{argument}, or its name"
            )
        elif registry is not None:
            resolve(registry, value)
    if (
        domain.pair is not None
        and domain.prompts != CODE_PROMPTS
        and "pair-difference" not in domain.templates
    ):
        raise SettingError(
            f"{where}: pair: prompts = {domain.prompts!r} has no prompt for it: give templates = "
            '{"pair-difference": ...}, or prompts = "code"'
        )
    try:
        hash(domain)
    except TypeError as error:
        raise SettingError(f"{where}: {error}: its functions and fields must be hashable") from None
    return domain


def _check_templates(templates: Mapping[str, str], where: str) -> None:
    for name, text in templates.items():
        if name not in TEMPLATES:
            raise SettingError(f"{where}: templates: {name!r:.80} must be one of {', '.join(TEMPLATES)}")
        if not isinstance(text, str) or "{problem}" not in text or "{code}" not in text:
            raise SettingError(f"{where}: templates: {name!r}: must be a text with {{problem}} and {{code}}")
