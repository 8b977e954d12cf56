"""The processes: one that lives as long as the soak, and some that are killed and started again.

All of them share one journal. Each run has an API key of its own, so that the endpoint knows who asks.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

CAPS = Path(sys.executable).with_name("caps")
HERE = Path(__file__).parent
PART = 60  # cases of a part
TIMEOUT = 60
FATES = (("kill", 14), ("term", 3), ("live", 3))


@dataclass(slots=True)
class Life:
    """One process: who it was, when it ended, and how it was meant to."""

    name: str
    fate: str
    ended: float = 0.0
    code: int | None = None


@dataclass(slots=True)
class Mark:
    """What the steady process held at a moment."""

    at: float
    megabytes: float
    files: int
    log_megabytes: float


@dataclass(slots=True)
class Stage:
    """Where everything lies, and what happened on it."""

    folder: Path
    url: str
    seed: int
    source: Iterator[str]
    lives: list[Life] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def journal(self) -> Path:
        return self.folder / "journal.sqlite"

    @property
    def everything(self) -> Path:
        return self.folder / "all.jsonl"

    def deal(self, count: int) -> list[str]:
        """Take new cases and write them down."""
        taken = [next(self.source) for _ in range(count)]
        with self.everything.open("a") as file:
            file.writelines(taken)
        return taken

    def words(self, cases: Path | str, connections: int, *more: str) -> list[str]:
        return [
            str(CAPS), "select", str(cases), "--model", "stub", "--base-url", self.url, "--json",
            "--journal", str(self.journal), "--max-connections", str(connections),
            "--timeout", str(TIMEOUT), *more,
        ]  # fmt: skip

    async def start(
        self, name: str, words: list[str], stdin: int = asyncio.subprocess.DEVNULL
    ) -> asyncio.subprocess.Process:
        """Start a run that is known by `name`; its lines and its words are kept under that."""
        (self.folder / "said").mkdir(exist_ok=True)
        environment = {**os.environ, "CAPS_API_KEY": name}
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE), environment.get("PYTHONPATH", "")])
        with self.said(name, "jsonl").open("wb") as out, self.said(name, "txt").open("wb") as words_:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=stdin, stdout=out, stderr=words_, env=environment, start_new_session=True
            )
        self.processes.append(process)
        return process

    async def finish(self, name: str, words: list[str]) -> None:
        """Run to the end, whatever that is."""
        life = Life(name, "live")
        self.lives.append(life)
        life.code, life.ended = await (await self.start(name, words)).wait(), time.time()

    def end(self) -> None:
        """Leave nobody behind."""
        for process in self.processes:
            if process.returncode is None:
                process.kill()

    def unfinished(self) -> list[str]:
        """Cases that no run has printed a selection of."""
        printed: set[str] = set()
        for path in self.folder.glob("said/*.jsonl"):
            whole = path.read_bytes().rpartition(b"\n")[0].splitlines()
            printed.update(json.loads(line)["id"] for line in whole)
        with self.everything.open() as file:
            return [line for line in file if json.loads(line)["id"] not in printed]

    def said(self, name: str, ending: str) -> Path:
        return self.folder / "said" / f"{name}.{ending}"


async def steady(stage: Stage, until: float, connections: int) -> Life:
    """One process over an endless stream of cases, some of which others work on too."""
    life = Life("steady", "live")
    words = stage.words("-", connections, "--out", str(stage.folder / "run"))
    process = await stage.start(life.name, words, asyncio.subprocess.PIPE)
    watching = asyncio.ensure_future(_watch(stage, process.pid))
    assert process.stdin is not None  # noqa: S101
    with suppress(ConnectionError):  # it ended by itself: its code will tell
        while time.monotonic() < until and process.returncode is None:
            process.stdin.write("".join(stage.deal(8)).encode())
            await process.stdin.drain()
    watching.cancel()
    process.stdin.close()
    life.code, life.ended = await process.wait(), time.time()
    return life


async def mortal(stage: Stage, place: int, until: float, connections: int, chance: random.Random) -> None:
    """Work on part after part in processes that mostly die before they are done."""
    turn = 0
    while time.monotonic() < until:
        part = _part(stage, place, chance)
        finished = False
        while not finished and time.monotonic() < until:
            turn += 1
            fate = chance.choices([fate for fate, _ in FATES], [weight for _, weight in FATES])[0]
            life = Life(f"m{place}-{turn}", fate)
            kept = ("--out", str(stage.folder / f"run-{place}"), "--force")  # over the run of an earlier part
            more = ("--quiet",) if chance.random() < 0.5 else kept
            process = await stage.start(life.name, stage.words(part, connections, *more))
            stage.lives.append(life)
            if fate != "live":
                await _strike(process, fate, chance.uniform(0.3, 8.0))
            life.code, life.ended = await process.wait(), time.time()
            finished = life.code == 0


def _part(stage: Stage, place: int, chance: random.Random) -> Path:
    """A file of new cases, or the newest of another, who may be working on it."""
    known = sorted(stage.folder.glob("part-*.jsonl"), key=lambda path: path.stat().st_mtime)
    if known and chance.random() < 0.3:
        return known[-1]
    path = stage.folder / f"part-{place}-{len(known)}.jsonl"
    path.write_text("".join(stage.deal(PART)))
    return path


async def _strike(process: asyncio.subprocess.Process, fate: str, after: float) -> None:
    try:
        async with asyncio.timeout(after):
            await process.wait()
    except TimeoutError:
        process.send_signal(signal.SIGKILL if fate == "kill" else signal.SIGTERM)


async def _watch(stage: Stage, pid: int) -> None:
    log = stage.journal.with_name(stage.journal.name + "-wal")
    while True:
        await asyncio.sleep(1)
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        if "VmRSS" not in status:  # it has ended
            return
        stage.marks.append(
            Mark(
                time.monotonic(),
                int(status["VmRSS"].split()[0]) / 1024,
                len(list(Path(f"/proc/{pid}/fd").iterdir())),
                log.stat().st_size / 1e6 if log.exists() else 0.0,
            )
        )
