"""What follows from a diagnosis: the judge's profile, what strategies may expect of it, and which to use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from caps.core.judging import JudgeProfile
from caps.diagnostics.looks import at
from caps.diagnostics.measured import LEVELS, Measured, measure, profile_of
from caps.diagnostics.suitability import usable
from caps.experiments.advice import CONTESTS, Expected, advise, expectations, has_tests
from caps.experiments.diagnosis import Asked, Subject
from caps.experiments.fitting import fitted
from caps.judges.simulated import JudgeModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """Figures, the profile they make (with the fields that are only assumed), and the strategies compared."""

    measured: Measured
    profile: JudgeProfile
    assumed: tuple[str, ...]
    model: JudgeModel
    options: tuple[Expected, ...]
    chosen: Expected


def measured_of(asked: Asked) -> Measured:
    """The figures of a run."""
    return measure(asked.looks, probabilities=asked.confidence == "logprobs")


def conclude(
    asked: Asked,
    found: Sequence[Subject],
    *,
    seed: int,
    contests: int = CONTESTS,
    report: Callable[[int], object] = abs,
) -> Conclusion:
    """Work everything out; the contests are simulated on all labelled cases, told apart or not."""
    measured = measured_of(asked)
    profile, assumed = profile_of(asked.looks, measured)
    model = fitted(measured)
    options = expectations(
        [one.pool for one in found if one.pool.correct],
        model,
        profile,
        seed=seed,
        scale=_scale(asked, found),
        contests=contests,
        report=report,
    )
    chosen = advise(
        options, usable=usable(measured.levels["E2"].bounds), tested=has_tests(one.case for one in found)
    )
    return Conclusion(
        measured=measured,
        profile=profile,
        assumed=assumed,
        model=model,
        options=tuple(options),
        chosen=chosen,
    )


def _scale(asked: Asked, found: Sequence[Subject]) -> dict[str, float]:
    """Tokens the server counted, against our estimate from characters, by level."""
    overhead = {one.pool.number: one.pool.overhead for one in found}
    scale = {}
    for level in LEVELS:
        looks = at(asked.looks, level)
        reckoned = fmean(overhead[look.case] + sum(look.sizes) for look in looks)
        scale[str(level)] = fmean(look.tokens for look in looks) / reckoned
    return scale
