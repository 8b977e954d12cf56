"""A panel measured by its own verdicts: its judges one by one, all of them, and the cascade.

Every judge is asked everything, so each way of asking follows from the same opinions. Profiles of the judges
come from other cases than the verdicts they weigh (five folds), since a panel weighed by its own verdicts
looks better than it is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from caps.core.judge_profile import JudgeProfile
from caps.core.panel import Mode, Opinion, PanelRule
from caps.core.settings import settings_of
from caps.core.types import Pairing, Unanswered, Usage, Verdict
from caps.judging.base import Ruling
from caps.statistics.estimates import mean_interval
from caps.statistics.judge_measures import measure, profile_of
from caps.statistics.observations import Observation
from caps.statistics.panels import error_correlation

FOLDS = 5


@dataclass(frozen=True, slots=True)
class PanelVerdict:
    """What every judge said of a pair, and what each of them cost; `obs` is the panel's own verdict."""

    obs: Observation
    ask: Pairing
    opinions: Mapping[str, Verdict]
    usage: Mapping[str, Usage]

    def said(self, verdict: Verdict) -> Observation:
        """The observation with another verdict on the same ask."""
        return replace(self.obs, verdict=verdict if self.obs.first else verdict.swapped())


@dataclass(frozen=True, slots=True)
class Way:
    """One way of asking: how often it is right, what an ask costs, and its gain over the best judge."""

    name: str
    accuracy: float
    calls: float
    tokens: float
    usd: float | None
    gain: float = 0.0
    interval: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class PanelMeasures:
    """All ways of asking a panel; `best` is its best judge alone, `observations` those of the chosen way."""

    ways: tuple[Way, ...]
    best: Way
    chosen: Way
    profiles: Mapping[str, JudgeProfile]
    correlation: float | None
    observations: list[Observation]

    @property
    def sentence(self) -> str:
        """Whether the panel beats its best judge, and at what price."""
        low, high = self.chosen.interval
        verdict = (
            "better than its best judge" if low > 0
            else "worse than its best judge" if high < 0
            else "not shown to be better than its best judge"
        )  # fmt: skip
        price = _ratio(self.chosen, self.best)
        return (
            f"{self.chosen.name}: {100 * self.chosen.accuracy:.1f} % right, {self.best.name} alone "
            f"{100 * self.best.accuracy:.1f} %: {100 * self.chosen.gain:+.1f} points [{100 * low:+.1f}, "
            f"{100 * high:+.1f}] at {price:.1f} times its price: {verdict}"
        )

    def kept(self) -> dict[str, Any]:
        """What a profile keeps of a panel: the profiles of its judges, and how their errors correlate."""
        members = {name: settings_of(one) for name, one in self.profiles.items()}
        return {"members": members, **({} if self.correlation is None else {"correlation": self.correlation})}


def panel_verdict(obs: Observation, ask: Pairing, ruling: Ruling) -> PanelVerdict | None:
    """What the judges of a panel said of a pair; None without a panel, or if one of them said nothing."""
    if not ruling.opinions or any(isinstance(one.answer, Unanswered) for one in ruling.opinions):
        return None
    usage: dict[str, Usage] = {}
    for attempt in ruling.attempts:
        usage[attempt.judge] = usage.get(attempt.judge, Usage(0, 0)) + attempt.usage
    opinions = {one.judge: one.answer for one in ruling.opinions if isinstance(one.answer, Verdict)}
    return PanelVerdict(obs, ask, opinions, usage)


