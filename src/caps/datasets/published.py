"""Published data sets: their description, download and reading.

A data set is a `Dataset` and a line in `registry.DATASETS`. Its problems are cases without candidates. Files
of another data set or version are refused.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
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
from caps.core.types import Case, Problem
from caps.datasets.reading import Row, kind_of, read_rows
from caps.files import decode_json, write_file
from caps.registry import DATASETS, resolve

Parse = Callable[[Row], Case | None]
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet")


@dataclass(frozen=True, slots=True)
class Window:
    """A range of dates from `since` to before `until`."""

    since: date | None = None
    until: date | None = None

    def contains(self, day: date) -> bool:
        """Whether a date is in the range."""
        return (self.since is None or day >= self.since) and (self.until is None or day < self.until)

    def __str__(self) -> str:
        return f"{self.since or '…'} to before {self.until or '…'}"


ANY_DATE = Window()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A published data set: its parser, identifying fields (`marks`), size, source and licence.

    `parse` may return None for a row of another split, and a case with an empty id, which is then numbered.
    `files` are the files of a folder that belong to this version; by default, all data files.
    """

    name: str
    parse: Parse = field(repr=False)
    marks: frozenset[str]
    expected: int
    source: str
    licence: str
    urls: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    window: Window = ANY_DATE
    dated: str | None = None
    hint: str = ""

    def read(
        self, path: str, *, window: Window | None = None, any_count: bool = False
    ) -> Iterator[Case | InputError]:
        """Read the problems of a file or folder; a `window` accepts any count above 0."""
        seen: set[str] = set()
        days: list[date] = []
        count = number = bad = 0
        for where, row in _rows(self._files(path)):
            number += 1
            if number == 1 and not isinstance(row, InputError):
                self._check(row, where)
            case = self._read_row(row, number, where, window or self.window, days)
            if case is None:
                continue
            count += 1
            if isinstance(case, Case) and case.id in seen:
                case = InputError(f"{where}: id: {case.id!r} is on an earlier row; ids must be unique")
            if isinstance(case, Case):
                seen.add(case.id)
            bad += isinstance(case, InputError)
            yield case
        if bad > count / 2:
            raise InputError(f"{path}: not {self.name}: {bad} of {count} rows cannot be read")
        if not any_count and (count != self.expected if window is None else not count):
            raise InputError(self._count_error(path, count, number, days, window or self.window))

    def _read_row(
        self, row: Row | InputError, number: int, where: str, window: Window, days: list[date]
    ) -> Case | InputError | None:
        if isinstance(row, InputError):
            return row
        try:
            if self.dated is not None:
                day = parse_date(row.get(self.dated), self.dated)
                days[:] = [min([day, *days]), max([day, *days])]
                if not window.contains(day):
                    return None
            case = self.parse(row)
            return case if case is None or case.id else replace(case, id=f"{self.name}-{number}")
        except InputError as error:
            return InputError(f"{where}: {error}")

    def _check(self, row: Row, where: str) -> None:
        """Refuse rows of another data set, and name it if it is a known one."""
        missing = sorted(self.marks - row.keys())
        if not missing:
            return
        others: Iterator[Dataset] = (resolve(DATASETS, name) for name in DATASETS.table)
        likely = [one.name for one in others if one.marks <= row.keys() and one.name != self.name]
        looks = f"; it looks like {' or '.join(likely)}" if likely else ""
        has, wanted = ", ".join(sorted(map(str, row))[:8]), ", ".join(sorted(self.marks))
        raise InputError(f"{where}: not {self.name}: a row of it has {wanted}, this one {has}{looks}")

    def _files(self, path: str) -> list[str]:
        folder = Path(path)
        if not folder.is_dir():
            return [path]
        if self.files:
            missing = [name for name in self.files if not (folder / name).is_file()]
            if missing:
                raise InputError(
                    f"{path}: {missing[0]} is missing; {self.name} consists of {', '.join(self.files)}"
                )
            return [str(folder / name) for name in self.files]
        files = sorted(str(one) for one in folder.iterdir() if one.name.endswith(SUFFIXES))
        if not files:
            raise InputError(f"{path}: no file of {self.name} found ({', '.join(SUFFIXES)})")
        return files

    def _count_error(self, path: str, count: int, rows: int, days: list[date], window: Window) -> str:
        dates = f", dates {days[0]} to {days[-1]}" if days else ""
        within = "" if window == ANY_DATE else f" from {window}"
        wanted = f"{self.expected} are expected" if window == self.window else "at least one is expected"
        hint = f"{self.hint}; " if self.hint else ""
        return (
            f"{path}: {count} problems of {self.name}{within} among {rows} rows{dates}; {wanted}: another "
            f"version, another split or a part of it? {hint}--any-count accepts any number"
        )


