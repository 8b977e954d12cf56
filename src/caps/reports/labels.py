"""Where names of points go so that none covers another. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

HIGH, LETTER = 15.0, 7.2  # of a line of a name, and of a letter in it, about
FAR = 9
LONGEST = 30


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def shared(self, other: "Box") -> float:
        """The area two of them have in common."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return wide * high if wide > 0 and high > 0 else 0.0


def shortened(name: str) -> str:
    """A name that fits into a picture; the table beside it has it whole."""
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def place_names(
    names: Sequence[str], points: Sequence[tuple[float, float]], taken: Sequence[Box], within: Box
) -> list[Box]:
    """A box for each name, near its point, the first ones first; `taken` is better left free."""
    dots = [Box(x - 7, y - 7, x + 7, y + 7) for x, y in points]
    placed: list[Box] = []
    for name, (x, y) in zip(names, points, strict=True):
        near = [(_cost(box, placed, dots, taken, within) + away, box) for away, box in _around(name, x, y)]
        placed.append(min(near, key=lambda one: one[0])[1])
    return placed


def _around(name: str, x: float, y: float) -> list[tuple[float, Box]]:
    """Boxes beside, above and below a point, with how far each lies from it."""
    wide = LETTER * len(name)
    found = []
    for step in range(FAR):
        for side in (-1, 1) if step else (1,):
            middle = y + side * step * HIGH * 0.75
            for left in (x + 10, x - 10 - wide) if step < 2 else (x + 10, x - 10 - wide, x - wide / 2):
                away = 8.0 * step + (4 if left < x else 0)
                found.append((away, Box(left, middle - HIGH / 2, left + wide, middle + HIGH / 2)))
    return found


def _cost(box: Box, placed: Sequence[Box], dots: Sequence[Box], taken: Sequence[Box], within: Box) -> float:
    outside = (box.right - box.left) * (box.bottom - box.top) - box.shared(within)
    names = sum(map(box.shared, placed))
    return 20 * (outside + names) + 6 * sum(map(box.shared, dots)) + 1.5 * sum(map(box.shared, taken))
