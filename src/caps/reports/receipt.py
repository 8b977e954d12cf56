"""Receipts: how a case was decided, as data: judge calls, answers, prompts, replies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from caps.core.errors import CapsError
from caps.core.play import Believing, Explaining
from caps.core.types import (
    Answer,
    Ask,
    Case,
    Entrant,
    Influence,
    Pairing,
    Pick,
    Rating,
    RoundKind,
    Unanswered,
    Verdict,
)
from caps.engines.base import CaseRun
from caps.journal.records import request_key
from caps.judging.base import Opinion, PreparedCase
from caps.reports.answers import ANSWER_CHARACTERS, plain_formula, short_name, shortened_words
from caps.reports.bracket import confidence, survivors_of
from caps.runs.judge_quality import is_misjudged
from caps.runs.outcomes import Outcome, outcome_of
from caps.runs.rebuild import RebuiltRun
from caps.runs.result_lines import Line, answer_of, ask_of, opinions_of
from caps.runs.summary import group_by_ask, malformed_cause

UNANSWERED = "not answered"  # the stage of questions without an answer
CLOSE = 2e-3  # probabilities in result lines are rounded


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
class Missed:
    """A right candidate that was not chosen: how often its answer was compared, and how often it lost.

    `removed_by` is the number of the verdict that cost it most.
    """

    candidate: int
    compared: int
    lost: int
    removed_by: int | None


@dataclass(frozen=True, slots=True)
class Receipt:
    """How a case was decided: its result line, and what the run and its journal add to it.

    Without `whole` only calls are known, as the contest could not be replayed.
    """

    line: Line
    games: tuple[Game, ...]
    stages: tuple[Stage, ...]
    candidates: tuple[Standing, ...]
    answers: tuple[AnswerGroup, ...] = ()
    names: tuple[str, ...] = ()  # the answer of each candidate, where it is short; else empty
    gold: str = ""  # the reference answer
    influences: tuple[Influence, ...] = ()  # what moved the probability of the chosen candidate
    rescue_gap: float | None = None
    stopped: str | None = None
    whole: bool = False

    @property
    def case(self) -> str:
        """The id of the case."""
        return str(self.line["id"])

    @property
    def winner(self) -> int | None:
        """The chosen candidate; None if the case failed."""
        return self.line.get("winner")

    @property
    def score_kind(self) -> str:
        """The meaning of the scores."""
        return self.line.get("score_kind") or "score"

    @property
    def finalists(self) -> tuple[int, ...]:
        """The candidates of the finals."""
        return tuple(self.line.get("finalists") or ())

    @property
    def rescued(self) -> tuple[int, ...]:
        """The candidates that were admitted to the finals after losing narrowly."""
        rescued = self.line.get("rescued")
        return () if rescued is None else (rescued,) if isinstance(rescued, int) else tuple(rescued)

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

    def comparisons(self, members: Sequence[int]) -> list[Game]:
        """The answered questions that compare some of these candidates with others."""
        shown = ((game, [candidate in members for candidate in game.shown]) for game in self.answered_games)
        return [
            game
            for game, inside in shown
            if any(inside) and not all(inside) and not game.said.startswith("unanswered")
        ]

    @property
    def outcome(self) -> Outcome | None:
        """Whether the choice is right, missed or impossible, if that is known."""
        if self.winner is None:
            return None
        labels = [standing.right for standing in self.candidates if standing.id != self.winner]
        return outcome_of(0, [self.right(self.winner), *labels])

    def misjudged(self, game: Game) -> bool:
        """Whether the judge preferred a wrong candidate although a right one was shown."""
        return is_misjudged(game.preferred, game.shown, self.right)

    @property
    def missed(self) -> Missed | None:
        """The right candidate that was not chosen; None if there is none, or a right one was chosen."""
        ranked = [candidate for group in self.answers for candidate in group.members]
        right = [candidate for candidate in ranked if self.right(candidate)]
        if self.outcome != "missed" or not right:
            return None
        best = max(right, key=lambda candidate: (_score(self.standing(candidate)), -ranked.index(candidate)))
        group = self.answer_of(best) or AnswerGroup((best,))
        about = self.comparisons(group.members)
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


def receipt_of(
    run: RebuiltRun,
    line: Line,
    prepared: PreparedCase | None,
    games: list[Asked] | None = None,
) -> Receipt:
    """Create the receipt of a result line.

    Where the strategy gives probabilities, the recorded answers suffice; other contests are replayed. `games`
    are those of the case, if they are known.
    """
    games = games_of(run.calls.get(line["id"], [])) if games is None else games
    receipt = _from_line(line, None if prepared is None else prepared.case, games)
    if prepared is None:
        return receipt
    entrants = prepared.evidence.entrants
    groups = _groups(entrants, line.get("order") or ())
    receipt = replace(
        receipt,
        answers=tuple(map(AnswerGroup, groups)),
        names=_names(prepared.case, groups),
        gold=_gold(prepared.case),
    )
    if "winner" not in line:
        return receipt
    believed = _with_beliefs(receipt, run.strategy, entrants, games)
    if believed is not None:
        return believed
    play = run.play(prepared)
    return receipt if play is None else _with_contest(receipt, play, games)


def _from_line(line: Line, case: Case | None, games: Sequence[Asked]) -> Receipt:
    """What the lines of a run say without its contest."""
    stages: list[tuple[str, str, list[Game]]] = []
    for name, _, _, game, _ in games:
        if not stages or stages[-1][:2] != (name, game.level):
            stages.append((name, game.level, []))
        stages[-1][2].append(game)
    scores, passed = (
        dict(enumerate(line.get("scores") or ())),
        dict(enumerate(line.get("tests_passed") or ())),
    )
    labels = (
        {} if case is None else {place: candidate.correct for place, candidate in enumerate(case.candidates)}
    )
    ranks = {candidate: rank for rank, candidate in enumerate(line.get("order") or (), 1)}
    standings = (
        Standing(
            id=candidate,
            fate="chosen" if candidate == line.get("winner") else f"place {ranks[candidate]}",
            right=labels.get(candidate),
            passed=passed.get(candidate),
            score=scores.get(candidate),
        )
        for candidate in sorted(ranks)
    )
    return Receipt(
        line=line,
        games=tuple(asked.game for asked in games),
        stages=tuple(Stage(name, tuple(held)) for name, _, held in stages),
        candidates=tuple(standings),
        stopped=line.get("stopped"),
    )


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


def _with_beliefs(
    receipt: Receipt, strategy: object, entrants: Sequence[Entrant], games: Sequence[Asked]
) -> Receipt | None:
    """Add how the probabilities moved, from the recorded answers; None for a strategy without them."""
    line, winner = receipt.line, receipt.line["winner"]
    if not isinstance(strategy, Believing) or line.get("probability") is None or line.get("story"):
        return None
    asks = [asked.ask for asked in games if asked.answer is not None]
    answers = [asked.answer for asked in games if asked.answer is not None]
    chances = list(strategy.follow(entrants, asks, answers))
    if abs(chances[-1][winner] - line["probability"]) > CLOSE:
        return None  # the cases or the findings have changed
    groups = [
        AnswerGroup(
            tuple(sorted(group.members, key=lambda member: (member != winner, -chances[-1][member]))),
            _likeliest(chances, group.members),
        )
        for group in receipt.answers
    ]
    groups.sort(key=lambda group: (winner not in group.members, -group.chances[-1]))
    answered = tuple(asked.game for asked in games if asked.answer is not None)
    missing = tuple(asked.game for asked in games if asked.answer is None)
    stages = (Stage("ask", answered), Stage(UNANSWERED, missing))
    influences: tuple[Influence, ...] = ()
    if isinstance(strategy, Explaining):
        influences = strategy.explain(entrants, (), winner)  # before the judge; `groups` has what follows
    return replace(
        receipt,
        stages=tuple(stage for stage in stages if stage.games),
        answers=tuple(groups),
        influences=influences,
        whole=True,
    )


def _likeliest(chances: Sequence[Mapping[int, float]], members: Sequence[int]) -> tuple[float, ...]:
    """The probability of the likeliest member after each step."""
    if len(members) == 1:
        (member,) = members
        return tuple([step[member] for step in chances])
    return tuple([max([step[member] for member in members]) for step in chances])


def _with_contest(receipt: Receipt, play: CaseRun, games: Sequence[Asked]) -> Receipt:
    """Add the rounds of a replayed contest and how far each candidate came."""
    contest = play.contest
    game_of = {asked.ask: asked.game for asked in games}
    stages = []
    rounds = [turn.round for turn in contest.transcript]
    for index, round_ in enumerate(rounds):
        following = next((later for later in rounds[index + 1 :] if later.kind != "second_look"), None)
        survivors = survivors_of(round_, following, contest.selection)
        asked = tuple(game_of.pop(ask) for ask in round_.asks)
        stages.append(Stage(round_.stage, asked, round_.byes, survivors, round_.kind))
    fates = _fates(receipt, stages)
    if game_of:
        stages.append(Stage(UNANSWERED, tuple(game_of.values())))
    return replace(
        receipt,
        stages=tuple(stages),
        candidates=tuple(
            replace(standing, fate=fates.get(standing.id, "did not play")) for standing in receipt.candidates
        ),
        rescue_gap=contest.selection.facts.get("rescue_gap"),
        stopped=contest.stopped,
        whole=True,
    )


def _fates(receipt: Receipt, stages: Sequence[Stage]) -> dict[int, str]:
    """How far each candidate came; equal answers that one of them represents share its way."""
    players = stages[0].players if stages else {group.members[0] for group in receipt.answers}
    fates = dict[int, str]()
    for group in receipt.answers:
        playing = [member for member in group.members if member in players]
        if len(playing) == 1:
            others = (member for member in group.members if member not in playing)
            fates |= dict.fromkeys(others, f"same answer as #{playing[0]}")
    for stage in stages:
        for game in stage.games:
            if stage.kind == "elimination" and len(game.shown) == 2:
                a, b = game.shown
                winner, loser = (a, b) if a in stage.through else (b, a)
                fates[loser] = f"out in stage {stage.name}, against #{winner}"
    fates |= dict.fromkeys(receipt.finalists, "finalist")
    fates |= dict.fromkeys(receipt.rescued, "finalist, rescued")
    if not receipt.finalists:
        fates = {standing.id: standing.fate for standing in receipt.candidates} | fates
    return fates if receipt.winner is None else fates | {receipt.winner: "chosen"}


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
