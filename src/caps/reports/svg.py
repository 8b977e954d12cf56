"""The bracket of a receipt as a picture: from clusters of equal answers to the winner. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from caps.reports.games import Game, Stage
from caps.reports.receipt import Receipt
from caps.reports.tree import Node, el

LEAF, ROW, PILL, CARD, GAP = 34, 22, 92, 148, 40
TOP = 34
BETWEEN = 14  # from one finalist's subtree to the next


@dataclass(slots=True)
class _Canvas:
    """What is drawn so far; lines go beneath boxes."""

    lines: list[Node] = field(default_factory=list)
    boxes: list[Node] = field(default_factory=list)
    at: dict[int, tuple[float, float]] = field(default_factory=dict)  # where a player's line goes on from
    loss: dict[int, tuple[float, float]] = field(default_factory=dict)  # where it ended

    def join(self, one: int, x: float, y: float, class_: str = "line") -> None:
        """Draw a player's line on to a place."""
        x0, y0 = self.at[one]
        bend = max(x - GAP / 2, x0)
        path = (
            f"M{x0:g} {y0:g}H{bend - 10:g}C{bend + 6:g} {y0:g} {bend - 6:g} {y:g} {bend + 10:g} {y:g}H{x:g}"
        )
        self.lines.append(el("path", d=path, class_=class_))


def bracket(receipt: Receipt) -> Node | None:
    """The picture; none where there was no elimination."""
    stages = receipt.bracket
    if not stages:
        return None
    canvas = _Canvas()
    height = _leaves(canvas, receipt, stages)
    heads = [el("text", "different answers", x=0, y=14, class_="head")]
    for place, stage in enumerate(stages):
        x = PILL + GAP + place * (CARD + GAP)
        heads.append(_head(x + CARD / 2, f"stage {stage.name} · {_levels(stage)}"))
        _round(canvas, receipt, stage, x)
    x = PILL + GAP + len(stages) * (CARD + GAP)
    heads.append(_head(x + PILL / 2, "finalists"))
    height, width = _finals(canvas, receipt, x, height), x + 2 * PILL + 2 * GAP
    heads.append(_head(width - PILL / 2 - 2, "chosen"))
    return el(
        "svg", *heads, *canvas.lines, *canvas.boxes,
        viewBox=f"-2 0 {width + 4:g} {height:g}", width=width + 4, height=height, class_="bracket",
        role="group", aria_label=f"Bracket of {receipt.case}: {receipt.winner} was chosen",
    )  # fmt: skip


def _leaves(canvas: _Canvas, receipt: Receipt, stages: tuple[Stage, ...]) -> float:
    """Put the clusters below each other in the order their games need, slot A above; the height used."""
    blocks: dict[int, list[int]] = {}
    for stage in stages:
        for one in sorted(stage.players):
            blocks.setdefault(one, [one])
        merged = {bye: blocks[bye] for bye in stage.byes}
        for game in _pairs(stage):
            a, b = game.shown
            merged[a if a in stage.through else b] = blocks[a] + blocks[b]
        blocks = merged
    sizes = {head: 1 + len(others) for head, *others in receipt.clusters}
    y = TOP + LEAF / 2
    for block in blocks.values():
        for one in block:
            many = sizes.get(one, 1)
            canvas.boxes.append(_pill(receipt, one, 0, y, more=f" ×{many}" if many > 1 else ""))
            canvas.at[one] = (PILL, y)
            y += LEAF
        y += BETWEEN
    return y


def _round(canvas: _Canvas, receipt: Receipt, stage: Stage, x: float) -> None:
    for game in _pairs(stage):
        a, b = game.shown
        middle = (canvas.at[a][1] + canvas.at[b][1]) / 2
        winner = a if a in stage.through else b
        for one, y in ((a, middle - ROW / 2), (b, middle + ROW / 2)):
            canvas.join(one, x, y, "line" if one == winner else "line out")
            if one != winner:
                canvas.loss[one] = (x + CARD, y)
        canvas.boxes.append(_card(receipt, stage, game, winner=winner, x=x, middle=middle))
        canvas.at[winner] = (x + CARD, middle)
    for bye in stage.byes:
        y = canvas.at[bye][1]
        canvas.boxes.append(el("text", "bye", x=x + CARD / 2, y=y - 5, class_="note", text_anchor="middle"))


