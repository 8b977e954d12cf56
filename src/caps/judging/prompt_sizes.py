"""Sizes of the prompts of a case, and what the baseline V1-Infer would read of it."""

from collections.abc import Mapping

from caps.core.text import CHARACTERS_PER_TOKEN
from caps.core.types import Ask, Level, Pairing, shown_size, shows_difference
from caps.costs.closed_form import v1_infer_tokens
from caps.evidence.domains import domain_named
from caps.evidence.entrants import media_tokens
from caps.judging.base import PreparedCase
from caps.prompts.render import asks_for_code, find_template, render
from caps.strategies.v1_infer import V1Infer


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
