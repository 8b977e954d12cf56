"""Tables of cases: columns, filters, and rows that the page sorts, filters, searches and saves as CSV."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import quote

from caps.core.text import percent, plural
from caps.reports.answers import shortened_words
from caps.reports.elements import capital, facts, fold, scrolled
from caps.reports.html import Html, el, visible
from caps.reports.numbers import dollars

STATIC_ROWS = 100  # shown without scripts
LONG_SHOWN = 140  # characters of a long text in a table
MARKS = {
    "right": ("✓ right", "good"),
    "missed": ("✗ missed", "bad"),
    "impossible": ("✗ impossible", "mark"),
}
Kind: TypeAlias = Literal["text", "words", "long", "mark", "share", "money", "number"]
Value: TypeAlias = str | float | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `words` is an answer, `long` a text of which the start is shown, `share` a probability.

    `shown` says where: always, in `wide` windows, or only when it is `chosen`.
    """

    name: str
    kind: Kind
    about: str
    shown: Literal["", "wide", "chosen"] = ""

    @property
    def style(self) -> str:
        """The classes of its cells."""
        return f"{self.kind} {self.shown}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A case: its values by column, the receipts it opens, and the filters it passes as bits.

    `words` are further words to find it by, `groups` its value of each field by which cases are grouped.
    `html` is the row as the page shows it.
    """

    name: str
    values: Sequence[Value]
    receipts: Sequence[int]
    flags: int = 0
    words: str = ""
    groups: Sequence[str] = ()
    html: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """A table of cases; `fields` are those by which they are grouped."""

    columns: Sequence[Column]
    filters: Sequence[str]
    rows: Sequence[Row]
    fields: Sequence[str] = field(default_factory=tuple)


UNESCAPED = "-_.!~*'()"  # in an address, as by encodeURIComponent
CASE = Column("case", "text", "the id of the case")


def case_address(name: str) -> str:
    """The address of a case on its page, escaped as the script of the page does."""
    return f"#case={quote(name, safe=UNESCAPED)}"


def group_address(field_: str, group: str) -> str:
    """The address of the cases of a group."""
    return f"#group={quote(visible(f'{field_}:{group}'), safe=UNESCAPED)}"


def make_row(
    columns: Sequence[Column],
    values: Sequence[Value],
    receipts: Sequence[int],
    *,
    flags: Sequence[bool] = (),
    words: str = "",
    groups: Sequence[str] = (),
) -> Row:
    """Create a row; its first value is the name of the case."""
    shown = [visible(value) if isinstance(value, str) else value for value in values]
    name = str(shown[0])
    cells = [el("th", el("a", name, href=case_address(name)), scope="row")]
    cells += [_cell(column, value) for column, value in zip(columns[1:], shown[1:], strict=True)]
    return Row(
        name=name,
        values=shown,
        receipts=receipts,
        flags=sum(1 << bit for bit, flag in enumerate(flags) if flag),
        words=visible(words),
        groups=[visible(group) for group in groups],
        html=str(el("tr", *cells)),
    )


def _cell(column: Column, value: Value) -> Html:
    if column.kind == "mark":
        text, tone = MARKS.get(str(value), ("–", "mark"))
        return el("td", text, class_=f"{tone} outcome", data_name=column.name)
    text = _cell_text(column.kind, value)
    if column.kind in ("text", "words", "long"):
        return el("td", el("bdi", text, class_="clamp"), class_=column.style, data_name=column.name)
    return el("td", text, class_=column.style, data_name=column.name)


def _cell_text(kind: Kind, value: Value) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return shortened_words(value, LONG_SHOWN) if kind == "long" else value
    if kind == "share":
        return f"{percent(value)} %"
    return dollars(value) if kind == "money" else f"{value:,}"


def listing_view(listing: Listing, title: str) -> Html:
    """Show the table with its controls, which need scripts; without scripts, its first rows."""
    heads = [
        el(
            "th",
            el("button", column.name, type="button", title=column.about),
            scope="col",
            class_=column.style,
            aria_sort="none",
        )
        for column in listing.columns
    ]
    body = [Html(row.html) for row in listing.rows[:STATIC_ROWS]]
    left = len(listing.rows) - len(body)
    more = f"Enable scripts to see {plural(left, 'more row')}."
    drawn = el("table", el("thead", el("tr", *heads)), el("tbody", *body))
    meaning = facts([(column.name, f"{capital(column.about)}.") for column in listing.columns])
    return el(
        "section",
        el("h2", title),
        _tools(listing.columns),
        scrolled(drawn, title),
        el("noscript", el("p", more, class_="note")) if left > 0 else None,
        fold("What the columns mean", meaning),
        id="listing",
    )


def _tools(columns: Sequence[Column]) -> Html:
    """The controls of a table."""
    order = [el("option", f"by {column.name}", value=str(place)) for place, column in enumerate(columns)]
    boxes = [
        el("label", el("input", type="checkbox", value=place, checked=not column.shown), column.name)
        for place, column in enumerate(columns)
        if place
    ]
    return el(
        "div",
        el("div", class_="chips", role="group", aria_label="Filter"),
        el("input", type="search", placeholder="find in problems and answers  /", aria_label="Find a case"),
        el("select", el("option", "in order", value=""), *order, aria_label="Sort", class_="sorting"),
        el("details", el("summary", "Columns"), el("div", *boxes), class_="columns"),
        el("button", "CSV", type="button", class_="csv", title="Save the rows that are shown"),
        el(
            "div",
            el("button", "←", type="button", class_="before", aria_label="Previous rows"),
            el("span", class_="count", role="status"),
            el("button", "→", type="button", class_="after", aria_label="Next rows"),
            class_="pages",
        ),
        class_="tools",
        hidden=True,
    )