def _finals(canvas: _Canvas, receipt: Receipt, x: float, height: float) -> float:
    """Finalists, who came back, and the winner; the height used."""
    finalists = receipt.finalists or ((receipt.winner,) if receipt.winner is not None else ())
    for one in finalists:
        if one in receipt.rescued or one not in canvas.at:
            continue
        y = canvas.at[one][1]
        canvas.join(one, x, y)
        canvas.boxes.append(_pill(receipt, one, x, y))
        canvas.at[one] = (x + PILL, y)
    for one in receipt.rescued:
        canvas.at[one] = canvas.loss.get(one, (PILL, height))
        canvas.join(one, x, height, "line rescue")
        gap = "" if receipt.rescue_gap is None else f", {receipt.rescue_gap:.2f} behind"
        canvas.boxes.append(
            el("text", f"{one} comes back{gap}", x=x - 8, y=height + 24, class_="note", text_anchor="end")
        )
        canvas.boxes.append(_pill(receipt, one, x, height, class_="pill back"))
        canvas.at[one] = (x + PILL, height)
        height += LEAF + BETWEEN
    seats = [canvas.at[one][1] for one in finalists if one in canvas.at]
    middle = sum(seats) / len(seats) if seats else height / 2
    goal = x + PILL + GAP
    for one in sorted(finalists, key=lambda one: one == receipt.winner):  # the winner's line lies on top
        canvas.join(one, goal, middle, "line" if one == receipt.winner else "line out")
    if receipt.winner is not None:
        tone = {True: "good", False: "bad", None: ""}[receipt.right(receipt.winner)]
        canvas.boxes.append(_pill(receipt, receipt.winner, goal, middle, class_=f"pill chosen {tone}"))
    return height + 8


def _pairs(stage: Stage) -> Iterator[Game]:
    """Each pair once, as it was first seated."""
    met: set[frozenset[int]] = set()
    for game in stage.games:
        if len(game.shown) == 2 and frozenset(game.shown) not in met:
            met.add(frozenset(game.shown))
            yield game


def _card(receipt: Receipt, stage: Stage, game: Game, *, winner: int, x: float, middle: float) -> Node:
    rows = []
    for slot, one, y in zip("AB", game.shown, (middle - ROW, middle), strict=True):
        state = "won" if one == winner else "lost"
        said = game.said if one == winner else f"{game.tokens:,} tok"
        rows.append(
            el(
                "g",
                el("rect", x=x, y=y, width=CARD, height=ROW, class_=f"row {state}"),
                el("text", slot, x=x + 8, y=y + 15, class_="slot"),
                el("text", f"{one}{mark(receipt.right(one))}", x=x + 26, y=y + 15, class_=f"who {state}"),
                el("text", said, x=x + CARD - 8, y=y + 15, class_="note", text_anchor="end"),
            )
        )
    frame = el("rect", x=x, y=middle - ROW, width=CARD, height=2 * ROW, rx=5, class_="frame")
    words = f"stage {stage.name}: {describe(game)}; {winner} goes on"
    return el("a", el("title", words), *rows, frame, href=f"#g{game.number}", data_game=game.number)


def describe(game: Game) -> str:
    """A game in words."""
    if len(game.shown) != 2:
        return f"{', '.join(map(str, game.shown))} at {game.level}: {game.said}"
    seats = f"{game.shown[0]} (A) against {game.shown[1]} (B) at {game.level}"
    verdict = game.said if game.preferred is None else f"{game.preferred} preferred, {game.said}"
    return f"{seats}: {verdict}"


def mark(right: bool | None) -> str:  # noqa: FBT001
    """A sign for right and wrong."""
    return "" if right is None else " ✓" if right else " ✗"


def _pill(receipt: Receipt, one: int, x: float, y: float, *, more: str = "", class_: str = "pill") -> Node:
    words = f"{one}{mark(receipt.right(one))}{more}"
    box = el("rect", x=x, y=y - 12, width=PILL, height=24, rx=12, class_=class_)
    return el("g", box, el("text", words, x=x + PILL / 2, y=y + 4.5, class_="who", text_anchor="middle"))


def _head(x: float, words: str) -> Node:
    return el("text", words, x=x, y=14, class_="head", text_anchor="middle")


def _levels(stage: Stage) -> str:
    return ", ".join(sorted({game.level for game in stage.games}))
