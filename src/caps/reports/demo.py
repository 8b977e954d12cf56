"""Output of `caps demo`."""

from collections.abc import Iterable

from caps.core.text import number, plural
from caps.core.types import Pairing, Verdict
from caps.engines.base import Outcome
from caps.statistics.estimates import wilson


def result_row(outcome: Outcome) -> tuple[str, ...]:
    """Return the table row of a case."""
    prepared, chosen = outcome.prepared, outcome.selection
    if prepared is None or chosen is None:
        return (outcome.name,)
    candidates, entrants = prepared.case.candidates, prepared.evidence.entrants
    label = candidates[chosen.winner].correct
    calls = outcome.ledger.calls
    return (
        outcome.name,
        str(len(candidates)),
        str(len({one.signature or one.id for one in entrants})),
        str(chosen.winner),
        f"{calls['E1']} + {calls['E2']}",
        number(outcome.ledger.total().asked, 0),
        {True: "right", False: "wrong", None: "unknown"}[label],
    )


def judge_text(outcomes: Iterable[Outcome]) -> list[str]:
    """Say how often the judge preferred the right one of a right and a wrong candidate."""
    right = total = 0
    for outcome in outcomes:
        labels = [] if outcome.prepared is None else [one.correct for one in outcome.prepared.case.candidates]
        for judged in outcome.judged:
            ask, answer = judged.ask, judged.ruling.answer
            if not isinstance(ask, Pairing) or not isinstance(answer, Verdict) or answer.a == answer.b:
                continue
            if {labels[ask.a], labels[ask.b]} == {True, False}:
                total += 1
                right += labels[ask.a] is (answer.a > answer.b)
    if not total:
        return []
    low, high = wilson(right, total)
    worth = "better than a coin" if low > 0.5 else "worse than a coin"
    if low <= 0.5 <= high:
        worth = "no better than a coin, as far as these comparisons show"
    return [
        f"The judge preferred the right one in {right} of {plural(total, 'comparison')} of a right and a "
        f"wrong answer: {worth}."
    ]
