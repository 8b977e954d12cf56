"""HTML pages: one self-contained file; the receipts of large runs are in files beside it.

Rows and receipts are escaped HTML written here, packed (compressed) until the page shows them.
"""

import html
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from gzip import compress
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from secrets import token_hex

from caps.core.errors import InputError
from caps.files import Output, file_errors, write_file
from caps.reports.html import Html, el, escaped, join, safe_json
from caps.reports.listing import Listing, listing_view

STYLES = ("style.css", "chart.css", "views.css", "receipt.css")
SCRIPTS = ("rich.js", "table.js", "receipt.js", "main.js", "live.js")
LIBRARIES = ("prism.js", "katex.js", "markdown-it.js", "diff.js")
INLINE_LIMIT = 1_100_000  # bytes of packed receipts inside a page; more are written beside it
PART_SIZE = 2_000_000  # characters of receipts that are packed together
LONG_LINE = 40  # characters from which a repeated line is replaced
COMPRESSION = 5  # a third smaller than 3, and hardly slower
_PART = re.compile(r"\d+\.js")
_PART_HEAD = b"capsPart("
_ESCAPES = ((b"\\", rb"\\"), (b'"', rb"\""), (b"\r", rb"\r"), (b"\n", rb"\n"))  # in a text of a script
_SLOT = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page; `figures` and `details` are replaced while a run goes on."""

    title: str
    figures: Sequence[Html]
    details: Sequence[Html] = ()
    after: Sequence[Html] = ()
    listing: Listing | None = None
    listing_title: str = "Cases"
    footer: str = ""
    status: str = ""
    rich: bool = False  # texts that are rendered when they are opened stand on the page itself
    live: bool = False
    runs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StoredReceipts:
    """The receipts of a page: packed parts, or the folder that holds them.

    `starts` has the index of the first receipt of each part; None if every receipt is a part.
    """

    parts: Sequence[bytes] = ()
    folder: str | None = None
    starts: Sequence[int] | None = ()


def write_page(page: Page, receipts: Iterable[Html], out: Path) -> list[Path]:
    """Write a page, and its receipts beside it if they are large; return the files written."""
    folder = out.with_name(f"{out.stem}_files")
    with file_errors(str(folder)), Output(out, option="--output") as output, _PartsFolder(folder) as parts:
        output.write(page_html(page, _store(receipts, parts)).encode())
        written = parts.finish()
        output.finish()
    return [out, *written]


def page_html(page: Page, receipts: StoredReceipts = StoredReceipts()) -> str:
    """Return the page as HTML."""
    style = "".join(map(asset, STYLES))
    script = '"use strict";(async () => {\n' + "\n".join(map(asset, SCRIPTS)) + "})();\n"
    loads = receipts.folder is not None
    libraries, library_digest = _libraries() if loads or receipts.parts or page.rich else ("", "")
    packed = [_packed(_data(page, receipts), "data")]
    packed += [_packed(part, f"part-{place}") for place, part in enumerate(receipts.parts)]
    progress = el("section", id="progress", hidden=True) if page.live else None
    return fill(
        asset("page.html"),
        {
            "policy": html.escape(
                _security_policy(style, [digest(script), library_digest], loads=loads, live=page.live)
            ),
            "title": escaped(page.title),
            "style": style,
            "status": escaped(page.status),
            "overview": join([progress, el("div", *page.figures, id="figures")]),
            "listing": "" if page.listing is None else listing_view(page.listing, page.listing_title),
            "after": join([el("div", *page.details, id="details"), *page.after]),
            "footer": escaped(page.footer),
            "libraries": libraries,
            "packed": "\n".join(packed),
            "script": script,
        },
    )


def _data(page: Page, receipts: StoredReceipts) -> bytes:
    """What the scripts of a page read, packed."""
    listing = page.listing
    data = {
        "columns": () if listing is None else listing.columns,
        "filters": () if listing is None else listing.filters,
        "fields": () if listing is None else listing.fields,
        "rows": () if listing is None else listing.rows,
        "folder": receipts.folder,
        "starts": receipts.starts,
        "live": page.live,
        "runs": page.runs,
    }
    return pack_text(safe_json(data))


def _packed(packed: bytes, name: str) -> str:
    return f'<script type="text/plain" id="{name}">{b64encode(packed).decode()}</script>'


@cache
def _libraries() -> tuple[str, str]:
    """The libraries that render texts, packed for the page, and the digest that lets them run.

    The page starts them when the first text is opened. Their licences go with every copy.
    """
    licences = f"/*\n{asset('vendor/LICENSES.txt')}\n*/\n"
    libraries = "\n".join(asset(f"vendor/{name}") for name in LIBRARIES)
    code = f"{licences}window.Prism={{manual:true}};\n{libraries}"
    return _packed(pack_text(code, 9), "libraries"), digest(code)


def _security_policy(style: str, scripts: Sequence[str], *, loads: bool, live: bool) -> str:
    """Return the Content-Security-Policy: the page may use its own scripts and style only."""
    allowed = " ".join(f"'{digest}'" for digest in scripts if digest) + (" 'self'" if loads else "")
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src '{digest(style)}'; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types caps"
    )


def pack_text(text: str, level: int = COMPRESSION) -> bytes:
    """Compress a text for a page, to about a tenth of its size."""
    return compress(text.encode(), level, mtime=0)


def pack_receipts(receipts: Sequence[Html]) -> bytes:
    """Compress the receipts of one part; no markup holds the characters that divide them and mark lines."""
    return pack_text("\0".join(map(_without_repetition, receipts)))


def _without_repetition(text: str) -> str:
    """Replace a long line that was there before by its number: every prompt repeats whole candidates.

    Compression looks back 32 kB only, which halves the size of receipts with long candidates.
    """
    lines, numbers = text.split("\n"), dict[str, int]()
    for number, line in enumerate(lines):
        if len(line) >= LONG_LINE and numbers.setdefault(line, number) != number:
            lines[number] = f"\1{numbers[line]}"
    return "\n".join(lines)


def part_script(start: int, packed: bytes) -> bytes:
    """Return the script that delivers a part: a page from disk can load nothing else.

    The page reads its bytes as letters, which takes a quarter less than base64.
    """
    for sign, escape in _ESCAPES:
        packed = packed.replace(sign, escape)
    return b'capsPart(%d,"%b");\n' % (start, packed)


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

    def add(self, script: bytes) -> None:
        """Write a part: `0.js`, `1.js` and so on."""
        if self._temporary is None:
            self._refuse_foreign_folder()
            temporary = self.folder.with_name(f".{self.folder.name[:40]}.{token_hex(6)}.partial")
            temporary.mkdir()
            self._temporary = temporary
        name = f"{len(self._names)}.js"
        write_file(self._temporary / name, script)
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
        return file.read(len(_PART_HEAD)) == _PART_HEAD


def _remove_parts(folder: Path) -> None:
    """Remove the parts of a page and their folder; any other file is left alone."""
    for path in folder.iterdir():
        if _is_part(path):
            path.unlink()
    folder.rmdir()


def _store(receipts: Iterable[Html], folder: _PartsFolder) -> StoredReceipts:
    """Pack receipts; if they are too large for one page, write them into the folder."""
    starts, parts, size, start = list[int](), list[bytes](), 0, 0
    for held in _parts(receipts):
        packed = pack_receipts(held)
        starts.append(start)
        parts.append(packed)
        size += len(packed)
        start += len(held)
        if size > INLINE_LIMIT:
            for begin, part in zip(starts[-len(parts) :], parts, strict=True):
                folder.add(part_script(begin, part))
            parts.clear()
    if size > INLINE_LIMIT:
        return StoredReceipts((), folder.folder.name, starts)
    return StoredReceipts(parts, None, starts)


def _parts(receipts: Iterable[Html]) -> Iterator[list[Html]]:
    """Yield receipts in groups of about the same size."""
    held, size = list[Html](), 0
    for receipt in receipts:
        held.append(receipt)
        size += len(receipt)
        if size > PART_SIZE:
            yield held
            held, size = [], 0
    if held:
        yield held


def fill(template: str, values: Mapping[str, str]) -> str:
    """Fill the slots in one pass, so that a slot inside a value is not filled."""
    return _SLOT.sub(lambda slot: values[slot[1]], template)


def asset(name: str) -> str:
    """Read a style, script or template of pages."""
    return (files("caps.reports") / "web" / name).read_text("utf-8")


def digest(text: str) -> str:
    """Return the digest of a script or style, as a Content-Security-Policy names it."""
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
