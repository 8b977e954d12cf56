"""The page of a run: what was run, how well, at what cost, and the table of its cases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from caps.config import RunConfig
from caps.core.text import number, percent
from caps.core.types import Pairing, Verdict
from caps.reports.charts import Bar, bars, timeline
from caps.reports.html import Child, Node, el, visible
from caps.runs.result_lines import Line, answer_of, ask_of
from caps.runs.run_file import RunFile, judges_of
from caps.runs.summary import Figures, Labels, group_by_ask

WORDS = (
    ("E1 and E2", "How much of each answer the judge is shown: short partial views, or all of it."),
    ("Stage A, B, C", "Halving on partial views; halving on whole answers; the finalists all meet."),
    ("V1-Infer", "The leading tournament this is compared with: three whole-answer comparisons an answer."),
    ("rescued", "An answer that lost narrowly and was let into the finals after all."),
    ("provisional", "Money, time or the judge gave out before the end; the best so far was returned."),
    ("unreadable", "The judge's reply held no verdict even when asked again; it counts as a tie."),
    (
        "tokens read",
        "What the judge was sent, wherever its reply came from: the cost that strategies differ in.",
    ),
)


def lead(config: RunConfig, figures: Figures, *, finished: bool) -> Node:
    """What this is, for a reader who is new to it."""
    full, at_partial = judges_of(config)
    judge = str(full) if at_partial == full else f"{at_partial} (E1) and {full} (E2)"
    state = "" if finished else " The run is not finished: this is what there is so far."
    return el(
        "p",
        f"Each of {number(figures.cases, 0)} problems came with several candidate answers, "
        "and a language model, ",
        el("b", judge),
        ", was asked which of them is right. The strategy ",
        el("b", config.strategy),
        f" decided what to ask. This page shows what was chosen, how, and what it cost.{state}",
        class_="lead",
    )


def cards(figures: Figures) -> Node:
    """The main figures."""
    total, share = figures.total, figures.v1_tokens
    shown = []
    if figures.pass_at_1 is not None:
        low, high = figures.interval
        chance = percent(figures.chance / figures.labelled)
        best = percent(figures.reachable / figures.labelled)
        shown.append(
            card(
                f"{percent(figures.pass_at_1)} %",
                "chosen answers right",
                f"{figures.right} of {figures.labelled} labelled; 95 % interval {percent(low)} to "
                f"{percent(high)}. "
                f"A random pick: {chance} %; at best {best} %.",
            )
        )
    else:
        shown.append(card("–", "chosen answers right", "No candidate is labelled: caps grade can do that."))
    about = "about " if figures.ledger.estimated else ""
    shown.append(
        card(
            number(total.asked, 0),
            "tokens read by the judge",
            f"{about}{number(total.billed, 0)} of them new, {number(total.cached, 0)} from the server's "
            f"cache; {number(total.output, 0)} written.",
        )
    )
    against = (
        ""
        if share is None
        else f"V1-Infer would read about {number(share, 0)}: its calls at this run's sizes."
    )
    shown.append(
        card(
            "–" if not share else f"{percent(total.asked / share)} %",
            "of V1-Infer's reading",
            against or "Not known without a comparison of whole answers.",
        )
    )
    causes = "".join(f", {cause} {many}" for cause, many in sorted(figures.ledger.malformed.items()))
    shown.append(
        card(
            "–" if figures.malformed_rate is None else f"{percent(figures.malformed_rate)} %",
            "of calls unreadable",
            f"{figures.ledger.malformed.total()} of {number(total.calls, 0)} calls{causes}.",
        )
    )
    money = "–" if figures.usd is None else f"${figures.usd:,.4f}"
    less = [
        f"{figures.rescued} with a rescue",
        f"{figures.provisional} provisional",
        f"{figures.failed} failed",
    ]
    unpriced = "The price of a token is not known. " if figures.usd is None else ""
    shown.append(card(money, "paid", f"{unpriced}{number(figures.cases, 0)} cases: {', '.join(less)}."))
    return el("div", *shown, class_="cards")


def card(figure: str, name: str, note: str) -> Node:
    """A figure, what it is, and a sentence about it."""
    return el(
        "div", el("p", figure, class_="figure"), el("p", name), el("p", note, class_="note"), class_="card"
    )


def tokens(figures: Figures) -> Node:
    """Tokens by stage and level, as bars and as a table."""
    lines = sorted(figures.ledger.lines.items(), key=lambda line: (line[0][0], str(line[0][1])))
    rows = [
        Bar(f"{stage} at {level}", ((f"{level}".lower(), sums.asked),), number(sums.asked, 0))
        for (stage, level), sums in lines
    ]
    whole = figures.total.asked
    drawn = [*rows, Bar("together", (("sum", whole),), number(whole, 0))]
    if figures.v1_tokens:
        drawn.append(
            Bar("V1-Infer", (("other", figures.v1_tokens),), f"about {number(figures.v1_tokens, 0)}")
        )
    names = ("stage", "evidence", "calls", "tokens read", "of them new", "cached", "written")
    body = [
        (stage, str(level), *(number(value, 0) for value in (s.calls, s.asked, s.billed, s.cached, s.output)))
        for (stage, level), s in lines
    ]
    return el("div", bars(drawn, "Tokens read by the judge, by stage"), table(names, body, "tokens by stage"))


def times(stamps: Sequence[tuple[float, str]]) -> Node | None:
    """Calls over time."""
    drawn = timeline(stamps, f"{number(len(stamps), 0)} calls over time")
    if drawn is None:
        return None
    legend = el("p", el("span", class_="key e1"), "E1 ", el("span", class_="key e2"), "E2", class_="note")
    return section("Calls over time", "As the journal stamped them.", drawn, legend)


def settings(file: RunFile) -> Node:
    """Everything that made the run; a setting that was left alone is not listed."""
    usual, config = RunConfig().to_dict(), file.to_row()["config"]
    rows: list[tuple[str, str]] = [("cases", file.cases)]
    rows += [] if file.limit is None else [("limit", str(file.limit))]
    always = ("strategy", "seed", "model")
    for name, value in config.items():
        if isinstance(value, dict):
            rows += [(f"{name} · {key}", _told(one)) for key, one in value.items()]
        elif value != usual[name] or name in always:
            rows.append((name, _told(", ".join(value) if isinstance(value, list) else value)))
    for group in ("findings", "versions", "prompt_digests"):
        label = group.removesuffix("_digests")
        rows += [(f"{label} · {name}", _told(value)) for name, value in getattr(file, group).items()]
    return el("details", el("summary", "Settings, versions, digests of prompts"), facts(rows), class_="fold")


def words() -> Node:
    """What the words mean."""
    return el("details", el("summary", "What the words mean"), facts(WORDS), class_="fold")


def facts(rows: Sequence[tuple[str, str]]) -> Node:
    """Names and what they stand for."""
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in rows))


def table(names: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> Node:
    """A plain table; the first column heads its row."""
    head = el("thead", el("tr", *(el("th", name, scope="col") for name in names)))
    body = [el("tr", el("th", row[0], scope="row"), *(el("td", cell) for cell in row[1:])) for row in rows]
    drawn = el("table", head, el("tbody", *body))
    return el("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=name)


def section(title: str, about: str | None, *children: Child | None) -> Node:
    """A part of the page."""
    note = None if about is None else el("p", about, class_="note")
    return el("section", el("h2", title), note, *children)


def _told(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def listed(said: Sequence[str]) -> Node:
    """Sentences, one below the other."""
    return el("ul", *(el("li", f"{capital(words)}.") for words in said))


def capital(words: str) -> str:
    """Words as a sentence begins."""
    return words[:1].upper() + words[1:]


# The table of cases as a page holds it: compact rows, and what they can be filtered by.


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
    for tries in group_by_ask(calls):
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
