"""What a synthetic judge is worth, measured the way a real one is: from pairs it has judged."""

from functools import lru_cache

from caps.core.judging import JudgeProfile
from caps.diagnostics.measured import measure, profile_of
from caps.experiments.diagnosis import Plan, of_pools, schedule, simulate
from caps.experiments.pools import PoolModel, made_up
from caps.judges.simulated import JudgeModel

PROBLEMS, PAIRS = 200, 800
SEED = 90210  # of problems that nobody is measured on


@lru_cache(maxsize=64)
def estimated(model: JudgeModel, *, pairs: int = PAIRS, seed: int = SEED) -> JudgeProfile:
    """The profile `caps diagnose` would save, from pairs of made-up problems; a function of its arguments."""
    pools = made_up(PoolModel(kind="math", solve_rate=0.45), PROBLEMS, seed)
    plan = Plan(pairs=pairs, stop=False, seed=seed)
    looks = simulate(schedule(list(of_pools(pools)), plan), plan, model).looks
    profile, _ = profile_of(looks, measure(looks, probabilities=False))
    return profile
