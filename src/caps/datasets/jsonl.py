"""Our own format: one case a line, JSON, optionally gzipped; `-` is standard input.

A line that cannot be read is yielded as the `InputError` it is, so the good ones go on.
"""

import gzip
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from caps.core.errors import InputError
from caps.core.types import Candidate, Case, Message, Problem
from caps.evidence.anatomy import last_boxed, last_code_block

DOMAINS = ("code", "math", "general")
_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
}


def read_cases(path: str, *, bare: bool = False) -> Iterator[Case | InputError]:
    """Read cases in order; ids are unique and default to the line number. `bare`: none need candidates."""
    seen: set[str] = set()
    empty = True
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        empty = False
        try:
            case = parse_case(line, default_id=str(number), bare=bare)
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


def parse_case(line: str | bytes, *, default_id: str, bare: bool = False) -> Case:
    """Read one line, or raise `InputError` naming the field; a `bare` problem may be without candidates."""
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise InputError(f"must be an object, not {_kind(row)}")
    candidates = _wanted(row, "candidates", list) if "candidates" in row or not bare else []
    if not candidates and not bare:
        raise InputError("candidates: is empty; at least one is needed")
    domain = row.get("domain")
    if domain is not None and domain not in DOMAINS:
        raise InputError(f"domain: {domain!r} must be one of {', '.join(DOMAINS)}")
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


def guess_domain(row: dict[str, Any], candidates: Sequence[Candidate]) -> str:
    """Code if the case has tests or most candidates hold code, math if most box an answer, else general.

    Where there are no candidates yet, a known answer is taken for one of mathematics.
    """
    if any(row.get(name) for name in ("tests", "entry_point", "starter_code")):
        return "code"
    if not candidates and row.get("answer") is not None:
        return "math"
    half = len(candidates) / 2
    if sum(one.code is not None or last_code_block(one.text) is not None for one in candidates) > half:
        return "code"
    boxed = sum(one.answer is not None or last_boxed(one.text) is not None for one in candidates)
    return "math" if boxed > half else "general"


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
    ):
        if item.get(name) is not None:
            fields[name] = _wanted(item, name, kind, f"{where}.")
    return Candidate(**fields)


def _wanted(row: dict[str, Any], name: str, kind: type, where: str = "") -> Any:
    if name not in row:
        raise InputError(f"{where}{name}: is missing; {_NAMES[kind]} is wanted")
    value = row[name]
    kinds = (int, float) if kind is float else kind
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{where}{name}: must be {_NAMES[kind]}, not {_kind(value)}")
    return value


def _kind(value: object) -> str:
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        yield gzip.GzipFile(fileobj=file) if path.endswith(".gz") else file  # type: ignore[misc]


def _lines(path: str) -> Iterator[bytes]:
    """Lines of a file; whatever goes wrong (no file, a directory, a broken archive) is the file's fault."""
    try:
        with _opened(path) as file:
            yield from file
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{path}: {reason}") from None


def count_lines(path: str) -> int:
    """Lines that hold something; for the length of a progress bar."""
    return sum(1 for line in _lines(path) if line.strip())
