"""Recorded verdicts: files of judges' answers, which replace a model in later runs.

A file has one answer per line, gzipped or not: `{"case": "q1", "judge": "gpt-4", "shown": [0, 3], "verdict":
"A"}`. `shown` has the indices of the candidates in the order in which the judge saw them. An `InputError`
names the file, line and field. docs/reference/files.md lists the fields.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from caps.config.tables import Place, Table, read_table
from caps.core.errors import InputError, SettingError
from caps.core.settings import nearest
from caps.core.text import printable_json
from caps.core.types import Ask, Group, Level, Pairing, Pick, Rating, Solo, Usage, Verdict, verdict_of
from caps.datasets.reading import Row, decode_row, line_rows, lines, peek_line, text_or_number

MAX_ANSWERS = 5_000_000  # per file: they are held in memory
MAX_NAME_LENGTH = 500  # characters of a judge or a case
DEFAULT_JUDGE_NAME = "judge"  # for lines without a judge
LEVELS = {str(level): level for level in Level}
SCALE = (1.0, 10.0)

GivenAnswer: TypeAlias = Verdict | Rating | Pick
Index: TypeAlias = Annotated[
    int, Meta(ge=0, le=99_999, description="the index of a candidate, from 0 to 99,999")
]
Weight: TypeAlias = Annotated[float, Meta(ge=0, le=1, description="above 0 and at most 1, and 0 for a TIE")]
Tokens: TypeAlias = Annotated[int, Meta(ge=0, le=10**9)]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded answer of a judge.

    `sure`: the confidence is recorded. `merged`: the verdict combines both orders of a pair. `texts`: digests
    of the texts, in the order shown. `cause`: why an unreadable reply was recorded as a tie.
    """

    case: str
    judge: str
    ask: Ask
    answer: GivenAnswer
    sure: bool = True
    merged: bool = False
    texts: tuple[str, ...] = ()
    usage: Usage | None = None
    cause: str | None = None


Answers: TypeAlias = Mapping[str, Mapping[Ask, Recorded]]
"""The answers of one judge, by case and ask; a merged verdict is stored for both orders."""


@dataclass(frozen=True, slots=True)
class Records:
    """All answers of a file by judge, and their digest."""

    path: str
    judges: Mapping[str, Answers]
    digest: str = field(default="", compare=False)

    def of(self, judge: str | None) -> tuple[str, Answers]:
        """The name and answers of a judge; the name may be omitted if there is only one."""
        names = list(self.judges)
        if judge is None and len(names) == 1:
            judge = names[0]
        if judge is None or judge not in self.judges:
            listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            wrong = "name one of its judges" if judge is None else f"has no judge {judge!r}"
            close = "" if judge is None else nearest(judge, names)
            raise SettingError(
                f"{self.path}: {wrong} (--recorded-judge, recorded_judge): {close}there are {listed}"
            )
        return judge, self.judges[judge]


class RecordCollector:
    """Collects answers without duplicates; contradictory answers are refused."""

    def __init__(self) -> None:
        self.judges: dict[str, dict[str, dict[Ask, Recorded]]] = {}
        self.count = 0
        self._hasher = sha256()

    def add(self, record: Recorded, where: str) -> bool:
        """Add an answer; false if it is a duplicate."""
        answers = self.judges.setdefault(record.judge, {}).setdefault(record.case, {})
        orders = list(_orders(record))
        for ask, ordered in orders:
            earlier = answers.get(ask)
            if earlier is not None and earlier.answer != ordered.answer:
                raise InputError(
                    f"{where}: a different answer to the same ask is on an earlier line; number repeated "
                    "answers with draw: 0, 1, 2"
                )
        if record.ask in answers:
            return False
        self.count += 1
        if self.count > MAX_ANSWERS:
            raise InputError(f"{where}: there are more than {MAX_ANSWERS:,} answers")
        answers.update(orders)
        self._hasher.update(write_recorded(record))
        return True

    @property
    def digest(self) -> str:
        """A digest of all answers, in order."""
        return self._hasher.hexdigest()[:16]


