"""Over hundreds of seeds the intervals hold what they promise: they find the flaws the judge was given."""

from random import Random
from statistics import fmean

import pytest

from caps.core.types import Level
from caps.judging.simulated import JudgeModel
from caps.statistics.judge_errors import accuracy, between_equals, flips, in_first_slot, outcomes
from caps.statistics.judge_measures import ConfidenceSequence
from diagnostics.synthetic import looks_of, truth

SEEDS = 400
JUDGES = {
    "middling, swayed by slot A": JudgeModel(accuracy=0.75, position_bias=0.3),
    "poor, errors last and are shared": JudgeModel(accuracy=0.6, noise=0.2, shared_bias=0.5),
}


def watched(values, wanted):
    """Whether the interval holds the truth at every look, so at any stopping time too; and its width at the end."""
    sequence, right = ConfidenceSequence(0.05, cells=100), True
    low, high = sequence.interval
    for value in values:
        sequence.observe(value)
        low, high = sequence.interval
        right = right and low <= wanted <= high
    return right, high - low


@pytest.mark.parametrize("judge", JUDGES.values(), ids=list(JUDGES))
def test_intervals_cover_what_the_judge_was_given(judge):
    wanted = truth(judge, Level.FULL)
    found = {"accuracy": 0, "flips": 0, "first slot": 0, "at every look": 0}
    for seed in range(SEEDS):
        looks = looks_of(judge, 25, Random(seed), (Level.FULL,))
        found["accuracy"] += accuracy(looks, Level.FULL).contains(wanted.accuracy)
        found["flips"] += flips(looks).contains(wanted.flips)
        found["first slot"] += between_equals(looks, in_first_slot).contains(wanted.first_slot)
        found["at every look"] += watched(outcomes(looks, Level.FULL), wanted.accuracy)[0]
    assert all(count / SEEDS >= 0.92 for count in found.values()), found
    assert found["accuracy"] < SEEDS, "an interval that is never wrong is too wide to be of use"


def test_the_sequence_is_right_for_plain_coins_and_narrows():
    found = []
    for seed in range(200):
        rng = Random(seed)
        found.append(watched([float(rng.random() < 0.7) for _ in range(100)], 0.7))
    assert sum(right for right, _ in found) / len(found) >= 0.95
    assert fmean(width for _, width in found) < 0.33