def measure_panel(verdicts: Sequence[PanelVerdict], rule: PanelRule, mode: Mode) -> PanelMeasures:
    """Measure the judges of a panel, all of them together and the cascade, on the same asks."""
    names = [one.name for one in rule.members]
    profiles = {name: _profile(verdicts, name) for name in names}
    rules = {fold: _fitted(rule, [one for one in verdicts if _fold(one) != fold]) for fold in range(FOLDS)}

    def everyone(one: PanelVerdict) -> list[Opinion]:
        return [Opinion(name, one.opinions[name]) for name in names if name in one.opinions]

    def cascade(one: PanelVerdict) -> list[Opinion]:
        return rules[_fold(one)].cascade(one.ask, one.opinions)

    alone = {
        name: (lambda one, name=name: [Opinion(name, one.opinions[name])] if name in one.opinions else [])
        for name in names
    }
    asked: dict[str, Callable[[PanelVerdict], list[Opinion]]] = {**alone, "all": everyone, "cascade": cascade}
    seen = {name: _seen(verdicts, rules, opinions) for name, opinions in asked.items()}
    ways = {name: _way(name, verdicts, seen[name], asked[name]) for name in asked}
    best = max((ways[name] for name in names), key=lambda way: way.accuracy)
    compared = {name: _compared(way, seen[name], seen[best.name]) for name, way in ways.items()}
    return PanelMeasures(
        ways=tuple(compared.values()),
        best=compared[best.name],
        chosen=compared[mode],
        profiles=profiles,
        correlation=_rounded(error_correlation(_by_judge(verdicts, names))),
        observations=[one for one in seen[mode] if one is not None],
    )


def _seen(
    verdicts: Sequence[PanelVerdict],
    rules: Mapping[int, PanelRule],
    opinions: Callable[[PanelVerdict], list[Opinion]],
) -> list[Observation | None]:
    """The verdict that a way of asking gives on each ask; None where none of its judges answers."""
    found: list[Observation | None] = []
    for one in verdicts:
        said = opinions(one)
        answer = rules[_fold(one)].combine(one.ask, said) if said else None
        found.append(one.said(answer) if isinstance(answer, Verdict) else None)
    return found


def _way(
    name: str,
    verdicts: Sequence[PanelVerdict],
    seen: Sequence[Observation | None],
    opinions: Callable[[PanelVerdict], list[Opinion]],
) -> Way:
    answered = [one for one, obs in zip(verdicts, seen, strict=True) if obs is not None]
    usages = [[one.usage.get(said.judge, Usage(0, 0)) for said in opinions(one)] for one in answered]
    known = all(usage.usd is not None for some in usages for usage in some)
    return Way(
        name=name,
        accuracy=fmean(obs.outcome for obs in seen if obs is not None) if answered else 0.0,
        calls=fmean(len(some) for some in usages) if usages else 0.0,
        tokens=fmean(sum(usage.prompt + usage.output for usage in some) for some in usages)
        if usages
        else 0.0,
        usd=fmean(sum(usage.usd or 0.0 for usage in some) for some in usages) if usages and known else None,
    )


def _compared(way: Way, seen: Sequence[Observation | None], best: Sequence[Observation | None]) -> Way:
    """The way with its gain over the best judge on the same asks, with an interval over cases."""
    gaps: dict[int, list[float]] = {}
    for one, other in zip(seen, best, strict=True):
        if one is not None and other is not None:
            gaps.setdefault(one.case, []).append(one.outcome - other.outcome)
    means = [fmean(some) for some in gaps.values()]
    if not means:
        return way
    return replace(way, gain=fmean(means), interval=mean_interval(means))


def _fitted(rule: PanelRule, verdicts: Sequence[PanelVerdict]) -> PanelRule:
    """The rule with the profiles and the correlation that some verdicts show."""
    found = error_correlation(_by_judge(verdicts, [one.name for one in rule.members]))
    members = tuple(replace(one, profile=_profile(verdicts, one.name)) for one in rule.members)
    return replace(rule, members=members, correlation=rule.correlation if found is None else found)


def _by_judge(verdicts: Iterable[PanelVerdict], names: Iterable[str]) -> dict[str, list[Observation]]:
    return {
        name: [one.said(one.opinions[name]) for one in verdicts if name in one.opinions] for name in names
    }


def _profile(verdicts: Iterable[PanelVerdict], name: str) -> JudgeProfile:
    some = _by_judge(verdicts, [name])[name]
    return profile_of(some, measure(some, probabilities=False))[0] if some else JudgeProfile()


def _fold(one: PanelVerdict) -> int:
    return one.obs.case % FOLDS


def _ratio(way: Way, other: Way) -> float:
    if way.usd is not None and other.usd:
        return way.usd / other.usd
    return way.tokens / other.tokens if other.tokens else way.calls


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
