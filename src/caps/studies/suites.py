"""Suites of a study: cases with N labelled candidates, grouped with the methods to run on them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import islice
from random import Random
from typing import Any

import msgspec

from caps.config import identity
from caps.core.errors import InputError, SettingError
from caps.core.play import Strategy, capabilities_of
from caps.core.settings import nearest, settings_of
from caps.core.types import Candidate, Case
from caps.datasets.case_files import write_case
from caps.datasets.imports import open_cases
from caps.evidence.domains import with_stated_domain
from caps.judging.base import PreparedCase
from caps.judging.profiles import with_profile
from caps.judging.recorded import reordered
from caps.session.parts import make_prepare
from caps.session.resolve import Resolved
from caps.studies.diagnosis import estimated
from caps.studies.play import Step
from caps.studies.results import Unit, digest
from caps.studies.simulation import INSTRUCTION_TOKENS, LabelledPool
from caps.studies.study import Method, Recipe, Study, Suite, recipe


def suite_cases(suite: Suite, limit: int | None) -> Iterator[Case]:
    """The labelled cases of a suite; `InputError` for one that lacks a label or cannot be read."""
    for read in islice(open_cases(str(suite.cases)), limit):
        case = with_stated_domain(read, suite.domain)
        if isinstance(case, InputError):
            raise case
        cut = replace(case, candidates=case.candidates[: suite.n])
        for index, candidate in enumerate(cut.candidates):
            if candidate.correct is None:
                raise InputError(
                    f"{suite.cases}: case {case.id!r}: candidates[{index}].correct: is missing; a study "
                    f"needs every candidate labelled: {how_to_label(candidate)}"
                )
        yield cut


def how_to_label(candidate: Candidate) -> str:
    """How the user can label a candidate."""
    if candidate.passed_public_tests is None:
        return "see caps grade"
    return "its case has public tests only, which give no label; add tests.hidden and see caps grade"


def labels(case: Case) -> tuple[bool, ...]:
    """The labels of a case's candidates."""
    return tuple(bool(candidate.correct) for candidate in case.candidates)


def grades(case: Case) -> tuple[float, ...]:
    """The grades of the candidates; empty if a candidate has none."""
    found = [candidate.grade for candidate in case.candidates]
    return () if None in found else tuple(float(one) for one in found if one is not None)


def shuffled(case: Case, seed: int) -> Case:
    """The case with its candidates in an order that depends on the seed and its id."""
    order = list(range(len(case.candidates)))
    Random(f"shuffle {seed} {case.id}").shuffle(order)
    return reordered(case, order)


def difficulty(case: Case) -> str | None:
    """The stratum a case belongs to."""
    found = case.extra.get("difficulty")
    return None if found is None else str(found)


def case_digest(case: Case) -> str:
    """A digest of a whole case."""
    return digest(write_case(case).decode("utf-8", "replace"))


def pool_of(prepared: PreparedCase, number: int, own_digest: str | None = None) -> LabelledPool:
    """A prepared case as a labelled pool; `own_digest` is that of the case in its file."""
    case = prepared.case
    return LabelledPool(
        number,
        prepared.evidence.entrants,
        labels(case),
        INSTRUCTION_TOKENS + prepared.statement,
        case.id,
        own_digest,
        difficulty(case),
        grades(case),
    )


ResolveFor = Callable[[Suite, Method], Resolved]


@dataclass(frozen=True, slots=True)
class Shard:
    """Part of a study: a suite's cases (name and digest; None for generated ones) and the steps to run.

    Methods with the same views and needs share a shard. It has a `recipe` if verdicts are simulated, else a
    `resolved`. A method whose asks the judge cannot answer has no step.
    """

    suite: Suite
    cases: tuple[tuple[str, str | None], ...]
    steps: tuple[Step, ...]
    recipe: Recipe | None = None
    resolved: Resolved | None = None
    views: tuple[tuple[str, str], ...] = ()

    @property
    def made_up(self) -> bool:
        """Whether its cases are generated."""
        return self.recipe is not None and self.recipe.count > 0

    def units(self) -> Iterator[Unit]:
        """The keys of all its results, in order."""
        for step in self.steps:
            for name, own in self.cases:
                yield step.unit(name, own)

    def pools(self, limit: int | None) -> list[LabelledPool]:
        """The pools of simulated verdicts: generated, or those of its cases."""
        assert self.recipe is not None  # noqa: S101
        if self.made_up:
            return list(self.recipe.make(range(len(self.cases))))
        prepare = make_prepare(self.suite.profile, dict(self.views))
        return [
            pool_of(prepare(case), number, case_digest(case))
            for number, case in enumerate(suite_cases(self.suite, limit))
        ]


