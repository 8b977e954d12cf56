"""The product under load for a long time, with faults, kills and restarts; `make soak MINUTES=30`.

One endpoint that fails in every way, one process over an endless stream, several that are killed at random
and started again, one journal. In the end the selections must be those of a clean run, the journal whole,
nothing paid twice but what was under way, and the memory of the steady process flat. Exits with 1 if not.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from audit import (
    Found,
    check_kept,
    check_lives,
    check_memory,
    check_payments,
    check_selections,
    read_journal,
    read_log,
)
from cases import lines
from players import Stage, mortal, steady

from caps.testing import endpoint_process


async def play(stage: Stage, seconds: float, mortals: int, connections: int) -> None:
    """The load; then what nobody finished, and the same cases with a fresh journal and no faults."""
    until = time.monotonic() + seconds
    chances = [random.Random(f"{stage.seed}/{place}") for place in range(mortals)]
    try:
        life, *_ = await asyncio.gather(
            steady(stage, until, connections),
            *(mortal(stage, place, until, connections // 2, chance) for place, chance in enumerate(chances)),
        )
        stage.lives.append(life)
        left = stage.folder / "left.jsonl"
        left.write_text("".join(stage.unfinished()))
        if left.stat().st_size:
            await stage.finish("last", stage.words(left, connections, "--quiet"))
        print(f"{time.monotonic() - until:.0f} s after the load all cases are finished", flush=True)
        words = stage.words(stage.everything, 64, "--quiet")
        words[words.index(stage.url)] = "verdicts:connect"
        words[words.index(str(stage.journal))] = str(stage.folder / "clean.sqlite")
        await stage.finish("clean", words)
    finally:
        stage.end()


def audit(stage: Stage, log: Path, connections: int) -> Found:
    found = Found()
    with log.open() as file:
        asked = read_log(file)
    said = {life.name: stage.said(life.name, "txt").read_text(errors="replace") for life in stage.lives}
    deaths = sum(life.fate != "live" and life.code != 0 for life in stage.lives)
    ends = {life.name: life.ended for life in stage.lives}
    check_lives(stage.lives, found, said)
    stored = read_journal(stage.journal, found)
    check_kept(stored, asked, found)
    check_payments(asked, stored, ends, deaths * (connections // 2), found)
    printed = [path for path in stage.folder.glob("said/*.jsonl") if path.stem != "clean"]
    check_selections(stage.said("clean", "jsonl"), printed, found)
    finished = stage.said("steady", "jsonl").read_bytes().count(b"\n")
    check_memory(stage.marks, finished, found)
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=30)
    options.add_argument("--processes", type=int, default=3, help="beside the steady one")
    options.add_argument(
        "--connections", type=int, default=160, help="of the steady one; the others have half"
    )
    options.add_argument("--faults", type=float, default=0.1, help="share of requests that meet some")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--folder", type=Path, help="keep everything here")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            options.error(f"{folder} is not empty: name another folder")
        log, began = folder / "asked.txt", time.monotonic()
        with endpoint_process("endpoint:Endpoint", str(log), given.seed, given.faults) as url:
            stage = Stage(folder, url, given.seed, lines(given.seed))
            asyncio.run(play(stage, given.minutes * 60, given.processes, given.connections))
        found = audit(stage, log, given.connections)
        for name, words in found.figures:
            print(f"{name:16} {words}")
        print(
            f"{'time':16} {(time.monotonic() - began) / 60:.1f} minutes, {given.minutes:g} of them under load"
        )
    for words in found.wrong[:20]:
        print(f"WRONG: {words}")
    print("passed" if not found.wrong else f"{len(found.wrong)} things are wrong")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
