"""Exports of selections and judgements in the formats of other tools."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any

import msgspec

from caps.core.text import printable_json
from caps.core.types import Candidate, Case, Level
from caps.datasets.case_files import message_value
from caps.datasets.reading import Row
from caps.evidence.anatomy import dissect, last_boxed
from caps.evidence.domains import domain_named

FULL_VIEWS = str(Level.FULL)
LABELS = ("correct", "passed_public_tests")
#: Begins like a formula, and is no number.
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.]+$)")
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@dataclass(frozen=True, slots=True)
class Chosen:
    """A case and the candidates of it to export, best first; `line` is its result line, if a run chose."""

    case: Case
    ids: tuple[int, ...]
    line: Mapping[str, Any] = field(default_factory=dict)

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
            {"index": i, "message": {"role": "assistant", "content": candidate.text}, "finish_reason": "stop"}
            for i, candidate in enumerate(item.candidates)
        ]
        body = {"object": "chat.completion", "model": "caps", "choices": choices}
        response = {"status_code": 200, "request_id": item.case.id, "body": body}
        yield _line({"id": item.case.id, "custom_id": item.case.id, "response": response, "error": None})


def answers(chosen: Iterable[Chosen]) -> Iterator[bytes]:
    r"""Id, tab and answer (the boxed answer, the code or all of the text); line breaks become `\n`."""
    for item in chosen:
        for candidate in item.candidates:
            cells = (item.case.id.translate(_ESCAPES), _answer(item.case, candidate).translate(_ESCAPES))
            yield "\t".join(cells).encode("utf-8", "replace") + b"\n"


def best(chosen: Iterable[Chosen]) -> Iterator[bytes]:
    """One line per candidate: id, prompt, answer, the whole text, and the probability where it is known."""
    return map(_line, _best_rows(chosen))


def spreadsheet(chosen: Iterable[Chosen]) -> Iterator[bytes]:
    """The rows of `best` as CSV; a text that a spreadsheet would run as a formula begins with a quote."""
    header = ("id", "prompt", "answer", "text", "probability")
    yield _csv_line(header)
    for row in _best_rows(chosen):
        yield _csv_line([row.get(name, "") for name in header])


def demonstrations(chosen: Iterable[Chosen]) -> Iterator[bytes]:
    """Chats for supervised fine-tuning: the messages of the problem, then the candidate."""
    for item in chosen:
        for candidate in item.candidates:
            asked = [message_value(message) for message in item.case.problem.messages]
            yield _line({"messages": [*asked, *_as_completion(candidate, chat=True)]})


def rewards(chosen: Iterable[Chosen]) -> Iterator[bytes]:
    """Groups for GRPO: all completions of a case with rewards of mean 0 and, unless all equal, deviation 1.

    A reward is the probability or score that the run gave a candidate; completions with the same text have
    the same reward.
    """
    for item in chosen:
        raw = _raw_rewards(item)
        mean, spread = fmean(raw), pstdev(raw)
        row = {
            "id": item.case.id,
            "prompt": item.case.problem.text,
            "completions": [one.text for one in item.case.candidates],
            "rewards": [round((x - mean) / spread, 6) if spread else 0.0 for x in raw],
            "scores": [round(x, 6) for x in raw],
        }
        yield _line(row)


def lm_eval(chosen: Iterable[Chosen]) -> Iterator[bytes]:
    """Samples of lm-evaluation-harness, with the chosen candidate in `filtered_resps`."""
    for item in chosen:
        correct = item.candidates[0].correct
        row = {
            "doc_id": item.case.id,
            "doc": {"problem": item.case.problem.text, **item.case.extra},
            "target": item.case.extra.get("answer"),
            "arguments": [[item.case.problem.text, {}]],
            "resps": [[one.text for one in item.case.candidates]],
            "filtered_resps": [one.text for one in item.candidates],
            "filter": "caps",
        }
        yield _line(row | ({} if correct is None else {"acc": float(correct)}))


def inspect_log(chosen: Iterable[Chosen], *, created: str = "1970-01-01T00:00:00+00:00") -> Iterator[bytes]:
    """One JSON log of Inspect: a sample per case, its epochs are the candidates.

    Scores are the probability of the choice and, where labels are known, whether it is right.
    """
    count, strategy = 0, "cases"
    for item in chosen:
        if not count:
            strategy = str(item.line.get("strategy", strategy))
            yield _inspect_head(strategy, created)
        for epoch, candidate in enumerate(item.candidates, start=1):
            yield (b",\n" if count else b"") + printable_json(
                msgspec.json.encode(_inspect_sample(item, candidate, epoch))
            )
            count += 1
    if not count:
        yield _inspect_head(strategy, created)
    results = {"total_samples": count, "completed_samples": count, "scores": []}
    yield b'\n],\n"results": ' + msgspec.json.encode(results) + b"}\n"


def _inspect_head(strategy: str, created: str) -> bytes:
    model = f"caps/{strategy}"
    spec = {"created": created, "task": "caps", "dataset": {}, "model": model, "config": {}}
    head = msgspec.json.encode({"version": 2, "status": "success", "eval": spec})
    return b"{\n" + head[1:-1] + b',\n"samples": [\n'


def _inspect_sample(item: Chosen, candidate: Candidate, epoch: int) -> Row:
    case, line = item.case, item.line
    problem = [message_value(message) for message in case.problem.messages]
    target = case.extra.get("answer")
    scores: Row = {}
    if line.get("probability") is not None:
        scores["probability"] = {"value": line["probability"], "answer": _answer(case, candidate)}
    if candidate.correct is not None:
        scores["correct"] = {"value": "C" if candidate.correct else "I", "answer": _answer(case, candidate)}
    said = {"role": "assistant", "content": candidate.text}
    return {
        "id": case.id,
        "epoch": epoch,
        "input": problem,
        "target": "" if target is None else str(target),
        "messages": [*problem, said],
        "output": {"model": "caps", "choices": [{"message": said, "stop_reason": "stop"}]},
        "scores": scores,
        "metadata": {
            "candidates": len(case.candidates),
            **{name: line[name] for name in ("winner", "order", "strategy", "provisional") if name in line},
        },
    }


def _best_rows(chosen: Iterable[Chosen]) -> Iterator[Row]:
    for item in chosen:
        sure = {name: item.line[name] for name in ("probability",) if item.line.get(name) is not None}
        for candidate in item.candidates:
            answer = _answer(item.case, candidate)
            yield {
                "id": item.case.id,
                "prompt": item.case.problem.text,
                "answer": answer,
                "text": candidate.text,
            } | sure


def _answer(case: Case, candidate: Candidate) -> str:
    """The boxed answer, the code or all of the text."""
    answer = candidate.answer or last_boxed(candidate.text)
    if domain_named(case.domain).python_programs or not answer:
        answer = dissect(candidate).code or answer or candidate.text
    return answer.strip()


def _raw_rewards(item: Chosen) -> list[float]:
    texts = [candidate.text for candidate in item.case.candidates]
    scores_of: dict[str, list[float]] = {}
    for text, score in zip(texts, item.line["scores"], strict=True):
        scores_of.setdefault(text, []).append(score)
    return [fmean(scores_of[text]) for text in texts]


def _csv_line(cells: Sequence[object]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerow([f"'{cell}" if _FORMULA.match(str(cell)) else cell for cell in cells])
    return out.getvalue().encode("utf-8", "replace")


EXPORTS: Mapping[str, Callable[[Iterable[Chosen]], Iterator[bytes]]] = {
    "livecodebench": livecodebench,
    "openai-batch": openai_batch,
    "text": answers,
    "best": best,
    "csv": spreadsheet,
    "sft": demonstrations,
    "rewards": rewards,
    "lm-eval": lm_eval,
    "inspect": inspect_log,
}
OF_A_RUN = ("rewards", "lm-eval")  # say which candidate was chosen


def preferences(
    cases: Mapping[str, Case], rulings: Iterable[Row], *, full_only: bool = False, chat: bool = False
) -> Iterator[bytes]:
    """Preference pairs for training: prompt, chosen and rejected of each decided game, one per line.

    Ties, unanswered asks and unreadable replies are left out. With `chat`, texts become lists of messages.
    """
    for case, ruling, winner, loser in _decided(cases, rulings):
        if not full_only or ruling.get("level") == FULL_VIEWS:
            facts = {name: ruling.get(name) for name in ("weight", "ratings", "level", "stage", "case")}
            facts |= {"pair": [winner, loser], "chosen_first": ruling["a"] == winner}
            yield _line(_pair(case, winner, loser, chat=chat) | facts | _labels(case, winner, loser))


def pairs(
    cases: Mapping[str, Case],
    rulings: Iterable[Row],
    *,
    full_only: bool = True,
    chat: bool = False,
    margin: float = 0,
    left_out: Counter[str] | None = None,
) -> Iterator[bytes]:
    """Pairs for DPO: each pair of different texts once, by the mean of what the judge said of it.

    `margin` is the least mean weight of its decided games; games for the other side count against it. Pairs
    whose labels contradict the judge are left out. `left_out` counts these as `labels`, those below the
    margin as `margin`, and the games of partial views, if they are left out, as `partial`.
    """
    left_out = Counter() if left_out is None else left_out
    weights: dict[tuple[str, str, str], list[float]] = {}
    first_games: dict[tuple[str, str, str], tuple[Case, int, int]] = {}
    for case, ruling, winner, loser in _decided(cases, rulings):
        better, worse = (case.candidates[place].text for place in (winner, loser))
        if full_only and ruling.get("level") != FULL_VIEWS:
            left_out["partial"] += 1
        elif better != worse:
            key = (case.id, min(better, worse), max(better, worse))
            _, first_winner, _ = first_games.setdefault(key, (case, winner, loser))
            sign = 1 if case.candidates[first_winner].text == better else -1
            weights.setdefault(key, []).append(sign * float(ruling.get("weight") or 0))
    for key, (case, winner, loser) in first_games.items():
        net = fmean(weights[key])
        chosen, rejected = (winner, loser) if net > 0 else (loser, winner)
        if net == 0 or abs(net) < margin:
            left_out["margin"] += 1
        elif _contradicts(case.candidates[chosen], case.candidates[rejected]):
            left_out["labels"] += 1
        else:
            facts = {"margin": round(abs(net), 6), "games": len(weights[key]), "case": case.id}
            yield _line(_pair(case, chosen, rejected, chat=chat) | facts | _labels(case, chosen, rejected))


def _decided(cases: Mapping[str, Case], rulings: Iterable[Row]) -> Iterator[tuple[Case, Row, int, int]]:
    """The games that were decided: the case, the ruling, and the places of winner and loser."""
    for ruling in rulings:
        case, winner = cases.get(str(ruling.get("case"))), _winner(ruling)
        if case is None or winner is None:
            continue
        (loser,) = (place for place in ruling["pair"] if place != winner)
        if all(0 <= place < len(case.candidates) for place in (winner, loser)):
            yield case, ruling, winner, loser


def _pair(case: Case, chosen: int, rejected: int, *, chat: bool) -> Row:
    return {
        "prompt": [message_value(message) for message in case.problem.messages]
        if chat
        else case.problem.text,
        "chosen": _as_completion(case.candidates[chosen], chat=chat),
        "rejected": _as_completion(case.candidates[rejected], chat=chat),
    }


def _labels(case: Case, chosen: int, rejected: int) -> Row:
    """What is known of both candidates."""
    labels = {
        f"{role}_{label}": getattr(case.candidates[place], label)
        for role, place in (("chosen", chosen), ("rejected", rejected))
        for label in LABELS
    }
    return {name: value for name, value in labels.items() if value is not None}


def _contradicts(chosen: Candidate, rejected: Candidate) -> bool:
    """Whether the rejected candidate is known to be right and the chosen one to be wrong."""
    return any(getattr(chosen, label) is False and getattr(rejected, label) is True for label in LABELS)


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
