"""Recorded verdicts: files of judges' answers, which replace a model in later runs.

There are two formats of JSON lines, gzipped or not. The first line decides which one a file has:

* *answers*: one answer per line: `{"case": "q1", "judge": "gpt-4", "shown": [0, 3], "verdict": "A"}`. `shown`
  has the indices of the candidates in the order in which the judge saw them.
* *pools*: one case per line with its candidates and the answers of several judges. It is also a case file:
  `{"id": "q1", "candidates": [...], "verdicts": {"gpt-4": [[0, 3, 1]]}, "ratings": {"gpt-4": [7, 3, 9]}}`

An `InputError` names the file, line and field. docs/reference/files.md lists the fields.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import isfinite
from typing import Any, TypeAlias

import msgspec

from caps.core.errors import InputError, SettingError
from caps.core.settings import nearest
from caps.core.text import printable_json
from caps.core.types import (
    Ask,
    Candidate,
    Case,
    Group,
    Level,
    Pairing,
    Pick,
    Rating,
    Solo,
    Usage,
    Verdict,
)
from caps.datasets.case_files import parse_row
from caps.datasets.reading import (
    Row,
    decode,
    decode_row,
    kind_of,
    lines,
    optional,
    peek_line,
    required,
    text_or_number,
)
from caps.prompts.read import verdict_of

MAX_ANSWERS = 5_000_000  # per file: they are held in memory
MAX_CANDIDATES = 100_000
MAX_NAME_LENGTH = 500  # characters of a judge or a case
DEFAULT_JUDGE_NAME = "judge"  # for lines without a judge
DIALECTS = ("verdicts", "ratings")
LEVELS = {str(level): level for level in Level}
SCALE = (1.0, 10.0)
NO_TEXT = "(the text of candidate {} is not published)"
NO_PROBLEM = "(the problem is not published)"

GivenAnswer: TypeAlias = Verdict | Rating | Pick


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
            known = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            said = "name one of its judges" if judge is None else f"has no judge {judge!r}"
            close = "" if judge is None else nearest(judge, names)
            raise SettingError(
                f"{self.path}: {said} (--recorded-judge, recorded_judge): {close}there are {known}"
            )
        return judge, self.judges[judge]


class RecordCollector:
    """Collects answers without duplicates; contradictory answers are refused."""

    def __init__(self) -> None:
        self.judges: dict[str, dict[str, dict[Ask, Recorded]]] = {}
        self.count = 0
        self._hasher = sha256()

    def add(self, one: Recorded, where: str) -> bool:
        """Add an answer; false if it is a duplicate."""
        answers = self.judges.setdefault(one.judge, {}).setdefault(one.case, {})
        orders = list(_orders(one))
        for ask, each in orders:
            known = answers.get(ask)
            if known is not None and known.answer != each.answer:
                raise InputError(
                    f"{where}: a different answer to the same ask is on an earlier line; number repeated "
                    "answers with draw: 0, 1, 2"
                )
        if one.ask in answers:
            return False
        self.count += 1
        if self.count > MAX_ANSWERS:
            raise InputError(f"{where}: there are more than {MAX_ANSWERS:,} answers")
        answers.update(orders)
        self._hasher.update(write_recorded(one))
        return True

    @property
    def digest(self) -> str:
        """A digest of all answers, in order."""
        return self._hasher.hexdigest()[:16]


def read_records(path: str) -> Records:
    """Read all answers of a file in either format; raises at the first bad line."""
    collector = RecordCollector()
    for where, one in read_recorded(path):
        if isinstance(one, InputError):
            raise one
        collector.add(one, where)
    return Records(path, collector.judges, collector.digest)


def read_recorded(path: str) -> Iterator[tuple[str, Recorded | InputError]]:
    """Read every answer of a file with its location; a bad line is an `InputError`."""
    first, source = peek_line(lines(path))
    if not first:
        raise InputError(f"{path}: the file is empty; recorded verdicts have one JSON object per line")
    if is_pool(first):
        yield from _read_pool_answers(source, path)
        return
    for number, line in enumerate(source, start=1):
        if line.strip():
            where = f"{path}:{number}"
            try:
                yield where, parse_recorded(_object(line))
            except InputError as error:
                yield where, InputError(f"{where}: {error}")


def is_recorded(first: bytes) -> bool:
    """Whether a first line belongs to a file with one recorded answer per line."""
    if b'"shown"' not in first:
        return False
    try:
        row = decode(first)
    except InputError:
        return False
    return isinstance(row, dict) and {"case", "shown"} <= row.keys()


def is_pool(first: bytes) -> bool:
    """Whether a first line belongs to a file of pools."""
    if b'"candidates"' not in first:
        return False
    try:
        row = decode(first)
    except InputError:
        return False
    return isinstance(row, dict) and any(fields <= row.keys() for fields in POOL_FIELDS)


POOL_FIELDS = (frozenset({"candidates", "verdicts"}), frozenset({"candidates", "ratings"}))


# One answer per line

_FIELDS = (
    "case", "judge", "shown", "verdict", "confidence", "weight", "ratings", "rating", "best", "scale",
    "level", "draw", "dialect", "merged", "texts", "tokens", "output", "cause", "about",
)  # fmt: skip


def parse_recorded(row: Row) -> Recorded:
    """Parse one answer, or raise an `InputError` that names the field."""
    for name in row:
        if name not in _FIELDS:
            raise InputError(
                f"{name}: unknown field; {nearest(name, list(_FIELDS))}put further facts into about"
            )
    shown = _shown(row)
    level = _choice(row, "level", tuple(LEVELS), "E2")
    draw = _integer(row, "draw", 0, maximum=1_000_000)
    kinds = [name for name in ("verdict", "ratings", "rating", "best") if row.get(name) is not None]
    if not kinds:
        raise InputError("verdict: is missing; one of verdict, ratings, rating or best is needed")
    ask: Ask
    answer: GivenAnswer
    sure = True
    if "rating" in kinds or "best" in kinds:
        if len(kinds) > 1:
            raise InputError(f"{kinds[-1]}: is given with {kinds[0]}; a line has one answer")
        if "rating" in kinds:
            _check_count(shown, "rating", 1)
            ask = Solo(shown[0], LEVELS[level], draw)
            answer = Rating(_scaled(row["rating"], "rating", _scale(row)))
        else:
            ask, answer = Group(shown, LEVELS[level], draw), Pick(_best(row, shown))
    else:
        _check_count(shown, kinds[0], 2)
        dialect = _choice(row, "dialect", DIALECTS, "verdicts")
        ask = Pairing(shown[0], shown[1], LEVELS[level], draw, dialect)
        answer, sure = _verdict(row)
    merged = bool(optional(row, "merged", bool))
    if merged and not isinstance(ask, Pairing):
        raise InputError("merged: only a verdict on a pair can be merged from two orders")
    return Recorded(
        case=_name(row, "case"),
        judge=DEFAULT_JUDGE_NAME if row.get("judge") is None else _name(row, "judge"),
        ask=ask,
        answer=answer,
        sure=sure,
        merged=merged,
        texts=_texts(row, len(shown)),
        usage=_usage(row),
        cause=optional(row, "cause", str),
    )


def write_recorded(one: Recorded) -> bytes:
    """An answer as one JSON line, with the line break."""
    return printable_json(msgspec.json.encode(recorded_row(one))) + b"\n"


def recorded_row(one: Recorded) -> Row:
    """An answer as a JSON object."""
    ask, answer = one.ask, one.answer
    row: Row = {"case": one.case, "judge": one.judge, "shown": list(ask.entrants)}
    if isinstance(answer, Verdict):
        row["verdict"] = "TIE" if answer.a == answer.b else "A" if answer.a > answer.b else "B"
        if one.sure:
            row["ratings"] = [answer.a, answer.b]
    elif isinstance(answer, Rating):
        row["rating"] = answer.value
    else:
        row["best"] = answer.winner
    row["level"] = str(ask.level)
    row |= {"draw": ask.draw} if ask.draw else {}
    if isinstance(ask, Pairing) and ask.dialect != DIALECTS[0]:
        row["dialect"] = ask.dialect
    row |= {"merged": True} if one.merged else {}
    row |= {"texts": list(one.texts)} if one.texts else {}
    if one.usage is not None:
        row |= {"tokens": one.usage.prompt, "output": one.usage.output}
    return row | ({"cause": one.cause} if one.cause else {})


def text_digest(text: str) -> str:
    """The digest that identifies a judged text in a record."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _orders(one: Recorded) -> Iterator[tuple[Ask, Recorded]]:
    """The ask and answer; of a merged answer, also those of the other order."""
    yield one.ask, one
    if one.merged and isinstance(one.ask, Pairing) and isinstance(one.answer, Verdict):
        ask = replace(one.ask, a=one.ask.b, b=one.ask.a)
        yield ask, replace(one, ask=ask, answer=one.answer.swapped(), texts=one.texts[::-1])


