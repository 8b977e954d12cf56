"""Receipts: how a case was decided, as data: judge calls, clusters, prompts, replies, decisive verdicts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from caps.core.contest import Contest
from caps.core.errors import CapsError
from caps.core.play import Believing, Explaining, Strategy
from caps.core.types import (
    Answer,
    Ask,
    Case,
    Entrant,
    Influence,
    Pairing,
    Pick,
    Rating,
    Round,
    RoundKind,
    Selection,
    Unanswered,
    Verdict,
    verdict_of,
)
from caps.engines.base import CaseRun
from caps.journal.records import request_key
from caps.judging.base import Opinion, PreparedCase
from caps.reports.answers import ANSWER_CHARACTERS, plain_formula, short_name, shortened_words
from caps.reports.bracket import confidence
from caps.runs.outcomes import Outcome, outcome_of
from caps.runs.rebuild import RebuiltRun
from caps.runs.result_lines import Line, answer_of, ask_of, opinions_of, sureness
from caps.runs.summary import group_by_ask, malformed_cause

UNANSWERED = "not answered"  # the stage of questions without an answer
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
    opinions: str = ""  # what each of several judges said
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
        return {candidate for game in self.games for candidate in game.shown} | set(self.byes)


class Asked(NamedTuple):
    """A question of a run with its stage, its answer (None if there is none) and what a page shows of it.

    `attempts` are the lines of its calls.
    """

    stage: str
    ask: Ask
    answer: Answer | None
    game: Game
    attempts: Sequence[Line]


def games_of(lines: list[Line]) -> list[Asked]:
    """Return the games of a case in order, each with its stage, ask and answer."""
    games = []
    for number, attempts in enumerate(group_by_ask(lines)):
        last, ask = attempts[-1], ask_of(attempts[-1])
        answer = answer_of(last)
        preferred, said = _read_answer(ask, answer)
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
        games.append(Asked(last["stage"], ask, answer, game, attempts))
    return games


def _opinions_text(ask: Ask, opinions: Sequence[Opinion]) -> str:
    """What each of several judges said; empty for one judge."""
    words = []
    for opinion in opinions:
        preferred, said = _read_answer(ask, opinion.answer)
        if opinion.malformed is not None:
            words.append(f"{opinion.judge} unreadable")
        else:
            words.append(" ".join([opinion.judge, *([] if preferred is None else [str(preferred)]), said]))
    return ", ".join(words)


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


def clusters_of(
    signed: Sequence[tuple[int, str | None]], stages: Sequence[Stage], winner: int
) -> tuple[tuple[int, ...], ...]:
    """Group equal answers that one of them represents, that one first; equals that compete stay separate."""
    first = stages[0].players if stages else {winner}
    groups: dict[object, list[int]] = {}
    for candidate, signature in signed:
        groups.setdefault(candidate if signature is None else signature, []).append(candidate)
    clusters: list[tuple[int, ...]] = []
    for members in groups.values():
        playing = [candidate for candidate in members if candidate in first]
        if len(playing) == 1:
            clusters.append((playing[0], *(member for member in members if member != playing[0])))
        elif not playing and not stages:
            clusters.append(tuple(members))
        else:
            clusters += [(candidate,) for candidate in playing]
    return tuple(clusters)


def fates_of(stages: Sequence[Stage], clusters: Sequence[tuple[int, ...]], line: Line) -> dict[int, str]:
    """Describe how far each candidate came."""
    fates = {other: f"same answer as #{head}" for head, *others in clusters for other in others}
    for stage in stages:
        if stage.kind != "elimination":
            continue
        for game in stage.games:
            if len(game.shown) == 2:
                a, b = game.shown
                winner = a if a in stage.through else b
                loser = b if winner == a else a
                fates[loser] = f"out in stage {stage.name}, against #{winner}"
    finalists = line.get("finalists") or ()
    fates |= dict.fromkeys(finalists, "finalist")
    fates |= dict.fromkeys(rescued_of(line), "finalist, rescued")
    if not finalists:
        places = enumerate(line["order"], 1)
        fates |= {candidate: f"place {rank}" for rank, candidate in places if candidate not in fates}
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
    recorded = dict(zip(asks, answers, strict=True))
    decisive = []
    for number, (ask, answer) in enumerate(zip(asks[:most], answers, strict=False)):
        if not isinstance(ask, Pairing) or not isinstance(answer, Verdict):
            continue
        for other in _reversed(answer):
            winner = _winner(strategy, entrants, seed, {**recorded, ask: other})
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
    strategy: Strategy, entrants: Sequence[Entrant], seed: str, recorded: dict[Ask, Answer]
) -> int | None:
    contest = Contest(strategy, entrants, seed=seed)
    while round_ := contest.pending:
        answers = [recorded[ask] for ask in round_.asks if ask in recorded]
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
class AnswerGroup:
    """Candidates that give the same answer, the likeliest or best placed first.

    `chances` is how likely the answer was to be right before the first verdict and after each of them, where
    the strategy says so.
    """

    members: tuple[int, ...]
    chances: tuple[float, ...] = ()


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
    unread: bool = False  # no reply of the judge could be read
    stopped: str | None = None
    error: str | None = None
    examples: int = 0
    asked: int = 0
    usd: float | None = None
    flips: tuple[Flip, ...] | None = None
    score_kind: str = ""  # the meaning of the scores
    whole: bool = False
    names: tuple[str, ...] = ()  # the answer of each candidate, where it is short; else empty
    answers: tuple[AnswerGroup, ...] = ()
    influences: tuple[Influence, ...] = ()  # what moved the probability of the chosen candidate
    probability: float | None = None
    sureness: str = ""
    calibrated: bool = False
    abstained: bool = False
    games: tuple[Game, ...] = field(default=(), repr=False)
    story: tuple[Line, ...] = ()  # the steps of adaptive sampling
    generators: tuple[Line, ...] = ()
    fixed_16: Line | None = None

    basis: str = ""  # what the probability rests on, in words
    gold: str = ""  # the reference answer

    def right(self, candidate: int | None) -> bool | None:
        """Return the label of a candidate, if it is known."""
        standing = self.standing(candidate)
        return None if standing is None else standing.right

    def standing(self, candidate: int | None) -> "Standing | None":
        """Return what is known of a candidate."""
        if candidate is not None and candidate < len(self.candidates):
            standing = self.candidates[candidate]
            if standing.id == candidate:  # the usual case: all candidates are there
                return standing
        return next((standing for standing in self.candidates if standing.id == candidate), None)

    def name(self, candidate: int | None) -> str:
        """Return the answer of a candidate if it is short, else the candidate's number."""
        short = self.names[candidate] if candidate is not None and candidate < len(self.names) else ""
        return short or f"#{candidate}"

    def answer_of(self, candidate: int | None) -> AnswerGroup | None:
        """Return the candidates that give the same answer as this one."""
        return next((group for group in self.answers if candidate in group.members), None)

    @property
    def answered_games(self) -> list[Game]:
        """The questions that the judge answered, in order."""
        return [game for stage in self.stages if stage.name != UNANSWERED for game in stage.games]

    @property
    def outcome(self) -> Outcome | None:
        """Whether the choice is right, missed or impossible, if that is known."""
        if self.winner is None:
            return None
        labels = [standing.right for standing in self.candidates if standing.id != self.winner]
        return outcome_of(0, [self.right(self.winner), *labels])

    def misjudged(self, game: Game) -> bool:
        """Whether the judge preferred a wrong candidate although a right one was shown."""
        shown = [self.right(candidate) for candidate in game.shown]
        return game.preferred is not None and True in shown and self.right(game.preferred) is False

    @property
    def missed(self) -> "Missed | None":
        """The right candidate that was not chosen; None if there is none, or a right one was chosen."""
        ranked = [candidate for group in self.answers for candidate in group.members]
        right = [candidate for candidate in ranked if self.right(candidate)]
        if self.outcome != "missed" or not right:
            return None
        best = max(right, key=lambda candidate: (_score(self.standing(candidate)), -ranked.index(candidate)))
        group = self.answer_of(best) or AnswerGroup((best,))
        about = [game for game in self.answered_games if _parts(game, group.members)]
        lost = [game for game in about if game.preferred is not None and game.preferred not in group.members]
        return Missed(best, len(about), len(lost), self._removed_by(group, lost))

    def _removed_by(self, group: AnswerGroup, lost: Sequence[Game]) -> int | None:
        """The verdict that cost an answer most: it went out, or its probability fell furthest."""
        if group.chances:
            falls = {
                game.number: before - after
                for game, before, after in zip(
                    self.answered_games, group.chances, group.chances[1:], strict=False
                )
            }
            lost = sorted(lost, key=lambda game: falls.get(game.number, 0.0))
        outs = [game for stage in self.bracket for game in stage.games if game in lost]
        return (outs or lost)[-1].number if lost else None

    @property
    def bracket(self) -> tuple[Stage, ...]:
        """The elimination rounds, if the contest was replayed."""
        return tuple(stage for stage in self.stages if stage.kind == "elimination") if self.whole else ()


