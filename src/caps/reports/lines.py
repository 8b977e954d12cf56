"""Results as plain data: the line of a selection, and the lines of the calls behind it."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import msgspec

from caps.config import RunConfig
from caps.core.printable import printable_json
from caps.core.types import (
    Answer,
    Ask,
    Group,
    Level,
    Pairing,
    Pick,
    Rating,
    Selection,
    Solo,
    Unanswered,
    Verdict,
)
from caps.costs.ledger import Ledger
from caps.costs.prices import Price
from caps.engines.base import Judged, Outcome
from caps.reports.found import found_line

Line = dict[str, Any]


def json_lines(lines: Iterable[Line]) -> bytes:
    """Lines as they stand in a file."""
    return printable_json(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def selection_line(outcome: Outcome, config: RunConfig, *, price: Price | None) -> Line:
    """One result, as the contract with users has it."""
    chosen, bout, ledger = outcome.selection, outcome.bout, outcome.ledger
    if chosen is None or bout is None:
        return {"id": outcome.name, "error": outcome.failure}
    return {
        "id": outcome.name,
        "winner": chosen.winner,
        "text": bout.case.candidates[chosen.winner].text,
        "order": chosen.order,
        "finalists": chosen.finalists,
        "rescued": _one_or_many(chosen.rescued),
        "provisional": chosen.provisional,
        "strategy": config.strategy,
        "seed": config.seed,
        "calls": ledger.calls,
        "tokens": tokens_line(ledger),
        "usd": None if price is None else round(price.of_sums(ledger.total()), 6),
        "malformed": ledger.malformed.total(),
        "unanswered": ledger.unanswered.total(),
        "causes": dict(sorted((ledger.malformed + ledger.unanswered).items())),
        "clusters": len({e.signature or e.id for e in bout.described.entrants}),
        **({"skip_failing": True} if config.skip_failing else {}),
        **found_line(bout),
        **_sureness(chosen),
    }


def _sureness(chosen: Selection) -> Line:
    """How likely the choice is right, where a strategy says so, and whether it would rather not choose."""
    if "probability" not in chosen.facts:
        return {}
    flag = {"abstain": True} if chosen.facts.get("abstain") else {}
    return {"probability": round(chosen.facts["probability"], 4), **flag}


def tokens_line(ledger: Ledger) -> Line:
    """Token totals."""
    total = ledger.total()
    names = ("asked", "billed", "cached", "output", "reasoning", "statement")
    return {name: getattr(total, name) for name in names} | {"estimated": ledger.estimated}


def ruling_lines(outcome: Outcome) -> Iterator[Line]:
    """One line a call; an ask that took several tries has several."""
    for judged in outcome.judged:
        base = _ask_line(outcome.name, judged)
        for number, attempt in enumerate(judged.ruling.attempts):
            read = number == len(judged.ruling.attempts) - 1
            yield {
                **base,
                **(_answer_line(judged.ruling.answer) if read else {}),
                "attempt": number,
                "how": attempt.how,
                "cause": attempt.cause,
                "tokens": attempt.usage.prompt,
                "cached": attempt.usage.cached,
                "output": attempt.usage.output,
                "latency": round(attempt.latency, 4),
                "finish": attempt.finish,
                "replayed": attempt.replayed,
                "requests": attempt.requests,
                "key": attempt.key,
            }
        if not judged.ruling.attempts:
            yield {**base, "unanswered": judged.ruling.unanswered}


def _ask_line(name: str, judged: Judged) -> Line:
    ask = judged.ask
    line: Line = {"case": name, "stage": judged.stage, "level": str(ask.level), "draw": ask.draw}
    if isinstance(ask, Pairing):
        return line | {"pair": sorted(ask.entrants), "a": ask.a, "dialect": ask.dialect}
    return line | {"shown": ask.entrants, "group": isinstance(ask, Group)}


def ask_of(line: Line) -> Ask:
    """The ask a line of a call is about."""
    level, draw = Level(int(line["level"][1:])), line["draw"]
    if "pair" in line:
        a = line["a"]
        (b,) = [one for one in line["pair"] if one != a]
        return Pairing(a, b, level, draw, line["dialect"])
    shown = tuple(line["shown"])
    return Group(shown, level, draw) if line["group"] else Solo(shown[0], level, draw)


def answer_of(line: Line) -> Answer | None:
    """The answer a line of a call holds; none where a further try followed."""
    if "ratings" in line:
        return Verdict(*line["ratings"])
    if "rating" in line:
        return Rating(line["rating"])
    if "pick" in line:
        return Pick(line["pick"])
    return Unanswered(line["unanswered"]) if line.get("unanswered") is not None else None


def _answer_line(answer: Answer) -> Line:
    if isinstance(answer, Verdict):
        word = "TIE" if answer.a == answer.b else "A" if answer.a > answer.b else "B"
        return {"verdict": word, "ratings": [answer.a, answer.b], "weight": round(answer.weight, 6)}
    if isinstance(answer, Rating):
        return {"rating": answer.value}
    return {"pick": answer.winner} if isinstance(answer, Pick) else {"unanswered": answer.reason}


def _one_or_many(rescued: tuple[int, ...]) -> int | tuple[int, ...] | None:
    return (rescued[0] if rescued else None) if len(rescued) < 2 else rescued


def ledger_lines(ledger: Ledger) -> list[Line]:
    """The ledger, one line for each stage and level."""
    return [
        {"stage": stage, "level": str(level), **asdict(sums)} for (stage, level), sums in ledger.lines.items()
    ]
