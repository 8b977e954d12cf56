"""What a Batch API says of files and batches, read as loosely as servers write it; pure."""

from dataclasses import dataclass
from typing import Any

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
    said = [str(row.get("message") if isinstance(row, dict) else row) for row in rows or ()]
    return Batch(
        read_id(reply),
        str(reply.get("status") or "").lower(),
        str(reply.get("input_file_id") or ""),
        _count(counts.get("total")),
        _count(counts.get("completed")) + _count(counts.get("failed")),
        _name(reply.get("output_file_id")),
        _name(reply.get("error_file_id")),
        "; ".join(said)[:300],
    )


def read_page(reply: Any) -> tuple[list[Batch], bool]:
    """Read a page of the list of batches, and whether there are more."""
    rows = reply.get("data")
    return [read_batch(row) for row in rows if isinstance(row, dict)], bool(reply.get("has_more"))


def read_id(reply: Any) -> str:
    """The id of a file or batch; `ValueError` where there is none."""
    name = reply.get("id") if isinstance(reply, dict) else None
    if not isinstance(name, str) or not name:
        raise ValueError("no id in it")
    return name


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
