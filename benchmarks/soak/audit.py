"""What must hold after all that: the log, the journal and the runs, each checked against the others."""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression, median

from endpoint import PAID, UNHEARD
from players import Life, Mark

# How long after a reply its asker may have died, or another have asked, before it could be in the journal.
UNDER_WAY = 5.0
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


def check_payments(asked: list[Asked], ends: Mapping[str, float], most: int, found: Found) -> None:
    """Paid twice is only what was under way when its asker died, or what two asked at once."""
    by_key: defaultdict[str, list[Asked]] = defaultdict(list)
    for one in asked:
        by_key[one.key].append(one)
    reasons: Counter[str] = Counter()
    latest = 0.0
    for key, requests in by_key.items():
        firsts = {one.who: one.came for one in sorted(requests, key=lambda one: -one.came)}
        paid = sorted((one for one in requests if one.paid), key=lambda one: one.over)
        if not paid:
            reasons["never answered"] += 1
        for again in paid[1:]:
            reason, gap = _explained(paid, again, firsts[again.who], ends)
            reasons[reason] += 1
            latest = max(latest, gap)
            if reason == "no reason":
                found.wrong.append(f"request {key} was paid for again by {again.who} without a reason")
    kinds = Counter(one.kind for one in asked)
    paid_in_all = kinds[PAID] + kinds[UNHEARD]
    faults = {kind: count for kind, count in kinds.most_common() if kind not in (PAID, UNHEARD)}
    found.add("requests", f"{len(asked):,} of {len(by_key):,} kinds; {paid_in_all:,} were answered")
    found.add("faults", f"{sum(faults.values()):,}: " + ", ".join(f"{k} {n:,}" for k, n in faults.items()))
    words = (
        f"{paid_in_all - len(by_key):,} ({(paid_in_all - len(by_key)) / max(1, len(by_key)):.2%}): "
        f"{reasons['asker died']:,} whose asker died, at most {most:,} were under way; "
        f"{reasons['asked at once']:,} asked by two at once, at most {latest:.2f} s after the other's reply"
    )
    found.add("paid twice", words)
    if reasons["asker died"] > most:
        found.wrong.append(f"{reasons['asker died']} replies were lost with their askers, {most} can be")
    if reasons["never answered"]:
        found.wrong.append(f"{reasons['never answered']} requests never got an answer")


def _explained(paid: list[Asked], again: Asked, began: float, ends: Mapping[str, float]) -> tuple[str, float]:
    """Why a request was paid for again: every answer before it was lost, or not to be known yet."""
    reason, latest = "asker died", 0.0
    for one in paid[: paid.index(again)]:
        if one.who != again.who and ends[one.who] <= one.over + UNDER_WAY:
            continue
        gap = began - one.over
        if one.who == again.who or gap > UNDER_WAY:
            return "no reason", 0.0
        reason, latest = "asked at once", max(latest, gap)
    return reason, latest


def check_journal(path: Path, asked: list[Asked], found: Found) -> None:
    """The file is whole, and holds every answer once."""
    with closing(sqlite3.connect(path)) as journal:
        (whole,) = journal.execute("PRAGMA integrity_check").fetchone()
        rows = Counter(digest[:24] for (digest,) in journal.execute("SELECT prompt_digest FROM replies"))
        (distinct,) = journal.execute("SELECT count(DISTINCT key) FROM replies").fetchone()
        (size,) = journal.execute(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        ).fetchone()
    kept, seen = (
        rows.total(),
        Counter(prompt for prompt, _ in {(one.prompt, one.key) for one in asked if one.paid}),
    )
    found.add("journal", f"{kept:,} replies, {size / 1e6:,.0f} MB; integrity check: {whole}")
    if whole != "ok":
        found.wrong.append(f"the journal is damaged: {whole}")
    if distinct != kept:
        found.wrong.append(f"{kept - distinct} keys stand twice in the journal")
    if rows != seen:
        lost, made_up = (seen - rows).total(), (rows - seen).total()
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