def read_records(path: str) -> Records:
    """Read all answers of a file; raises at the first bad line."""
    collector = RecordCollector()
    for where, record in read_recorded(path):
        if isinstance(record, InputError):
            raise record
        collector.add(record, where)
    return Records(path, collector.judges, collector.digest)


def read_recorded(path: str) -> Iterator[tuple[str, Recorded | InputError]]:
    """Read every answer of a file with its location; a bad line is an `InputError`."""
    first, source = peek_line(lines(path))
    if not first:
        raise InputError(f"{path}: the file is empty; recorded verdicts have one JSON object per line")
    for where, row in line_rows(source, path):
        try:
            yield where, row if isinstance(row, InputError) else parse_recorded(row, Place(where))
        except InputError as error:
            yield where, error


def is_recorded(first: bytes) -> bool:
    """Whether a first line belongs to a file of recorded answers."""
    if b'"shown"' not in first:
        return False
    row = decode_row(first)
    return isinstance(row, dict) and {"case", "shown"} <= row.keys()


class AnswerLine(Table, frozen=True):
    """One line of a file; it holds one of verdict or ratings, rating, best."""

    case: str | int | float
    shown: tuple[Index, ...]
    judge: str | int | float = DEFAULT_JUDGE_NAME
    verdict: Literal["A", "B", "TIE"] | None = None
    confidence: Literal["HIGH", "LOW"] | None = None
    weight: Weight | None = None
    ratings: tuple[float, float] | None = None
    rating: float | None = None
    best: Index | None = None
    scale: tuple[float, float] = SCALE
    level: Literal["E0", "E1", "E2"] = "E2"
    draw: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    dialect: Literal["verdicts", "ratings"] = "verdicts"
    merged: bool = False
    texts: tuple[Annotated[str, Meta(max_length=64)], ...] = ()
    tokens: Tokens | None = None
    output: Tokens = 0
    cause: str | None = None
    about: Any = None


def parse_recorded(row: Row, place: Place) -> Recorded:
    """Parse one answer, or raise an `InputError` that names the place and the field; null means absent."""
    place = replace(place, raises=InputError)
    line = read_table({name: value for name, value in row.items() if value is not None}, AnswerLine, place)
    if len(set(line.shown)) < len(line.shown):
        raise place.at("shown").error("has a candidate twice")
    if line.scale[0] >= line.scale[1]:
        raise place.at("scale").error("must be two numbers, the least and the greatest rating")
    if line.texts and len(line.texts) != len(line.shown):
        raise place.at("texts").error(f"must hold {len(line.shown)} digests, one for each candidate in shown")
    ask, answer, sure = _answer(line, place)
    if line.merged and not isinstance(ask, Pairing):
        raise place.at("merged").error("only a verdict on a pair can be merged from two orders")
    return Recorded(
        case=_name(line.case, place.at("case")),
        judge=_name(line.judge, place.at("judge")),
        ask=ask,
        answer=answer,
        sure=sure,
        merged=line.merged,
        texts=line.texts,
        usage=None if line.tokens is None else Usage(line.tokens, line.output),
        cause=line.cause,
    )


def _name(value: str | float, place: Place) -> str:
    name = text_or_number({"": value}, "")
    if not name or len(name) > MAX_NAME_LENGTH:
        raise place.error(f"must have 1 to {MAX_NAME_LENGTH} characters, not {len(name)}")
    return name


def _answer(line: AnswerLine, place: Place) -> tuple[Ask, GivenAnswer, bool]:
    """The ask, the answer, and whether its confidence is recorded."""
    kinds = [name for name in ("verdict", "ratings", "rating", "best") if getattr(line, name) is not None]
    if not kinds:
        raise place.at("verdict").error("is missing; one of verdict, ratings, rating or best is needed")
    if len(kinds) > 1 and kinds != ["verdict", "ratings"]:
        raise place.at(kinds[-1]).error(f"is given with {kinds[0]}; a line has one answer")
    level, count = LEVELS[line.level], {"rating": 1, "best": len(line.shown)}.get(kinds[0], 2)
    if len(line.shown) != count:
        raise place.at("shown").error(f"must hold {count} for a line with {kinds[0]}, not {len(line.shown)}")
    if line.rating is not None:
        rating = Rating(_scaled(line.rating, line.scale, place.at("rating")))
        return Solo(line.shown[0], level, line.draw), rating, True
    if line.best is not None:
        if len(line.shown) < 2 or line.best not in line.shown:
            wanted = "must be one of at least two candidates in shown"
            raise place.at("best").error(f"{wanted}, not {line.best}")
        return Group(line.shown, level, line.draw), Pick(line.best), True
    a, b = line.shown
    return Pairing(a, b, level, line.draw, line.dialect), *_verdict(line, place)


