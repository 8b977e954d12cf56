"""Case files in the format of caps: one JSON object per line, optionally gzipped.

A line that cannot be read is yielded as an `InputError`; reading goes on with the next line.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from caps.core.errors import InputError, SettingError
from caps.core.text import printable_json
from caps.core.types import Candidate, Case, Message, Problem
from caps.datasets.fields import ANSWERS, RIGHT
from caps.datasets.media import content_of, read_content
from caps.datasets.reading import Row, as_object, check_value_count, kind_of, required
from caps.datasets.reading import lines as read_lines
from caps.evidence.domains import check_stated, guess_domain
from caps.files import decode_json
from caps.prompts.reply_forms import parse_criteria

T = TypeVar("T")


def read_cases(path: str, *, bare: bool = False) -> Iterator[Case | InputError]:
    """Read cases in order; ids are unique and default to the line number. `bare`: none needs candidates."""
    return cases_in(read_lines(path), path, bare=bare)


def cases_in(lines: Iterable[bytes], path: str, *, bare: bool = False) -> Iterator[Case | InputError]:
    """Read the cases of the lines of the file at `path`."""
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    folder = None if path == "-" or "://" in path else Path(path).parent
    return _parse_unique(
        numbered, path, lambda line, name: parse_case(line, default_id=name, bare=bare, folder=folder)
    )


def cases_in_rows(
    rows: Iterable[tuple[int, dict[str, Any] | InputError]],
    path: str,
    understood: Callable[[Row], Row] = lambda row: row,
    *,
    bare: bool = False,
    header: int = 0,
) -> Iterator[Case | InputError]:
    """Read the cases of numbered rows; null means that a field is absent.

    A case without an id is named after its number, less the lines of a `header`.
    """

    def parse(row: dict[str, Any] | InputError, name: str) -> Case:
        if isinstance(row, InputError):
            raise row
        return parse_row(understood(present(row)), default_id=name, bare=bare)

    return _parse_unique(rows, path, parse, header)


def _parse_unique(
    numbered: Iterable[tuple[int, T]], path: str, parse: Callable[[T, str], Case], header: int = 0
) -> Iterator[Case | InputError]:
    seen: set[str] = set()
    empty = True
    for number, item in numbered:
        empty = False
        try:
            case = parse(item, str(number - header))
        except InputError as error:
            yield InputError(f"{path}:{number}: {error}")
            continue
        if case.id in seen:
            yield InputError(f"{path}:{number}: id: {case.id!r} is on an earlier line; ids must be unique")
            continue
        seen.add(case.id)
        yield replace(case, where=f"{path}:{number}")
    if empty:
        raise InputError(f"{path}: no cases found; a case file has one JSON object per line")


def parse_case(
    line: str | bytes,
    *,
    default_id: str,
    bare: bool = False,
    registered: Sequence[str] = (),
    folder: Path | None = None,
) -> Case:
    """Parse one line; see `parse_row`."""
    check_value_count(line)
    row = as_object(decode_json(line, object))
    return parse_row(row, default_id=default_id, bare=bare, registered=registered, folder=folder)


def parse_row(
    row: dict[str, Any],
    *,
    default_id: str,
    bare: bool = False,
    registered: Sequence[str] = (),
    folder: Path | None = None,
) -> Case:
    """Parse one object, or raise an `InputError` that names the field; `bare` cases need no candidates.

    A case may state a domain known to this process, or one `registered` in the process it is read for. Files
    with images may be named only if a `folder` is given.
    """
    candidates = required(row, "candidates", list) if "candidates" in row or not bare else []
    if not candidates and not bare:
        raise InputError("candidates: is empty; at least one is needed")
    domain = row.get("domain")
    if domain is not None:
        check_stated(domain, registered)
    answer = next((row[name] for name in ANSWERS if isinstance(row.get(name), str | int | float)), None)
    if answer is not None and row.get("answer") is None:
        row = {**row, "answer": answer}
    ours = {"id", "problem", "candidates", "domain", "criteria"}
    parsed = tuple(_candidate(item, f"candidates[{i}]", folder) for i, item in enumerate(candidates))
    return Case(
        id=str(row.get("id", default_id)),
        problem=_problem(row, folder),
        candidates=parsed,
        domain=domain or guess_domain(row, parsed),
        guessed=domain is None,
        extra={name: value for name, value in row.items() if name not in ours},
        criteria=_criteria(row.get("criteria")),
    )


def present(value: Any) -> Any:
    """A table value without the fields that are null."""
    if isinstance(value, dict):
        return {name: present(one) for name, one in value.items() if one is not None}
    return [present(one) for one in value] if isinstance(value, list) else value


def _problem(row: dict[str, Any], folder: Path | None) -> Problem:
    problem = row.get("problem")
    if isinstance(problem, str):
        return Problem.of(problem)
    if isinstance(problem, list) and problem and isinstance(problem[0], dict) and "type" in problem[0]:
        return Problem((Message("user", *read_content(problem, "problem", folder)),))
    if not isinstance(problem, list) or not problem:
        raise InputError(f"problem: must be a text or a list of chat messages, not {kind_of(problem)}")
    messages = []
    for i, message in enumerate(problem):
        as_object(message, f"problem[{i}]: ")
        where = f"problem[{i}]."
        role, content = required(message, "role", str, where), message.get("content")
        if isinstance(content, list):
            messages.append(Message(role, *read_content(content, f"{where}content", folder)))
        else:
            messages.append(Message(role, required(message, "content", str, where)))
    return Problem(tuple(messages))


def _criteria(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, str) and not (
        isinstance(value, list) and all(isinstance(one, str) for one in value)
    ):
        raise InputError(f"criteria: must be a text or a list of texts, not {kind_of(value)}")
    try:
        return parse_criteria(value, "criteria")
    except SettingError as error:
        raise InputError(str(error)) from None


def _candidate(item: object, where: str, folder: Path | None) -> Candidate:
    if isinstance(item, str):
        return Candidate(item)
    if not isinstance(item, dict):
        raise InputError(f"{where}: must be a text or an object with a text, not {kind_of(item)}")
    if item.get(RIGHT) in (0, 1) and item.get("correct") is None:
        item = {**item, "correct": bool(item[RIGHT])}
    fields: dict[str, Any] = {}
    if isinstance(content := item.get("content"), list) and "text" not in item:
        fields["text"], fields["media"] = read_content(content, f"{where}.content", folder)
    else:
        item = item if "text" in item else {**item, **_other_form(item, where)}
        fields["text"] = required(item, "text", str, f"{where}.")
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
            fields[name] = required(item, name, kind, f"{where}.")
            if kind is float:
                _check_size(fields[name], f"{where}.{name}")
    ours = ("text", *_CANDIDATE_FIELDS)
    return Candidate(**fields, numbers={name: _number(x) for name, x in item.items() if name not in ours})


def _number(value: object) -> float | None:
    """A further field of a candidate as a number; None if it is anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _other_form(item: Row, where: str) -> Row:
    """The text of a candidate that is given as edited files, or as the messages or steps of an agent."""
    if isinstance(item.get("files"), dict | list):
        return {"text": json.dumps({"files": item["files"]}, ensure_ascii=False)}
    for name in ("messages", "steps"):
        rows = item.get(name)
        if isinstance(rows, list):
            if not all(isinstance(row, dict) for row in rows):
                raise InputError(f"{where}.{name}: must be a list of objects")
            return {"text": json.dumps(rows, ensure_ascii=False)}
    return {}


