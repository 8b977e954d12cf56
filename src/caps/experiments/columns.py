"""The columns of a table, from left to right."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from caps.experiments.metrics import METRICS
from caps.experiments.results import Result
from caps.experiments.study import Method, Study, Suite, TableSpec

Book: TypeAlias = Mapping[str, Mapping[str, list[Result]]]


@dataclass(frozen=True, slots=True)
class Column:
    """What stands in a column: a metric of a method on a suite, of one stratum or all."""

    head: str
    metric: str
    method: str = ""
    suite: str = ""
    stratum: str | None = None


def columns_of(
    study: Study, spec: TableSpec, suites: list[Suite], methods: list[Method], book: Book
) -> Iterator[Column]:
    """Columns from left to right; what is true of a pool whoever plays stands once."""
    here = Column("", "", methods[0].name, suites[0].name)
    alone = spec.across == "nothing"
    once = [name for name in spec.metrics if alone or (spec.across == "methods" and METRICS[name].of_pool)]
    yield from (replace(here, head=METRICS[name].head, metric=name) for name in once)
    each = [name for name in spec.metrics if name not in once]
    if spec.across == "strata":
        for stratum in [*_strata(book, suites[0].name), None]:
            yield replace(here, head=stratum or "overall", metric=spec.metrics[0], stratum=stratum)
        return
    across = [suite.name for suite in suites] if spec.across == "suites" else [one.name for one in methods]
    for name in across if each else ():
        place = {"suite": name} if spec.across == "suites" else {"method": name}
        for metric in each:
            if _with_itself(study, spec, metric, place.get("method")):
                continue
            head = name if len(each) == 1 else f"{name} {METRICS[metric].head}"
            yield replace(here, head=head, metric=metric, **place)


def _with_itself(study: Study, spec: TableSpec, metric: str, method: str | None) -> bool:
    """Whether a metric would compare a method with itself."""
    against = {"gain": spec.baseline or study.reference, "mcnemar": spec.baseline or study.reference}
    return method is not None and method == {**against, "accuracy_change": study.reference}.get(metric)


def _strata(book: Book, suite: str) -> list[str]:
    """Difficulties in the usual order, then others by name."""
    usual = ("easy", "medium", "hard")
    found = {one.difficulty for some in book.get(suite, {}).values() for one in some if one.difficulty}
    return sorted(found, key=lambda name: (usual.index(name) if name in usual else len(usual), name))
