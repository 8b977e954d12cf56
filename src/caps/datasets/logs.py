"""Logs of lm-evaluation-harness, LiveCodeBench results, and Batch output of OpenAI and vLLM."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from caps.core.errors import InputError
from caps.core.types import Candidate, Case, Message, Problem
from caps.datasets.reading import (
    LIMITS,
    Limits,
    Row,
    as_object,
    decode,
    drop_empty,
    join_lines,
    kind_of,
    line_rows,
    parsed_rows,
    required,
    row_or_error,
    text_or_number,
    texts,
)
from caps.datasets.reading import lines as lines_of
from caps.evidence.domains import guess_domain

# LiveCodeBench results: `*_eval_all.json`

_EXTRA_FIELDS = ("starter_code", "difficulty", "contest_date", "platform")


def read_results(lines: Iterable[bytes], path: str, limits: Limits = LIMITS) -> Iterator[Case | InputError]:
    """Read the cases of a LiveCodeBench results file."""
    try:
        rows = required({"results": decode(join_lines(lines, path, limits))}, "results", list)
    except InputError as error:
        raise InputError(f"{path}: not a list of results: {error}") from None
    if not any(isinstance(row, dict) and "code_list" in row for row in rows):
        raise InputError(
            f"{path}: not a list of LiveCodeBench results; a case file has one JSON object per line"
        )
    seen: set[str] = set()

    def parse(row: Row) -> Case:
        case = _lcb_case(row)
        if case.id in seen:
            raise InputError(f"question_id: {case.id!r} occurs earlier; ids must be unique")
        seen.add(case.id)
        return case

    places = [f"{path}[{i}]" for i in range(len(rows))]
    yield from parsed_rows(zip(places, map(row_or_error, rows, places), strict=True), parse)


def _lcb_case(row: Row) -> Case:
    codes = texts(row, "code_list")
    outputs = texts(row, "output_list") if row.get("output_list") else codes
    graded = row.get("graded_list") or [None] * len(codes)
    if not codes:
        raise InputError("code_list: is empty; at least one is needed")
    if not isinstance(graded, list) or not len(codes) == len(outputs) == len(graded):
        raise InputError("output_list, code_list and graded_list: must have the same length")
    candidates = tuple(
        Candidate(text, code=code or None, correct=is_correct if isinstance(is_correct, bool) else None)
        for text, code, is_correct in zip(outputs, codes, graded, strict=True)
    )
    extra = drop_empty(title=row.get("question_title"), **{name: row.get(name) for name in _EXTRA_FIELDS})
    statement = Problem.of(required(row, "question_content", str))
    return Case(text_or_number(row, "question_id"), statement, candidates, "code", extra=extra)


# Chat messages: one text, or a list of parts

_ATTACHMENT_PREFIX = "attachment://"


def parse_problem(value: object, where: str, attachments: Mapping[str, object] | None = None) -> Problem:
    """Parse a problem that is a text or a list of messages; parts that are not text are refused."""
    if isinstance(value, str):
        return Problem.of(resolve_attachment(value, attachments))
    if not isinstance(value, list) or not value:
        raise InputError(f"{where}: must be a text or a list of chat messages, not {kind_of(value)}")
    messages = []
    for i, message in enumerate(value):
        location = f"{where}[{i}]"
        as_object(message, f"{location}: ")
        text, _ = _content(message.get("content"), attachments, f"{location}.content")
        messages.append(Message(required(message, "role", str, f"{location}."), text))
    return Problem(tuple(messages))


def parse_choice(choice: Row, where: str, attachments: Mapping[str, object] | None = None) -> Candidate:
    """Parse one choice of a completion; reasoning goes before the text, between `<think>` tags."""
    if isinstance(choice.get("text"), str):
        return Candidate(choice["text"], logprob=_logprob(choice))
    message = required(choice, "message", dict, f"{where}.")
    location = f"{where}.message.content"
    if message.get("content") is None:
        reason = choice.get("finish_reason")
        raise InputError(f"{location}: must be a text, not null (finish reason {reason!r})")
    text, reasoning = _content(message["content"], attachments, location)
    apart = message.get("reasoning_content") or message.get("reasoning")
    reasoning = apart if isinstance(apart, str) else reasoning
    return Candidate(with_reasoning(text, reasoning), logprob=_logprob(choice))


def with_reasoning(text: str, reasoning: str) -> str:
    """The text with its reasoning before it, if there is any."""
    return f"<think>\n{reasoning.strip()}\n</think>\n\n{text}" if reasoning.strip() else text


def _content(content: object, attachments: Mapping[str, object] | None, where: str) -> tuple[str, str]:
    """The text and the reasoning of a message's content."""
    if content is None or isinstance(content, str):
        return resolve_attachment(content or "", attachments), ""
    if not isinstance(content, list):
        raise InputError(f"{where}: must be a text or a list of parts, not {kind_of(content)}")
    texts, reasonings = [], []
    for i, part in enumerate(content):
        if isinstance(part, str):
            texts.append(resolve_attachment(part, attachments))
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(resolve_attachment(part["text"], attachments))
        elif isinstance(part, dict) and part.get("type") in ("reasoning", "thinking"):
            reasonings.append(resolve_attachment(_reasoning_part(part), attachments))
        else:
            kind = part.get("type") if isinstance(part, dict) else kind_of(part)
            raise InputError(f"{where}[{i}]: a part of type {kind!r:.40} is not text")
    return "".join(texts), "\n".join(reasonings)


