"""Many small cases through `caps select` from end to end: memory, size of the journal, going on.

`python benchmarks/many.py --cases 200000`: each has three short candidates, and a stub answers at once. The
command runs twice on one journal: the second time every reply is known. `--processes N` shares the work.
Memory is that of the command, seen when a tenth, a half and all results were printed.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stub import endpoint


def write_cases(path: Path, count: int) -> None:
    with path.open("w") as file:
        for number in range(count):
            texts = [f"{number}: as shown above, it is \\boxed{{{number + i}}}" for i in range(3)]
            row = {"id": f"c{number}", "domain": "math", "problem": f"What is {number}?", "candidates": texts}
            file.write(json.dumps(row) + "\n")


def memory(process: int) -> int:
    """Megabytes that a process has in memory now."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 2**20


def run(command: list[str], count: int) -> str:
    """Run a command; seconds, those of the processor, and memory as it goes."""
    before, start, marks = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:  # noqa: S603
        assert process.stdout is not None  # noqa: S101
        for seen, _ in enumerate(process.stdout, 1):
            if seen in (count // 10, count // 2, count):
                marks.append(f"{seen:,} {memory(process.pid)} MB")
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    each = f"{used / count * 1e6:.0f} µs a case"
    return (
        f"exit {process.returncode}, wall {wall:.0f} s, processor {used:.0f} s ({each}), {', '.join(marks)}"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--cases", type=int, default=20_000)
    options.add_argument("--processes", type=int, default=1)
    given = options.parse_args()
    with endpoint() as url, tempfile.TemporaryDirectory() as folder:
        cases, journal = Path(folder) / "cases.jsonl", Path(folder) / "journal.sqlite"
        write_cases(cases, given.cases)
        command = [
            sys.executable, "-m", "caps", "select", str(cases), "--model", "stub", "--base-url", url,
            "--journal", str(journal), "--strategy", "caps", "--hard-evidence", "off",
            "--max-connections", "64", "--processes", str(given.processes), "--json",
        ]  # fmt: skip
        print(f"{given.cases:,} cases of 3 candidates; load {os.getloadavg()[0]:.1f} before", flush=True)
        print("all asked:  " + run(command, given.cases), flush=True)
        size = sum(one.stat().st_size for one in Path(folder).glob("journal.sqlite*"))
        print(f"journal:    {size / 2**20:.0f} MB, {size / given.cases:.0f} bytes a case", flush=True)
        print("all known:  " + run(command, given.cases), flush=True)


if __name__ == "__main__":
    main()
