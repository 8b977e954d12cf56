"""The table of cases as a page holds it: compact rows, and what they can be filtered by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from caps.core.types import Pairing, Verdict
from caps.reports.figures import Labels, by_ask
from caps.reports.lines import Line, answer_of, ask_of
from caps.reports.tree import Node, el, visible

STATIC_ROWS = 200  # shown where scripts are off
MARKS = {1: "✓ right", 0: "✗ wrong"}


@dataclass(frozen=True, slots=True)
class Listing:
    """Columns (name, kind), filters by bit, and rows: [bits, receipts, cell, ..., games in short]."""

    columns: tuple[tuple[str, str], ...]
    filters: tuple[str, ...]
    rows: Sequence[list[Any]]


COLUMNS = (
    ("case", "text"), ("result", "mark"), ("chosen", "number"), ("of", "number"),
    ("different", "number wide"), ("calls E1", "number wide"), ("calls E2", "number wide"),
    ("tokens read", "number"), ("note", "text wide"),
)  # fmt: skip
FILTERS = ("right", "wrong", "rescued", "provisional", "unreadable", "failed")


def run_rows(
    selections: Sequence[Line], calls: Mapping[str, list[Line]], labels: Labels, *, start: int = 0
) -> list[list[Any]]:
    """A row for each case from `start` on."""
    return [
        _row(place, line, calls.get(line["id"], []), labels.get(line["id"], ()))
        for place, line in enumerate(selections[start:], start)
    ]


def right_of(line: Line, known: Sequence[bool | None]) -> int | None:
    """1 where the chosen answer is right, 0 where it is wrong, none where nobody knows."""
    winner = line.get("winner")
    label = known[winner] if winner is not None and winner < len(known) else None
    return None if label is None else int(label)


def _row(place: int, line: Line, calls: list[Line], known: Sequence[bool | None]) -> list[Any]:
    name = visible(line["id"])
    if "winner" not in line:
        failed = 1 << FILTERS.index("failed")
        empty = [None] * (len(COLUMNS) - 2)
        return [failed, [place], name, *empty, "failed", visible(str(line["error"]))]
    right = right_of(line, known)
    true = (right == 1, right == 0, line["rescued"] is not None, line["provisional"], bool(line["malformed"]))
    notes = [name for name, is_so in zip(FILTERS[2:], true[2:], strict=False) if is_so]
    return [
        bits(true), [place], name, right, line["winner"], len(line["order"]), line["clusters"],
        line["calls"]["E1"], line["calls"]["E2"], line["tokens"]["asked"], ", ".join(notes), in_short(calls),
    ]  # fmt: skip


def bits(true: Sequence[bool]) -> int:
    """What is so, as bits."""
    return sum(1 << bit for bit, is_so in enumerate(true) if is_so)


def in_short(calls: list[Line]) -> str:
    """The games of a case in a line: A 3>7! 5=9 C 3<5; sure verdicts with a mark."""
    words, stage = [], None
    for tries in by_ask(calls):
        line = tries[-1]
        ask, answer = ask_of(line), answer_of(line)
        if line["stage"] != stage:
            stage = line["stage"]
            words.append(f"{stage} at {line['level']}:")
        if isinstance(ask, Pairing) and isinstance(answer, Verdict):
            sign = "=" if answer.a == answer.b else ">" if answer.a > answer.b else "<"
            words.append(f"{ask.a}{sign}{ask.b}{'!' if abs(answer.a - answer.b) >= 4 else ''}")
        else:
            told = line.get("rating", line.get("pick"))
            words.append(f"{','.join(map(str, ask.entrants))}={'?' if told is None else told}")
    return " ".join(words)


def listing_view(listing: Listing, title: str) -> Node:
    """The table with its tools, which scripts bring to life; without them, the first rows."""
    heads = [
        el("th", el("button", name, type="button"), scope="col", class_=kind, aria_sort="none")
        for name, kind in listing.columns
    ]
    body = [_static(row, listing.columns) for row in listing.rows[:STATIC_ROWS]]
    left = len(listing.rows) - len(body)
    pages = el(
        "div",
        el("button", "←", type="button", class_="before", aria_label="Rows before"),
        el("span", class_="count"),
        el("button", "→", type="button", class_="after", aria_label="Rows after"),
        class_="pages",
    )
    search = el("input", type="search", placeholder="find a case", aria_label="Find a case")
    tools = el("div", el("div", class_="chips", role="group", aria_label="Filter"), search, pages,
               class_="tools", hidden=True)  # fmt: skip
    more = el("noscript", el("p", f"{left} more rows with scripts on.", class_="note")) if left > 0 else None
    drawn = el("table", el("thead", el("tr", *heads)), el("tbody", *body))
    region = el("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=title)
    return el("section", el("h2", title), tools, region, more, id="listing")


def _static(row: list[Any], columns: Sequence[tuple[str, str]]) -> Node:
    cells: list[Node] = []
    for (_, kind), value in zip(columns, row[2:], strict=False):
        words = MARKS.get(value, "–") if kind == "mark" else _shown(value)
        tone = {1: "good", 0: "bad"}.get(value) if kind == "mark" else kind
        cells.append(el("td", words, class_=tone) if cells else el("th", words, scope="row"))
    return el("tr", *cells)


def _shown(value: object) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
