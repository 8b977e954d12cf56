"""Batch output of OpenAI and of `vllm run-batch`: one reply a line, in any order.

Several replies become the candidates of one case: `n` choices of one line, or lines called `id#0`, `id#1`, …
The problems stand in the batch input file, given beside it or in the same stream.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from caps.core.errors import InputError
from caps.core.types import Candidate, Case, Problem
from caps.datasets.chat import candidate_of, problem_of, with_thought
from caps.datasets.fields import Row, wanted
from caps.datasets.jsonl import guess_domain
from caps.datasets.reading import lines as lines_of
from caps.datasets.rows import row_in

_NUMBERED = re.compile(r"(.+)#(\d{1,9})", re.DOTALL)


@dataclass(slots=True)
class _Heard:
    """What the lines told so far, by the id of their request."""

    problems: dict[str, Problem] = field(default_factory=dict)
    replies: dict[str, list[Candidate]] = field(default_factory=dict)


def read_batch(lines: Iterable[bytes], path: str, requests: str | None = None) -> Iterator[Case | InputError]:
    """Read the cases of a batch; first come the errors, because replies stand in any order."""
    heard = _Heard()
    if requests is not None:
        yield from _hear(lines_of(requests), requests, heard)
        if not heard.problems:
            raise InputError(f"{requests}: no requests in it: the input file of the batch is wanted")
    yield from _hear(lines, path, heard)
    if heard.replies and not heard.problems:
        raise InputError(
            f"{path}: batch output has no problems in it: give the batch input too "
            f"(caps import {path} --requests INPUT -o cases.jsonl), or both as one stream"
        )
    for name, members in _grouped(heard):
        candidates = tuple(one for member in members for one in heard.replies.get(member, ()))
        problem = next((heard.problems[one] for one in members if one in heard.problems), None)
        if problem is None:
            yield InputError(f"{path}: case {name!r}: its request is not in the batch input")
        elif candidates:
            yield Case(name, problem, candidates, guess_domain({}, candidates), guessed=True)
        else:
            yield InputError(f"{path}: case {name!r}: no reply to it came")


def _hear(lines: Iterable[bytes], path: str, heard: _Heard) -> Iterator[InputError]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = row_in(line, f"{path}:{number}")
        try:
            if isinstance(row, InputError):
                yield row
            elif "response" in row or "error" in row:
                yield from _hear_reply(row, f"{path}:{number}", heard)
            else:
                name = wanted(row, "custom_id", str)
                heard.problems.setdefault(name, _problem(wanted(row, "body", dict)))
        except InputError as error:
            yield InputError(f"{path}:{number}: {error}")


def _hear_reply(row: Row, where: str, heard: _Heard) -> Iterator[InputError]:
    name = wanted(row, "custom_id", str)
    if name in heard.replies:
        raise InputError(f"custom_id: {name!r} stands on an earlier line; ids must be unique")
    kept = heard.replies.setdefault(name, [])
    response = row.get("response")
    status = response.get("status_code") if isinstance(response, dict) else None
    body = response.get("body") if isinstance(response, dict) else None
    if row.get("error") or status not in (None, 200) or not isinstance(body, dict):
        raise InputError(f"request {name!r} failed: {_reason(row, body, status)}")
    if isinstance(body.get("output"), list):
        kept.append(_response(body["output"]))
        return
    choices = wanted(body, "choices", list, "response.body.")
    for i, choice in enumerate(choices):
        try:
            place = f"response.body.choices[{i}]"
            kept.append(candidate_of(wanted({place: choice}, place, dict), place))
        except InputError as error:
            yield InputError(f"{where}: request {name!r}: {error}")


def _reason(row: Row, body: object, status: object) -> str:
    for told in (row.get("error"), body.get("error") if isinstance(body, dict) else None):
        if told:
            words = told.get("message") or told.get("code") if isinstance(told, dict) else told
            return str(words)[:300]
    return f"status {status}" if status is not None else "no reply came"


def _response(items: list[object]) -> Candidate:
    """The reply of the Responses API: its messages, and summaries of its reasoning."""
    said = {"message": "", "reasoning": ""}
    for item in items:
        if isinstance(item, dict) and item.get("type") in said:
            parts = item.get("content") if item["type"] == "message" else item.get("summary")
            for part in parts if isinstance(parts, list) else ():
                text = part.get("text") if isinstance(part, dict) else None
                said[item["type"]] += text if isinstance(text, str) else ""
    if not said["message"]:
        raise InputError("response.body.output: has no text in it")
    return Candidate(with_thought(said["message"], said["reasoning"]))


def _problem(body: Row) -> Problem:
    name = next((one for one in ("messages", "prompt", "input") if one in body), "messages")
    return problem_of(body.get(name), f"body.{name}")


def _grouped(heard: _Heard) -> Iterator[tuple[str, list[str]]]:
    """Requests by case, in order; `id#k` belong together unless they asked different things."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for name in dict.fromkeys([*heard.problems, *heard.replies]):
        numbered = _NUMBERED.fullmatch(name)
        key, place = (numbered[1], int(numbered[2])) if numbered else (name, -1)
        groups.setdefault(key, []).append((place, name))
    for key, members in groups.items():
        names = [name for _, name in sorted(members)]
        if len({heard.problems[name] for name in names if name in heard.problems}) > 1:
            yield from ((name, [name]) for name in names)
        else:
            yield key, names
