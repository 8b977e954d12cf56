"""A journal of a million rulings: building it, opening it, going on with it, reporting on it, keeping house.

Cases are really selected, by a judge inside the process; the rest of the million is appended beside them, the
same way. `python benchmarks/million.py [--rows 1000000] [--cases 10000]`. Seconds on the clock depend on what
else the machine does; beside them stand those of the processor.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from caps.journal.records import Reply
from caps.journal.store import Journal
from caps.models.base import Completion, ConnectOptions, Request, estimate_usage

CAPS = Path(sys.executable).with_name("caps")
CHARACTERS = 1600  # of a reply: the 400 tokens that `caps plan` reckons with
APPENDERS = 512
STEP = 100_000
WORDS = ("The first solution handles the empty list; the second does not. " * 26)[:CHARACTERS]
VERDICT = f"{WORDS}\n<winner>A</winner>\n<confidence>HIGH</confidence>"


class Prompt:
    """A judge that prefers slot A at once."""

    connections = 64

    async def complete(self, request: Request) -> Completion:
        return Completion(VERDICT, "stop", estimate_usage(request.messages, VERDICT), model=request.model)

    async def close(self) -> None:
        pass


def connect(_: ConnectOptions) -> Prompt:
    """For `--base-url million:connect`."""
    return Prompt()


def write_cases(path: Path, count: int) -> None:
    with path.open("w") as file:
        for number in range(count):
            texts = [f"{number} {i} " + "because of this, " * 12 + f"\\boxed{{{i}}}" for i in range(16)]
            row = {"id": str(number), "domain": "math", "problem": "What is it?", "candidates": texts}
            file.write(json.dumps(row) + "\n")


async def fill(journal: Journal, rows: int) -> None:
    left = iter(range(rows))

    async def appender() -> None:
        for _ in left:
            key, digest = f"{random.getrandbits(256):064x}", f"{random.getrandbits(256):064x}"
            reply = Reply(key, 0.0, "other", "other", "pairwise-math-e2.txt", digest, "stop", VERDICT)
            await journal.append(reply)

    await asyncio.gather(*(appender() for _ in range(APPENDERS)))


@contextmanager
def clocked(label: str) -> Iterator[list[str]]:
    """Print how long something took; what is put into the list comes behind."""
    words: list[str] = []
    before, cpu = time.perf_counter(), time.process_time()
    yield words
    tell(label, time.perf_counter() - before, time.process_time() - cpu, "; ".join(words))


def tell(label: str, wall: float, cpu: float, more: str = "") -> None:
    print(f"{label:42} {wall:8.2f} s {cpu:8.2f} s CPU  {more}", flush=True)


def caps(label: str, *words: str) -> float:
    """Run a command; its seconds of the processor."""
    started = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    process = subprocess.Popen([str(CAPS), *words], stdout=subprocess.DEVNULL, env=environment)  # noqa: S603
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (words, process.returncode)  # noqa: S101
    cpu = used.ru_utime + used.ru_stime
    tell(label, time.perf_counter() - started, cpu)
    return cpu


def build(path: Path, rows: int) -> None:
    with Journal.open(path) as journal:
        missing = rows - journal.stats().replies
        while missing > 0:
            count = min(STEP, missing)
            missing -= count
            before = time.perf_counter()
            with clocked(f"appending, {missing:,} to go") as words:
                asyncio.run(fill(journal, count))
                words.append(f"{count / (time.perf_counter() - before):,.0f} a second")


def look_up(path: Path, count: int) -> None:
    with clocked("opening") as words:
        journal = Journal.open(path)
        words.append(f"{path.stat().st_size / 1e6:,.0f} MB")
    with journal:
        with clocked("counting"):
            replies = journal.stats().replies
        per = path.stat().st_size / replies
        print(f"{'size':42} {per:8.0f} bytes a ruling, {per - len(VERDICT):.0f} of them beside its words")
        keys = [key for (key,) in journal._read("SELECT key FROM replies", [])]
        random.shuffle(keys)
        for how, look in (("one by one", journal.get), ("256 at once", None)):
            chosen, keys = keys[:count], keys[count:]
            before = time.process_time()
            with clocked(f"looking up {count:,}, {how}") as words:
                found = (
                    len(journal.get_many(chosen))
                    if look is None
                    else sum(look(k) is not None for k in chosen)
                )
                words.append(f"{(time.process_time() - before) / count * 1e6:.0f} µs of CPU each")
            assert found == count  # noqa: S101
    with clocked("opening and looking through for damage"):
        Journal.open(path, checked=sys.maxsize).close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--cases", type=int, default=10_000)
    options.add_argument("--folder", type=Path, help="keep everything here, and use what is there")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cases, path, run = folder / "cases.jsonl", folder / "journal.sqlite", folder / "run"
        write_cases(cases, given.cases)
        words = (
            "select",
            str(cases),
            "--model",
            "stub",
            "--base-url",
            "million:connect",
            "--strategy",
            "caps",
        )
        where = ("--journal", str(path), "--quiet")
        if not path.exists():
            caps(f"select, {given.cases:,} cases, new", *words, *where, "--out", str(run))
        build(path, given.rows)
        look_up(path, min(50_000, given.rows // 4))
        cpu = caps(f"select, {given.cases:,} cases, all known", *words, *where, "--out", str(run))
        print(f"{'':42} {given.cases / cpu:8.0f} cases a second of CPU")
        caps("journal stats", "journal", "stats", "--journal", str(path))
        caps(
            "journal prune --dry-run",
            "journal",
            "prune",
            "--dry-run",
            "--model",
            "other",
            "--journal",
            str(path),
        )
        caps("replay", "replay", str(run))
        part, few = folder / "part", max(1, given.cases // 10)
        caps(f"select, {few:,} cases, all known", *words, *where, "--out", str(part), "--limit", str(few))
        caps(f"report, {few:,} cases", "report", str(part))
        caps("journal redact", "journal", "redact", "--model", "stub", "--yes", "--journal", str(path))


if __name__ == "__main__":
    main()
