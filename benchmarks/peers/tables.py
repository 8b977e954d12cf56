"""What was measured, as tables: for a terminal, or in Markdown for the documentation."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from peers.endpoint import Latency
from peers.pools import TOKENS, Marked

Row = Sequence[str]


class Page:
    """Tables and sentences, one after another."""

    def __init__(self, *, markdown: bool) -> None:
        self._markdown, self._blocks = markdown, list[str]()

    def say(self, *sentences: str) -> None:
        """Add sentences, a line each."""
        self._blocks.append("\n".join(sentences))

    def table(self, title: str, heads: Row, rows: Sequence[Row]) -> None:
        """Add a table; the first column is of words."""
        if not rows:
            return
        wide = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
        if self._markdown:
            rule = ["---", *("---:" for _ in heads[1:])]
            lines = ["| " + " | ".join(row) + " |" for row in (heads, rule, *rows)]
            self._blocks.append("\n".join([f"**{title}**", "", *lines]))
            return
        lines = [
            "  ".join(
                [row[0].ljust(wide[0]), *(cell.rjust(w) for cell, w in zip(row[1:], wide[1:], strict=True))]
            )
            for row in (heads, *rows)
        ]
        self._blocks.append("\n".join([title, *lines]))

    def __str__(self) -> str:
        return "\n\n".join(self._blocks)


def insert(path: Path, name: str, text: str) -> None:
    """Put a text between the marks of a page that carry its name."""
    page, (start, end) = path.read_text("utf-8"), (f"<!-- {name} -->", f"<!-- end of {name} -->")
    before, found, rest = page.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{path}: has no lines {start} and {end}")
    path.write_text(f"{before}{start}\n{text}\n{end}{after}", "utf-8")


def job_table(page: Page, entries: Sequence[Any], cases: Sequence[Marked]) -> None:
    """The whole job: calls, tokens, seconds, processor and memory."""
    count = len(cases)
    heads = (
        *("", "asks for", "calls", "prompt tokens", "math", "code", "new to a cache", "reply tokens"),
        *("1 case, s", f"{count} cases, s", "CPU, ms", "peak MB", "right, %"),
    )
    rows = []
    for entry in entries:
        if entry.single is None or entry.many is None:
            continue
        many, judge = entry.many, entry.many.tally["judge"]
        about = "" if many.cases == count else "≈ "
        each: Callable[[str], str] = lambda what, judge=judge, of=many.cases: f"{judge[what] / of:,.0f}"  # noqa: E731
        row = [entry.peer.label, entry.peer.asks, f"{judge['calls'] / many.cases:.1f}", each("prompt")]
        for kind in ("math", "code"):
            here = sum(one.case.domain == kind for one in cases[: many.cases])
            row.append(f"{many.tally.get(f'judge {kind}', {}).get('prompt', 0) / here:,.0f}")
        row += [each("new"), each("written"), f"{sum(entry.single.seconds) / entry.single.cases:.2f}"]
        row += [f"{about}{many.seconds[0] * count / many.cases:.1f}", f"{1000 * many.cpu / many.cases:.0f}"]
        row += [f"{many.memory:.0f}", "" if about else f"{100 * many.right / many.cases:.1f}"]
        rows.append(row)
    page.table("The whole job, N = 16; a selection unless it says cases", heads, rows)


def unhurried_table(page: Page, entries: Sequence[Any]) -> None:
    """The same with replies that take no time: what the tools themselves cost."""
    rows = []
    for entry in entries:
        run = entry.unhurried
        if run is None:
            continue
        calls = sum(run.tally[kind]["calls"] for kind in ("judge", "generation") if kind in run.tally)
        rows.append(
            [
                entry.peer.label,
                f"{calls / run.cases:.1f}",
                f"{1000 * run.seconds[0] / run.cases:.0f}",
                f"{1000 * run.cpu / run.cases:.0f}",
                f"{1000 * run.cpu / calls:.2f}",
            ]
        )
    heads = ("", "HTTP calls", "wall, ms", "CPU, ms", "CPU a call, ms")
    page.table("No latency: what is left is the tool and the endpoint; a selection", heads, rows)


def accuracy_table(page: Page, rows: Sequence[dict[str, Any]]) -> None:
    """Accuracy at equal tokens against ratings."""
    lines = [
        [
            f"{one['pools']}: {one['strategy']}",
            f"{one['tokens']:,.0f}",
            f"{100 * one['right']:.1f}",
            f"{100 * one['ratings']:.1f}",
            f"{100 * (one['right'] - one['ratings']):+.1f}",
        ]
        for one in rows
    ]
    heads = ("", "tokens", "right, %", "ratings at as many tokens, %", "difference")
    page.table("SIMULATED: accuracy against rating one by one", heads, lines)


def notes(page: Page, entries: Sequence[Any], cases: Sequence[Marked], latency: Latency, busy: float) -> None:
    """What has to be known to read the tables."""
    alone = sum(len({one.signature for one in each.pool.entrants}) == 1 for each in cases)
    mixed = sum(0 < sum(each.pool.correct) < len(each.pool.correct) for each in cases)
    said = [
        f"{len(cases)} pools of 16 candidates of {TOKENS:,} tokens, mathematics and code by turns;"
        f" in {mixed} some are right and some wrong, in {alone} all agree.",
        f"A judge's call takes {latency}.",
        f"{os.cpu_count()} processors, shared by the tool and the endpoint;"
        f" the load was {busy:.1f} before the run, and from 1 on the seconds say little.",
    ]
    for entry in entries:
        if entry.many is not None and entry.many.cases < len(cases):
            said.append(f"≈: {entry.peer.label} was run on {entry.many.cases} cases and is scaled up.")
    versions = {f"{one.peer.package} {one.version}" for one in entries if one.version}
    said.append(f"Versions: {', '.join(sorted(versions))}.") if versions else None
    said += [f"Skipped: {one.peer.label}: {one.skipped}." for one in entries if one.skipped]
    page.say(*said)
