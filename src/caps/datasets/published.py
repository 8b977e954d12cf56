"""Published data sets: what describes one, how its files are downloaded once, checked and read.

A set is one small file with a `Dataset` in it and one line in `registry.DATASETS`. Problems come out as cases
without candidates. A file of another set, or of another version, is refused with what was expected.
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
from caps.datasets.reading import Row, kind_of, rows_of
from caps.files import write_file
from caps.registry import DATASETS, resolve

Parse = Callable[[Row], Case | None]
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet")


@dataclass(frozen=True, slots=True)
class Window:
    """Days from `since` on and before `until`."""

    since: date | None = None
    until: date | None = None

    def holds(self, day: date) -> bool:
        """Whether a day lies in it."""
        return (self.since is None or day >= self.since) and (self.until is None or day < self.until)

    def __str__(self) -> str:
        return f"{self.since or '…'} to before {self.until or '…'}"


EVER = Window()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A published set: how a row is read, the fields it is known by, how many problems, whence, whose terms.

    `parse` may return None for a row of another split, and a case without a name where rows have none: they
    are numbered. `files` are those of a folder that belong to this version; without them, all data files.
    """

    name: str
    parse: Parse = field(repr=False)
    marks: frozenset[str]
    expected: int
    source: str
    licence: str
    urls: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    window: Window = EVER
    dated: str | None = None
    hint: str = ""

    def read(
        self, path: str, *, window: Window | None = None, any_count: bool = False
    ) -> Iterator[Case | InputError]:
        """Read the problems of a file or folder; with a `window` other than the set's, any count will do."""
        seen: set[str] = set()
        days: list[date] = []
        found = number = bad = 0
        for where, row in _rows(self._files(path)):
            number += 1
            if number == 1 and not isinstance(row, InputError):
                self._check(row, where)
            case = self._read_row(row, number, where, window or self.window, days)
            if case is None:
                continue
            found += 1
            if isinstance(case, Case) and case.id in seen:
                case = InputError(f"{where}: id: {case.id!r} stands on an earlier row; ids must be unique")
            if isinstance(case, Case):
                seen.add(case.id)
            bad += isinstance(case, InputError)
            yield case
        if bad > found / 2:
            raise InputError(f"{path}: not {self.name}: {bad} of {found} rows are not as it has them")
        if not any_count and (found != self.expected if window is None else not found):
            raise InputError(self._miscounted(path, found, number, days, window or self.window))

    def _read_row(
        self, row: Row | InputError, number: int, where: str, window: Window, days: list[date]
    ) -> Case | InputError | None:
        if isinstance(row, InputError):
            return row
        try:
            if self.dated is not None:
                day = day_of(row.get(self.dated), self.dated)
                days[:] = [min([day, *days]), max([day, *days])]
                if not window.holds(day):
                    return None
            case = self.parse(row)
            return case if case is None or case.id else replace(case, id=f"{self.name}-{number}")
        except InputError as error:
            return InputError(f"{where}: {error}")

    def _check(self, row: Row, where: str) -> None:
        """Refuse rows of another set, and name that set where it is one of ours."""
        missing = sorted(self.marks - row.keys())
        if not missing:
            return
        likely = [
            other.name
            for other in map(_known, DATASETS.table)
            if other.marks <= row.keys() and other.name != self.name
        ]
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
                raise InputError(f"{path}: {missing[0]} is not there; {self.name} is {', '.join(self.files)}")
            return [str(folder / name) for name in self.files]
        found = sorted(str(one) for one in folder.iterdir() if one.name.endswith(SUFFIXES))
        if not found:
            raise InputError(f"{path}: no file of {self.name} in it ({', '.join(SUFFIXES)})")
        return found

    def _miscounted(self, path: str, found: int, rows: int, days: list[date], window: Window) -> str:
        dates = f", dates {days[0]} to {days[-1]}" if days else ""
        within = "" if window == EVER else f" from {window}"
        wanted = f"{self.expected} are expected" if window == self.window else "none will do"
        hint = f"{self.hint}; " if self.hint else ""
        return (
            f"{path}: {found} problems of {self.name}{within} among {rows} rows{dates}; {wanted}: another "
            f"version, another split or a part of it? {hint}--any-count takes it as it is"
        )


def problem_case(name: str, statement: str, domain: str, extra: Row) -> Case:
    """A case without candidates."""
    return Case(name, Problem.of(statement), (), domain, extra=extra)


def day_of(value: object, name: str) -> date:
    """A day as files have it: ISO text, a date, or milliseconds since 1970."""
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
        yield from rows_of(path)


def _known(name: str) -> Dataset:
    found: Dataset = resolve(DATASETS, name)
    return found


# Published files, downloaded once; the digest of each is written down and checked ever after.


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
