"""HTML pages: one self-contained file; the receipts of large runs are in files beside it."""

import html
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from gzip import compress
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from secrets import token_hex
from typing import Any

from caps.core.errors import InputError
from caps.files import Output, file_errors, write_file
from caps.reports.html import TEMPLATES, Node, TextTable, el, markup, safe_json
from caps.reports.run_page import Listing, listing_view

STYLES = ("style.css", "chart.css", "views.css", "receipt.css")
SCRIPTS = ("build.js", "rich.js", "table.js", "receipt.js", "main.js", "live.js")
LIBRARIES = ("prism.js", "katex.js", "markdown-it.js", "diff.js")
INLINE_LIMIT = 6_000_000  # characters of receipts inside a page; more are written beside it
SHARD_SIZE = 1_000_000
_PART = re.compile(r"\d+\.js")
_SHARD_HEAD = b"capsShard("
_SLOT = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page."""

    title: str
    figures: Sequence[Node]
    details: Sequence[Node] = ()
    after: Sequence[Node] = ()
    listing: Listing | None = None
    listing_title: str = "Cases"
    footer: str = ""
    status: str = ""
    texts: Sequence[str] = ()
    live: bool = False
    runs: Sequence[str] = ()


@dataclass(slots=True)
class StoredReceipts:
    """The receipts of a page: inline, or a folder with the index of the first receipt of each file."""

    inline: list[str] = field(default_factory=list)
    folder: str | None = None
    starts: list[int] | None = None


def receipt_json(view: Node, texts: TextTable) -> str:
    """Encode a receipt for the page's script."""
    return safe_json({"tree": view, "texts": texts.texts})


def write_page(page: Page, receipts: Iterable[str], out: Path) -> list[Path]:
    """Write a page, and its receipts beside it if they are large; return the files written."""
    folder = out.with_name(f"{out.stem}_files")
    with file_errors(str(folder)), Output(out, option="--output") as output, _PartsFolder(folder) as parts:
        output.write(page_html(page, _store(receipts, parts)).encode())
        written = parts.finish()
        output.finish()
    return [out, *written]


def page_html(page: Page, receipts: StoredReceipts) -> str:
    """Return the page as HTML."""
    figures = "".join(markup(node, page.texts) for node in page.figures)
    listing = page.listing
    data = {
        "columns": () if listing is None else listing.columns,
        "filters": () if listing is None else listing.filters,
        "rows": () if listing is None else listing.rows,
        "templates": TEMPLATES if receipts.inline or receipts.folder else {},
        "folder": receipts.folder,
        "shards": receipts.starts,
        "live": page.live,
        "runs": page.runs,
    }
    # Receipts are JSON already, so they are inserted, not encoded again.
    encoded = f'{safe_json(data)[:-1]},"receipts":[{",".join(receipts.inline)}]}}'
    style = "".join(map(asset, STYLES))
    script = '"use strict";(() => {\n' + "\n".join(map(asset, SCRIPTS)) + "})();\n"
    loads = receipts.folder is not None
    rich = loads or bool(receipts.inline) or bool(page.texts)
    libraries, library_digest = _libraries() if rich else ("", "")
    return fill(
        asset("page.html"),
        {
            "policy": html.escape(
                _security_policy(style, [digest(script), library_digest], loads=loads, live=page.live)
            ),
            "title": html.escape(page.title),
            "style": style,
            "status": html.escape(page.status),
            "overview": f'<div id="figures">{figures}</div>',
            "listing": "" if listing is None else markup(listing_view(listing, page.listing_title)),
            "after": f'<div id="details">{"".join(markup(node, page.texts) for node in page.details)}</div>'
            + "".join(markup(node, page.texts) for node in page.after),
            "footer": html.escape(page.footer),
            "data": encoded,
            "libraries": libraries,
            "script": script,
        },
    )


@cache
def _libraries() -> tuple[str, str]:
    """The libraries that render texts, packed for the page, and the digest that lets them run.

    The page starts them when the first text is opened.
    """
    code = "window.Prism={manual:true};\n" + "\n".join(asset(f"vendor/{name}") for name in LIBRARIES)
    packed = b64encode(compress(code.encode(), 9, mtime=0)).decode()
    return f'<script type="text/plain" id="libraries">{packed}</script>', digest(code)


