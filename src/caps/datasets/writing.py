"""Cases written in our own format; what is read from it is the same case again."""

from dataclasses import fields

import msgspec

from caps.core.types import Candidate, Case, Message, Problem
from caps.datasets.fields import Row

_KNOWN = [spec.name for spec in fields(Candidate) if spec.name != "text"]


def write_case(case: Case) -> bytes:
    """One line, without its end; a guessed domain is left to be guessed again, unknown keys are kept."""
    row: Row = {"id": case.id}
    if not case.guessed:
        row["domain"] = case.domain
    row["problem"] = problem_value(case.problem)
    if case.candidates:
        row["candidates"] = [candidate_value(one) for one in case.candidates]
    return msgspec.json.encode({**row, **{k: v for k, v in case.extra.items() if k not in row}})


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
    known = {name: getattr(candidate, name) for name in _KNOWN}
    told = {name: value for name, value in known.items() if value is not None}
    return {"text": candidate.text, **told} if told else candidate.text
