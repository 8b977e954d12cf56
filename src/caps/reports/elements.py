"""Elements that all pages use: sections, cards, tables, folds, lists of facts."""

from collections.abc import Sequence

from caps.reports.console import Grid
from caps.reports.html import Child, Html, el

STACKED_FROM = 3  # columns; wider tables become lists in narrow windows


def section(title: str, about: str | None, *children: Child) -> Html:
    """Create a section of a page."""
    note = None if about is None else el("p", about, class_="note")
    return el("section", el("h2", title), note, *children)


def head(title: str, *more: Html | None) -> list[Html]:
    """Return the heading of a page with further elements below it."""
    return [el("h1", title), *(element for element in more if element is not None)]


def card(figure: str, name: str, *about: Child) -> Html:
    """Show a figure with its name and a note."""
    note = el("p", *about, class_="note")
    return el("div", el("p", figure, class_="figure"), el("p", name), note, class_="card")


def fold(title: Child, *children: Child, open_: bool = False) -> Html:
    """Something that is shown when it is opened."""
    return el("details", el("summary", title), *children, class_="fold", open=open_)


def facts(rows: Sequence[tuple[str, str]]) -> Html:
    """Show names with their values."""
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in rows))


def listed(sentences: Sequence[str]) -> Html:
    """Show sentences as a list."""
    return el("ul", *(el("li", f"{capital(text)}.") for text in sentences))


def capital(text: str) -> str:
    """Start a text with a capital letter."""
    return text[:1].upper() + text[1:]


def table(names: Sequence[str], rows: Sequence[Sequence[str]], label: str) -> Html:
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
    return scrolled(drawn, label, class_="scroll stack" if len(names) > STACKED_FROM else "scroll")


def grid_view(grid: Grid) -> Html:
    """Show a table of a terminal on a page."""
    names = [name or "figure" for name in grid.columns]  # no header cell is empty
    return table(names, grid.rows, grid.title or "figures")


def scrolled(child: Html, label: str, *, class_: str = "scroll") -> Html:
    """Something wide that scrolls in its own box."""
    return el("div", child, class_=class_, tabindex=0, role="region", aria_label=label)


def _is_words(cells: Sequence[str]) -> bool:
    """Whether a column holds words, not figures."""
    return any(type(cell) is str and cell[:1].isalpha() and cell != "unknown" for cell in cells)
