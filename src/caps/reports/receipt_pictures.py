"""Pictures of contests as SVG: brackets, matrices of comparisons, probabilities step by step, timelines.

Answers stand on pills and rows where they are short, else the numbers of candidates. Everything that shows a
judge call links to it, and has a title in words.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from caps.core.text import number, plural
from caps.reports.html import Element, Hole, Node, Template, el
from caps.reports.receipt import AnswerGroup, Game, Receipt, Stage

LETTER = 7.1  # width of a letter of the usual size
LEAF, ROW, PILL, CARD, GAP = 34, 22, 104, 160, 34  # sizes in the bracket
TOP = 34
BETWEEN = 14  # from one finalist's subtree to the next
CELL = 34
SURE_GAP = 4  # least difference of two ratings of a sure judge


def clip(text: str, width: float) -> str:
    """The text, shortened with an ellipsis to about a width."""
    most = max(2, int(width / LETTER))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def mark(right: bool | None) -> str:  # noqa: FBT001
    """Return a sign for right or wrong."""
    return "" if right is None else " ✓" if right else " ✗"


def name_of(receipt: Receipt, one: int) -> str:
    """The answer of a candidate with its number: 204 (#3)."""
    short = receipt.name(one)
    return short if short == f"#{one}" else f"{short} (#{one})"


def describe(game: Game, receipt: Receipt) -> str:
    """Describe a judge call in one line."""
    name = partial(name_of, receipt)
    opinions = f" ({game.opinions})" if game.opinions else ""
    if len(game.shown) != 2:
        return f"{', '.join(map(name, game.shown))} at {game.level}: {game.said}{opinions}"
    verdict = game.said if game.preferred is None else f"{name(game.preferred)} preferred, {game.said}"
    return f"{name(game.shown[0])} in A, {name(game.shown[1])} in B, at {game.level}: {verdict}{opinions}"


def picture_of(receipt: Receipt, described: Sequence[str]) -> tuple[str, str, Node] | None:
    """The picture of a contest with its title and how to read it; None where there is nothing to draw.

    `described` says each judge call in words.
    """
    if any(group.chances for group in receipt.answers):
        return "How the probability moved", _PROBABILITIES, probabilities(receipt, described)
    drawn = bracket(receipt)
    if drawn is not None:
        return "Bracket", _BRACKET, drawn
    drawn = None if receipt.probability is not None else matrix(receipt)
    if drawn is not None:
        return "Who beat whom", _MATRIX, drawn
    drawn = scores(receipt)
    return None if drawn is None else ("Answers", _SCORES, drawn)


_PROBABILITIES = (
    "Each row is one answer. The pale bar is its probability before the judge was asked, the dark bar the "
    "final one. Votes are the candidates that give it. A filled square is a verdict for it, a hollow one a "
    "verdict against it. Below: the probability after each verdict; a dot opens the call."
)
_BRACKET = (
    "Read from left to right. Each box is one question to the judge: which of two answers is more likely "
    "right? The upper answer was shown first (slot A); HIGH and LOW are the confidence of the judge. ×3 "
    "means that three candidates gave the same answer. ✓ and ✗ are known labels, which the judge never "
    "sees. In the finals, + is a comparison that the answer of the row won, − one that it lost, = a tie; "
    "doubled if the judge was sure."
)
_MATRIX = (
    "The best answer first. Each cell is the answer of the row against that of the column: + won, − lost, = "
    "tie; doubled if the judge was sure. Several signs are several comparisons. A cell opens its call."
)
_SCORES = "Each bar is one answer, the best first; ×3 means that three candidates gave it."


# Brackets


@dataclass(slots=True)
class _Canvas:
    """The elements drawn so far; boxes cover lines."""

    lines: list[Node] = field(default_factory=list)
    boxes: list[Node] = field(default_factory=list)
    at: dict[int, tuple[float, float]] = field(default_factory=dict)  # the current end of a candidate's line
    loss: dict[int, tuple[float, float]] = field(default_factory=dict)  # where a loser's line ended

    def join(self, one: int, x: float, y: float, class_: str = "line") -> None:
        """Extend a candidate's line to a point."""
        x0, y0 = self.at[one]
        bend = max(x - GAP / 2, x0)
        path = (
            f"M{x0:g} {y0:g}H{bend - 10:g}C{bend + 6:g} {y0:g} {bend - 6:g} {y:g} {bend + 10:g} {y:g}H{x:g}"
        )
        self.lines.append(el("path", d=path, class_=class_))


def bracket(receipt: Receipt) -> Node | None:
    """Draw the bracket from distinct answers to the winner; None without elimination rounds."""
    stages = receipt.bracket
    if not stages:
        return None
    canvas = _Canvas()
    height = _leaves(canvas, receipt, stages)
    heads = [el("text", "answers", x=0, y=14, class_="head")]
    numbered = len({stage.name for stage in stages}) < len(stages)
    for index, stage in enumerate(stages):
        x = PILL + GAP + index * (CARD + GAP)
        name = f"stage {stage.name}" if len(stage.name) == 1 else stage.name
        name = f"round {index + 1}" if numbered else name
        heads.append(_head(x + CARD / 2, f"{name} · {_levels(stage)}"))
        _round(canvas, receipt, stage, x)
    x = PILL + GAP + len(stages) * (CARD + GAP)
    height, goal = _finals(canvas, heads, receipt, x, height)
    heads.append(_head(goal + PILL / 2, "chosen"))
    width = goal + PILL + 2
    return el(
        "svg", *heads, *canvas.lines, *canvas.boxes,
        viewBox=f"-2 0 {width + 4:g} {height:g}", width=width + 4, height=height, class_="bracket drawing",
        role="group", aria_label=f"Bracket of {receipt.case}: {receipt.name(receipt.winner)} was chosen",
    )  # fmt: skip


def _leaves(canvas: _Canvas, receipt: Receipt, stages: tuple[Stage, ...]) -> float:
    """Draw the clusters in the order of their games, slot A above; return the height used."""
    blocks: dict[int, list[int]] = {}
    for stage in stages:
        for one in sorted(stage.players):
            blocks.setdefault(one, [one])
        merged = {
            one: block for one, block in blocks.items() if one in stage.byes or one not in stage.players
        }
        for game in _pairs(stage):
            a, b = game.shown
            merged[a if a in stage.through else b] = blocks[a] + blocks[b]
        blocks = merged
    sizes = {head: 1 + len(others) for head, *others in receipt.clusters}
    y = TOP + LEAF / 2
    for block in blocks.values():
        for one in block:
            canvas.boxes.append(_pill(receipt, one, 0, y, size=sizes.get(one, 1)))
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


def _finals(
    canvas: _Canvas, heads: list[Node], receipt: Receipt, x: float, height: float
) -> tuple[float, float]:
    """Draw finalists, rescued candidates, their round-robin and the winner.

    Returns the height used and where the pill of the winner begins.
    """
    finalists, goal = receipt.finalists, x
    if finalists:
        heads.append(_head(x + PILL / 2, "finalists"))
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
            el("text", f"rescued{gap}", x=x - 8, y=height + 24, class_="note", text_anchor="end")
        )
        canvas.boxes.append(_pill(receipt, one, x, height, class_="pill back"))
        canvas.at[one] = (x + PILL, height)
        height += LEAF + BETWEEN
    here = sorted((one for one in finalists if one in canvas.at), key=lambda one: canvas.at[one][1])
    games = [game for stage in receipt.stages if stage.kind == "round_robin" for game in stage.games]
    if here and games:
        goal = _round_robin(canvas, heads, receipt, here, games) + GAP
    elif here:
        goal = x + PILL + GAP
    ends = here or ([receipt.winner] if receipt.winner in canvas.at else [])
    heights = [canvas.at[one][1] for one in ends if one is not None]
    middle = sum(heights) / len(heights) if heights else height / 2
    for one in sorted(ends, key=lambda one: one == receipt.winner):  # the winner's line lies on top
        if one is not None:
            canvas.join(one, goal, middle, "line" if one == receipt.winner else "line out")
    if receipt.winner is not None:
        tone = {True: "good", False: "bad", None: ""}[receipt.right(receipt.winner)]
        canvas.boxes.append(_pill(receipt, receipt.winner, goal, middle, class_=f"pill chosen {tone}"))
    return height + 8, goal


