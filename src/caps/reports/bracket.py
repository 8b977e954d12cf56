"""Contests drawn in a terminal: comparisons, survivors and the winner."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.text import Text

from caps.core.contest import Contest, Turn
from caps.core.types import (
    Answer,
    Ask,
    Group,
    Pairing,
    Pick,
    Rating,
    Round,
    Selection,
    Unanswered,
    Verdict,
)

Label = Callable[[int], str]
SLOT_A = "ᴬ"
SHOWN, BAR = 8, 24  # candidates whose scores are drawn, and the length of the longest bar
SURE = 4  # least difference of two ratings that counts as sure


class _Block(NamedTuple):
    """A drawn subtree: lines of equal width, and the row of its winner."""

    player: int
    lines: list[Text]
    out: int


def confidence(verdict: Verdict) -> str:
    """Return the confidence of a verdict: tie, LOW or HIGH; other margins as two ratings."""
    named = {0.0: "tie", 2.0: "LOW", 6.0: "HIGH"}
    return named.get(float(abs(verdict.a - verdict.b)), f"{verdict.a:g}-{verdict.b:g}")


def survivors_of(round_: Round, following: Round | None, chosen: Selection) -> tuple[int, ...]:
    """Return who advances: candidates of the next round, finalists, or the better of each pair."""
    players = {candidate for ask in round_.asks for candidate in ask.entrants}
    if following is not None:
        later = {candidate for ask in following.asks for candidate in ask.entrants} | {*following.byes}
        rescued = set() if following.kind == "elimination" else set(chosen.rescued)  # did not advance here
        return tuple(sorted(players & (later - rescued)))
    if chosen.finalists and not players <= set(chosen.finalists):
        return tuple(sorted(players & set(chosen.finalists) - set(chosen.rescued)))
    rank = {candidate: index for index, candidate in enumerate(chosen.order)}
    pairs = [ask.entrants for ask in round_.asks if isinstance(ask, Pairing)]
    return tuple(sorted({min(pair, key=rank.__getitem__) for pair in pairs}))


def draw(contest: Contest, label: Label = str) -> list[Text]:
    """Draw a contest by the kinds of its rounds.

    Elimination rounds become a tree, a round-robin a table, other rounds lists of comparisons. Without a
    round-robin, the final scores follow as bars, so a vote without comparisons can be drawn too.
    """
    turns = list(contest.transcript)
    eliminations = [turn for turn in turns if turn.round.kind == "elimination"]
    tables = [turn for turn in turns if turn.round.kind == "round_robin"]
    others = [turn for turn in turns if turn.round.kind not in ("elimination", "round_robin")]
    parts = [_tree(eliminations, contest, label)] if eliminations else []
    parts += [_cross_table(turn, contest, label) for turn in tables]
    if others:
        parts.append([_round_line(turn, label) for turn in others])
    if not tables:
        parts.append(_scores(contest, label))
    lines: list[Text] = []
    for part in parts:
        lines += [Text(), *part] if lines else part
    return lines


def _scores(contest: Contest, label: Label) -> list[Text]:
    """Draw the final scores of the best candidates as bars; without scores, name the winner."""
    chosen = contest.selection
    best = chosen.order[:SHOWN]
    more = len(chosen.order) - len(best)
    tail = [Text(f"{more} more", style="dim")] if more else []
    width = max(len(label(player)) for player in best)
    if not chosen.scores:
        return [Text("winner: ", style="dim") + Text(label(chosen.winner), style="bold green")]
    top = max([abs(chosen.scores.get(player, 0.0)) for player in best] + [1e-9])
    lines = [Text(chosen.score_kind or "score", style="dim")]
    for player in best:
        score = chosen.scores.get(player)
        bar = "" if score is None else "█" * round(BAR * max(score, 0.0) / top)
        shown = "–" if score is None else f"{score:.2f}"
        style = "bold green" if player == chosen.winner else ""
        lines.append(Text(f"{label(player):<{width}}  {shown:>6}  {bar}", style=style))
    return lines + tail


def _tree(turns: Sequence[Turn], contest: Contest, label: Label) -> list[Text]:
    """Draw one bracket for each finalist; the upper candidate of a pair was shown first."""
    chosen = contest.selection
    blocks: dict[int, _Block] = {}
    for index, turn in enumerate(turns):
        games = _games(turn)
        for player in _players(turn):
            blocks.setdefault(player, _Block(player, [Text(f"{label(player)} ")], 0))
        width = max(blocks[player].lines[0].cell_len for player in _players(turn))
        following = turns[index + 1].round if index + 1 < len(turns) else None
        survivors = survivors_of(turn.round, following, chosen)
        merged = {bye: _extend(blocks[bye], width) for bye in turn.round.byes}
        for (a, b), answer in games.items():
            winner = a if a in survivors else b
            merged[winner] = _join(
                _extend(blocks[a], width), _extend(blocks[b], width), winner, answer, label
            )
        blocks = merged
    lines: list[Text] = []
    for block in blocks.values():
        lines += [*block.lines, Text()]
    lines += [
        Text(f"{label(player)} comes back: it lost narrowly", style="yellow") for player in chosen.rescued
    ]
    return lines


def _players(turn: Turn) -> set[int]:
    return {player for ask in turn.round.asks for player in ask.entrants} | set(turn.round.byes)


def _games(turn: Turn) -> dict[tuple[int, int], Answer]:
    """Return each pair once, with the answer to its first order."""
    games: dict[tuple[int, int], Answer] = {}
    for ask, answer in zip(turn.round.asks, turn.answers, strict=True):
        if isinstance(ask, Pairing) and (ask.b, ask.a) not in games:
            games[ask.a, ask.b] = answer
    return games


def _extend(block: _Block, width: int) -> _Block:
    """Extend the winner's line to a width."""
    lines = []
    for row, line in enumerate(block.lines):
        gap = width - line.cell_len
        lines.append(line + Text(("─" if row == block.out else " ") * gap, style="dim"))
    return _Block(block.player, lines, block.out)


