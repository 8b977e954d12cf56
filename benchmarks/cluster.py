"""`caps select --engine ray` on a cluster of two nodes of this machine: `python benchmarks/cluster.py`.

The same cases with the local engine and with 1, 2 and 4 workers against a stub: cases a second from the
first result to the last, as a ratio to the local engine, and whether results and tokens are equal. Then a
worker is killed in the middle of a run, and then the head of the cluster, after which the cluster is started
again and the command repeated: how often the stub was asked, beside the calls that are needed.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

from speed import PROGRAM
from stub import endpoint

NODES = 2
WORKERS = (1, 2, 4)


class Seen(NamedTuple):
    """What a run printed, and how long it took from its first result to its last."""

    results: dict[str, tuple[Any, ...]]
    seconds: float
    code: int
    error: str


def write_cases(path: Path, count: int) -> None:
    """Cases of eight short programs that differ in a number."""
    with path.open("w") as file:
        for number in range(count):
            texts = [f"```python\n{PROGRAM.format(8 * number + i)}```\n" for i in range(8)]
            row = {"id": f"c{number}", "domain": "code", "problem": "Read a graph.", "candidates": texts}
            file.write(json.dumps(row) + "\n")


def run(words: list[str], strike: Callable[[int], None] | None = None, at: int = 0) -> Seen:
    """Run `caps select`; `strike` gets its process number after `at` results."""
    command = [sys.executable, "-m", "caps", "select", *words]
    results, times = {}, []
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,  # noqa: S603
    ):
        assert process.stdout is not None  # noqa: S101
        for number, line in enumerate(process.stdout, 1):
            times.append(time.perf_counter())
            row = json.loads(line)
            results[row["id"]] = (row["winner"], row["calls"], row["tokens"]["asked"])
            if strike is not None and number == at:
                strike(process.pid)
        code = process.wait()
        errors.seek(0)
        if code and strike is None:
            sys.exit(errors.read())
        return Seen(results, times[-1] - times[0] if times else 0.0, code, errors.read()[-600:])


@contextmanager
def cluster() -> Iterator[str]:
    """A head and further nodes on this machine; yields the address."""
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    share = ["--num-cpus", "2", "--disable-usage-stats", "--object-store-memory", str(200 << 20)]
    said = ray("start", "--head", "--port", str(port), *share)
    address = said.partition("--address='")[2].partition("'")[0]
    try:
        for _ in range(NODES - 1):
            ray("start", "--address", address, *share)
        yield address
    finally:
        ray("stop", "--force")


def ray(*words: str) -> str:
    """Run a command of Ray's; `stop` says of a head that was killed that it failed."""
    command = [str(Path(sys.executable).parent / "ray"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode and words[0] == "start":
        sys.exit(done.stderr)
    return done.stdout + done.stderr


def kill(name: str) -> None:
    """Kill one process whose command has this name in it."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if name.encode() in words and int(folder.name) != os.getpid():
            os.kill(int(folder.name), signal.SIGKILL)
            return
    sys.exit(f"no process {name} to kill")


def asked(url: str) -> int:
    """How many calls the stub has answered."""
    with urlopen(f"{url}/spent") as reply:  # noqa: S310
        calls: int = json.load(reply)["calls"]
    return calls


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--cases", type=int, default=1000)
    given = options.parse_args()
    os.environ["RAY_AUTH_MODE"] = "token"  # of this user's file
    with endpoint() as url, tempfile.TemporaryDirectory() as folder:
        cases = Path(folder) / "cases.jsonl"
        write_cases(cases, given.cases)
        numbers = iter(range(100))

        def words(journal: Path | None = None, address: str = "", workers: int = 1) -> list[str]:
            """The options of a run; each has a journal of its own unless one is named."""
            kept = journal or Path(folder) / f"{next(numbers)}.sqlite"
            engine = (
                ["--engine", "ray", "--ray-address", address, "--ray-workers", f"{workers}"]
                if address
                else []
            )
            return [
                str(cases), "--model", "stub", "--base-url", url, "--max-connections", "64",
                "--journal", str(kept), "--strategy", "caps", "--hard-evidence", "off", "--quiet", "--json",
                *engine,
            ]  # fmt: skip

        before = asked(url)
        local = run(words())
        needed = asked(url) - before
        print(f"load {os.getloadavg()[0]:.1f}; {given.cases} cases, {needed} calls")
        print(f"local             {given.cases / local.seconds:6.1f} cases a second", flush=True)
        with cluster() as address:
            for workers in WORKERS:
                one = run(words(address=address, workers=workers))
                print(
                    f"{workers} workers         {given.cases / one.seconds:6.1f} cases a second, "
                    f"{local.seconds / one.seconds:.2f} of local, "
                    f"results equal: {one.results == local.results}",
                    flush=True,
                )
            before = asked(url)
            struck = run(words(address=address, workers=2), lambda _: kill("ray::Worker"), given.cases // 3)
            print(
                f"a worker killed   exit {struck.code}, results equal: {struck.results == local.results}, "
                f"{asked(url) - before - needed} calls made twice",
                flush=True,
            )
            journal, before = Path(folder) / "head.sqlite", asked(url)
            struck = run(words(journal, address, 2), lambda _: kill("gcs_server"), given.cases // 3)
            last = [line for line in struck.error.splitlines() if line.startswith("caps:")]
            print(
                f"the head killed   exit {struck.code} after {len(struck.results)} results: {last}",
                flush=True,
            )
        with cluster() as address:
            again = run(words(journal, address, 2))
            print(
                f"and run again     exit {again.code}, results equal: {again.results == local.results}, "
                f"{asked(url) - before - needed} calls made twice"
            )


if __name__ == "__main__":
    main()