def _object(line: bytes) -> Row:
    row = decode(line)
    if not isinstance(row, dict):
        raise InputError(f"must be an object, not {kind_of(row)}")
    return row


def _name(row: Row, name: str) -> str:
    if name not in row:
        raise InputError(f"{name}: is missing; a text is wanted")
    found = text_or_number(row, name)
    if not found or len(found) > MAX_NAME_LENGTH:
        raise InputError(f"{name}: must have 1 to {MAX_NAME_LENGTH} characters, not {len(found)}")
    return found


def _shown(row: Row) -> tuple[int, ...]:
    shown = required(row, "shown", list)
    for index, one in enumerate(shown):
        _check_index(one, f"shown[{index}]", MAX_CANDIDATES)
    if len(set(shown)) < len(shown):
        raise InputError("shown: has a candidate twice")
    return tuple(shown)


def _check_index(value: Any, where: str, count: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < count:
        said = value if isinstance(value, int | float) else kind_of(value)
        raise InputError(f"{where}: must be the index of a candidate, from 0 to {count - 1}, not {said}")
    return value


def _check_count(shown: Sequence[int], name: str, count: int) -> None:
    if len(shown) != count:
        raise InputError(f"shown: must hold {count} for a line with {name}, not {len(shown)}")


def _choice(row: Row, name: str, known: Sequence[str], default: str) -> str:
    value = optional(row, name, str)
    if value is None:
        return default
    if value not in known:
        raise InputError(f"{name}: must be one of {', '.join(known)}, not {value[:40]!r}")
    return str(value)


def _integer(row: Row, name: str, default: int, *, maximum: int) -> int:
    value = optional(row, name, int)
    if value is None:
        return default
    if not 0 <= value <= maximum:
        raise InputError(f"{name}: must be from 0 to {maximum:,}, not {value}")
    return int(value)


def _scale(row: Row, name: str = "scale") -> tuple[float, float]:
    value = row.get(name)
    return SCALE if value is None else _bounds(value, name)


def _bounds(value: Any, where: str) -> tuple[float, float]:
    match value:
        case [int() | float() as low, int() | float() as high]:
            if (
                not isinstance(low, bool)
                and not isinstance(high, bool)
                and _is_finite(low, high)
                and low < high
            ):
                return float(low), float(high)
    raise InputError(f"{where}: must be two numbers, the least and the greatest rating")


def _is_finite(*values: float) -> bool:
    try:
        return all(isfinite(float(one)) for one in values)
    except OverflowError:
        return False


def _scaled(value: Any, where: str, scale: tuple[float, float]) -> float:
    """A rating, converted to the scale from 1 to 10."""
    low, high = scale
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"{where}: must be a number, not {kind_of(value)}")
    if not low <= value <= high:  # also refuses NaN
        raise InputError(f"{where}: must be from {low:g} to {high:g}, its scale, not {value}")
    if scale == SCALE:
        return float(value)
    return min(10.0, max(1.0, 1 + 9 * (value - low) / (high - low)))


