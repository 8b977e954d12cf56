"""Preparation of cases for judging: signatures, views and nonce; long texts in worker processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

from caps.core.domains import Differences
from caps.core.text import CHARACTERS_PER_TOKEN, estimate_tokens
from caps.core.types import Ask, Candidate, Case, Level, Pairing, Problem, shown_size, shows_difference
from caps.costs.closed_form import v1_infer_tokens
from caps.evidence.domains import domain_named
from caps.evidence.entrants import (
    Read,
    Views,
    describe,
    differences_of,
    media_tokens,
    read_candidates,
    separated,
    views_of,
)
from caps.evidence.profiles import Profile, profile_for, profile_named, with_views
from caps.judging.base import PreparedCase
from caps.prompts.fence import code_for, nonce_for, quote, show
from caps.prompts.render import asks_for_code, find_template, render
from caps.strategies.v1_infer import V1Infer
from caps.workers.texts import LONG_TEXT, TextWorkers

DENSE = 3  # characters per token of logs and diffs, which are denser than prose
INSTRUCTIONS = 800  # tokens of a template, its fences and the markup of a chat
LEAST_ROOM = 1_000  # characters of a view, however long the problem is
LONG_CODE = 16_000  # characters: parsing a program takes a hundred times as long as splitting a text
LIGHT = frozenset({"math-answer", "math-final", "general-answer"})  # signatures that parse no program


@dataclass(frozen=True, slots=True)
class CasePreparation:
    """Prepares cases with the profile of their domain, or a named one, with single views replaced.

    With `findings`, candidates that behave alike count as equal. With `quotes`, texts are also quoted for
    prompts that ask for no code. With `differences`, the pair view of the profile is shown where it applies;
    one named in `views` is shown in any case. Call the object to prepare a case in this process; `in_worker`
    prepares a long case in a worker process, with the same result. Views are shortened so that two of them,
    or all of a case if the strategy asks about `all_at_once`, fit into `context` tokens beside a reply of
    `reply` tokens.
    """

    profile: str | None = None
    views: tuple[tuple[str, str], ...] = ()
    findings: bool = False
    quotes: bool = False
    differences: bool = False
    context: int | None = None
    reply: int = 0
    all_at_once: bool = False
    templates: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, case: Case) -> PreparedCase:
        """Prepare a case in this process."""
        ready = describe(case, self.profile_of(case), estimate_tokens, self.room(case))
        return _prepare(case, ready, self.templates)

    def room(self, case: Case) -> int | None:
        """Characters that a view may have; None if the context of the judge is unknown."""
        if self.context is None:
            return None
        shown = max(2, len(case.candidates)) if self.all_at_once else 2
        used = INSTRUCTIONS + min(self.reply, self.context // 2)
        used += sum(len(message.content) for message in case.problem.messages) // DENSE
        return max(LEAST_ROOM, (self.context - used) * DENSE // shown)

    def profile_of(self, case: Case) -> Profile:
        """The profile with the signature and the views of a case."""
        profile = profile_for(case.domain) if self.profile is None else _profile_named(self.profile)
        return _changed(profile, self.views, findings=self.findings, differences=self.differences)

    def is_long(self, case: Case) -> bool:
        """Whether preparing a case could block the event loop; False if a worker cannot prepare it."""
        profile = self.profile_of(case)
        if profile.names is None or callable(profile.pair):
            return False
        return size_of(case) > (LONG_TEXT if profile.names[0] in LIGHT else LONG_CODE)

    async def in_worker(self, case: Case, texts: TextWorkers, until: float | None = None) -> PreparedCase:
        """Prepare a case and escape its texts in a worker process; `until` is a time of the loop's clock.

        Raises `SlowTextError` if that takes too long.
        """
        work = partial(
            prepare_texts,
            case.problem,
            case.candidates,
            NamedProfile.of(self.profile_of(case)),
            quotes=self.quotes,
            criteria=case.criteria,
            room=self.room(case),
        )
        done = await texts.run(work, size=size_of(case), limit=0, until=until)
        prepared = self.restore(case, done)
        texts_shown = _shown(case.problem, prepared.evidence.views)
        for text, (shown, quoted) in zip(texts_shown, done.texts, strict=True):
            prepared.remember(text, text if shown is None else shown, quoted)
        return prepared

    def restore(self, case: Case, texts: "PreparedTexts") -> PreparedCase:
        """The prepared case, of which another process has read the candidates."""
        pairs = zip(case.candidates, texts.read, strict=True)
        read = [_rebuilt(candidate, reduced) for candidate, reduced in pairs]
        ready = views_of(case, read, estimate_tokens, self.profile_of(case))
        statement = statement_tokens(case.problem)
        return PreparedCase(case, ready, texts.nonce, statement, texts.code, self.templates)


ReducedRead: TypeAlias = tuple[str | None, bool, str | None, str | None]
"""A `Read`; None for a partial view that equals the full one, and a full view that equals the candidate."""


class NamedProfile(NamedTuple):
    """A profile whose signature and views have names that a worker can resolve."""

    signature: str
    partial: str
    full: str
    pair: str | None
    clusters: bool

    @classmethod
    def of(cls, profile: Profile) -> "NamedProfile":
        """The names in a profile that has names only."""
        assert profile.names is not None  # noqa: S101
        assert not callable(profile.pair)  # noqa: S101
        signature, partial_view, full = profile.names
        return cls(signature, partial_view, full, profile.pair, profile.clusters)

    def restore(self) -> Profile:
        """The profile, without its name."""
        return Profile("", self.signature, self.partial, self.full, self.pair, self.clusters)


class PreparedTexts(NamedTuple):
    """What another process prepared a case to, reduced to what does not stand in the case itself.

    `texts` holds, if wanted, for each text that a prompt may show its escaped form (None: unchanged) and its
    quoted form.
    """

    read: tuple[ReducedRead, ...]
    nonce: str
    code: str
    texts: tuple[tuple[str | None, str | None], ...] = ()

    @classmethod
    def of(cls, prepared: PreparedCase) -> "PreparedTexts":
        """Reduce a prepared case."""
        evidence = prepared.evidence
        read = [
            (entrant.signature, entrant.answer != "text", *views)
            for entrant, views in zip(evidence.entrants, evidence.views, strict=True)
        ]
        return cls(_reduced(prepared.case.candidates, read), prepared.nonce, prepared.code)


def prepare_texts(
    problem: Problem,
    candidates: tuple[Candidate, ...],
    named: NamedProfile,
    *,
    quotes: bool,
    criteria: tuple[str, ...] = (),
    room: int | None = None,
) -> PreparedTexts:
    """Parse and escape all texts of a case."""
    profile = named.restore()
    read = read_candidates(candidates, profile, room)
    views = tuple((shown, whole) for *_, shown, whole in read)
    nonce, code = _marks(problem, views, criteria, differences_of(candidates, profile))
    rows = _reduced(candidates, read)
    escaped = []
    for text in _shown(problem, views):
        shown = show(text, nonce)
        escaped.append((None if shown == text else shown, quote(text, nonce) if quotes else None))
    return PreparedTexts(rows, nonce, code, tuple(escaped))


def size_of(case: Case) -> int:
    """Characters of the problem and all candidates of a case."""
    candidates = sum(len(one.text) + len(one.code or "") + len(one.answer or "") for one in case.candidates)
    return candidates + sum(len(message.content) for message in case.problem.messages)


def statement_tokens(problem: Problem) -> int:
    """Estimated tokens of a problem, with its images and documents."""
    return estimate_tokens(problem.text) + sum(one.tokens for one in problem.media)


def _prepare(case: Case, ready: Views, templates: Mapping[str, str]) -> PreparedCase:
    nonce, code = _marks(case.problem, ready.views, case.criteria, ready.differences)
    return PreparedCase(case, ready, nonce, statement_tokens(case.problem), code, templates)


def _marks(
    problem: Problem,
    views: tuple[tuple[str, str], ...],
    criteria: tuple[str, ...],
    differences: Differences | None,
) -> tuple[str, str]:
    """The nonce of a case's fences and the code of its verdicts; neither occurs in a text shown.

    Both follow from problem and views, whatever was found out about the candidates, unless that contains one.
    """
    shown = [view for pair in views for view in pair]
    separating = [text for _, texts in separated(differences, len(views)) for text in texts]
    nonce = nonce_for(problem.text, shown, separating)
    return nonce, code_for(nonce, [problem.text, *shown, *separating, *criteria])


def _reduced(candidates: Sequence[Candidate], read: Sequence[Read]) -> tuple[ReducedRead, ...]:
    """What was read, with None for a view that is the candidate's text, or equal to the full view."""
    return tuple(
        (signature, answered, None if shown == whole else shown, None if whole == candidate.text else whole)
        for candidate, (signature, answered, shown, whole) in zip(candidates, read, strict=True)
    )


