"""Pages: one self-contained HTML file; large parts lie in files beside it."""

import html
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from gzip import compress
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from secrets import token_hex
from typing import Any

from caps.core.errors import InputError
from caps.files import Output, file_errors, write_file
from caps.reports.html import Node, Texts, el, markup, plain, safe_json
from caps.reports.run_page import Listing, listing_view

STYLES = ("style.css", "chart.css")
SCRIPTS = ("build.js", "table.js", "main.js")
WHOLE = 6_000_000  # characters of receipts a page carries itself; more go beside it
SHARD = 1_000_000
_PART = re.compile(r"\d+\.js")
_SHARD_HEAD = b"capsShard("
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
class StoredReceipts:
    """Receipts of a page: those it carries itself, or the folder they lie in and where each file starts."""

    own: list[str] = field(default_factory=list)
    folder: str | None = None
    starts: list[int] | None = None


def receipt_json(view: Node, texts: Texts) -> str:
    """A receipt as the page's script reads it."""
    return safe_json({"tree": plain(view), "texts": texts.kept})


def write_page(page: Page, receipts: Iterable[str], out: Path) -> list[Path]:
    """Write a page, and its receipts beside it where they would make it large; the files written."""
    folder = out.with_name(f"{out.stem}_files")
    with file_errors(str(folder)), Output(out, option="--output") as output, _Beside(folder) as beside:
        kept = _keep(receipts, beside)
        output.write(page_html(page, kept).encode())
        written = beside.finish()
        output.finish()
    return [out, *written]


def page_html(page: Page, kept: StoredReceipts) -> str:
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


class _Beside:
    """The folder of a page's parts; a context manager. Only `finish` gives it its name.

    A folder of that name is replaced only if it holds parts of a page of ours and nothing else: browsers
    make folders of such names too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._names = folder, list[str]()
        self._made: Path | None = None

    def __enter__(self) -> "_Beside":
        return self

    def __exit__(self, *_: object) -> None:
        if self._made is not None:
            with suppress(OSError):
                _remove_parts(self._made)

    def add(self, text: str) -> None:
        """Write a part: `0.js`, `1.js` and so on."""
        if self._made is None:
            self._refuse_others()
            made = self.folder.with_name(f".{self.folder.name[:40]}.{token_hex(6)}.partial")
            made.mkdir()
            self._made = made
        name = f"{len(self._names)}.js"
        write_file(self._made / name, text.encode())
        self._names.append(name)

    def finish(self) -> list[Path]:
        """Put the folder in its place, or take away the one of an earlier page; its files."""
        if _is_ours(self.folder):
            _remove_parts(self.folder)
        if self._made is not None:
            self._made.rename(self.folder)
            self._made = None
        return [self.folder / name for name in self._names]

    def _refuse_others(self) -> None:
        if os.path.lexists(self.folder) and not _is_ours(self.folder):
            raise InputError(
                f"{self.folder}: is not a folder that caps report made: move it, or name another page"
            )


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds parts of a page and nothing else: each is marked by how it begins."""
    return not folder.is_symlink() and folder.is_dir() and all(map(_is_part, folder.iterdir()))


def _is_part(path: Path) -> bool:
    if not _PART.fullmatch(path.name) or path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SHARD_HEAD)) == _SHARD_HEAD


def _remove_parts(folder: Path) -> None:
    """Remove a folder of ours, and nothing from it that we did not write."""
    for path in folder.iterdir():
        if _is_part(path):
            path.unlink()
    folder.rmdir()


def _keep(receipts: Iterable[str], beside: _Beside) -> StoredReceipts:
    """Gather receipts until they are too many for one page, then write all of them out in parts."""
    size = 0
    part: list[str] = []
    starts: list[int] = []
    place = 0
    for receipt in receipts:
        part.append(receipt)
        place += 1
        size += len(receipt)
        if size > (SHARD if starts else WHOLE):
            _write_parts(beside, part, place, starts)
            part, size = [], 0
    if not starts:
        return StoredReceipts(part)
    _write_parts(beside, part, place, starts)
    return StoredReceipts([], beside.folder.name, starts)


def _write_parts(beside: _Beside, part: Sequence[str], end: int, starts: list[int]) -> None:
    first, held, size = end - len(part), list[str](), 0
    for place, receipt in enumerate(part, first):
        held.append(receipt)
        size += len(receipt)
        if size > SHARD or place == end - 1:
            start = place + 1 - len(held)
            beside.add(shard(start, held))
            starts.append(start)
            held, size = [], 0


def _fill(template: str, values: dict[str, Any]) -> str:
    """Fill the slots in one pass, so that a slot inside a value stays what it is."""
    return _SLOT.sub(lambda slot: values[slot[1]], template)


def _asset(name: str) -> str:
    return (files("caps.reports") / "web" / name).read_text("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
