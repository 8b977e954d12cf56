"""Every strategy on recorded verdicts of real judges: the studies of `studies/recorded`, as tables of a page.

    python benchmarks/real_judges.py --data DIR [--into PAGE]

DIR holds files of pools: `prd_vicuna80.jsonl.gz`, `trec_gpt4o.jsonl.gz`,
`reife_instrusum.jsonl.gz`, `reife_mtbench.jsonl.gz`, `ice_python.jsonl.gz`, `wmt23_ende.jsonl.gz`; a study
whose file is missing is left out. No model is asked, nothing is simulated.
Results are kept in `--keep DIR`: what was played is not played again. Its folder `data` has the cases and the
recorded verdicts (NAME.cases.jsonl, NAME.verdicts.jsonl) that the studies read.

A file of pools has one problem per line, with its candidates and what several judges said of them:

    {"id": "q1", "problem": "…", "candidates": [{"text": "…", "grade": 3}, {"text": "…", "grade": 1}],
     "verdicts": {"gpt-4": [[0, 1, 1], [1, 0, 2]]}, "ratings": {"gpt-4": [3, 1]}}

* `verdicts`: judge -> [shown first, shown second, outcome]; 1: the first wins, 2: the second, 3: a tie. The
  same pair in the same order again is a further draw. `merged` verdicts are made of both orders.
* `ratings`, `scales`: judge -> one rating a candidate, or null; judge -> least and greatest rating, by
  default those of the judge in the file.
* `human`: [a, b, votes for a, votes for b, ties]. A candidate without a `grade` gets its mean share of votes
  over its opponents; a tie counts ½. Without `correct`, the candidates with the best grade are right.

A missing problem or text becomes a placeholder that differs between candidates.
"""

import argparse
import asyncio
import gzip
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from peers.tables import insert

from caps.core.errors import InputError
from caps.judging.recorded import RULE
from caps.reports.study import markdown
from caps.session.resolve import Objects, Resolved, resolve
from caps.statistics.estimates import mean_interval
from caps.studies.bench import Bench
from caps.studies.metrics import MethodResults
from caps.studies.results import Result
from caps.studies.study import Method, Study, Suite, load_study
from caps.studies.suites import shards_of
from caps.studies.tables import Book, make_table, recorded_notes

STUDIES = Path(__file__).parents[1] / "studies" / "recorded"
PAIRS = ("reife_instrusum", "reife_mtbench")  # only some pairs of these pools were judged
AGAINST = ("caps-r", "v1-infer")
Row = dict[str, Any]
OUTCOMES = {1: "A", 2: "B", 3: "TIE"}
OF_JUDGES = ("verdicts", "ratings", "human", "merged", "scales")


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="folder of the files of pools"
    )
    options.add_argument("--into", type=Path, metavar="PAGE", help="put the tables into a page")
    options.add_argument("--keep", type=Path, metavar="DIR", help="folder for results")
    options.add_argument("--only", nargs="*", default=["prd", "trec", "pairs", "ratings"], metavar="STUDY")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        kept = given.keep or Path(temporary)
        data = kept / "data"
        for path in sorted(given.data.glob("*.jsonl.gz")):
            name, rows = path.name.removesuffix(".jsonl.gz"), read(path)
            write(name, list(pairs(rows)) if name in PAIRS else rows, data)
        sections = [f"{RULE} Below each set stands how often."]
        for name in given.only:
            sections += list(measured(STUDIES / f"{name}.toml", data, kept / name))
        page = "\n".join(sections)
    print(page)
    if given.into:
        insert(given.into, "real judges", page)


