"""`samples_*.jsonl` of lm-evaluation-harness: one document a line; its responses are the candidates."""

from collections.abc import Iterable, Iterator

from caps.core.errors import InputError
from caps.core.types import Candidate, Case, Problem
from caps.datasets.chat import problem_of
from caps.datasets.fields import Row, kind_of, label, wanted
from caps.datasets.jsonl import guess_domain
from caps.datasets.reading import decode
from caps.datasets.rows import row_in

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
                yield _case(row, name)
        except InputError as error:
            yield InputError(f"{path}:{number}: {error}")


def _case(row: Row, name: str) -> Case:
    candidates = _candidates(row)
    extra = {"answer": answer} if (answer := _answer(row.get("target"))) else {}
    domain = guess_domain({}, candidates)
    return Case(name, _problem(row), candidates, domain, guessed=True, extra=extra)


def _problem(row: Row) -> Problem:
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