def _verdict(row: Row) -> tuple[Verdict, bool]:
    """The verdict of a line, and whether its confidence is known; redundant fields must agree."""
    winner = _choice(row, "verdict", ("A", "B", "TIE"), "")
    ratings, weight = optional(row, "ratings", list), optional(row, "weight", float)
    confidence = _choice(row, "confidence", ("HIGH", "LOW"), "")
    said = [name for name in ("ratings", "weight", "confidence") if row.get(name) is not None]
    if ratings is not None:
        if len(ratings) != 2:
            raise InputError(f"ratings: must hold two numbers, one for each side, not {len(ratings)}")
        scale = _scale(row)
        a, b = (_scaled(one, f"ratings[{index}]", scale) for index, one in enumerate(ratings))
        verdict = Verdict(a, b)
        if winner and winner != ("TIE" if a == b else "A" if a > b else "B"):
            raise InputError(f"verdict: is {winner}, which contradicts ratings")
        return verdict, True
    if len(said) > 1:
        raise InputError(f"{said[1]}: is given with {said[0]}; give only one of them")
    if weight is not None:
        if not 0 <= weight <= 1 or (winner == "TIE") != (weight == 0):
            raise InputError(f"weight: must be above 0 and at most 1, and 0 for a TIE, not {weight}")
        ahead, behind = 5.5 + 4.5 * weight, 5.5 - 4.5 * weight
        return (Verdict(behind, ahead) if winner == "B" else Verdict(ahead, behind)), True
    return verdict_of(winner, confidence or "HIGH"), bool(confidence) or winner == "TIE"