def _round_robin(
    canvas: _Canvas, heads: list[Node], receipt: Receipt, players: Sequence[int], games: Sequence[Game]
) -> float:
    """Draw the games of the finalists beside their pills, and their win rates; return where they end."""
    x = canvas.at[players[0]][0] + 14
    met = _met(games)
    end = x + len(players) * CELL + 52
    heads.append(_head((x + end) / 2, f"finals · {_levels(Stage('', tuple(games)))}"))
    scores_ = {one.id: one.score for one in receipt.candidates}
    for one in players:
        y = canvas.at[one][1]
        for column, other in enumerate(players):
            left = x + column * CELL
            canvas.boxes.append(_cell(receipt, (one, other), met, left, y - 13))
        score = scores_.get(one)
        shown = "" if score is None else f"{score:.2f}"
        kind = "who won" if one == receipt.winner else "who"
        canvas.boxes.append(el("text", shown, x=end - 8, y=y + 4.5, class_=kind, text_anchor="end"))
        canvas.lines.append(el("path", d=f"M{x - 14:g} {y:g}H{x:g}", class_="line out"))
        canvas.at[one] = (end, y)
    for column, other in enumerate(players):
        name = clip(receipt.name(other), CELL + 2)
        heads.append(el("text", name, x=x + (column + 0.5) * CELL, y=30, class_="note", text_anchor="middle"))
    heads.append(el("text", receipt.score_kind, x=end - 4, y=30, class_="note", text_anchor="end"))
    return end


