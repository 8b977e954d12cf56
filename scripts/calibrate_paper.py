"""Fit the simulated judges of the paper's suites, so that simulated games are as accurate as the paper's.

    python scripts/calibrate_paper.py

Writes `accuracy` and `accuracy_partial` of every suite into src/caps/studies/paper/suites.toml. The paper
states accuracies over the games of V1-Infer and of CAPS, which are no random pairs. The accuracy on full
views is fitted to the games of V1-Infer, then the accuracy on partial views to those of CAPS. A suite without
stated accuracies has the mean of the same model's other suites of code, or of math. Where the stated ones are
below one half, V1-Infer's is 75 %, and the difference between the two is the paper's. Pass@1 is not fitted.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import caps.studies
from caps.statistics.estimates import find_crossing
from caps.studies.metrics import MethodResults, accuracy
from caps.studies.play import Step, Task, play_task
from caps.studies.study import Study, Suite, load_study, recipe

FOLDER = Path(caps.studies.__file__).parent / "paper"
ASSUMED = 75.0  # % of V1-Infer's games, where the paper's figure is below one half
LEAST, MOST = 0.5, 0.995  # no judge is worse than a coin

Stated = Mapping[str, tuple[float, float]]


def stated_accuracies(study: Study) -> Stated:
    """The paper's accuracies over the games of V1-Infer and of CAPS, in %, by suite."""
    (table,) = (table for table in study.tables if table.name == "pair-accuracy")
    rows = {name: (row["V1-Infer accuracy"], row["CAPS accuracy"]) for name, row in table.published.items()}
    return {
        name: (full, mixed) if full >= 50 else (ASSUMED, ASSUMED + mixed - full)
        for name, (full, mixed) in rows.items()
    }


def targets(suite: Suite, study: Study, stated: Stated) -> tuple[float, float]:
    """The accuracies to fit: stated ones, or the mean of those of the model's suites of the same kind."""
    if suite.name in stated:
        return stated[suite.name]
    alike = [
        stated[other.name]
        for other in study.suites
        if other.name in stated and (other.model, other.profile) == (suite.model, suite.profile)
    ]
    return fmean(full for full, _ in alike), fmean(mixed for _, mixed in alike)


def simulated(suite: Suite, study: Study, method: str, **judge: float) -> float:
    """The accuracy of a method's games on a suite, in %."""
    made = recipe({**suite.simulated, **judge}, suite.n)
    (strategy,) = (item.strategy for item in study.methods if item.name == method)
    steps = tuple(Step(method, strategy, seed) for seed in study.seeds)
    _, results = play_task(Task(tuple(made.make(range(made.count))), steps, made.judge, made.seed))
    figure = accuracy(MethodResults(results))
    assert figure is not None  # noqa: S101
    return 100 * figure.value


def main() -> None:
    """Fit every suite and rewrite the file."""
    study = load_study(FOLDER / "main.toml")
    stated = stated_accuracies(study)
    path = FOLDER / "suites.toml"
    text = path.read_text()
    for suite in study.suites:
        full_target, mixed_target = targets(suite, study, stated)

        def full_games(share: float, suite: Suite = suite) -> float:
            return simulated(suite, study, "V1-Infer", accuracy=share)

        full = round(find_crossing(full_games, full_target, LEAST, MOST, width=2e-3), 3)

        def mixed_games(share: float, suite: Suite = suite, full: float = full) -> float:
            return simulated(suite, study, "CAPS", accuracy=full, accuracy_partial=share)

        partial = round(find_crossing(mixed_games, mixed_target, LEAST, MOST, width=2e-3), 3)
        print(
            f"{suite.name}: {full} at E2, {partial} at E1; games of V1-Infer {full_games(full):.1f} % "
            f"(wanted {full_target:.1f}), of CAPS {mixed_games(partial):.1f} % ({mixed_target:.1f})"
        )
        head, found, tail = text.partition(f'name = "{suite.name}"\n')
        tail = re.sub(r", accuracy = [\d.]+(, accuracy_partial = [\d.]+)?", f", accuracy = {full}, accuracy_partial = {partial}", tail, count=1)  # fmt: skip  # noqa: E501
        text = head + found + tail
    path.write_text(text)


if __name__ == "__main__":
    main()
