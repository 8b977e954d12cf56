"""Cases written in our own format; what is read from it is the same case again."""

import msgspec

from caps.core.printable import printable_json
from caps.core.types import Candidate, Case, Message, Problem
from caps.datasets.fields import Row

_KNOWN = ("code", "answer", "logprob", "score", "correct", "passed_public_tests")


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