def narrowed(study: Study, only: str | None) -> Study:
    """The part of a study that one of its tables needs."""
    if only is None:
        return study
    found = [table for table in study.tables if table.name == only]
    if not found:
        names = [table.name for table in study.tables]
        raise SettingError(f"--only {only!r}: {nearest(only, names)}its tables are {', '.join(names)}")
    (table,) = found
    suites = [suite for suite in study.suites if not table.suites or suite.name in table.suites]
    wanted = {*table.methods, table.baseline, study.reference}
    methods = [method for method in study.methods if not table.methods or method.name in wanted]
    return replace(study, tables=(table,), suites=tuple(suites), methods=tuple(methods))


def with_domain(study: Study, name: str) -> Study:
    """The study with this domain for all cases that state none."""
    return replace(study, suites=tuple(msgspec.structs.replace(suite, domain=name) for suite in study.suites))


def shards_of(
    study: Study,
    *,
    limit: int | None,
    resolve_for: ResolveFor | None,
    skipped: Callable[[Suite], object],
) -> list[Shard]:
    """The shards of a study, simulated without `resolve_for`; suites without a file are skipped.

    A study without any file is an error.
    """
    shards: list[Shard] = []
    for suite in study.suites:
        shared = recipe(suite.simulated, suite.n) if resolve_for is None else None
        if shared is not None and shared.count:
            cases: tuple[tuple[str, str | None], ...] = tuple(
                (str(number), None) for number in range(min(shared.count, limit or shared.count))
            )
        elif suite.cases is None or not suite.cases.exists():
            skipped(suite)
            continue
        else:
            cases = tuple((case.id, case_digest(case)) for case in suite_cases(suite, limit))
        shards += _shards(study, suite, cases, resolve_for)
    if not shards:
        raise InputError(
            f"{study.path}: none of its suites has a file of cases; create the files, or use --simulate"
        )
    return shards


def _shards(
    study: Study, suite: Suite, cases: tuple[tuple[str, str | None], ...], resolve_for: ResolveFor | None
) -> Iterator[Shard]:
    """One shard for all methods with the same views and needs."""
    alike: dict[str, list[Method]] = {}
    for method in study.methods:
        alike.setdefault(digest(method.views, method.simulated, *_needs(method, study)), []).append(method)
    for methods in alike.values():
        first, views = methods[0], tuple(sorted({**suite.views, **methods[0].views}.items()))
        if resolve_for is None:
            simulated = {**suite.simulated, **first.simulated}
            made = recipe(simulated, suite.n)
            profiled = [_with_stated_profile(simulated, method) for method in methods]
            steps = _steps(study, profiled, ["simulated", made, views, suite.profile])
            yield Shard(suite, cases, steps, recipe=made, views=views)
        else:
            resolved = resolve_for(suite, first)
            able = [method for method in methods if not resolved.unanswerable(method.strategy)]
            if not able:
                continue
            resolved = resolved if able[0] is first else resolve_for(suite, able[0])
            steps = _steps(study, able, [*_identity(resolved), *(["shuffled"] if suite.shuffle else [])])
            yield Shard(suite, cases, steps, resolved=resolved, views=views)


def _needs(method: Method, study: Study) -> tuple[bool, ...]:
    """What a run must provide: a judge or not, and merging of equal answers or not."""
    able = capabilities_of(method.strategy)
    return able.asks_judge, able.counts_votes and study.judge.hard_evidence != "off"


def _with_stated_profile(simulated: Mapping[str, Any], method: Method) -> Method:
    """The method with the stated profile of the simulated judge, if there is one."""
    if method.stated is None:
        return method
    profile = estimated(recipe({**simulated, **method.stated}).judge)
    return replace(method, strategy=with_profile(method.strategy, profile, method.use))


def _steps(study: Study, methods: list[Method], judge: list[Any]) -> tuple[Step, ...]:
    return tuple(
        Step(
            method.name,
            method.strategy,
            seed,
            digest(version("caps-select"), judge, *_described(method.strategy)),
        )
        for method in methods
        for seed in study.seeds
    )


def _described(strategy: Strategy) -> tuple[str, Mapping[str, Any]]:
    kind = type(strategy)
    return f"{kind.__module__}.{kind.__qualname__}", settings_of(strategy)


def _identity(resolved: Resolved) -> list[Any]:
    """Everything that replies depend on; the strategy and the addresses of models are not part of it."""
    judges = [
        [identity(spec.config, without=("strategy",)), spec.name, getattr(spec.judge, "digest", "")]
        for spec in (resolved.judges if resolved.asks_judge else ())
    ]
    shared = identity(resolved.config, without=("strategy", "judge"))
    return [judges, shared, resolved.cases.criteria, resolved.templates]
