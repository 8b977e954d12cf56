"""Pictures of figures, through matplotlib, which is imported nowhere else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from caps.core.errors import InputError, MissingExtraError


def accuracy_against_tokens(rows: Sequence[dict[str, Any]], path: str, *, title: str) -> None:
    """Draw Pass@1 over tokens a problem, one point a strategy; the file's ending names the format."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("matplotlib", "bench", "a plot") from None
    figure = Figure(figsize=(7.5, 4.8), layout="constrained")
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
    try:
        figure.savefig(Path(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: the plot cannot be written: {error}") from None
