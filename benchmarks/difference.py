"""A real judge on pairs of one right and one wrong program: full views against `code-difference`.

    python benchmarks/difference.py --data DIR --model FILE.gguf --keep DIR [--pairs 80] [--threads 2]

From each problem of the labelled pools in DIR, one pair that an input separates: of those that pass equally
many public examples, the shortest; short pairs come first. Both orders, bare verdicts (no reasoning), a tie
counts half. Pairs and replies stay in `--keep`, so that a run continues where it ended. Intervals are
bootstraps over problems.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from statistics import fmean

from caps.building import load_templates, make_prepare
from caps.core.types import Candidate, Case, Found, Level, Pairing, Problem, Run, Verdict, differing_runs
from caps.datasets.imports import open_cases
from caps.findings.base import Findings
from caps.findings.programs import BehaviourFinder
from caps.journal.store import Journal
from caps.judging.llm import JudgeSettings, LevelModel, LlmJudge
from caps.judging.preparation import CasePreparation
from caps.models.embedded import EmbeddedModel
from caps.models.journaled import JournaledModel
from caps.statistics.estimates import mean_interval

POOLS = ("humaneval_codegen16b_n100", "mbpp_mapcoder", "humaneval_mapcoder")
CANDIDATES = 16
LONGEST = 2500  # characters of a problem and two candidates: a call takes seconds on a small machine
VIEWS = {"full": Level.FULL, "code-difference": Level.PARTIAL}


async def made_pairs(pools: Sequence[Path], finder: BehaviourFinder, journal: Path) -> list[Case]:
    """One pair of each problem that has one."""
    with Journal.open(journal) as store:
        findings = Findings({"code": finder}, store)
        rows: list[list[Case]] = []
        for pool in pools:
            rows.append([])
            for case in open_cases(str(pool)):
                if isinstance(case, Case) and (pair := await _pair_of(case, findings)) is not None:
                    rows[-1].append(replace(pair, id=f"{pool.name.partition('.')[0]} {case.id}"))
            print(f"{pool.name}: {len(rows[-1])} pairs", file=sys.stderr, flush=True)
        await findings.close()
    return [one for row in rows for one in row]


async def _pair_of(case: Case, findings: Findings) -> Case | None:
    """The shortest right and wrong program of a case that pass equally many examples and differ somewhere."""
    known = await findings.find(replace(case, candidates=case.candidates[:CANDIDATES]))
    right, wrong = ([one for one in known.candidates if one.correct is label] for label in (True, False))
    found = [
        (len(one.text) + len(other.text), [one, other])
        for one, other in product(right, wrong)
        if (one.found and other.found and one.found.passed == other.found.passed)
        and differing_runs(one.found, other.found)
    ]
    if not found:
        return None
    size, pair = min(found, key=lambda one: one[0])
    if size + len(case.problem.text) > LONGEST:
        return None
    return Case(case.id, case.problem, tuple(pair), "code")


def _size(case: Case) -> int:
    return len(case.problem.text) + sum(len(one.text) for one in case.candidates)


def write_pairs(pairs: Sequence[Case], file: Path) -> None:
    """Keep pairs: the problem, the right and the wrong program, and what they did."""
    with file.open("w") as sink:
        for case in pairs:
            runs = [[asdict(run) for run in one.found.runs] for one in case.candidates if one.found]
            texts = [one.text for one in case.candidates]
            row = {"id": case.id, "problem": case.problem.text, "candidates": texts, "runs": runs}
            sink.write(json.dumps(row) + "\n")


def read_pairs(file: Path) -> Iterator[Case]:
    """Read pairs; the right program comes first."""
    for line in file.open():
        row = json.loads(line)
        found = [Found(runs=tuple(Run(**run) for run in runs)) for runs in row["runs"]]
        candidates = zip(row["candidates"], found, strict=True)
        yield Case(
            row["id"],
            Problem.of(row["problem"]),
            tuple(Candidate(text, found=one) for text, one in candidates),
            "code",
        )


async def measured(
    pairs: Sequence[Case], model: Path, journal: Path, threads: int
) -> dict[str, list[list[float]]]:
    """The share of right verdicts of each pair in each order, by view."""
    found: dict[str, list[list[float]]] = {}
    prepare = make_prepare(differences=True)
    with Journal.open(journal) as store:
        embedded = EmbeddedModel(model, slots=1, context=4096, threads=threads)
        at = LevelModel(JournaledModel(embedded, store), embedded.name)
        judge = LlmJudge(dict.fromkeys(Level, at), load_templates(), JudgeSettings(reply="tags"))
        try:
            for number, case in enumerate(pairs, 1):
                for view, rights in (await _judged(judge, prepare, case)).items():
                    found.setdefault(view, []).append(rights)
                if number % 2 == 0 or number == len(pairs):
                    print(f"\n{number} pairs\n" + "\n".join(figures(found)), flush=True)
        finally:
            await embedded.close()
    return found


async def _judged(judge: LlmJudge, prepare: CasePreparation, case: Case) -> dict[str, list[float]]:
    prepared, rights = prepare(case), {}
    for view, level in VIEWS.items():
        rights[view] = []
        for a, b in ((0, 1), (1, 0)):
            ruling = await judge.rule(prepared, Pairing(a, b, level))
            if not isinstance(ruling.answer, Verdict):
                sys.exit(f"{case.id}: unanswered: {ruling.unanswered}")
            rights[view].append(ruling.answer.outcome if a == 0 else 1 - ruling.answer.outcome)
            tokens = ruling.attempts[-1].usage.prompt
            rights.setdefault(f"{view} tokens", []).append(tokens)
    return rights


def figures(found: dict[str, list[list[float]]]) -> list[str]:
    """Accuracy of each view, where both orders agree, how often slot A is preferred, and the difference."""
    lines, means = [], {}
    for view in VIEWS:
        rows = found[view]
        means[view] = [fmean(row) for row in rows]
        agreed = [row[0] for row in rows if row[0] == row[1] != 0.5]
        first = fmean(x for row in rows for x in (row[0], 1 - row[1]))
        tokens = fmean(x for row in found[f"{view} tokens"] for x in row)
        both = f"; both orders agree in {len(agreed)}, right in {sum(agreed):.0f}"
        lines.append(f"  {view}: {_shown(means[view])}{both}; for slot A {first:.2f}; {tokens:.0f} tokens")
    gaps = [b - a for a, b in zip(means["full"], means["code-difference"], strict=True)]
    return [*lines, f"  code-difference - full: {_shown(gaps, sign='+')}"]


def _shown(values: Sequence[float], sign: str = "") -> str:
    low, high = mean_interval(values)
    return f"{100 * fmean(values):{sign}.1f} [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}] %"


def main() -> None:
    """Make the pairs, once; then ask."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--data", type=Path, required=True, help="folder of labelled pools")
    options.add_argument("--model", type=Path, required=True, help="GGUF file of the judge")
    options.add_argument("--keep", type=Path, required=True, help="folder for pairs, findings and replies")
    options.add_argument("--pairs", type=int, default=80)
    options.add_argument("--threads", type=int, default=2)
    given = options.parse_args()
    given.keep.mkdir(parents=True, exist_ok=True)
    file = given.keep / "pairs.jsonl"
    if not file.exists():
        pools = [given.data / f"{name}.jsonl.gz" for name in POOLS]
        made = asyncio.run(made_pairs(pools, BehaviourFinder(), given.keep / "findings.sqlite"))
        write_pairs(sorted(made, key=_size), file)
    pairs = list(read_pairs(file))[: given.pairs]
    asyncio.run(measured(pairs, given.model, given.keep / "replies.sqlite", given.threads))


if __name__ == "__main__":
    main()
