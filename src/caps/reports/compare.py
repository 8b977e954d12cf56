"""Pages of several runs: a list of them, or a comparison: accuracy, cost, and why their answers differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from caps.core.text import number, percent, plural
from caps.reports.charts import Point, plane
from caps.reports.elements import head, section, table
from caps.reports.html import Html, el
from caps.reports.listing import CASE, Column, Listing, make_row
from caps.reports.numbers import span
from caps.reports.page import Page
from caps.reports.report import RunReport, footer
from caps.reports.run_page import terms_view
from caps.runs.result_lines import sureness
from caps.statistics.estimates import discordant, exact_mcnemar

SIGNIFICANCE = 0.05
SIGNS = {True: "✓ ", False: "✗ ", None: ""}


def comparison_page(runs: Sequence[RunReport], *, texts: bool = True) -> Page:
    """Create the page of several runs, compared case by case."""
    if len({report.name for report in runs}) < len(runs):
        runs = [replace(report, name=str(report.run.path)) for report in runs]
    names = [report.name for report in runs]
    title = ", ".join(names)
    return Page(
        title=f"{title} · caps report",
        figures=head(title, lead(runs), runs_view(runs), pairs_view(runs)),
        after=[terms_view(*(report.run for report in runs), names=names)],
        listing=cases_listing(runs, texts=texts),
        listing_title="Cases of all runs, different answers first",
        footer=footer(),
        runs=names,
    )


def index_page(title: str, runs: Mapping[str, RunReport]) -> Page:
    """Create the page that lists the runs of a folder, the latest first, each by the address of its page."""
    rows = []
    for address, report in sorted(runs.items(), key=lambda item: -item[1].run.file.started):
        started = report.run.file.started
        date = datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%d %H:%M") if started else "–"
        rows.append((el("a", report.name, href=address), date, *_run_cells(report), report.status))
    heads = ("run", "begun (UTC)", *RUN_HEADS, "state")
    about = el("p", f"{plural(len(rows), 'run')}. Each name leads to the page of the run.", class_="lead")
    return Page(
        title=f"{title} · caps report",
        figures=[*head(title, about), table(heads, rows, "runs")],
        footer=footer(),
    )


def answers_of_candidates(runs: Sequence[RunReport], case: str) -> list[Sequence[object]]:
    """For each run, the answers of all candidates of a case: equal ones are equal in all runs.

    All runs are compared by the same signatures: those of the run whose findings show most answers to be
    equal. Runs with other candidates keep their own.
    """
    read = [run.facts[case] for run in runs if case in run.facts]
    merged = min(read, key=lambda facts: len(set(facts.signatures)), default=None)
    answers: list[Sequence[object]] = []
    for run in runs:
        facts = run.facts.get(case, merged)
        if facts is None or merged is None:
            answers.append(range(len(run.selections[case].get("order", ()))))
        else:
            answers.append(merged.signatures if facts.texts == merged.texts else facts.signatures)
    return answers


def chosen_answers(runs: Sequence[RunReport], case: str) -> list[object]:
    """The answer that each run chose for a case; None where it failed."""
    winners = [run.selections[case].get("winner") for run in runs]
    answers = answers_of_candidates(runs, case)
    return [None if winner is None else some[winner] for winner, some in zip(winners, answers, strict=True)]


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


def compare_runs(first: RunReport, second: RunReport) -> Comparison:
    """Compare two runs case by case."""
    shared = [name for name in first.selections if name in second.selections]
    pairs, different, others = [], 0, 0
    for name in shared:
        a, b = first.right(name), second.right(name)
        if a is not None and b is not None:
            pairs.append((a, b))
        answers = chosen_answers((first, second), name)
        if answers[0] != answers[1]:
            different += 1
        elif first.selections[name].get("winner") != second.selections[name].get("winner"):
            others += 1
    only_first, only_second = discordant(pairs)
    p = exact_mcnemar(only_first, only_second)
    return Comparison(len(shared), different, others, len(pairs), only_first, only_second, p)


def lead(runs: Sequence[RunReport]) -> Html:
    """Say in a few sentences how the runs differ."""
    if len(runs) == 2:
        return el("p", _pair_words(*runs), class_="lead")
    labelled = [run for run in runs if run.outcomes.accuracy is not None]
    text = f"{len(runs)} runs. "
    if labelled:
        best = max(labelled, key=lambda run: run.outcomes.accuracy or 0.0)
        text += f"Most often right: {best.name}, with {percent(best.outcomes.accuracy)} %. "
    least = min(runs, key=lambda run: run.tokens_per_case)
    text += f"Cheapest: {least.name}, with {number(least.tokens_per_case, 0)} tokens read per case."
    return el("p", text, class_="lead")


def _pair_words(first: RunReport, second: RunReport) -> str:
    compared = compare_runs(first, second)
    others = compared.other_candidates
    text = (
        f"Of {plural(compared.shared, 'common case')}, {first.name} and {second.name} give different answers "
        f"in {number(compared.different, 0)}"
        + (f" (and the same answer from another candidate in {others})." if others else ".")
    )
    if not compared.labelled:
        return f"{text} No labels are known, so the runs cannot be ranked."
    if not compared.only_first and not compared.only_second:
        text += f" They are right on the same of {plural(compared.labelled, 'labelled case')}."
    else:
        text += (
            f" Only {first.name} is right on {compared.only_first}, only {second.name} on "
            f"{compared.only_second}: {_meaning(compared.p)} (McNemar's exact test, p {_p(compared.p)})."
        )
    tokens = [run.tokens_per_case for run in (first, second)]
    if all(tokens):
        ratio = tokens[1] / tokens[0]
        share = f"{percent(ratio)} % of" if ratio < 2 else f"{number(ratio, 1)} times"
        text += f" {second.name} reads {share} the tokens of {first.name}."
    return text


def _p(p: float) -> str:
    return f"= {p:.2g}" if p >= 0.001 else "< 0.001"


def _meaning(p: float) -> str:
    return "chance rarely makes such a difference" if p < SIGNIFICANCE else "chance may explain it"


def _judge(run: RunReport) -> str:
    return run.judge if run.figures.total.calls else "none"


RUN_HEADS = (
    "strategy", "judge", "cases", "right (95 % interval)", "right / missed / impossible", "ceiling %",
    "recovery %", "calls", "tokens read per case", "cost",
)  # fmt: skip


def _run_cells(run: RunReport) -> tuple[str, ...]:
    """What a table says of a run: who chose, how well, and at what cost."""
    outcomes, share = run.outcomes, run.outcomes.accuracy
    return (
        run.strategy,
        _judge(run),
        number(run.figures.cases, 0),
        "–" if share is None else f"{percent(share)} % ({span(*outcomes.interval)})",
        f"{outcomes.right} / {outcomes.missed} / {outcomes.impossible}",
        percent(outcomes.share(outcomes.possible)),
        percent(outcomes.recovery),
        number(run.figures.total.calls, 0),
        number(run.tokens_per_case, 0),
        run.cost,
    )


def runs_view(runs: Sequence[RunReport]) -> Html:
    """Show accuracy and cost of every run as a table and a chart."""
    points = [
        Point(label=run.name, tokens=run.tokens_per_case, share=share, low=low, high=high)
        for run in runs
        if (share := run.outcomes.accuracy) is not None
        for low, high in [run.outcomes.interval]
    ]
    rows = [(run.name, *_run_cells(run)) for run in runs]
    picture = None
    if len(points) > 1:
        picture = plane(points, "Accuracy against tokens", ["Whiskers: 95 % intervals."]).svg()
    return section("The runs", None, table(("run", *RUN_HEADS), rows, "figures of the runs"), picture)


def pairs_view(runs: Sequence[RunReport]) -> Html | None:
    """Compare every further run with the first; None for two runs, about which the lead says it all."""
    if len(runs) < 3:
        return None
    first, rows = runs[0], []
    for run in runs[1:]:
        compared = compare_runs(first, run)
        meaning = _meaning(compared.p) if compared.labelled else "no labels"
        counts = (compared.shared, compared.different, compared.only_first, compared.only_second)
        p = _p(compared.p).removeprefix("= ")
        rows.append((run.name, *(number(count, 0) for count in counts), p, meaning))
    heads = (
        "run", "common cases", "different answers", f"only {first.name} right", "only this one right",
        "p (McNemar)", "meaning",
    )  # fmt: skip
    about = "p: how likely chance alone makes at least such a difference, by McNemar's exact test."
    shown = table(heads, rows, f"compared with {first.name}")
    return section(f"Each compared with {first.name}", about, shown)


def cases_listing(runs: Sequence[RunReport], *, texts: bool = True) -> Listing:
    """List the cases that all runs have; a row opens the receipts of all."""
    columns = (
        CASE,
        *(Column(run.name, "words", f"the answer that {run.name} chose") for run in runs),
        Column("why", "text", "what decided between different answers", "" if len(runs) == 2 else "chosen"),
        Column("problem", "long", "the beginning of the problem"),
    )
    filters = ("different answers", *(f"only {run.name} right" for run in runs), "all right", "all wrong")
    starts = [sum(len(run.selections) for run in runs[:place]) for place in range(len(runs))]
    places = [
        {name: start + at for at, name in enumerate(run.selections)}
        for start, run in zip(starts, runs, strict=True)
    ]
    rows = []
    for name in runs[0].selections:
        if not all(name in run.selections for run in runs):
            continue
        right = [run.right(name) for run in runs]
        differs = len(set(chosen_answers(runs, name))) > 1
        alone = [label is True and right.count(False) == len(runs) - 1 for label in right]
        about = next((run.facts[name] for run in runs if name in run.facts), None)
        values = [
            name,
            *(SIGNS[label] + _shown(run, name, texts=texts) for run, label in zip(runs, right, strict=True)),
            _reasons(runs, name) if differs else "",
            "" if about is None or not texts else about.problem[:400].strip(),
        ]
        flags = (differs, *alone, all(right), right.count(False) == len(runs))
        rows.append(
            (not differs, not any(alone), make_row(columns, values, [at[name] for at in places], flags=flags))
        )
    rows.sort(key=lambda row: row[:2])
    return Listing(columns, filters, [row for *_, row in rows])


def _shown(run: RunReport, name: str, *, texts: bool) -> str:
    line, facts = run.selections[name], run.facts.get(name)
    if "winner" not in line:
        return "failed"
    return f"candidate {line['winner']}" if facts is None or not texts else facts.answer


def _reasons(runs: Sequence[RunReport], name: str) -> str:
    """Say for each answer what spoke for it: votes, probability, and how it won."""
    return "; ".join(f"{run.name}: {_reason(run, name)}" for run in runs)


def _reason(run: RunReport, name: str) -> str:
    line, facts = run.selections[name], run.facts.get(name)
    if "winner" not in line:
        return "failed"
    parts = [] if facts is None else [f"{facts.votes} of {plural(facts.voters, 'vote')}"]
    if words := sureness(line):
        parts.append(words)
    parts += [word for word in ("rescued", "provisional") if line.get(word) not in (None, False)]
    return ", ".join(parts) or f"candidate {line['winner']}"
