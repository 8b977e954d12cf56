"""How the servers of a fleet fared, as plain data and in words."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from caps.models.fleet_server import Record
from caps.reports.console import number


def server_lines(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Every server as plain data."""
    return [asdict(record) | {"seconds_out": round(record.seconds_out, 3)} for record in records]


def servers_text(records: Sequence[Record]) -> list[str]:
    """One line for people, none without a fleet."""
    return ["servers: " + "; ".join(map(_told, records))] if records else []


def _told(record: Record) -> str:
    words = f"{record.address} {number(record.calls, 0)} calls"
    if record.failed:
        words += f", {number(record.failed, 0)} failed"
    if record.outs:
        times = "once" if record.outs == 1 else f"{record.outs} times"
        still = ", and still is" if record.out else ""
        words += f", out {times} for {record.seconds_out:.0f} s{still}"
    return words
