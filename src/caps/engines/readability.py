"""Stops a run whose judge's replies cannot be read, before it has paid for all of them.

What is counted: the asks that got a reply, now or from the journal alike. An ask is unreadable if none of its
replies could be read, after its retries. Asks that got no reply (budget, time, failed calls) do not count.

The decision does not depend on the order in which replies arrive, so a resumed run decides the same: the
first rounds of the cases are looked at in the order of the input, and the run stops at the first case with
which they are enough (`LEAST_ASKS` asks of `LEAST_CASES` cases) and more than half of them are unreadable. At
the end of a run all asks of all rounds are looked at, however few they are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from caps.core.errors import UnreadableJudgeError
from caps.core.text import plural
from caps.engines.base import AskRuling, Outcome, ReorderBuffer

LEAST_ASKS = 8
LEAST_CASES = 3

_ADVICE = {
    "truncated": "replies are cut off: raise --max-tokens, or make the model think less "
    "(--extra reasoning_effort=low)",
    "empty": "replies are empty: a model that thinks may need more --max-tokens, or less effort (--extra)",
    "refused": "the judge declines to answer: choose another model",
    "unbound": "verdicts lack the code that the prompt asks for: choose another model, or --reply auto",
    "no-tag": "the judge does not write the verdict in the form that it is asked for: try --reply auto, "
    "another model, or your own --prompts",
}


@dataclass(slots=True)
class ReplyCount:
    """Cases that got replies, their asks, the unreadable ones by cause, and the beginning of such a reply."""

    cases: int = 0
    asks: int = 0
    unreadable: Counter[str] = field(default_factory=Counter)
    sample: str = ""

    def add(self, judged: Sequence[AskRuling]) -> None:
        """Count asks of one case."""
        replied = [one.ruling for one in judged if one.ruling.replied]
        self.cases += bool(replied)
        self.asks += len(replied)
        for ruling in replied:
            if ruling.malformed is not None:
                self.unreadable[ruling.malformed] += 1
                self.sample = self.sample or ruling.sample

    @property
    def error(self) -> UnreadableJudgeError | None:
        """The error that stops a run if more than half of the asks are unreadable."""
        unreadable = self.unreadable.total()
        if 2 * unreadable <= self.asks:
            return None
        causes = ", ".join(f"{cause} {count}" for cause, count in self.unreadable.most_common())
        sample = f"; a reply begins: {self.sample!r}" if self.sample else ""
        advice = _ADVICE.get(self.unreadable.most_common(1)[0][0], _ADVICE["no-tag"])
        return UnreadableJudgeError(
            f"the replies of the judge cannot be read: {unreadable} of {plural(self.asks, 'ask')} about "
            f"{plural(self.cases, 'case')} ({causes}), after all retries{sample}. What to do: {advice}. A "
            "new run asks again what could not be read; one that resumes in its --out folder does not. With "
            "--keep-going (keep_going=True) a run goes on, and an unreadable reply counts as a tie"
        )


class ReplyCheck:
    """Whether a run must stop: see the module's docstring; with `keep_going` it never must."""

    def __init__(self, *, keep_going: bool) -> None:
        self.error: UnreadableJudgeError | None = None
        self.passed = keep_going  # enough replies were looked at, and could be read
        self._keep_going = keep_going
        self._first_rounds, self._all = ReplyCount(), ReplyCount()
        self._in_order = ReorderBuffer[list[AskRuling]]()
        self._begun: set[int] = set()

    def add_first_round(self, outcome: Outcome) -> None:
        """Look at the first round of a case; further calls for the case have no effect."""
        if self._keep_going or outcome.number in self._begun:
            return
        self._begun.add(outcome.number)
        for judged in self._in_order.add(outcome.number, list(outcome.judged)):
            counted = self._first_rounds
            counted.add(judged)
            if self.error is None and counted.asks >= LEAST_ASKS and counted.cases >= LEAST_CASES:
                self.error = counted.error
                self.passed = self.error is None

    def add_outcome(self, outcome: Outcome) -> None:
        """Look at a case that is over."""
        self.add_first_round(outcome)
        self._all.add(outcome.judged)

    def finish(self) -> None:
        """Raise the error if the run is over and most of its asks were unreadable."""
        if not self._keep_going and (error := self.error or self._all.error) is not None:
            raise error