Met = dict[frozenset[int], list[Game]]


def _met(games: Iterable[Game]) -> Met:
    found: Met = {}
    for game in games:
        if len(game.shown) == 2:
            found.setdefault(frozenset(game.shown), []).append(game)
    return found


def sign_of(game: Game, one: int) -> str:
    """How a comparison ended for one of the two: ++, +, =, −, −− or ?."""
    if game.preferred is None:
        return "?" if game.said.startswith("unanswered") else "="
    sign = "+" if game.preferred == one else "−"
    first, dash, second = game.said.partition("-")
    try:
        sure = abs(float(first) - float(second)) >= SURE_GAP if dash else game.said != "LOW"
    except ValueError:
        sure = game.said != "LOW"
    return sign * (2 if sure else 1)


def _cell(receipt: Receipt, pair: tuple[int, int], met: Met, x: float, y: float) -> Node:
    """One cell of a matrix: the comparisons of two candidates from the first one's side."""
    one, other = pair
    games = [] if one == other else met.get(frozenset(pair), [])
    box = {"x": x + 1, "y": y, "width": CELL - 2, "height": 26, "rx": 4}
    if not games:
        return el("rect", **box, class_="cell none" if one != other else "cell self")
    signs = [sign_of(game, one) for game in games]
    total = sum(sign.count("+") - sign.count("−") for sign in signs)
    tone = "plus" if total > 0 else "minus" if total < 0 else "tie"
    text = " ".join(signs) if len(signs) < 3 else f"{total:+d}".replace("-", "−").replace("+0", "=")
    return el(
        "a",
        el("title", "; ".join(describe(game, receipt) for game in games)),
        el("rect", **box, class_=f"cell {tone}"),
        el("text", text, x=x + CELL / 2, y=y + 17.5, class_=f"sign {tone}", text_anchor="middle"),
        href=f"#g{games[-1].number + 1}",
        data_game=games[-1].number + 1,
    )


def _pairs(stage: Stage) -> Iterator[Game]:
    """Yield each pair once, in its first order."""
    met: set[frozenset[int]] = set()
    for game in stage.games:
        if len(game.shown) == 2 and frozenset(game.shown) not in met:
            met.add(frozenset(game.shown))
            yield game