def _security_policy(style: str, scripts: Sequence[str], *, loads: bool, live: bool) -> str:
    """Return the Content-Security-Policy: the page may use its own scripts and style only."""
    allowed = " ".join(f"'{digest}'" for digest in scripts if digest) + (" 'self'" if loads else "")
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src '{digest(style)}'; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types caps"
    )


def shard(start: int, receipts: Sequence[str]) -> str:
    """Return a script that delivers compressed receipts, at about a tenth of their size."""
    packed = compress(f"[{','.join(receipts)}]".encode(), 4, mtime=0)
    return f'capsShard({start},"{b64encode(packed).decode()}");\n'


def head(title: str, *more: Node | None) -> list[Node]:
    """Return the heading of a page with further nodes below it."""
    return [el("h1", title), *(one for one in more if one is not None)]


class _PartsFolder:
    """Writes the folder with the parts of a page; a context manager. Only `finish` gives it its final name.

    An existing folder of that name is replaced only if it holds nothing but parts of a page of caps: browsers
    create folders with such names too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._names = folder, list[str]()
        self._temporary: Path | None = None

    def __enter__(self) -> "_PartsFolder":
        return self

    def __exit__(self, *_: object) -> None:
        if self._temporary is not None:
            with suppress(OSError):
                _remove_parts(self._temporary)

    def add(self, text: str) -> None:
        """Write a part: `0.js`, `1.js` and so on."""
        if self._temporary is None:
            self._refuse_foreign_folder()
            temporary = self.folder.with_name(f".{self.folder.name[:40]}.{token_hex(6)}.partial")
            temporary.mkdir()
            self._temporary = temporary
        name = f"{len(self._names)}.js"
        write_file(self._temporary / name, text.encode())
        self._names.append(name)

    def finish(self) -> list[Path]:
        """Move the folder to its final name, replacing that of an earlier page; return its files."""
        if _is_ours(self.folder):
            _remove_parts(self.folder)
        if self._temporary is not None:
            self._temporary.rename(self.folder)
            self._temporary = None
        return [self.folder / name for name in self._names]

    def _refuse_foreign_folder(self) -> None:
        if os.path.lexists(self.folder) and not _is_ours(self.folder):
            raise InputError(f"{self.folder}: was not written by caps report: move it, or name another page")


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds nothing but parts of a page, which are recognised by their first bytes."""
    return not folder.is_symlink() and folder.is_dir() and all(map(_is_part, folder.iterdir()))


def _is_part(path: Path) -> bool:
    if not _PART.fullmatch(path.name) or path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SHARD_HEAD)) == _SHARD_HEAD


def _remove_parts(folder: Path) -> None:
    """Remove the parts of a page and their folder; any other file is left alone."""
    for path in folder.iterdir():
        if _is_part(path):
            path.unlink()
    folder.rmdir()


def _store(receipts: Iterable[str], parts: _PartsFolder) -> StoredReceipts:
    """Collect receipts until they are too large for one page, then write all of them in parts."""
    size = end = 0
    part: list[str] = []
    starts: list[int] = []
    for end, receipt in enumerate(receipts, 1):
        part.append(receipt)
        size += len(receipt)
        if size > (SHARD_SIZE if starts else INLINE_LIMIT):
            _write_parts(parts, part, end, starts)
            part, size = [], 0
    if not starts:
        return StoredReceipts(part)
    _write_parts(parts, part, end, starts)
    return StoredReceipts([], parts.folder.name, starts)


def _write_parts(parts: _PartsFolder, receipts: Sequence[str], end: int, starts: list[int]) -> None:
    start, held, size = end - len(receipts), list[str](), 0
    for index, receipt in enumerate(receipts, start):
        held.append(receipt)
        size += len(receipt)
        if size > SHARD_SIZE or index == end - 1:
            parts.add(shard(start, held))
            starts.append(start)
            start, held, size = index + 1, [], 0


def fill(template: str, values: dict[str, Any]) -> str:
    """Fill the slots in one pass, so that a slot inside a value is not filled."""
    return _SLOT.sub(lambda slot: values[slot[1]], template)


def asset(name: str) -> str:
    """Read a style, script or template of pages."""
    return (files("caps.reports") / "web" / name).read_text("utf-8")


def digest(text: str) -> str:
    """Return the digest of a script or style, as a Content-Security-Policy names it."""
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
