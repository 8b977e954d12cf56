"""Result lines: selections, judge calls, findings and servers as plain data."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from caps.config import RunConfig
from caps.core.text import number, plural, printable_json
from caps.core.types import (
    BY_CLOCK,
    Answer,
    Ask,
    Found,
    Group,
    Level,
    Pairing,
    Pick,
    Rating,
    Selection,
    Solo,
    Unanswered,
    Usage,
    Verdict,
)
from caps.costs.ledger import Ledger, Sums
from caps.costs.prices import Price
from caps.engines.base import AskRuling, Outcome
from caps.judging.base import Opinion, PreparedCase, Ruling
from caps.judging.several import JudgeTotals, add_rulings
from caps.models.servers import ServerRecord
from caps.strategies.dedup import clusters

Line = dict[str, Any]


def findings_line(prepared: PreparedCase) -> Line:
    """Count the public examples that each candidate passes, and the inputs that separate candidates."""
    findings = [one.found for one in prepared.case.candidates]
    present = [one for one in findings if one is not None]
    line: Line = {}
    if any(one.passed is not None for one in present):
        line["tests_passed"] = [None if one is None else one.passed for one in findings]
        line["examples"] = max(one.examples for one in present)
    if any(one.survived for one in present):
        line["separating_inputs"] = max(one.survived.inputs for one in present if one.survived)
        line["agreed"] = [one.survived.agreed if one and one.survived else None for one in findings]
    if any(one.note for one in present):
        notes: dict[str, list[int]] = {}  # each note once, with its candidates
        for place, finding in enumerate(findings):
            if finding is not None and finding.note:
                notes.setdefault(finding.note, []).append(place)
        line["notes"] = notes
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
    by_clock: int = 0
    unusable: Counter[str] = field(default_factory=Counter)
    untried: Counter[str] = field(default_factory=Counter)

    def add(self, prepared: PreparedCase) -> None:
        """Count one case."""
        findings = [one.found for one in prepared.case.candidates if one.found is not None]
        if not findings:
            return
        if all(one == Found(note=one.note) for one in findings):
            self.untried[findings[0].note] += 1
            return
        self.cases += 1
        self.candidates += len(prepared.case.candidates)
        self.clusters += len(clusters(prepared.evidence.entrants))
        self.unparsed += sum(one.parses is False for one in findings)
        tried = [one for one in findings if one.passed is not None]
        self.tried += len(tried)
        self.passed += sum(one.passed == one.examples for one in tried)
        self.by_clock += sum(BY_CLOCK in one.note for one in findings)

    def as_line(self) -> dict[str, Any]:
        """Return the totals as plain data."""
        names = ("cases", "candidates", "clusters", "unparsed", "passed", "tried", "by_clock")
        counts = {name: getattr(self, name) for name in names}
        return {**counts, "unusable": dict(self.unusable + self.untried)}

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
        if self.by_clock:
            lines.append(
                f"hard evidence: unknown for {plural(self.by_clock, 'candidate')}, {BY_CLOCK}. "
                "Run it again when the machine is less busy"
            )
        lines += [
            f"hard evidence: none for {plural(count, 'case')}: {why}"
            for why, count in (self.unusable + self.untried).items()
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
        **({} if outcome.cause is None else {"cause": outcome.cause}),
        "strategy": config.strategy,
        "seed": config.seed,
        "calls": ledger.calls,
        "tokens": tokens_line(ledger),
        "usd": None if price is None else round(price.of_sums(ledger.total()), 6),
        "malformed": ledger.malformed.total(),
        "unanswered": ledger.unanswered.total(),
        "causes": dict(sorted((ledger.malformed + ledger.unanswered).items())),
        "clusters": len(clusters(prepared.evidence.entrants)),
        **_baseline_line(outcome),
        **({"substituted": dict(sorted(ledger.substituted.items()))} if ledger.substituted else {}),
        **({"skip_failing": True} if config.skip_failing else {}),
        **findings_line(prepared),
        **judges_line(outcome),
        **_criteria_line(outcome),
        **probability_line(chosen),
        **scores_line(chosen, len(prepared.case.candidates)),
        **(explanation_line(outcome) if config.explain else {}),
    }


def judges_line(outcome: Outcome) -> Line:
    """Return the totals of each of several judges; empty for one judge."""
    totals: dict[str, JudgeTotals] = {}
    add_rulings(totals, (judged.ruling for judged in outcome.judged))
    return totals_line(totals)


def totals_line(totals: Mapping[str, JudgeTotals]) -> Line:
    """Return the totals of several judges as plain data; empty for one judge."""
    return {"judges": {name: judge.as_line() for name, judge in totals.items()}} if totals else {}


BASES = {"votes": "agree", "tests": "tested", "verdicts": "verdicts", "labels": "calibrated"}
"""What a probability may rest on -> the fact of a selection that says so."""


def probability_line(chosen: Selection) -> Line:
    """Return the probability that the choice is right and what it rests on, if the strategy says so."""
    facts = chosen.facts
    if "probability" not in facts:
        return {}
    line: Line = {"probability": round(facts["probability"], 4)}
    if facts.get("abstain"):
        line["abstain"] = True
    if "calibrated" in facts:
        line["calibrated"] = bool(facts["calibrated"])
    if "agree" in facts:
        line["agree"] = int(facts["agree"])
        line["basis"] = [name for name, fact in BASES.items() if facts.get(fact)]
    return line


def sureness(line: Line) -> str:
    """How sure a choice is, in words: a percentage only where verdicts or labels stand behind it.

    `line` is a result line or what the server says about an answer. Empty without a probability.
    """
    probability, basis = line.get("probability"), line.get("basis")
    if probability is None:
        return ""
    if basis is None or {"verdicts", "labels"} & set(basis):
        return f"{100 * probability:.1f} % sure"
    tested = ", examples run" if "tests" in basis else ""
    return f"{line['agree']} of {len(line['order'])} agree{tested}; not judged"


def scores_line(chosen: Selection, candidates: int) -> Line:
    """Return the final score of each candidate and what it means."""
    scores = [round(float(chosen.scores[place]), 4) for place in range(candidates)]
    return {"scores": scores, "score_kind": chosen.score_kind}


def _criteria_line(outcome: Outcome) -> Line:
    """Return how each candidate did by each criterion; empty if no reply says so.

    That is the share of its comparisons that it won, a tie being half; if none was compared, its mean rating,
    or how often it was picked. The verdict on all criteria together decides, not these.
    """
    criteria = () if outcome.prepared is None else outcome.prepared.case.criteria
    kinds = [one for one in (Pairing, Solo, Group) if any(_says(judged, one) for judged in outcome.judged)]
    if outcome.prepared is None or not kinds:
        return {}
    count, asked = len(outcome.prepared.case.candidates), [j for j in outcome.judged if _says(j, kinds[0])]
    return {"criteria": {name: _by_candidate(asked, place, count) for place, name in enumerate(criteria)}}


def _says(judged: AskRuling, kind: type[Ask]) -> bool:
    return isinstance(judged.ask, kind) and any(judged.ruling.criteria)


def _by_candidate(asked: Sequence[AskRuling], place: int, count: int) -> list[float | None]:
    values: list[list[float]] = [[] for _ in range(count)]
    for judged in asked:
        ask, said = judged.ask, judged.ruling.criteria[place]
        if said is None:
            continue
        if isinstance(ask, Pairing):
            won = {"A": 1.0, "TIE": 0.5, "B": 0.0}[said]
            values[ask.a].append(won)
            values[ask.b].append(1 - won)
        elif isinstance(ask, Solo):
            values[ask.entrant].append(float(said))
        else:
            for number, one in enumerate(ask.entrants, 1):
                values[one].append(float(number == int(said)))
    return [round(sum(some) / len(some), 4) if some else None for some in values]


def explanation_line(outcome: Outcome) -> Line:
    """Return what moved the probability of the choice, if the strategy explains itself."""
    changes = () if outcome.contest is None else outcome.contest.explain()
    rows = [
        {"what": one.what, "change": round(one.change, 4), "to": round(one.probability, 4)} for one in changes
    ]
    return {"explanation": rows} if rows else {}


def tokens_line(ledger: Ledger) -> Line:
    """Return token totals as plain data."""
    total = ledger.total()
    names = ("asked", "billed", "cached", "output", "reasoning", "statement")
    return {name: getattr(total, name) for name in names} | {"estimated": ledger.estimated}


def _baseline_line(outcome: Outcome) -> Line:
    """Return what V1-Infer would read of the case; tokens are unknown if the judge was asked nothing."""
    if not outcome.v1_characters:
        return {}
    tokens = outcome.v1_tokens
    row = {"characters": round(outcome.v1_characters), "tokens": None if tokens is None else round(tokens)}
    return {"v1_infer": row}


def ruling_lines(outcome: Outcome) -> Iterator[Line]:
    """Yield one line per judge call; an ask with several attempts has several lines."""
    criteria = () if outcome.prepared is None else outcome.prepared.case.criteria
    for judged in outcome.judged:
        apart = {name: said for name, said in zip(criteria, judged.ruling.criteria, strict=False) if said}
        base = _ask_line(outcome.name, judged)
        for index, attempt in enumerate(judged.ruling.attempts):
            is_last = index == len(judged.ruling.attempts) - 1
            yield {
                **base,
                **(_answer_line(judged.ruling.answer) if is_last else {}),
                **({"criteria": apart} if apart and is_last else {}),
                **({"substituted": judged.ruling.substituted} if judged.ruling.substituted else {}),
                **({"judge": attempt.judge} if attempt.judge else {}),
                **(_opinions_line(judged.ruling) if is_last else {}),
                **({"score": judged.ruling.score} if judged.ruling.score is not None else {}),
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
                **({"estimated": True} if attempt.usage.estimated else {}),
                **({} if attempt.usage.usd is None else {"usd": round(attempt.usage.usd, 9)}),
            }
        if not judged.ruling.attempts:
            yield {**base, **_answer_line(judged.ruling.answer), **_opinions_line(judged.ruling)}


def usage_of(line: Line) -> Usage:
    """Rebuild the usage of a call line; it does not have reasoning tokens."""
    return Usage(
        line["tokens"],
        line.get("output", 0),
        line.get("cached", 0),
        estimated=bool(line.get("estimated")),
        usd=line.get("usd"),
    )


def _opinions_line(ruling: Ruling) -> Line:
    """What each of several judges answered, and whether none of them could be read."""
    if not ruling.opinions:
        return {}
    opinions = [
        {"judge": opinion.judge, **_answer_line(opinion.answer), **_malformed_line(opinion.malformed)}
        for opinion in ruling.opinions
    ]
    return {"opinions": opinions, **_malformed_line(ruling.malformed)}


def _malformed_line(cause: str | None) -> Line:
    return {} if cause is None else {"malformed": cause}


def opinions_of(line: Line) -> tuple[Opinion, ...]:
    """Rebuild what each of several judges answered, from the last line of an ask."""
    opinions = ((row["judge"], answer_of(row), row.get("malformed")) for row in line.get("opinions", ()))
    return tuple(Opinion(judge, answer, cause) for judge, answer, cause in opinions if answer is not None)


def unanswered_in(line: Line) -> Iterator[tuple[str, str]]:
    """Which of several judges, or under an empty name the only one, did not answer the ask of a line."""
    opinions = opinions_of(line)
    if line.get("unanswered") is not None and not opinions:
        yield "", str(line["unanswered"])
    for opinion in opinions:
        if isinstance(opinion.answer, Unanswered) and opinion.malformed is None:
            yield opinion.judge, opinion.answer.reason


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
        (b,) = [place for place in line["pair"] if place != a]
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
        {"stage": stage, "level": str(level), **_sums_line(sums)}
        for (stage, level), sums in ledger.lines.items()
    ]


def _sums_line(sums: Sums) -> Line:
    """Return sums as plain data; dollars only if several judges have prices of their own."""
    return {name: value for name, value in asdict(sums).items() if name != "usd" or value}


def server_lines(records: Sequence[ServerRecord]) -> list[dict[str, Any]]:
    """Return the server records as plain data."""
    return [asdict(record) for record in records]


def servers_text(records: Sequence[ServerRecord]) -> list[str]:
    """Describe several servers in one line; empty with one."""
    return ["servers: " + "; ".join(map(_server_text, records))] if records else []


def _server_text(record: ServerRecord) -> str:
    text = f"{record.address} {plural(record.calls, 'call')}"
    if record.failed:
        text += f", {number(record.failed, 0)} failed"
    return f"{text}, out" if record.out else text