def _card(receipt: Receipt, stage: Stage, game: Game, *, winner: int, x: float, middle: float) -> Node:
    rows = []
    for slot, one, y in zip("AB", game.shown, (middle - ROW, middle), strict=True):
        state = "won" if one == winner else "lost"
        note = game.said if one == winner else f"{game.tokens:,} tok"
        room = CARD - 38 - 6.2 * len(note)
        name = clip(receipt.name(one), room - 14 * (receipt.right(one) is not None))
        rows.append(el("rect", x=x, y=y, width=CARD, height=ROW, class_=f"row {state}"))
        rows.append(el("text", slot, x=x + 8, y=y + 15, class_="slot"))
        rows.append(
            el("text", f"{name}{mark(receipt.right(one))}", x=x + 24, y=y + 15, class_=f"who {state}")
        )
        rows.append(el("text", note, x=x + CARD - 8, y=y + 15, class_="note", text_anchor="end"))
    frame = el("rect", x=x, y=middle - ROW, width=CARD, height=2 * ROW, rx=5, class_="frame")
    title = f"stage {stage.name}: {describe(game, receipt)}; {name_of(receipt, winner)} advances"
    return el("a", el("title", title), *rows, frame, href=f"#g{game.number + 1}", data_game=game.number + 1)


def _pill(receipt: Receipt, one: int, x: float, y: float, *, size: int = 1, class_: str = "pill") -> Node:
    tail = f"{mark(receipt.right(one))}{f' ×{size}' if size > 1 else ''}"
    label = clip(receipt.name(one), PILL - 14 - LETTER * len(tail)) + tail
    box = el("rect", x=x, y=y - 12, width=PILL, height=24, rx=12, class_=class_)
    text = el("text", label, x=x + PILL / 2, y=y + 4.5, class_="who", text_anchor="middle")
    return el("g", el("title", name_of(receipt, one)), box, text)


def _head(x: float, text: str) -> Node:
    return el("text", text, x=x, y=14, class_="head", text_anchor="middle")


def _levels(stage: Stage) -> str:
    return ", ".join(sorted({game.level for game in stage.games}))


# Matrices

SCORE_BAR = 120


def matrix(receipt: Receipt) -> Node | None:
    """Draw all comparisons of pairs as a matrix in the order of the ranking; None without comparisons."""
    met = _met(receipt.games)
    if not met:
        return None
    meeting = {one for pair in met for one in pair}
    rank = _ranking(receipt)
    players = [one for one in rank if one in meeting]
    known = {one.id: one.score for one in receipt.candidates if one.score is not None}
    top = max([abs(score) for score in known.values()] + [1e-9])
    label = 40 + PILL
    x_bar = label + len(players) * CELL + 16
    drawn: list[Node] = []
    for column, other in enumerate(players):
        drawn.append(
            el(
                "text", clip(receipt.name(other), CELL + 4), x=label + (column + 0.5) * CELL, y=20,
                class_="note", text_anchor="middle",
            )
        )  # fmt: skip
    drawn.append(el("text", receipt.score_kind or "score", x=x_bar, y=20, class_="note"))
    for row, one in enumerate(players):
        y = 28 + row * 28
        chosen = one == receipt.winner
        drawn.append(el("text", f"{row + 1}", x=20, y=y + 17.5, class_="note", text_anchor="end"))
        tone = {True: "good", False: "bad", None: ""}[receipt.right(one)] if chosen else ""
        drawn.append(_pill(receipt, one, 30, y + 13, class_=f"pill chosen {tone}" if chosen else "pill"))
        drawn += [
            _cell(receipt, (one, other), met, label + column * CELL, y)
            for column, other in enumerate(players)
        ]
        if one in known:
            width = max(1.5, SCORE_BAR * max(known[one], 0) / top)
            kind = "bar chosen" if chosen else "bar"
            drawn.append(el("rect", x=x_bar, y=y + 6, width=width, height=14, rx=3, class_=kind))
            drawn.append(el("text", f"{known[one]:.2f}", x=x_bar + width + 6, y=y + 17.5, class_="note"))
    height, width = 34 + 28 * len(players), x_bar + SCORE_BAR + 50
    return el(
        "svg", *drawn, viewBox=f"0 0 {width:g} {height:g}", width=width, height=height,
        class_="cross drawing", role="group",
        aria_label=f"Comparisons of {receipt.case}: {receipt.name(receipt.winner)} ranks first",
    )  # fmt: skip


