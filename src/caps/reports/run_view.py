"""The page of a run: what was run, how well, at what cost."""

from collections.abc import Sequence
from typing import Any

from caps.core.secrets import recorded_extra, shown_address
from caps.reports.charts import Bar, bars, timeline
from caps.reports.console import number, percent
from caps.reports.figures import Figures
from caps.reports.tree import Child, Node, el

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


def lead(made: dict[str, Any], figures: Figures, *, finished: bool) -> Node:
    """What this is, for whoever has never heard of it."""
    judge = made["model"] if not made.get("model_e1") else f"{made['model_e1']} (E1) and {made['model']} (E2)"
    state = "" if finished else " The run is not finished: this is what there is so far."
    return el(
        "p",
        f"Each of {number(figures.cases, 0)} problems came with several candidate answers, "
        "and a language model, ",
        el("b", judge),
        ", was asked which of them is right. The strategy ",
        el("b", str(made["strategy"]["name"])),
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


def settings(made: dict[str, Any]) -> Node:
    """Everything that made the run."""
    # A folder of an earlier version may hold what is not written down any more.
    addresses = {name: shown_address(made[name]) for name in ("base_url", "base_url_e1") if made.get(name)}
    made = {**made, **addresses, "extra": recorded_extra(made.get("extra") or {})}
    chosen = {**made, "strategy": made["strategy"]["name"]}
    rows: list[tuple[str, str]] = [
        (name, _told(chosen.get(name)))
        for name in (
            "cases",
            "strategy",
            "seed",
            "limit",
            "model",
            "base_url",
            "model_e1",
            "base_url_e1",
            "profile",
        )
        if chosen.get(name) is not None
    ]
    for group in ("judge", "extra", "views", "findings", "versions", "price"):
        rows += [(f"{group} · {name}", _told(value)) for name, value in (made.get(group) or {}).items()]
    rows += [
        (f"strategy · {name}", _told(value)) for name, value in made["strategy"].items() if name != "name"
    ]
    rows += [(f"prompt · {name}", _told(value)) for name, value in made["prompts"].items()]
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
