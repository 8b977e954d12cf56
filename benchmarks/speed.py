"""How fast this version is beside an older one, in pairs that take turns: `python benchmarks/speed.py PART`.

`--old DIR` is a checkout of the older version (`git worktree add DIR COMMIT`); without it, this one is
measured alone. Every figure is the median; seconds are those of the processor, unless they are called wall.

* `engine`: a call with its ruling stored, beside a call of a bare aiohttp loop
* `preparation`: a case of 16 candidates, of mathematics and of code, long and short
* `startup`: `caps --help`, and `caps select` of one case from start to end
* `shards`: cases whose preparation is the work, whole and in shards
* `report`: `caps report` of a run of `posterior` over such cases (`--cases 3000`)
* `profile`: where the processor time of a call goes, by samples of this process
"""

# ruff: noqa: PLC0415  (a process imports the package of the version that it measures)

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import permutations
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

HERE = Path(__file__).parent
NEW = HERE.parent
PROGRAM = '''import sys
from collections import defaultdict, deque

def solve(n, edges, start={0}):
    """Breadth-first search number {0}."""
    graph = defaultdict(list)
    for a, b in edges:
        graph[a].append(b)
        graph[b].append(a)
    seen = {{start}}
    queue = deque([(start, 0)])
    best = 0
    while queue:
        node, depth = queue.popleft()
        best = max(best, depth * {0} % 7)
        for other in graph[node]:
            if other not in seen:
                seen.add(other)
                queue.append((other, depth + 1))
    return best if len(seen) == n else -1

data = sys.stdin.read().split()
n, m = int(data[0]), int(data[1])
print(solve(n, [(int(data[2 + 2 * i]), int(data[3 + 2 * i])) for i in range(m)]))
'''


STEPS = list(permutations(["alpha = 1", "beta = 2", "gamma = 3", "delta = 4"]))[:16]


def code_cases(count: int, *, parsed: bool = False) -> list[Any]:
    """Cases of 16 short programs that differ in a number, or in an order that only parsing finds."""
    from caps import Case
    from caps.core.types import Candidate, Problem

    def text(case: int, place: int) -> str:
        steps = "\n".join(STEPS[place]) + "\n" if parsed else ""
        number = 100 * case + (0 if parsed else place)
        program = steps + PROGRAM.format(number)
        return f"We search from {number}: every edge is seen twice.\n\n```python\n{program}```\n"

    return [
        Case(
            f"{k}",
            Problem.of("Read a graph."),
            tuple(Candidate(text(k, i)) for i in range(16)),
            "code",
        )
        for k in range(count)
    ]


# What runs in a process of its own, with the package of one version


def engine(_: argparse.Namespace) -> dict[str, float]:
    """Microseconds of a call of the engine and of a bare one."""
    from endpoints import endpoint
    from engine import SIZE, bare
    from engine import engine as whole

    from caps.cli.main import spare_collector

    run = asyncio.run
    spare_collector()
    with endpoint() as url:
        run(whole(url, 20, SIZE))
        seconds, calls = run(whole(url, 100, SIZE, clock=time.process_time))
        start = time.process_time()
        run(bare(url, calls))
        theirs = (time.process_time() - start) / calls
    return {"engine, µs a call": seconds / calls * 1e6, "bare loop, µs a call": theirs * 1e6}


