"""The whole job of choosing one of 16, against what people use today; one endpoint, one run, one machine.

    python benchmarks/peers.py              a table on the terminal (about six minutes)
    python benchmarks/peers.py --quick      fewer cases, no second table without latency
    python benchmarks/peers.py --markdown
    python benchmarks/peers.py --json FILE  everything that was measured

Pools, judge and accuracy are SIMULATED (benchmarks/peers/pools.py, answers.py); calls, tokens, seconds,
processor time and memory are measured. Other tools are installed under the user's cache on first use.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from peers.endpoint import Latency, Running, endpoint
from peers.installing import NotInstalledError, interpreter, own_path, version
from peers.pools import Marked, marked_cases
from peers.roster import ROSTER, Peer
from peers.simulated import at_equal_tokens
from peers.tables import Page, accuracy_table, job_table, notes, unhurried_table

HERE = Path(__file__).parent / "peers"
SINGLES = 4
SLOTS = Latency().slots


@dataclass(frozen=True, slots=True)
class Run:
    """What one tool took for some cases."""

    cases: int
    seconds: list[float]
    cpu: float
    memory: float
    right: int
    tally: dict[str, Any]


@dataclass(slots=True)
class Entry:
    """A tool and its runs: cases one at a time, all at once, and all at once without latency."""

    peer: Peer
    version: str = ""
    skipped: str = ""
    single: Run | None = None
    many: Run | None = None
    unhurried: Run | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def run(peer: Peer, python: Path, running: Running, cases: Sequence[Marked], *, single: bool = False) -> Run:
    """Have a driver do its errand and read what the endpoint counted meanwhile."""
    told = [
        {
            "id": one.case.id,
            "domain": one.case.domain,
            "problem": one.case.problem.text,
            "candidates": [candidate.text for candidate in one.case.candidates],
        }
        for one in cases
    ]
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if peer.ours:
        surroundings["PYTHONPATH"] = own_path()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases.json"
        file.write_text(json.dumps(told))
        words = [
            str(python),
            str(HERE / peer.driver),
            running.url,
            str(file),
            "single" if single else "many",
            str(SLOTS),
            *peer.options,
        ]
        done = subprocess.run(  # noqa: S603
            words, env=surroundings, cwd=folder, capture_output=True, text=True, timeout=900, check=False
        )
    if done.returncode:
        raise NotInstalledError(f"it failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    said = json.loads(done.stdout.strip().splitlines()[-1])
    labels = {f"{one.case.id}c{i}": right for one in cases for i, right in enumerate(one.pool.correct)}
    right = sum(labels[mark] for mark in said["picks"].values())
    return Run(len(cases), said["seconds"], said["cpu"], said["memory"], right, running.tally())


def measure(entry: Entry, slow: Running, fast: Running | None, cases: Sequence[Marked]) -> None:
    """All runs of one tool; whatever keeps it from them is noted."""
    peer = entry.peer
    try:
        if peer.ours:
            python = Path(sys.executable)
        else:
            python = interpreter(peer.environment, peer.packages, peer.bare)
            entry.version = version(python, peer.package)
        some = cases[: max(2, int(peer.share * len(cases)))]
        entry.single = run(peer, python, slow, cases[:SINGLES], single=True)
        entry.many = run(peer, python, slow, some)
        if fast is not None:
            entry.unhurried = run(peer, python, fast, some[: max(2, len(some) // 4)])
    except NotInstalledError as reason:
        entry.skipped = str(reason)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--quick", action="store_true", help="40 cases, and no run without latency")
    options.add_argument("--cases", type=int, help="how many cases (200)")
    options.add_argument("--only", nargs="*", default=[], help="parts of names of those to run")
    options.add_argument("--markdown", action="store_true", help="tables for the documentation")
    options.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    given = options.parse_args()
    latency, cases = Latency(), marked_cases(given.cases or (40 if given.quick else 200))
    wanted = [one for one in ROSTER if not given.only or any(word in one.name for word in given.only)]
    entries, busy = [Entry(one) for one in wanted], os.getloadavg()[0]
    with endpoint(len(cases), latency) as slow, endpoint(len(cases), None) as fast:
        for entry in entries:
            print(f"{entry.peer.label} ...", file=sys.stderr, flush=True)
            measure(entry, slow, None if given.quick else fast, cases)
    accuracy = at_equal_tokens(300 if given.quick else 1000)
    page = Page(markdown=given.markdown)
    job_table(page, entries, cases)
    unhurried_table(page, entries)
    accuracy_table(page, accuracy)
    notes(page, entries, cases, latency, busy)
    print(page)
    if given.json:
        told = {"latency": asdict(latency), "tools": [asdict(one) for one in entries], "simulated": accuracy}
        given.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
