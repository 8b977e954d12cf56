"""Cases back into our own format."""

from typing import Any

from caps.core.types import Candidate, Case, Problem


def case_row(case: Case) -> dict[str, Any]:
    """A case as one line holds it; a domain that says nothing and was only guessed is left to the reader."""
    row: dict[str, Any] = {"id": case.id}
    if not case.guessed or case.domain != "general":
        row["domain"] = case.domain
    row["problem"] = _problem(case.problem)
    return row | dict(case.extra) | {"candidates": [candidate_row(one) for one in case.candidates]}


def candidate_row(candidate: Candidate) -> dict[str, Any]:
    """A candidate with what is known about it."""
    names = ("text", "code", "answer", "logprob", "score", "correct")
    return {name: value for name in names if (value := getattr(candidate, name)) is not None}


def _problem(problem: Problem) -> str | list[dict[str, str]]:
    if len(problem.messages) == 1 and problem.messages[0].role == "user":
        return problem.messages[0].content
    return [{"role": one.role, "content": one.content} for one in problem.messages]
