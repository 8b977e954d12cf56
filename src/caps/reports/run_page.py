"""The page of a run: accuracy, cost, settings, and the table of its cases."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from caps.config import RunConfig
from caps.core.text import number, percent, plural
from caps.core.types import Pairing, Verdict
from caps.reports.charts import Bar, bars, timeline
from caps.reports.html import Child, Node, el, visible
from caps.runs.result_lines import Line, answer_of, ask_of
from caps.runs.run_file import RunFile, judges_of
from caps.runs.summary import Figures, Labels, group_by_ask

GLOSSARY = (
    ("E1 and E2", "How much of each answer the judge sees: a short partial view (E1) or all of it (E2)."),
    (
        "Stage A, B, C",
        "Elimination on partial views; elimination on whole answers; round-robin of the finalists.",
    ),
    ("V1-Infer", "The tournament used as a baseline: three comparisons of whole answers per answer."),
    ("rescued", "An answer that lost narrowly and was still admitted to the finals."),
    (
        "provisional",
        "The budget, the time or the judge failed before the end; the best answer so far was chosen.",
    ),
    ("unreadable", "The reply of the judge contained no verdict, even after retries; it counts as a tie."),
    (
        "tokens read",
        "Tokens of all prompts, also of those that the journal answered; strategies differ in this cost.",
    ),
)


def lead(config: RunConfig, figures: Figures, *, finished: bool) -> Node:
    """Explain the page to a new reader."""
    full, at_partial = judges_of(config)
    judge = str(full) if at_partial == full else f"{at_partial} (E1) and {full} (E2)"
    state = "" if finished else " The run has not finished; the figures are preliminary."
    return el(
        "p",
        f"{plural(figures.cases, 'problem')} with several candidate answers each. The judge ",
        el("b", judge),
        " compared the answers, and the strategy ",
        el("b", config.strategy),
        f" decided which comparisons to make. This page shows the chosen answers and their cost.{state}",
        class_="lead",
    )


def cards(figures: Figures) -> Node:
    """Show the main figures."""
    total, v1_tokens = figures.total, figures.v1_tokens
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
                f"Random choice: {chance} %; best possible choice: {best} %.",
            )
        )
    else:
        shown.append(card("–", "chosen answers right", "No candidate is labelled; caps grade adds labels."))
    about = "about " if figures.ledger.estimated else ""
    shown.append(
        card(
            number(total.asked, 0),
            "tokens read by the judge",
            f"{about}{number(total.billed, 0)} of them new, {number(total.cached, 0)} from the server's "
            f"cache; {number(total.output, 0)} written.",
        )
    )
    baseline = "Unknown without a comparison of whole answers."
    if v1_tokens is not None:
        baseline = f"V1-Infer would read about {number(v1_tokens, 0)}, at the size of this run's comparisons."
    share = f"{percent(total.asked / v1_tokens)} %" if v1_tokens else "–"
    shown.append(card(share, "of V1-Infer's tokens", baseline))
    causes = "".join(f", {cause} {count}" for cause, count in sorted(figures.ledger.malformed.items()))
    shown.append(
        card(
            "–" if figures.malformed_rate is None else f"{percent(figures.malformed_rate)} %",
            "of calls unreadable",
            f"{figures.ledger.malformed.total()} of {plural(total.calls, 'call')}{causes}.",
        )
    )
    if figures.stated:
        fitted = f"{figures.calibrated} of {figures.stated}"
        note = (
            "Fitted to such cases (--calibrate); the others follow from stated defaults and may be far off."
        )
        shown.append(card(fitted, "probabilities calibrated", note))
    money = "–" if figures.usd is None else f"${figures.usd:,.4f}"
    unpriced = "The price of a token is unknown. " if figures.usd is None else ""
    cases = (
        f"{plural(figures.cases, 'case')}: {figures.rescued} with a rescue, "
        f"{figures.provisional} provisional, {figures.failed} failed."
    )
    shown.append(card(money, "cost", unpriced + cases))
    return el("div", *shown, class_="cards")


def card(figure: str, name: str, note: str) -> Node:
    """Show a figure with its name and a note."""
    return el(
        "div", el("p", figure, class_="figure"), el("p", name), el("p", note, class_="note"), class_="card"
    )


def tokens_view(figures: Figures) -> Node:
    """Show tokens by stage and level as bars and as a table."""
    lines = sorted(figures.ledger.lines.items(), key=lambda line: (line[0][0], str(line[0][1])))
    rows = [
        Bar(f"{stage} at {level}", ((f"{level}".lower(), sums.asked),), number(sums.asked, 0))
        for (stage, level), sums in lines
    ]
    total = figures.total.asked
    drawn = [*rows, Bar("total", (("sum", total),), number(total, 0))]
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


def timeline_view(stamps: Sequence[tuple[float, str]]) -> Node | None:
    """Show calls over time; None if there are too few."""
    drawn = timeline(stamps, f"{plural(len(stamps), 'call')} over time")
    if drawn is None:
        return None
    legend = el("p", el("span", class_="key e1"), "E1 ", el("span", class_="key e2"), "E2", class_="note")
    return section("Calls over time", "By the timestamps of the journal.", drawn, legend)


def settings_view(file: RunFile) -> Node:
    """Show all settings that differ from their defaults, with versions and prompt digests."""
    defaults, config = RunConfig().to_dict(), file.to_row()["config"]
    rows: list[tuple[str, str]] = [("cases", file.cases)]
    rows += [] if file.limit is None else [("limit", str(file.limit))]
    always = ("strategy", "seed", "model")
    for name, value in config.items():
        if isinstance(value, dict):
            rows += [(f"{name} · {key}", str(one)) for key, one in value.items()]
        elif value != defaults[name] or name in always:
            rows.append((name, str(", ".join(map(str, value)) if isinstance(value, list) else value)))
    for group in ("findings", "versions", "prompt_digests"):
        label = group.removesuffix("_digests")
        rows += [(f"{label} · {name}", str(value)) for name, value in getattr(file, group).items()]
    return el("details", el("summary", "Settings, versions and prompt digests"), facts(rows), class_="fold")


def glossary_view() -> Node:
    """Explain the terms of a page."""
    return el("details", el("summary", "Terms on this page"), facts(GLOSSARY), class_="fold")


def facts(rows: Sequence[tuple[str, str]]) -> Node:
    """Show names with their values."""
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in rows))


MOST_DIVIDED = 20


def panel_view(lines: Iterable[Line]) -> list[Node]:
    """Show what each judge of a panel was asked, and the cases they disagree about most."""
    panels = [(line["id"], line["panel"]) for line in lines if "panel" in line]
    if not panels:
        return []
    asked, silent = Counter[str](), Counter[str]()
    for _, panel in panels:
        asked.update(panel["asked"])
        silent.update({name: sum(reasons.values()) for name, reasons in panel["unanswered"].items()})
    rows = [(name, number(count, 0), number(silent[name], 0)) for name, count in asked.items()]
    divided = [(name, panel) for name, panel in panels if panel["disagreement"]]
    divided.sort(key=lambda one: -one[1]["disagreement"])
    cases = [
        (name, percent(panel["disagreement"]), f"{panel['divided']} of {panel['games']}")
        for name, panel in divided[:MOST_DIVIDED]
    ]
    about = (
        "Disagreement is the mean share of judges whose answer differs from the panel's, over asks that at "
        "least two of them answered. The receipt of a case shows what each judge said."
    )
    shown = [table(("judge", "asks", "unanswered"), rows, "judges of the panel")]
    if cases:
        columns = ("case", "disagreement %", "divided asks")
        shown.append(table(columns, cases, "cases with most disagreement"))
    return [section("Panel of judges", about, *shown)]


def table(names: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> Node:
    """Show a plain table; the first column is the row header."""
    head = el("thead", el("tr", *(el("th", name, scope="col") for name in names)))
    body = [el("tr", el("th", row[0], scope="row"), *(el("td", cell) for cell in row[1:])) for row in rows]
    drawn = el("table", head, el("tbody", *body))
    return el("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=name)


def section(title: str, about: str | None, *children: Child | None) -> Node:
    """Create a section of a page."""
    note = None if about is None else el("p", about, class_="note")
    return el("section", el("h2", title), note, *children)


def listed(sentences: Sequence[str]) -> Node:
    """Show sentences as a list."""
    return el("ul", *(el("li", f"{capital(text)}.") for text in sentences))


def capital(text: str) -> str:
    """Start a text with a capital letter."""
    return text[:1].upper() + text[1:]


STATIC_ROWS = 200  # shown without scripts
MARKS = {1: "✓ right", 0: "✗ wrong"}


@dataclass(frozen=True, slots=True)
class Listing:
    """A table of cases: columns (name, kind), filters, and rows.

    A row is [filter flags as bits, indices of receipts, cell, ..., summary of the judge calls].
    """

    columns: tuple[tuple[str, str], ...]
    filters: tuple[str, ...]
    rows: Sequence[list[Any]]


COLUMNS = (
    ("case", "text"), ("result", "mark"), ("chosen", "number"), ("of", "number"),
    ("distinct answers", "number wide"), ("calls E1", "number wide"), ("calls E2", "number wide"),
    ("tokens read", "number"), ("note", "text wide"),
)  # fmt: skip
FILTERS = ("right", "wrong", "rescued", "provisional", "unreadable", "failed")


def run_rows(
    selections: Sequence[Line], calls: Mapping[str, list[Line]], labels: Labels, *, start: int = 0
) -> list[list[Any]]:
    """Return a row for each case from `start` on."""
    return [
        _row(index, line, calls.get(line["id"], []), labels.get(line["id"], ()))
        for index, line in enumerate(selections[start:], start)
    ]


def right_of(line: Line, known: Sequence[bool | None]) -> int | None:
    """Return 1 if the chosen answer is right, 0 if it is wrong, None if it has no label."""
    winner = line.get("winner")
    label = known[winner] if winner is not None and winner < len(known) else None
    return None if label is None else int(label)


def _row(index: int, line: Line, calls: list[Line], known: Sequence[bool | None]) -> list[Any]:
    name = visible(line["id"])
    if "winner" not in line:
        failed = 1 << FILTERS.index("failed")
        empty = [None] * (len(COLUMNS) - 2)
        return [failed, [index], name, *empty, "failed", visible(str(line["error"]))]
    right = right_of(line, known)
    flags = (
        right == 1,
        right == 0,
        line["rescued"] is not None,
        line["provisional"],
        bool(line["malformed"]),
    )
    notes = [name for name, flag in zip(FILTERS[2:], flags[2:], strict=False) if flag]
    return [
        pack_flags(flags), [index], name, right, line["winner"], len(line["order"]), line["clusters"],
        line["calls"]["E1"], line["calls"]["E2"], line["tokens"]["asked"], ", ".join(notes),
        calls_text(calls),
    ]  # fmt: skip


def pack_flags(flags: Sequence[bool]) -> int:
    """Pack flags into the bits of a number."""
    return sum(1 << bit for bit, flag in enumerate(flags) if flag)


def calls_text(calls: list[Line]) -> str:
    """Summarise the judge calls of a case: A at E1: 3>7! 5=9 C at E2: 3<5; `!` marks sure verdicts."""
    parts, stage = [], None
    for attempts in group_by_ask(calls):
        line = attempts[-1]
        ask, answer = ask_of(line), answer_of(line)
        if line["stage"] != stage:
            stage = line["stage"]
            parts.append(f"{stage} at {line['level']}:")
        if isinstance(ask, Pairing) and isinstance(answer, Verdict):
            sign = "=" if answer.a == answer.b else ">" if answer.a > answer.b else "<"
            parts.append(f"{ask.a}{sign}{ask.b}{'!' if abs(answer.a - answer.b) >= 4 else ''}")
        else:
            value = line.get("rating", line.get("pick"))
            parts.append(f"{','.join(map(str, ask.entrants))}={'?' if value is None else value}")
    return " ".join(parts)


def listing_view(listing: Listing, title: str) -> Node:
    """Show the table with its controls, which need scripts; without scripts, its first rows."""
    heads = [
        el("th", el("button", name, type="button"), scope="col", class_=kind, aria_sort="none")
        for name, kind in listing.columns
    ]
    body = [_static_row(row, listing.columns) for row in listing.rows[:STATIC_ROWS]]
    left = len(listing.rows) - len(body)
    pages = el(
        "div",
        el("button", "←", type="button", class_="before", aria_label="Previous rows"),
        el("span", class_="count"),
        el("button", "→", type="button", class_="after", aria_label="Next rows"),
        class_="pages",
    )
    search = el("input", type="search", placeholder="find a case", aria_label="Find a case")
    tools = el("div", el("div", class_="chips", role="group", aria_label="Filter"), search, pages,
               class_="tools", hidden=True)  # fmt: skip
    more = (
        el("noscript", el("p", f"Enable scripts to see {plural(left, 'more row')}.", class_="note"))
        if left > 0
        else None
    )
    drawn = el("table", el("thead", el("tr", *heads)), el("tbody", *body))
    region = el("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=title)
    return el("section", el("h2", title), tools, region, more, id="listing")


def _static_row(row: list[Any], columns: Sequence[tuple[str, str]]) -> Node:
    cells: list[Node] = []
    for (_, kind), value in zip(columns, row[2:], strict=False):
        text = MARKS.get(value, "–") if kind == "mark" else _cell_text(value)
        tone = {1: "good", 0: "bad"}.get(value) if kind == "mark" else kind
        cells.append(el("td", text, class_=tone) if cells else el("th", text, scope="row"))
    return el("tr", *cells)


def _cell_text(value: object) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
