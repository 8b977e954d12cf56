"""Judges that answer from records: recorded verdicts, the journal of a run, or a script.

Recorded verdicts come from a file (`datasets.verdicts`), either of another run or published; one rule holds
for asks without an exact record.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from caps.core.play import AskKind
from caps.core.types import (
    Answer,
    Ask,
    Case,
    Group,
    Level,
    Pairing,
    Pick,
    Solo,
    Unanswered,
    Usage,
    shown_size,
)
from caps.costs.budget import Budget
from caps.datasets.verdicts import Answers, Recorded, read_records, text_digest
from caps.judging.base import Attempt, Judge, PreparedCase, Ruling

FULL_VIEW = "full view"
MERGED_ORDER = "merged order"
NO_CONFIDENCE = "no confidence"
REPEATED_DRAW = "repeated draw"
#: Substitutions for an exact answer with their descriptions, in the order in which they are reported.
SUBSTITUTIONS = {
    FULL_VIEW: "a partial view (E1) is answered with the verdict on full views",
    MERGED_ORDER: "either order is answered with the verdict that was merged from both",
    NO_CONFIDENCE: "a verdict without a confidence, or in another form than is asked, counts as HIGH",
    REPEATED_DRAW: "a further draw repeats the first",
}
NOT_RECORDED = "not recorded"  # why an ask is unanswered
OTHER_TEXT = "recorded of another text"
RULE = (
    "An ask is answered with what was recorded for the same candidates in the same order. Substitutions are "
    "counted: "
    + "; ".join(f"{name} ({about})" for name, about in SUBSTITUTIONS.items())
    + ". Anything else is unanswered, and counted."
)


class Found(NamedTuple):
    """The recorded answer to an ask, and the substitutions made."""

    answer: Answer
    substituted: tuple[str, ...] = ()
    record: Recorded | None = None


class RecordedJudge:
    """Answers with recorded verdicts; see `RULE`.

    A case is found by its id, a candidate by its index. If the candidates of a case were reordered, its field
    `places` holds their original indices.
    """

    def __init__(self, name: str, answers: Answers, *, digest: str = "") -> None:
        self.name, self.digest = name, digest
        self._answers = answers

    @classmethod
    def read(cls, path: str, judge: str | None = None) -> "RecordedJudge":
        """Read a judge from a file of recorded verdicts, by name or the only one."""
        records = read_records(path)
        name, answers = records.of(judge)
        return cls(name, answers, digest=records.digest)

    @property
    def answers(self) -> frozenset[AskKind]:
        """The kinds of asks that are recorded."""
        kinds: dict[type, AskKind] = {Pairing: "pair", Solo: "rating", Group: "pick"}
        return frozenset({kinds[type(ask)] for case in self._answers.values() for ask in case})

    def answer(self, case: Case, ask: Ask) -> Found:
        """The recorded answer to an ask about a case, by the rule."""
        places = places_of(case)
        known, placed = self._answers.get(case.id, {}), _placed(ask, places)
        for stand_in, substituted in _stand_ins(placed):
            record = known.get(stand_in)
            if record is None:
                continue
            if record.texts and record.texts != tuple(
                text_digest(case.candidates[one].text) for one in ask.entrants
            ):
                return Found(Unanswered(OTHER_TEXT))
            kinds = {*substituted}
            kinds |= {MERGED_ORDER} if record.merged else set()
            kinds |= set() if record.sure else {NO_CONFIDENCE}
            answer: Answer = record.answer
            if isinstance(answer, Pick):
                answer = Pick(ask.entrants[placed.entrants.index(answer.winner)])
            return Found(answer, tuple(name for name in SUBSTITUTIONS if name in kinds), record)
        return Found(Unanswered(NOT_RECORDED))

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:
        """Answer without a call; the recorded or estimated usage is counted as replayed."""
        answer = self.answer(prepared.case, ask)
        if answer.record is None:
            return Ruling(answer.answer)
        usage = answer.record.usage or self.max_usage(prepared, ask)
        budget = budget.for_stored_replies()
        if (shortage := await budget.reserve(usage)) is not None:
            return Ruling(Unanswered("budget"), shortage=shortage)
        budget.settle(usage, usage, replayed=True)
        attempt = Attempt("", usage, "", "recorded", answer.record.cause, 0.0, replayed=True, requests=0)
        return Ruling(answer.answer, (attempt,), answer.record.cause, substituted=answer.substituted)

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:
        """Estimated prompt tokens of the problem and the views."""
        views = shown_size(prepared.evidence.entrants, ask)
        return Usage(prepared.statement + views, 0, estimated=True)


def counted(substituted: Mapping[str, int], unanswered: Mapping[str, int], asks: int) -> str:
    """One line with the number of asks, substitutions and unanswered asks."""
    counts = [f"{name} {substituted.get(name, 0):,}" for name in SUBSTITUTIONS]
    counts += [f"{reason} {count:,}" for reason, count in sorted(unanswered.items())] or ["unanswered 0"]
    return f"{asks:,} asks: {', '.join(counts)}"


def places_of(case: Case) -> Sequence[int]:
    """The original index of each candidate of a case."""
    stated, count = case.extra.get("places"), len(case.candidates)
    if not isinstance(stated, list) or len(stated) != count:
        return range(count)
    return stated if all(type(one) is int for one in stated) else range(count)


def reordered(case: Case, order: Sequence[int]) -> Case:
    """The case with its candidates in another order; its field `places` holds their original indices."""
    places = places_of(case)
    candidates = tuple(case.candidates[one] for one in order)
    return replace(
        case, candidates=candidates, extra={**case.extra, "places": [places[one] for one in order]}
    )


def _placed(ask: Ask, places: Sequence[int]) -> Ask:
    """The ask with the original indices of its candidates."""
    if isinstance(ask, Pairing):
        return replace(ask, a=places[ask.a], b=places[ask.b])
    if isinstance(ask, Solo):
        return replace(ask, entrant=places[ask.entrant])
    return replace(ask, entrants=tuple(places[one] for one in ask.entrants))


def _stand_ins(ask: Ask) -> Iterator[tuple[Ask, frozenset[str]]]:
    """The ask itself, then its substitutes, nearest first, each with the names of the substitutions."""
    levels = [ask.level, Level.FULL] if ask.level is Level.PARTIAL else [ask.level]
    draws = [ask.draw, 0] if ask.draw else [0]
    for level in levels:
        for draw in draws:
            changed = frozenset(
                name
                for name, applies in ((FULL_VIEW, level != ask.level), (REPEATED_DRAW, draw != ask.draw))
                if applies
            )
            stand_in = replace(ask, level=level, draw=draw)
            yield stand_in, changed
            if isinstance(stand_in, Pairing):
                other = "ratings" if stand_in.dialect == "verdicts" else "verdicts"
                yield replace(stand_in, dialect=other), changed | {NO_CONFIDENCE}


# --- A judge that repeats a run: replies from the journal, unanswered asks as recorded ---


class ReplayedJudge:
    """Leaves asks unanswered that a run left unanswered, and passes the rest to a judge on the journal."""

    def __init__(self, inner: Judge, unanswered: Mapping[tuple[str, Ask], str]) -> None:
        self._inner, self._unanswered = inner, unanswered

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:
        """Answer as the run did."""
        reason = self._unanswered.get((prepared.case.id, ask))
        if reason is not None:
            return Ruling(Unanswered(reason))
        return await self._inner.rule(prepared, ask, budget)

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:
        """The most that the ask may have cost."""
        return self._inner.max_usage(prepared, ask)


# --- A judge for tests, docs and benchmarks that answers with a function, at no cost ---


class ScriptedJudge:
    """Answers with a function of the prepared case and the ask."""

    def __init__(self, answer: Callable[[PreparedCase, Ask], Answer]) -> None:
        self._answer = answer

    async def rule(self, prepared: PreparedCase, ask: Ask, budget: Budget) -> Ruling:  # noqa: ARG002
        """Answer an ask about a case, for nothing."""
        return Ruling(self._answer(prepared, ask))

    def max_usage(self, prepared: PreparedCase, ask: Ask) -> Usage:  # noqa: ARG002
        """Nothing."""
        return Usage(0, 0)