def _join(top: _Block, bottom: _Block, winner: int, answer: Answer, label: Label) -> _Block:
    """Join two subtrees and label the junction with the winner and the confidence."""
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
    """Draw a round-robin: + won, - lost, = tied, doubled if sure; A marks the candidate shown first."""
    cells: dict[tuple[int, int], str] = {}
    for ask, answer in zip(turn.round.asks, turn.answers, strict=True):
        if not isinstance(ask, Pairing):
            continue
        sign = "?"
        if isinstance(answer, Verdict):
            sign = "=" if answer.a == answer.b else ("+" if answer.a > answer.b else "-") * _strength(answer)
        cells[ask.a, ask.b] = f"{sign}{SLOT_A}"
        cells[ask.b, ask.a] = sign.translate(str.maketrans("+-", "-+"))
    players = [player for player in contest.selection.order if any(player in pair for pair in cells)]
    names = [label(player) for player in players]
    width = max(4, *(len(name) for name in names)) + 1
    head = " " * width + "".join(f"{name:>{width}}" for name in names)
    head += f"   {contest.selection.score_kind}"
    lines = [Text(head.rstrip(), style="dim")]
    for player, name in zip(players, names, strict=True):
        row = "".join(f"{cells.get((player, other), '·'):>{width}}" for other in players)
        score = contest.selection.scores.get(player)
        shown = "" if score is None else f"{score:>11.2f}"
        style = "bold green" if player == contest.selection.winner else ""
        lines.append(Text(f"{name:<{width}}{row}{shown}", style=style))
    return lines


def _strength(verdict: Verdict) -> int:
    """Return how often the sign of a verdict is repeated: twice if the judge was sure."""
    return 2 if abs(verdict.a - verdict.b) >= SURE else 1


def _round_line(turn: Turn, label: Label) -> Text:
    """Draw a round in one line: stage, level, then a > b, doubled if sure, = for a tie."""
    levels = dict.fromkeys(str(ask.level) for ask in turn.round.asks)
    head = Text(f"{turn.round.stage} ({', '.join(levels)})  ", style="bold")
    pairs = zip(turn.round.asks, turn.answers, strict=True)
    return head + Text(", ".join(_answer_text(ask, answer, label) for ask, answer in pairs))


def _answer_text(ask: Ask, answer: Answer, label: Label) -> str:
    if isinstance(answer, Unanswered):
        return " ? ".join(map(label, ask.entrants))
    if isinstance(answer, Rating):
        return f"{label(ask.entrants[0])} = {answer.value:g}"
    if isinstance(answer, Pick) and isinstance(ask, Group):
        return f"{label(answer.winner)} of {len(ask.entrants)}"
    if isinstance(answer, Verdict) and isinstance(ask, Pairing):
        sign = "=" if answer.a == answer.b else (">" if answer.a > answer.b else "<") * _strength(answer)
        return f"{label(ask.a)} {sign} {label(ask.b)}"
    return "?"
