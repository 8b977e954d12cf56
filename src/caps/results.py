"""`Selected`: the result of a case as an object, a table row, and a picture in a notebook.

`compare_results` compares the results of two strategies; `load_run` reads a run folder.
"""

import io
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from caps.config import RunConfig
from caps.core.contest import Contest
from caps.core.errors import InputError
from caps.core.text import printable
from caps.core.types import Candidate, Level, Selection
from caps.costs.ledger import Ledger
from caps.costs.prices import Price
from caps.engines.base import Outcome
from caps.evidence.anatomy import final_answer
from caps.grading.answers import same_answer
from caps.reports.bracket import draw
from caps.runs.folder import read_rulings, read_run
from caps.runs.result_lines import Line, selection_line
from caps.runs.summary import ledgers_by_case
from caps.statistics.estimates import discordant, exact_mcnemar, mean_interval, ratio_interval

SHOWN_TEXT = 2000  # characters of a text in a notebook
LABELS = {True: ", labelled right", False: ", labelled wrong", None: ""}
SHOWN_BARS = 32

_log = logging.getLogger("caps")


@dataclass(frozen=True, slots=True)
class Selected:
    """The chosen candidate of a case: its index, its text, the ranking, and the costs.

    A case that failed has an `error`; then `winner` and `selection` are None, `text` and `order` are empty.
    Its costs are in the `ledger` all the same. `contest` has all rounds of the selection; a result read from
    a run folder has none.
    """

    id: str
    winner: int | None
    text: str
    selection: Selection | None
    ledger: Ledger
    contest: Contest | None = field(default=None, repr=False)
    error: str | None = None
    usd: float | None = None
    _line: Line = field(default_factory=dict, repr=False)
    _candidate: Candidate | None = field(default=None, repr=False)

    @property
    def order(self) -> tuple[int, ...]:
        """All candidates, best first."""
        return () if self.selection is None else self.selection.order

    @property
    def tokens(self) -> int:
        """Input tokens of every judge call."""
        return self.ledger.total().asked

    @property
    def answer(self) -> str | None:
        """The final answer of the chosen candidate, such as what it boxed; None where it has none."""
        return None if self._candidate is None else final_answer(self._candidate)

    @property
    def probability(self) -> float | None:
        """The probability that the choice is right, if the strategy estimates it, as `posterior` does."""
        return None if self.selection is None else self.selection.facts.get("probability")

    @property
    def correct(self) -> bool | None:
        """Whether the choice is right: the label of the chosen candidate, if the case has labels."""
        return None if self._candidate is None else self._candidate.correct

    def receipt(self) -> "DrawnReceipt":
        """A picture of the contest, to print or to show in a notebook.

        Raises `InputError` for a case that failed, and for a result read from a run folder (`caps report`
        draws those).
        """
        if self.contest is None or self.selection is None:
            why = self.error or "it was read from a run folder, which caps report draws"
            raise InputError(f"case {self.id!r}: its contest is not known: {why}")
        return DrawnReceipt(self.id, self._headline(), self.contest)

    def _headline(self) -> str:
        sure = "" if self.probability is None else f", probability {self.probability:.2f}"
        cost = f"{self.tokens:,} tokens" + ("" if self.usd is None else f", ${self.usd:.4f}")
        return f"candidate {self.winner} of {len(self.order)}{sure} ({cost})"

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data: what `caps select` prints for the case."""
        return dict(self._line)

    def _repr_html_(self) -> str:
        """The chosen answer, its probability and the scores of all candidates, for a notebook."""
        if self.error is not None:
            return f"<div><b>case {_html(self.id)}</b>: failed<pre>{_html(self.error)}</pre></div>"
        text = self.text if len(self.text) <= SHOWN_TEXT else self.text[:SHOWN_TEXT] + " ..."
        answer = self.answer
        final = "" if answer is None else f"<div>answer: <code>{_html(answer[:SHOWN_TEXT])}</code></div>"
        return (
            f"<div><b>case {_html(self.id)}</b>: {self._headline()}{LABELS[self.correct]}"
            f"{final}<pre style='white-space:pre-wrap'>{_html(text)}</pre>{self._picture()}</div>"
        )

    def _picture(self) -> str:
        """The scores as bars, best first; empty if the strategy has none."""
        if self.selection is None:
            return ""
        scores = self.selection.scores
        known = [
            (one, float(scores[one])) for one in self.order if one in scores and math.isfinite(scores[one])
        ]
        known = known[:SHOWN_BARS]
        if not known:
            return ""
        low, high = min(0.0, *(score for _, score in known)), max(1.0, *(score for _, score in known))
        bars = []
        for index, (one, score) in enumerate(known):
            width = max(1.0, 200 * (score - low) / (high - low) if high > low else 0.0)
            colour, top = "#2f5d8c" if one == self.winner else "#999", 14 * index
            bars.append(
                f"<text x='24' y='{top + 11}' text-anchor='end'>{one}</text>"
                f"<rect x='30' y='{top + 2}' width='{width:.1f}' height='10' fill='{colour}'/>"
                f"<text x='{36 + width:.1f}' y='{top + 11}'>{score:.3g}</text>"
            )
        kind = _html(self.selection.score_kind or "score")
        return (
            f"<svg width='300' height='{14 * len(known) + 2}' font-size='10' font-family='sans-serif' "
            f"role='img' aria-label='{kind} of each candidate'><title>{kind} of each candidate</title>"
            f"{''.join(bars)}</svg>"
        )


@dataclass(frozen=True, slots=True)
class DrawnReceipt:
    """A picture of how a case was decided: `print(receipt)`, or the last line of a notebook's cell."""

    id: str
    headline: str
    contest: Contest = field(repr=False)

    def __str__(self) -> str:
        return self._drawn()[0]

    def _repr_html_(self) -> str:
        return f"<div><b>case {_html(self.id)}</b>: {_html(self.headline)}{self._drawn()[1]}</div>"

    def _drawn(self) -> tuple[str, str]:
        """The picture as plain text and as markup."""
        from rich.console import Console  # noqa: PLC0415  (takes a while to load)
        from rich.text import Text  # noqa: PLC0415

        lines = draw(self.contest) or [Text("no judge was asked")]
        width = max((line.cell_len for line in lines), default=1)
        console = Console(file=io.StringIO(), record=True, width=width, force_jupyter=False)
        for line in lines:
            console.print(line, soft_wrap=True, highlight=False)
        page = console.export_html(inline_styles=True, code_format=_RECEIPT_CODE, clear=False)
        text = "\n".join(line.rstrip() for line in console.export_text().splitlines())
        return f"case {printable(self.id)}: {self.headline}\n{text}\n", page