def _rebuilt(candidate: Candidate, read: ReducedRead) -> Read:
    signature, answered, shown, whole = read
    whole = candidate.text if whole is None else whole
    return signature, answered, whole if shown is None else shown, whole


def _shown(problem: Problem, views: tuple[tuple[str, str], ...]) -> list[str]:
    """All texts that a prompt may show, each once: the problem's messages and the views."""
    messages = (message.content for message in problem.messages)
    return list(dict.fromkeys([*messages, *(view for pair in views for view in pair)]))


_profile_named = lru_cache(maxsize=64)(profile_named)


@lru_cache(maxsize=64)
def _changed(
    profile: Profile, views: tuple[tuple[str, str], ...], *, findings: bool, differences: bool
) -> Profile:
    shown = profile if differences else replace(profile, pair=None)
    return with_views(replace(shown, clusters=findings), dict(views))


# --- Sizes of the prompts of a case, and what the baseline V1-Infer would read of it ---


class PromptSizes:
    """Sizes of a case's prompts in characters; each kind is rendered once, each view is quoted once."""

    def __init__(self, prepared: PreparedCase, templates: Mapping[str, str] | None = None) -> None:
        self._prepared = prepared
        self._templates = prepared.templates if templates is None else templates
        without_quotes = all(map(asks_for_code, self._templates.values()))
        self._quoting = prepared.showing if without_quotes else prepared.quoting
        self._bare: dict[tuple[object, ...], int] = {}
        self._views: dict[tuple[int, Level], int] = {}

    def size(self, ask: Ask) -> int:
        """Characters of the prompt of an ask; images and documents count by their tokens."""
        prepared = self._prepared
        if not shows_difference(prepared.evidence.entrants, ask):
            return self._without_views(ask) + sum(self._view(entrant, ask.level) for entrant in ask.entrants)
        shown = (self._quoting(text, prepared.nonce) for text in prepared.evidence.shown(ask))
        return self._without_views(ask) + sum(map(len, shown))

    def estimate(self, ask: Ask) -> int:
        """The size of an ask without reading any view: nothing in a view counts as escaped."""
        shown = shown_size(self._prepared.evidence.entrants, ask)
        return self._without_views(ask) + shown * CHARACTERS_PER_TOKEN

    def v1_infer(self) -> float:
        """Characters that V1-Infer reads of the case: the baseline that every share of tokens relates to.

        It is 0 for a reward server, which has no templates and cannot compare.
        """
        entrants = self._prepared.evidence.entrants
        if len(entrants) < 2 or not self._templates:
            return 0.0
        views = [entrant.sizes[Level.FULL] * CHARACTERS_PER_TOKEN for entrant in entrants]
        game = Pairing(0, 1, Level.FULL, dialect=V1Infer().dialect)
        return v1_infer_tokens(views, self._without_views(game))

    def _view(self, entrant: int, level: Level) -> int:
        key = (entrant, level)
        if key not in self._views:
            prepared = self._prepared
            view = prepared.evidence.view(entrant, level)
            media = media_tokens(prepared.case.candidates[entrant].media, view) * CHARACTERS_PER_TOKEN
            self._views[key] = len(self._quoting(view, prepared.nonce)) + media
        return self._views[key]

    def _without_views(self, ask: Ask) -> int:
        dialect = ask.dialect if isinstance(ask, Pairing) else None
        difference = shows_difference(self._prepared.evidence.entrants, ask)
        kind = (type(ask), ask.level, dialect, len(ask.entrants), difference)
        if kind not in self._bare:
            self._bare[kind] = self._render_without_views(ask, difference=difference)
        return self._bare[kind]

    def _render_without_views(self, ask: Ask, *, difference: bool) -> int:
        prepared, case = self._prepared, self._prepared.case
        if not self._templates:  # a reward server reads the problem with each answer
            return len(case.problem.text)
        criteria, domain = bool(case.criteria), domain_named(case.domain)
        _, template = find_template(self._templates, ask, domain, criteria=criteria, difference=difference)
        messages = render(
            template,
            problem=case.problem,
            views=[""] * len(ask.entrants),
            nonce=prepared.nonce,
            code=prepared.code,
            criteria=case.criteria,
            quoting=self._quoting,
        )
        media = sum(one.tokens for one in case.problem.media) * CHARACTERS_PER_TOKEN
        return sum(len(message.content) for message in messages) + media