def _verdict(line: AnswerLine, place: Place) -> tuple[Verdict, bool]:
    """The verdict of a line, and whether its confidence is known; redundant fields must agree."""
    if line.ratings is not None:
        a, b = (
            _scaled(rating, line.scale, place.at("ratings", index))
            for index, rating in enumerate(line.ratings)
        )
        verdict = Verdict(a, b)
        if line.verdict and line.verdict != _winner(verdict):
            raise place.at("verdict").error(f"is {line.verdict}, which contradicts ratings")
        return verdict, True
    if line.weight is not None and line.confidence is not None:
        raise place.at("confidence").error("is given with weight; give only one of them")
    winner = line.verdict or "TIE"
    if line.weight is None:
        return verdict_of(winner, line.confidence or "HIGH"), line.confidence is not None or winner == "TIE"
    if (winner == "TIE") != (line.weight == 0):
        raise place.at("weight").error(
            f"must be above 0 and at most 1, and 0 for a TIE, not {line.weight:g} for {winner}"
        )
    ahead, behind = 5.5 + 4.5 * line.weight, 5.5 - 4.5 * line.weight
    return (Verdict(behind, ahead) if winner == "B" else Verdict(ahead, behind)), True


def _winner(verdict: Verdict) -> str:
    return "TIE" if verdict.a == verdict.b else "A" if verdict.a > verdict.b else "B"


def _scaled(value: float, scale: tuple[float, float], place: Place) -> float:
    """A rating, converted to the scale from 1 to 10."""
    low, high = scale
    if not low <= value <= high:
        raise place.error(f"must be from {low:g} to {high:g}, its scale, not {value:g}")
    if scale == SCALE:
        return value
    return min(10.0, max(1.0, 1 + 9 * (value - low) / (high - low)))


def write_recorded(record: Recorded) -> bytes:
    """An answer as one JSON line, with the line break."""
    return printable_json(msgspec.json.encode(recorded_row(record))) + b"\n"


def recorded_row(record: Recorded) -> Row:
    """An answer as a JSON object."""
    ask, answer = record.ask, record.answer
    row: Row = {"case": record.case, "judge": record.judge, "shown": list(ask.entrants)}
    if isinstance(answer, Verdict):
        row["verdict"] = _winner(answer)
        if record.sure:
            row["ratings"] = [answer.a, answer.b]
    elif isinstance(answer, Rating):
        row["rating"] = answer.value
    else:
        row["best"] = answer.winner
    row["level"] = str(ask.level)
    row |= {"draw": ask.draw} if ask.draw else {}
    if isinstance(ask, Pairing) and ask.dialect != "verdicts":
        row["dialect"] = ask.dialect
    row |= {"merged": True} if record.merged else {}
    row |= {"texts": list(record.texts)} if record.texts else {}
    if record.usage is not None:
        row |= {"tokens": record.usage.prompt, "output": record.usage.output}
    return row | ({"cause": record.cause} if record.cause else {})


def text_digest(text: str) -> str:
    """The digest that identifies a judged text in a record."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _orders(record: Recorded) -> Iterator[tuple[Ask, Recorded]]:
    """The ask and answer; of a merged answer, also those of the other order."""
    yield record.ask, record
    if record.merged and isinstance(record.ask, Pairing) and isinstance(record.answer, Verdict):
        ask = replace(record.ask, a=record.ask.b, b=record.ask.a)
        yield ask, replace(record, ask=ask, answer=record.answer.swapped(), texts=record.texts[::-1])
