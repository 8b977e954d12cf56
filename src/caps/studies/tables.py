"""Tables of a study: one figure per cell, with the paper's figure beside it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import TypeAlias

import msgspec

from caps.core.settings import settings_of
from caps.judging.recorded import RULE, counted
from caps.strategies.caps import Caps
from caps.studies.metrics import METRICS, Cascade, Figure, MethodResults
from caps.studies.results import Disagreement, Result, disagreements
from caps.studies.study import Method, Study, Suite, TableSpec

Book: TypeAlias = Mapping[str, Mapping[str, list[Result]]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: a metric of a method on one suite or all of the table, of one stratum or all."""

    head: str
    metric: str
    method: str = ""
    suite: str | None = None
    stratum: str | None = None


def columns_of(
    study: Study, spec: TableSpec, suites: list[Suite], methods: list[Method], book: Book
) -> Iterator[Column]:
    """Columns from left to right; metrics of the pool, which do not depend on the method, appear once."""
    here = Column("", "", methods[0].name)
    alone = spec.across == "nothing"
    once = [name for name in spec.metrics if alone or (spec.across == "methods" and METRICS[name].of_pool)]
    yield from (replace(here, head=METRICS[name].head, metric=name) for name in once)
    each = [name for name in spec.metrics if name not in once]
    if spec.across == "strata":
        for stratum in [*_strata(book, suites), None]:
            yield replace(here, head=stratum or "overall", metric=spec.metrics[0], stratum=stratum)
        return
    across = [suite.name for suite in suites] if spec.across == "suites" else [one.name for one in methods]
    for name in across if each else ():
        key = {"suite": name} if spec.across == "suites" else {"method": name}
        for metric in each:
            if _with_itself(study, spec, metric, key.get("method")):
                continue
            head = name if len(each) == 1 else f"{name} {METRICS[metric].head}"
            yield replace(here, head=head, metric=metric, **key)


def _with_itself(study: Study, spec: TableSpec, metric: str, method: str | None) -> bool:
    """Whether a metric would compare a method with itself."""
    other = spec.baseline or study.reference
    against = dict.fromkeys(("gain", "grade_gain", "mixed_gain", "mcnemar", "same_choice"), other)
    return method is not None and method == {**against, "accuracy_change": study.reference}.get(metric)


def _strata(book: Book, suites: list[Suite]) -> list[str]:
    """Difficulties in the usual order, then others by name."""
    usual = ("easy", "medium", "hard")
    played = [results for suite in suites for results in book.get(suite.name, {}).values()]
    found = {result.difficulty for results in played for result in results if result.difficulty}
    return sorted(found, key=lambda name: (usual.index(name) if name in usual else len(usual), name))


HALF_A_DIGIT = 0.05
SIGNIFICANCE = 0.05


def cannot_be(percent: float, problems: int | None, *, repeats: int) -> bool:
    """Whether no whole number of right problems, averaged over repeats, rounds to a published figure."""
    if problems is None:
        return False
    trials = problems * repeats
    nearest = round(percent / 100 * trials)
    around = (nearest - 1, nearest, nearest + 1)
    return all(abs(100 * count / trials - percent) > HALF_A_DIGIT + 1e-9 for count in around)


AVERAGE = "Average"
SMALL = 100  # problems; below that, one problem is more than one point