def _best(row: Row, shown: tuple[int, ...]) -> int:
    best = required(row, "best", int)
    if len(shown) < 2 or best not in shown:
        raise InputError(f"best: must be one of at least two candidates in shown, not {best}")
    return int(best)


def _texts(row: Row, count: int) -> tuple[str, ...]:
    texts = optional(row, "texts", list)
    if texts is None:
        return ()
    if len(texts) != count or any(not isinstance(one, str) or len(one) > 64 for one in texts):
        raise InputError(f"texts: must hold {count} digests, one for each candidate in shown")
    return tuple(texts)


def _usage(row: Row) -> Usage | None:
    if row.get("tokens") is None:
        return None
    return Usage(_integer(row, "tokens", 0, maximum=10**9), _integer(row, "output", 0, maximum=10**9))


# Pools: one case per line


def read_pools(source: Iterable[bytes], path: str) -> Iterator[Case | InputError]:
    """Read the cases of a file of pools; see `pool_case`."""
    seen: set[str] = set()
    for number, line in enumerate(source, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        row = decode_row(line, where)
        if isinstance(row, InputError):
            yield row
            continue
        try:
            case = pool_case(row, default_id=str(number))
            if case.id in seen:
                raise InputError(f"id: {case.id[:80]!r} is on an earlier line; ids must be unique")
        except InputError as error:
            yield InputError(f"{where}: {error}")
            continue
        seen.add(case.id)
        yield case


def pool_case(row: Row, *, default_id: str) -> Case:
    """The case of a pool: its problem and labelled candidates, without the recorded answers.

    A missing grade is the mean share of human votes over a candidate's opponents (a tie counts ½). A missing
    label says whether the grade is the best of the pool. A missing text becomes a placeholder that differs
    between candidates.
    """
    listed = required(row, "candidates", list)
    candidates = []
    for index, one in enumerate(listed):
        if not isinstance(one, dict):
            candidates.append(one)
        else:
            known = {name: value for name, value in one.items() if value is not None}
            candidates.append({"text": NO_TEXT.format(index), **known})
    fields = {name: value for name, value in row.items() if name not in _POOL_ONLY_FIELDS}
    stated = {"problem": NO_PROBLEM, **fields, "candidates": candidates}
    case = parse_row(stated, default_id=default_id)
    return replace(case, candidates=_labelled(case.candidates, _human_grades(row, len(listed))))


_POOL_ONLY_FIELDS = ("verdicts", "ratings", "human", "merged", "scales")


def _labelled(candidates: tuple[Candidate, ...], human: Mapping[int, float]) -> tuple[Candidate, ...]:
    grades = [human.get(index) if one.grade is None else one.grade for index, one in enumerate(candidates)]
    best = None if None in grades or not grades else max(one for one in grades if one is not None)
    return tuple(
        replace(
            one,
            grade=grade,
            correct=one.correct if one.correct is not None or best is None else grade == best,
        )
        for one, grade in zip(candidates, grades, strict=True)
    )


def _human_grades(row: Row, count: int) -> dict[int, float]:
    """The mean share of human votes of each candidate over its opponents."""
    shares: dict[int, list[float]] = {}
    for index, one in enumerate(optional(row, "human", list) or []):
        where = f"human[{index}]"
        if not isinstance(one, list) or len(one) != 5:
            raise InputError(f"{where}: must be [a, b, votes for a, votes for b, ties]")
        a, b = (_check_index(one[i], f"{where}[{i}]", count) for i in (0, 1))
        for i in (2, 3, 4):
            if not isinstance(one[i], int) or isinstance(one[i], bool) or not 0 <= one[i] <= 10**6:
                raise InputError(f"{where}[{i}]: must be a number of votes")
        votes = one[2] + one[3] + one[4]
        if votes:
            share = (one[2] + one[4] / 2) / votes
            shares.setdefault(a, []).append(share)
            shares.setdefault(b, []).append(1 - share)
    return {one: sum(some) / len(some) for one, some in shares.items()}


def _read_pool_answers(source: Iterable[bytes], path: str) -> Iterator[tuple[str, Recorded | InputError]]:
    """The answers of a file of pools; a judge's default scale is the range of its ratings in the file."""
    rows: list[tuple[str, Row]] = []
    count = 0
    for number, line in enumerate(source, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = _object(line)
            _check_pool(row)
        except InputError as error:
            yield where, InputError(f"{where}: {error}")
            continue
        count += sum(len(some) for kind in ("verdicts", "ratings") for some in (row.get(kind) or {}).values())
        if count > MAX_ANSWERS:
            raise InputError(f"{where}: holds more than {MAX_ANSWERS:,} answers")
        kept = {name: row[name] for name in ("id", *_POOL_ONLY_FIELDS, "candidates") if name in row}
        rows.append((where, {"id": str(number), **kept, "candidates": len(kept["candidates"])}))
    scales = _scales(row for _, row in rows)
    for where, row in rows:
        try:
            yield from ((where, one) for one in _pool_answers(row, scales))
        except InputError as error:
            yield where, InputError(f"{where}: {error}")


def _check_pool(row: Row) -> None:
    required(row, "candidates", list)
    for kind in ("verdicts", "ratings", "scales"):
        for judge, some in (optional(row, kind, dict) or {}).items():
            if not isinstance(some, list):
                raise InputError(f"{kind}.{judge[:40]}: must be a list, not {kind_of(some)}")
            if not judge.strip() or len(judge) > MAX_NAME_LENGTH:
                raise InputError(f"{kind}: the name of a judge must have 1 to {MAX_NAME_LENGTH} characters")


def _scales(rows: Iterable[Row]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for row in rows:
        for judge, some in (row.get("ratings") or {}).items():
            for one in some:
                if isinstance(one, int | float) and not isinstance(one, bool) and _is_finite(one):
                    low, high = found.get(judge, (one, one))
                    found[judge] = min(low, one), max(high, one)
    return found


def _pool_answers(row: Row, scales: Mapping[str, tuple[float, float]]) -> Iterator[Recorded]:
    case, count = _name(row, "id"), row["candidates"]
    merged = bool(optional(row, "merged", bool))
    outcomes = {1: "A", 2: "B", 3: "TIE"}
    for judge, verdicts in (row.get("verdicts") or {}).items():
        draws: dict[tuple[int, int], int] = {}
        for index, one in enumerate(verdicts):
            where = f"verdicts.{judge[:40]}[{index}]"
            if not isinstance(one, list) or len(one) != 3:
                raise InputError(f"{where}: must be [shown first, shown second, outcome]")
            a, b = (_check_index(one[i], f"{where}[{i}]", count) for i in (0, 1))
            if a == b:
                raise InputError(f"{where}: has a candidate twice")
            if not isinstance(one[2], int) or isinstance(one[2], bool) or one[2] not in outcomes:
                raise InputError(f"{where}[2]: must be 1 (the first wins), 2 (the second) or 3 (a tie)")
            draw = draws[a, b] = draws.get((a, b), -1) + 1
            said = verdict_of(outcomes[one[2]], "HIGH")
            ask = Pairing(a, b, Level.FULL, draw)
            yield Recorded(case, judge, ask, said, sure=one[2] == 3, merged=merged)
    stated = row.get("scales") or {}
    for judge, ratings in (row.get("ratings") or {}).items():
        if len(ratings) != count:
            raise InputError(
                f"ratings.{judge[:40]}: must hold {count}, one for each candidate, not {len(ratings)}"
            )
        scale = (
            _bounds(stated[judge], f"scales.{judge[:40]}") if judge in stated else scales.get(judge, SCALE)
        )
        for index, value in enumerate(ratings):
            if value is not None:
                is_flat = scale[0] == scale[1]
                rating = 5.5 if is_flat else _scaled(value, f"ratings.{judge[:40]}[{index}]", scale)
                yield Recorded(case, judge, Solo(index, Level.FULL), Rating(rating))
