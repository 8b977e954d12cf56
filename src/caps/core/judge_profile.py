"""Judge profile: the measured or assumed accuracy and biases of a judge."""

from dataclasses import dataclass

from caps.core.settings import check_settings, setting

_HIGH = "chance that a HIGH verdict on a right and a wrong candidate prefers the right one"
_LOW = "the same of a LOW verdict"
_SURE = "share of decided verdicts that are HIGH"

#: Ratings this far apart are a HIGH verdict: between the weights of LOW (2/9) and HIGH (6/9).
HIGH_WEIGHT = 4 / 9

#: How far the pull of a slot varies between cases once its mean was measured.
MEASURED_SLOT_SPREAD = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeProfile:
    """Accuracy of a judge's verdicts at each evidence level; the defaults describe an average judge.

    Errors repeat: `repeats` is the share that belongs to the candidate, whatever it is compared with and
    however often, `shared` the share that belongs to all candidates with the same answer.
    """

    e1_high: float = setting(0.70, f"E1: {_HIGH}", least=0, most=1)
    e1_low: float = setting(0.58, f"E1: {_LOW}", least=0, most=1)
    e1_sure: float = setting(0.5, f"E1: {_SURE}", least=0, most=1)
    e2_high: float = setting(0.82, f"E2: {_HIGH}", least=0, most=1)
    e2_low: float = setting(0.64, f"E2: {_LOW}", least=0, most=1)
    e2_sure: float = setting(0.6, f"E2: {_SURE}", least=0, most=1)
    first_slot: float = setting(0.5, "share of verdicts for slot A between equals", least=0, most=1)
    repeats: float = setting(0.5, "part of the errors that belongs to a candidate", least=0, most=1)
    shared: float = setting(0.25, "part of the errors that belongs to an answer", least=0, most=1)
    order_errors: float = setting(
        0.2, "part of the errors that belongs to one order of a pair: a redraw repeats it", least=0, most=1
    )
    slot_spread: float = setting(
        0.4,
        "standard deviation of the pull of slot A around first_slot, in spreads of a verdict",
        least=0.01,
        most=3,
    )
    rated: float = setting(
        0.5,
        "chance that of a right and a wrong one the right one is rated higher; 0.5: no ratings",
        least=0,
        most=1,
    )
    rating_spread: float = setting(1.5, "spread of ratings of equally right candidates, in points", least=0.1)

    def __post_init__(self) -> None:
        check_settings(self)