def _ranking(receipt: Receipt) -> list[int]:
    """The candidates, best first: the chosen one, then by score."""
    return [
        one.id
        for one in sorted(
            receipt.candidates, key=lambda one: (one.id != receipt.winner, -(one.score or 0.0), one.id)
        )
    ]


# Answers by score or votes

SHOWN_ANSWERS = 10


def scores(receipt: Receipt) -> Node | None:
    """Draw the scores of answers as bars, or without scores their votes; None if nothing is known."""
    known = {one.id: one.score for one in receipt.candidates if one.score is not None}
    groups = [group for group in receipt.answers if group.members]
    if not groups:
        return None
    values: list[tuple[AnswerGroup, float]] = [
        (group, max(known.get(one, 0.0) for one in group.members) if known else float(len(group.members)))
        for group in groups
    ]
    values.sort(key=lambda pair: (receipt.winner not in pair[0].members, -pair[1]))
    top = (
        1.0 if receipt.score_kind == "probability" and known else max([1e-9, *(value for _, value in values)])
    )
    drawn: list[Node] = [
        el("text", (receipt.score_kind or "score") if known else "votes", x=PILL + 24, y=16, class_="note")
    ]
    for row, (group, value) in enumerate(values[:SHOWN_ANSWERS]):
        one = _first(receipt, group)
        chosen = receipt.winner in group.members
        y = 26 + row * 30
        drawn.append(
            _pill(
                receipt, one, 2, y + 13, size=len(group.members), class_="pill chosen" if chosen else "pill"
            )
        )
        width = max(1.5, 170 * max(value, 0) / top)
        kind = "bar chosen" if chosen else "bar"
        drawn.append(el("rect", x=PILL + 24, y=y + 5, width=width, height=16, rx=3, class_=kind))
        shown = share(value) if receipt.score_kind == "probability" and known else number(value)
        drawn.append(el("text", shown, x=PILL + 30 + width, y=y + 17.5, class_="note"))
    more = len(values) - SHOWN_ANSWERS
    height = 34 + 30 * min(len(values), SHOWN_ANSWERS)
    if more > 0:
        drawn.append(el("text", f"and {plural(more, 'more answer')}", x=4, y=height + 6, class_="note"))
        height += 16
    return el(
        "svg", *drawn, viewBox=f"0 0 380 {height:g}", width=380, height=height, class_="scores drawing",
        role="group", aria_label=f"Answers of {receipt.case}: {receipt.name(receipt.winner)} was chosen",
    )  # fmt: skip


def _first(receipt: Receipt, group: AnswerGroup) -> int:
    """The candidate that stands for its group."""
    if receipt.winner is not None and receipt.winner in group.members:
        return receipt.winner
    return group.members[0]


# Probabilities

SHOWN_LINES = 5
WIDE = 720


X_CHANCE = PILL + 16
SHOWN_ROWS = 8
LEFT, RIGHT, BOTTOM = 44, WIDE - 120, 196  # of the lines below the rows; their top is 0
STEPS_HEIGHT = BOTTOM + 40


def _answer_row(*holes: Hole) -> Node:
    (shift, title, label, pill, wide, before, after, kind, x_text, text, tone, to_votes, votes_wide, votes,
     rest) = holes  # fmt: skip
    return el(
        "g",
        el(
            "g",
            el("title", title),
            el("rect", x=2, y=1, width=PILL, height=24, rx=12, class_=pill),
            el("text", label, x=2 + PILL / 2, y=17.5, class_="who", text_anchor="middle"),
        ),
        el("rect", x=X_CHANCE, y=3, width=wide, height=20, rx=3, class_="track"),
        el("rect", x=X_CHANCE, y=3, width=before, height=20, rx=3, class_="before"),
        el("rect", x=X_CHANCE, y=8, width=after, height=10, rx=2, class_=kind),
        el("text", text, x=x_text, y=17.5, class_=tone),
        el(
            "g",
            el("rect", x=0, y=6, width=votes_wide, height=14, rx=2, class_=kind),
            el("text", votes, x=55, y=17.5, class_="note"),
            transform=to_votes,
        ),
        rest,
        transform=shift,
    )


