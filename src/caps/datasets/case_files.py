"""Our own case format, read and written: one case per line, JSON, optionally compressed.

A line that cannot be read is yielded as the `InputError` it is, so the good ones go on.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from caps.core.errors import InputError
from caps.core.text import printable_json
from caps.core.types import Candidate, Case, Message, Problem
from caps.datasets.reading import Row, refuse_flood
from caps.datasets.reading import kind_of as _kind
from caps.datasets.reading import lines as _lines
from caps.datasets.reading import wanted as _wanted
from caps.evidence.domains import check_stated, guess_domain

T = TypeVar("T")


def read_cases(path: str, *, bare: bool = False) -> Iterator[Case | InputError]:
    """Read cases in order; ids are unique and default to the line number. `bare`: none need candidates."""
    return cases_in(_lines(path), path, bare=bare)


def cases_in(lines: Iterable[bytes], path: str, *, bare: bool = False) -> Iterator[Case | InputError]:
    """Read the cases of lines that stand in the file at `path`."""
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    return _unique(numbered, path, lambda line, name: parse_case(line, default_id=name, bare=bare))


def cases_in_rows(rows: Iterable[dict[str, Any]], path: str) -> Iterator[Case | InputError]:
    """Read the cases of a table's rows; a field that a row lacks is null there."""
    return _unique(
        enumerate(rows, start=1), path, lambda row, name: parse_row(_present(row), default_id=name)
    )


def _unique(
    numbered: Iterable[tuple[int, T]], path: str, parse: Callable[[T, str], Case]
) -> Iterator[Case | InputError]:
    seen: set[str] = set()
    empty = True
    for number, item in numbered:
        empty = False
        try:
            case = parse(item, str(number))
        except InputError as error:
            yield InputError(f"{path}:{number}: {error}")
            continue
        if case.id in seen:
            yield InputError(
                f"{path}:{number}: id: {case.id!r} stands on an earlier line; ids must be unique"
            )
            continue
        seen.add(case.id)
        yield case
    if empty:
        raise InputError(f"{path}: no cases in it; one JSON object a line is wanted")


def parse_case(
    line: str | bytes, *, default_id: str, bare: bool = False, registered: Sequence[str] = ()
) -> Case:
    """Read one line, as `parse_row` reads what is on it."""
    refuse_flood(line)
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise InputError(f"must be an object, not {_kind(row)}")
    return parse_row(row, default_id=default_id, bare=bare, registered=registered)


def parse_row(
    row: dict[str, Any], *, default_id: str, bare: bool = False, registered: Sequence[str] = ()
) -> Case:
    """Read one object, or raise `InputError` naming the field; a `bare` problem may be without candidates.

    A case may state the domains that this process knows, and those `registered` in the one it is read for.
    """
    candidates = _wanted(row, "candidates", list) if "candidates" in row or not bare else []
    if not candidates and not bare:
        raise InputError("candidates: is empty; at least one is needed")
    domain = row.get("domain")
    if domain is not None:
        check_stated(domain, registered)
    known = {"id", "problem", "candidates", "domain"}
    read = tuple(_candidate(item, f"candidates[{i}]") for i, item in enumerate(candidates))
    return Case(
        id=str(row.get("id", default_id)),
        problem=_problem(row),
        candidates=read,
        domain=domain or guess_domain(row, read),
        guessed=domain is None,
        extra={name: value for name, value in row.items() if name not in known},
    )


def _present(value: Any) -> Any:
    """A value of a table as JSON would have it: without the fields that are null."""
    if isinstance(value, dict):
        return {name: _present(one) for name, one in value.items() if one is not None}
    return [_present(one) for one in value] if isinstance(value, list) else value


def _problem(row: dict[str, Any]) -> Problem:
    problem = row.get("problem")
    if isinstance(problem, str):
        return Problem.of(problem)
    if not isinstance(problem, list) or not problem:
        raise InputError(f"problem: must be a text or a list of chat messages, not {_kind(problem)}")
    messages = []
    for i, message in enumerate(problem):
        if not isinstance(message, dict):
            raise InputError(f"problem[{i}]: must be an object, not {_kind(message)}")
        where = f"problem[{i}]."
        messages.append(
            Message(_wanted(message, "role", str, where), _wanted(message, "content", str, where))
        )
    return Problem(tuple(messages))


def _candidate(item: object, where: str) -> Candidate:
    if isinstance(item, str):
        return Candidate(item)
    if not isinstance(item, dict):
        raise InputError(f"{where}: must be a text or an object with a text, not {_kind(item)}")
    fields: dict[str, Any] = {"text": _wanted(item, "text", str, f"{where}.")}
    for name, kind in (
        ("code", str),
        ("answer", str),
        ("logprob", float),
        ("score", float),
        ("correct", bool),
        ("passed_public_tests", bool),
        ("grade", float),
    ):
        if item.get(name) is not None:
            fields[name] = _wanted(item, name, kind, f"{where}.")
            if kind is float:
                _check_size(fields[name], f"{where}.{name}")
    return Candidate(**fields)


def _check_size(number: float, where: str) -> None:
    try:
        float(number)
    except OverflowError:
        raise InputError(f"{where}: is too large a number") from None


def count_lines(path: str) -> int:
    """Lines that hold something; for the length of a progress bar."""
    return sum(1 for line in _lines(path) if line.strip())


# Cases written in our own format; what is read from it is the same case again.


_KNOWN = ("code", "answer", "logprob", "score", "correct", "passed_public_tests", "grade")


def write_case(case: Case) -> bytes:
    """One line, without its end."""
    return printable_json(msgspec.json.encode(case_row(case)))


def case_row(case: Case) -> Row:
    """A case as one line holds it: unknown keys are kept, a guessed domain is left to be guessed again."""
    row: Row = {"id": case.id}
    if not case.guessed:
        row["domain"] = case.domain
    row["problem"] = problem_value(case.problem)
    row |= {name: value for name, value in case.extra.items() if name not in row}
    if case.candidates:
        row["candidates"] = [candidate_value(one) for one in case.candidates]
    return row


def problem_value(problem: Problem) -> str | list[Row]:
    """A text where one user message says it all, else the messages."""
    if problem == Problem.of(problem.text):
        return problem.text
    return [message_value(message) for message in problem.messages]


def message_value(message: Message) -> Row:
    """One chat message."""
    return {"role": message.role, "content": message.content}


def candidate_value(candidate: Candidate) -> str | Row:
    """A text, or an object where more is known."""
    row = candidate_row(candidate)
    return row if len(row) > 1 else candidate.text


def candidate_row(candidate: Candidate) -> Row:
    """A candidate with what is known about it."""
    known = {name: getattr(candidate, name) for name in _KNOWN}
    return {"text": candidate.text, **{name: value for name, value in known.items() if value is not None}}
