"""Results as plain data: the line of a selection, its calls, findings and servers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from caps.config import RunConfig
from caps.core.text import number, printable_json
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
from caps.engines.base import AskRuling, Outcome
from caps.judging.base import PreparedCase
from caps.models.fleet_servers import ServerRecord

# What hard evidence found, for a result and for a run.


def found_line(prepared: PreparedCase) -> dict[str, Any]:
    """How many public examples each candidate passes; nothing where none was run."""
    found = [one.found for one in prepared.case.candidates]
    known = [one for one in found if one is not None and one.passed is not None]
    if not known:
        return {}
    passed = [None if one is None else one.passed for one in found]
    return {"tests_passed": passed, "examples": known[0].examples}


@dataclass(slots=True)
class FoundSummary:
    """Running totals of what was found."""

    cases: int = 0
    candidates: int = 0
    clusters: int = 0
    unparsed: int = 0
    passed: int = 0
    tried: int = 0
    unusable: Counter[str] = field(default_factory=Counter)

    def add(self, prepared: PreparedCase) -> None:
        """Count one case."""
        found = [one.found for one in prepared.case.candidates if one.found is not None]
        if not found:
            return
        self.cases += 1
        self.candidates += len(prepared.case.candidates)
        self.clusters += len({fact.cluster or place for place, fact in enumerate(found)})
        self.unparsed += sum(one.parses is False for one in found)
        tried = [one for one in found if one.passed is not None]
        self.tried += len(tried)
        self.passed += sum(one.passed == one.examples for one in tried)

    def as_line(self) -> dict[str, Any]:
        """All of it as plain data."""
        names = ("cases", "candidates", "clusters", "unparsed", "passed", "tried")
        counts = {name: getattr(self, name) for name in names}
        return {**counts, "unusable": dict(self.unusable)}

    def as_text(self) -> list[str]:
        """A line or two for people."""
        lines = []
        if self.cases:
            cases = "1 case" if self.cases == 1 else f"{self.cases} cases"
            words = (
                f"hard evidence: {self.candidates} candidates in {cases}, {self.clusters} distinct answers"
            )
            if self.tried:
                words += f"; {self.passed} of {self.tried} programs pass all public examples"
            if self.unparsed:
                words += f", {self.unparsed} cannot be parsed"
            lines.append(words)
        lines += [f"hard evidence: {count} cases without: {why}" for why, count in self.unusable.items()]
        return lines


Line = dict[str, Any]


def json_lines(lines: Iterable[Line]) -> bytes:
    """Lines as they stand in a file."""
    return printable_json(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def selection_line(outcome: Outcome, config: RunConfig, *, price: Price | None) -> Line:
    """One result, as the contract with users has it."""
    chosen, prepared, ledger = outcome.selection, outcome.prepared, outcome.ledger
    if chosen is None or prepared is None:
        return {"id": outcome.name, "error": outcome.failure}
    return {
        "id": outcome.name,
        "winner": chosen.winner,
        "text": prepared.case.candidates[chosen.winner].text,
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
        "clusters": len({e.signature or e.id for e in prepared.evidence.entrants}),
        **({"substituted": dict(sorted(ledger.substituted.items()))} if ledger.substituted else {}),
        **({"skip_failing": True} if config.skip_failing else {}),
        **found_line(prepared),
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
        for place, attempt in enumerate(judged.ruling.attempts):
            read = place == len(judged.ruling.attempts) - 1
            yield {
                **base,
                **(_answer_line(judged.ruling.answer) if read else {}),
                **({"substituted": judged.ruling.substituted} if judged.ruling.substituted else {}),
                "attempt": place,
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


def _ask_line(name: str, judged: AskRuling) -> Line:
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


# How the servers of a fleet fared, as plain data and in words.


def server_lines(records: Sequence[ServerRecord]) -> list[dict[str, Any]]:
    """Every server as plain data."""
    return [asdict(record) | {"seconds_out": round(record.seconds_out, 3)} for record in records]


def servers_text(records: Sequence[ServerRecord]) -> list[str]:
    """One line for people, none without a fleet."""
    return ["servers: " + "; ".join(map(_told, records))] if records else []


def _told(record: ServerRecord) -> str:
    words = f"{record.address} {number(record.calls, 0)} calls"
    if record.failed:
        words += f", {number(record.failed, 0)} failed"
    if record.outs:
        times = "once" if record.outs == 1 else f"{record.outs} times"
        still = ", and still is" if record.out else ""
        words += f", out {times} for {record.seconds_out:.0f} s{still}"
    return words
