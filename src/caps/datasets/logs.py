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
    decode,
    kind_of,
    label,
    present,
    row_in,
    texts,
    wanted,
    whole,
)
from caps.datasets.reading import lines as lines_of
from caps.evidence.domains import guess_domain

# `*_eval_all.json` of LiveCodeBench: problems with outputs, the code in them, and whether it passed.


_KEPT = ("starter_code", "difficulty", "contest_date", "platform")


def read_results(lines: Iterable[bytes], path: str, limits: Limits = LIMITS) -> Iterator[Case | InputError]:
    """Read the cases of a results file."""
    try:
        rows = wanted({"results": decode(whole(lines, path, limits))}, "results", list)
    except InputError as error:
        raise InputError(f"{path}: not a list of results: {error}") from None
    if not any(isinstance(row, dict) and "code_list" in row for row in rows):
        raise InputError(
            f"{path}: a list, but not of LiveCodeBench results; cases are one JSON object a line"
        )
    seen: set[str] = set()
    for i, row in enumerate(rows):
        try:
            if not isinstance(row, dict):
                raise InputError(f"must be an object, not {kind_of(row)}")
            case = _lcb_case(row)
            if case.id in seen:
                raise InputError(f"question_id: {case.id!r} stands earlier; ids must be unique")
        except InputError as error:
            yield InputError(f"{path}[{i}]: {error}")
            continue
        seen.add(case.id)
        yield case


def _lcb_case(row: Row) -> Case:
    codes = texts(row, "code_list")
    outputs = texts(row, "output_list") if row.get("output_list") else codes
    graded = row.get("graded_list") or [None] * len(codes)
    if not codes:
        raise InputError("code_list: is empty; at least one is needed")
    if not isinstance(graded, list) or not len(codes) == len(outputs) == len(graded):
        raise InputError("output_list, code_list and graded_list: must be equally long")
    candidates = tuple(
        Candidate(text, code=code or None, correct=right if isinstance(right, bool) else None)
        for text, code, right in zip(outputs, codes, graded, strict=True)
    )
    extra = present(title=row.get("question_title"), **{name: row.get(name) for name in _KEPT})
    statement = Problem.of(wanted(row, "question_content", str))
    return Case(label(row, "question_id"), statement, candidates, "code", extra=extra)


# Chat messages as other tools write them: one text, or parts of several kinds.


_ATTACHED = "attachment://"


def problem_of(asked: object, where: str, attached: Mapping[str, object] | None = None) -> Problem:
    """A problem that is a text or a list of messages; pictures and the like cannot be shown to a judge."""
    if isinstance(asked, str):
        return Problem.of(_found(asked, attached))
    if not isinstance(asked, list) or not asked:
        raise InputError(f"{where}: must be a text or a list of chat messages, not {kind_of(asked)}")
    messages = []
    for i, message in enumerate(asked):
        place = f"{where}[{i}]"
        if not isinstance(message, dict):
            raise InputError(f"{place}: must be an object, not {kind_of(message)}")
        text, _ = _content(message.get("content"), attached, f"{place}.content")
        messages.append(Message(wanted(message, "role", str, f"{place}."), text))
    return Problem(tuple(messages))


def candidate_of(choice: Row, where: str, attached: Mapping[str, object] | None = None) -> Candidate:
    """One choice of a completion, its thoughts before it between tags, as the model wrote them."""
    if isinstance(choice.get("text"), str):
        return Candidate(choice["text"], logprob=_logprob(choice))
    message = wanted(choice, "message", dict, f"{where}.")
    place = f"{where}.message.content"
    if message.get("content") is None:
        raise InputError(f"{place}: must be a text, not null (finish reason {choice.get('finish_reason')!r})")
    text, thought = _content(message["content"], attached, place)
    stated = message.get("reasoning_content") or message.get("reasoning")
    thought = stated if isinstance(stated, str) else thought
    return Candidate(with_thought(text, thought), logprob=_logprob(choice))


def with_thought(text: str, thought: str) -> str:
    """A text with the thought that came before it."""
    return f"<think>\n{thought.strip()}\n</think>\n\n{text}" if thought.strip() else text