@dataclass(frozen=True, slots=True)
class Cell:
    """A measured figure, the paper's, and whether the paper's cannot come from whole problems."""

    metric: str
    figure: Figure | None
    published: float | None = None
    impossible: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table ready to be written: heads, rows of cells, and notes."""

    name: str
    title: str
    corner: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    notes: tuple[str, ...] = ()
    cases: tuple[Disagreement, ...] = ()


def make_table(study: Study, spec: TableSpec, book: Book) -> Table:
    """Fill a table from the available results; a missing figure is a dash."""
    suites = _suites_of(study, spec)
    methods = [m for m in study.methods if m.name in (spec.methods or [one.name for one in study.methods])]
    if spec.down == "disagreements":
        return _parted(spec, suites, methods, book)
    columns = list(columns_of(study, spec, suites, methods, book))
    rows = []
    for label, key in _lines(spec, suites, methods):
        cells = [_cell(study, spec, book, label, replace(column, **key)) for column in columns]
        rows.append((label, tuple(cells)))
    columns, rows = _without_empty(columns, rows)
    if spec.average:
        rows.append((AVERAGE, tuple(_average(spec, columns, [cells for _, cells in rows]))))
    heads = tuple(column.head for column in columns)
    notes = (*_size_notes(suites, book), *_mark_notes(rows), *_share_note(study, spec))
    notes = (*notes, *_test_notes(heads, rows), *recorded_notes(study, spec, book), *spec.readings)
    return Table(spec.name, spec.title, spec.down.removesuffix("s"), heads, tuple(rows), notes)


def _lines(
    spec: TableSpec, suites: list[Suite], methods: list[Method]
) -> Iterator[tuple[str, dict[str, str]]]:
    if spec.down == "suites":
        yield from ((suite.name, {"suite": suite.name}) for suite in suites)
    else:
        yield from ((method.name, {"method": method.name}) for method in methods)


def _suites_of(study: Study, spec: TableSpec) -> list[Suite]:
    return [suite for suite in study.suites if not spec.suites or suite.name in spec.suites]


def _cell(study: Study, spec: TableSpec, book: Book, label: str, column: Column) -> Cell:
    covered = [suite for suite in _suites_of(study, spec) if column.suite in (None, suite.name)]
    metric, published = METRICS[column.metric], spec.published.get(label, {}).get(column.head)
    played = _together(book, covered)
    sheet = _sheet(study, spec, played, column.method, column.stratum, of_pool=metric.of_pool)
    alone = _with_itself(study, spec, column.metric, column.method)
    figure = metric.compute(sheet) if sheet.results and not alone else None
    size = covered[0].problems if len(covered) == 1 else None
    impossible = (
        published is not None
        and column.metric == "pass_at_1"
        and column.stratum is None
        and cannot_be(published, size, repeats=3)
    )
    return Cell(column.metric, figure, published, impossible)


def _together(book: Book, suites: list[Suite]) -> Mapping[str, list[Result]]:
    """The results of some suites by method; problems of different suites are different problems."""
    if len(suites) == 1:
        return book.get(suites[0].name, {})
    played: dict[str, list[Result]] = {}
    for suite in suites:
        for method, results in book.get(suite.name, {}).items():
            named = [msgspec.structs.replace(one, case=f"{suite.name}: {one.case}") for one in results]
            played.setdefault(method, []).extend(named)
    return played


def _sheet(
    study: Study,
    spec: TableSpec,
    played: Mapping[str, list[Result]],
    method: str,
    stratum: str | None,
    *,
    of_pool: bool,
) -> MethodResults:
    def of(name: str | None) -> list[Result]:
        found = played.get(name or "", [])
        return [one for one in found if stratum is None or one.difficulty == stratum]

    own = of(method) or (of(next(iter(played), None)) if of_pool else [])
    (strategy,) = (one.strategy for one in study.methods if one.name == method)
    return MethodResults(own, of(study.reference), of(spec.baseline or study.reference), cascade_of(strategy))


def cascade_of(strategy: object) -> Cascade | None:
    """The cascade described by the closed form; None for any other strategy or other settings."""
    settings = settings_of(strategy)
    literal = {"small_pool": "literal", "reduction": "halve", "screening": "E1", "shortlist": "all"}
    if not isinstance(strategy, Caps) or any(settings[name] != value for name, value in literal.items()):
        return None
    return None if strategy.order == "both" else Cascade(strategy.finalists, strategy.dedup == "one")


def _parted(spec: TableSpec, suites: list[Suite], methods: list[Method], book: Book) -> Table:
    """Cases on which two methods disagree, with counts of which is right."""
    first, second = (method.name for method in methods[:2])
    rows, cases = [], []
    for suite in suites:
        played = book.get(suite.name, {})
        found = disagreements(suite.name, played.get(first, []), played.get(second, []))
        ours = sum(one.first.right for one in found)
        counts = (len(played.get(first, [])), ours, len(found) - ours)
        rows.append((suite.name, tuple(Cell("count", Figure(count)) for count in counts)))
        cases += found
    heads = ("contests", f"only {first} right", f"only {second} right")
    return Table(spec.name, spec.title, "suite", heads, tuple(rows), spec.readings, tuple(cases))


def _average(spec: TableSpec, columns: list[Column], rows: list[tuple[Cell, ...]]) -> Iterator[Cell]:
    for index, column in enumerate(columns):
        values = [row[index].figure for row in rows]
        found = [figure.value for figure in values if figure is not None]
        published = spec.published.get(AVERAGE, {}).get(column.head)
        yield Cell(column.metric, Figure(fmean(found)) if found else None, published)


def _without_empty(
    columns: list[Column], rows: list[tuple[str, tuple[Cell, ...]]]
) -> tuple[list[Column], list[tuple[str, tuple[Cell, ...]]]]:
    """Drop columns without any measured or published figure, such as E1 of V1-Infer."""
    kept = [
        i
        for i in range(len(columns))
        if any(cells[i].figure or cells[i].published is not None for _, cells in rows)
    ]
    return [columns[i] for i in kept], [(label, tuple(cells[i] for i in kept)) for label, cells in rows]


def _size_notes(suites: list[Suite], book: Book) -> Iterator[str]:
    """Notes on how many points one problem is worth in small suites."""
    sizes: dict[int, list[str]] = {}
    for suite in suites:
        results = next(iter(book.get(suite.name, {}).values()), [])
        sizes.setdefault(len({one.case for one in results}), []).append(suite.name)
    for size, names in sorted(sizes.items()):
        if 0 < size < SMALL:
            named = ", ".join(names) if len(names) <= 3 else f"{len(names)} suites"
            yield f"1 problem = {100 / size:.1f} points where there are {size} ({named})"


def recorded_notes(study: Study, spec: TableSpec, book: Book) -> Iterator[str]:
    """Notes on how recorded verdicts were used: the rule, and counts for each strategy of a table."""
    asks: dict[str, int] = {}
    substituted: dict[str, Counter[str]] = {}
    silent: dict[str, Counter[str]] = {}
    for suite in study.suites:
        for method in study.methods:
            for one in book.get(suite.name, {}).get(method.name, []):
                shown = (not spec.suites or suite.name in spec.suites) and (
                    not spec.methods or method.name in spec.methods
                )
                if one.substituted is None or not shown:
                    continue
                name = method.name
                asks[name] = asks.get(name, 0) + sum(one.calls)
                substituted.setdefault(name, Counter()).update(one.substituted)
                silent.setdefault(name, Counter()).update(one.silent or {})
    if asks:
        yield f"Recorded verdicts. {RULE}"
    for name, count in asks.items():
        if count:
            yield f"{name}, {counted(substituted[name], silent[name], count)}"


def _share_note(study: Study, spec: TableSpec) -> Iterator[str]:
    if "token_share" in spec.metrics and study.reference:
        yield f"T% is against {study.reference} on the same problems"
    elif "token_share" in spec.metrics:
        yield "T% is against what V1-Infer would read of the same problems, computed"


def _test_notes(heads: Sequence[str], rows: list[tuple[str, tuple[Cell, ...]]]) -> Iterator[str]:
    """Notes on differences of which the interval and the exact test say opposite things."""
    for label, cells in rows:
        for (head, gain), (_, test) in pairwise(zip(heads, cells, strict=True)):
            if (
                (gain.metric, test.metric) != ("gain", "mcnemar")
                or gain.figure is None
                or test.figure is None
            ):
                continue
            low, high, p = gain.figure.low, gain.figure.high, test.figure.value
            if low is None or high is None or (low > 0 or high < 0) == (p < SIGNIFICANCE):
                continue
            outside = "leaves out 0" if low > 0 or high < 0 else "contains 0"
            yield (
                f"{label}, {head}: the interval {outside} although p = {p:.3f}. The interval is a bootstrap "
                "of the mean difference over all repeats; p is an exact test that counts each problem once, "
                "by most of its repeats. Where few problems differ, go by p"
            )


def _mark_notes(rows: list[tuple[str, tuple[Cell, ...]]]) -> Iterator[str]:
    if any(cell.impossible for _, cells in rows for cell in cells):
        yield "† no whole number of problems, averaged over three repeats, gives the paper's figure"
