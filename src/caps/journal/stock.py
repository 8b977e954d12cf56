"""What is in a journal: rows, bytes on disk, tokens paid, when and to which models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from caps.journal.rows import Row

Read: TypeAlias = Callable[[str, list[Any]], list[Row]]
_FIGURES = "model, count(*), total(prompt_tokens), total(output_tokens), min(at), max(at)"


@dataclass(frozen=True, slots=True)
class Share:
    """What one model was paid for; tokens of redacted replies count too."""

    model: str
    replies: int
    redacted: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Stats:
    """A journal in figures; `replies` can be served, of those `redacted` only figures are left."""

    path: Path
    bytes: int
    version: int
    facts: int
    first_at: float | None
    last_at: float | None
    shares: tuple[Share, ...]

    @property
    def replies(self) -> int:
        """How many replies are stored."""
        return sum(share.replies for share in self.shares)

    @property
    def redacted(self) -> int:
        """How many replies have lost their words."""
        return sum(share.redacted for share in self.shares)

    @property
    def prompt_tokens(self) -> int:
        """How many tokens models read."""
        return sum(share.prompt_tokens for share in self.shares)

    @property
    def output_tokens(self) -> int:
        """How many tokens models wrote."""
        return sum(share.output_tokens for share in self.shares)

    @property
    def models(self) -> Mapping[str, int]:
        """How many replies are stored of each model."""
        return {share.model: share.replies for share in self.shares if share.replies}


def collect_stats(read: Read, path: Path) -> Stats:
    """Count what is stored; reads the whole file, of whatever version."""
    present = tables(read)
    ((version,),) = read("PRAGMA user_version", [])
    facts = read("SELECT count(*) FROM facts", [])[0][0] if "facts" in present else 0
    counted: dict[str, dict[str, Row]] = {}
    for table in ("replies", "redacted"):
        if table in present:
            for model, *figures in read(f"SELECT {_FIGURES} FROM {table} GROUP BY model", []):  # noqa: S608
                counted.setdefault(model, {})[table] = tuple(figures)
    times = [time for rows in counted.values() for row in rows.values() for time in row[3:]]
    shares = [_share(model, rows) for model, rows in counted.items()]
    shares.sort(key=lambda share: (-share.replies, -share.redacted, share.model))
    first, last = (min(times), max(times)) if times else (None, None)
    return Stats(path, size_on_disk(path), version, facts, first, last, tuple(shares))


def tables(read: Read) -> set[str]:
    """The tables that are there; a file of an older version lacks some."""
    return {name for (name,) in read("SELECT name FROM sqlite_master WHERE type = 'table'", [])}


def size_on_disk(path: Path) -> int:
    """Bytes of the file and of the log beside it."""
    files = (path, beside(path, "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def beside(path: Path, ending: str) -> Path:
    """The file SQLite keeps beside a journal."""
    return path.with_name(path.name + ending)


def _share(model: str, rows: Mapping[str, Row]) -> Share:
    none = (0, 0, 0)
    live, redacted = rows.get("replies", none), rows.get("redacted", none)
    return Share(model, live[0], redacted[0], int(live[1] + redacted[1]), int(live[2] + redacted[2]))
