"""The page of a run: accuracy, cost, settings, and the table of its cases."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from caps.config import RunConfig
from caps.core.text import number, percent, plural
from caps.costs.ledger import Sums
from caps.costs.prices import Price
from caps.judging.several import JudgeTotals
from caps.reports.cases import CaseFacts, shortened
from caps.reports.charts import (
    HALF,
    Bar,
    Row,
    Series,
    Spot,
    bars,
    brief,
    curve,
    forest,
    shown_chart,
    timeline,
)
from caps.reports.html import Child, Node, el, visible
from caps.runs.result_lines import Line
from caps.runs.run_file import RunFile, judges_of
from caps.runs.summary import Figures, Labels, group_by_ask
from caps.statistics.estimates import wilson

UNSURE = 0.7  # choices less likely than this are listed as unsure
GLOSSARY = (
    ("E1 and E2", "How much of each answer the judge sees: a short partial view (E1) or all of it (E2)."),
    (
        "Stage A, B, C",
        "Elimination on partial views; elimination on whole answers; round-robin of the finalists.",
    ),
    ("probability", "How likely the chosen answer is right, as the strategy computes it from all it knows."),
    ("unsure", f"The probability is below {100 * UNSURE:.0f} %, or below the limit that the run set."),
    ("votes", "Candidates that give the same final answer as the chosen one, itself included."),
    ("against the majority", "Another answer has more votes than the chosen one."),
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
    chose = f"{plural(figures.cases, 'problem')} with several candidate answers each. The strategy "
    if not figures.total.calls:
        rest = (f" chose among them without asking a judge.{state}",)
        return el("p", chose, el("b", config.strategy), *rest, class_="lead")
    return el(
        "p",
        chose,
        el("b", config.strategy),
        " chose among them; the judge ",
        el("b", judge),
        f" compared them.{state}",
        class_="lead",
    )


@dataclass(slots=True)
class Choices:
    """What is known about the choices of a run beyond its totals: votes, and stated probabilities."""

    against: int = 0  # choices that differ from the most common answer
    counted: int = 0  # cases with votes
    majority: float = 0.0  # expected right choices by votes
    majority_of: int = 0
    stated: list[tuple[float, int | None]] = field(default_factory=list)  # probability, right
    unsure: int = 0


def count_choices(lines: Iterable[Line], labels: Labels, facts: Mapping[str, CaseFacts]) -> Choices:
    """Count votes and probabilities over the cases of a run."""
    found = Choices()
    for line in lines:
        right = right_of(line, labels.get(line["id"], ()))
        if line.get("probability") is not None:
            found.stated.append((line["probability"], right))
            found.unsure += is_unsure(line)
        about = facts.get(line["id"])
        if about is None or "winner" not in line:
            continue
        found.counted += 1
        found.against += not about.leads
        if right is not None and about.majority is not None:
            found.majority += about.majority
            found.majority_of += 1
    return found


def is_unsure(line: Line) -> bool:
    """Whether the probability of a choice is low."""
    probability = line.get("probability")
    return bool(line.get("abstain")) or (probability is not None and probability < UNSURE)


def cards(figures: Figures, choices: Choices, *, is_baseline: bool = False) -> Node:
    """Show the main figures; what was read is not compared with the baseline where it is the baseline."""
    shown = [_accuracy_card(figures)]
    if choices.stated:
        shown.append(_probability_card(figures, choices))
    shown.append(_cost_card(figures))
    if figures.total.calls and not is_baseline:
        shown.append(_reading_card(figures))
    shown.append(_trouble_card(figures))
    return el("div", *shown, class_="cards")


def _accuracy_card(figures: Figures) -> Node:
    if figures.pass_at_1 is None:
        return card("–", "chosen answers right", "No candidate is labelled; caps grade adds labels.")
    low, high = figures.interval
    wrong = figures.labelled - figures.right
    share = f"{number(figures.right, 0)} of {number(figures.labelled, 0)} labelled"
    note = f"{share}; 95\u00a0% interval {percent(low)} to {percent(high)}."
    link = el("a", f"{number(wrong, 0)} wrong", href="#filter=wrong") if wrong else "none wrong"
    return card(f"{percent(figures.pass_at_1)} %", "chosen answers right", note, " ", link, ".")


def _probability_card(figures: Figures, choices: Choices) -> Node:
    mean = sum(said for said, _ in choices.stated) / len(choices.stated)
    few = f"All but {number(figures.calibrated, 0)}" if figures.calibrated else "All"
    fitted: tuple[Child, ...] = ("Fitted to such cases.",)
    if figures.calibrated < figures.stated:
        fitted = (f"{few} from default assumptions; ", el("code", "--calibrate"), " fits them to your cases.")
    below = f"{number(choices.unsure, 0)} unsure"
    link = el("a", below, href="#filter=unsure") if choices.unsure else below
    note = f" (below {100 * UNSURE:.0f}\u00a0%). "
    return card(f"{percent(mean)} %", "mean probability of being right", "", link, note, *fitted)


def _cost_card(figures: Figures) -> Node:
    total, about = figures.total, "about " if figures.ledger.estimated else ""
    written = f"{about}{number(total.billed, 0)} tokens read anew, {number(total.output, 0)} written."
    if figures.usd is None:
        price = el("code", "--price-input"), " and ", el("code", "--price-output"), " state it."
        priced = (f"{written} The price of a token is unknown: ", *price)
        return card(brief(total.asked), "tokens read by the judge", *priced)
    each = figures.usd / figures.cases if figures.cases else 0.0
    return card(dollars(figures.usd), "spent on the judge", f"{dollars(each)} a case: {written}")


def _reading_card(figures: Figures) -> Node:
    share = figures.baseline.share(figures.total)
    if share is None:
        return card("–", "of V1-Infer's tokens", "Unknown: this judge compares nothing, or counts no tokens.")
    note = (
        f"{brief(figures.total.asked)} read; the baseline tournament V1-Infer would read about "
        f"{brief(figures.baseline.tokens)}."
    )
    return card(f"{percent(share)} %", "of V1-Infer's tokens", note)


UNREADABLE = {
    "no-tag": "without a verdict",
    "truncated": "cut off",
    "refused": "refused",
    "empty": "empty",
}  # by cause


def _trouble_card(figures: Figures) -> Node:
    unreadable, ties = figures.ledger.unreadable, figures.ledger.malformed.total()
    causes = "".join(
        f", {number(count, 0)} {UNREADABLE.get(cause, cause)}" for cause, count in sorted(unreadable.items())
    )
    kinds = (("provisional", figures.provisional), ("failed", figures.failed), ("rescued", figures.rescued))
    counted = f"{number(unreadable.total(), 0)} of {number(figures.total.attempts, 0)} replies{causes}. "
    if ties:
        counted += f"{plural(ties, 'question')} without a readable reply, counted as ties. "
    parts: list[Child] = [f"{counted}Cases: "]
    for place, (name, count) in enumerate(kinds):
        text = f"{number(count, 0)} {name}"
        parts += [el("a", text, href=f"#filter={name}") if count else text, ", " if place < 2 else "."]
    rate = "–" if figures.unreadable_rate is None else f"{percent(figures.unreadable_rate)} %"
    return card(rate, "of replies unreadable", "", *parts)


def dollars(value: float) -> str:
    """An amount of money with as many digits as it needs."""
    return f"${value:,.2f}" if value >= 1 else f"${value:,.4f}" if value >= 0.001 else f"${value:.2g}"


def card(figure: str, name: str, note: str, *more: Child) -> Node:
    """Show a figure with its name and a note."""
    about = el("p", note, *more, class_="note")
    return el("div", el("p", figure, class_="figure"), el("p", name), about, class_="card")


def accuracy_view(figures: Figures, choices: Choices) -> list[Node]:
    """Compare the choices with simpler ways of choosing, where labels are known."""
    if figures.pass_at_1 is None:
        return []
    low, high = figures.interval
    rows = [Row(label="chosen in this run", value=figures.pass_at_1, low=low, high=high)]
    if choices.majority_of:
        share = choices.majority / choices.majority_of
        rows.append(Row(label="most common answer", value=share, low=share, high=share, full=False))
    for label, share in (
        ("a candidate at random", figures.chance / figures.labelled),
        ("the best candidate", figures.reachable / figures.labelled),
    ):
        rows.append(Row(label=label, value=share, low=share, high=share, full=False))
    title = "Right answers, by how the answer is chosen"
    words = _majority_words(figures, choices)
    drawn = shown_chart(lambda width: forest(rows, title, ["Bar: 95 % interval."], width=width), HALF)
    shown = [section("Compared with a majority vote", words, drawn)]
    known = [(said, right) for said, right in choices.stated if right is not None]
    if len(known) >= MIN_STATED:
        shown.append(_reliability(known))
    return [el("div", *shown, class_="pair")]


def _majority_words(figures: Figures, choices: Choices) -> str:
    if not choices.majority_of:
        return "The votes are unknown, as the cases of the run cannot be read."
    share = choices.majority / choices.majority_of
    gain = figures.right / figures.labelled - share
    against = f"{number(choices.against, 0)} of {plural(choices.counted, 'choice')} are against the majority"
    if abs(gain) < 0.0005:
        return f"As many right answers as by taking the most common one. {against}."
    more = "more" if gain > 0 else "fewer"
    points = f"{percent(abs(gain))} percentage points {more} right answers"
    return f"{points} than by taking the most common one. {against}."


MIN_STATED, BINS = 10, 5


def _reliability(known: Sequence[tuple[float, int | None]]) -> Node:
    """Compare stated probabilities with the share of right choices, in groups of about equal size."""
    ordered = sorted(known, key=lambda one: one[0])
    count = min(BINS, len(ordered) // 5) or 1
    spots = []
    for place in range(count):
        part = ordered[place * len(ordered) // count : (place + 1) * len(ordered) // count]
        right = sum(bool(one) for _, one in part)
        low, high = wilson(right, len(part))
        mean = sum(said for said, _ in part) / len(part)
        spots.append(Spot(at=mean, right=right / len(part), low=low, high=high, count=len(part)))
    brier = sum((said - bool(right)) ** 2 for said, right in ordered) / len(ordered)
    said, found = (sum(one[place] or 0 for one in ordered) / len(ordered) for place in (0, 1))
    title = "Stated probability against the share of right choices"
    stated = [(step / 5, f"{20 * step} %") for step in range(6)]
    series = [Series(name="", spots=spots, full=True)]
    drawn = shown_chart(
        lambda width: curve(
            series, title, ["Groups of equal size; whiskers: 95 % intervals."], stated=stated,
            axis="stated probability", ideal="as stated", coin=False, width=width,
        ),
        HALF,
    )  # fmt: skip
    words = (
        f"It says {percent(said)} % on average and is right in {percent(found)} %. Mean squared error of the "
        f"probabilities (Brier score): {brier:.3f}; 0 is perfect, 0.25 is always saying 50 %."
    )
    return section("Can the probability be trusted?", words, drawn)


def tokens_view(figures: Figures, price: Price | None) -> Node:
    """Show tokens and money by stage and level, as bars and as a table."""
    lines = sorted(figures.ledger.lines.items(), key=lambda line: (line[0][0], str(line[0][1])))
    rows = [
        Bar(f"{stage} at {level}", ((f"{level}".lower(), sums.asked),), number(sums.asked, 0))
        for (stage, level), sums in lines
    ]
    reference = None
    if baseline := figures.baseline.tokens:
        reference = (baseline, f"V1-Infer, all in all: about {number(baseline, 0)}")
    names = ["stage", "evidence", "calls", "tokens read", "of them new", "cached", "written"]
    names += [] if price is None else ["cost"]
    body = [_stage_cells(stage, str(level), sums, price) for (stage, level), sums in lines]
    if len(body) > 1:
        body.append(_stage_cells("total", "", figures.total, price))
    return el(
        "div",
        bars(rows, "Tokens read by the judge, by stage", reference=reference),
        table(names, body, "tokens by stage"),
    )


def _stage_cells(stage: str, level: str, sums: Sums, price: Price | None) -> tuple[str, ...]:
    counts = (sums.calls, sums.asked, sums.billed, sums.cached, sums.output)
    money = () if price is None else (dollars(price.of_sums(sums)),)
    return (stage, level, *(number(value, 0) for value in counts), *money)


def timeline_view(stamps: Sequence[tuple[float, str]]) -> Node | None:
    """Show calls over time; None if there are too few."""
    drawn = timeline(stamps, f"{plural(len(stamps), 'call')} over time")
    if drawn is None:
        return None
    legend = el(
        "p", el("span", class_="key e1"), "E1, partial views ", el("span", class_="key e2"),
        "E2, whole answers", class_="note",
    )  # fmt: skip
    return section("Calls over time", "By the timestamps of the journal.", drawn, legend)


def settings_view(file: RunFile) -> Node:
    """Show all settings that differ from their defaults, with versions and prompt digests."""
    defaults, config = RunConfig().to_dict(), file.to_row()["config"]
    rows: list[tuple[str, str]] = [("cases", file.cases)]
    rows += [] if file.limit is None else [("limit", str(file.limit))]
    rows += [] if file.shard is None else [("shard", file.shard)]
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


def judges_view(lines: Iterable[Line]) -> list[Node]:
    """Show what each of several judges was asked, how far it agrees with their mean, and what it cost."""
    totals: dict[str, JudgeTotals] = {}
    for line in lines:
        for name, row in line.get("judges", {}).items():
            totals.setdefault(name, JudgeTotals()).add_line(row)
    if not totals:
        return []
    rows = [
        (
            name,
            number(judge.asks, 0),
            number(judge.unanswered.total(), 0),
            number(judge.unreadable, 0),
            percent(judge.agreement),
            number(judge.billed + judge.output, 0),
            "" if judge.usd is None else f"{judge.usd:.4f}",
        )
        for name, judge in totals.items()
    ]
    about = (
        "Agreement is the share of a judge's answers that prefer the same candidate as the mean of all, "
        "over asks that at least two of them answered. The receipt of a case shows what each judge said."
    )
    columns = ("judge", "asks", "unanswered", "unreadable replies", "agreement %", "tokens billed", "USD")
    return [section("Judges", about, table(columns, rows, "judges"))]


def table(names: Sequence[str], rows: Sequence[Sequence[str | Node]], name: str) -> Node:
    """Show a plain table; the first column is the row header. In narrow windows a row becomes a list."""
    kinds = ["text" if _is_words([row[place] for row in rows]) else None for place in range(len(names))]
    heads = [el("th", name, scope="col", class_=kind) for name, kind in zip(names, kinds, strict=True)]
    body = []
    for row in rows:
        cells = [
            el("td", cell, class_=kind, data_name=name)
            for name, kind, cell in list(zip(names, kinds, row, strict=True))[1:]
        ]
        body.append(el("tr", el("th", row[0], scope="row"), *cells))
    drawn = el("table", el("thead", el("tr", *heads)), el("tbody", *body))
    class_ = "scroll stack" if len(names) > STACKED_FROM else "scroll"
    return el("div", drawn, class_=class_, tabindex=0, role="region", aria_label=name)


STACKED_FROM = 3  # columns; wider tables become lists in narrow windows


def _is_words(cells: Sequence[str | Node]) -> bool:
    """Whether a column holds words, not figures."""
    return any(isinstance(cell, str) and cell[:1].isalpha() and cell != "unknown" for cell in cells)


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


STATIC_ROWS = 100  # shown without scripts
MARKS = {1: "✓ right", 0: "✗ wrong"}
SEARCHED_CHARACTERS = 4_000_000  # of all problems on a page
LEAST_SEARCHED = 160  # of one problem


@dataclass(frozen=True, slots=True)
class Listing:
    """A table of cases: columns (name, kind, explanation), filters, and rows.

    A row is [filter flags as bits, indices of receipts, cell, ..., other words to find it by, summary of the
    judge calls]. The first cell is the name of the case. Kinds are `text`, `number`, `mark` (1 right, 0
    wrong), `share` (a probability) and `long` (a text of which only the start is shown); `wide` columns are
    hidden in narrow windows.
    """

    columns: tuple[tuple[str, str, str], ...]
    filters: tuple[str, ...]
    rows: Sequence[list[Any]]


CASE = ("case", "text", "the id of the case")
FILTERS = (
    "right", "wrong", "unsure", "against the majority", "rescued", "provisional", "unreadable", "failed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowContext:
    """What the rows of a run have in common: what is known of each case, and which columns there are."""

    calls: Mapping[str, list[Line]]
    labels: Labels
    facts: Mapping[str, CaseFacts]
    stated: bool  # whether choices have probabilities
    priced: bool
    searched: int  # characters of a problem; 0 leaves out all texts

    @property
    def columns(self) -> tuple[tuple[str, str, str], ...]:
        """The columns of the table."""
        texts = [
            ("answer", "text words", "the answer of the chosen candidate"),
            ("problem", "long", "the beginning of the problem"),
        ]
        stated = ("probability", "share", "how likely the choice is right, as the strategy computes it")
        return (
            CASE,
            ("result", "mark", "the label of the chosen candidate"),
            *(texts if self.searched else ()),
            *((stated,) if self.stated else ()),
            ("votes", "number", "candidates with the chosen answer, of all candidates"),
            ("answers", "number wide", "distinct answers among the candidates"),
            ("calls", "number wide", "questions to the judge"),
            ("tokens read", "number wide", "tokens of all prompts of the case"),
            *((("cost", "money wide", "dollars for the judge"),) if self.priced else ()),
            ("note", "text wide", "what else happened; the filters have the same names"),
        )


def searched_characters(cases: int) -> int:
    """How much of each problem a page can hold."""
    return max(LEAST_SEARCHED, SEARCHED_CHARACTERS // max(cases, 1))


def run_rows(selections: Sequence[Line], context: RowContext, *, start: int = 0) -> list[list[Any]]:
    """Return a row for each case from `start` on."""
    return [_row(index, line, context) for index, line in enumerate(selections[start:], start)]


def right_of(line: Line, known: Sequence[bool | None]) -> int | None:
    """Return 1 if the chosen answer is right, 0 if it is wrong, None if it has no label."""
    winner = line.get("winner")
    label = known[winner] if winner is not None and winner < len(known) else None
    return None if label is None else int(label)


def _row(index: int, line: Line, context: RowContext) -> list[Any]:
    about, texts = context.facts.get(line["id"]), bool(context.searched)
    problem = "" if about is None or not texts else about.problem[: context.searched].strip()
    failed = "winner" not in line
    right = None if failed else right_of(line, context.labels.get(line["id"], ()))
    flags = (
        right == 1,
        right == 0,
        not failed and is_unsure(line),
        about is not None and not failed and not about.leads,
        not failed and line["rescued"] is not None,
        not failed and line["provisional"],
        not failed and bool(line["malformed"]),
        failed,
    )
    notes = [name for name, flag in zip(FILTERS[3:], flags[3:], strict=True) if flag]
    shown = [] if not texts else ["" if about is None else visible(about.answer), visible(problem)]
    others = " ".join(about.others) if about is not None and texts else ""
    calls = context.calls.get(line["id"], [])
    if failed:
        empty = [None] * (len(context.columns) - 3 - len(shown))
        end = ["failed", others, visible(str(line["error"]))]
        return [pack_flags(flags), [index], visible(line["id"]), None, *shown, *empty, *end]
    return [
        pack_flags(flags), [index], visible(line["id"]), right, *shown,
        *([line.get("probability")] if context.stated else []),
        None if about is None else f"{about.votes} of {about.voters}",
        line["clusters"], sum(line["calls"].values()), line["tokens"]["asked"],
        *([line.get("usd")] if context.priced else []),
        ", ".join(notes), visible(others), calls_text(calls),
    ]  # fmt: skip


def pack_flags(flags: Sequence[bool]) -> int:
    """Pack flags into the bits of a number."""
    return sum(1 << bit for bit, flag in enumerate(flags) if flag)


def calls_text(calls: list[Line]) -> str:
    """Summarise the judge calls of a case: A at E1: 3>7! 5=9 C at E2: 3<5; `!` marks sure verdicts."""
    parts, stage = [], None
    for attempts in group_by_ask(calls):
        line = attempts[-1]
        if line["stage"] != stage:
            stage = line["stage"]
            parts.append(f"{stage} at {line['level']}:")
        ratings = line.get("ratings")
        if "pair" in line and ratings is not None:
            one, other = line["pair"]
            a, b = (one, other) if one == line["a"] else (other, one)
            apart = ratings[0] - ratings[1]
            parts.append(
                f"{a}{'=' if not apart else '>' if apart > 0 else '<'}{b}{'!' if abs(apart) >= 4 else ''}"
            )
        else:
            value = line.get("rating", line.get("pick"))
            shown = line["pair"] if "pair" in line else line["shown"]
            parts.append(f"{','.join(map(str, shown))}={'?' if value is None else value}")
    return " ".join(parts)


def listing_view(listing: Listing, title: str) -> Node:
    """Show the table with its controls, which need scripts; without scripts, its first rows."""
    heads = [
        el("th", el("button", name, type="button", title=about), scope="col", class_=kind, aria_sort="none")
        for name, kind, about in listing.columns
    ]
    body = [_static_row(row, listing.columns) for row in listing.rows[:STATIC_ROWS]]
    left = len(listing.rows) - len(body)
    pages = el(
        "div",
        el("button", "←", type="button", class_="before", aria_label="Previous rows"),
        el("span", class_="count", role="status"),
        el("button", "→", type="button", class_="after", aria_label="Next rows"),
        class_="pages",
    )
    order = [el("option", f"by {name}", value=str(place)) for place, (name, *_) in enumerate(listing.columns)]
    tools = el(
        "div",
        el("div", class_="chips", role="group", aria_label="Filter"),
        el("input", type="search", placeholder="find in problems and answers  /", aria_label="Find a case"),
        el("select", el("option", "in order", value=""), *order, aria_label="Sort", class_="sorting"),
        pages,
        class_="tools",
        hidden=True,
    )
    more = (
        el("noscript", el("p", f"Enable scripts to see {plural(left, 'more row')}.", class_="note"))
        if left > 0
        else None
    )
    drawn = el("table", el("thead", el("tr", *heads)), el("tbody", *body))
    region = el("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=title)
    meaning = facts([(name, capital(about) + ".") for name, _, about in listing.columns if about])
    terms = el("details", el("summary", "What the columns mean"), meaning, class_="fold")
    return el("section", el("h2", title), tools, region, more, terms, id="listing")


def _static_row(row: list[Any], columns: Sequence[tuple[str, str, str]]) -> Node:
    cells: list[Node] = []
    for (_, kind, _), value in zip(columns, row[2:], strict=False):
        text = MARKS.get(value, "–") if kind == "mark" else _cell_text(value, kind)
        tone = {1: "good", 0: "bad"}.get(value, "mark") if kind == "mark" else kind
        shown: Child = el("span", text, class_="clamp") if kind.startswith(("long", "text")) else text
        cells.append(el("td", shown, class_=tone) if cells else el("th", text, scope="row"))
    return el("tr", *cells)


def _cell_text(value: Any, kind: str) -> str:
    if value is None or value == "":
        return "–" if value is None else ""
    if kind.startswith("share"):
        return f"{percent(value)} %"
    if kind.startswith("money"):
        return dollars(value)
    if kind.startswith("long"):
        return shortened(value, LONG_SHOWN)
    return f"{value:,}" if isinstance(value, int) else str(value)


LONG_SHOWN = 140  # characters of a long text in a table