def preparation(_: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of a case."""
    from peers.pools import marked_cases

    from caps.session.parts import make_prepare

    prepare, found = make_prepare(), dict[str, float]()
    long = [one.case for one in marked_cases(16)]
    kinds = {
        "mathematics, 16 x 6,000 characters, ms": [one for one in long if one.domain == "math"],
        "code, 16 x 6,000 characters, ms": [one for one in long if one.domain == "code"],
        "code, 16 x 900 characters, ms": code_cases(8),
    }
    for name, cases in kinds.items():
        prepare(cases[0])
        start = time.process_time()
        for case in cases:
            prepare(case)
        found[name] = (time.process_time() - start) / len(cases) * 1e3
    return found


def startup(_: argparse.Namespace) -> dict[str, float]:
    """Seconds of whole commands, the second of them with compiled files in place."""
    from endpoints import endpoint

    found = {}
    with endpoint() as url, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "one.jsonl"
        file.write_text(
            '{"problem": "1+1?", "candidates": ["\\\\boxed{2}", "\\\\boxed{3}"], "domain": "math"}\n'
        )
        select = [
            "select",
            str(file),
            "--model",
            "stub",
            "--base-url",
            url,
            "--no-journal",
            "--hard-evidence",
            "off",
        ]
        for name, words in (("caps --help, s", ["--help"]), ("caps select of one case, s", select)):
            before = _children()
            command = [sys.executable, "-m", "caps", *words]
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603
            found[name] = _children() - before
    return found


def shards(given: argparse.Namespace) -> dict[str, float]:
    """Seconds of `caps select` over cases whose preparation is the work: whole, and in shards.

    Programs that must be parsed take most of a core each; those that differ at first sight take little.
    """
    from endpoints import endpoint

    def play(file: Path, url: str, count: int) -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as folder:
            commands = [
                [
                    sys.executable, "-m", "caps", "select", str(file), "--model", "stub", "--base-url", url,
                    "--strategy", "majority", "--hard-evidence", "off", "--journal",
                    f"{folder}/journal.sqlite", "--out", f"{folder}/run", "--quiet", "--json",
                    "--shard", f"{number}/{count}",
                ]
                for number in range(1, count + 1)
            ]  # fmt: skip
            start, used = time.perf_counter(), _children()
            running = [subprocess.Popen(one, stdout=subprocess.DEVNULL) for one in commands]  # noqa: S603
            for process in running:
                if process.wait():
                    sys.exit("a shard failed")
            return time.perf_counter() - start, _children() - used

    found: dict[str, float] = {}
    with endpoint() as url, tempfile.TemporaryDirectory() as folder:
        for kind, parsed in (("parsed", True), ("different at first sight", False)):
            file = Path(folder) / f"{parsed}.jsonl"
            _write_cases(file, code_cases(given.cases, parsed=parsed))
            (whole, whole_used), (split, split_used) = (play(file, url, count) for count in (1, given.shards))
            found |= {
                f"{kind}: whole, processor s": whole_used,
                f"{kind}: {given.shards} shards, processor s": split_used,
                f"{kind}: throughput of the shards over that of the whole, by the clock": whole / split,
            }
    return found


def _write_cases(file: Path, cases: list[Any]) -> None:
    with file.open("w") as lines:
        for case in cases:
            texts = [f"quality={7 * i % 16}. {one.text}" for i, one in enumerate(case.candidates)]
            row = {"id": case.id, "problem": case.problem.text, "domain": "code", "candidates": texts}
            lines.write(json.dumps(row) + "\n")


def report(given: argparse.Namespace) -> dict[str, float]:
    """Seconds of writing the page of a run, which this version makes first."""
    from endpoints import endpoint

    with endpoint() as url, tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "cases.jsonl", Path(folder) / "run"
        _write_cases(file, code_cases(given.cases))
        select = [
            "select", str(file), "--model", "stub", "--base-url", url, "--strategy", "posterior",
            "--hard-evidence", "off", "--journal", f"{folder}/journal.sqlite", "--out", str(out), "--quiet",
        ]  # fmt: skip
        subprocess.run([sys.executable, "-m", "caps", *select], check=True, capture_output=True)  # noqa: S603
        before = _children()
        subprocess.run([sys.executable, "-m", "caps", "report", str(out)], check=True, capture_output=True)  # noqa: S603
        return {f"caps report of {given.cases:,} cases, s": _children() - before}


def profile(given: argparse.Namespace) -> dict[str, float]:
    """Percent of the processor time of calls, by what it is spent on."""
    from endpoints import endpoint
    from engine import SIZE
    from engine import engine as whole
    from flame import stack_of, write_flame

    from caps.cli.main import spare_collector

    samples: Counter[str] = Counter()
    stacks: Counter[tuple[str, ...]] = Counter()

    def sample(_: int, frame: FrameType | None) -> None:
        frames = []
        while frame is not None:
            frames.append((frame.f_code.co_filename, frame.f_code.co_qualname))
            frame = frame.f_back
        part = _part([" ".join(one) for one in frames])
        samples[part] += 1
        if part != "start and end":
            stacks[stack_of(frames, "BaseEventLoop._run_once")] += 1

    run = asyncio.run
    spare_collector()
    with endpoint() as url:
        run(whole(url, 20, SIZE))
        signal.signal(signal.SIGPROF, sample)
        signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
        run(whole(url, 300, SIZE))
        signal.setitimer(signal.ITIMER_PROF, 0)
    del samples["start and end"]
    if given.svg:
        title = "Processor time of calls against an endpoint that answers at once, journal on"
        write_flame(stacks, given.svg, title)
    return {name: 100 * count / samples.total() for name, count in samples.most_common()}


PARTS = {  # the first whose words are all in one frame of the stack
    "start and end": ("open_session", "benchmarks/engine.py cases", "tempfile"),
    "HTTP: aiohttp and the transports of the loop": (
        "/aiohttp/",
        "/asyncio/selector_events",
        "HttpModel._send",
    ),
    "preparing cases": ("Scheduler.admit",),
    "rendering prompts": ("LlmJudge._request", "LlmJudge.request"),
    "journal: storing, looking up, claims": ("/caps/journal/store", "/caps/journal/database"),
    "keys and digests": ("/caps/journal/records",),
    "reading replies": ("LlmJudge._read", "/caps/models/wire", "HttpModel._read"),
    "strategies and rulings": ("record_ruling",),
    "the rest of the engine": ("/caps/",),
}


def _part(names: list[str]) -> str:
    for part, words in PARTS.items():
        if any(word in name for name in names for word in words):
            return part
    return "the event loop"


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


WORK: Mapping[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "engine": engine,
    "preparation": preparation,
    "startup": startup,
    "shards": shards,
    "report": report,
    "profile": profile,
}


def measured(root: Path, words: list[str], folder: str) -> dict[str, float]:
    """Do the work with the package of one version; its compiled files are kept, as in an installation."""
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    surroundings |= {"PYTHONPATH": str(root / "src"), "PYTHONPYCACHEPREFIX": folder}
    command = [sys.executable, __file__, *words, "--inside"]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("part", choices=list(WORK))
    options.add_argument("--old", type=Path, help="a checkout of an older version")
    options.add_argument("--rounds", type=int, default=5, help="how often all take turns (5)")
    options.add_argument("--cases", type=int, default=400, help="cases of shards and report (400)")
    options.add_argument("--shards", type=int, default=2, help="shards of that part (2)")
    options.add_argument("--svg", type=Path, help="file for the flame graph of the part profile")
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.old and not (given.old / "src" / "caps").is_dir():
        options.error(
            f"--old {given.old}: no checkout of this project; make one with git worktree add DIR COMMIT"
        )
    if given.inside:
        print(json.dumps(WORK[given.part](given)))
        return
    words = [given.part, "--cases", str(given.cases), "--shards", str(given.shards)]
    words += ["--svg", str(given.svg)] if given.svg else []
    versions = {"old": given.old, "new": NEW} if given.old else {"new": NEW}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in versions}
    print(f"load {os.getloadavg()[0]:.1f} before", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.rounds + 1):
            for name, root in versions.items():
                one = measured(root.resolve(), words, folder)
                found[name] += [one] if number else []  # the first round loads and compiles
    for figure in found["new"][0]:
        sides = {name: median(one[figure] for one in found[name] if figure in one) for name in versions}
        both = [
            new[figure] / old[figure]
            for old, new in zip(found.get("old", []), found["new"], strict=False)
            if old.get(figure)
        ]
        shown = "   ".join(f"{name} {value:8.3g}" for name, value in sides.items())
        print(f"{figure:48} {shown}" + (f"   new/old {median(both):.2f}" if both else ""))
    if given.part == "engine":
        for name, rows in found.items():
            ratios = [one["bare loop, µs a call"] / one["engine, µs a call"] for one in rows]
            print(f"{name}: {median(ratios):.2f} of the bare loop ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
