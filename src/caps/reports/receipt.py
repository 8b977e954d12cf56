"""The receipt of a selection: how one case was decided, as plain data; with what the judge saw and said."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from caps.core.types import Answer, Ask, Case, Pairing, Pick, Rating, Round, Selection, Unanswered, Verdict
from caps.engines.base import Play
from caps.judges.base import Bout
from caps.reports.bracket import confidence
from caps.reports.figures import by_ask, malformed
from caps.reports.flips import Flip, flips
from caps.reports.lines import Line, answer_of, ask_of
from caps.reports.retold import Retelling

ELIMINATION = ("A", "B")


@dataclass(frozen=True, slots=True)
class Game:
    """One ask and what came of it; of two shown, the first sat in slot A."""

    number: int
    level: str
    shown: tuple[int, ...]
    preferred: int | None  # by the judge: nobody after a tie, a rating or silence
    said: str  # HIGH, LOW, tie, two ratings, a rating, a pick, or why there is no answer
    malformed: str | None
    tokens: int
    cached: int
    output: int
    tries: int


@dataclass(frozen=True, slots=True)
class Stage:
    """One round: what was asked at once, who had a bye, and who is still in it afterwards."""

    name: str
    games: tuple[Game, ...]
    byes: tuple[int, ...] = ()
    through: tuple[int, ...] = ()

    @property
    def players(self) -> set[int]:
        """Everyone in it."""
        return {one for game in self.games for one in game.shown} | set(self.byes)


@dataclass(frozen=True, slots=True)
class Standing:
    """A candidate: how far it came, and what is known of it."""

    id: int
    fate: str
    right: bool | None = None
    passed: int | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """How a case was decided; without `whole`, only from its calls, because its contest cannot be redone."""

    case: str
    strategy: str
    winner: int | None
    stages: tuple[Stage, ...]
    candidates: tuple[Standing, ...]
    clusters: tuple[tuple[int, ...], ...] = ()  # whoever stands for a cluster is named first
    finalists: tuple[int, ...] = ()
    rescued: tuple[int, ...] = ()
    rescue_gap: float | None = None
    provisional: bool = False
    stopped: str | None = None
    error: str | None = None
    examples: int = 0
    asked: int = 0
    usd: float | None = None
    flips: tuple[Flip, ...] | None = None
    whole: bool = False
    games: tuple[Game, ...] = field(default=(), repr=False)

    def right(self, one: int) -> bool | None:
        """Whether a candidate is right, where that is known."""
        return next((each.right for each in self.candidates if each.id == one), None)

    @property
    def bracket(self) -> tuple[Stage, ...]:
        """The elimination rounds a picture can be drawn of."""
        drawn = [stage for stage in self.stages if stage.name in ELIMINATION]
        return tuple(drawn) if self.whole and self.stages[: len(drawn)] == tuple(drawn) else ()


def receipt_of(run: Retelling, line: Line, bout: Bout | None, *, turn: bool = True) -> Receipt:
    """The receipt of a line; `turn` verdicts around to see which of them decided."""
    play = None if bout is None or "winner" not in line else run.play(bout)
    games = _games(run.calls.get(line["id"], []))
    if play is None:
        return _from_lines(run, line, None if bout is None else bout.case, games)
    return _from_contest(run, line, play, games, turn=turn)


def _from_lines(run: Retelling, line: Line, case: Case | None, games: list[tuple[str, Ask, Game]]) -> Receipt:
    stages: list[tuple[str, str, list[Game]]] = []
    for name, _, game in games:
        if not stages or stages[-1][:2] != (name, game.level):
            stages.append((name, game.level, []))
        stages[-1][2].append(game)
    order = line.get("order") or []
    fates = {one: f"place {place}" for place, one in enumerate(order, 1)}
    return Receipt(
        line["id"],
        str(run.made["strategy"]["name"]),
        line.get("winner"),
        tuple(Stage(name, tuple(held)) for name, _, held in stages),
        tuple(_standing(one, fates[one], line, case) for one in sorted(order)),
        finalists=tuple(line.get("finalists") or ()),
        rescued=_rescued(line),
        provisional=bool(line.get("provisional")),
        error=line.get("error"),
        examples=line.get("examples", 0),
        asked=sum(game.tokens for _, _, game in games),
        usd=line.get("usd"),
        games=tuple(game for _, _, game in games),
    )


def _from_contest(
    run: Retelling, line: Line, play: Play, games: list[tuple[str, Ask, Game]], *, turn: bool
) -> Receipt:
    contest, case, entrants = play.contest, play.bout.case, play.bout.described.entrants
    by = {ask: game for _, ask, game in games}
    chosen, turns = contest.selection, contest.transcript
    stages = []
    for place, held in enumerate(turns):
        ahead = turns[place + 1].round if place + 1 < len(turns) else None
        through = _through(held.round, ahead, chosen)
        asked = tuple(by[ask] for ask in held.round.asks)
        stages.append(Stage(held.round.stage, asked, held.round.byes, through))
    clusters = _clusters([(one.id, one.signature) for one in entrants], stages)
    fates = _fates(stages, clusters, line)
    turned = None
    if turn:
        seed = f"{run.made['seed']}/{case.id}"
        turned = tuple(flips(run.strategy, entrants, seed=seed, contest=contest))
    return Receipt(
        line["id"],
        str(run.made["strategy"]["name"]),
        chosen.winner,
        tuple(stages),
        tuple(
            _standing(one.id, fates.get(one.id, "did not play"), line, case, chosen.scores.get(one.id))
            for one in entrants
        ),
        clusters,
        chosen.finalists,
        chosen.rescued,
        chosen.facts.get("rescue_gap"),
        chosen.provisional,
        contest.stopped,
        None,
        line.get("examples", 0),
        sum(game.tokens for _, _, game in games),
        line.get("usd"),
        turned,
        whole=True,
        games=tuple(game for _, _, game in games),
    )


def _through(round_: Round, ahead: Round | None, chosen: Selection) -> tuple[int, ...]:
    """Who is still in it after a round: whoever plays on, the finalists, or the better of each pair."""
    players = {one for ask in round_.asks for one in ask.entrants}
    if ahead is not None:
        later = {one for ask in ahead.asks for one in ask.entrants} | {*ahead.byes}
        back = set() if ahead.stage in ELIMINATION else set(chosen.rescued)  # they did not get through
        return tuple(sorted(players & (later - back)))
    if chosen.finalists and not players <= set(chosen.finalists):
        return tuple(sorted(players & set(chosen.finalists) - set(chosen.rescued)))
    ranked = {one: place for place, one in enumerate(chosen.order)}
    pairs = [ask.entrants for ask in round_.asks if isinstance(ask, Pairing)]
    return tuple(sorted({min(pair, key=ranked.__getitem__) for pair in pairs}))


def _clusters(
    signed: Sequence[tuple[int, str | None]], stages: Sequence[Stage]
) -> tuple[tuple[int, ...], ...]:
    """Equal answers of which one plays, that one first; nobody is merged where equals play on their own."""
    first = stages[0].players if stages else set()
    groups: dict[object, list[int]] = {}
    for one, signature in signed:
        groups.setdefault(one if signature is None else signature, []).append(one)
    found: list[tuple[int, ...]] = []
    for members in groups.values():
        playing = [one for one in members if one in first]
        if len(playing) == 1:
            found.append((playing[0], *(one for one in members if one != playing[0])))
        elif not playing and not first:
            found.append(tuple(members))
        else:
            found += [(one,) for one in playing]
    return tuple(found)


def _fates(stages: Sequence[Stage], clusters: Sequence[tuple[int, ...]], line: Line) -> dict[int, str]:
    """Where each candidate's way ended."""
    fates = {one: f"equal to {head}" for head, *others in clusters for one in others}
    for stage in stages:
        if stage.name not in ELIMINATION:
            continue
        for game in stage.games:
            if len(game.shown) == 2:
                a, b = game.shown
                winner = a if a in stage.through else b
                loser = b if winner == a else a
                fates[loser] = f"out in stage {stage.name}, against {winner}"
    finalists = line.get("finalists") or ()
    fates |= dict.fromkeys(finalists, "finalist")
    fates |= dict.fromkeys(_rescued(line), "finalist, rescued")
    if not finalists:
        fates |= {one: f"place {place}" for place, one in enumerate(line["order"], 1) if one not in fates}
    return fates | {line["winner"]: "chosen"}


