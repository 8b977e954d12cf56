"""What must hold after all that: the log, the journal and the runs, each checked against the others."""

import json
import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from statistics import linear_regression, median

from endpoint import PAID, UNHEARD
from players import Life, Mark

# A request is looked up in the journal, then it is on its way; another process may store the reply meanwhile.
# On its way it is for so many seconds, and while an endpoint that is short of processors does not read it.
ON_ITS_WAY = 5.0
OVERTAKEN = 0.1  # part of all requests, at most; a run that never looked would send most of them again
MORE_FILES = 24  # connections come and go
ENDINGS = {"live": {0}, "kill": {0, -9}, "term": {0, 130, -15}}  # -15: the signal came before Python was up


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as the endpoint saw it."""

    prompt: str
    key: str
    who: str
    came: float
    over: float
    kind: str

    @property
    def paid(self) -> bool:
        return self.kind in (PAID, UNHEARD)


@dataclass(slots=True)
class Found:
    """Figures for people, and what is wrong."""

    figures: list[tuple[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, name: str, words: str, *wrong: str) -> None:
        self.figures.append((name, words))
        self.wrong += wrong


def read_log(lines: Iterable[str]) -> list[Asked]:
    read = []
    for line in lines:
        prompt, key, who, came, over, kind = line.rstrip("\n").split(" ", 5)
        read.append(Asked(prompt, key, who, float(came), float(over), kind))
    return read


def check_payments(
    asked: list[Asked], stored: Mapping[str, list[float]], ends: Mapping[str, float], most: int, found: Found
) -> None:
    """Nobody asks for what is in the journal; `stored` tells by prompt when its replies came to lie there."""
    by_key, stamps = _by_key(asked), _stamps(asked, stored)
    reasons: Counter[str] = Counter()
    allowed = ON_ITS_WAY + 2 * max((one.over - one.came for one in asked if one.paid), default=0.0)
    for key, requests in by_key.items():
        began = {one.who: one.came for one in reversed(requests)}
        paid = [one for one in requests if one.paid]
        if not paid:
            found.wrong.append(f"request {key} never got an answer")
        for earlier, again in pairwise(paid):
            late = began[again.who] - stamps[key]
            if late > allowed:
                words = f"request {key} was paid for again by {again.who}, {late:.1f} s after it was stored"
                found.wrong.append(words)
            died = ends[earlier.who] < stamps[key]
            reasons["overtaken" if late > 0 else "died" if died else "at once"] += 1
    kinds = Counter(one.kind for one in asked)
    answered, twice = kinds[PAID] + kinds[UNHEARD], reasons.total()
    faults = {kind: count for kind, count in kinds.most_common() if kind not in (PAID, UNHEARD)}
    found.add("requests", f"{len(asked):,} of {len(by_key):,} kinds; {answered:,} were answered")
    found.add("faults", f"{sum(faults.values()):,}: " + ", ".join(f"{k} {n:,}" for k, n in faults.items()))
    words = (
        f"{twice:,} ({twice / max(1, len(by_key)):.1%}): {reasons['died']:,} lost with their askers, of at "
        f"most {most:,} under way; {reasons['at once']:,} asked for by two at once, or given up; "
        f"{reasons['overtaken']:,} stored by another while on their way"
    )
    found.add("paid twice", words)
    if reasons["died"] > most:
        found.wrong.append(f"{reasons['died']} replies were lost with their askers, who had {most} under way")
    if reasons["overtaken"] > OVERTAKEN * len(by_key) + 1:
        found.wrong.append(f"{reasons['overtaken']} requests were sent although their replies were stored")


def _by_key(asked: list[Asked]) -> dict[str, list[Asked]]:
    by_key: defaultdict[str, list[Asked]] = defaultdict(list)
    for one in sorted(asked, key=lambda one: one.came):
        by_key[one.key].append(one)
    return by_key


def _stamps(asked: list[Asked], stored: Mapping[str, list[float]]) -> dict[str, float]:
    """When the reply to each body was stored: further draws of a prompt are asked, and stored, one by one."""
    bodies: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for one in sorted(asked, key=lambda one: one.came):
        bodies[one.prompt].setdefault(one.key)
    never = [math.inf]
    return {
        key: at
        for prompt, keys in bodies.items()
        for key, at in zip(keys, chain(sorted(stored.get(prompt, [])), never * len(keys)), strict=False)
    }


def read_journal(path: Path, found: Found) -> dict[str, list[float]]:
    """When replies were stored, by prompt; the file must be whole, and no key in it twice."""
    stored: defaultdict[str, list[float]] = defaultdict(list)
    with closing(sqlite3.connect(path)) as journal:
        (whole,) = journal.execute("PRAGMA integrity_check").fetchone()
        (rows, keys) = journal.execute("SELECT count(*), count(DISTINCT key) FROM replies").fetchone()
        for digest, at in journal.execute("SELECT prompt_digest, at FROM replies"):
            stored[digest[:24]].append(at)
    found.add("journal", f"{rows:,} replies, {path.stat().st_size / 1e6:,.0f} MB; integrity check: {whole}")
    if whole != "ok":
        found.wrong.append(f"the journal is damaged: {whole}")
    if rows != keys:
        found.wrong.append(f"{rows - keys} keys stand twice in the journal")
    return stored


def check_kept(stored: Mapping[str, list[float]], asked: list[Asked], found: Found) -> None:
    """Every answer that was paid for lies in the journal, and nothing else."""
    kept = Counter({prompt: len(times) for prompt, times in stored.items()})
    paid = Counter(prompt for prompt, _ in {(one.prompt, one.key) for one in asked if one.paid})
    if kept != paid:
        lost, made_up = (paid - kept).total(), (kept - paid).total()
        found.wrong.append(f"{lost} answers are not in the journal, {made_up} are nobody's")


def check_selections(clean: Path, others: Iterable[Path], found: Found) -> None:
    """Every selection that was ever printed is that of a clean run."""
    right, lines = dict(_selections(clean)), 0
    ever: set[str] = set()
    for path in others:
        for name, selected in _selections(path):
            lines += 1
            ever.add(name)
            if selected != right.get(name):
                found.wrong.append(
                    f"{path.name}: case {name} came out as {selected}, clean {right.get(name)}"
                )
    found.add(
        "selections",
        f"{lines:,} printed, of {len(ever):,} cases; compared with a clean run of {len(right):,}",
    )
    if ever != right.keys():
        found.wrong.append(f"{len(right.keys() - ever)} cases were never finished")


def _selections(path: Path) -> Iterable[tuple[str, object]]:
    """Id, and whatever the verdicts decided; a killed run may leave half a line."""
    for line in path.read_bytes().rpartition(b"\n")[0].splitlines():
        row = json.loads(line)
        decided = (
            "winner",
            "order",
            "finalists",
            "rescued",
            "provisional",
            "calls",
            "malformed",
            "unanswered",
        )
        yield row["id"], {name: row.get(name) for name in decided}


def check_lives(lives: list[Life], found: Found, words: Mapping[str, str]) -> None:
    """Processes end as they were made to, and in no other way."""
    ends = Counter(f"{life.fate}, {life.code}" for life in lives)
    found.add("processes", f"{len(lives):,}: " + ", ".join(f"({end}) {n}" for end, n in ends.most_common()))
    for life in lives:
        if life.code not in ENDINGS[life.fate]:
            found.wrong.append(f"{life.name} ({life.fate}) ended with {life.code}: {words[life.name][-500:]}")


def check_memory(marks: list[Mark], cases: int, found: Found) -> None:
    """Memory and files of the steady process do not grow with what it has done."""
    settled = marks[len(marks) // 5 :]
    if len(settled) < 10:
        found.wrong.append("the steady process ended before it could be watched")
        return
    slope, _ = linear_regression([mark.at for mark in settled], [mark.megabytes for mark in settled])
    tenth = max(1, len(settled) // 10)
    first, last = (median(mark.megabytes for mark in part) for part in (settled[:tenth], settled[-tenth:]))
    seconds = settled[-1].at - settled[0].at
    allowed = max(8.0, 0.1 * first)
    found.add(
        "memory",
        f"{first:.0f} MB after a fifth of the time, {last:.0f} MB at the end, {slope * 3600:+.1f} MB an hour "
        f"over {seconds / 60:.0f} minutes and {cases:,} cases; at most {allowed:.0f} MB more",
    )
    if last - first > allowed:
        found.wrong.append(f"memory grew from {first:.0f} to {last:.0f} MB")
    files = [mark.files for mark in settled]
    then, now = median(files[:tenth]), median(files[-tenth:])
    found.add("files", f"{then:.0f} open then, {now:.0f} at the end, {max(files)} at most")
    if now > then + MORE_FILES:
        found.wrong.append(f"open files grew from {then:.0f} to {now:.0f}")
    found.add("write-ahead log", f"{max(mark.log_megabytes for mark in marks):.0f} MB at most")
