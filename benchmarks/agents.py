"""Patches and runs of agents: sizes of views, and what findings, a simulated judge and both choose.

    python benchmarks/agents.py                       patches on repositories made here (no judge is called)
    python benchmarks/agents.py --data DIR            also runs and recorded verdicts of that folder

Verdicts are SIMULATED, except for the recorded ones of PRD; findings, views and sizes are real.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, quantiles
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from caps.building import load_templates, make_prepare, make_strategy
from caps.config import RunConfig
from caps.core.contest import Contest
from caps.core.errors import InputError
from caps.core.play import capabilities_of
from caps.core.types import Case, Found, Level, Pairing
from caps.datasets.case_files import parse_row
from caps.datasets.imports import open_cases
from caps.judging.base import PreparedCase
from caps.judging.simulated import PRESETS, SimulatedJudge
from caps.runner import Runner
from caps.studies.planning import CasePrompts
from caps.studies.suites import labels, pool_of
from repositories import Truth, case_row

STRATEGIES = ("caps-r", "posterior", "v1-infer")
FREE = ("majority", "tests-first")
SEEDS = range(10)


async def _found_in(cases: Sequence[Case], repositories: str | None) -> list[Case]:
    runner = Runner(RunConfig(repositories=repositories))
    findings = runner.findings(None)
    if findings is None:
        raise SystemExit("findings are off")
    try:
        applied = [runner.apply_to_case(case) for case in cases]
        return [await findings.find(one) for one in applied if isinstance(one, Case)]
    finally:
        await findings.close()


def share_right(cases: Sequence[Case], name: str, judge: str | None, **settings: str) -> tuple[float, float]:
    """The share of right choices over all seeds, and mean tokens of a case; prepared as a run does."""
    strategy, model = make_strategy(name, settings), PRESETS.get(judge or "")
    prepare = make_prepare(findings=capabilities_of(strategy).counts_votes)
    right = tokens = 0.0
    for place, case in enumerate(cases):
        pool = pool_of(prepare(case), place)
        for seed in SEEDS:
            contest = Contest(strategy, pool.entrants, seed=f"{seed}/{place}")
            if model is None:
                contest.play(lambda _: None)  # type: ignore[arg-type,return-value]
            else:
                contest.play(SimulatedJudge(model, pool.entrants, pool.correct, seed=seed, case=place).answer)
            right += pool.correct[contest.selection.winner if contest.selection else 0]
            tokens += sum(pool.tokens(ask) for turn in contest.transcript for ask in turn.round.asks)
    return right / len(SEEDS) / len(cases), tokens / len(SEEDS) / len(cases)


def print_sizes(cases: Sequence[PreparedCase]) -> None:
    """Sizes of views in tokens (characters / 4), and rho of whole prompts."""
    templates = load_templates()
    for level in (Level.PARTIAL, Level.FULL):
        sizes = sorted(one.sizes[level] for prepared in cases for one in prepared.evidence.entrants)
        cut = quantiles(sizes, n=20)
        spread = f"5% {cut[0]:,.0f}, 95% {cut[18]:,.0f}, most {sizes[-1]:,}"
        print(f"  {level} view: median {cut[9]:,.0f} tokens, {spread}")
    calls: dict[Level, list[int]] = {Level.PARTIAL: [], Level.FULL: []}
    for prepared in cases:
        prompts = CasePrompts(prepared, templates)
        for level, sizes in calls.items():
            ask = Pairing(0, 1, level)
            views = [prompts.view(one.id, level) for one in prepared.evidence.entrants]
            sizes.append(int((prompts.bare(ask) + 2 * mean(views)) / 4))
    rho = mean(a / b for a, b in zip(calls[Level.PARTIAL], calls[Level.FULL], strict=True))
    whole = {level: mean(sizes) for level, sizes in calls.items()}
    tokens = f"{whole[Level.PARTIAL]:,.0f} and {whole[Level.FULL]:,.0f} tokens on average"
    print(f"  prompts: {tokens}; rho {rho:.3f} (mean of cases)")


def print_choices(cases: Sequence[Case], judges: Sequence[str]) -> None:
    """Accuracy of strategies without a judge and with simulated ones, tokens relative to v1-infer."""
    truths = [labels(case) for case in cases]
    base, best = mean(mean(one) for one in truths), mean(any(one) for one in truths)
    print(f"  {len(cases)} cases: mean {base:.3f}, best possible {best:.3f}")
    for name in FREE:
        print(f"  {name:12} without a judge: {share_right(cases, name, None)[0]:.3f}")
    for judge in judges:
        all_tokens = share_right(cases, "v1-infer", judge)[1]
        for name in STRATEGIES:
            right, tokens = share_right(cases, name, judge)
            print(f"  {name:12} simulated judge {judge}: {right:.3f}, T% {100 * tokens / all_tokens:.1f}")
        if any(one.found is not None and one.found.examples for case in cases for one in case.candidates):
            right, tokens = share_right(cases, "caps-r", judge, shortlist="tests")
            share = 100 * tokens / all_tokens
            print(f"  caps-r --skip-failing, simulated judge {judge}: {right:.3f}, T% {share:.1f}")


def without_findings(case: Case) -> Case:
    """The case as if nothing had been found."""
    return replace(case, candidates=tuple(replace(one, found=None) for one in case.candidates))


def agrees(found: Found, truth: Truth) -> bool:
    """Whether what was found about a patch is what it was made to do."""
    works = truth.applies and truth.parses
    return (
        found.parses == works
        and (found.passed == found.examples) == truth.right
        and ("does not apply" in found.note) == (not truth.applies)
        and (not works or found.note.startswith("fixes 1") == truth.fixes)
        and (not works or ("breaks 0" in found.note) == (not truth.breaks))
    )


def measure_patches(count: int, judges: Sequence[str]) -> None:
    """Patches with known effects on repositories with seeded bugs."""
    with TemporaryDirectory() as folder:
        made = [case_row(number, Path(folder)) for number in range(count)]
        cases = [parse_row(json.loads(json.dumps(row)), default_id="") for row, _ in made]
        found = asyncio.run(_found_in(cases, folder))
    pairs = [
        (candidate.found, truth)
        for case, (_, truths) in zip(found, made, strict=True)
        for candidate, truth in zip(case.candidates, truths, strict=True)
    ]
    right = sum(one is not None and agrees(one, truth) for one, truth in pairs)
    seconds = [one.seconds for one, _ in pairs if one is not None and one.seconds is not None]
    print(f"patches: findings agree with the truth in {right} of {len(pairs)} patches of {count} cases")
    print(f"  tests of a patch took {mean(seconds):.2f} s on average")
    print_sizes([make_prepare()(case) for case in found])
    print(" with findings:")
    print_choices(found, judges)
    print(" without findings:")
    print_choices([without_findings(case) for case in found], judges)


def measure_runs(path: Path, judges: Sequence[str]) -> None:
    """Runs of one agent with their true outcomes."""
    read = list(open_cases(str(path)))
    cases = [case for case in read if isinstance(case, Case)]
    wrong = sum(isinstance(case, InputError) for case in read)
    runs = [candidate for case in cases for candidate in case.candidates]
    domains = ", ".join(sorted({one.domain for one in cases}))
    print(f"runs: {len(cases)} cases, {len(runs)} runs, {wrong} errors; domain {domains}")
    found = asyncio.run(_found_in(cases, None))
    ended = [
        (one.found is not None and bool(one.found.parses), bool(one.correct))
        for case in found
        for one in case.candidates
    ]
    for state in (True, False):
        told = [right for finished, right in ended if finished == state]
        print(f"  {'ended' if state else 'did not end'} by itself: {len(told)} runs, {mean(told):.3f} right")
    prepared = [make_prepare(findings=True)(case) for case in found]
    merged = sum(
        len(one.evidence.entrants) - len({e.signature for e in one.evidence.entrants}) for one in prepared
    )
    print(f"  merging: {merged} of {len(runs)} runs are equal to another")
    print_sizes(prepared)
    print(" with findings:")
    print_choices(found, judges)
    print(" without findings:")
    print_choices([without_findings(case) for case in found], judges)


def measure_recorded(path: Path) -> None:
    """Answers with recorded verdicts through the general prompts: sizes, and the verdicts replayed."""
    cases = [case for case in open_cases(str(path)) if isinstance(case, Case)]
    domains = ", ".join(sorted({one.domain for one in cases}))
    print(f"recorded verdicts: {len(cases)} cases of {path.name}, domains {domains}")
    print_sizes([make_prepare()(replace(case, domain="general")) for case in cases])
    for strategy in ("v1-infer", "caps-r", "posterior"):
        config = RunConfig(recorded=str(path), recorded_judge="gpt4", strategy=strategy, domain="general")
        done, calls, missing = asyncio.run(_replayed(Runner(config), cases))
        print(f"  {strategy:10} gpt4's verdicts: {done} cases chosen, {calls} calls, {missing} not recorded")


async def _replayed(runner: Runner, cases: Sequence[Case]) -> tuple[int, int, int]:
    done = calls = missing = 0
    async with runner.session() as session:
        async for outcome in session.run(cases):
            done += outcome.selection is not None
            calls += sum(outcome.ledger.calls.values())
            missing += outcome.ledger.unanswered.total()
    return done, calls, missing


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with pools/ and judgments/recorded/")
    parser.add_argument("--patches", type=int, default=52, help="cases of patches")
    parser.add_argument("--judges", default="80", help="presets of the simulated judge")
    given = parser.parse_args()
    judges = given.judges.split(",")
    if given.data is not None:
        measure_runs(given.data / "pools/terminal_bench_2.1.jsonl.gz", judges)
        measure_recorded(given.data / "judgments/recorded/prd_vicuna80.jsonl.gz")
    if given.patches:
        measure_patches(given.patches, judges)


if __name__ == "__main__":
    main()
