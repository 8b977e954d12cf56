"""Comparison of runs: accuracy, cost, and the cases on which their answers differ, with the reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from caps.core.text import number, percent, plural
from caps.reports.cases import CaseFacts
from caps.reports.charts import Point, plane, shown_chart
from caps.reports.html import Node, el, visible
from caps.reports.run_page import CASE, Listing, dollars, pack_flags, right_of, section, table
from caps.runs.result_lines import Line
from caps.runs.summary import Figures, Labels, group_by_ask
from caps.statistics.estimates import discordant, exact_mcnemar

SIGNIFICANCE = 0.05
SIGNS = {1: "✓ ", 0: "✗ ", None: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """A run in a comparison."""

    name: str
    strategy: str
    model: str
    selections: Mapping[str, Line]
    calls: Mapping[str, list[Line]]
    labels: Labels
    facts: Mapping[str, CaseFacts]
    figures: Figures

    def right(self, case: str) -> int | None:
        """Return 1 if the answer chosen for a case is right, 0 if it is wrong, None if that is unknown."""
        return right_of(self.selections[case], self.labels.get(case, ()))


def answers_of_candidates(runs: Sequence[ComparedRun], case: str) -> list[Sequence[object]]:
    """For each run, the answers of all candidates of a case: equal ones are equal in all runs.

    All runs are compared by the same signatures: those of the run whose findings show most answers to be
    equal. Runs with other candidates keep their own.
    """
    known = [run.facts[case] for run in runs if case in run.facts]
    merged = min(known, key=lambda facts: len(set(facts.signatures)), default=None)
    answers: list[Sequence[object]] = []
    for run in runs:
        facts = run.facts.get(case, merged)
        if facts is None or merged is None:
            answers.append(range(len(run.selections[case].get("order", ()))))
        else:
            answers.append(merged.signatures if facts.texts == merged.texts else facts.signatures)
    return answers


def chosen_answers(runs: Sequence[ComparedRun], case: str) -> list[object]:
    """The answer that each run chose for a case; None where it failed."""
    winners = [run.selections[case].get("winner") for run in runs]
    answers = answers_of_candidates(runs, case)
    return [None if winner is None else own[winner] for winner, own in zip(winners, answers, strict=True)]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs on their common cases; `p` is McNemar's exact test over the labelled ones."""

    shared: int
    different: int  # answers
    other_candidates: int  # the same answer, from another candidate
    labelled: int
    only_first: int
    only_second: int
    p: float


def compare_runs(first: ComparedRun, second: ComparedRun) -> Comparison:
    """Compare two runs case by case."""
    shared = [name for name in first.selections if name in second.selections]
    pairs, different, others = [], 0, 0
    for name in shared:
        a, b = first.right(name), second.right(name)
        if a is not None and b is not None:
            pairs.append((bool(a), bool(b)))
        answers = chosen_answers((first, second), name)
        if answers[0] != answers[1]:
            different += 1
        elif first.selections[name].get("winner") != second.selections[name].get("winner"):
            others += 1
    only_first, only_second = discordant(pairs)
    p = exact_mcnemar(only_first, only_second)
    return Comparison(len(shared), different, others, len(pairs), only_first, only_second, p)


def lead(runs: Sequence[ComparedRun]) -> Node:
    """Say in a few sentences how the runs differ."""
    if len(runs) == 2:
        return el("p", _pair_words(*runs), class_="lead")
    known = [one for one in runs if one.figures.pass_at_1 is not None]
    text = f"{len(runs)} runs. "
    if known:
        best = max(known, key=lambda one: one.figures.pass_at_1 or 0.0)
        text += f"Most often right: {best.name}, with {percent(best.figures.pass_at_1)} %. "
    least = min(runs, key=_tokens_per_case)
    text += f"Cheapest: {least.name}, with {number(_tokens_per_case(least), 0)} tokens read per case."
    return el("p", text, class_="lead")


