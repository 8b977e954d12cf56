"""Published files, downloaded once; the digest of each is written down and checked ever after."""

from hashlib import file_digest, sha256
from http.client import HTTPException
from pathlib import Path
from secrets import token_hex
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import msgspec

from caps.core.errors import InputError
from caps.datasets.fields import Row
from caps.files import write_file

RECORD = "fetched.record"
MOST_BYTES = 16 << 30
TIMEOUT = 60.0
_CHUNK = 1 << 20


def fetch(
    urls: tuple[str, ...], folder: Path, *, mirror: str | None = None, most: int = MOST_BYTES
) -> list[Path]:
    """The files behind the addresses, from the folder where they lie there already with the digest on record.

    `mirror` takes the place of scheme and host in every address.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror})") from None
    record = _recorded(folder)
    paths = []
    for url in urls:
        path = folder / Path(urlsplit(url).path).name
        known = record.get(path.name, {}).get("sha256")
        if not path.is_file() or known is None or digest(path) != known:
            address = _mirrored(url, mirror)
            found = _download(address, path, most)
            if known not in (None, found):
                path.unlink()
                raise InputError(
                    f"{address}: has changed: its digest is {found[:16]}…, on record is {known[:16]}…; "
                    f"remove {folder / RECORD} to take the new one"
                )
            record[path.name] = {"url": address, "sha256": found, "bytes": path.stat().st_size}
            write_file(folder / RECORD, msgspec.json.format(msgspec.json.encode(record)))
        paths.append(path)
    return paths


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _recorded(folder: Path) -> dict[str, Row]:
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=dict[str, Row])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError, UnicodeError) as error:
        raise InputError(f"{folder / RECORD}: {error}; remove it to start anew") from None


def _mirrored(url: str, mirror: str | None) -> str:
    parts = urlsplit(url)
    address = url if mirror is None else mirror.rstrip("/") + parts.path
    if urlsplit(address).scheme not in ("http", "https"):
        raise InputError(f"{address}: only http and https are fetched")
    return address


def _download(url: str, path: Path, most: int) -> str:
    """Download to a partial file that takes its name when it is whole; its digest."""
    partial = path.with_name(f"{path.name}.{token_hex(6)}.partial")  # two may fetch the same at once
    try:
        with urlopen(Request(url), timeout=TIMEOUT) as reply, partial.open("wb") as file:  # noqa: S310
            found = _copy(reply, file, url, most)
            expected = reply.headers.get("Content-Length")
            if expected is not None and int(expected) != file.tell():
                raise InputError(f"{url}: broke off after {file.tell():,} of {int(expected):,} bytes")
    except HTTPError as error:
        error.close()
        raise InputError(_sorry(url, f"status {error.code}")) from None
    except (OSError, HTTPException, ValueError) as error:
        raise InputError(_sorry(url, str(getattr(error, "reason", error)))) from None
    else:
        partial.replace(path)
        return found
    finally:
        partial.unlink(missing_ok=True)


def _copy(reply: IO[bytes], file: IO[bytes], url: str, most: int) -> str:
    hashed = sha256()
    while chunk := reply.read(_CHUNK):
        hashed.update(chunk)
        file.write(chunk)
        if file.tell() > most:
            raise InputError(f"{url}: sends more than {most:,} bytes")
    return hashed.hexdigest()


def _sorry(url: str, reason: str) -> str:
    return f"{url}: cannot be fetched ({reason}); download it by other means and give its path"