_ANSWER_ROW = Template("answer", 15, _answer_row)
_SQUARE = Template(
    "square",
    3,
    lambda x, width, kind: el("rect", x=x, y=8, width=width, height=10, rx=1.5, class_="square " + kind),
)
_NOTE = Template("note", 3, lambda text, x, y: el("text", text, x=x, y=y, class_="note"))
_TICK = Template(
    "tick", 2, lambda text, x: el("text", text, x=x, y=BOTTOM + 17, class_="note", text_anchor="middle")
)
_TRACE = Template("trace", 2, lambda path, kind: el("path", d=path, class_="trace " + kind))
_LABEL = Template(
    "label", 3, lambda text, y, kind: el("text", text, x=RIGHT + 10, y=y, class_="label " + kind)
)
_DOT = Template(
    "dot",
    5,
    lambda words, call, number, x, y: el(
        "a", el("title", words), el("circle", cx=x, cy=y, r=4.5, class_="dot"), href=call, data_game=number
    ),
)
_FIRST_DOT = Template("first", 2, lambda x, y: el("circle", cx=x, cy=y, r=4.5, class_="dot"))


def _lines(shift: Hole, drawn: Hole) -> Node:
    grid = []
    for part in (0.0, 0.5, 1.0):
        y = BOTTOM * (1 - part)
        grid.append(el("path", d=f"M{LEFT} {y:g}H{RIGHT}", class_="grid"))
        grid.append(el("text", f"{100 * part:.0f} %", x=LEFT - 8, y=y + 4, class_="note", text_anchor="end"))
    below = el(
        "text", "after verdict", x=(LEFT + RIGHT) / 2, y=BOTTOM + 33, class_="note", text_anchor="middle"
    )
    return el("g", *grid, below, drawn, transform=shift)


_LINES = Template("lines", 2, _lines)


def probabilities(receipt: Receipt, described: Sequence[str]) -> Node:
    """Draw the answers with their votes, tests, verdicts and probabilities, and how those moved."""
    groups = [group for group in receipt.answers if group.chances]
    shown, moved = groups[:SHOWN_ROWS], len(groups[0].chances) > 1
    passed = {one.id: one.passed for one in receipt.candidates if one.passed is not None}
    wide = 116 if moved else 160
    x_votes = X_CHANCE + wide + (112 if moved else 68)
    x_tests = x_votes + 88
    x_verdicts = x_tests + (84 if passed else 0)
    heads = [("votes", x_votes), ("verdicts", x_verdicts), ("probability", X_CHANCE)]
    heads += [("examples", x_tests)] if passed else []
    drawn: list[Element] = [_NOTE(head, x, 16) for head, x in heads]
    most = max(len(group.members) for group in groups)
    about = _verdicts_about(receipt, shown)
    for row, group in enumerate(shown):
        one, votes = _first(receipt, group), len(group.members)
        chosen = receipt.winner in group.members
        right = receipt.right(one)
        before, after = group.chances[0], group.chances[-1]
        tests = _passed(passed.get(one), receipt.examples, x_tests) if passed else []
        drawn.append(
            _ANSWER_ROW(
                f"translate(0 {26 + 30 * row})",
                name_of(receipt, one),
                clip(receipt.name(one), PILL - 14 - LETTER * len(mark(right))) + mark(right),
                f"pill chosen {_TONES[right]}" if chosen else "pill",
                wide,
                max(1, wide * before),
                max(1.5, wide * after),
                "bar chosen" if chosen else "bar",
                X_CHANCE + wide + 8,
                f"{share(before)} → {share(after)}" if moved else share(after),
                "who won" if chosen else "who lost",
                f"translate({x_votes} 0)",
                max(3, 50 * votes / most),
                str(votes),
                [*tests, *_squares(about[row], x_verdicts)],
            )
        )
    y = 30 + 30 * len(shown)
    if len(groups) > len(shown):
        rest = groups[len(shown) :]
        most_likely = share(max(group.chances[-1] for group in rest))
        drawn.append(_NOTE(f"{plural(len(rest), 'more answer')}, each at most {most_likely}", 4, y + 12))
        y += 20
    if moved:
        drawn.append(_LINES(f"translate(0 {y + 16})", _steps(receipt, shown[:SHOWN_LINES], described)))
        y += 16 + STEPS_HEIGHT
    return el(
        "svg", *drawn, viewBox=f"0 0 {WIDE} {y:g}", width=WIDE, height=y, class_="beliefs drawing",
        role="group",
        aria_label=f"Answers of {receipt.case}: {receipt.name(receipt.winner)} was chosen",
    )  # fmt: skip