def _standing(one: int, fate: str, line: Line, case: Case | None, score: float | None = None) -> Standing:
    label = None if case is None or one >= len(case.candidates) else case.candidates[one].correct
    passed = (line.get("tests_passed") or {}) and line["tests_passed"][one]
    fate = "chosen" if one == line.get("winner") else fate
    return Standing(one, fate, label, passed if isinstance(passed, int) else None, score)


def _rescued(line: Line) -> tuple[int, ...]:
    rescued = line.get("rescued")
    return () if rescued is None else (rescued,) if isinstance(rescued, int) else tuple(rescued)


def _games(lines: list[Line]) -> list[tuple[str, Ask, Game]]:
    games = []
    for number, tries in enumerate(by_ask(lines)):
        last, ask = tries[-1], ask_of(tries[-1])
        preferred, said = _reading(ask, answer_of(last))
        tokens, cached, output = (
            sum(line.get(name, 0) for line in tries) for name in ("tokens", "cached", "output")
        )
        game = Game(
            number=number,
            level=str(ask.level),
            shown=tuple(ask.entrants),
            preferred=preferred,
            said=said,
            malformed=malformed(tries),
            tokens=tokens,
            cached=cached,
            output=output,
            tries=sum("attempt" in line for line in tries),
        )
        games.append((last["stage"], ask, game))
    return games


def _reading(ask: Ask, answer: Answer | None) -> tuple[int | None, str]:
    if isinstance(answer, Verdict) and isinstance(ask, Pairing):
        winner = None if answer.a == answer.b else ask.a if answer.a > answer.b else ask.b
        return winner, confidence(answer)
    if isinstance(answer, Rating):
        return None, f"{answer.value:g} of 10"
    if isinstance(answer, Pick):
        return answer.winner, "picked"
    return None, f"unanswered: {answer.reason}" if isinstance(answer, Unanswered) else "unanswered"