def _score(standing: Standing | None) -> float:
    return 0.0 if standing is None or standing.score is None else standing.score


def _parts(game: Game, members: Sequence[int]) -> bool:
    """Whether a question compares some of these candidates with others."""
    inside = [candidate in members for candidate in game.shown]
    return len(inside) > 1 and any(inside) and not all(inside)


@dataclass(frozen=True, slots=True)
class Missed:
    """A right candidate that was not chosen: how often its answer was compared, and how often it lost.

    `removed_by` is the number of the verdict that cost it most.
    """

    candidate: int
    compared: int
    lost: int
    removed_by: int | None


def receipt_of(
    run: RebuiltRun,
    line: Line,
    prepared: PreparedCase | None,
    *,
    with_flips: bool = True,
    games: list[Asked] | None = None,
) -> Receipt:
    """Create the receipt of a result line; `with_flips` looks for decisive verdicts.

    Where the strategy gives probabilities, the recorded answers suffice; other contests are replayed. `games`
    are those of the case, if they are known.
    """
    games = games_of(run.calls.get(line["id"], [])) if games is None else games
    if prepared is not None and "winner" in line:
        receipt = _from_beliefs(run, line, prepared, games, with_flips=with_flips)
        if receipt is not None:
            return receipt
        play = run.play(prepared)
        if play is not None:
            return _from_contest(run, line, play, games, with_flips=with_flips)
    return _from_lines(run, line, prepared, games)


