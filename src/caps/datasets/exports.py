"""Exports of selections and judgements in the formats of other tools."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from caps.core.text import printable_json
from caps.core.types import Candidate, Case
from caps.datasets.case_files import message_value
from caps.datasets.reading import Row
from caps.evidence.anatomy import dissect, last_boxed
from caps.evidence.domains import domain_named

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@dataclass(frozen=True, slots=True)
class Chosen:
    """A case and the candidates of it to export, best first."""

    case: Case
    ids: tuple[int, ...]

    @property
    def candidates(self) -> list[Candidate]:
        """The candidates to export."""
        return [self.case.candidates[one] for one in self.ids]


def livecodebench(chosen: Iterable[Chosen]) -> Iterator[bytes]:
    """One JSON list, the input of LiveCodeBench's custom evaluator."""
    opening = b"["
    for item in chosen:
        row = {
            "question_id": item.case.id,
            "code_list": [dissect(one).code or "" for one in item.candidates],
            "output_list": [one.text for one in item.candidates],
        }
        yield opening + b"\n" + printable_json(msgspec.json.encode(row))
        opening = b","
    yield b"[]\n" if opening == b"[" else b"\n]\n"


def openai_batch(chosen: Iterable[Chosen]) -> Iterator[bytes]:
    """Batch output: one reply per line, from a model called `caps`."""
    for item in chosen:
        choices = [
            {"index": i, "message": {"role": "assistant", "content": one.text}, "finish_reason": "stop"}
            for i, one in enumerate(item.candidates)
        ]
        body = {"object": "chat.completion", "model": "caps", "choices": choices}
        response = {"status_code": 200, "request_id": item.case.id, "body": body}
        yield _line({"id": item.case.id, "custom_id": item.case.id, "response": response, "error": None})


def answers(chosen: Iterable[Chosen]) -> Iterator[bytes]:
    r"""Id, tab and answer (the boxed answer, the code or all of the text); line breaks become `\n`."""
    for item in chosen:
        for one in item.candidates:
            answer = one.answer or last_boxed(one.text)
            if domain_named(item.case.domain).python_programs or not answer:
                answer = dissect(one).code or answer or one.text
            cells = (item.case.id.translate(_ESCAPES), answer.strip().translate(_ESCAPES))
            yield "\t".join(cells).encode("utf-8", "replace") + b"\n"


EXPORTS: Mapping[str, Callable[[Iterable[Chosen]], Iterator[bytes]]] = {
    "livecodebench": livecodebench,
    "openai-batch": openai_batch,
    "text": answers,
}


def preferences(
    cases: Mapping[str, Case], rulings: Iterable[Row], *, full_only: bool = False, chat: bool = False
) -> Iterator[bytes]:
    """Preference pairs for training: prompt, chosen and rejected of each decided game, one per line.

    Ties, unanswered asks and unreadable replies are left out. With `chat`, texts become lists of messages.
    """
    for ruling in rulings:
        case, winner = cases.get(str(ruling.get("case"))), _winner(ruling)
        if case is None or winner is None or (full_only and ruling.get("level") != "E2"):
            continue
        (loser,) = (one for one in ruling["pair"] if one != winner)
        if not all(0 <= one < len(case.candidates) for one in (winner, loser)):
            continue
        better, worse = case.candidates[winner], case.candidates[loser]
        row = {
            "prompt": [message_value(one) for one in case.problem.messages] if chat else case.problem.text,
            "chosen": _as_completion(better, chat=chat),
            "rejected": _as_completion(worse, chat=chat),
            **{name: ruling.get(name) for name in ("weight", "ratings", "level", "stage", "case")},
            "pair": [winner, loser],
            "chosen_first": ruling["a"] == winner,
        }
        labels = {
            f"{role}_{label}": getattr(one, label)
            for role, one in (("chosen", better), ("rejected", worse))
            for label in ("correct", "passed_public_tests")
        }
        yield _line(row | {name: value for name, value in labels.items() if value is not None})


def _winner(ruling: Row) -> int | None:
    """The winner of a game; None if it was not decided."""
    pair, first = ruling.get("pair"), ruling.get("a")
    match pair:
        case [int(one), int(other)] if one != other and first in pair and not ruling.get("cause"):
            second = other if one == first else one
            return {"A": first, "B": second}.get(str(ruling.get("verdict")))
    return None


def _as_completion(candidate: Candidate, *, chat: bool) -> str | list[Row]:
    return [{"role": "assistant", "content": candidate.text}] if chat else candidate.text


def _line(row: Row) -> bytes:
    return printable_json(msgspec.json.encode(row)) + b"\n"
