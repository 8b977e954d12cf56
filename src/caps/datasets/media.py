"""Images and documents in problems and candidates: content parts of the OpenAI chat format.

A part is sent to the judge as it is, by a `data:` or `https:` address; nothing is fetched here. In the text
its label stands in its place, which contains a digest: signatures, views and pages know it by that.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from caps.core.errors import InputError
from caps.core.types import Media
from caps.datasets.reading import kind_of
from caps.files import read_file

MOST_BYTES = 20 << 20  # of one image or document
MOST_PARTS = 64  # images and documents of one message or candidate
_DATA = re.compile(r"data:([a-z]+/[a-z0-9.+-]{1,80});base64,", re.IGNORECASE)
_TYPES = {"image": ("image/png", "image/jpeg", "image/gif", "image/webp"), "file": ("application/pdf",)}
_MAGIC = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF", "application/pdf"),
)


def read_content(content: Sequence[Any], where: str, folder: Path | None) -> tuple[str, tuple[Media, ...]]:
    """The text of content parts, with a label for each image or document, and these.

    Local files may be named only in a case file of the command line, by a path in or below its `folder`.
    """
    pieces: list[str] = []
    media: list[Media] = []
    for index, part in enumerate(content):
        piece = part_of(part, f"{where}[{index}]", folder)
        if isinstance(piece, Media):
            if len(media) == MOST_PARTS:
                raise InputError(f"{where}: more than {MOST_PARTS} images and documents")
            media.append(piece.moved(sum(len(one) + 1 for one in pieces) + len(piece.label)))
            piece = piece.label
        pieces.append(piece)
    return "\n".join(pieces), tuple(media)


def part_of(part: Any, where: str, folder: Path | None = None) -> str | Media:
    """A part as a text, or as an image or document; `InputError` names what is wrong with it."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise InputError(f"{where}: must be a text or an object, not {kind_of(part)}")
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    if kind == "image_url":
        value = part.get("image_url")
        row = {"url": value} if isinstance(value, str) else value
        return _media("image", row, "url", f"{where}.image_url", folder)
    if kind == "file":
        return _media("file", part.get("file"), "file_data", f"{where}.file", folder)
    raise InputError(f"{where}: must be a part of type text, image_url or file")


def content_of(text: str, media: Sequence[Media]) -> str | list[dict[str, Any]]:
    """The inverse of `read_content`: the text, or its parts if it has images or documents."""
    if not media:
        return text
    parts: list[dict[str, Any]] = []
    start = 0
    for medium in media:
        before = text[start : medium.at - len(medium.label)].removesuffix("\n")
        parts += [{"type": "text", "text": before}] if before else []
        parts.append(medium.part())
        start = medium.at + 1
    return [*parts, {"type": "text", "text": text[start:]}] if text[start:] else parts


def _media(kind: str, row: Any, field: str, where: str, folder: Path | None) -> Media:
    url = row.get(field) if isinstance(row, Mapping) else None
    if not isinstance(url, str) or not url:
        raise InputError(f"{where}: must be an object with the text {field!r}")
    name = row.get("filename") if isinstance(row.get("filename"), str) else ""
    detail = row.get("detail") if row.get("detail") in ("low", "high", "auto") else ""
    if data := _DATA.match(url):
        _check_data(url[data.end() :], data[1].lower(), kind, where)
    elif not url.startswith("https://") and ":" in url.partition("/")[0]:
        raise InputError(f"{where}: {url[:40]!r}: must be a data: address with base64, or an https: address")
    elif not url.startswith("https://"):
        name, url = name or Path(url).name, _read_local(url, kind, where, folder)
    name = re.sub(r"[^\w. -]", "_", name)[:60].strip()
    return Media(kind, url, name, sha256(url.encode("utf-8", "replace")).hexdigest(), str(detail))


def _check_data(encoded: str, mime: str, kind: str, where: str) -> None:
    if mime not in _TYPES[kind]:
        raise InputError(f"{where}: {mime!r}: must be one of {', '.join(_TYPES[kind])}")
    _check_size(len(encoded) * 3 // 4, where)
    try:
        base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InputError(f"{where}: the data of the address is not base64") from None


def _check_size(size: int, where: str) -> None:
    if size > MOST_BYTES:
        raise InputError(f"{where}: {size:,} bytes; at most {MOST_BYTES:,}: make it smaller")


def _read_local(path: str, kind: str, where: str, folder: Path | None) -> str:
    """A local file as a `data:` address."""
    if folder is None:
        raise InputError(
            f"{where}: {path[:80]!r}: a local file may be named only in a case file that the command line "
            "reads; give a data: or https: address"
        )
    try:
        target = (folder / path).resolve()
        inside = target.is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        target, inside = Path(path), False
    if not inside:
        raise InputError(f"{where}: {path[:80]!r}: must be in the folder of the case file, or below it")
    if not target.is_file():
        raise InputError(f"{where}: {path[:80]!r}: no such file in {folder}")
    _check_size(target.stat().st_size, where)
    data = read_file(target, most=MOST_BYTES)
    webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    mime = "image/webp" if webp else next((mime for magic, mime in _MAGIC if data.startswith(magic)), "")
    if mime not in _TYPES[kind]:
        raise InputError(f"{where}: {path[:80]!r}: is not {' or '.join(_TYPES[kind])}")
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"