def _reasoning_part(part: Row) -> str:
    value = part.get("reasoning", part.get("thinking"))
    return value if isinstance(value, str) else ""


def resolve_attachment(text: str, attachments: Mapping[str, object] | None) -> str:
    """The text, or the attachment it refers to: Inspect stores long texts separately, by digest."""
    if attachments and text.startswith(_ATTACHMENT_PREFIX):
        value = attachments.get(text.removeprefix(_ATTACHMENT_PREFIX))
        return value if isinstance(value, str) else text
    return text


def _logprob(choice: Row) -> float | None:
    """The summed log-probability of all tokens, if the log has them."""
    logprobs = choice.get("logprobs")
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    values = list(_logprobs(tokens)) if isinstance(tokens, list) else []
    total = math.fsum(values) if values and len(values) == len(tokens or ()) else None
    return total if total is not None and math.isfinite(total) else None


def _logprobs(tokens: Iterable[object]) -> Iterable[float]:
    for token in tokens:
        value = token.get("logprob") if isinstance(token, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9:
            yield float(value)


_CORRECTNESS_METRICS = ("exact_match", "acc", "math_verify", "pass@1")


def read_samples(lines: Iterable[bytes], path: str) -> Iterator[Case | InputError]:
    """Read the cases of lm-evaluation-harness samples; lines of one document, one per filter, are a case."""
    filters: dict[str, object] = {}  # of the first line of each document

    def parse(row: Row) -> Case | None:
        name = text_or_number(row, "doc_id")
        if name in filters and filters[name] == row.get("filter"):
            raise InputError(f"doc_id: {name!r} is on an earlier line; ids must be unique")
        if name in filters:
            return None
        filters[name] = row.get("filter")
        return _lm_eval_case(row, name)

    return parsed_rows(line_rows(lines, path), parse)


def _lm_eval_case(row: Row, name: str) -> Case:
    candidates = _candidates(row)
    extra = {"answer": answer} if (answer := _answer(row.get("target"))) else {}
    domain = guess_domain({}, candidates)
    return Case(name, _lm_eval_problem(row), candidates, domain, guessed=True, extra=extra)


def _lm_eval_problem(row: Row) -> Problem:
    """The prompt: the first argument of the first request."""
    value = row.get("arguments")
    for key in ("gen_args_0", "arg_0"):
        value = value.get(key) if isinstance(value, dict) else value
    while isinstance(value, list) and value and not isinstance(value[0], dict):
        value = value[0]
    if isinstance(value, str) and value.lstrip().startswith('[{"'):
        try:
            value = decode(value)  # a serialised chat
        except InputError:
            return Problem.of(str(value))
    return parse_problem(value, "arguments")


def _candidates(row: Row) -> tuple[Candidate, ...]:
    responses = required(row, "resps", list)
    while len(responses) == 1 and isinstance(responses[0], list):
        responses = responses[0]
    if not responses:
        raise InputError("resps: is empty; at least one is needed")
    for response in responses:
        if not isinstance(response, str):
            raise InputError(
                f"resps: {kind_of(response)} is not generated text; multiple-choice tasks are not supported"
            )
    filtered = row.get("filtered_resps")
    while isinstance(filtered, list) and len(filtered) == 1 and isinstance(filtered[0], list):
        filtered = filtered[0]
    if not isinstance(filtered, list) or len(filtered) != len(responses):
        filtered = [None] * len(responses)
    correct = _correct(row) if len(responses) == 1 else None
    return tuple(
        Candidate(
            text,
            answer=answer if isinstance(answer, str) and answer.strip() and answer != text else None,
            correct=correct,
        )
        for text, answer in zip(responses, filtered, strict=True)
    )


def _correct(row: Row) -> bool | None:
    """Whether a single response is correct, by the first known metric."""
    value = next((row[name] for name in _CORRECTNESS_METRICS if name in row), None)
    return bool(value) if value in (0, 1) else None


def _answer(target: object) -> str | None:
    if isinstance(target, bool) or not isinstance(target, str | int | float):
        return None
    return str(target).rpartition("####")[2].strip() or None


# Batch output of OpenAI and `vllm run-batch`: one reply per line, in any order
#
# A case's candidates are the `n` choices of one line, or the lines `id#0`, `id#1`, … The problems are in the
# batch input file, which is a second file or part of the same stream.

_NUMBERED = re.compile(r"(.+)#(\d{1,9})", re.DOTALL)


@dataclass(slots=True)
class _BatchContents:
    """Problems and replies read so far, by request id."""

    problems: dict[str, Problem] = field(default_factory=dict)
    replies: dict[str, list[Candidate]] = field(default_factory=dict)


def read_batch(lines: Iterable[bytes], path: str, requests: str | None = None) -> Iterator[Case | InputError]:
    """Read the cases of a batch; errors come first, because replies are in any order."""
    contents = _BatchContents()
    if requests is not None:
        yield from _collect_lines(lines_of(requests), requests, contents)
        if not contents.problems:
            raise InputError(f"{requests}: no requests found: give the input file of the batch")
    yield from _collect_lines(lines, path, contents)
    if contents.replies and not contents.problems:
        raise InputError(
            f"{path}: batch output does not contain the problems: also give the batch input "
            f"(caps import {path} --requests INPUT -o cases.jsonl), or both as one stream"
        )
    for name, members in _group_requests(contents):
        candidates = tuple(one for member in members for one in contents.replies.get(member, ()))
        problem = next((contents.problems[one] for one in members if one in contents.problems), None)
        if problem is None:
            yield InputError(f"{path}: case {name!r}: its request is not in the batch input")
        elif candidates:
            yield Case(name, problem, candidates, guess_domain({}, candidates), guessed=True)
        else:
            yield InputError(f"{path}: case {name!r}: no reply was received")


def _collect_lines(lines: Iterable[bytes], path: str, contents: _BatchContents) -> Iterator[InputError]:
    for where, row in line_rows(lines, path):
        try:
            if isinstance(row, InputError):
                yield row
            elif "response" in row or "error" in row:
                yield from _collect_reply(row, where, contents)
            else:
                name = required(row, "custom_id", str)
                contents.problems.setdefault(name, _batch_problem(required(row, "body", dict)))
        except InputError as error:
            yield InputError(f"{where}: {error}")


def _collect_reply(row: Row, where: str, contents: _BatchContents) -> Iterator[InputError]:
    name = required(row, "custom_id", str)
    if name in contents.replies:
        raise InputError(f"custom_id: {name!r} is on an earlier line; ids must be unique")
    replies = contents.replies.setdefault(name, [])
    response = row.get("response")
    status = response.get("status_code") if isinstance(response, dict) else None
    body = response.get("body") if isinstance(response, dict) else None
    if row.get("error") or status not in (None, 200) or not isinstance(body, dict):
        raise InputError(f"request {name!r} failed: {_reason(row, body, status)}")
    if isinstance(body.get("output"), list):
        replies.append(_response(body["output"]))
        return
    choices = required(body, "choices", list, "response.body.")
    for i, choice in enumerate(choices):
        try:
            location = f"response.body.choices[{i}]"
            replies.append(parse_choice(required({location: choice}, location, dict), location))
        except InputError as error:
            yield InputError(f"{where}: request {name!r}: {error}")


def _reason(row: Row, body: object, status: object) -> str:
    for error in (row.get("error"), body.get("error") if isinstance(body, dict) else None):
        if error:
            message = error.get("message") or error.get("code") if isinstance(error, dict) else error
            return str(message)[:300]
    return f"status {status}" if status is not None else "no reply was received"


def _response(items: list[object]) -> Candidate:
    """The reply of the Responses API: its messages and reasoning summaries."""
    output = {"message": "", "reasoning": ""}
    for item in items:
        if isinstance(item, dict) and item.get("type") in output:
            parts = item.get("content") if item["type"] == "message" else item.get("summary")
            for part in parts if isinstance(parts, list) else ():
                text = part.get("text") if isinstance(part, dict) else None
                output[item["type"]] += text if isinstance(text, str) else ""
    if not output["message"]:
        raise InputError("response.body.output: has no text")
    return Candidate(with_reasoning(output["message"], output["reasoning"]))


def _batch_problem(body: Row) -> Problem:
    field = next((name for name in ("messages", "prompt", "input") if name in body), "messages")
    return parse_problem(body.get(field), f"body.{field}")


def _group_requests(contents: _BatchContents) -> Iterator[tuple[str, list[str]]]:
    """Requests by case, in order; `id#k` form one case unless their problems differ."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for name in dict.fromkeys([*contents.problems, *contents.replies]):
        numbered = _NUMBERED.fullmatch(name)
        key, location = (numbered[1], int(numbered[2])) if numbered else (name, -1)
        groups.setdefault(key, []).append((location, name))
    for key, members in groups.items():
        names = [name for _, name in sorted(members)]
        if len({contents.problems[name] for name in names if name in contents.problems}) > 1:
            yield from ((name, [name]) for name in names)
        else:
            yield key, names