def _check_size(number: float, where: str) -> None:
    try:
        float(number)
    except OverflowError:
        raise InputError(f"{where}: the number is too large") from None


def count_lines(path: str) -> int:
    """The number of lines that are not blank, for progress bars."""
    return sum(1 for line in read_lines(path) if line.strip())


# Writing

_CANDIDATE_FIELDS = ("code", "answer", "logprob", "score", "correct", "passed_public_tests", "grade")


def write_case(case: Case) -> bytes:
    """A case as one JSON line, without the line break."""
    return printable_json(msgspec.json.encode(case_row(case)))


def case_row(case: Case) -> Row:
    """A case as a JSON object; unknown keys are kept, and a guessed domain is omitted."""
    row: Row = {"id": case.id}
    if not case.guessed:
        row["domain"] = case.domain
    row["problem"] = problem_value(case.problem)
    if case.criteria:
        row["criteria"] = list(case.criteria)
    row |= {name: value for name, value in case.extra.items() if name not in row}
    if case.candidates:
        row["candidates"] = [candidate_value(one) for one in case.candidates]
    return row


def problem_value(problem: Problem) -> str | list[Row]:
    """The problem as a text if it is a single user message, else as a list of messages."""
    if problem == Problem.of(problem.text):
        return problem.text
    return [message_value(message) for message in problem.messages]


def message_value(message: Message) -> Row:
    """A chat message as a JSON object."""
    return {"role": message.role, "content": content_of(message.content, message.media)}


def candidate_value(candidate: Candidate) -> str | Row:
    """A candidate as a text, or as an object if it has more than a text."""
    row = candidate_row(candidate)
    return row if len(row) > 1 or candidate.media else candidate.text


def candidate_row(candidate: Candidate) -> Row:
    """A candidate as a JSON object, without unknown fields that are not numbers."""
    fields = {name: getattr(candidate, name) for name in _CANDIDATE_FIELDS}
    fields |= {name: value for name, value in candidate.numbers.items() if name not in {"text", *fields}}
    text: Row = {"text": candidate.text}
    if candidate.media:
        text = {"content": content_of(candidate.text, candidate.media)}
    return {**text, **{name: value for name, value in fields.items() if value is not None}}
