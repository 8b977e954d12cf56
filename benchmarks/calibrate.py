"""How well `posterior` is calibrated, without labels and after `--calibrate K`; all verdicts SIMULATED.

    python benchmarks/calibrate.py POOL... --findings found.sqlite --accuracy 0.7 0.9

POOL is a file of labelled cases. K random problems of it (at most two thirds) are labelled, as `caps select
--calibrate K` has them, and the others are forecast; that is repeated with other problems. A row shows, over
the forecasts that are not shown as "not judged":

* `judged`: the share of such forecasts; `stated`, `right`: mean probability, and share of right choices;
* `error`: expected calibration error over ten bins; `limit`: what nine in ten perfectly calibrated
  forecasters with the same probabilities and number of problems stay below (both are means over repeats);
  `within`: share of the repeats that stay below theirs;
* `0.9 and more`: how often the choice is right where so much is stated, and in how many forecasts.
"""

import argparse
from collections.abc import Sequence
from random import Random
from statistics import fmean
from typing import NamedTuple

import numpy as np
from beyond import SEEDS, Array, options_of, print_table, read, simulated

from caps.core.contest import Contest
from caps.core.types import Pairing, Selection, Verdict
from caps.judging.simulated import JudgeModel, SimulatedJudge
from caps.statistics.estimates import CALIBRATION_BINS, expected_calibration_error
from caps.strategies.posterior import Posterior
from caps.studies.calibration import Probe, ProbedCase, conclude
from caps.studies.simulation import LabelledPool

HEADS = ("pool", "judge", "labels", "judged", "stated", "right", "error", "limit", "within", "0.9 and more")
MOST_LABELLED = 2 / 3  # of a pool
FORECASTERS = 400  # that are simulated for a limit
SURE = 0.9


class Forecast(NamedTuple):
    """The probability of a choice, whether it is right, and whether verdicts or labels stand behind it."""

    probability: float
    right: bool
    judged: bool


def forecast(pool: LabelledPool, strategy: Posterior, model: JudgeModel) -> Forecast:
    """Play a contest."""
    judge = judge_of(pool, model)
    chosen: Selection = Contest(strategy, pool.entrants, seed=pool.number).play(judge.answer).selection
    judged = bool(chosen.facts["calibrated"] or chosen.facts["verdicts"])
    return Forecast(chosen.facts["probability"], pool.correct[chosen.winner], judged)


def judge_of(pool: LabelledPool, model: JudgeModel) -> SimulatedJudge:
    """The judge that a problem meets."""
    seed = 7 * pool.number % SEEDS
    return SimulatedJudge(model, pool.entrants, pool.correct, seed=seed, case=pool.number)


def calibrated(pools: Sequence[LabelledPool], model: JudgeModel) -> Posterior:
    """`posterior` after `--calibrate` on some problems."""
    strategy = Posterior()
    probed = [probe(pool, strategy, model) for pool in pools]
    return conclude(probed, strategy).inform(strategy, "posterior", {})


def probe(pool: LabelledPool, strategy: Posterior, model: JudgeModel) -> ProbedCase:
    """The verdicts of a calibration on one problem."""
    asker, judge = Probe(strategy, pool.correct), judge_of(pool, model)
    pending = Contest(asker, pool.entrants, seed=pool.number).pending
    answers = [(ask, judge.answer(ask)) for ask in (pending.asks if pending else ())]
    asked = [(ask, one) for ask, one in answers if isinstance(ask, Pairing) and isinstance(one, Verdict)]
    return ProbedCase(asker, pool.entrants, asked, pool.number)


def limit_of(stated: Array) -> float:
    """The calibration error that nine in ten perfectly calibrated forecasters stay below."""
    bins = np.minimum((CALIBRATION_BINS * stated).astype(int), CALIBRATION_BINS - 1)
    outcomes = np.random.default_rng(len(stated)).random((FORECASTERS, len(stated))) < stated
    gaps = [abs((outcomes[:, bins == k] - stated[bins == k]).sum(axis=1)) for k in np.unique(bins)]
    return float(np.quantile(sum(gaps) / len(stated), 0.9))


def row(repeats: Sequence[Sequence[Forecast]]) -> list[str]:
    """The figures of a row; each repeat has the forecasts of other problems."""
    judged = [[one for one in some if one.judged] for some in repeats]
    together = [one for some in judged for one in some]
    if not together:
        return ["0.00", *["–"] * 6]
    pairs = [[(one.probability, float(one.right)) for one in some] for some in judged if some]
    errors = [expected_calibration_error(some) or 0.0 for some in pairs]
    limits = [limit_of(np.array([stated for stated, _ in some])) for some in pairs]
    sure = [one.right for one in together if one.probability >= SURE]
    figures = [
        len(together) / sum(map(len, repeats)),
        fmean(one.probability for one in together),
        fmean(one.right for one in together),
        fmean(errors),
        fmean(limits),
        fmean(error <= limit for error, limit in zip(errors, limits, strict=True)),
    ]
    often = f"{fmean(sure):.2f} of {len(sure)}" if sure else "none"
    return [*(f"{figure:.2f}" for figure in figures), often]


def rows_of(
    pools: Sequence[LabelledPool], model: JudgeModel, given: argparse.Namespace
) -> list[tuple[str, list[str]]]:
    """A row without labels, then one for each number of labels."""
    rows = [("none", row([[forecast(pool, Posterior(), model) for pool in pools]]))]
    for labels in sorted({min(k, int(MOST_LABELLED * len(pools))) for k in given.labels}):
        repeats = []
        for repeat in range(given.repeats):
            mixed = Random(repeat).sample(pools, len(pools))
            strategy = calibrated(mixed[:labels], model)
            repeats.append([forecast(pool, strategy, model) for pool in mixed[labels:]])
        rows.append((str(labels), row(repeats)))
    return rows


def main() -> None:
    """Print the table."""
    options = options_of(__doc__)
    options.add_argument("--labels", type=int, nargs="*", default=[40, 100], metavar="K")
    options.add_argument("--repeats", type=int, default=10, help="other labelled problems each time")
    given = options.parse_args()
    lines = [list(HEADS)]
    for pools in read(given):
        name = f"{pools.name} ({len(pools.merged)})"
        for accuracy in given.accuracy:
            for labels, figures in rows_of(pools.merged, simulated(accuracy, given.shared), given):
                lines.append([name, f"{100 * accuracy:.0f} %", labels, *figures])
    print_table(lines)


if __name__ == "__main__":
    main()