def problem_case(name: str, statement: str, domain: str, extra: Row) -> Case:
    """Make a case without candidates."""
    return Case(name, Problem.of(statement), (), domain, extra=extra)


def parse_date(value: object, name: str) -> date:
    """Parse a date: ISO text, a date object, or milliseconds since 1970."""
    try:
        if isinstance(value, str):
            return date.fromisoformat(value[:10])
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000, UTC).date()
    except (ValueError, OverflowError, OSError):
        raise InputError(f"{name}: {value!r:.40} is not a date such as 2024-08-31") from None
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    raise InputError(f"{name}: must be a date such as 2024-08-31, not {kind_of(value)}")


def _rows(paths: list[str]) -> Iterator[tuple[str, Row | InputError]]:
    for path in paths:
        yield from read_rows(path)


# Downloads: each file is fetched once, and its digest is recorded and checked

RECORD = "fetched.record"
MAX_BYTES = 16 << 30
TIMEOUT = 60.0
_CHUNK = 1 << 20


def fetch(
    urls: tuple[str, ...], folder: Path, *, mirror: str | None = None, max_bytes: int = MAX_BYTES
) -> list[Path]:
    """Download files into a folder, except those that are there with the recorded digest.

    `mirror` replaces the scheme and host of every address.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be created ({error.strerror})") from None
    record = _read_record(folder)
    paths = []
    for url in urls:
        path = folder / Path(urlsplit(url).path).name
        recorded = record.get(path.name, {}).get("sha256")
        if not path.is_file() or recorded is None or digest(path) != recorded:
            address = _mirror_url(url, mirror)
            fetched = _download(address, path, max_bytes)
            if recorded not in (None, fetched):
                path.unlink()
                raise InputError(
                    f"{address}: has changed: its digest is {fetched[:16]}…, the recorded one is "
                    f"{recorded[:16]}…; remove {folder / RECORD} to accept the new one"
                )
            record[path.name] = {"url": address, "sha256": fetched, "bytes": path.stat().st_size}
            write_file(folder / RECORD, msgspec.json.format(msgspec.json.encode(record)))
        paths.append(path)
    return paths


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _read_record(folder: Path) -> dict[str, Row]:
    try:
        return decode_json((folder / RECORD).read_bytes(), dict[str, Row])
    except FileNotFoundError:
        return {}
    except (OSError, InputError) as error:
        raise InputError(f"{folder / RECORD}: {error}; remove it to download again") from None


def _mirror_url(url: str, mirror: str | None) -> str:
    parts = urlsplit(url)
    address = url if mirror is None else mirror.rstrip("/") + parts.path
    if urlsplit(address).scheme not in ("http", "https"):
        raise InputError(f"{address}: only http and https are fetched")
    return address


def _download(url: str, path: Path, max_bytes: int) -> str:
    """Download to a partial file, rename it when it is complete, and return its digest."""
    partial = path.with_name(f"{path.name}.{token_hex(6)}.partial")  # two processes may fetch the same file
    try:
        with urlopen(Request(url), timeout=TIMEOUT) as reply, partial.open("wb") as file:  # noqa: S310
            digest = _copy(reply, file, url, max_bytes)
            expected = reply.headers.get("Content-Length")
            if expected is not None and int(expected) != file.tell():
                raise InputError(f"{url}: ended after {file.tell():,} of {int(expected):,} bytes")
    except HTTPError as error:
        error.close()
        raise InputError(_fetch_error(url, f"status {error.code}")) from None
    except (OSError, HTTPException, ValueError) as error:
        raise InputError(_fetch_error(url, str(getattr(error, "reason", error)))) from None
    else:
        partial.replace(path)
        return digest
    finally:
        partial.unlink(missing_ok=True)


def _copy(reply: IO[bytes], file: IO[bytes], url: str, max_bytes: int) -> str:
    hasher = sha256()
    while chunk := reply.read(_CHUNK):
        hasher.update(chunk)
        file.write(chunk)
        if file.tell() > max_bytes:
            raise InputError(f"{url}: sends more than {max_bytes:,} bytes")
    return hasher.hexdigest()


def _fetch_error(url: str, reason: str) -> str:
    return f"{url}: cannot be fetched ({reason}); download it by other means and give its path"
