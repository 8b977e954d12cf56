"""What a Batch API says of files and batches, read as loosely as servers write it; pure."""

import re
from dataclasses import dataclass
from typing import Any

from caps.models.wire import printable

_ID = re.compile(r"[\w.:@~+=-]{1,200}(?:/[\w.:@~+=-]{1,200}){0,4}")  # some have a folder in them
_WORD = 100  # characters of a status
_COUNT = 10**12
ENDED = ("completed", "failed", "expired", "cancelled")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as the endpoint tells of it; `said` is why it failed as a whole."""

    id: str
    status: str
    source: str = ""
    total: int = 0
    done: int = 0
    output: str | None = None
    errors: str | None = None
    said: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status in ENDED


def read_batch(reply: Any) -> Batch:
    """Read a batch; `ValueError` where it is none."""
    if not isinstance(reply, dict):
        raise ValueError("no batch")
    counts, errors = reply.get("request_counts"), reply.get("errors")
    counts = counts if isinstance(counts, dict) else {}
    rows = errors.get("data") if isinstance(errors, dict) else errors
    said = [_said(row) for row in rows[:10]] if isinstance(rows, list) else []
    return Batch(
        read_id(reply),
        _word(reply.get("status")).lower(),
        _name(reply.get("input_file_id")) or "",
        _count(counts.get("total")),
        _count(counts.get("completed")) + _count(counts.get("failed")),
        _name(reply.get("output_file_id")),
        _name(reply.get("error_file_id")),
        "; ".join(filter(None, said))[:300],
    )


def read_page(reply: Any) -> tuple[list[Batch], bool]:
    """Read a page of the list of batches, and whether there are more."""
    rows = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(rows, list):
        raise ValueError("no list of batches")
    return [read_batch(row) for row in rows if isinstance(row, dict)], reply.get("has_more") is True


def read_id(reply: Any) -> str:
    """The id of a file or batch; `ValueError` where there is none."""
    name = _name(reply.get("id")) if isinstance(reply, dict) else None
    if name is None:
        raise ValueError("no id in it")
    return name


def _name(value: object) -> str | None:
    """An id, which becomes part of a path: what would lead elsewhere is none."""
    fine = isinstance(value, str) and _ID.fullmatch(value) and ".." not in value
    return str(value) if fine else None


def _said(row: object) -> str:
    return _word(row.get("message") if isinstance(row, dict) else row, 300)


def _word(value: object, most: int = _WORD) -> str:
    return printable(value, most) if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 < value <= _COUNT else 0
