"""The forecast of `caps plan --problems`: GPU-hours, cost, time and the bottleneck of many problems."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from caps.cli.help import SCALE
from caps.cli.output import stdout
from caps.core.text import number, plural
from caps.costs.capacity import Bound, Fleet, Load, scale_load
from caps.costs.prices import Terms
from caps.reports.console import short, table

Problems = Annotated[
    int | None,
    typer.Option(
        "--problems",
        min=1,
        metavar="N",
        rich_help_panel=SCALE,
        help="Forecast GPU-hours, cost, time and bottleneck of N problems.",
    ),
]
WriteRate = Annotated[
    float | None,
    typer.Option(
        "--output-tokens-per-second",
        min=0.001,
        metavar="TOKENS",
        rich_help_panel=SCALE,
        help="Tokens that a GPU writes per second; --tokens-per-second then counts those it reads.",
    ),
]
Gpus = Annotated[
    int,
    typer.Option(
        "--gpus", min=1, metavar="N", help="Number of GPUs of the judge; rates are per GPU.",
        rich_help_panel=SCALE,
    ),
]  # fmt: skip
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        min=1,
        metavar="N",
        help="Number of processes that ask, as with Ray.",
        rich_help_panel=SCALE,
    ),
]
CallsRate = Annotated[
    float | None,
    typer.Option(
        "--calls-per-second",
        min=0.001,
        metavar="CALLS",
        rich_help_panel=SCALE,
        help="Calls per second of one process. Default: as measured on one core.",
    ),
]
BatchHours = Annotated[
    float,
    typer.Option(
        "--batch-hours",
        min=0,
        metavar="HOURS",
        help="Most hours that a batch may take.",
        rich_help_panel=SCALE,
    ),
]
BatchPrice = Annotated[
    float,
    typer.Option(
        "--batch-price",
        min=0,
        max=1,
        metavar="SHARE",
        rich_help_panel=SCALE,
        help="Price of a batch as a share of the price of live calls, 0 to 1.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The amount of work, the machines, and the prices."""

    problems: int
    fleet: Fleet
    terms: Terms
    workers: int
    gpu_hour_usd: float | None
    batch_hours: float
    batch_price: float

    def figures(self, row: dict[str, Any]) -> dict[str, Any]:
        """What a strategy needs, scaled up from the forecast of some problems."""
        load = scale_load(_load(row, self.terms.output), self.problems / (row.get("cases") or 1))
        gpu_seconds = self.fleet.gpu_seconds(load)
        live, shared = self.fleet.live(load), self.fleet.live(load, self.workers)
        dollars = self._dollars(load, gpu_seconds)
        priced = None if dollars is None or self.gpu_hour_usd is not None else dollars * self.batch_price
        return {
            "problems": self.problems,
            "calls": round(load.calls),
            "tokens": round(load.tokens),
            "output_tokens": round(load.output),
            "gpu_hours": None if gpu_seconds is None else round(gpu_seconds / 3600, 2),
            "usd": None if dollars is None else round(dollars, 2),
            "journal_bytes": round(load.journal_bytes),
            "cpu_hours": round(load.cpu_seconds / 3600, 2),
            "gpus_a_process_feeds": None
            if gpu_seconds is None
            else round(gpu_seconds / max(load.cpu_seconds, 1e-9)),
            "live": _bound(live)
            | {"mbit_per_second": round(8e-6 * load.network_bytes / max(live.seconds, 1e-9), 1)},
            "ray": {"workers": self.workers} | _bound(shared),
            "batch": {"trips": load.rounds, "usd": None if priced is None else round(priced, 2)}
            | _bound(self.fleet.batch(load, self.batch_hours)),
        }

    def _dollars(self, load: Load, gpu_seconds: float | None) -> float | None:
        if self.gpu_hour_usd is not None:
            return None if gpu_seconds is None else gpu_seconds / 3600 * self.gpu_hour_usd
        return self.terms.dollars(load.tokens, load.calls)


def with_capacity(rows: list[dict[str, Any]], scale: Scale | None) -> list[dict[str, Any]]:
    """The rows, each with the figures of many problems if a scale is given."""
    return rows if scale is None else [row | {"capacity": scale.figures(row)} for row in rows]


def print_capacity(rows: Sequence[dict[str, Any]], scale: Scale) -> None:
    """Print one row per strategy."""
    title = (
        f"{plural(scale.problems, 'problem')}; {plural(scale.fleet.gpus, 'GPU')}; live, with "
        f"{plural(scale.workers, 'process', 'processes')}, and in batches of at most "
        f"{number(scale.batch_hours)} hours"
    )
    columns = ("strategy", "calls", "read", "written", "GPU h", "USD", "journal", "live", "bound by",
               f"x{scale.workers}", "bound by", "batch", "USD")  # fmt: skip
    stdout().print(table(title, columns, [_cells(row["strategy"], row["capacity"]) for row in rows]))
    words = (
        "the work of caps itself is estimated as measured on one core (costs/capacity.py), unless you give "
        "--calls-per-second; GPUs, latency and prices that are not given are not a limit"
    )
    stdout().print(words, style="dim")


def _load(row: dict[str, Any], output: float) -> Load:
    tokens, depth = row["tokens"], row["depth"]
    return Load(
        row["calls_total"],
        tokens["mean"] if isinstance(tokens, dict) else tokens,
        row["calls_total"] * output,
        math.ceil(depth["most"] if isinstance(depth, dict) else depth),
    )


def _bound(bound: Bound) -> dict[str, Any]:
    return {"seconds": round(bound.seconds, 1), "bound_by": bound.by}


def _cells(name: str, one: dict[str, Any]) -> list[str]:
    live, ray, batch = one["live"], one["ray"], one["batch"]
    return [
        name,
        *(short(one[figure]) for figure in ("calls", "tokens", "output_tokens")),
        number(one["gpu_hours"], 0),
        number(one["usd"], 0),
        f"{short(one['journal_bytes'])}B",
        hours(live["seconds"]),
        live["bound_by"],
        hours(ray["seconds"]),
        ray["bound_by"],
        hours(batch["seconds"]),
        number(batch["usd"], 0),
    ]


def hours(seconds: float) -> str:
    """A long time span in minutes, hours or days."""
    for size, unit in ((86400 * 2, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / (86400 if unit == 'd' else size):.1f} {unit}"
    return f"{seconds:.0f} s"
