"""Panels of judges against their best member: simulated judges, and recorded ones.

    python benchmarks/panels.py [--data DIR] [--into docs/howto/panels.md] [--pools 400]

Simulated: three judges whose errors correlate by .4, on generated pools (those of `caps simulate`). Recorded:
GPT-4, Claude and GPT-3.5 of the PRD set, `prd_vicuna80.jsonl.gz` in DIR (docs/reference/files.md, "Recorded
verdicts"). Each judge is asked alone, and all as a panel (`all`, `cascade`). Profiles and correlations are
measured on other cases than those that are played: on as many pools, or on the other four of five folds.
Intervals are paired over problems, against the best single judge. No model is asked.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean

from peers.tables import insert

from caps.building import make_prepare, make_strategy
from caps.core.contest import Contest
from caps.core.judge_profile import JudgeProfile
from caps.core.panel import Member, Opinion, PanelRule
from caps.core.types import Answer, Ask, Case, Entrant, Level, Pairing, Unanswered, Usage, Verdict
from caps.datasets.imports import open_cases
from caps.judging.recorded import RecordedJudge, reordered
from caps.judging.simulated import SimulatedJudge, judge_of
from caps.statistics.estimates import mean_interval
from caps.statistics.judge_measures import measure, profile_of
from caps.statistics.observations import Observation
from caps.statistics.panels import error_correlation
from caps.studies.diagnosis import Plan, diagnose_with, of_pools, schedule
from caps.studies.panel import PanelVerdict, measure_panel
from caps.studies.simulation import LabelledPool, PoolModel, generated_pools

CORRELATION = 0.4
SIMULATED = {0.70: 1.0, 0.74: 3.0, 0.78: 9.0}  # accuracy: USD per million input tokens
PRD = {"gpt35": 1.0, "claude": 8.0, "gpt4": 30.0}  # USD per million input tokens, about those of 2023
SHUFFLES = 10
FOLDS = 5
SURE = (0.65, 0.75, 0.85)
PROMPT = 400  # tokens of a prompt without candidates

Judge = Callable[[Ask], Answer]
Seen = Mapping[str, Sequence[Observation]]


@dataclass(frozen=True)
class Problem:
    """One problem: its entrants, what each judge says of them, and the value of a choice."""

    name: str
    entrants: tuple[Entrant, ...]
    judges: Mapping[str, Judge]
    value: Callable[[int], float]
    fold: int = 0


@dataclass(frozen=True)
class Way:
    """A way of asking: some judges of a panel, and when a cascade stops (None: all are asked)."""

    title: str
    judges: tuple[str, ...]
    sure: float | None = None
    values: dict[str, list[float]] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    usd: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return fmean(fmean(some) for some in self.values.values())

    def asked(self, rule: PanelRule, ask: Ask, answers: Mapping[str, Answer]) -> list[Opinion]:
        """The opinions that this way asks for."""
        known = {name: one for name, one in answers.items() if not isinstance(one, Unanswered)}
        if self.sure is not None:
            return rule.cascade(ask, known)
        return [Opinion(name, known[name]) for name in self.judges if name in known]


@dataclass(frozen=True)
class Measured:
    """What was measured of the judges on other cases: a rule to combine them, and the profile of a way."""

    seen: Seen
    prices: Mapping[str, float]
    _profiles: dict[str, JudgeProfile] = field(default_factory=dict)

    def rule(self, way: Way) -> PanelRule:
        order = sorted(way.judges, key=self.prices.__getitem__)
        members = tuple(Member(name, self._profile(name, self.seen[name])) for name in order)
        return PanelRule(members, error_correlation(self.seen) or 0.0, way.sure or 1.0)

    def profile(self, way: Way) -> JudgeProfile:
        """The profile of the panel itself, for a strategy that uses one."""
        rule, found = self.rule(way), []
        for together in zip(*(self.seen[name] for name in way.judges), strict=True):
            obs = together[0]
            said = {name: one.verdict for name, one in zip(way.judges, together, strict=True)}
            ask = Pairing(obs.one, obs.other, obs.level)
            verdict = rule.combine(ask, way.asked(rule, ask, said))
            if isinstance(verdict, Verdict):
                found.append(Observation(**{**vars_of(obs), "verdict": verdict}))
        return self._profile(way.title, found)

    def _profile(self, name: str, seen: Sequence[Observation]) -> JudgeProfile:
        if name not in self._profiles:
            self._profiles[name] = profile_of(seen, measure(seen, probabilities=False))[0]
        return self._profiles[name]


def vars_of(obs: Observation) -> dict[str, object]:
    return {name: getattr(obs, name) for name in obs.__dataclass_fields__}


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", type=Path, metavar="DIR", help="folder of the recorded pools")
    options.add_argument("--into", type=Path, metavar="PAGE", help="put the tables into a page")
    options.add_argument("--pools", type=int, default=400, help="simulated problems")
    options.add_argument("--strategies", nargs="*", default=["v1-infer", "posterior"])
    given = options.parse_args()
    sections = simulated(given.pools, given.strategies)
    if given.data is not None:
        sections += recorded(given.data / "prd_vicuna80.jsonl.gz", given.strategies)
    page = "\n".join(sections)
    print(page)
    if given.into:
        insert(given.into, "panels", page)


def simulated(count: int, strategies: Sequence[str]) -> list[str]:
    """Three judges of different accuracy and price, whose errors correlate by .4."""
    common = CORRELATION / judge_of(0.8).lasting
    models = {f"judge {round(100 * one)}": judge_of(one, common=common) for one in SIMULATED}
    prices = dict(zip(models, SIMULATED.values(), strict=True))
    pools = generated_pools(PoolModel(), 2 * count, seed=7)

    def judges(pool: LabelledPool) -> dict[str, Judge]:
        entrants, correct = pool.entrants, pool.correct
        return {
            name: SimulatedJudge(model, entrants, correct, seed=7, case=pool.number, judge=place).answer
            for place, (name, model) in enumerate(models.items())
        }

    plan = Plan(pairs=2 * count, stop=False)
    scheduled = schedule(list(of_pools(pools[:count])), plan)
    known = {subject.pool.number: judges(subject.pool) for subject in scheduled}

    def observed(name: str) -> list[Observation]:
        return diagnose_with(scheduled, plan, lambda pool, ask: known[pool.number][name](ask)).observations

    measured = Measured({name: observed(name) for name in models}, prices)
    problems = [
        Problem(str(pool.number), pool.entrants, judges(pool), partial(label_of, pool))
        for pool in pools[count:]
        if len(set(pool.correct)) > 1
    ]
    found = error_correlation(measured.seen)
    about = (
        f"Simulated: {len(problems)} problems with right and wrong candidates out of {count}, 16 candidates "
        f"each; errors correlate by {CORRELATION} by construction, {found:.2f} measured on {count} other "
        "problems. Right: share of verdicts, or of choices, that are right. Price: input tokens at 1, 3 "
        "and 9 USD a million, relative to the best judge alone."
    )
    title, single = "### Three simulated judges\n", pairs(measured.seen, prices)
    return [title, about, "", *single, *tables(problems, {0: measured}, strategies, 100)]


def label_of(pool: LabelledPool, chosen: int) -> float:
    return float(pool.correct[chosen])


def recorded(path: Path, strategies: Sequence[str]) -> list[str]:
    """GPT-4, Claude and GPT-3.5, in ten random orders of the candidates."""
    cases = [case for case in open_cases(str(path)) if isinstance(case, Case)]
    judges = {name: RecordedJudge.read(str(path), name) for name in PRD}
    seen = [
        {name: observations(i, case, judge) for name, judge in judges.items()} for i, case in enumerate(cases)
    ]
    measured = {
        fold: Measured(_joined(seen, lambda i, fold=fold: i % FOLDS != fold), PRD) for fold in range(FOLDS)
    }
    prepare, problems = make_prepare(), []
    for place, case in enumerate(cases):
        for shuffle in range(SHUFFLES):
            order = list(range(len(case.candidates)))
            Random(f"{case.id}/{shuffle}").shuffle(order)
            mixed = reordered(case, order)
            answers = {name: partial(answer_of, judge, mixed) for name, judge in judges.items()}
            entrants = prepare(mixed).evidence.entrants
            problems.append(Problem(case.id, entrants, answers, partial(grade_of, mixed), place % FOLDS))
    found = error_correlation(_joined(seen, lambda _: True))
    about = (
        f"Recorded: {len(cases)} questions, {SHUFFLES} random orders of five candidates; errors correlate "
        f"by {found:.2f}. Grade: the mean human score of a choice, from 0 to 1. Price: input tokens at 1 "
        "(GPT-3.5), 8 (Claude) and 30 (GPT-4) USD a million, relative to the best judge alone. The judges "
        "recorded no confidence, so every verdict counts as HIGH; partial views are answered with verdicts "
        "on full views."
    )
    title, single = "### Recorded judges (PRD)\n", pairs(_joined(seen, lambda _: True), PRD)
    return [title, about, "", *single, *tables(problems, measured, strategies, 1)]


def _joined(seen: Sequence[Seen], wanted: Callable[[int], bool]) -> Seen:
    return {name: [obs for i, one in enumerate(seen) if wanted(i) for obs in one[name]] for name in PRD}


def answer_of(judge: RecordedJudge, case: Case, ask: Ask) -> Answer:
    return judge.answer(case, ask).answer


def grade_of(case: Case, chosen: int) -> float:
    return case.candidates[chosen].grade or 0.0


def observations(number: int, case: Case, judge: RecordedJudge) -> list[Observation]:
    """Every verdict on two candidates with different grades, seen from the better one."""
    found = []
    grades = {i: one.grade or 0.0 for i, one in enumerate(case.candidates)}
    for a, b in ((a, b) for a in grades for b in grades if grades[a] > grades[b]):
        for first, ask in ((True, Pairing(a, b, Level.FULL)), (False, Pairing(b, a, Level.FULL))):
            verdict = judge.answer(case, ask).answer
            seen = verdict if isinstance(verdict, Verdict) else Verdict(5, 5)
            common = {"case": number, "one": a, "other": b, "sizes": (1, 1), "clusters": (a, b)}
            for level in (Level.PARTIAL, Level.FULL):
                said = seen if first else seen.swapped()
                found.append(Observation(**common, first=first, level=level, verdict=said))
    return found


def pairs(seen: Seen, prices: Mapping[str, float]) -> list[str]:
    """Single verdicts on a right and a wrong candidate, as `caps diagnose` measures a panel."""
    verdicts = [
        PanelVerdict(
            one[0],
            Pairing(one[0].one, one[0].other, one[0].level)
            if one[0].first
            else Pairing(one[0].other, one[0].one, one[0].level),
            {
                name: obs.verdict if obs.first else obs.verdict.swapped()
                for name, obs in zip(seen, one, strict=True)
            },
            {name: Usage(1, 0, usd=price) for name, price in prices.items()},
        )
        for one in zip(*seen.values(), strict=True)
        if one[0].level is Level.FULL
    ]
    members = tuple(Member(name) for name in sorted(prices, key=prices.__getitem__))
    found = measure_panel(verdicts, PanelRule(members, sure=SURE[-1]), "all")
    lines = [f"Single verdicts on full views, {len(verdicts):,} of them:\n"]
    lines += [
        "| judges | right % | less the best judge | calls | price |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for way in found.ways:
        low, high = way.interval
        gap = "–" if way == found.best else f"{100 * way.gain:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
        name = {"all": "panel, all", "cascade": f"panel, cascade, sure at {SURE[-1]:g}"}.get(
            way.name, way.name
        )
        price = (way.usd or 0) / (found.best.usd or 1)
        lines.append(f"| {name} | {100 * way.accuracy:.1f} | {gap} | {way.calls:.2f} | {price:.2f} |")
    return [*lines, ""]


def tables(
    problems: Sequence[Problem], measured: Mapping[int, Measured], strategies: Sequence[str], scale: int
) -> list[str]:
    """Every way of asking by every strategy, with paired differences from the best single judge."""
    names = tuple(measured[0].prices)
    lines = []
    for strategy in strategies:
        alone = [Way(f"{name} alone", (name,)) for name in names]
        ways = [*alone, Way("panel, all", names)]
        ways += [Way(f"panel, cascade, sure at {sure:g}", names, sure) for sure in SURE]
        for way in ways:
            play_all(problems, measured, way, strategy)
        best = max(alone, key=lambda way: way.mean)
        lines += [f"Strategy `{strategy}`:\n"]
        lines += [
            f"| judges | {'right %' if scale == 100 else 'grade'} | less the best judge | calls | price |"
        ]
        lines += ["| --- | ---: | ---: | ---: | ---: |", *(line_of(way, best, scale) for way in ways), ""]
    return lines


def line_of(way: Way, best: Way, scale: int) -> str:
    digits = 1 if scale == 100 else 3
    gaps = [fmean(some) - fmean(best.values[name]) for name, some in way.values.items()]
    low, high = mean_interval(gaps)
    gap = f"{scale * fmean(gaps):+.{digits}f} [{scale * low:+.{digits}f}, {scale * high:+.{digits}f}]"
    cost = fmean(way.usd) / fmean(best.usd)
    shown = "–" if way is best else gap
    return f"| {way.title} | {scale * way.mean:.{digits}f} | {shown} | {fmean(way.calls):.1f} | {cost:.2f} |"


def play_all(problems: Sequence[Problem], measured: Mapping[int, Measured], way: Way, strategy: str) -> None:
    """Play every problem in one way, and add values and costs to it."""
    rules = {fold: one.rule(way) for fold, one in measured.items()}
    profiled = strategy == "posterior"
    players = {
        fold: make_strategy(strategy, None, one.profile(way) if profiled else None)
        for fold, one in measured.items()
    }
    prices = measured[0].prices
    for problem in problems:
        sizes = {one.id: one.sizes for one in problem.entrants}
        contest = Contest(players[problem.fold], problem.entrants, seed=f"1/{problem.name}")
        calls, usd = 0, 0.0
        while contest.pending is not None:
            answers: list[Answer] = []
            for ask in contest.pending.asks:
                rule = rules[problem.fold]
                said = way.asked(rule, ask, {name: problem.judges[name](ask) for name in way.judges})
                tokens = PROMPT + sum(sizes[one][ask.level] for one in ask.entrants)
                calls += len(said)
                usd += sum(prices[one.judge] * tokens for one in said)
                answers.append(rule.combine(ask, said) if said else Unanswered("not recorded"))
            contest.answer(answers)
        if contest.selection is not None:
            way.values.setdefault(problem.name, []).append(problem.value(contest.selection.winner))
            way.calls.append(calls)
            way.usd.append(usd)


if __name__ == "__main__":
    main()
