"""A page put together: one file that asks nothing of the network; what would make it large lies beside it."""

import html
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from gzip import compress
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from shutil import rmtree
from typing import Any

from caps.core.errors import InputError
from caps.reports.listing import Listing, listing_view
from caps.reports.tree import Node, Texts, el, markup, plain, safe_json

STYLES = ("style.css", "chart.css")
SCRIPTS = ("build.js", "table.js", "main.js")
WHOLE = 6_000_000  # characters of receipts a page carries itself; more go beside it
SHARD = 1_000_000
_SLOT = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Page:
    """What a page shows, before it is written."""

    title: str
    figures: Sequence[Node]
    after: Sequence[Node] = ()
    listing: Listing | None = None
    listed: str = "The cases"
    footer: str = ""
    status: str = ""
    texts: Sequence[str] = ()
    live: bool = False
    runs: Sequence[str] = ()


@dataclass(slots=True)
class Kept:
    """Receipts of a page: those it carries itself, or the folder they lie in and where each file starts."""

    own: list[str] = field(default_factory=list)
    folder: str | None = None
    starts: list[int] | None = None


def receipt_json(view: Node, texts: Texts) -> str:
    """A receipt as the page's script reads it."""
    return safe_json({"tree": plain(view), "texts": texts.kept})


def write_page(page: Page, receipts: Iterable[str], out: Path) -> list[Path]:
    """Write a page, and its receipts beside it where they would make it large; the files written."""
    try:
        kept, files_ = _keep(receipts, out.with_name(f"{out.stem}_files"))
        out.write_text(page_html(page, kept), "utf-8")
    except OSError as error:
        raise InputError(f"{error.filename or out}: {error.strerror or error}") from None
    return [out, *files_]


def page_html(page: Page, kept: Kept) -> str:
    """The page as HTML."""
    figures = "".join(markup(node, page.texts) for node in page.figures)
    listing = page.listing
    data = {
        "columns": () if listing is None else listing.columns,
        "filters": () if listing is None else listing.filters,
        "rows": () if listing is None else listing.rows,
        "folder": kept.folder,
        "shards": kept.starts,
        "live": page.live,
        "runs": page.runs,
    }
    # Receipts are JSON already: they are put in, not encoded again.
    told = f'{safe_json(data)[:-1]},"receipts":[{",".join(kept.own)}]}}'
    style, script = "".join(map(_asset, STYLES)), shown_script()
    loads = kept.folder is not None
    return _fill(
        _asset("page.html"),
        {
            "policy": html.escape(policy(style, script, loads=loads, live=page.live)),
            "title": html.escape(page.title),
            "style": style,
            "status": html.escape(page.status),
            "overview": f'<div id="figures">{figures}</div>',
            "listing": "" if listing is None else markup(listing_view(listing, page.listed)),
            "after": "".join(markup(node, page.texts) for node in page.after),
            "footer": html.escape(page.footer),
            "data": told,
            "script": script,
        },
    )


def policy(style: str, script: str, *, loads: bool, live: bool) -> str:
    """What the page may do: run its own script, use its own style, and nothing else."""
    scripts = f"'{_digest(script)}'" + (" 'self'" if loads else "")
    reach = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src '{_digest(style)}'; "
        f"connect-src {reach}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types caps"
    )


def shown_script() -> str:
    """All scripts as one, out of the reach of others."""
    return '"use strict";(() => {\n' + "\n".join(map(_asset, SCRIPTS)) + "})();\n"


def shard(start: int, receipts: Sequence[str]) -> str:
    """A script that hands over receipts, packed: they are ten times smaller so."""
    packed = compress(f"[{','.join(receipts)}]".encode(), 6, mtime=0)
    return f'capsShard({start},"{b64encode(packed).decode()}");\n'


def head(title: str, *more: Node | None) -> list[Node]:
    """The head of a page's figures."""
    return [el("h1", title), *(one for one in more if one is not None)]


def _keep(receipts: Iterable[str], folder: Path) -> tuple[Kept, list[Path]]:
    """Gather receipts until they are too many for one page, then write all of them out in parts."""
    kept, size, written = Kept(), 0, list[Path]()
    if folder.is_dir():
        rmtree(folder)  # of an earlier page of the same name
    part: list[str] = []
    starts: list[int] = []
    place = 0
    for receipt in receipts:
        part.append(receipt)
        place += 1
        size += len(receipt)
        if size > (SHARD if starts else WHOLE):
            written += _write_parts(folder, part, place, starts)
            part, size = [], 0
    if not starts:
        kept.own = part
        return kept, written
    written += _write_parts(folder, part, place, starts)
    return Kept([], folder.name, starts), written


def _write_parts(folder: Path, part: Sequence[str], end: int, starts: list[int]) -> list[Path]:
    folder.mkdir(exist_ok=True)
    written, first, held, size = list[Path](), end - len(part), list[str](), 0
    for place, receipt in enumerate(part, first):
        held.append(receipt)
        size += len(receipt)
        if size > SHARD or place == end - 1:
            start = place + 1 - len(held)
            path = folder / f"{len(starts)}.js"
            path.write_text(shard(start, held), "utf-8")
            starts.append(start)
            written.append(path)
            held, size = [], 0
    return written


def _fill(template: str, values: dict[str, Any]) -> str:
    """Fill the slots in one pass, so that a slot inside a value stays what it is."""
    return _SLOT.sub(lambda slot: values[slot[1]], template)


def _asset(name: str) -> str:
    return (files("caps.reports") / "web" / name).read_text("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
