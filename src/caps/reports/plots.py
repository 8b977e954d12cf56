"""Pictures of figures, through matplotlib, which is imported nowhere else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from caps.core.errors import InputError, MissingExtraError


def accuracy_against_tokens(rows: Sequence[dict[str, Any]], path: str, *, title: str) -> None:
    """Draw Pass@1 over tokens a problem, one point a strategy; the file's ending names the format."""
    figure = _figure(7.5, 4.8)
    axes = figure.add_subplot()
    for row in rows:
        share, (low, high) = 100 * row["pass_at_1"], row["pass_at_1_interval"]
        tokens = sum(row["tokens"].values()) / 1000
        axes.errorbar(
            tokens, share, yerr=[[share - 100 * low], [100 * high - share]], fmt="o", capsize=3, markersize=5
        )
        axes.annotate(row["strategy"], (tokens, share), xytext=(6, 4), textcoords="offset points", fontsize=8)
    axes.set_xlabel("verifier tokens a problem (thousands)")
    axes.set_ylabel("Pass@1 (%)")
    axes.set_title(title, fontsize=10)
    axes.grid(visible=True, alpha=0.3)
    axes.margins(x=0.12)
    _save(figure, path)


def bars_beside_the_paper(rows: Sequence[dict[str, Any]], path: str, *, title: str, unit: str) -> None:
    """Draw one bar a figure, grouped by row, with its interval; the paper's figure is a dot on it."""
    labels = list(dict.fromkeys(row["row"] for row in rows))
    heads = list(dict.fromkeys(row["column"] for row in rows))
    figure = _figure(max(6.0, 0.16 * len(labels) * len(heads) + 2), 4.8)
    axes, width = figure.add_subplot(), 0.8 / len(heads)
    for place, head in enumerate(heads):
        some = [row for row in rows if row["column"] == head and row["ours"] is not None]
        at = [labels.index(row["row"]) + width * (place - (len(heads) - 1) / 2) for row in some]
        ours = [row["ours"] for row in some]
        spread = [[_distance(row, end) for row in some] for end in ("low", "high")]
        axes.bar(at, ours, width, yerr=spread, label=head, error_kw={"linewidth": 0.8})
        theirs = [(x, row["paper"]) for x, row in zip(at, some, strict=True) if row["paper"] is not None]
        axes.scatter(*zip(*theirs, strict=True), s=14, color="black", zorder=3) if theirs else None
    axes.set_xticks(range(len(labels)), labels, rotation=40, ha="right", fontsize=7)
    axes.set_ylabel(unit)
    axes.set_title(f"{title}; dots: the paper", fontsize=10)
    axes.legend(fontsize=7)
    _save(figure, path)


def _distance(row: dict[str, Any], end: str) -> float:
    return 0.0 if row[end] is None else abs(row["ours"] - row[end])


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("matplotlib", "bench", "a plot") from None
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Any, path: str) -> None:
    try:
        figure.savefig(Path(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: the plot cannot be written: {error}") from None
