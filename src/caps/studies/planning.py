"""Plans: forecasts of the calls and prompt tokens of strategies on a file of cases."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeAlias

from caps.building import make_prepare
from caps.child_python import process_pool
from caps.core.errors import InputError
from caps.core.play import Strategy
from caps.core.types import Ask, Case, Level, Pairing, shows_difference
from caps.costs.forecast import PER_CHARACTER, CaseForecast, forecast_contest
from caps.evidence.domains import domain_named, with_stated_domain
from caps.evidence.entrants import media_tokens
from caps.judging.base import PreparedCase
from caps.judging.llm import JudgeSettings
from caps.prompts.render import asks_for_code, find_template, render

BASELINE = "v1-infer"
CHUNK = 8


class CasePrompts:
    """Sizes of a case's prompts in characters; each kind is rendered once, each view is quoted once."""

    def __init__(self, prepared: PreparedCase, templates: Mapping[str, str]) -> None:
        self._prepare, self._templates = prepared, templates
        as_it_is = all(map(asks_for_code, templates.values()))
        self._quoting = prepared.showing if as_it_is else prepared.quoting
        self._bare: dict[tuple[object, ...], int] = {}
        self._views: dict[tuple[int, Level], int] = {}
        self.has_differences = any(one.differences for one in prepared.evidence.entrants)

    def bare(self, ask: Ask) -> int:
        """Characters of a prompt without the views."""
        dialect = ask.dialect if isinstance(ask, Pairing) else None
        difference = shows_difference(self._prepare.evidence.entrants, ask)
        kind = (type(ask), ask.level, dialect, len(ask.entrants), difference)
        if kind not in self._bare:
            self._bare[kind] = self._render_without_views(ask)
        return self._bare[kind]

    def view(self, entrant: int, level: Level) -> int:
        """Characters of a view as quoted in a prompt; images and documents count by their tokens."""
        key = (entrant, level)
        found = self._views.get(key)
        if found is None:
            prepared = self._prepare
            view, own = prepared.evidence.view(entrant, level), prepared.case.candidates[entrant].media
            media = round(media_tokens(own, view) / PER_CHARACTER)
            found = self._views[key] = len(self._quoting(view, prepared.nonce)) + media
        return found

    def size(self, ask: Ask) -> int:
        """Characters of the prompt of an ask."""
        prepared = self._prepare
        if not shows_difference(prepared.evidence.entrants, ask):
            return self.bare(ask) + sum(self.view(one, ask.level) for one in ask.entrants)
        shown = (self._quoting(text, prepared.nonce) for text in prepared.evidence.shown(ask))
        return self.bare(ask) + sum(map(len, shown))

    def _render_without_views(self, ask: Ask) -> int:
        prepared = self._prepare
        case = prepared.case
        if not self._templates:  # a reward server reads the problem with each answer
            return len(case.problem.text)
        difference = shows_difference(prepared.evidence.entrants, ask)
        _, template = find_template(
            self._templates,
            ask,
            domain_named(case.domain),
            criteria=bool(case.criteria),
            difference=difference,
        )
        shown = render(
            template,
            problem=case.problem,
            views=[""] * len(ask.entrants),
            nonce=prepared.nonce,
            code=prepared.code,
            criteria=case.criteria,
            quoting=self._quoting,
        )
        media = sum(one.tokens for one in case.problem.media)
        return sum(len(message.content) for message in shown) + round(media / PER_CHARACTER)


def forecast_case(
    prepared: PreparedCase,
    strategy: Strategy,
    templates: Mapping[str, str],
    *,
    seed: int,
    per_character: float = PER_CHARACTER,
    prompts: CasePrompts | None = None,
) -> CaseForecast:
    """Forecast what a run with this seed asks about a case; pass `prompts` to measure a case only once."""
    return forecast_contest(
        strategy,
        prepared.evidence.entrants,
        prompts or CasePrompts(prepared, templates),
        seed=f"{seed}/{prepared.case.id}",
        per_character=per_character,
    )


