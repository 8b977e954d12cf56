"""Judge profile: the measured or assumed accuracy and biases of a judge."""

from dataclasses import dataclass

from caps.core.settings import check_settings, setting

_HIGH = "chance that a HIGH verdict on a right and a wrong candidate prefers the right one"
_LOW = "the same of a LOW verdict"

#: Ratings this far apart are a HIGH verdict: between the weights of LOW (2/9) and HIGH (6/9).
HIGH_WEIGHT = 4 / 9


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeProfile:
    """Accuracy of a judge's verdicts at each evidence level; the defaults describe an average judge."""

    e1_high: float = setting(0.70, f"E1: {_HIGH}", least=0, most=1)
    e1_low: float = setting(0.58, f"E1: {_LOW}", least=0, most=1)
    e2_high: float = setting(0.82, f"E2: {_HIGH}", least=0, most=1)
    e2_low: float = setting(0.64, f"E2: {_LOW}", least=0, most=1)
    sure: float = setting(0.6, "share of decided verdicts that are HIGH", least=0, most=1)
    first_slot: float = setting(0.5, "share of verdicts for slot A between equals", least=0, most=1)

    def __post_init__(self) -> None:
        check_settings(self)
