"""A flame graph as an SVG: the width of a function is its share of the samples, callers are above it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

WIDTH, ROW, LEAST = 1200.0, 17, 0.004  # pixels, pixels, share of all samples
CHARACTER = 6.2  # pixels
COLOURS = {"caps": "#8fbce6", "aiohttp": "#f2b880", "asyncio": "#c9b6e4"}  # by the first word of a name
OTHER = "#d6d6d6"


@dataclass(slots=True)
class Frame:
    """A function under the same callers: its samples, and what it called."""

    count: int = 0
    callees: "dict[str, Frame]" = field(default_factory=dict)


def write_flame(samples: Mapping[tuple[str, ...], int], path: Path, title: str) -> None:
    """Write the graph of stacks, outermost function first, with how often each was seen."""
    root = Frame(sum(samples.values()))
    for stack, count in samples.items():
        at = root
        for name in stack:
            at = at.callees.setdefault(name, Frame())
            at.count += count
    shapes: list[str] = []
    depth = _draw(root, root.count, 0.0, 0, shapes)
    height = ROW * (depth + 2)
    style = "text{font:11px ui-monospace,monospace;fill:#222}.t{font-weight:bold}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height}" role="img">'
    ground = f'<rect width="{WIDTH:g}" height="{height}" fill="#fff"/>'
    name = f'<title>{escape(title)}</title><text class="t" x="4" y="12">{escape(title)}</text>'
    path.write_text(f"{head}<style>{style}</style>{ground}{name}{''.join(shapes)}</svg>\n")


def _draw(frame: Frame, total: int, left: float, row: int, shapes: list[str]) -> int:
    """Draw what a function called, the most frequent first; returns the deepest row."""
    deepest = row
    for name, one in sorted(frame.callees.items(), key=lambda item: -item[1].count):
        width = WIDTH * one.count / total
        if one.count >= LEAST * total:
            y, room = ROW * (row + 1), int((width - 6) / CHARACTER)
            text = name if len(name) <= room else name[: room - 1] + "…" if room > 3 else ""
            label = f'<text x="{left + 3:.1f}" y="{y + 12}">{escape(text)}</text>' if text else ""
            colour = COLOURS.get(name.partition(".")[0], OTHER)
            shapes.append(
                f"<g><title>{escape(name)}: {100 * one.count / total:.1f} %</title>"
                f'<rect x="{left:.1f}" y="{y}" width="{max(0.5, width - 0.5):.1f}" height="{ROW - 1}" '
                f'fill="{colour}"/>{label}</g>'
            )
            deepest = max(deepest, _draw(one, total, left, row + 1, shapes))
        left += width
    return deepest


def stack_of(frames: Iterable[tuple[str, str]], outermost: str) -> tuple[str, ...]:
    """Names of functions from the outermost one on, of (file, qualified name), the innermost first."""
    found: list[str] = []
    for file, function in frames:
        package = next((one for one in COLOURS if f"/{one}/" in file), Path(file).stem)
        found.append(f"{package}.{function}")
        if function == outermost:
            break
    return tuple(reversed(found))
