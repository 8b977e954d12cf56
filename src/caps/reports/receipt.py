"""Receipts: how one case was decided, as data; games, clusters, prompts and replies, decisive verdicts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from caps.core.contest import Contest
from caps.core.errors import CapsError
from caps.core.play import Strategy
from caps.core.types import (
    Answer,
    Ask,
    Case,
    Entrant,
    Pairing,
    Pick,
    Rating,
    Round,
    RoundKind,
    Selection,
    Unanswered,
    Verdict,
)
from caps.engines.base import CaseRun
from caps.journal.keys import request_key
from caps.judging.base import PreparedCase
from caps.prompts.tags import verdict_of
from caps.reports.bracket import confidence
from caps.runs.rebuild import RebuiltRun
from caps.runs.result_lines import Line, answer_of, ask_of
from caps.runs.summary import group_by_ask, malformed_cause

# The games of a case as its calls tell them, and the rounds they belong to.


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
    kind: RoundKind = "comparison"

    @property
    def players(self) -> set[int]:
        """Everyone in it."""
        return {one for game in self.games for one in game.shown} | set(self.byes)


def games_of(lines: list[Line]) -> list[tuple[str, Ask, Game]]:
    """The games behind a case's calls, in order, each with its stage and its ask."""
    games = []
    for number, tries in enumerate(group_by_ask(lines)):
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
            malformed=malformed_cause(tries),
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
        ratings = f"{answer.a:g}-{answer.b:g}"
        return winner, ratings if ask.dialect == "ratings" else confidence(answer)
    if isinstance(answer, Rating):
        return None, f"{answer.value:g} of 10"
    if isinstance(answer, Pick):
        return answer.winner, "picked"
    return None, f"unanswered: {answer.reason}" if isinstance(answer, Unanswered) else "unanswered"


# Where the way of each candidate of a case led.


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


# Which single verdict, turned around, would have changed the winner: played again, not guessed.


MOST = 64  # games turned around in one contest


@dataclass(frozen=True, slots=True)
class Flip:
    """A game turned around: who would then have won; nobody knows where it leads to games never played."""

    game: int
    preferred: int
    winner: int | None


def flips(
    strategy: Strategy, entrants: Sequence[Entrant], *, seed: str, contest: Contest, most: int = MOST
) -> list[Flip]:
    """Every verdict turned around that changes the winner, or leaves it open; none of a contest cut short."""
    if contest.stopped is not None:
        return []
    turns = contest.transcript
    asks = [ask for turn in turns for ask in turn.round.asks]
    answers = [answer for turn in turns for answer in turn.answers]
    known = dict(zip(asks, answers, strict=True))
    found = []
    for number, (ask, answer) in enumerate(zip(asks[:most], answers, strict=False)):
        if not isinstance(ask, Pairing) or not isinstance(answer, Verdict):
            continue
        for other in _others(answer):
            winner = _winner(strategy, entrants, seed, {**known, ask: other})
            if winner != contest.selection.winner:
                found.append(Flip(number, ask.a if other.a > other.b else ask.b, winner))
    return found


def _others(verdict: Verdict) -> Iterator[Verdict]:
    """The verdict the other way round; a tie might have been decided either way."""
    if verdict.a != verdict.b:
        yield verdict.swapped()
    else:
        yield from (verdict_of("A", "LOW"), verdict_of("B", "LOW"))


def _winner(
    strategy: Strategy, entrants: Sequence[Entrant], seed: str, known: dict[Ask, Answer]
) -> int | None:
    contest = Contest(strategy, entrants, seed=seed)
    while round_ := contest.pending:
        answers = [known[ask] for ask in round_.asks if ask in known]
        if len(answers) < len(round_.asks):
            return None
        contest.answer(answers)
    return contest.selection.winner


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


def receipt_of(run: RebuiltRun, line: Line, prepared: PreparedCase | None, *, turn: bool = True) -> Receipt:
    """The receipt of a line; `turn` verdicts around to see which of them decided."""
    play = None if prepared is None or "winner" not in line else run.play(prepared)
    games = games_of(run.calls.get(line["id"], []))
    if play is None:
        return _from_lines(run, line, None if prepared is None else prepared.case, games)
    return _from_contest(run, line, play, games, turn=turn)


def _from_lines(
    run: RebuiltRun, line: Line, case: Case | None, games: list[tuple[str, Ask, Game]]
) -> Receipt:
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
    run: RebuiltRun, line: Line, play: CaseRun, games: list[tuple[str, Ask, Game]], *, turn: bool
) -> Receipt:
    contest, case, entrants = play.contest, play.prepared.case, play.prepared.evidence.entrants
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


# What a judge saw and said in each game of a case: prompts rendered again, replies from the journal.


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """One reply and how it was read; no text where the journal does not hold it."""

    text: str | None
    reasoning: str
    how: str
    cause: str | None
    finish: str


@dataclass(frozen=True, slots=True)
class GameExchange:
    """The prompt in pieces (candidates stand alone), whether it is what was sent, and the replies."""

    prompt: tuple[str, ...]
    exact: bool
    replies: tuple[JudgeReply, ...]


def exchange_of(run: RebuiltRun, prepared: PreparedCase | None, name: str) -> Iterator[GameExchange]:
    """The words of each game of a case, in its order."""
    lines = run.calls.get(name, [])
    keys = [line["key"] for line in lines if line.get("key")]
    stored = {} if run.journal is None else run.journal.get_many(keys)
    for tries in group_by_ask(lines):
        said = []
        for line in tries:
            if "attempt" in line:
                reply = stored.get(line["key"])
                text, thought = (None, "") if reply is None else (reply.text, reply.reasoning)
                said.append(JudgeReply(text, thought, line["how"], line["cause"], line["finish"]))
        prompt, exact = _prompt(run, prepared, ask_of(tries[0]), tries[0])
        yield GameExchange(prompt, exact, tuple(said))


def _prompt(
    run: RebuiltRun, prepared: PreparedCase | None, ask: Ask, line: Line
) -> tuple[tuple[str, ...], bool]:
    if prepared is None or run.judge is None:
        return (), False
    try:
        request = run.judge.request(prepared, ask)
    except CapsError:  # a template that is no longer there
        return (), False
    words = "\n\n".join(message.content for message in request.messages)
    return tuple(cut(words, run.judge.shown(prepared, ask))), request_key(request) == line.get("key")


def cut(words: str, blocks: list[str]) -> Iterator[str]:
    """The words in pieces, so that what is shown in many games is kept once; joined they are the same."""
    for block in blocks:
        if block:
            head, found, words = words.partition(block)
            yield head
            yield found
    yield words