def pairs(pools: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every pair with a human verdict that all judges compared in both orders, as a pool of its own."""
    for pool in pools:
        for a, b, *votes in pool["human"]:
            made = pair(pool, a, b, votes)
            if all(len(some) == 2 for some in made["verdicts"].values()):
                yield made


def pair(pool: Mapping[str, Any], a: int, b: int, votes: Sequence[int]) -> dict[str, Any]:
    place = {a: 0, b: 1}
    verdicts = {
        judge: [[place[x], place[y], outcome] for x, y, outcome in some if {x, y} == {a, b}]
        for judge, some in pool["verdicts"].items()
    }
    candidates = [pool["candidates"][one] for one in (a, b)]
    kept = {name: pool[name] for name in ("domain", "problem", "source") if name in pool}
    name = f"{pool['id']} {a}-{b}"
    return {"id": name, **kept, "candidates": candidates, "human": [[0, 1, *votes]], "verdicts": verdicts}


def read(path: Path) -> list[Row]:
    """The pools of a file."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


def write(name: str, pools: Sequence[Row], folder: Path) -> None:
    """Write the cases and the verdicts of pools."""
    folder.mkdir(parents=True, exist_ok=True)
    scales = judged_ranges(pools)
    rows = {"cases": map(case, pools), "verdicts": (row for pool in pools for row in answers(pool, scales))}
    for kind, content in rows.items():
        with (folder / f"{name}.{kind}.jsonl").open("w") as sink:
            sink.writelines(json.dumps(row) + "\n" for row in content)


def case(pool: Row) -> Row:
    """The problem and its labelled candidates."""
    votes = vote_shares(pool.get("human", ()))
    candidates = []
    for index, listed in enumerate(pool["candidates"]):
        stated = {field: value for field, value in listed.items() if value is not None}
        text = f"(the text of candidate {index} is not published)"
        candidates.append({"text": text, "grade": votes.get(index), **stated})
    grades = [candidate["grade"] for candidate in candidates]
    if None not in grades:
        candidates = [{"correct": row["grade"] == max(grades), **row} for row in candidates]
    rest = {field: value for field, value in pool.items() if field not in OF_JUDGES}
    return {"problem": "(the problem is not published)", **rest, "candidates": candidates}


def vote_shares(human: Sequence[Sequence[int]]) -> dict[int, float]:
    """The mean share of human votes of each candidate over its opponents."""
    shares = defaultdict(list)
    for a, b, for_a, for_b, ties in human:
        if total := for_a + for_b + ties:
            share = (for_a + ties / 2) / total
            shares[a].append(share)
            shares[b].append(1 - share)
    return {candidate: fmean(some) for candidate, some in shares.items()}


def judged_ranges(pools: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """The least and the greatest rating of each judge."""
    ratings = defaultdict(list)
    for pool in pools:
        for judge, values in pool.get("ratings", {}).items():
            ratings[judge] += [value for value in values if value is not None]
    return {judge: (min(values), max(values)) for judge, values in ratings.items() if values}


def answers(pool: Row, scales: Mapping[str, tuple[float, float]]) -> Iterator[Row]:
    """What the judges said of a pool."""
    for judge, verdicts in pool.get("verdicts", {}).items():
        draws: Counter[tuple[int, int]] = Counter()
        for a, b, outcome in verdicts:
            row: Row = {"case": pool["id"], "judge": judge, "shown": [a, b], "verdict": OUTCOMES[outcome]}
            yield row | {"draw": draws[a, b], "merged": pool.get("merged", False)}
            draws[a, b] += 1
    for judge, values in pool.get("ratings", {}).items():
        low, high = pool.get("scales", {}).get(judge) or scales.get(judge, (1, 10))
        for index, value in enumerate(values):
            if value is not None:
                scaled = {"rating": 5.5} if low == high else {"rating": value, "scale": [low, high]}
                yield {"case": pool["id"], "judge": judge, "shown": [index], **scaled}


def measured(file: Path, data: Path, folder: Path) -> Iterator[str]:
    """Play a study, and its tables; the mean over judges comes first."""
    study = load_study(file, data)

    def resolve_for(suite: Suite, method: Method) -> Resolved:
        settings = {"recorded": str(suite.recorded), "recorded_judge": suite.recorded_judge}
        return resolve(study.judge.with_values(settings), objects=Objects(strategy=method.strategy))

    try:
        shards = shards_of(study, limit=None, resolve_for=resolve_for, skipped=missing)
    except InputError:
        return  # its files were named above
    with Bench(shards, folder) as bench:
        asyncio.run(bench.play_live(shards, limit=None, hear=lambda _: None))
        book = bench.book()
    for failure in bench.failures:
        print(f"failed: {failure}", file=sys.stderr)
    here = [suite.name for suite in study.suites if suite.name in book]
    yield f"\n## {study.title}\n\n{study.about}\n"
    yield from mean_table(study, book, here)
    for spec in study.tables:
        table = make_table(study, spec, book)
        shown = replace(table, notes=())
        yield markdown(shown, simulated=None).replace("## ", "### ", 1)
    counts = [note for note in recorded_notes(study, study.tables[-1], book) if RULE not in note]
    yield "Asks, and how they were answered:\n\n" + "\n".join(f"- {note}" for note in counts) + "\n"


def missing(suite: Suite) -> None:
    print(f"left out: {suite.name} wants {suite.cases}: {suite.get}", file=sys.stderr)


def mean_table(study: Study, book: Book, suites: Sequence[str]) -> Iterator[str]:
    """The mean over judges of the same questions, with paired intervals over questions."""
    groups: dict[frozenset[str], list[str]] = {}
    for suite in suites:
        cases = frozenset(one.case for some in book[suite].values() for one in some)
        groups.setdefault(cases, []).append(suite)
    for names in groups.values():
        shared = [one.name for one in study.methods if all(one.name in book[suite] for suite in names)]
        if len(names) > 1 and len(shared) > 1:
            yield from _mean_rows(study, book, names)


def _mean_rows(study: Study, book: Book, suites: Sequence[str]) -> Iterator[str]:
    methods = [one.name for one in study.methods if all(one.name in book[suite] for suite in suites)]
    values = {name: _mean_by_case([book[suite][name] for suite in suites]) for name in methods}
    graded = _graded(book[suites[0]][methods[0]])
    against = [name for name in AGAINST if name in values] or methods[:1]
    heads = ["strategy", "grade" if graded else "right %", "calls", *(f"less {name}" for name in against)]
    words = {one.partition(" ")[0] for one in suites}
    same = words.pop() if len(words) == 1 else ""
    of = f"{same}: mean" if same else "Mean"
    names = ", ".join(one.removeprefix(same).strip() for one in suites)
    yield f"### {of} over {len(suites)} judges ({names})\n"
    yield "| " + " | ".join(heads) + " |"
    yield "| --- |" + " ---: |" * (len(heads) - 1)
    for name in methods:
        own = values[name]
        calls = fmean(sum(one.calls) for suite in suites for one in book[suite][name])
        cells = [_shown(list(own.values()), graded=graded), f"{calls:.1f}"]
        for other in against:
            gaps = [own[case] - values[other][case] for case in own]
            cells.append("–" if name == other else _shown(gaps, graded=graded, signed=True))
        yield "| " + " | ".join([name, *cells]) + " |"
    yield ""


def _graded(results: Sequence[Result]) -> bool:
    """Whether grades tell more than right and wrong."""
    return any(one.grade is not None and one.n > 2 for one in results)


def _mean_by_case(played: Sequence[Sequence[Result]]) -> dict[str, float]:
    graded = _graded(played[0])
    sheets = [MethodResults(some).grades if graded else MethodResults(some).rates for some in played]
    return {case: fmean(sheet[case] for sheet in sheets) for case in sheets[0]}


def _shown(values: Sequence[float], *, graded: bool, signed: bool = False) -> str:
    sign, scale, digits = "+" if signed else "", 1 if graded else 100, 3 if graded else 1
    mean, (low, high) = fmean(values), mean_interval(values)
    told = [f"{scale * one:{sign}.{digits}f}" for one in (mean, low, high)]
    return f"{told[0]} [{told[1]}, {told[2]}]"


if __name__ == "__main__":
    main()
