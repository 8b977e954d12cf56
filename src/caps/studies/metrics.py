"""Metrics of a method on a suite, computed from its results.

Repeats with other seeds are averaged. Intervals (95 %) are over problems, not over repeats of the same ones:
Wilson's for shares, a paired bootstrap for differences and ratios.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, comb
from statistics import fmean
from typing import Any, NamedTuple

from caps.core.types import Level
from caps.costs.closed_form import caps_calls, v1_infer_calls
from caps.costs.ledger import Baseline
from caps.runs.outcomes import recovered_share
from caps.statistics.estimates import (
    brier_score,
    discordant,
    exact_mcnemar,
    expected_calibration_error,
    mean_interval,
    ratio_interval,
    wilson,
)
from caps.studies.results import Result

LEVELS = (Level.PARTIAL, Level.FULL)


class Figure(NamedTuple):
    """A number and its interval, if it has one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Cascade:
    """The settings of a literal cascade that its closed form needs."""

    finalists: int
    dedup: bool


@dataclass(frozen=True)
class MethodResults:
    """The results of one method on one suite, and those it is compared with."""

    results: Sequence[Result]
    reference: Sequence[Result] = ()
    baseline: Sequence[Result] = ()
    cascade: Cascade | None = None
    by_case: Mapping[str, list[Result]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_case", by_case(self.results))

    @property
    def problems(self) -> int:
        """How many different problems were played."""
        return len(self.by_case)

    @cached_property
    def pools(self) -> list[Result]:
        """One result a problem, for what is true of its candidates."""
        return [some[0] for some in self.by_case.values()]

    @cached_property
    def rates(self) -> dict[str, float]:
        """How often each problem was right over the repeats."""
        return {case: fmean(one.right for one in some) for case, some in self.by_case.items()}

    @cached_property
    def grades(self) -> dict[str, float]:
        """The mean grade of the choice of each problem over the repeats, where there are grades."""
        found = {
            case: [one.grade for one in some if one.grade is not None] for case, some in self.by_case.items()
        }
        return {case: fmean(some) for case, some in found.items() if some}


def by_case(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results by problem, in the order given."""
    found: dict[str, list[Result]] = {}
    for one in results:
        found.setdefault(one.case, []).append(one)
    return found


def mean_pair(results: Sequence[Result], level: int) -> float | None:
    """Mean input of a pair at a level; none where none was asked."""
    games = sum(one.pairs[level] for one in results)
    return sum(one.pair_tokens[level] for one in results) / games if games else None


def cascade_cost(one: Result, cascade: Cascade, ratio: float) -> float:
    """Eq. 6 for one problem in units of T_2, and the games of those who were really rescued."""
    entrants = one.clusters if cascade.dedup else one.n
    last = ceil(entrants / 2)
    while last > cascade.finalists:
        last = ceil(last / 2)
    added = comb(last + one.rescued, 2) - comb(last, 2)
    return caps_calls(entrants, cascade.finalists).tokens(ratio) + added


def pass_at_1(sheet: MethodResults) -> Figure | None:
    """Share of problems whose selected candidate is right."""
    return _share(list(sheet.rates.values()))


def mixed(sheet: MethodResults) -> Figure | None:
    """Pass@1 over problems with both right and wrong candidates: only there a choice matters."""
    return pass_at_1(_mixed(sheet))


def mixed_gain(sheet: MethodResults) -> Figure | None:
    """Pass@1 less the baseline's, over problems with both right and wrong candidates."""
    return gain(_mixed(sheet))


def mean_sample(sheet: MethodResults) -> Figure | None:
    """Share of candidates that are right: what an unaided sample scores on average."""
    shares = [pool.rights / pool.n for pool in sheet.pools]
    return Figure(fmean(shares), *mean_interval(shares))


def pass_at_n(sheet: MethodResults) -> Figure | None:
    """Share of problems with some right candidate."""
    return _share([float(pool.rights > 0) for pool in sheet.pools])


def headroom(sheet: MethodResults) -> Figure | None:
    """Pass@N less Pass@1."""
    gaps = [float(some[0].rights > 0) - sheet.rates[case] for case, some in sheet.by_case.items()]
    return Figure(fmean(gaps), *mean_interval(gaps))


def recovery(sheet: MethodResults) -> Figure | None:
    """The share of the possible gain over a random candidate that was reached."""
    chosen, random, possible = pass_at_1(sheet), mean_sample(sheet), pass_at_n(sheet)
    if chosen is None or random is None or possible is None:
        return None
    share = recovered_share(chosen.value, random.value, possible.value)
    return None if share is None else Figure(share)


def one_cluster(sheet: MethodResults) -> Figure | None:
    """Share of problems all of whose candidates have one signature."""
    return _share([float(pool.clusters == 1) for pool in sheet.pools])


def one_label(sheet: MethodResults) -> Figure | None:
    """Share of problems all of whose candidates are right, or all wrong: none can change the outcome."""
    return _share([float(pool.rights in (0, pool.n)) for pool in sheet.pools])


def tokens(sheet: MethodResults) -> Figure | None:
    """Verifier tokens of one run over the suite."""
    return Figure(sum(fmean(sum(one.tokens) for one in some) for some in sheet.by_case.values()))


def right(sheet: MethodResults) -> Figure | None:
    """How many problems are right; repeats of a problem are averaged."""
    return Figure(sum(sheet.rates.values()))


def missed(sheet: MethodResults) -> Figure | None:
    """How many problems have a right candidate that was not chosen."""
    return Figure(sum(1 - sheet.rates[case] for case, some in sheet.by_case.items() if some[0].rights))


def tokens_each(sheet: MethodResults) -> Figure | None:
    """Verifier tokens a problem."""
    return Figure(fmean(sum(result.tokens) for result in sheet.results))


def calls(sheet: MethodResults) -> Figure | None:
    """Judge calls a problem."""
    return Figure(fmean(sum(one.calls) for one in sheet.results))


def token_share(sheet: MethodResults) -> Figure | None:
    """T%: tokens over those of the reference on the same problems; without one, over V1-Infer's baseline."""
    if not sheet.reference:
        return _baseline_share(sheet)
    other = by_case(sheet.reference)
    pairs = [(some, other[case]) for case, some in sheet.by_case.items() if case in other]
    above = [fmean(sum(one.tokens) for one in some) for some, _ in pairs]
    below = [fmean(sum(one.tokens) for one in some) for _, some in pairs]
    if not sum(below):
        return None
    return Figure(sum(above) / sum(below), *(ratio_interval(above, below) or (None, None)))


def _baseline_share(sheet: MethodResults) -> Figure | None:
    baseline, read = Baseline(), sum(sum(one.tokens) for one in sheet.results)
    for one in sheet.results:
        baseline.add(one.v1_characters, one.v1_tokens)
    counted = read or not any(sum(one.calls) for one in sheet.results)
    return Figure(read / baseline.tokens) if counted and baseline.tokens else None


def closed_share(sheet: MethodResults) -> Figure | None:
    """T% by Eq. 6 from the measured clusters, rho and rescues, against 3 N games at full evidence."""
    ratio = rho(sheet)
    if sheet.cascade is None or ratio is None:
        return None
    cost = sum(cascade_cost(one, sheet.cascade, ratio.value) for one in sheet.results)
    return Figure(cost / sum(v1_infer_calls(one.n).full for one in sheet.results))


def rho(sheet: MethodResults) -> Figure | None:
    """Measured T_1 / T_2: mean input of a pair at E1 over that at E2."""
    partial, full = (mean_pair(sheet.results, level) for level in (0, 1))
    return None if not partial or not full else Figure(partial / full)


def accuracy_e1(sheet: MethodResults) -> Figure | None:
    """Per-pair accuracy at E1."""
    return _accuracy(sheet, (0,))


def accuracy_e2(sheet: MethodResults) -> Figure | None:
    """Per-pair accuracy at E2."""
    return _accuracy(sheet, (1,))


def accuracy(sheet: MethodResults) -> Figure | None:
    """Per-pair accuracy over all games played between a right and a wrong candidate."""
    return _accuracy(sheet, (0, 1))


def accuracy_change(sheet: MethodResults) -> Figure | None:
    """Per-pair accuracy less that of the reference; over other pairs, so a hint and no proof."""
    own, other = (
        accuracy(sheet),
        _accuracy(MethodResults(sheet.reference), (0, 1)) if sheet.reference else None,
    )
    return None if own is None or other is None else Figure(own.value - other.value)


def rescue_rate(sheet: MethodResults) -> Figure | None:
    """Share of contests in which someone came back."""
    return _share([fmean(one.rescued > 0 for one in some) for some in sheet.by_case.values()])


def rescued_by_margin(sheet: MethodResults) -> Figure | None:
    """Share of rescues in which the loss was within delta (the margin condition)."""
    return _of_rescues(sheet, lambda one: one.narrow is True)


def rescued_by_rarity(sheet: MethodResults) -> Figure | None:
    """Share of rescues owed to the wider margin of a singleton alone (the rarity condition)."""
    return _of_rescues(sheet, lambda one: one.narrow is False)


def rescued_wins(sheet: MethodResults) -> Figure | None:
    """Share of rescues after which the rescued candidate was chosen."""
    return _of_rescues(sheet, lambda one: one.rescued_wins)


def same_choice(sheet: MethodResults) -> Figure | None:
    """Share of problems on which the very candidate is chosen that the baseline chooses with that seed."""
    other = {(one.case, one.seed): one.winner for one in sheet.baseline}
    alike: dict[str, list[bool]] = {}
    for one in sheet.results:
        if (one.case, one.seed) in other:
            alike.setdefault(one.case, []).append(one.winner == other[one.case, one.seed])
    return _share([fmean(some) for some in alike.values()])


def depth(sheet: MethodResults) -> Figure | None:
    """Rounds that must wait for one another."""
    return Figure(fmean(one.depth for one in sheet.results))


def malformed(sheet: MethodResults) -> Figure | None:
    """Share of calls whose replies could not be read."""
    total = sum(sum(one.calls) for one in sheet.results)
    return Figure(sum(one.malformed for one in sheet.results) / total) if total else None


def grade(sheet: MethodResults) -> Figure | None:
    """Mean grade of the choice, where candidates have grades."""
    return _mean(list(sheet.grades.values()))


def mean_grade(sheet: MethodResults) -> Figure | None:
    """Mean grade of all candidates: what choosing at random scores."""
    return _mean([pool.mean_grade for pool in sheet.pools if pool.mean_grade is not None])


def best_grade(sheet: MethodResults) -> Figure | None:
    """Mean grade of the best candidate: what no choice exceeds."""
    return _mean([pool.best_grade for pool in sheet.pools if pool.best_grade is not None])


def grade_gain(sheet: MethodResults) -> Figure | None:
    """Mean grade of the choice less the baseline's, on the same problems."""
    own, other = sheet.grades, MethodResults(sheet.baseline).grades
    return _mean([value - other[case] for case, value in own.items() if case in other])


def unanswered(sheet: MethodResults) -> Figure | None:
    """Share of asks that were not answered."""
    total = sum(sum(one.calls) for one in sheet.results)
    return Figure(sum(one.unanswered for one in sheet.results) / total) if total else None


def gain(sheet: MethodResults) -> Figure | None:
    """Pass@1 less the baseline's, on the same problems."""
    pairs = _paired(sheet)
    if not pairs:
        return None
    gaps = [own - other for own, other in pairs]
    return Figure(fmean(gaps), *mean_interval(gaps))


def mcnemar(sheet: MethodResults) -> Figure | None:
    """Exact McNemar p against the baseline; over repeats a problem is right if most of them are."""
    pairs = _paired(sheet)
    if not pairs:
        return None
    return Figure(exact_mcnemar(*discordant((own > 0.5, other > 0.5) for own, other in pairs)))


def calibration_error(sheet: MethodResults) -> Figure | None:
    """How far the stated probabilities of its choices are from how often they were right, in ten bins."""
    return _figure(expected_calibration_error(_said(sheet)))


def brier(sheet: MethodResults) -> Figure | None:
    """Mean squared distance of the stated probabilities of its choices from the truth."""
    return _figure(brier_score(_said(sheet)))


def _figure(value: float | None) -> Figure | None:
    return None if value is None else Figure(value)


class Metric(NamedTuple):
    """How a metric is headed, its unit, how it is computed; `of_pool`: alike for all methods."""

    head: str
    unit: str
    compute: Callable[[MethodResults], Figure | None]
    of_pool: bool = False


METRICS = {
    "pass_at_1": Metric("Pass@1", "%", pass_at_1),
    "mixed": Metric("Pass@1, mixed pools", "%", mixed),
    "mixed_gain": Metric("Δ, mixed pools", "points", mixed_gain),
    "mean_sample": Metric("mean sample", "%", mean_sample, of_pool=True),
    "pass_at_n": Metric("Pass@N", "%", pass_at_n, of_pool=True),
    "recovery": Metric("recovery", "%", recovery),
    "headroom": Metric("headroom", "points", headroom),
    "one_cluster": Metric("one cluster", "%", one_cluster, of_pool=True),
    "one_label": Metric("one label", "%", one_label, of_pool=True),
    "right": Metric("right", "count", right),
    "missed": Metric("missed", "count", missed),
    "tokens": Metric("tokens (M)", "M", tokens),
    "tokens_each": Metric("tokens a problem", "count", tokens_each),
    "calls": Metric("calls", "", calls),
    "token_share": Metric("T%", "%", token_share),
    "closed_share": Metric("T% (Eq. 6)", "%", closed_share),
    "rho": Metric("rho", "", rho),
    "accuracy_e1": Metric("accuracy E1", "%", accuracy_e1),
    "accuracy_e2": Metric("accuracy E2", "%", accuracy_e2),
    "accuracy": Metric("accuracy", "%", accuracy),
    "accuracy_change": Metric("accuracy Δ", "points", accuracy_change),
    "rescue_rate": Metric("rescue", "%", rescue_rate),
    "rescued_by_margin": Metric("by margin", "%", rescued_by_margin),
    "rescued_by_rarity": Metric("by rarity", "%", rescued_by_rarity),
    "rescued_wins": Metric("rescued wins", "%", rescued_wins),
    "same_choice": Metric("same choice", "%", same_choice),
    "depth": Metric("rounds", "", depth),
    "malformed": Metric("malformed", "%", malformed),
    "grade": Metric("grade", "grade", grade),
    "mean_grade": Metric("mean grade", "grade", mean_grade, of_pool=True),
    "best_grade": Metric("best grade", "grade", best_grade, of_pool=True),
    "grade_gain": Metric("Δ grade", "grades", grade_gain),
    "unanswered": Metric("unanswered", "%", unanswered),
    "gain": Metric("Δ", "points", gain),
    "mcnemar": Metric("p", "", mcnemar),
    "calibration_error": Metric("ECE", "%", calibration_error),
    "brier": Metric("Brier", "", brier),
}


def summary(sheet: MethodResults) -> dict[str, Any]:
    """The figures of a simulated strategy as plain data; shares are of 1."""
    overall, mixed_right, share = pass_at_1(sheet), mixed(sheet), token_share(sheet)
    accuracies = {str(level): _accuracy(sheet, (at,)) for at, level in enumerate(LEVELS)}
    return {
        "problems": sheet.problems,
        "pass_at_1": None if overall is None else overall.value,
        "pass_at_1_interval": None if overall is None else (overall.low, overall.high),
        "mixed_problems": _mixed(sheet).problems,
        "mixed_pass_at_1": None if mixed_right is None else mixed_right.value,
        "mixed_interval": None if mixed_right is None else (mixed_right.low, mixed_right.high),
        "calls": {str(level): fmean(r.calls[at] for r in sheet.results) for at, level in enumerate(LEVELS)},
        "tokens": {str(level): fmean(r.tokens[at] for r in sheet.results) for at, level in enumerate(LEVELS)},
        "token_share": None if share is None else share.value,
        "depth": fmean(result.depth for result in sheet.results),
        "rescue_rate": fmean(result.rescued > 0 for result in sheet.results),
        "pair_accuracy": {name: figure and figure.value for name, figure in accuracies.items()},
    }


def _of_rescues(sheet: MethodResults, holds: Callable[[Result], bool]) -> Figure | None:
    """The share of contests with a rescue of which something holds, repeats of a problem averaged."""
    rescues = [[holds(one) for one in some if one.rescued] for some in sheet.by_case.values()]
    return _share([fmean(some) for some in rescues if some])


def _share(values: Sequence[float]) -> Figure | None:
    return Figure(fmean(values), *wilson(sum(values), len(values))) if values else None


def _mean(values: Sequence[float]) -> Figure | None:
    return Figure(fmean(values), *mean_interval(values)) if values else None


def _mixed(sheet: MethodResults) -> MethodResults:
    def some(results: Sequence[Result]) -> list[Result]:
        return [one for one in results if 0 < one.rights < one.n]

    return MethodResults(some(sheet.results), some(sheet.reference), some(sheet.baseline), sheet.cascade)


def _said(sheet: MethodResults) -> list[tuple[float, bool]]:
    return [(one.sure, one.right) for one in sheet.results if one.sure is not None]


def _paired(sheet: MethodResults) -> list[tuple[float, float]]:
    other = MethodResults(sheet.baseline).rates
    return [(rate, other[case]) for case, rate in sheet.rates.items() if case in other]


def _accuracy(sheet: MethodResults, levels: Sequence[int]) -> Figure | None:
    told = [sum(one.apart_right[at] for one in some for at in levels) for some in sheet.by_case.values()]
    apart = [float(sum(one.apart[at] for one in some for at in levels)) for some in sheet.by_case.values()]
    if not sum(apart):
        return None
    return Figure(sum(told) / sum(apart), *(ratio_interval(told, apart) or (None, None)))