_TONES = {True: "good", False: "bad", None: ""}


def share(chance: float) -> str:
    """A probability in per cent; the extremes are never rounded to certainty."""
    if 0.995 <= chance < 1:
        return "> 99 %"
    return "< 1 %" if 0 < chance < 0.005 else f"{100 * chance:.0f} %"


def _passed(passed: int | None, examples: int, x: float) -> list[Element]:
    if passed is None or not examples:
        return [_NOTE("–", x, 17.5)]
    return [
        el("rect", x=x, y=6, width=30, height=14, rx=2, class_="track"),
        el("rect", x=x, y=6, width=max(1.5, 30 * passed / examples), height=14, rx=2, class_="bar test"),
        _NOTE(f"{passed}/{examples}", x + 35, 17.5),
    ]


def _verdicts_about(receipt: Receipt, groups: Sequence[AnswerGroup]) -> list[list[str]]:
    """For each answer, the verdicts that compare it with another: for it, against it, or even."""
    row_of = {one: row for row, group in enumerate(groups) for one in group.members}
    found: list[list[str]] = [[] for _ in groups]
    for game in receipt.games:
        if len(game.shown) != 2 or game.said.startswith("unanswered"):
            continue
        rows = [row_of.get(one) for one in game.shown]
        preferred = None if game.preferred is None else row_of.get(game.preferred)
        if rows[0] != rows[1]:
            for row in rows:
                if row is not None:
                    found[row].append(
                        "even" if game.preferred is None else "for" if preferred == row else "against"
                    )
    return found


def _squares(verdicts: Sequence[str], x: float) -> list[Element]:
    """The verdicts about an answer: filled squares for it, hollow ones against it, grey ones for a tie."""
    width = min(11.0, 100 / max(1, len(verdicts)))
    drawn: list[Element] = [
        _SQUARE(x + place * width, max(1.5, width - 2), kind) for place, kind in enumerate(verdicts)
    ]
    return drawn or [_NOTE("–", x, 17.5)]


def _steps(receipt: Receipt, groups: Sequence[AnswerGroup], described: Sequence[str]) -> list[Element]:
    """Draw the probability of the likeliest answers after each verdict as lines."""
    count = len(groups[0].chances) - 1
    xs = [LEFT + (RIGHT - LEFT) * step / count for step in range(count + 1)]
    every = max(1, count // 12 + (count % 12 > 0))
    drawn: list[Element] = [
        _TICK(str(step) if step else "before", xs[step]) for step in range(0, count + 1, every)
    ]
    answered = [game for stage in receipt.stages if stage.name != "not answered" for game in stage.games]
    labels = _spread([BOTTOM * (1 - group.chances[-1]) for group in groups], 15, 0, BOTTOM)
    for rank, (group, y_label) in reversed(list(enumerate(zip(groups, labels, strict=True)))):
        kind = "chosen" if receipt.winner in group.members else f"other{min(rank, 3)}"
        ys = [BOTTOM * (1 - chance) for chance in group.chances]
        path = "M" + "L".join([f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True)])
        drawn.append(_TRACE(path, kind))
        drawn.append(_LABEL(clip(receipt.name(_first(receipt, group)), 100), y_label + 4, kind))
        if kind != "chosen":
            continue
        drawn.append(_FIRST_DOT(xs[0], ys[0]))
        shares = [share(chance) for chance in group.chances]
        for step, game in enumerate(answered, 1):
            moved = f"{shares[step - 1]} → {shares[step]}"
            words = f"verdict {step}: {described[game.number]}; {moved}"
            drawn.append(_DOT(words, f"#g{game.number + 1}", game.number + 1, xs[step], ys[step]))
    return drawn