def _common(run: RebuiltRun, line: Line, prepared: PreparedCase | None, games: list[Asked]) -> dict[str, Any]:
    """What every receipt has."""
    names, answers = tuple[str, ...](), list[AnswerGroup]()
    if prepared is not None:
        groups = _groups(prepared.evidence.entrants, line.get("order") or ())
        names = _names(prepared.case, groups)
        answers = [AnswerGroup(group) for group in groups]
    return {
        "case": line["id"],
        "strategy": run.file.config.strategy,
        "names": names,
        "answers": tuple(answers),
        "examples": line.get("examples", 0),
        "asked": sum(asked.game.tokens for asked in games),
        "usd": line.get("usd"),
        "probability": line.get("probability"),
        "sureness": sureness(line),
        "calibrated": bool(line.get("calibrated")),
        "abstained": bool(line.get("abstain")),
        "score_kind": line.get("score_kind", ""),
        "games": tuple(asked.game for asked in games),
        "story": tuple(line.get("story") or ()),  # of a question that was answered with adaptive sampling
        "generators": tuple(line.get("generators") or ()),
        "fixed_16": line.get("fixed_16"),
        "basis": " and ".join(line.get("basis") or ()),
        "gold": "" if prepared is None else _gold(prepared.case),
    }


def _groups(entrants: Sequence[Entrant], order: Sequence[int]) -> list[tuple[int, ...]]:
    """Group candidates by their answers, in the order of the ranking."""
    signatures = {entrant.id: entrant.signature for entrant in entrants}
    groups: dict[object, list[int]] = {}
    for candidate in [*order, *(rest for rest in signatures if rest not in set(order))]:
        signature = signatures.get(candidate)
        groups.setdefault(candidate if signature is None else signature, []).append(candidate)
    return [tuple(members) for members in groups.values()]


