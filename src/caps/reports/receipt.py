"""The receipt of a selection: how one case was decided, as plain data; with what the judge saw and said."""

from dataclasses import dataclass, field

from caps.core.types import Ask, Case
from caps.engines.base import Play
from caps.judges.base import Bout
from caps.reports.flips import Flip, flips
from caps.reports.games import Game, Stage, games_of
from caps.reports.lines import Line
from caps.reports.retold import Retelling
from caps.reports.ways import clusters_of, fates_of, rescued_of, through_of


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
    score_kind: str = ""  # what the candidates' scores mean
    whole: bool = False
    games: tuple[Game, ...] = field(default=(), repr=False)

    def right(self, one: int) -> bool | None:
        """Whether a candidate is right, where that is known."""
        return next((each.right for each in self.candidates if each.id == one), None)

    @property
    def bracket(self) -> tuple[Stage, ...]:
        """The elimination rounds a picture can be drawn of."""
        return tuple(stage for stage in self.stages if stage.kind == "elimination") if self.whole else ()


def receipt_of(run: Retelling, line: Line, bout: Bout | None, *, turn: bool = True) -> Receipt:
    """The receipt of a line; `turn` verdicts around to see which of them decided."""
    play = None if bout is None or "winner" not in line else run.play(bout)
    games = games_of(run.calls.get(line["id"], []))
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
        run.file.config.strategy,
        line.get("winner"),
        tuple(Stage(name, tuple(held)) for name, _, held in stages),
        tuple(_standing(one, fates[one], line, case) for one in sorted(order)),
        finalists=tuple(line.get("finalists") or ()),
        rescued=rescued_of(line),
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
        later = (after.round for after in turns[place + 1 :])
        ahead = next((round_ for round_ in later if round_.kind != "second_look"), None)
        through = through_of(held.round, ahead, chosen)
        asked = tuple(by[ask] for ask in held.round.asks)
        stages.append(Stage(held.round.stage, asked, held.round.byes, through, held.round.kind))
    held_in = {ask for held in turns for ask in held.round.asks}
    left = tuple(game for ask, game in by.items() if ask not in held_in)
    if left:  # the round that was never answered
        stages.append(Stage("not answered", left))
    clusters = clusters_of([(one.id, one.signature) for one in entrants], stages, chosen.winner)
    fates = fates_of(stages, clusters, line)
    turned = None
    if turn and run.strategy is not None:
        seed = f"{run.file.config.seed}/{case.id}"
        turned = tuple(flips(run.strategy, entrants, seed=seed, contest=contest))
    return Receipt(
        line["id"],
        run.file.config.strategy,
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
        chosen.score_kind,
        whole=True,
        games=tuple(game for _, _, game in games),
    )


def _standing(one: int, fate: str, line: Line, case: Case | None, score: float | None = None) -> Standing:
    label = None if case is None or one >= len(case.candidates) else case.candidates[one].correct
    passed = line["tests_passed"][one] if "tests_passed" in line else None
    fate = "chosen" if one == line.get("winner") else fate
    return Standing(one, fate, label, passed, score)
