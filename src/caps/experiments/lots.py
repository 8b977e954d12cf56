"""What a study has to play: the cases of each suite, and the digest of each method's making."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from caps.assemble import Setup, templates_for
from caps.core.errors import InputError, SettingError
from caps.core.play import Strategy
from caps.core.settings import nearest, settings_of
from caps.experiments.estimating import estimated
from caps.experiments.measure import Turn
from caps.experiments.recipes import Recipe, recipe
from caps.experiments.results import Unit, digest
from caps.experiments.study import Method, Study, Suite
from caps.experiments.suites import case_digest, suite_cases
from caps.judges.profiles import with_profile

MakeSetup = Callable[[Suite, Method], Setup]


@dataclass(frozen=True, slots=True)
class Lot:
    """A suite with its cases, each a name and a digest (none for made-up ones), and everyone's turns.

    Methods that see the same things share a lot: `recipe` where verdicts are simulated, else `setup`.
    """

    suite: Suite
    cases: tuple[tuple[str, str | None], ...]
    turns: tuple[Turn, ...]
    recipe: Recipe | None = None
    setup: Setup | None = None
    views: tuple[tuple[str, str], ...] = ()

    @property
    def made_up(self) -> bool:
        """Whether there is no file behind it."""
        return self.recipe is not None and self.recipe.count > 0

    def units(self) -> Iterator[Unit]:
        """Everything it plays, in order."""
        for turn in self.turns:
            for name, own in self.cases:
                yield turn.method, turn.seed, name, turn.made_of_case(own)


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


def lots_of(
    study: Study, *, limit: int | None, setup_of: MakeSetup | None, skipped: Callable[[Suite], object]
) -> list[Lot]:
    """Everything to play; suites whose file is not there are reported and left out. No setup: simulated."""
    lots: list[Lot] = []
    for suite in study.suites:
        shared = recipe(suite.simulated, suite.n) if setup_of is None else None
        if shared is not None and shared.count:
            cases: tuple[tuple[str, str | None], ...] = tuple(
                (str(number), None) for number in range(min(shared.count, limit or shared.count))
            )
        elif suite.cases is None or not suite.cases.exists():
            skipped(suite)
            continue
        else:
            cases = tuple((case.id, case_digest(case)) for case in suite_cases(suite, limit))
        lots += _lots(study, suite, cases, setup_of)
    if not lots:
        raise InputError(
            f"{study.path}: none of its suites has a file of cases; make them, or look at it with --simulate"
        )
    return lots


def _lots(
    study: Study, suite: Suite, cases: tuple[tuple[str, str | None], ...], setup_of: MakeSetup | None
) -> Iterator[Lot]:
    """One lot for all methods that see the same."""
    alike: dict[str, list[Method]] = {}
    for method in study.methods:
        alike.setdefault(digest(method.views, method.simulated), []).append(method)
    for methods in alike.values():
        first, views = methods[0], tuple(sorted(methods[0].views.items()))
        if setup_of is None:
            made = recipe({**suite.simulated, **first.simulated}, suite.n)
            told = [_told({**suite.simulated, **first.simulated}, method) for method in methods]
            turns = _turns(study, told, ["simulated", made, views, suite.profile])
            yield Lot(suite, cases, turns, recipe=made, views=views)
        else:
            setup = setup_of(suite, first)
            yield Lot(suite, cases, _turns(study, methods, _identity(setup)), setup=setup, views=views)


def _told(simulated: Mapping[str, Any], method: Method) -> Method:
    """The method with what it is told of a simulated judge; no word of it, no change."""
    if method.stated is None:
        return method
    profile = estimated(recipe({**simulated, **method.stated}).judge)
    return replace(method, strategy=with_profile(method.strategy, profile, method.use))


def _turns(study: Study, methods: list[Method], judge: list[Any]) -> tuple[Turn, ...]:
    return tuple(
        Turn(method.name, method.strategy, seed, digest(_version(), judge, *_described(method.strategy)))
        for method in methods
        for seed in study.seeds
    )


def _described(strategy: Strategy) -> tuple[str, Mapping[str, Any]]:
    kind = type(strategy)
    return f"{kind.__module__}.{kind.__qualname__}", settings_of(strategy)


def _identity(setup: Setup) -> list[Any]:
    """What replies depend on; where the model is served is no part of it, as in the journal."""
    judge = [setup.endpoint.model, setup.judge, setup.confidence, dict(setup.extra)]
    return ["live", *judge, setup.profile, dict(setup.views), templates_for(setup)]


def _version() -> str:
    try:
        return version("caps")
    except PackageNotFoundError:
        return "unknown"
