"""The output of the demonstration."""

from collections.abc import Iterable

from caps.core.text import number
from caps.core.types import Pairing, Verdict
from caps.engines.base import Outcome
from caps.statistics.estimates import wilson


def result_row(outcome: Outcome) -> tuple[str, ...]:
    """One case as a row of a table."""
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


def judge_words(outcomes: Iterable[Outcome]) -> list[str]:
    """How often the judge preferred the right one of a right and a wrong candidate, and what it is worth."""
    right = games = 0
    for outcome in outcomes:
        labels = [] if outcome.prepared is None else [one.correct for one in outcome.prepared.case.candidates]
        for judged in outcome.judged:
            ask, answer = judged.ask, judged.ruling.answer
            if not isinstance(ask, Pairing) or not isinstance(answer, Verdict) or answer.a == answer.b:
                continue
            if {labels[ask.a], labels[ask.b]} == {True, False}:
                games += 1
                right += labels[ask.a] is (answer.a > answer.b)
    if not games:
        return []
    low, high = wilson(right, games)
    worth = "no better than a coin, as far as this tells" if low <= 0.5 <= high else "more than a coin"
    worth = "worse than a coin" if high < 0.5 else worth
    return [
        f"The judge preferred the right one in {right} of {games} games between a right and a wrong answer: "
        f"{worth}.",
    ]
