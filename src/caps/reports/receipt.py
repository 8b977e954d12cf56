"""Receipts: how a case was decided, as data: judge calls, clusters, prompts, replies, decisive verdicts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from caps.core.contest import Contest
from caps.core.errors import CapsError
from caps.core.panel import Opinion
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
    shows_difference,
)
from caps.engines.base import CaseRun
from caps.journal.keys import request_key
from caps.judging.base import PreparedCase
from caps.prompts.tags import verdict_of
from caps.reports.bracket import confidence
from caps.runs.rebuild import RebuiltRun
from caps.runs.result_lines import Line, answer_of, ask_of, opinions_of
from caps.runs.summary import group_by_ask, malformed_cause

MAX_FLIPS = 64  # verdicts reversed in one contest


@dataclass(frozen=True, slots=True)
class Game:
    """One question to the judge and its answer; the first of two candidates was in slot A."""

    number: int
    level: str
    shown: tuple[int, ...]
    preferred: int | None  # None after a tie, a rating or no answer
    said: str  # HIGH, LOW, tie, two ratings, a rating, a pick, or the reason for no answer
    malformed: str | None
    tokens: int
    cached: int
    output: int
    tries: int
    opinions: str = ""  # what each judge of a panel said
    criteria: tuple[tuple[str, str], ...] = ()  # what the judge said by each criterion


@dataclass(frozen=True, slots=True)
class Stage:
    """One round: its questions, byes, and the candidates that advance (`through`)."""

    name: str
    games: tuple[Game, ...]
    byes: tuple[int, ...] = ()
    through: tuple[int, ...] = ()
    kind: RoundKind = "comparison"

    @property
    def players(self) -> set[int]:
        """All candidates in the round."""
        return {one for game in self.games for one in game.shown} | set(self.byes)


def games_of(lines: list[Line]) -> list[tuple[str, Ask, Game]]:
    """Return the games of a case in order, each with its stage and ask."""
    games = []
    for number, attempts in enumerate(group_by_ask(lines)):
        last, ask = attempts[-1], ask_of(attempts[-1])
        preferred, said = _read_answer(ask, answer_of(last))
        tokens, cached, output = (
            sum(line.get(name, 0) for line in attempts) for name in ("tokens", "cached", "output")
        )
        game = Game(
            number=number,
            level=str(ask.level),
            shown=tuple(ask.entrants),
            preferred=preferred,
            said=said,
            malformed=malformed_cause(attempts),
            tokens=tokens,
            cached=cached,
            output=output,
            tries=sum("attempt" in line for line in attempts),
            opinions=_opinions_text(ask, opinions_of(last)),
            criteria=tuple((last.get("criteria") or {}).items()),
        )
        games.append((last["stage"], ask, game))
    return games


def _opinions_text(ask: Ask, opinions: Sequence[Opinion]) -> str:
    """What each judge of a panel said; empty for a single judge."""
    found = []
    for one in opinions:
        preferred, said = _read_answer(ask, one.answer)
        found.append(f"{one.judge} {said}" if preferred is None else f"{one.judge} {preferred} {said}")
    return ", ".join(found)


def _read_answer(ask: Ask, answer: Answer | None) -> tuple[int | None, str]:
    if isinstance(answer, Verdict) and isinstance(ask, Pairing):
        winner = None if answer.a == answer.b else ask.a if answer.a > answer.b else ask.b
        ratings = f"{answer.a:g}-{answer.b:g}"
        return winner, ratings if ask.dialect == "ratings" else confidence(answer)
    if isinstance(answer, Rating):
        return None, f"{answer.value:g} of 10"
    if isinstance(answer, Pick):
        return answer.winner, "picked"
    return None, f"unanswered: {answer.reason}" if isinstance(answer, Unanswered) else "unanswered"


def survivors_of(round_: Round, following: Round | None, chosen: Selection) -> tuple[int, ...]:
    """Return who advances: candidates of the next round, finalists, or the better of each pair."""
    players = {one for ask in round_.asks for one in ask.entrants}
    if following is not None:
        later = {one for ask in following.asks for one in ask.entrants} | {*following.byes}
        rescued = set() if following.kind == "elimination" else set(chosen.rescued)  # did not advance here
        return tuple(sorted(players & (later - rescued)))
    if chosen.finalists and not players <= set(chosen.finalists):
        return tuple(sorted(players & set(chosen.finalists) - set(chosen.rescued)))
    rank = {one: index for index, one in enumerate(chosen.order)}
    pairs = [ask.entrants for ask in round_.asks if isinstance(ask, Pairing)]
    return tuple(sorted({min(pair, key=rank.__getitem__) for pair in pairs}))


def clusters_of(
    signed: Sequence[tuple[int, str | None]], stages: Sequence[Stage], winner: int
) -> tuple[tuple[int, ...], ...]:
    """Group equal answers that one of them represents, that one first; equals that compete stay separate."""
    first = stages[0].players if stages else {winner}
    groups: dict[object, list[int]] = {}
    for one, signature in signed:
        groups.setdefault(one if signature is None else signature, []).append(one)
    clusters: list[tuple[int, ...]] = []
    for members in groups.values():
        playing = [one for one in members if one in first]
        if len(playing) == 1:
            clusters.append((playing[0], *(one for one in members if one != playing[0])))
        elif not playing and not stages:
            clusters.append(tuple(members))
        else:
            clusters += [(one,) for one in playing]
    return tuple(clusters)


def fates_of(stages: Sequence[Stage], clusters: Sequence[tuple[int, ...]], line: Line) -> dict[int, str]:
    """Describe how far each candidate came."""
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
        fates |= {one: f"place {rank}" for rank, one in enumerate(line["order"], 1) if one not in fates}
    return fates | {line["winner"]: "chosen"}


def rescued_of(line: Line) -> tuple[int, ...]:
    """Return the rescued candidates of a result line."""
    rescued = line.get("rescued")
    return () if rescued is None else (rescued,) if isinstance(rescued, int) else tuple(rescued)


@dataclass(frozen=True, slots=True)
class Flip:
    """A reversed verdict and the winner it leads to; None if the judge was never asked what follows."""

    game: int
    preferred: int
    winner: int | None


def flips(
    strategy: Strategy, entrants: Sequence[Entrant], *, seed: str, contest: Contest, most: int = MAX_FLIPS
) -> list[Flip]:
    """Find single verdicts that, reversed, change the winner or leave it open, by replaying the contest.

    A contest that was stopped early has none.
    """
    if contest.stopped is not None:
        return []
    turns = contest.transcript
    asks = [ask for turn in turns for ask in turn.round.asks]
    answers = [answer for turn in turns for answer in turn.answers]
    known = dict(zip(asks, answers, strict=True))
    decisive = []
    for number, (ask, answer) in enumerate(zip(asks[:most], answers, strict=False)):
        if not isinstance(ask, Pairing) or not isinstance(answer, Verdict):
            continue
        for other in _reversed(answer):
            winner = _winner(strategy, entrants, seed, {**known, ask: other})
            if winner != contest.selection.winner:
                decisive.append(Flip(number, ask.a if other.a > other.b else ask.b, winner))
    return decisive


def _reversed(verdict: Verdict) -> Iterator[Verdict]:
    """Yield the reversed verdict; for a tie, a verdict for each side."""
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
    """A candidate: how far it came, its label, test results and score."""

    id: int
    fate: str
    right: bool | None = None
    passed: int | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """How a case was decided; without `whole` only calls are known, as the contest could not be replayed."""

    case: str
    strategy: str
    winner: int | None
    stages: tuple[Stage, ...]
    candidates: tuple[Standing, ...]
    clusters: tuple[tuple[int, ...], ...] = ()  # the representative comes first
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
    score_kind: str = ""  # the meaning of the scores
    whole: bool = False
    games: tuple[Game, ...] = field(default=(), repr=False)
    story: tuple[Line, ...] = ()  # the steps of adaptive sampling
    generators: tuple[Line, ...] = ()
    fixed_16: Line | None = None

    def right(self, one: int | None) -> bool | None:
        """Return the label of a candidate, if it is known."""
        return next((each.right for each in self.candidates if each.id == one), None)

    @property
    def bracket(self) -> tuple[Stage, ...]:
        """The elimination rounds, if the contest was replayed."""
        return tuple(stage for stage in self.stages if stage.kind == "elimination") if self.whole else ()


def receipt_of(
    run: RebuiltRun, line: Line, prepared: PreparedCase | None, *, with_flips: bool = True
) -> Receipt:
    """Create the receipt of a result line; `with_flips` looks for decisive verdicts."""
    play = None if prepared is None or "winner" not in line else run.play(prepared)
    games = games_of(run.calls.get(line["id"], []))
    if play is None:
        return _from_lines(run, line, None if prepared is None else prepared.case, games)
    return _from_contest(run, line, play, games, with_flips=with_flips)


def _from_lines(
    run: RebuiltRun, line: Line, case: Case | None, games: list[tuple[str, Ask, Game]]
) -> Receipt:
    stages: list[tuple[str, str, list[Game]]] = []
    for name, _, game in games:
        if not stages or stages[-1][:2] != (name, game.level):
            stages.append((name, game.level, []))
        stages[-1][2].append(game)
    order = line.get("order") or []
    fates = {one: f"place {rank}" for rank, one in enumerate(order, 1)}
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
        **_story(line),
    )


def _story(line: Line) -> dict[str, Any]:
    """The story of a question that was answered with adaptive sampling."""
    return {
        "story": tuple(line.get("story") or ()),
        "generators": tuple(line.get("generators") or ()),
        "fixed_16": line.get("fixed_16"),
    }


def _from_contest(
    run: RebuiltRun, line: Line, play: CaseRun, games: list[tuple[str, Ask, Game]], *, with_flips: bool
) -> Receipt:
    contest, case, entrants = play.contest, play.prepared.case, play.prepared.evidence.entrants
    game_of = {ask: game for _, ask, game in games}
    chosen = contest.selection
    stages = []
    rounds = [turn.round for turn in contest.transcript]
    for index, round_ in enumerate(rounds):
        following = next((later for later in rounds[index + 1 :] if later.kind != "second_look"), None)
        survivors = survivors_of(round_, following, chosen)
        asked = tuple(game_of[ask] for ask in round_.asks)
        stages.append(Stage(round_.stage, asked, round_.byes, survivors, round_.kind))
    answered = {ask for round_ in rounds for ask in round_.asks}
    if unanswered := tuple(game for ask, game in game_of.items() if ask not in answered):
        stages.append(Stage("not answered", unanswered))
    clusters = clusters_of([(one.id, one.signature) for one in entrants], stages, chosen.winner)
    fates = fates_of(stages, clusters, line)
    decisive = None
    if with_flips and run.strategy is not None:
        seed = f"{run.file.config.seed}/{case.id}"
        decisive = tuple(flips(run.strategy, entrants, seed=seed, contest=contest))
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
        decisive,
        chosen.score_kind,
        whole=True,
        games=tuple(game for _, _, game in games),
        **_story(line),
    )


def _standing(one: int, fate: str, line: Line, case: Case | None, score: float | None = None) -> Standing:
    label = None if case is None or one >= len(case.candidates) else case.candidates[one].correct
    passed = line["tests_passed"][one] if "tests_passed" in line else None
    fate = "chosen" if one == line.get("winner") else fate
    return Standing(one, fate, label, passed, score)


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """One reply and how it was parsed; `text` is None if the journal does not hold it."""

    text: str | None
    reasoning: str
    how: str
    cause: str | None
    finish: str


@dataclass(frozen=True, slots=True)
class GameExchange:
    """The prompt in pieces, whether it is exactly what was sent, and the replies.

    `difference` is what was shown of A and B where the judge was asked about what separates them.
    """

    prompt: tuple[str, ...]
    exact: bool
    replies: tuple[JudgeReply, ...]
    difference: tuple[str, ...] = ()


def exchanges_of(run: RebuiltRun, prepared: PreparedCase | None, name: str) -> Iterator[GameExchange]:
    """Yield prompt and replies of each game of a case: prompts rendered again, replies from the journal."""
    lines = run.calls.get(name, [])
    keys = [line["key"] for line in lines if line.get("key")]
    stored = {} if run.journal is None else run.journal.get_many(keys)
    for attempts in group_by_ask(lines):
        replies = []
        for line in attempts:
            if "attempt" in line:
                reply = stored.get(line["key"])
                text, reasoning = (None, "") if reply is None else (reply.text, reply.reasoning)
                replies.append(JudgeReply(text, reasoning, line["how"], line["cause"], line["finish"]))
        ask = ask_of(attempts[0])
        difference: tuple[str, ...] = ()
        if prepared is not None and shows_difference(prepared.evidence.entrants, ask):
            difference = prepared.evidence.shown(ask)
        prompt, exact = _prompt(run, prepared, ask, attempts[0])
        yield GameExchange(prompt, exact, tuple(replies), difference)


def _prompt(
    run: RebuiltRun, prepared: PreparedCase | None, ask: Ask, line: Line
) -> tuple[tuple[str, ...], bool]:
    if prepared is None or run.judge is None:
        return (), False
    try:
        request = run.judge.request(prepared, ask)
    except CapsError:  # a template is missing
        return (), False
    text = "\n\n".join(message.content for message in request.messages)
    return tuple(split_at(text, run.judge.shown(prepared, ask))), request_key(request) == line.get("key")


def split_at(text: str, blocks: list[str]) -> Iterator[str]:
    """Split a prompt at its candidates, so that a page stores repeated pieces once."""
    for block in blocks:
        if block:
            head, found, text = text.partition(block)
            yield head
            yield found
    yield text
