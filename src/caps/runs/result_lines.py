"""Result lines: selections, judge calls, findings and servers as plain data."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from caps.config import RunConfig
from caps.core.text import number, plural, printable_json
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

Line = dict[str, Any]


def findings_line(prepared: PreparedCase) -> Line:
    """Count the public examples that each candidate passes, with notes; empty if nothing was found."""
    findings = [one.found for one in prepared.case.candidates]
    tested = [one for one in findings if one is not None and one.passed is not None]
    line: Line = {}
    if tested:
        passed = [None if one is None else one.passed for one in findings]
        line |= {"tests_passed": passed, "examples": tested[0].examples}
    if any(one is not None and one.note for one in findings):
        line["notes"] = ["" if one is None else one.note for one in findings]
    return line


@dataclass(slots=True)
class FindingsSummary:
    """Running totals of findings."""

    cases: int = 0
    candidates: int = 0
    clusters: int = 0
    unparsed: int = 0
    passed: int = 0
    tried: int = 0
    unusable: Counter[str] = field(default_factory=Counter)

    def add(self, prepared: PreparedCase) -> None:
        """Count one case."""
        findings = [one.found for one in prepared.case.candidates if one.found is not None]
        if not findings:
            return
        self.cases += 1
        self.candidates += len(prepared.case.candidates)
        self.clusters += len({one.cluster or index for index, one in enumerate(findings)})
        self.unparsed += sum(one.parses is False for one in findings)
        tried = [one for one in findings if one.passed is not None]
        self.tried += len(tried)
        self.passed += sum(one.passed == one.examples for one in tried)

    def as_line(self) -> dict[str, Any]:
        """Return the totals as plain data."""
        names = ("cases", "candidates", "clusters", "unparsed", "passed", "tried")
        counts = {name: getattr(self, name) for name in names}
        return {**counts, "unusable": dict(self.unusable)}

    def as_text(self) -> list[str]:
        """Return one or two lines of text."""
        lines = []
        if self.cases:
            text = (
                f"hard evidence: {plural(self.candidates, 'candidate')} in {plural(self.cases, 'case')}, "
                f"{plural(self.clusters, 'distinct answer')}"
            )
            if self.tried:
                text += f"; {self.passed} of {plural(self.tried, 'program')} pass all public examples"
            if self.unparsed:
                text += f", {self.unparsed} cannot be parsed"
            lines.append(text)
        lines += [
            f"hard evidence: none for {plural(count, 'case')}: {why}" for why, count in self.unusable.items()
        ]
        return lines


def json_lines(lines: Iterable[Line]) -> bytes:
    """Encode lines as JSON Lines."""
    return printable_json(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def selection_line(outcome: Outcome, config: RunConfig, *, price: Price | None) -> Line:
    """Return the documented result line of a case."""
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
        **findings_line(prepared),
        **_probability_line(chosen),
        **(_explanation(outcome) if config.explain else {}),
    }


def _probability_line(chosen: Selection) -> Line:
    """Return the probability that the choice is right and its flags, if the strategy gives them."""
    if "probability" not in chosen.facts:
        return {}
    flag: Line = {"abstain": True} if chosen.facts.get("abstain") else {}
    if "calibrated" in chosen.facts:
        flag["calibrated"] = bool(chosen.facts["calibrated"])
    return {"probability": round(chosen.facts["probability"], 4), **flag}


def _explanation(outcome: Outcome) -> Line:
    """Return what moved the probability of the choice, if the strategy explains itself."""
    found = () if outcome.contest is None else outcome.contest.explain()
    rows = [
        {"what": one.what, "change": round(one.change, 4), "to": round(one.probability, 4)} for one in found
    ]
    return {"explanation": rows} if rows else {}


def tokens_line(ledger: Ledger) -> Line:
    """Return token totals as plain data."""
    total = ledger.total()
    names = ("asked", "billed", "cached", "output", "reasoning", "statement")
    return {name: getattr(total, name) for name in names} | {"estimated": ledger.estimated}


def ruling_lines(outcome: Outcome) -> Iterator[Line]:
    """Yield one line per judge call; an ask with several attempts has several lines."""
    for judged in outcome.judged:
        base = _ask_line(outcome.name, judged)
        for index, attempt in enumerate(judged.ruling.attempts):
            is_last = index == len(judged.ruling.attempts) - 1
            yield {
                **base,
                **(_answer_line(judged.ruling.answer) if is_last else {}),
                **({"substituted": judged.ruling.substituted} if judged.ruling.substituted else {}),
                "attempt": index,
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
    """Rebuild the ask of a call line."""
    level, draw = Level(int(line["level"][1:])), line["draw"]
    if "pair" in line:
        a = line["a"]
        (b,) = [one for one in line["pair"] if one != a]
        return Pairing(a, b, level, draw, line["dialect"])
    shown = tuple(line["shown"])
    return Group(shown, level, draw) if line["group"] else Solo(shown[0], level, draw)


def answer_of(line: Line) -> Answer | None:
    """Rebuild the answer of a call line; None if another attempt followed."""
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
    """Return the ledger as one line per stage and level."""
    return [
        {"stage": stage, "level": str(level), **asdict(sums)} for (stage, level), sums in ledger.lines.items()
    ]


def server_lines(records: Sequence[ServerRecord]) -> list[dict[str, Any]]:
    """Return the server records as plain data."""
    return [asdict(record) | {"seconds_out": round(record.seconds_out, 3)} for record in records]


def servers_text(records: Sequence[ServerRecord]) -> list[str]:
    """Describe all servers in one line; empty without a fleet."""
    return ["servers: " + "; ".join(map(_server_text, records))] if records else []


def _server_text(record: ServerRecord) -> str:
    text = f"{record.address} {plural(record.calls, 'call')}"
    if record.failed:
        text += f", {number(record.failed, 0)} failed"
    if record.outs:
        times = "once" if record.outs == 1 else f"{record.outs} times"
        still = ", and still is" if record.out else ""
        text += f", out {times} for {record.seconds_out:.0f} s{still}"
    return text