def _pair_words(first: ComparedRun, second: ComparedRun) -> str:
    found = compare_runs(first, second)
    text = (
        f"Of {plural(found.shared, 'common case')}, {first.name} and {second.name} give different answers in "
        f"{number(found.different, 0)}"
    )
    text += f" (and the same answer from another candidate in {found.other_candidates})." if (
        found.other_candidates
    ) else "."  # fmt: skip
    if not found.labelled:
        return f"{text} No labels are known, so the runs cannot be ranked."
    if not found.only_first and not found.only_second:
        text += f" They are right on the same of {plural(found.labelled, 'labelled case')}."
    else:
        text += (
            f" Only {first.name} is right on {found.only_first}, only {second.name} on {found.only_second}: "
            f"{_meaning(found.p)} (McNemar's exact test, p {_p(found.p)})."
        )
    tokens = [_tokens_per_case(one) for one in (first, second)]
    if all(tokens):
        ratio = tokens[1] / tokens[0]
        share = f"{percent(ratio)} % of" if ratio < 2 else f"{number(ratio, 1)} times"
        text += f" {second.name} reads {share} the tokens of {first.name}."
    return text


def _p(p: float) -> str:
    return f"= {p:.2g}" if p >= 0.001 else "< 0.001"


def _meaning(p: float) -> str:
    return "chance rarely makes such a difference" if p < SIGNIFICANCE else "chance may explain it"


def _tokens_per_case(run: ComparedRun) -> float:
    return run.figures.total.asked / run.figures.cases if run.figures.cases else 0.0


def runs_view(runs: Sequence[ComparedRun]) -> list[Node]:
    """Show accuracy and cost of every run as a table and a chart."""
    rows, points = [], []
    for run in runs:
        one, per_case = run.figures, _tokens_per_case(run)
        low, high = one.interval
        share = one.pass_at_1
        right = "–" if share is None else f"{percent(share)} % ({percent(low)} to {percent(high)})"
        money = "unknown" if one.usd is None and one.total.calls else dollars(one.usd or 0.0)
        rows.append(
            (
                run.name, run.strategy, run.model, number(one.cases, 0), right, number(one.total.calls, 0),
                number(per_case, 0), money,
            )
        )  # fmt: skip
        if share is not None:
            points.append(Point(label=run.name, tokens=per_case, share=share, low=low, high=high))
    heads = (
        "run", "strategy", "judge", "cases", "right (95 % interval)", "calls", "tokens read per case", "cost",
    )  # fmt: skip
    title = "Accuracy against tokens"
    notes = ["Whiskers: 95 % intervals."]
    picture = shown_chart(lambda width: plane(points, title, notes, width=width)) if len(points) > 1 else None
    return [section("The runs", None, table(heads, rows, "figures of the runs"), picture)]


def pairs_view(runs: Sequence[ComparedRun]) -> Node | None:
    """Compare every further run with the first; None for two runs, about which the lead says it all."""
    if len(runs) < 3:
        return None
    first, rows = runs[0], []
    for one in runs[1:]:
        found = compare_runs(first, one)
        said = _meaning(found.p) if found.labelled else "no labels"
        counts = (found.shared, found.different, found.only_first, found.only_second)
        rows.append((one.name, *(number(count, 0) for count in counts), _p(found.p).removeprefix("= "), said))
    heads = (
        "run", "common cases", "different answers", f"only {first.name} right", "only this one right",
        "p (McNemar)", "meaning",
    )  # fmt: skip
    about = "p: how likely chance alone makes at least such a difference, by McNemar's exact test."
    shown = table(heads, rows, f"compared with {first.name}")
    return section(f"Each compared with {first.name}", about, shown)


