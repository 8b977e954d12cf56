"""How well running programs tells them apart: clusters that mix right and wrong, and `tests-first` alone.

For each pool of labelled programs: the share of problems with a cluster of both right and wrong programs,
the separating inputs kept, seconds a case, the share of cases whose time ended first, and how often
`tests-first` chooses a right program. No judge is asked. Some labels were made by running programs
differently from `caps` (a function's body without its head), so the programs of mixed clusters are graded
again on the tests of the pool, where it has some: `still mixed` counts what remains. `--against` names the
`src` folder of another version, measured in the same run.

    python -m benchmarks.separating --data DIR [--pools apps,mbpp] [--limit N] [--against OTHER/src]
"""

import argparse
import asyncio
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from caps.core.types import Case
from caps.datasets.case_files import parse_row
from caps.findings.base import Findings
from caps.findings.programs import BehaviourFinder
from caps.grading.code import CodeGrader
from caps.journal.store import Journal
from caps.sandbox.launchers import find_sandbox
from caps.session.parts import make_prepare
from caps.strategies.tests_first import TestsFirst

POOLS = {
    "apps": "pools/apps150_mapcoder",
    "humaneval-mapcoder": "pools/humaneval_mapcoder",
    "humaneval-codegen": "pools/humaneval_codegen16b_n100",
    "mbpp": "pools/mbpp_mapcoder",
    "ice": "judgments/recorded/ice_python",
}
TIME_ENDED = "the time for further inputs ended"  # as findings say it; versions before did not have it
SEEDS = 40  # ties are broken at random
AT_ONCE = 4  # cases, as in a run


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one pool."""

    pool: str
    problems: int
    mixed: float
    still_mixed: float
    split: float
    right: float
    best: float
    kept: float
    cut: float
    seconds: float


def cases_of(path: Path, limit: int | None) -> Iterator[Case]:
    """The labelled cases of a pool; programs given as the body of a function are indented again."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file):
            if limit is not None and number >= limit:
                return
            row: dict[str, Any] = json.loads(line)
            if "tests" not in row:
                row["entry_point"] = re.findall(r"^def (\w+)", row["problem"], re.MULTILINE)[-1]
                for one in row["candidates"]:
                    one["code"] = f"    {one['text']}\n"
            yield parse_row(row, default_id=str(number))


async def find(cases: Sequence[Case], journal: Path, limit: float | None = None) -> tuple[list[Case], float]:
    """The cases with their findings, and the seconds it took; `limit`: of each case, unless the usual."""
    started, free = time.perf_counter(), asyncio.Semaphore(AT_ONCE)
    with Journal.open(journal) as opened:
        finder = BehaviourFinder() if limit is None else BehaviourFinder(seconds=limit)
        findings = Findings({"code": finder}, opened, insist=True)

        async def one(case: Case) -> Case:
            async with free:
                return await findings.find(case)

        try:
            found = await asyncio.gather(*(one(case) for case in cases))
        finally:
            await findings.close()
    return found, time.perf_counter() - started


def measure(pool: str, cases: Sequence[Case], seconds: float) -> Measured:
    """The figures of a pool whose programs were run."""
    prepare = make_prepare(findings=True)
    mixed, still, split, right, kept, cut = [], [], [], [], [], []
    for case in cases:
        entrants, labels = prepare(case).evidence.entrants, [bool(one.correct) for one in case.candidates]
        clusters = defaultdict[str | None, list[int]](list)
        for one in entrants:
            clusters[one.signature].append(one.id)
        impure = [ids for ids in clusters.values() if len({labels[one] for one in ids}) == 2]
        mixed.append(bool(impure))
        still.append(any(len(asyncio.run(grades(case, ids))) == 2 for ids in impure))
        split.append(sum(any(labels[one] for one in ids) for ids in clusters.values()) or 1)
        winners = [_winner(TestsFirst(), entrants, seed) for seed in range(SEEDS)]
        right.append(fmean(labels[one] for one in winners))
        kept.append(max((len(getattr(one.found, "runs", ())) for one in case.candidates), default=0))
        cut.append(any(getattr(one.found, "note", "") == TIME_ENDED for one in case.candidates))
    best = fmean(any(one.correct for one in case.candidates) for case in cases)
    return Measured(
        pool,
        len(cases),
        fmean(mixed),
        fmean(still),
        fmean(split),
        fmean(right),
        best,
        fmean(kept),
        fmean(cut),
        seconds / len(cases),
    )


async def grades(case: Case, ids: Sequence[int]) -> set[bool | None]:
    """The grades of some programs by the tests of their case; the labels where it has none."""
    if "tests" not in case.extra:
        return {case.candidates[one].correct for one in ids}
    grader = CodeGrader(await find_sandbox())
    try:
        return {(await grader.grade(case, case.candidates[one])).correct for one in ids}
    finally:
        await grader.close()


def _winner(strategy: TestsFirst, entrants: Sequence[Any], seed: int) -> int:
    try:
        next(strategy.play(entrants, Random(seed)))
    except StopIteration as ended:
        return ended.value.winner
    raise AssertionError("tests-first asks nothing")


def run(options: argparse.Namespace) -> Iterator[Measured]:
    """Measure each pool with this version."""
    folder = Path(options.journals or tempfile.mkdtemp(prefix="separating-"))
    folder.mkdir(parents=True, exist_ok=True)
    for pool in options.pools.split(","):
        cases = list(cases_of(Path(options.data, f"{POOLS[pool]}.jsonl.gz"), options.limit))
        found, seconds = asyncio.run(find(cases, folder / f"{pool}.sqlite", options.seconds))
        yield measure(pool, found, seconds)


def main() -> None:
    """Print a line a pool; with `--against`, those of the other version first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder with pools/ and judgments/")
    parser.add_argument("--pools", default=",".join(POOLS))
    parser.add_argument("--limit", type=int, help="problems of each pool")
    parser.add_argument("--against", help="the src folder of another version")
    parser.add_argument("--journals", help="keep the findings here; what is there is not run again")
    parser.add_argument("--seconds", type=float, help="limit of a case, for a machine busy with other work")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.against:
        command = [sys.executable, __file__, "--data", options.data, "--pools", options.pools, "--json"]
        command += [] if options.limit is None else ["--limit", str(options.limit)]
        command += [] if options.journals is None else ["--journals", str(Path(options.journals, "before"))]
        environment = {**os.environ, "PYTHONPATH": options.against}
        other = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)  # noqa: S603
        before = [Measured(**json.loads(line)) for line in other.stdout.splitlines()]
        for one in before:
            _print(one, "before")
    for one in run(options):
        if options.json:
            print(json.dumps(asdict(one)), flush=True)
        else:
            _print(one, "after" if options.against else "")


def _print(one: Measured, when: str) -> None:
    parts = (
        f"{one.pool:20} {when:7} {one.problems:4} problems",
        f"mixed {one.mixed:6.1%}, still {one.still_mixed:5.1%}",
        f"clusters with right ones {one.split:4.2f}",
        f"tests-first {one.right:6.1%} (best {one.best:.1%})",
        f"inputs kept {one.kept:4.1f}",
        f"{one.seconds:5.2f} s a case, cut short {one.cut:5.1%}",
    )
    print("  ".join(parts), flush=True)


if __name__ == "__main__":
    main()
