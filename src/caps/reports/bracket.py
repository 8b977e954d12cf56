"""The picture of a contest, drawn from its transcript: who met whom, who went on, who won."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.text import Text

from caps.core.contest import Contest, Turn
from caps.core.types import Answer, Ask, Group, Pairing, Pick, Rating, Unanswered, Verdict

Label = Callable[[int], str]
SLOT_A = "ᴬ"


class _Block(NamedTuple):
    """A drawn subtree: equally wide lines, and the row its winner leaves from."""

    player: int
    lines: list[Text]
    out: int


def confidence(verdict: Verdict) -> str:
    """Name a verdict the way judges do: tie, LOW or HIGH; other margins as two ratings."""
    named = {0.0: "tie", 2.0: "LOW", 6.0: "HIGH"}
    return named.get(float(abs(verdict.a - verdict.b)), f"{verdict.a:g}-{verdict.b:g}")


def draw(contest: Contest, label: Label = str) -> list[Text]:
    """Draw a contest: elimination rounds as a tree, a closing round-robin as a table, others as lists."""
    turns = list(contest.transcript)
    eliminations = [turn for turn in turns if turn.round.kind == "elimination"]
    lines = _tree(eliminations, contest, label) if eliminations else []
    for turn in turns:
        if turn.round.kind == "round_robin":
            lines += (
                [Text(), *_cross_table(turn, contest, label)] if lines else _cross_table(turn, contest, label)
            )
        elif turn.round.kind != "elimination":
            lines += _list(turn, label)
    return lines


def _tree(turns: Sequence[Turn], contest: Contest, label: Label) -> list[Text]:
    """Nested brackets, one for each finalist; the upper of two sat in slot A."""
    chosen = contest.selection
    blocks: dict[int, _Block] = {}
    for place, turn in enumerate(turns):
        games = _games(turn)
        for player in _players(turn):
            blocks.setdefault(player, _Block(player, [Text(f"{label(player)} ")], 0))
        width = max(blocks[player].lines[0].cell_len for player in _players(turn))
        if place + 1 < len(turns):
            survivors = _players(turns[place + 1])
        elif chosen.finalists:
            survivors = set(chosen.finalists) - set(chosen.rescued)
        else:
            survivors = set(chosen.order[: len(_players(turn)) - len(games)])
        merged = {bye: _widened(blocks[bye], width) for bye in turn.round.byes}
        for (a, b), answer in games.items():
            winner = a if a in survivors else b
            merged[winner] = _join(
                _widened(blocks[a], width), _widened(blocks[b], width), winner, answer, label
            )
        blocks = merged
    lines: list[Text] = []
    for block in blocks.values():
        lines += [*block.lines, Text()]
    lines += [Text(f"{label(one)} comes back: it lost narrowly", style="yellow") for one in chosen.rescued]
    return lines


def _players(turn: Turn) -> set[int]:
    return {player for ask in turn.round.asks for player in ask.entrants} | set(turn.round.byes)


def _games(turn: Turn) -> dict[tuple[int, int], Answer]:
    """Each pair once, with the answer to it as first seated."""
    games: dict[tuple[int, int], Answer] = {}
    for ask, answer in zip(turn.round.asks, turn.answers, strict=True):
        if isinstance(ask, Pairing) and (ask.b, ask.a) not in games:
            games[ask.a, ask.b] = answer
    return games


def _widened(block: _Block, width: int) -> _Block:
    """Draw the winner's line out to a width."""
    lines = []
    for row, line in enumerate(block.lines):
        gap = width - line.cell_len
        lines.append(line + Text(("─" if row == block.out else " ") * gap, style="dim"))
    return _Block(block.player, lines, block.out)


def _join(top: _Block, bottom: _Block, winner: int, answer: Answer, label: Label) -> _Block:
    """Two subtrees meet: connect them and write who goes on, and how surely."""
    width = top.lines[0].cell_len
    lines = [*top.lines, Text(" " * width), *bottom.lines]
    first, last = top.out, len(top.lines) + 1 + bottom.out
    middle = (first + last) // 2
    sure = confidence(answer) if isinstance(answer, Verdict) else "unanswered"
    head = Text(f"{label(winner)} ", style="bold") + Text(sure, style="dim")
    drawn = []
    for row, line in enumerate(lines):
        if row == middle:
            tail = Text("├─ ", style="dim") + head
        elif row in (first, last):
            tail = Text("┐" if row == first else "┘", style="dim")
        else:
            tail = Text("│" if first < row < last else " ", style="dim")
        drawn.append(line + tail)
    full = max(line.cell_len for line in drawn)
    return _Block(winner, [line + Text(" " * (full - line.cell_len)) for line in drawn], middle)


def _cross_table(turn: Turn, contest: Contest, label: Label) -> list[Text]:
    """Everyone against everyone: + won, - lost, = tied, doubled where HIGH; A marks slot A."""
    cells: dict[tuple[int, int], str] = {}
    for ask, answer in zip(turn.round.asks, turn.answers, strict=True):
        if not isinstance(ask, Pairing):
            continue
        sign = "?"
        if isinstance(answer, Verdict):
            strength = 2 if abs(answer.a - answer.b) >= 4 else 1
            sign = "=" if answer.a == answer.b else ("+" if answer.a > answer.b else "-") * strength
        cells[ask.a, ask.b] = f"{sign}{SLOT_A}"
        cells[ask.b, ask.a] = sign.translate(str.maketrans("+-", "-+"))
    players = [one for one in contest.selection.order if any(one in seats for seats in cells)]
    names = [label(one) for one in players]
    wide = max(4, *(len(name) for name in names)) + 1
    head = " " * wide + "".join(f"{name:>{wide}}" for name in names)
    head += f"   {contest.selection.score_kind}"
    lines = [Text(head.rstrip(), style="dim")]
    for one, name in zip(players, names, strict=True):
        row = "".join(f"{cells.get((one, other), '·'):>{wide}}" for other in players)
        rate = contest.selection.scores.get(one)
        won = "" if rate is None else f"{rate:>11.2f}"
        style = "bold green" if one == contest.selection.winner else ""
        lines.append(Text(f"{name:<{wide}}{row}{won}", style=style))
    return lines


def _list(turn: Turn, label: Label) -> list[Text]:
    head = Text(f"{turn.round.stage}  ", style="bold")
    said = [_phrase(ask, answer, label) for ask, answer in zip(turn.round.asks, turn.answers, strict=True)]
    return [head + Text(", ".join(said))]


def _phrase(ask: Ask, answer: Answer, label: Label) -> str:
    if isinstance(answer, Unanswered):
        return f"{' ? '.join(map(label, ask.entrants))}"
    if isinstance(answer, Rating):
        return f"{label(ask.entrants[0])} = {answer.value:g}"
    if isinstance(answer, Pick) and isinstance(ask, Group):
        return f"{label(answer.winner)} of {len(ask.entrants)}"
    if isinstance(answer, Verdict) and isinstance(ask, Pairing):
        sign = "=" if answer.a == answer.b else ">" if answer.a > answer.b else "<"
        return f"{label(ask.a)} {sign} {label(ask.b)}"
    return "?"