def cases_listing(runs: Sequence[ComparedRun], *, texts: bool = True) -> Listing:
    """List the cases that all runs have; a row opens the receipts of all."""
    columns = (
        CASE,
        *((one.name, "text words run", f"the answer that {one.name} chose") for one in runs),
        ("why", "text why", "what decided between two different answers"),
        ("problem", "long wide", "the beginning of the problem"),
    )
    filters = ("different answers", *(f"only {one.name} right" for one in runs), "all right", "all wrong")
    starts = [sum(len(one.selections) for one in runs[:place]) for place in range(len(runs))]
    places = [{name: start + at for at, name in enumerate(one.selections)} for start, one in zip(
        starts, runs, strict=True)]  # fmt: skip
    rows: list[list[Any]] = []
    for name in runs[0].selections:
        if not all(name in one.selections for one in runs):
            continue
        right = [one.right(name) for one in runs]
        differs = len(set(chosen_answers(runs, name))) > 1
        alone = [mark == 1 and right.count(0) == len(runs) - 1 for mark in right]
        known = next((one.facts[name] for one in runs if name in one.facts), None)
        flags = (differs, *alone, right.count(1) == len(runs), right.count(0) == len(runs))
        rows.append(
            [
                pack_flags(flags), [place[name] for place in places], visible(name),
                *(
                    visible(SIGNS[mark] + _shown(one, name, texts=texts))
                    for one, mark in zip(runs, right, strict=True)
                ),
                visible(_reasons(runs, name)) if differs else "",
                "" if known is None or not texts else visible(known.problem[:400].strip()), "", "",
            ]
        )  # fmt: skip
    rows.sort(key=lambda row: (not row[0] & 1, not any(row[0] >> (1 + at) & 1 for at in range(len(runs)))))
    return Listing(columns, filters, rows)


def _shown(run: ComparedRun, name: str, *, texts: bool) -> str:
    line, facts = run.selections[name], run.facts.get(name)
    if "winner" not in line:
        return "failed"
    return f"candidate {line['winner']}" if facts is None or not texts else facts.answer


def _reasons(runs: Sequence[ComparedRun], name: str) -> str:
    """Say for each answer what spoke for it: votes, probability, and verdicts against the other answers."""
    return "; ".join(f"{one.name}: {_reason(one, runs, name)}" for one in runs)


def _reason(run: ComparedRun, runs: Sequence[ComparedRun], name: str) -> str:
    line, facts = run.selections[name], run.facts.get(name)
    if "winner" not in line:
        return "failed"
    parts = [] if facts is None else [f"{facts.votes} of {plural(facts.voters, 'vote')}"]
    if line.get("probability") is not None:
        parts.append(f"{percent(line['probability'])} % sure")
    if facts is not None and run.calls.get(name):
        place = [one is run for one in runs].index(True)
        answers, chosen = answers_of_candidates(runs, name)[place], chosen_answers(runs, name)
        others = {*chosen} - {chosen[place], None}
        won, total = _verdicts(run.calls[name], answers, chosen[place], others)
        parts.append(
            f"preferred in {won} of {total} direct comparisons" if total else "never compared directly"
        )
    parts += [word for word in ("rescued", "provisional") if line.get(word) not in (None, False)]
    return ", ".join(parts) or f"candidate {line['winner']}"


def _verdicts(
    calls: list[Line], answers: Sequence[object], chosen: object, others: set[object]
) -> tuple[float, int]:
    """Count how often the judge preferred the chosen answer to others that runs chose."""
    won, total = 0, 0
    for attempts in group_by_ask(calls):
        line = attempts[-1]
        ratings = line.get("ratings")
        if "pair" not in line or ratings is None:
            continue
        a = line["a"]
        (b,) = [one for one in line["pair"] if one != a]
        sides = [answers[one] if one < len(answers) else None for one in (a, b)]
        for own, other, apart in ((0, 1, ratings[0] - ratings[1]), (1, 0, ratings[1] - ratings[0])):
            if sides[own] == chosen and sides[other] in others:
                total += 1
                won += apart > 0
    return won, total