_RECEIPT_CODE = "<pre style='line-height:1.1;overflow-x:auto'>{code}</pre>"


def selected_of(outcome: Outcome, config: RunConfig, price: Price | None) -> Selected:
    """The result of a case from the outcome of an engine."""
    line = selection_line(outcome, config, price=price)
    usd = None if price is None else price.of_sums(outcome.ledger.total())
    chosen, prepared = outcome.selection, outcome.prepared
    if chosen is None or prepared is None:
        words = outcome.failure or "nothing was selected"
        line |= {"error": words}
        return Selected(outcome.name, None, "", None, outcome.ledger, None, words, usd, line)
    winner = prepared.case.candidates[chosen.winner]
    return Selected(
        outcome.name,
        chosen.winner,
        winner.text,
        chosen,
        outcome.ledger,
        outcome.contest,
        usd=usd,
        _line=line,
        _candidate=winner,
    )


def failed(name: str, error: str) -> Selected:
    """The result of a case that was not run."""
    return Selected(name, None, "", None, Ledger(), error=error, _line={"id": name, "error": error})


def rows(results: Iterable[Selected]) -> list[dict[str, Any]]:
    """Results as flat rows with the same columns each, for `pandas.DataFrame(caps.rows(results))`."""
    return [_row(one) for one in results]


def _row(one: Selected) -> dict[str, Any]:
    total, calls = one.ledger.total(), one.ledger.calls
    return {
        "id": one.id,
        "winner": one.winner,
        "text": one.text,
        "answer": one.answer,
        "probability": one.probability,
        "candidates": len(one.order),
        "clusters": one.to_dict().get("clusters"),
        "calls_partial": calls[str(Level.PARTIAL)],
        "calls_full": calls[str(Level.FULL)],
        "tokens": total.asked,
        "output_tokens": total.output,
        "usd": one.usd,
        "provisional": None if one.selection is None else one.selection.provisional,
        "error": one.error,
    }