def _names(case: Case, groups: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    """The answer of each candidate where it is short; the answer of a group is that of its first member."""
    names = [""] * len(case.candidates)
    for group in groups:
        name = short_name(case.candidates[group[0]])
        for candidate in group:
            names[candidate] = name
    return tuple(names)


def _gold(case: Case) -> str:
    """The reference answer of a case, where it has one."""
    answer = case.extra.get("answer")
    return (
        shortened_words(plain_formula(str(answer)), ANSWER_CHARACTERS)
        if isinstance(answer, str | int | float)
        else ""
    )


def _from_lines(run: RebuiltRun, line: Line, prepared: PreparedCase | None, games: list[Asked]) -> Receipt:
    stages: list[tuple[str, str, list[Game]]] = []
    for name, _, _, game, _ in games:
        if not stages or stages[-1][:2] != (name, game.level):
            stages.append((name, game.level, []))
        stages[-1][2].append(game)
    order = line.get("order") or []
    fates = {candidate: f"place {rank}" for rank, candidate in enumerate(order, 1)}
    scores = dict(enumerate(line.get("scores") or ()))
    case = None if prepared is None else prepared.case
    return Receipt(
        winner=line.get("winner"),
        stages=tuple(Stage(name, tuple(held)) for name, _, held in stages),
        candidates=tuple(
            _standing(candidate, fates[candidate], line, case, scores.get(candidate))
            for candidate in sorted(order)
        ),
        finalists=tuple(line.get("finalists") or ()),
        rescued=rescued_of(line),
        provisional=bool(line.get("provisional")),
        unread=line.get("cause") == "unreadable",
        error=line.get("error"),
        **_common(run, line, prepared, games),
    )


CLOSE = 2e-3  # probabilities in result lines are rounded


def _from_beliefs(
    run: RebuiltRun, line: Line, prepared: PreparedCase, games: list[Asked], *, with_flips: bool
) -> Receipt | None:
    """The receipt of a strategy that gives probabilities, from the recorded answers; None for any other."""
    strategy: object = run.strategy
    case, entrants = prepared.case, prepared.evidence.entrants
    if not isinstance(strategy, Believing) or line.get("probability") is None or line.get("story"):
        return None
    answered = [asked for asked in games if asked.answer is not None]
    asks = [asked.ask for asked in answered]
    answers = [asked.answer for asked in answered if asked.answer is not None]
    chances = list(strategy.follow(entrants, asks, answers))
    winner = line["winner"]
    if abs(chances[-1][winner] - line["probability"]) > CLOSE:
        return None  # the cases or the findings have changed
    common = _common(run, line, prepared, games)
    groups = [
        AnswerGroup(
            tuple(sorted(group.members, key=lambda member: (member != winner, -chances[-1][member]))),
            _likeliest(chances, group.members),
        )
        for group in common["answers"]
    ]
    groups.sort(key=lambda group: (winner not in group.members, -group.chances[-1]))
    stages = [Stage("ask", tuple(asked.game for asked in answered))] if answered else []
    if missing := tuple(asked.game for asked in games if asked.answer is None):
        stages.append(Stage(UNANSWERED, missing))
    fates = {candidate: f"place {rank}" for rank, candidate in enumerate(line["order"], 1)}
    influences: tuple[Influence, ...] = ()
    if with_flips and isinstance(strategy, Explaining):
        influences = strategy.explain(entrants, (), winner)  # before the judge; `groups` has what follows
    standings = (
        _standing(entrant.id, fates.get(entrant.id, ""), line, case, chances[-1][entrant.id])
        for entrant in entrants
    )
    return Receipt(
        winner=winner,
        stages=tuple(stages),
        candidates=tuple(standings),
        provisional=bool(line.get("provisional")),
        unread=line.get("cause") == "unreadable",
        stopped=line.get("stopped"),
        flips=_believed_flips(strategy, entrants, asks, answers, winner) if with_flips else None,
        whole=True,
        influences=influences,
        **{**common, "answers": tuple(groups), "score_kind": "probability"},
    )


def _likeliest(chances: Sequence[Mapping[int, float]], members: Sequence[int]) -> tuple[float, ...]:
    """The probability of the likeliest member after each step."""
    if len(members) == 1:
        (member,) = members
        return tuple([step[member] for step in chances])
    return tuple([max([step[member] for member in members]) for step in chances])


def _believed_flips(
    strategy: Believing, entrants: Sequence[Entrant], asks: list[Ask], answers: list[Answer], winner: int
) -> tuple[Flip, ...]:
    """Find single verdicts that, reversed, make another candidate the likeliest, all others unchanged."""
    others = [
        (number, ask, other)
        for number, (ask, answer) in enumerate(zip(asks[:MAX_FLIPS], answers, strict=False))
        if isinstance(ask, Pairing) and isinstance(answer, Verdict)
        for other in _reversed(answer)
    ]
    instead = ([*answers[:number], other, *answers[number + 1 :]] for number, _, other in others)
    changed = []
    for (number, ask, other), last in zip(
        others, strategy.suppose(entrants, asks, answers, instead), strict=True
    ):
        best = max(sorted(last), key=lambda candidate: (round(last[candidate], 9), candidate == winner))
        if best != winner:
            changed.append(Flip(number, ask.a if other.a > other.b else ask.b, best))
    return tuple(changed)


def _from_contest(
    run: RebuiltRun, line: Line, play: CaseRun, games: list[Asked], *, with_flips: bool
) -> Receipt:
    contest, case, entrants = play.contest, play.prepared.case, play.prepared.evidence.entrants
    game_of = {asked.ask: asked.game for asked in games}
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
        stages.append(Stage(UNANSWERED, unanswered))
    clusters = clusters_of([(entrant.id, entrant.signature) for entrant in entrants], stages, chosen.winner)
    fates = fates_of(stages, clusters, line)
    decisive = None
    if with_flips and run.strategy is not None:
        seed = f"{run.file.config.seed}/{case.id}"
        decisive = tuple(flips(run.strategy, entrants, seed=seed, contest=contest))
    standings = (
        _standing(
            entrant.id, fates.get(entrant.id, "did not play"), line, case, chosen.scores.get(entrant.id)
        )
        for entrant in entrants
    )
    return Receipt(
        winner=chosen.winner,
        stages=tuple(stages),
        candidates=tuple(standings),
        clusters=clusters,
        finalists=chosen.finalists,
        rescued=chosen.rescued,
        rescue_gap=chosen.facts.get("rescue_gap"),
        provisional=chosen.provisional,
        stopped=contest.stopped,
        flips=decisive,
        whole=True,
        **{**_common(run, line, play.prepared, games), "score_kind": chosen.score_kind},
    )


def _standing(
    candidate: int, fate: str, line: Line, case: Case | None, score: float | None = None
) -> Standing:
    is_read = case is not None and candidate < len(case.candidates)
    label = case.candidates[candidate].correct if case is not None and is_read else None
    passed = line["tests_passed"][candidate] if "tests_passed" in line else None
    fate = "chosen" if candidate == line.get("winner") else fate
    return Standing(candidate, fate, label, passed, score)


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
    """The prompt, whether it is exactly what was sent, and the replies.

    `shown` is what the judge read of each candidate, `difference` what separates two programs: inputs, and
    what each of them made of these.
    """

    prompt: str
    exact: bool
    replies: tuple[JudgeReply, ...]
    shown: tuple[str, ...] = ()
    difference: tuple[str, ...] = ()


def exchanges_of(
    run: RebuiltRun, name: str, prepared: PreparedCase | None, games: Sequence[Asked]
) -> Iterator[GameExchange]:
    """Yield prompt and replies of each game of a case: prompts rendered again, replies from the journal."""
    keys = [line["key"] for asked in games for line in asked.attempts if line.get("key")]
    journal = run.journal_of(name)
    stored = {} if journal is None else journal.get_many(keys)
    for _, ask, _, _, attempts in games:
        replies = []
        for line in attempts:
            if "attempt" in line:
                reply = stored.get(line["key"])
                text, reasoning = (None, "") if reply is None else (reply.text, reply.reasoning)
                replies.append(JudgeReply(text, reasoning, line["how"], line["cause"], line["finish"]))
        difference, shown = tuple[str, ...](), tuple[str, ...]()
        if prepared is not None:
            shown, differences = prepared.evidence.shown(ask), prepared.evidence.differences
            if differences is not None and isinstance(ask, Pairing):
                difference = differences(ask.a, ask.b) or ()
        prompt, exact = _prompt(run, prepared, ask, attempts[0])
        yield GameExchange(prompt, exact, tuple(replies), shown, difference)


def _prompt(run: RebuiltRun, prepared: PreparedCase | None, ask: Ask, line: Line) -> tuple[str, bool]:
    if prepared is None or run.judge is None:
        return "", False
    try:
        request = run.judge.request(prepared, ask)
    except CapsError:  # a template is missing
        return "", False
    text = "\n\n".join(message.content for message in request.messages)
    return text, request_key(request) == line.get("key")
