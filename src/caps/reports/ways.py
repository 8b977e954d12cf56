"""Where the way of each candidate of a case led."""

from collections.abc import Sequence

from caps.core.types import Pairing, Round, Selection
from caps.reports.games import Stage
from caps.reports.lines import Line


def through_of(round_: Round, ahead: Round | None, chosen: Selection) -> tuple[int, ...]:
    """Who is still in it after a round: whoever plays on, the finalists, or the better of each pair."""
    players = {one for ask in round_.asks for one in ask.entrants}
    if ahead is not None:
        later = {one for ask in ahead.asks for one in ask.entrants} | {*ahead.byes}
        back = set() if ahead.kind == "elimination" else set(chosen.rescued)  # they did not get through
        return tuple(sorted(players & (later - back)))
    if chosen.finalists and not players <= set(chosen.finalists):
        return tuple(sorted(players & set(chosen.finalists) - set(chosen.rescued)))
    ranked = {one: place for place, one in enumerate(chosen.order)}
    pairs = [ask.entrants for ask in round_.asks if isinstance(ask, Pairing)]
    return tuple(sorted({min(pair, key=ranked.__getitem__) for pair in pairs}))


def clusters_of(
    signed: Sequence[tuple[int, str | None]], stages: Sequence[Stage], winner: int
) -> tuple[tuple[int, ...], ...]:
    """Equal answers of which one plays, that one first; nobody is merged where equals play on their own."""
    first = stages[0].players if stages else {winner}
    groups: dict[object, list[int]] = {}
    for one, signature in signed:
        groups.setdefault(one if signature is None else signature, []).append(one)
    found: list[tuple[int, ...]] = []
    for members in groups.values():
        playing = [one for one in members if one in first]
        if len(playing) == 1:
            found.append((playing[0], *(one for one in members if one != playing[0])))
        elif not playing and not stages:
            found.append(tuple(members))
        else:
            found += [(one,) for one in playing]
    return tuple(found)


def fates_of(stages: Sequence[Stage], clusters: Sequence[tuple[int, ...]], line: Line) -> dict[int, str]:
    """Where each candidate's way ended."""
    fates = {one: f"equal to {head}" for head, *others in clusters for one in others}
    for stage in stages:
        if stage.kind != "elimination":
            continue
        for game in stage.games:
            if len(game.shown) == 2:
                a, b = game.shown
                winner = a if a in stage.through else b
                loser = b if winner == a else a
                fates[loser] = f"out in stage {stage.name}, against {winner}"
    finalists = line.get("finalists") or ()
    fates |= dict.fromkeys(finalists, "finalist")
    fates |= dict.fromkeys(rescued_of(line), "finalist, rescued")
    if not finalists:
        fates |= {one: f"place {place}" for place, one in enumerate(line["order"], 1) if one not in fates}
    return fates | {line["winner"]: "chosen"}


def rescued_of(line: Line) -> tuple[int, ...]:
    """Who came back."""
    rescued = line.get("rescued")
    return () if rescued is None else (rescued,) if isinstance(rescued, int) else tuple(rescued)