class Interval(NamedTuple):
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two lists of results on the same cases, the second against the first; `print` it for a summary.

    Intervals are from a paired bootstrap over cases. Fields that need labels are None without labels.
    """

    cases: int
    different: int  # cases in which another answer was chosen
    labelled: int
    correct: tuple[float, float] | None  # share of right choices: the first, the second
    gain: Interval | None  # the second's share less the first's
    p_value: float | None  # McNemar's exact test
    tokens: tuple[int, int]
    token_ratio: Interval | None  # tokens of the second over those of the first

    def __str__(self) -> str:
        words = [f"{self.cases} cases, another answer in {self.different}"]
        if self.correct is not None and self.gain is not None:
            first, second = self.correct
            words.append(
                f"right: {100 * first:.1f} % and {100 * second:.1f} % of {self.labelled}, a difference of "
                f"{100 * self.gain.value:+.1f} points ({100 * self.gain.low:+.1f} to "
                f"{100 * self.gain.high:+.1f}; p = {self.p_value:.2g})"
            )
        words.append(f"tokens: {self.tokens[0]:,} and {self.tokens[1]:,}")
        if self.token_ratio is not None:
            ratio = self.token_ratio
            words[-1] += f", {ratio.value:.2f} times as many ({ratio.low:.2f} to {ratio.high:.2f})"
        return "\n".join(words)

    def _repr_html_(self) -> str:
        return f"<pre>{_html(str(self))}</pre>"


def compare_results(
    first: Sequence[Selected],
    second: Sequence[Selected],
    *,
    correct: Callable[[Selected], bool | None] | None = None,
) -> Comparison:
    """Compare two lists of results on the same cases, such as those of two strategies, with intervals.

    A case counts as right where the chosen candidate is labelled `correct`, or where the function `correct`
    says so; a case that failed counts as wrong if its other result has a label. Raises `InputError` unless
    both lists have the same cases, each once.
    """
    before, after = _by_id(first, "first"), _by_id(second, "second")
    if before.keys() != after.keys():
        odd = sorted(before.keys() ^ after.keys())
        raise InputError(f"the lists have different cases: {odd[0]!r} is in one of them only")
    if not before:
        raise InputError("the lists are empty: there is nothing to compare")
    label = correct or (lambda result: result.correct)
    rights = []
    for name, result in before.items():
        pair = (result, after[name])
        labels = [label(result) if result.error is None else None for result in pair]
        has_label = [
            mark is not None or result.error is not None for mark, result in zip(labels, pair, strict=True)
        ]
        if all(has_label) and labels != [None, None]:
            rights.append((bool(labels[0]), bool(labels[1])))
    gaps = [float(right) - float(left) for left, right in rights]
    tokens = [result.tokens for result in before.values()], [after[name].tokens for name in before]
    ratio = ratio_interval(tokens[1], tokens[0]) if sum(tokens[0]) else None
    return Comparison(
        cases=len(before),
        different=sum(not _same_answer(result, after[name]) for name, result in before.items()),
        labelled=len(rights),
        correct=None if not rights else (_share(a for a, _ in rights), _share(b for _, b in rights)),
        gain=None if not rights else Interval(sum(gaps) / len(gaps), *mean_interval(gaps)),
        p_value=None if not rights else exact_mcnemar(*discordant(rights)),
        tokens=(sum(tokens[0]), sum(tokens[1])),
        token_ratio=None if ratio is None else Interval(sum(tokens[1]) / sum(tokens[0]), *ratio),
    )


def _same_answer(first: Selected, second: Selected) -> bool:
    """Whether two results of a case chose the same answer, though perhaps another candidate."""
    if first.winner == second.winner or first.winner is None or second.winner is None:
        return first.winner == second.winner
    if None not in (first.answer, second.answer) and same_answer(str(first.answer), str(second.answer)):
        return True
    for contest in (first.contest, second.contest):
        signatures = {} if contest is None else {each.id: each.signature for each in contest.entrants}
        chosen = [signatures.get(winner) for winner in (first.winner, second.winner)]
        if chosen[0] is not None and chosen[0] == chosen[1]:
            return True
    return False


def _by_id(results: Sequence[Selected], which: str) -> dict[str, Selected]:
    by_id = {result.id: result for result in results}
    for name, count in Counter(result.id for result in results).items():
        if count > 1:
            raise InputError(f"the {which} list has two results of case {name!r}: give each case its own id")
    return by_id


def _share(values: Iterable[bool]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run folder: the config with all derived values, the results, and the summary."""

    config: RunConfig
    results: list[Selected]
    summary: Mapping[str, Any]


def load_run(folder: str | Path) -> LoadedRun:
    """Read a folder that `caps select --out` wrote, also that of an interrupted run or of shards.

    Results lack the contest and the scores, which are not in the folder. Raises `InputError` if there is no
    run, or a damaged one.
    """
    path = Path(folder)
    record = read_run(path)
    if record.missing:
        _log.warning("%s", record.missing)
    rulings = read_rulings(path)
    try:
        ledgers = ledgers_by_case(rulings)
        results = [_loaded(line, ledgers.get(name) or Ledger()) for name, line in record.selections.items()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: selections.jsonl or rulings.jsonl is damaged ({error!r})") from None
    return LoadedRun(record.file.config, results, dict(record.file.summary))


def _loaded(line: Line, ledger: Ledger) -> Selected:
    name, usd = str(line["id"]), line.get("usd")
    if line.get("error") is not None:
        return Selected(name, None, "", None, ledger, error=str(line["error"]), usd=usd, _line=line)
    rescued = line.get("rescued")
    facts = {
        key: float(line[key]) for key in ("probability", "abstain", "calibrated") if line.get(key) is not None
    }
    selection = Selection(
        int(line["winner"]),
        tuple(line["order"]),
        tuple(line.get("finalists") or ()),
        tuple(rescued) if isinstance(rescued, list) else () if rescued is None else (rescued,),
        facts=facts,
        provisional=bool(line.get("provisional")),
    )
    text = str(line["text"])
    return Selected(
        name, selection.winner, text, selection, ledger, usd=usd, _line=line, _candidate=Candidate(text)
    )


def _html(text: str) -> str:
    """Escape an untrusted text for HTML, without control or direction characters."""
    return escape(printable(text), quote=True)
