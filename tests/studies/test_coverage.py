"""Over hundreds of seeds the intervals hold what they promise: they find the flaws the judge was given."""

from random import Random

import pytest

from caps.core.types import Level
from caps.judging.simulated import JudgeModel
from caps.statistics.judge_errors import accuracy, between_equals, flips, in_first_slot
from support.synthetic import observations_of, truth

SEEDS = 400
JUDGES = {
    "middling, swayed by slot A": JudgeModel(accuracy=0.75, position_bias=0.3),
    "poor, errors last and are shared": JudgeModel(accuracy=0.6, noise=0.2, shared_bias=0.5),
}


@pytest.mark.parametrize("judge", JUDGES.values(), ids=list(JUDGES))
def test_intervals_cover_what_the_judge_was_given(judge):
    wanted = truth(judge, Level.FULL)
    found = {"accuracy": 0, "flips": 0, "first slot": 0}
    for seed in range(SEEDS):
        observations = observations_of(judge, 25, Random(seed), (Level.FULL,))
        found["accuracy"] += accuracy(observations, Level.FULL).contains(wanted.accuracy)
        found["flips"] += flips(observations).contains(wanted.flips)
        found["first slot"] += between_equals(observations, in_first_slot).contains(wanted.first_slot)
    assert all(count / SEEDS >= 0.92 for count in found.values()), found
    assert found["accuracy"] < SEEDS, "an interval that is never wrong is too wide to be of use"
