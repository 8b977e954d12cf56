"""The games of a case as its calls tell them, and the rounds they belong to."""

from dataclasses import dataclass

from caps.core.types import Answer, Ask, Pairing, Pick, Rating, RoundKind, Unanswered, Verdict
from caps.reports.bracket import confidence
from caps.reports.figures import by_ask, malformed
from caps.reports.lines import Line, answer_of, ask_of


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
        ratings = f"{answer.a:g}-{answer.b:g}"
        return winner, ratings if ask.dialect == "ratings" else confidence(answer)
    if isinstance(answer, Rating):
        return None, f"{answer.value:g} of 10"
    if isinstance(answer, Pick):
        return answer.winner, "picked"
    return None, f"unanswered: {answer.reason}" if isinstance(answer, Unanswered) else "unanswered"