def _content(content: object, attached: Mapping[str, object] | None, where: str) -> tuple[str, str]:
    """Text and thought of a message's content."""
    if content is None or isinstance(content, str):
        return _found(content or "", attached), ""
    if not isinstance(content, list):
        raise InputError(f"{where}: must be a text or a list of parts, not {kind_of(content)}")
    texts, thoughts = [], []
    for i, part in enumerate(content):
        if isinstance(part, str):
            texts.append(_found(part, attached))
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(_found(part["text"], attached))
        elif isinstance(part, dict) and part.get("type") in ("reasoning", "thinking"):
            thoughts.append(_found(_thought(part), attached))
        else:
            kind = part.get("type") if isinstance(part, dict) else kind_of(part)
            raise InputError(f"{where}[{i}]: a part of type {kind!r:.40} is no text")
    return "".join(texts), "\n".join(thoughts)


def _thought(part: Row) -> str:
    value = part.get("reasoning", part.get("thinking"))
    return value if isinstance(value, str) else ""


def _found(text: str, attached: Mapping[str, object] | None) -> str:
    """A text, or the longer one that a log keeps elsewhere under its digest."""
    if attached and text.startswith(_ATTACHED):
        value = attached.get(text.removeprefix(_ATTACHED))
        return value if isinstance(value, str) else text
    return text


def _logprob(choice: Row) -> float | None:
    """The log-probability of all tokens together, where they were asked for."""
    kept = choice.get("logprobs")
    tokens = kept.get("content") if isinstance(kept, dict) else None
    found = list(_logprobs(tokens)) if isinstance(tokens, list) else []
    total = math.fsum(found) if found and len(found) == len(tokens or ()) else None
    return total if total is not None and math.isfinite(total) else None


def _logprobs(tokens: Iterable[object]) -> Iterable[float]:
    for token in tokens:
        value = token.get("logprob") if isinstance(token, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9:
            yield float(value)


_RIGHT = ("exact_match", "acc", "math_verify", "pass@1")


def read_samples(lines: Iterable[bytes], path: str) -> Iterator[Case | InputError]:
    """Read the cases of a samples file; a document that stands there once for each filter is one case."""
    seen: dict[str, object] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = row_in(line, f"{path}:{number}")
        if isinstance(row, InputError):
            yield row
            continue
        try:
            name = label(row, "doc_id")
            if name in seen and seen[name] == row.get("filter"):
                raise InputError(f"doc_id: {name!r} stands on an earlier line; ids must be unique")
            if name not in seen:
                seen[name] = row.get("filter")
                yield _lm_eval_case(row, name)
        except InputError as error:
            yield InputError(f"{path}:{number}: {error}")


def _lm_eval_case(row: Row, name: str) -> Case:
    candidates = _candidates(row)
    extra = {"answer": answer} if (answer := _answer(row.get("target"))) else {}
    domain = guess_domain({}, candidates)
    return Case(name, _lm_eval_problem(row), candidates, domain, guessed=True, extra=extra)


def _lm_eval_problem(row: Row) -> Problem:
    """What the model was shown: the first argument of the first request."""
    asked = row.get("arguments")
    for key in ("gen_args_0", "arg_0"):
        asked = asked.get(key) if isinstance(asked, dict) else asked
    while isinstance(asked, list) and asked and not isinstance(asked[0], dict):
        asked = asked[0]
    if isinstance(asked, str) and asked.lstrip().startswith('[{"'):
        try:
            asked = decode(asked)  # a chat, written out
        except InputError:
            return Problem.of(str(asked))
    return problem_of(asked, "arguments")


def _candidates(row: Row) -> tuple[Candidate, ...]:
    responses = wanted(row, "resps", list)
    while len(responses) == 1 and isinstance(responses[0], list):
        responses = responses[0]
    if not responses:
        raise InputError("resps: is empty; at least one is needed")
    for one in responses:
        if not isinstance(one, str):
            raise InputError(f"resps: {kind_of(one)} is no generated text; multiple choice cannot be read")
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
    """Whether the one response was right, by the metrics that say so."""
    found = next((row[name] for name in _RIGHT if name in row), None)
    return bool(found) if found in (0, 1) else None


def _answer(target: object) -> str | None:
    if isinstance(target, bool) or not isinstance(target, str | int | float):
        return None
    return str(target).rpartition("####")[2].strip() or None


# Batch output of OpenAI and of `vllm run-batch`: one reply a line, in any order.
#
# Several replies become the candidates of one case: `n` choices of one line, or lines called `id#0`,
# `id#1`, … The problems stand in the batch input file, given beside it or in the same stream.


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
                heard.problems.setdefault(name, _batch_problem(wanted(row, "body", dict)))
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


def _batch_problem(body: Row) -> Problem:
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