@dataclass(slots=True)
class Totals:
    """Sums of one strategy's forecasts over cases; `refused` lists cases it cannot play, with the reason."""

    cases: int = 0
    first_stage: int = 0
    least: int = 0
    mean: float = 0.0
    most: int = 0
    calls_least: int = 0
    calls_most: int = 0
    partial: float = 0.0
    full: float = 0.0
    rounds: int = 0
    depth: int = 0
    refused: list[str] = field(default_factory=list)

    @property
    def calls(self) -> float:
        """Calls at both levels."""
        return self.partial + self.full

    def add(self, found: CaseForecast) -> None:
        """Add one case."""
        self.cases += 1
        self.rounds += found.depth
        self.depth = max(self.depth, found.depth)
        self.first_stage += found.first_stage
        self.least += found.least
        self.mean += found.mean
        self.most += found.most
        self.calls_least += found.calls_least
        self.calls_most += found.calls_most
        self.partial += found.partial
        self.full += found.full


@dataclass(frozen=True, slots=True)
class Task:
    """Settings that a worker process needs besides the cases."""

    strategies: Sequence[Strategy]
    templates: Mapping[str, str]
    profile: str | None
    views: Mapping[str, str]
    seed: int
    per_character: float = PER_CHARACTER
    context: int | None = None
    domain: str | None = None


Forecasts: TypeAlias = list[CaseForecast | str]


def plan_cases(
    cases: Iterable[Case], task: Task, *, processes: int = 1, report: Callable[[int], object] = abs
) -> list[Totals]:
    """Forecast every strategy on every case; `report` is called with the number of cases just finished."""
    distinct: list[Strategy] = []
    for strategy in task.strategies:
        if strategy not in distinct:
            distinct.append(strategy)
    own = replace(task, strategies=distinct)
    totals = [Totals() for _ in distinct]
    for chunk in _results(_chunks(cases), own, processes):
        for row in chunk:
            for total, found in zip(totals, row, strict=True):
                if isinstance(found, str):
                    total.refused.append(found)
                else:
                    total.add(found)
        report(len(chunk))
    return [totals[distinct.index(strategy)] for strategy in task.strategies]


def _chunks(cases: Iterable[Case]) -> Iterator[Sequence[Case]]:
    source = iter(cases)
    while chunk := list(islice(source, CHUNK)):
        yield chunk


def _results(chunks: Iterator[Sequence[Case]], task: Task, processes: int) -> Iterator[list[Forecasts]]:
    """Results in order; few chunks are in progress at once, so a long file is never held as a whole."""
    if processes <= 1:
        yield from (_forecast_chunk(chunk, task) for chunk in chunks)
        return
    with process_pool(processes) as workers:
        under_way: deque[Future[list[Forecasts]]] = deque()
        for chunk in chunks:
            under_way.append(workers.submit(_forecast_chunk, chunk, task))
            if len(under_way) > 2 * processes:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


def _forecast_chunk(chunk: Sequence[Case], task: Task) -> list[Forecasts]:
    prepare = make_prepare(task.profile, task.views, context=task.context, reply=JudgeSettings().max_tokens)
    stated = (with_stated_domain(case, task.domain) for case in chunk)
    return [_forecast_all(prepare(case), task) for case in stated if isinstance(case, Case)]


def _forecast_all(prepared: PreparedCase, task: Task) -> Forecasts:
    prompts = CasePrompts(prepared, task.templates)
    found: Forecasts = []
    for strategy in task.strategies:
        try:
            found.append(
                forecast_case(
                    prepared,
                    strategy,
                    task.templates,
                    seed=task.seed,
                    per_character=task.per_character,
                    prompts=prompts,
                )
            )
        except InputError as error:
            found.append(f"case {prepared.case.id!r}: {error}")
    return found