def _spread(places: Sequence[float], least: float, top: float, bottom: float) -> list[float]:
    """Move labels apart so that neighbours are at least `least` away, within bounds where possible."""
    order = sorted(range(len(places)), key=places.__getitem__)
    found = list(places)
    for before, after in pairwise(order):
        found[after] = max(found[after], found[before] + least)
    excess = max(0.0, found[order[-1]] - bottom) if order else 0.0
    floor = bottom
    for one in reversed(order):
        if not excess:
            break
        found[one] = min(found[one], floor)
        floor = found[one] - least
    return [max(top, y) for y in found]


# Timelines of adaptive sampling


def timeline(receipt: Receipt) -> Node | None:
    """Draw an adaptive question: samples over time, the probability after each step, and what was spent."""
    steps = receipt.story
    if not steps:
        return None
    end = max(float(steps[-1]["seconds"]), 1e-3)
    left, right, top, bottom = 44.0, WIDE - 120.0, 12.0, 132.0
    floor = bottom + 76
    most = max(1, *(step["samples"] for step in steps))
    spent = [(sum(step["generation"]), sum(step["judging"])) for step in steps]
    total = max(1, *(a + b for a, b in spent))

    def x_at(seconds: float) -> float:
        return left + (right - left) * seconds / end

    drawn = []
    for part in (0.0, 0.5, 1.0):
        y = bottom - (bottom - top) * part
        drawn.append(el("path", d=f"M{left:g} {y:g}H{right:g}", class_="grid"))
        drawn.append(el("text", f"{100 * part:.0f} %", x=left - 8, y=y + 4, class_="note", text_anchor="end"))
    stairs = [(x_at(step["seconds"]), bottom - (bottom - top) * step["samples"] / most) for step in steps]
    drawn.append(el("path", d=_stairs(stairs, left, bottom, right), class_="trace other1"))
    last = stairs[-1][1]
    known = [(step, x_at(step["seconds"])) for step in steps if step["probability"] is not None]
    points = [(x, bottom - (bottom - top) * step["probability"]) for step, x in known]
    if points:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        drawn.append(el("path", d=path, class_="trace chosen"))
    for (step, _), (x, y) in zip(known, points, strict=True):
        words = f"{step['seconds']:.1f} s, {step['what']}: {share(step['probability'])} sure"
        drawn.append(el("g", el("title", words), el("circle", cx=x, cy=y, r=4, class_="dot")))
    ends = _spread([points[-1][1] if points else top, last], 15, top, bottom)
    drawn.append(el("text", "probability", x=right + 10, y=ends[0] + 4, class_="label chosen"))
    drawn.append(el("text", plural(most, "sample"), x=right + 10, y=ends[1] + 4, class_="label other1"))
    height = 44
    for place, kind in ((1, "judging"), (0, "generation")):
        sums = [(x_at(step["seconds"]), part[0] + (part[1] if place else 0))
                for step, part in zip(steps, spent, strict=True)]  # fmt: skip
        path = _stairs([(x, floor - height * value / total) for x, value in sums], left, floor, right)
        drawn.append(el("path", d=f"{path}V{floor:g}H{left:g}Z", class_=f"area {kind}"))
    generated, judged = spent[-1]
    drawn.append(
        el("text", f"{number(judged, 0)} judging", x=right + 10, y=floor - 28, class_="label judging")
    )
    drawn.append(
        el("text", f"{number(generated, 0)} generation", x=right + 10, y=floor - 8, class_="label generation")
    )
    drawn.append(el("text", "tokens", x=left - 8, y=floor - 18, class_="note", text_anchor="end"))
    for part in (0.0, 0.5, 1.0):
        text = f"{end * part:.1f} s"
        drawn.append(el("text", text, x=x_at(end * part), y=floor + 17, class_="note", text_anchor="middle"))
    deep = floor + 24
    return el(
        "svg", *drawn, viewBox=f"0 0 {WIDE} {deep:g}", width=WIDE, height=deep, class_="beliefs drawing",
        role="group", aria_label=f"Timeline of {receipt.case}: samples, probability and tokens over time",
    )  # fmt: skip


def _stairs(points: Sequence[tuple[float, float]], left: float, bottom: float, right: float) -> str:
    """A path that rises in steps."""
    return f"M{left:g} {bottom:g}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points) + f"H{right:g}"
